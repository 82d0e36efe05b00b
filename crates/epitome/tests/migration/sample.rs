//! A file with rows of every kind, as an engine and its users create them, and unusual ones.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use epitome::key::{NewKey, Rights};
use epitome::rules::message::{Message, Timestamp};
use epitome::store::Store;
use epitome::store::{Membership, ProxyStateRow, ProxyUsage, Sqlite, SqliteOptions};
use epitome::{Batch, ContextRequest, Engine, Flags, Fork, Page, Session, Summarize, Update, Workspace};
use rusqlite::Connection;
use serde_json::{Map, Value, json};

/// Text as people write it and programs print it.
const ODD: &str =
    "naïve 東京 🦀 e\u{301} \u{202e}x \u{fffd} a\0b \u{1b}[31m 'quote' \"two\" \\ $1 %s {} \u{10ffff}";

fn map(value: Value) -> Map<String, Value> {
    let Value::Object(entries) = value else { panic!("no object") };
    entries
}

async fn talk(session: &Session, turns: u32) {
    for turn in 1..=turns {
        let mut asked =
            Message::user(format!("Question {turn} about order {turn}0071 at src/main_{turn}.rs. {ODD}"));
        asked.author = Some(if turn % 2 == 0 { "ann".into() } else { "Björn Å".into() });
        let answered =
            Message::assistant(format!("Order {turn}0071 was sent on 2026-03-{:02}.", turn % 28 + 1));
        session.append([asked, answered]).await.unwrap();
    }
}

pub(crate) async fn open(path: &Path) -> Engine {
    let options = SqliteOptions { clock: Arc::new(later), ..SqliteOptions::default() };
    Engine::builder().workers(0).sqlite(options).open(path).await.unwrap()
}

/// The time at which both sides are read, because contexts show ages.
pub(crate) fn later() -> Timestamp {
    static LATER: OnceLock<Timestamp> = OnceLock::new();
    *LATER.get_or_init(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(3_600);
        Timestamp(i64::try_from(since.as_millis()).unwrap())
    })
}

/// Creates the file and closes it. Returns a key's secret.
pub(crate) async fn make(path: &Path, turns: u32) -> String {
    let engine = Engine::builder().workers(0).open(path).await.unwrap();
    let (home, work) = (engine.workspace("home"), engine.workspace("Büro ☂"));
    let ann = home.session("ann");
    talk(&ann, turns).await;
    engine.work().await.unwrap();
    // An undone summary, one with a focus, flags, metadata.
    let latest = ann.history(None, 1).await.unwrap().remove(0);
    ann.undo(latest.id).await.unwrap();
    ann.summarize(Summarize { focus: Some(ODD.to_owned()), ..Summarize::slot("short") }).await.unwrap();
    ann.flag(3, Flags { pinned: Some(true), skip: None }).await.unwrap();
    ann.flag(5, Flags { pinned: None, skip: Some(true) }).await.unwrap();
    ann.set_metadata(map(json!({"odd": ODD, "n": [1, 2.5, null]}))).await.unwrap();
    ann.fork(Fork::whole("whole")).await.unwrap();
    ann.fork(Fork { at: Some(20), ..Fork::condensed("condensed") }).await.unwrap();
    ann.append(Batch::from(Message::user("Once.")).key("order-4711")).await.unwrap();
    // Left unfinished: due, and not leased.
    talk(&home.session("late"), 25).await;
    home.set(&epitome::settings::Patch::parse(r#"{"context": {"max_tokens": 50000}}"#).unwrap())
        .await
        .unwrap();
    talk(&work.session("ann"), 12).await;
    work.update(Update { metadata: Some(map(json!({"team": ODD}))), ..Update::default() }).await.unwrap();
    work.set_author("Zoë", Some(map(json!({"a": 1}))), Some(map(json!({"honcho": {"b": ODD}}))))
        .await
        .unwrap();
    let members = vec![Membership::Join("Zoë".into(), Some(map(json!({"honcho": {"role": "guest"}}))))];
    work.session("ann").update(Update { members, ..Update::default() }).await.unwrap();
    let gone = engine.workspace("gone");
    talk(&gone.session("a"), 3).await;
    gone.session("a").delete().await.unwrap();
    assert!(gone.delete().await.unwrap());
    // The newest session is deleted: its id and the numbers of its events must not be reused.
    talk(&home.session("deleted"), 2).await;
    home.session("deleted").delete().await.unwrap();
    let new = |workspace: Option<&str>, rights| NewKey {
        workspace: workspace.map(str::to_owned),
        rights,
        label: "für Ann 🗝".to_owned(),
        expires: None,
    };
    let key = engine.keys().create(new(Some("home"), Rights::Write)).await.unwrap();
    let other = engine.keys().create(new(None, Rights::Admin)).await.unwrap();
    engine.keys().revoke(&other.key.id, None).await.unwrap();
    engine.close().await;

    let store = Sqlite::open(path, SqliteOptions::default()).unwrap();
    let row = |n: u8| ProxyStateRow {
        root: [n; 16],
        length: 3,
        hash: [255 - n; 16],
        state: format!("{{\"n\": {n}}}"),
    };
    for n in [0, 1, 127, 128, 255] {
        store.store_proxy_state("home", row(n)).await.unwrap();
    }
    let passed = |model: &str| ProxyUsage {
        model: model.to_owned(),
        requests: 3,
        saved_cost: -5,
        ..ProxyUsage::default()
    };
    store.add_proxy_usage("home", vec![passed("gpt"), passed("Modell Ä")]).await.unwrap();
    store.close().await;
    odd_rows(path);
    key.secret
}

/// Adds rows that only another release, a program of the user or a crash leaves behind.
fn odd_rows(path: &Path) {
    let db = Connection::open(path).unwrap();
    db.execute_batch(
        "INSERT INTO sessions (workspace, name, state, encoding, tracker, head, turns, tokens, opener, batch_from,
             batch_skipped, skipped, created, updated)
         SELECT workspace, name, 'gone', encoding, tracker, head, turns, tokens, opener, batch_from, batch_skipped,
             skipped, created, updated FROM sessions WHERE name = 'late';
         INSERT INTO messages SELECT (SELECT max(id) FROM sessions), seq, role, author, turn, tokens, before, chars,
             longest, calls, answers, own_answers, open, own_open, shape, pinned, skip, cut, own_cut, opener, at,
             created, body FROM messages WHERE session = (SELECT min(id) FROM sessions);
         UPDATE usage SET model = 'odd' || char(0) || 'model' WHERE id = 1;
         INSERT INTO idempotency SELECT session, key || char(0), body, first, last, created FROM idempotency;
         INSERT INTO passed SELECT workspace, hour, model || char(0), shadow, requests, shorter, retried, cut_off,
             uncounted, input, cached, output, saved, cost, saved_cost FROM passed WHERE model = 'gpt';",
    )
    .unwrap();
}

/// Returns everything that users can see, as text.
pub(crate) async fn shown(engine: &Engine) -> Vec<String> {
    let mut all = vec![format!("{:?}", engine.secret().await.unwrap())];
    for name in engine.workspaces(None, 100).await.unwrap() {
        let workspace = engine.workspace(Arc::clone(&name));
        all.push(format!(
            "{name} {:?} {:?}",
            workspace.info().await.unwrap(),
            workspace.patch().await.unwrap()
        ));
        all.extend(of_workspace(&workspace).await);
    }
    all.push(format!("{:?}", engine.keys().list(None, None, 100).await.unwrap()));
    all
}

async fn of_workspace(workspace: &Workspace) -> Vec<String> {
    let mut all = Vec::new();
    for info in workspace.sessions(None, 100).await.unwrap() {
        let session = workspace.session(Arc::clone(&info.name));
        all.push(format!("{info:?}"));
        for tokens in [200, 1_000, 8_000, 50_000] {
            for as_of in [None, Some(7), Some(40)] {
                let request = ContextRequest { as_of, ..ContextRequest::from(tokens) };
                let context =
                    session.context(request).await.map(|given| serde_json::to_string(&given).unwrap());
                all.push(format!("{context:?}"));
            }
        }
        let page = Page { limit: 1_000, ..Page::default() };
        all.push(format!("{:?}", session.messages(page).await.unwrap()));
        all.push(format!("{:?}", session.history(None, 100).await.unwrap()));
        let explained = session.explain().await.unwrap();
        all.push(format!(
            "{:?}",
            explained.slots.iter().map(|slot| (&slot.slot, slot.covered)).collect::<Vec<_>>()
        ));
        all.push(format!("{:?}", session.list_members(epitome::store::Listing::default()).await.unwrap()));
    }
    all.push(format!("{:?}", workspace.list_authors(epitome::store::Listing::default()).await.unwrap()));
    all.push(format!("{:?}", workspace.events(None, None, 1_000).await.unwrap()));
    // One model name contains a character that PostgreSQL cannot store.
    let usage = format!("{:?}", workspace.usage(Timestamp(0)).await.unwrap());
    all.push(usage.replace("\\0", "\u{2400}"));
    let passed = workspace.passed(Timestamp(0)).await.unwrap();
    all.push(format!("{:?}", passed.iter().filter(|sum| !sum.model.contains('\0')).collect::<Vec<_>>()));
    all
}
