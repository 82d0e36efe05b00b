//! What was kept wrongly shows: a window kept twice, a coverage that fell, a fence that was stale.

use epitome::core::message::Message;
use epitome::model::{ModelError, Scripted};
use epitome::store::*;
use epitome::{Engine, Fork, Session, Summarize};

use super::raw;

fn talk(from: usize, through: usize) -> Vec<Message> {
    let line = |n: usize| {
        let text = format!("Order {n}0071 left the house on Monday, and the customer in Oslo wrote twice.");
        if n % 2 == 1 { Message::user(text) } else { Message::assistant(text) }
    };
    (from..=through).map(line).collect()
}

async fn said(session: &Session, from: usize, through: usize) {
    session.append(talk(from, through)).await.unwrap();
    session.work().await.unwrap();
}

/// A session whose summaries are: 1, 2 and 3 one after the other; 4, undone; 5 in its place; 6, where nobody could write
/// one, `local`'s; 7, a model's in place of it; 8, from the first message on; 9 as ever. And a copy of it that went on.
async fn history(path: &std::path::Path) {
    let model = Scripted::new();
    let settings = r#"{"slot": [{"name": "short", "trigger": "messages(20)"}],
        "summarize": {"models": ["main"], "stand_in_after": "0"}}"#;
    let engine = Engine::builder().model("main", model.clone()).settings(settings).workers(0);
    let engine = engine.open(path).await.unwrap();
    let session = engine.workspace("w").session("a");
    for at in [1, 21, 41, 61] {
        said(&session, at, at + 19).await;
    }
    session.undo(4).await.unwrap();
    said(&session, 81, 100).await;
    let _ = model.clone().fails(ModelError::no_answer("down"));
    said(&session, 101, 120).await;
    session.summarize(Summarize::default()).await.unwrap();
    session.rebuild(None, "short").await.unwrap();
    session.work().await.unwrap();
    said(&session, 121, 140).await;
    let copy = session.fork(Fork::whole("copy")).await.unwrap();
    said(&copy, 141, 160).await;
    assert_eq!(engine.verify().await.unwrap(), []);
    engine.close().await;
}

#[tokio::test]
async fn what_was_kept_wrongly_is_found_and_what_was_kept_rightly_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let sound = dir.path().join("sound.db");
    history(&sound).await;
    let store = Sqlite::open(&sound, super::options()).unwrap();
    let rows =
        store.summaries(1, PickSummaries::History { slot: None, before: None, limit: 99 }).await.unwrap();
    store.close().await;
    let mut told: Vec<_> = rows
        .iter()
        .map(|row| (row.id, row.through, row.parent, row.facts.from, row.facts.built_on, row.facts.stand_in))
        .collect();
    told.reverse();
    assert_eq!(
        told,
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
    let set = |id: i64, field: &str, value: &str| {
        format!(
            "UPDATE summaries SET facts = json_set(facts, '$.{field}', {value}) WHERE session = 1 AND id = {id}"
        )
    };
    let fence = |id: i64| rows.iter().find(|row| row.id == id).unwrap().facts.fence;
    let twice = "UPDATE summaries SET parent = 2 WHERE session = 1 AND id = 5".to_owned();
    for (what, plant) in [
        // The coverage fell.
        ("summary 3: it reaches to message 39, and summary 2 to 40 already", through(3, 39)),
        ("summary 7: it reaches to message 120, and summary 6 to 125 already", through(6, 125)),
        ("summary 3: the one before it, 2, reaches further", through(3, 39)),
        // Messages are told in none.
        ("summary 2: it begins with message 22, and the one before it, 1, ends with 20", set(2, "from", "22")),
        ("summary 1: nothing stands for the messages before 2", set(1, "from", "2")),
        ("summary 2: it reaches to message 40, and was written from message 41 on", set(2, "from", "41")),
        // A window was kept twice.
        ("summary 5: it follows summary 2, as summary 3 does already: one window was kept twice", twice),
        (
            "summary 5: it follows summary 3, as summary 4 does already: one window was kept twice",
            "UPDATE summaries SET state = 'superseded' WHERE session = 1 AND id = 4".to_owned(),
        ),
        (
            "summary 10: it follows summary 8, as summary 9 does already: one window was kept twice",
            "INSERT INTO summaries SELECT (SELECT max(kept) + 1 FROM summaries), session, 10, scope, slot, through, \
             'superseded', parent, created, asked, facts, text, sources FROM summaries WHERE session = 1 AND id = 9"
                .to_owned(),
        ),
        (
            "summary 3: it was written from summary 1 while 2 stood: one window was kept twice",
            set(3, "built_on", "1"),
        ),
        ("summary 8: it was written from summary 6 while 7 stood: one window was kept twice", set(8, "built_on", "6")),
        (
            "summary 3: it begins with message 30, and 2, which it was written from, ends with 40",
            set(3, "from", "30"),
        ),
        (
            "summary 8: it was written from message 1 on under fence 1, as summary 1 was already: one window was \
             kept twice",
            format!("UPDATE summaries SET facts = json_set(facts, '$.fence', {}) WHERE session = 1", fence(1)),
        ),
        // Somebody kept it who had lost the slot.
        (
            &format!("summary 3: it was kept under fence 1, and summary 2 under {} already", fence(2)),
            set(3, "fence", "1"),
        ),
        (
            &format!("summary 4: it was kept under fence 1, and summary 3 under {} already", fence(3)),
            set(4, "fence", "1"),
        ),
        ("summary 9: it was kept under fence 999, and its slot has only", set(9, "fence", "999")),
        ("summary 9: it was kept under fence", "UPDATE slots SET fence = 1 WHERE session = 1".to_owned()),
        // It would wait for another's turn.
        (
            "slot \"short\": it waits for the turn of another workspace",
            "UPDATE slots SET workspace = 'v' WHERE session = 1".to_owned(),
        ),
    ] {
        let path = dir.path().join("faulty.db");
        std::fs::copy(&sound, &path).unwrap();
        raw(&path, &plant);
        let store = Sqlite::open(&path, super::options()).unwrap();
        let faults = store.verify().await.unwrap();
        let told: Vec<String> = faults.iter().map(|fault| format!("{}: {}", fault.at, fault.what)).collect();
        assert!(told.iter().any(|told| told.contains(what)), "{plant}: no {what} in {told:#?}");
        store.close().await;
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(dir.path().join(format!("faulty.db{end}")));
        }
    }
}

fn through(id: i64, through: u64) -> String {
    format!("UPDATE summaries SET through = {through} WHERE session = 1 AND id = {id}")
}
