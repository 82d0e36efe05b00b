//! Tests that need a file: copied, locked, full, or not a database. `on_postgres.rs` has the tests that need PostgreSQL.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use epitome::rules::message::Message;
use epitome::store::{SqliteOptions, WriteStage};
use epitome::{Engine, Error, Remedy};
use epitome_testkit::scripted::Scripted;

use crate::support::{Clock, assert_complete, coverage, engine_of_model, one_slot, talk, within_timeout};

fn copy(from: &Path, to: &Path) {
    for end in ["", "-wal"] {
        let name = |path: &Path| path.with_file_name(format!("agent.db{end}"));
        if name(from).exists() {
            std::fs::copy(name(from), name(to)).unwrap();
        }
    }
}

/// Copies the file after every single write, as a crash at that time would leave it.
#[tokio::test]
async fn case_48_messages_and_the_firing_they_cause_are_stored_together_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.db");
    let crashes: Arc<Mutex<Vec<tempfile::TempDir>>> = Arc::default();
    let (from, into) = (path.clone(), Arc::clone(&crashes));
    let options = SqliteOptions {
        on_write: Some(Arc::new(move |stage| {
            if stage == WriteStage::Ended {
                let crash = tempfile::tempdir().unwrap();
                copy(&from, &crash.path().join("agent.db"));
                into.lock().unwrap().push(crash);
            }
        })),
        ..SqliteOptions::default()
    };
    let engine = engine_of_model(&Scripted::new()).sqlite(options).open(&path).await.unwrap();
    let session = engine.session("s");
    let mut said = 0;
    for size in [7, 12, 1, 25, 15, 20] {
        session.append(talk(said + 1, said + size)).await.unwrap();
        said += size;
    }
    session.work().await.unwrap();
    engine.close().await;
    let crashes = std::mem::take(&mut *crashes.lock().unwrap());
    let mut heads = Vec::new();
    for crash in &crashes {
        let clock = Clock::new();
        clock.pass(Duration::from_secs(100 * 365 * 24 * 3_600));
        let model = Scripted::new();
        let engine = engine_of_model(&model)
            .sqlite(crate::test_store::sqlite_options(&clock))
            .open(crash.path().join("agent.db"))
            .await
            .unwrap();
        let session = engine.session("s");
        let Ok(info) = session.info().await else { continue };
        heads.push(info.messages);
        engine.work().await.unwrap();
        let due = |every: u64| (1..=info.messages / every).map(|n| n * every).collect::<Vec<_>>();
        assert_eq!(coverage(&session, "short").await, due(20), "after a crash at {}", info.messages);
        assert_eq!(coverage(&session, "long").await, due(60));
        assert_complete(&session.context(20_000).await.unwrap(), info.messages);
        assert_eq!(engine.verify().await.unwrap(), []);
        engine.close().await;
    }
    heads.dedup();
    assert_eq!(heads, [7, 19, 20, 45, 60, 80]);
}

#[tokio::test]
async fn a_busy_file_is_retried_and_a_foreign_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.db");
    let options = SqliteOptions { busy: Duration::from_millis(50), ..SqliteOptions::default() };
    let engine = one_slot(&Scripted::new()).sqlite(options).open(&path).await.unwrap();
    let session = engine.session("s");
    session.append(talk(1, 12)).await.unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let busy = within_timeout("a busy store", session.append(talk(13, 13))).await.unwrap_err();
    assert!(matches!(busy, Error::Busy(_)) && busy.remedy() == Remedy::Retry, "{busy}");
    other.execute_batch("ROLLBACK").unwrap();
    session.append(talk(13, 13)).await.unwrap();
    let foreign = dir.path().join("notes.txt");
    std::fs::write(&foreign, "These are notes, and no database at all.".repeat(50)).unwrap();
    assert_eq!(Engine::open(&foreign).await.unwrap_err().remedy(), Remedy::FixRequest);
    engine.close().await;
}

/// An engine whose store can be read but not written is not ready.
#[tokio::test]
async fn with_a_full_disk_the_engine_is_not_ready_and_only_the_operator_sees_the_path() {
    let dir = tempfile::tempdir().unwrap();
    let sqlite = SqliteOptions { max_pages: Some(80), ..Default::default() };
    let builder = Engine::builder().workers(0).sqlite(sqlite);
    let engine = builder.open(dir.path().join("full.db")).await.unwrap();
    assert_eq!(engine.ready().await, Ok(()));
    let session = engine.session("ann");
    while session.append(Message::user("x ".repeat(4_000))).await.is_ok() {}
    let reasons = engine.ready().await.unwrap_err();
    assert_eq!(reasons[0].public, "the store's disk is full");
    assert!(reasons[0].details.contains("full.db"), "{}", reasons[0].details);
}
