//! Plants faults in a store, for tests that check whether `verify` finds the faults. Works with every store.

use crate::scripted::Scripted;
use epitome::model::ModelError;
use epitome::rules::message::Message;
use epitome::store::{StoreFault, SummaryRow};
use epitome::{Builder, Engine, Fork, Session, Summarize};

fn talk(from: usize, through: usize) -> Vec<Message> {
    let line = |n: usize| {
        let text = format!("Order {n}0071 left the house on Monday, and the customer in Oslo wrote twice.");
        if n % 2 == 1 { Message::user(text) } else { Message::assistant(text) }
    };
    (from..=through).map(line).collect()
}

async fn append_and_summarize(session: &Session, from: usize, through: usize) {
    session.append(talk(from, through)).await.unwrap();
    session.work().await.unwrap();
}

/// Creates a session whose summaries contain every legal case:
///
/// - Summaries 1, 2 and 3 each continue the summary before.
/// - Summary 4 was undone. Summary 5 replaces summary 4.
/// - Summary 6 was written by `local`, because the model failed. Summary 7 was written by a model and replaces
///   summary 6.
/// - Summary 8 was rebuilt from the first message on.
/// - Summary 9 continues summary 8.
///
/// Also creates a fork of this session, and appends messages to the fork.
pub async fn history(open: impl AsyncFnOnce(Builder) -> Engine) {
    let model = Scripted::new();
    let settings = r#"{"slot": [{"name": "short", "trigger": "messages(20)"}],
        "summarize": {"models": ["main"], "stand_in_after": "0"}}"#;
    let engine = Engine::builder().model("main", model.clone()).settings(settings).workers(0);
    let engine = open(engine).await;
    let session = engine.workspace("w").session("a");
    for at in [1, 21, 41, 61] {
        append_and_summarize(&session, at, at + 19).await;
    }
    session.undo(4).await.unwrap();
    append_and_summarize(&session, 81, 100).await;
    let _ = model.clone().fails(ModelError::no_answer("down"));
    append_and_summarize(&session, 101, 120).await;
    session.summarize(Summarize::default()).await.unwrap();
    session.rebuild(None, "short").await.unwrap();
    session.work().await.unwrap();
    append_and_summarize(&session, 121, 140).await;
    let copy = session.fork(Fork::whole("copy")).await.unwrap();
    append_and_summarize(&copy, 141, 160).await;
    assert_eq!(engine.verify().await.unwrap(), []);
    engine.close().await;
}

/// Returns the faults that `verify` must report for the session of [`history`], each with the SQL that plants the
/// fault. `rows` are the summaries of session number 1, newest first. `set` returns the SQL that sets a value in a
/// summary's facts.
pub fn plants(rows: &[SummaryRow], set: impl Fn(i64, &str, &str) -> String) -> Vec<(String, String)> {
    let mut summaries: Vec<_> = rows
        .iter()
        .map(|row| (row.id, row.through, row.parent, row.facts.from, row.facts.built_on, row.facts.stand_in))
        .collect();
    summaries.reverse();
    assert_eq!(
        summaries,
        [
            (1, 20, None, 1, None, false),
            (2, 40, Some(1), 21, Some(1), false),
            (3, 60, Some(2), 41, Some(2), false),
            (4, 80, Some(3), 61, Some(3), false),
            (5, 100, Some(3), 61, Some(3), false),
            (6, 120, Some(5), 101, Some(5), true),
            (7, 120, Some(6), 101, Some(5), false),
            (8, 120, Some(7), 1, None, false),
            (9, 140, Some(8), 121, Some(8), false),
        ]
    );
    assert!(rows.iter().all(|row| row.facts.fence > 0));
    let fence = |id: i64| rows.iter().find(|row| row.id == id).unwrap().facts.fence;
    let twice = "UPDATE summaries SET parent = 2 WHERE session = 1 AND id = 5".to_owned();
    let late = |id: i64| {
        format!("summary {}: its fencing token is 1, but the earlier summary {id} has {}", id + 1, fence(id))
    };
    let (third, fourth) = (late(2), late(3));
    let plants = [
        // A summary covers fewer messages than an earlier summary.
        ("summary 3: it ends with message 39, but the earlier summary 2 ends with message 40", through(3, 39)),
        ("summary 7: it ends with message 120, but the earlier summary 6 ends with message 125", through(6, 125)),
        ("summary 3: the summary before it, 2, covers more messages", through(3, 39)),
        // There are messages that no summary covers.
        ("summary 2: it begins with message 22, but the summary before it, 1, ends with 20", set(2, "from", "22")),
        ("summary 1: no summary covers the messages before 2", set(1, "from", "2")),
        ("summary 2: it covers messages up to 40, but begins later: at message 41", set(2, "from", "41")),
        // The same messages were summarized twice.
        ("summary 5: it follows summary 2, like summary 3: the same messages were summarized twice", twice),
        (
            "summary 5: it follows summary 3, like summary 4: the same messages were summarized twice",
            "UPDATE summaries SET state = 'superseded' WHERE session = 1 AND id = 4".to_owned(),
        ),
        (
            "summary 10: it follows summary 8, like summary 9: the same messages were summarized twice",
            "INSERT INTO summaries SELECT (SELECT max(kept) + 1 FROM summaries), session, 10, scope, slot, through, \
             'superseded', parent, created, asked, facts, text, sources FROM summaries WHERE session = 1 AND id = 9"
                .to_owned(),
        ),
        (
            "summary 3: it was built on summary 1 while summary 2 was current: the same messages were summarized twice",
            set(3, "built_on", "1"),
        ),
        ("summary 8: it was built on summary 6 while summary 7 was current: the same messages were summarized twice", set(8, "built_on", "6")),
        (
            "summary 3: it begins with message 30, but summary 2, on which it was built, ends with 40",
            set(3, "from", "30"),
        ),
        (
            "summary 8: it and summary 1 both begin with message 1 and have the fencing token 1: the same messages \
             were summarized twice",
            set(8, "fence", "1"),
        ),
        // A worker stored the summary after it had lost the lease of the slot.
        (&*third, set(3, "fence", "1")),
        (&*fourth, set(4, "fence", "1")),
        ("summary 9: its fencing token is 999, but the slot's fencing token is only", set(9, "fence", "999")),
        ("summary 9: its fencing token is", "UPDATE slots SET fence = 1 WHERE session = 1".to_owned()),
        // The scheduler would assign the slot to another workspace.
        (
            "slot \"short\": its row contains the name of another workspace",
            "UPDATE slots SET workspace = 'v' WHERE session = 1".to_owned(),
        ),
    ];
    plants.into_iter().map(|(what, plant)| (what.to_owned(), plant)).collect()
}

fn through(id: i64, through: u64) -> String {
    format!("UPDATE summaries SET through = {through} WHERE session = 1 AND id = {id}")
}

/// Panics if `verify` did not find this fault.
pub fn assert_found(faults: &[StoreFault], what: &str, plant: &str) {
    let found: Vec<String> = faults.iter().map(|fault| format!("{}: {}", fault.at, fault.what)).collect();
    assert!(found.iter().any(|fault| fault.contains(what)), "{plant}: no {what} in {found:#?}");
}

/// Faults in a store. Each entry is the place that `verify` must report, and the SQL that plants the fault. The store
/// must contain the session `a` in the workspace `w`, with nine messages, an idempotency key, a member and two
/// summaries.
pub const FAULTS: &[(&str, &str)] = &[
    ("message 4", "UPDATE messages SET before = before + 1 WHERE seq = 4"),
    ("message 4", "UPDATE messages SET cut = 2 WHERE seq = 4"),
    ("message 4", "UPDATE messages SET open = 1 WHERE seq = 4"),
    ("message 4", "UPDATE messages SET author = 'x' WHERE seq = 4"),
    ("message 4", "UPDATE messages SET shape = 8 WHERE seq = 4"),
    ("message 4", "UPDATE messages SET role = 9 WHERE seq = 4"),
    ("message 4", "UPDATE messages SET opener = 1 WHERE seq = 4"),
    ("message 4", "UPDATE messages SET body = '{' WHERE seq = 4"),
    ("message 3", "UPDATE messages SET tokens = tokens + 1 WHERE seq = 2"),
    ("session", "UPDATE sessions SET skipped = 5"),
    ("session", "UPDATE sessions SET opener = 2"),
    ("session", "UPDATE sessions SET head = 8"),
    ("session", "UPDATE sessions SET tokens = 1"),
    ("session", "UPDATE sessions SET tracker = 'x'"),
    ("session", "UPDATE sessions SET indexed = 50"),
    ("slot", "UPDATE slots SET active = 77"),
    ("slot", "UPDATE slots SET active = 1"),
    ("slot", "UPDATE slots SET active = NULL"),
    ("slot", "UPDATE slots SET covered = 5"),
    ("slot", "UPDATE slots SET due = 1"),
    ("slot", "UPDATE slots SET ready_at = 1"),
    ("slot", "UPDATE slots SET state = '[]'"),
    ("slot", "UPDATE summaries SET through = 5 WHERE id = 2"),
    ("slot", "UPDATE summaries SET state = 'standing'"),
    ("slot", "UPDATE summaries SET state = 'undone' WHERE id = 2"),
    ("slot", "DELETE FROM slots"),
    ("summary 2", "DELETE FROM summaries WHERE id = 1"),
    ("summary 2", "UPDATE summaries SET through = 7 WHERE id = 1"),
    ("summary 2", "UPDATE summaries SET slot = 'other' WHERE id = 1"),
    ("summary 1", "UPDATE summaries SET parent = NULL"),
    ("summary 1", "UPDATE summaries SET through = 50 WHERE id = 1"),
    ("summary 2", "UPDATE summaries SET facts = 'x' WHERE id = 2"),
    ("slots", "UPDATE slots SET session = 9"),
    ("summaries", "UPDATE summaries SET session = 9"),
    ("idempotency", "UPDATE idempotency SET session = 9"),
    ("members", "UPDATE members SET session = 9"),
    ("session", "UPDATE members SET author = 9"),
    ("session", "UPDATE authors SET workspace = 'v'"),
    ("event 1", "INSERT INTO events VALUES ('w', 1, 'missing', 'message', '{\"from\":1,\"through\":2}', 0)"),
    ("event 1", "INSERT INTO events VALUES ('w', 1, 'a', 'message', '{\"from\":2,\"through\":1}', 0)"),
    ("event 1", "INSERT INTO events VALUES ('w', 1, 'a', 'rumour', '{}', 0)"),
    ("session", "UPDATE sessions SET batch_from = 1"),
    ("session", "UPDATE sessions SET batch_skipped = NOT batch_skipped"),
    ("session", "UPDATE sessions SET encoding = ''"),
    ("session", "UPDATE sessions SET settings = '{'"),
    ("workspace", "UPDATE workspaces SET settings = '[]'"),
    ("session", "UPDATE idempotency SET last = 99"),
    ("slot", "UPDATE slots SET work = '{\"owner\": \"other\", \"attempts\": 0}'"),
];
