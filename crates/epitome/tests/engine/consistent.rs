//! A context taken while everything moves is one state, and a whole one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use epitome::Engine;
use epitome_testkit::scripted::Scripted;

use crate::support::{assert_whole, ends, homes, quick, talk, throughs};

async fn looked_at_while_written(engine: Engine, budget: u64) {
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
                    assert_whole(&context, context.through);
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
    ends("the summaries", engine.work()).await.unwrap();
    done.store(true, Ordering::Release);
    for task in looking {
        let (looks, told) = ends("looking", task).await.unwrap();
        assert!(looks > 3 && told > 0, "{looks} looks, told through {told}");
    }
    assert_eq!(throughs(&session, "short").await, (1..=21).map(|n| n * 20).collect::<Vec<u64>>());
    assert_eq!(engine.verify().await.unwrap(), []);
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_context_taken_while_local_writes_is_one_whole_state() {
    for home in homes() {
        let engine = home.open(Engine::builder().pace(quick(2)).settings(STEP)).await;
        looked_at_while_written(engine, 20_000).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_context_taken_while_a_model_writes_is_one_whole_state() {
    for home in homes() {
        let model = Scripted::new();
        let engine =
            home.open(Engine::builder().model("main", model).pace(quick(2)).settings(STEP_BY_MODEL)).await;
        looked_at_while_written(engine, 100_000).await;
    }
}

const STEP: &str = r#"{"summarize": {"catch_up": "step"}}"#;
const STEP_BY_MODEL: &str = r#"{"summarize": {"catch_up": "step", "models": ["main"]}}"#;
