//! Closing and aborting an engine, other engines on the same file, and the remedy of each error.

use std::time::Duration;

use epitome::{Error, Pace, Remedy, Summarize};
use epitome_testkit::scripted::{Gate, Scripted};

use crate::failing::down;
use crate::support::{
    Home, coverage, current_summary, fast_pace, on_every_store, one_slot, talk, wait_until, within_timeout,
};

#[tokio::test]
async fn closing_lets_a_running_summary_finish() {
    let home = Home::file();
    let gate = Gate::new();
    let model = Scripted::new().waits_for(&gate).answers(|ask| Ok(Scripted::plain(ask)));
    let engine = home.open(one_slot(&model).pace(fast_pace(1))).await;
    engine.session("s").append(talk(1, 20)).await.unwrap();
    within_timeout("the call", gate.reached()).await;
    let closing = tokio::spawn({
        let engine = engine.clone();
        async move { engine.close().await }
    });
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert!(!closing.is_finished());
    gate.open();
    within_timeout("closing", closing).await.unwrap();
    let again = home.open(one_slot(&Scripted::new())).await;
    assert_eq!(coverage(&again.session("s"), "short").await, [20]);
    assert_eq!(again.verify().await.unwrap(), []);
}

#[tokio::test]
async fn after_the_grace_period_a_closing_engine_releases_the_slot_at_once() {
    let home = Home::file();
    let gate = Gate::new();
    let model = Scripted::new().named("slow").waits_for(&gate);
    let pace = Pace { grace: Duration::from_millis(20), ..fast_pace(1) };
    let engine = home.open(one_slot(&model).pace(pace)).await;
    engine.session("s").append(talk(1, 20)).await.unwrap();
    within_timeout("the call", gate.reached()).await;
    within_timeout("closing", engine.close()).await;
    assert_eq!(home.row("short").await.work.owner, None);
    // Not a moment passes.
    let fast = Scripted::new().named("fast");
    let other = home.open(one_slot(&fast)).await;
    other.work().await.unwrap();
    let session = other.session("s");
    assert_eq!(current_summary(&session, "short").await.unwrap().model, "fast");
    let usage = session.usage().await.unwrap();
    assert!(usage.iter().any(|row| row.model == "slow" && row.outcome == "dropped"), "{usage:?}");
}

#[tokio::test]
async fn an_aborted_engine_releases_the_slot_at_once() {
    for workers in [0, 1] {
        let home = Home::file();
        let gate = Gate::new();
        let model = Scripted::new().named("slow").waits_for(&gate);
        let engine = home.open(one_slot(&model).pace(fast_pace(workers))).await;
        engine.session("s").append(talk(1, 20)).await.unwrap();
        let working = tokio::spawn({
            let engine = engine.clone();
            async move { if workers == 0 { engine.work().await } else { Ok(()) } }
        });
        within_timeout("the call", gate.reached()).await;
        within_timeout("giving up", engine.abort()).await;
        assert_eq!(home.row("short").await.work.owner, None);
        within_timeout("its own work", working).await.unwrap().unwrap();
        let other = home.open(one_slot(&Scripted::new().named("fast"))).await;
        other.work().await.unwrap();
        let session = other.session("s");
        assert_eq!(current_summary(&session, "short").await.unwrap().model, "fast");
        let usage = session.usage().await.unwrap();
        assert!(usage.iter().any(|row| row.model == "slow" && row.outcome == "dropped"), "{usage:?}");
        engine.close().await;
    }
}

#[tokio::test]
async fn polling_finds_work_that_another_engine_appended_to_the_same_file() {
    let home = Home::file();
    let model = Scripted::new();
    let worker = home.open(one_slot(&model).pace(fast_pace(1))).await;
    let writer = home.open(one_slot(&Scripted::new())).await;
    let session = writer.session("s");
    session.append(talk(1, 20)).await.unwrap();
    wait_until("the summary", || async { coverage(&session, "short").await == [20] }).await;
    assert_eq!(model.calls(), 1);
    // Whoever waits there hears of it as well.
    session.append(talk(21, 25)).await.unwrap();
    let done = within_timeout("forcing", writer.session("s").summarize(Summarize::default())).await.unwrap();
    assert_eq!(done.summary().unwrap().through, 25);
    worker.close().await;
}

#[tokio::test]
async fn a_closed_engine_returns_closed_and_can_be_closed_twice() {
    on_every_store(async |home| {
        let engine = home.open(one_slot(&Scripted::new()).pace(fast_pace(1))).await;
        let session = engine.session("s");
        session.append(talk(1, 3)).await.unwrap();
        within_timeout("closing", engine.close()).await;
        within_timeout("closing again", engine.close()).await;
        let error = session.append(talk(4, 5)).await.unwrap_err();
        assert!(matches!(error, Error::Closed) && error.remedy() == Remedy::Reopen, "{error}");
        assert!(matches!(session.context(1_000).await, Err(Error::Closed)));
        assert!(matches!(within_timeout("work", engine.work()).await, Err(Error::Closed)));
    })
    .await;
}

#[tokio::test]
async fn every_error_names_its_remedy() {
    let model = Scripted::new().fails(down());
    let home = Home::file();
    let engine = home.open(one_slot(&model)).await;
    let session = engine.session("s");
    session.append(talk(1, 12)).await.unwrap();
    let mut seen = Vec::new();
    let mut told = |error: Error, remedy: Remedy| {
        assert_eq!(error.remedy(), remedy, "{error}");
        seen.push(error);
    };
    told(session.context(0).await.unwrap_err(), Remedy::FixRequest);
    told(session.append(Vec::new()).await.unwrap_err(), Remedy::FixRequest);
    told(engine.session("").append(talk(1, 1)).await.unwrap_err(), Remedy::FixRequest);
    told(engine.session("nobody").info().await.unwrap_err(), Remedy::CheckName);
    told(session.undo(77).await.unwrap_err(), Remedy::CheckName);
    told(session.fork(epitome::Fork::whole("s")).await.unwrap_err(), Remedy::ReadState);
    told(session.summarize(Summarize::default()).await.unwrap_err(), Remedy::Retry);
    engine.close().await;
    told(session.info().await.unwrap_err(), Remedy::Reopen);
    assert!(seen.iter().all(|error| !error.to_string().is_empty()));
}

#[tokio::test]
async fn a_dropped_engine_releases_its_leases() {
    let home = Home::file();
    let gate = Gate::new();
    let model = Scripted::new().waits_for(&gate);
    let engine = home.open(one_slot(&model).pace(fast_pace(1))).await;
    engine.session("s").append(talk(1, 20)).await.unwrap();
    gate.reached().await;
    drop(engine);
    // Long before its lease would have expired: the clock does not move.
    let after = home.open(one_slot(&Scripted::new())).await;
    let session = after.session("s");
    wait_until("the slot is free", || async {
        session.work().await.unwrap();
        current_summary(&session, "short").await.is_some()
    })
    .await;
    assert_eq!(coverage(&session, "short").await, [20]);
}
