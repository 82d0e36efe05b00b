//! A context that is read during writes shows one state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use epitome::Engine;
use epitome_testkit::scripted::Scripted;

use crate::support::{assert_complete, coverage, fast_pace, homes, talk, within_timeout};

async fn read_while_writing(engine: Engine, budget: u64) {
    let session = engine.session("s");
    session.append(talk(1, 3)).await.unwrap();
    let (done, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(3)));
    let looking: Vec<_> = (0..3)
        .map(|_| {
            let (session, done, acknowledged) =
                (session.clone(), Arc::clone(&done), Arc::clone(&acknowledged));
            tokio::spawn(async move {
                let (mut looks, mut told) = (0, 0);
                while !done.load(Ordering::Acquire) {
                    let known = acknowledged.load(Ordering::Acquire);
                    let context = session.context(budget).await.unwrap();
                    assert!(context.through >= known, "what was acknowledged is in it");
                    assert_complete(&context, context.through);
                    told = told.max(context.summary.as_ref().map_or(0, |summary| summary.through));
                    let summaries = session.summaries().await.unwrap();
                    for summary in &summaries {
                        let covered = summary.through;
                        assert_eq!(covered % if summary.slot == "short" { 20 } else { 60 }, 0);
                    }
                    looks += 1;
                    tokio::task::yield_now().await;
                }
                (looks, told)
            })
        })
        .collect();
    for batch in 0..60usize {
        let first = 4 + batch * 7;
        let appended = session.append(talk(first, first + 6)).await.unwrap();
        acknowledged.store(appended.span.through, Ordering::Release);
        tokio::task::yield_now().await;
    }
    within_timeout("the summaries", engine.work()).await.unwrap();
    done.store(true, Ordering::Release);
    for task in looking {
        let (looks, told) = within_timeout("looking", task).await.unwrap();
        assert!(looks > 3 && told > 0, "{looks} looks, told through {told}");
    }
    assert_eq!(coverage(&session, "short").await, (1..=21).map(|n| n * 20).collect::<Vec<u64>>());
    assert_eq!(engine.verify().await.unwrap(), []);
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_context_read_while_local_writes_shows_one_state() {
    for home in homes() {
        let engine = home.open(Engine::builder().pace(fast_pace(2)).settings(STEP)).await;
        read_while_writing(engine, 20_000).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_context_read_while_a_model_writes_shows_one_state() {
    for home in homes() {
        let model = Scripted::new();
        let engine = home
            .open(Engine::builder().model("main", model).pace(fast_pace(2)).settings(STEP_BY_MODEL))
            .await;
        read_while_writing(engine, 100_000).await;
    }
}

const STEP: &str = r#"{"summarize": {"catch_up": "step"}}"#;
const STEP_BY_MODEL: &str = r#"{"summarize": {"catch_up": "step", "models": ["main"]}}"#;
