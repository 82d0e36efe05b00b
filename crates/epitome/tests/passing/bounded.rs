//! What is kept is bounded, in the store and in memory, and no turn costs more than it must.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use epitome::core::message::Message;
use epitome::core::tokens::Counter;
use epitome::store::SqliteOptions;
use epitome::{Call, Engine};
use tokio::time::timeout;

use crate::support::{ANN, Desk, TOO_LONG, TWELVE, open, said, talk};

#[tokio::test]
async fn a_row_is_bounded_whatever_was_said() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    // A summary as large as they get, of very much.
    let settings = r#""trigger": "tokens(50000)", "keep": "messages(4)", "max_tokens": 100000"#;
    let desk = Desk::new(&engine, "home", settings).await;
    let list: Vec<Message> = (1..=400)
        .map(|n| {
            let lines: Vec<String> = (0..40)
                .map(|line| format!("Order {n}-{line} goes to /srv/b{n}/{line}.rs as id-{n}{line}."))
                .collect();
            Message::user(lines.join("\n"))
        })
        .collect();
    for len in [200, 300, 400] {
        assert!(desk.before(&ANN, &list[..len]).await.ready.report.condensed);
    }
    engine.close().await;
    let db = rusqlite::Connection::open(dir.path().join("a.db")).unwrap();
    let (rows, longest): (i64, i64) = db
        .query_row("SELECT count(*), max(length(kept)) FROM inline", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    assert!(rows > 0 && longest < 1 << 20, "{rows} rows, the longest of {longest}");
    // And still it is taken up.
    let engine = open(dir.path()).await;
    let desk = Desk::new(&engine, "home", settings).await;
    assert!(!desk.before(&ANN, &list).await.ready.report.condensed);
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_list_waits_for_a_store_that_stands_still() {
    let dir = tempfile::tempdir().unwrap();
    // Whoever writes waits while this is so.
    let stands = Arc::new(AtomicBool::new(false));
    let waits = Arc::clone(&stands);
    let on_write = move |_| {
        while waits.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let options = SqliteOptions { on_write: Some(Arc::new(on_write)), ..SqliteOptions::default() };
    let engine = Engine::builder().workers(0).sqlite(options).open(dir.path().join("a.db")).await.unwrap();
    let desk = Desk::new(&engine, "home", TWELVE).await;
    stands.store(true, Ordering::Release);
    let list = talk("a", 31);
    let passed = timeout(TOO_LONG, desk.before(&ANN, &list)).await;
    stands.store(false, Ordering::Release);
    assert!(passed.is_ok_and(|passing| passing.ready.report.condensed));
    engine.close().await;
}

#[tokio::test]
async fn no_row_is_written_where_nothing_was_condensed() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    let desk = Desk::new(&engine, "home", TWELVE).await;
    let list = talk("a", 15);
    for len in 1..=15 {
        desk.before(&ANN, &list[..len]).await;
    }
    desk.before(&ANN, &[]).await;
    desk.before(&ANN, &[Message::system("Alone.")]).await;
    engine.close().await;
    let db = rusqlite::Connection::open(dir.path().join("a.db")).unwrap();
    let rows: i64 = db.query_row("SELECT count(*) FROM inline", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 1, "once, when it was condensed");
}

#[tokio::test]
async fn what_was_taken_in_is_not_counted_again() {
    let engine = Engine::memory().await.unwrap();
    let workspace = engine.workspace("home");
    let counted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&counted);
    let counter = Counter::custom("letters", move |text: &str| {
        count.fetch_add(1, Ordering::Relaxed);
        text.len() as u64 / 4
    });
    let condenser = workspace.condenser().await.unwrap().counter(counter).build().unwrap();
    let mut list = talk("a", 2_000);
    for n in 2_001..=2_020 {
        workspace.inline().before(&condenser, &ANN, Call::of(&list)).await;
        let before = counted.load(Ordering::Relaxed);
        list.push(said("a", n));
        workspace.inline().before(&condenser, &ANN, Call::of(&list)).await;
        let more = counted.load(Ordering::Relaxed) - before;
        assert!(more <= 4, "{more} texts were counted for one message more");
    }
}
