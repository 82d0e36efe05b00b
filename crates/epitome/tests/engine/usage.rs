//! Every model call is recorded with its cost.

use std::time::Duration;

use epitome::model::{ModelError, Reply, TokenUsage};
use epitome::rules::message::Timestamp;
use epitome::{Engine, Pace};
use epitome_testkit::scripted::{Gate, Scripted};

use crate::failing::down;
use crate::support::{
    Home, MINUTE, current_summary, fast_pace, on_every_store, one_slot, talk, with_settings, within_timeout,
};

const PRICED: &str = r#", "slot": [{"name": "short", "trigger": "messages(20)"}],
    "summarize": {"models": ["main"], "stand_in_after": "never"},
    "prices": {"gpt-test": {"input": 2.5, "output": 10, "cache_read": 0.25}}"#;

fn counted(text: &str) -> Reply {
    Reply { usage: Some(TokenUsage { input: 10_000, cached: 2_000, output: 1_000 }), ..Reply::complete(text) }
}

#[tokio::test]
async fn every_call_is_recorded_with_its_cost_including_failed_ones() {
    on_every_store(async |home| every_call_is_recorded(&home).await).await;
}

pub(crate) async fn every_call_is_recorded(home: &Home) {
    let model = Scripted::new()
        .named("gpt-test")
        .fails(down())
        .answers(|_| Ok(counted("")))
        .answers(|_| Ok(counted("Customers in Oslo wait for parcels.")))
        .fails(ModelError::Busy { retry_after: None });
    let engine = home.open(with_settings(&model, PRICED)).await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    home.clock.pass(MINUTE);
    let since = home.clock.now();
    session.work().await.unwrap();
    session.append(talk(21, 40)).await.unwrap();
    session.work().await.unwrap();
    let usage = session.usage().await.unwrap();
    let row = |outcome: &str| {
        let row =
            usage.iter().find(|row| row.outcome == outcome).unwrap_or_else(|| panic!("{outcome}: {usage:?}"));
        (row.calls, row.input, row.cached, row.output, row.cost)
    };
    // 8,000 new at 2.50, 2,000 cached at 0.25, 1,000 written at 10, a million each.
    assert_eq!(row("kept"), (1, 10_000, 2_000, 1_000, Some(30_500)));
    assert_eq!(row("empty"), (1, 10_000, 2_000, 1_000, Some(30_500)));
    assert_eq!((row("no_answer").0, row("busy").0), (1, 1));
    assert!(usage.iter().all(|row| row.model == "gpt-test" && row.slot == "short" && row.session == "s"));
    let summary = current_summary(&session, "short").await.unwrap();
    assert_eq!((summary.cost, summary.input_tokens, summary.output_tokens), (Some(0.061), 20_000, 2_000));
    let workspace = engine.workspace("default");
    assert_eq!(workspace.usage(Timestamp(0)).await.unwrap(), usage);
    let later: u64 = workspace.usage(since).await.unwrap().iter().map(|row| row.calls).sum();
    assert_eq!(later, 3, "the first failure was before");
    assert!(engine.workspace("other").usage(Timestamp(0)).await.unwrap().is_empty());
}

#[tokio::test]
async fn local_is_free_and_a_model_without_a_price_has_an_unknown_cost() {
    let home = Home::memory();
    let engine = home.open(Engine::builder().workers(0)).await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    assert_eq!(session.usage().await.unwrap()[0].cost, Some(0));
    let home = Home::memory();
    let engine = home.open(one_slot(&Scripted::new())).await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    let row = &session.usage().await.unwrap()[0];
    assert_eq!(row.cost, None);
    assert!(row.input > 100 && row.output > 5, "counted by us where the provider does not: {row:?}");
}

#[tokio::test]
async fn a_call_dropped_when_the_lease_is_lost_is_recorded() {
    let home = Home::file();
    let gate = Gate::new();
    let slow = Scripted::new().named("slow").waits_for(&gate);
    let pace = Pace { lease: Duration::from_secs(1), renew: Duration::from_millis(20), ..fast_pace(0) };
    let engine = home.open(one_slot(&slow).pace(pace)).await;
    let session = engine.session("s");
    session.append(talk(1, 40)).await.unwrap();
    let working = tokio::spawn({
        let session = session.clone();
        async move { session.work().await.unwrap() }
    });
    within_timeout("the call", gate.reached()).await;
    // Taken away: by a rebuild, which raises the fence.
    assert!(session.rebuild(None, "short").await.unwrap());
    home.clock.pass(MINUTE);
    within_timeout("the work", working).await.unwrap();
    let usage = session.usage().await.unwrap();
    let dropped: Vec<_> = usage.iter().filter(|row| row.outcome == "dropped").collect();
    assert_eq!((dropped.len(), dropped[0].model.as_str(), dropped[0].calls), (1, "slow", 1), "{usage:?}");
}
