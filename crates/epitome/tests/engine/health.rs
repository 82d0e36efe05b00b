//! What the operator of an engine sees: the backlog, whether the engine is ready, and why not.

use std::time::Duration;

use epitome::{Backlog, Engine, Error};
use epitome_testkit::scripted::{Gate, Scripted};

use crate::failing::down;
use crate::hooks::Bad;
use crate::support::{Home, fast_pace, on_every_store, one_slot, talk, wait_until, within_timeout};

#[tokio::test]
async fn the_backlog_counts_all_workspaces_and_names_none() {
    on_every_store(async |home| {
        let model = Scripted::new().fails(down());
        let engine = home.open(one_slot(&model)).await;
        assert_eq!(engine.backlog().await.unwrap(), Backlog::default());
        let ann = engine.workspace("ann").session("s");
        ann.append(talk(1, 20)).await.unwrap();
        home.clock.pass(Duration::from_secs(3));
        engine.workspace("bob").session("s").append(talk(1, 20)).await.unwrap();
        engine.workspace("bob").session("quiet").append(talk(1, 5)).await.unwrap();
        home.clock.pass(Duration::from_secs(2));
        let backlog = engine.backlog().await.unwrap();
        assert_eq!(backlog, Backlog { due: 2, oldest_millis: Some(5_000), ..Backlog::default() });
        let told = serde_json::to_string(&backlog).unwrap();
        assert!(!told.contains("ann") && !told.contains("bob"), "{told}");
        // One that failed waits, and the other one is the oldest that can be taken.
        ann.work().await.unwrap();
        let backlog = engine.backlog().await.unwrap();
        assert_eq!(backlog, Backlog { due: 1, waiting: 1, oldest_millis: Some(2_000), ..Backlog::default() });
        engine.work().await.unwrap();
        home.clock.pass(Duration::from_secs(600));
        engine.work().await.unwrap();
        assert_eq!(engine.backlog().await.unwrap(), Backlog::default());
        engine.close().await;
        assert!(matches!(engine.backlog().await, Err(Error::Closed)));
    })
    .await;
}

#[tokio::test]
async fn the_backlog_counts_summaries_in_progress() {
    let home = Home::file();
    let gate = Gate::new();
    let engine = home.open(one_slot(&Scripted::new().waits_for(&gate)).pace(fast_pace(1))).await;
    engine.session("s").append(talk(1, 20)).await.unwrap();
    within_timeout("the call", gate.reached()).await;
    // Any engine on the same file sees it.
    let other = home.open(one_slot(&Scripted::new())).await;
    assert_eq!(other.backlog().await.unwrap(), Backlog { working: 1, ..Backlog::default() });
    gate.open();
    wait_until("the summary", || async { other.backlog().await.unwrap() == Backlog::default() }).await;
    engine.close().await;
}

#[tokio::test]
async fn an_engine_is_ready_until_it_is_closed_or_aborted() {
    for workers in [0, 1] {
        on_every_store(async |home| {
            let engine = home.open(one_slot(&Scripted::new()).pace(fast_pace(workers))).await;
            assert_eq!(engine.ready().await, Ok(()));
            engine.session("s").append(talk(1, 20)).await.unwrap();
            engine.work().await.unwrap();
            assert_eq!(engine.ready().await, Ok(()));
            within_timeout("giving up", engine.abort()).await;
            let reasons = engine.ready().await.unwrap_err();
            assert!(
                reasons.len() == 1 && reasons[0].public.contains("starts no more summaries"),
                "{reasons:?}"
            );
            within_timeout("closing", engine.close()).await;
            assert_eq!(engine.ready().await.unwrap_err()[0].public, "the engine is closed");
        })
        .await;
    }
}

#[tokio::test]
async fn an_engine_is_not_ready_while_its_store_cannot_be_read() {
    let home = Home::file();
    let engine = home.open(one_slot(&Scripted::new()).pace(fast_pace(1))).await;
    engine.session("s").append(talk(1, 3)).await.unwrap();
    home.sql("ALTER TABLE workspaces RENAME TO elsewhere");
    let reasons = engine.ready().await.unwrap_err();
    assert!(
        reasons.len() == 1 && reasons[0].details.contains("the database operation failed"),
        "{reasons:?}"
    );
    home.sql("ALTER TABLE elsewhere RENAME TO workspaces");
    assert_eq!(engine.ready().await, Ok(()));
    // What only the worker reads: it says so itself.
    home.sql("ALTER TABLE slots RENAME TO elsewhere");
    wait_until("the worker stumbles", || async { engine.ready().await.is_err() }).await;
    let reasons = engine.ready().await.unwrap_err();
    assert_eq!(
        reasons.iter().map(|reason| reason.details.clone()).collect::<Vec<_>>(),
        [engine.worker_problem().unwrap()]
    );
    assert_eq!(reasons[0].public, "the store failed");
    home.sql("ALTER TABLE elsewhere RENAME TO slots");
    wait_until("the worker goes on", || async { engine.ready().await.is_ok() }).await;
    assert_eq!(engine.worker_problem(), None);
    engine.close().await;
}

#[tokio::test]
async fn an_engine_without_its_worker_is_not_ready() {
    let open = || {
        let home = Home::file();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let engine = runtime.block_on(home.open(one_slot(&Scripted::new()).pace(fast_pace(1))));
        // The worker ends with the runtime it was started in.
        runtime.shutdown_timeout(Duration::from_secs(30));
        (engine, home)
    };
    let (engine, _home): (Engine, Home) = tokio::task::spawn_blocking(open).await.unwrap();
    assert_eq!(engine.ready().await.unwrap_err()[0].public, "the worker ended; open the engine again");
}

#[tokio::test]
async fn a_failing_slot_or_hook_leaves_the_engine_ready() {
    let home = Home::memory();
    let model = Scripted::new().fails(down());
    let engine = home.open(one_slot(&model).hook(Bad::Fails)).await;
    engine.session("s").append(talk(1, 20)).await.unwrap();
    engine.work().await.unwrap();
    assert!(engine.worker_problem().is_some());
    assert_eq!(engine.backlog().await.unwrap().waiting, 1);
    assert_eq!(engine.ready().await, Ok(()));
}
