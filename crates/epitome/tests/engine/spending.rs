//! Bounds on model calls: circuit breakers, spend caps per day, and reuse of stored answers.

use std::time::Duration;

use async_trait::async_trait;
use epitome::model::{Model, ModelError, Reply, SummaryRequest, TokenUsage};
use epitome::rules::message::{Timestamp, Tokens};
use epitome::{Engine, Error, Fork, SlotStatus, Summarize};
use epitome_testkit::scripted::Scripted;
use serde_json::json;

use crate::failing::down;
use crate::support::{
    Home, MINUTE, assert_complete, current_summary, fast_pace, one_slot, slot, talk, with_settings,
};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// A scripted model that behaves like one over a network: it has a provider, and its answers may be reused.
struct Far {
    script: Scripted,
    provider: &'static str,
}

#[async_trait]
impl Model for Far {
    fn name(&self) -> &str {
        self.script.name()
    }
    fn room(&self) -> Option<Tokens> {
        None
    }
    fn provider(&self) -> &str {
        self.provider
    }
    fn reusable(&self) -> bool {
        true
    }
    async fn write(&self, ask: &SummaryRequest) -> Result<Reply, ModelError> {
        self.script.write(ask).await
    }
}

async fn far(home: &Home, model: &Scripted, more: &str) -> Engine {
    let document = format!(
        r#"{{"slot": [{{"name": "short", "trigger": "messages(20)"}}],
            "summarize": {{"models": ["main"], "stand_in_after": "never"{more}}},
            "prices": {{"main": {{"input": 10, "output": 10}}}}}}"#
    );
    let far = Far { script: model.clone(), provider: "http://far" };
    home.open(Engine::builder().model("main", far).settings(&document).workers(0).pace(fast_pace(0))).await
}

#[tokio::test]
async fn a_failing_provider_is_skipped_by_all_sessions() {
    let home = Home::memory();
    let model = Scripted::new().otherwise_fails(down());
    let engine = home.open(one_slot(&model)).await;
    for n in 0..20 {
        engine.session(format!("s{n}")).append(talk(1, 20)).await.unwrap();
    }
    engine.work().await.unwrap();
    assert_eq!(model.calls(), 5, "the other fifteen did not ask");
    let mut reasons = Vec::new();
    for n in 0..20 {
        reasons.push(slot(&engine.session(format!("s{n}")), "short").await.why);
    }
    let resting: Vec<&String> = reasons.iter().filter(|why| why.contains("is not called for")).collect();
    assert_eq!(resting.len(), 15, "{reasons:?}");
    assert!(resting.iter().all(|why| why.contains("failed 5 times in a row")), "{reasons:?}");
    assert!(resting.iter().all(|why| why.contains("connection refused")), "and how: {reasons:?}");
}

#[tokio::test]
async fn after_the_pause_one_trial_call_closes_the_circuit() {
    let home = Home::memory();
    let mut model = Scripted::new();
    for _ in 0..6 {
        model = model.fails(down());
    }
    let engine = home.open(one_slot(&model)).await;
    for n in 0..8 {
        engine.session(format!("s{n}")).append(talk(1, 20)).await.unwrap();
    }
    engine.work().await.unwrap();
    home.clock.pass(2 * MINUTE);
    engine.work().await.unwrap();
    assert_eq!(model.calls(), 6, "one tried, and failed");
    home.clock.pass(3 * MINUTE);
    engine.work().await.unwrap();
    home.clock.pass(6 * MINUTE);
    engine.work().await.unwrap();
    for n in 0..8 {
        let session = engine.session(format!("s{n}"));
        assert_eq!(current_summary(&session, "short").await.unwrap().through, 20);
        assert_complete(&session.context(4_000).await.unwrap(), 20);
        assert!(slot(&session, "short").await.last_error.is_none());
    }
}

#[tokio::test]
async fn the_next_model_writes_while_the_circuit_of_the_first_is_open() {
    let home = Home::memory();
    let main = Scripted::new().named("main-1").otherwise_fails(down());
    let spare = Scripted::new().named("spare-1");
    let settings = r#", "slot": [{"name": "short", "trigger": "messages(20)"}],
        "summarize": {"models": ["main", "spare"], "stand_in_after": "never", "breaker_after": 2}"#;
    let engine = home.open(with_settings(&main, settings).model("spare", spare.clone())).await;
    for n in 0..6 {
        let session = engine.session(format!("s{n}"));
        session.append(talk(1, 20)).await.unwrap();
        session.work().await.unwrap();
        assert_eq!(current_summary(&session, "short").await.unwrap().model, "spare-1");
    }
    assert_eq!((main.calls(), spare.calls()), (2, 6));
}

#[tokio::test]
async fn no_session_calls_a_provider_before_its_retry_after() {
    let home = Home::memory();
    let model = Scripted::new().fails(ModelError::Busy { retry_after: Some(Duration::from_secs(40)) });
    let engine = home.open(one_slot(&model)).await;
    for n in 0..3 {
        engine.session(format!("s{n}")).append(talk(1, 20)).await.unwrap();
    }
    engine.work().await.unwrap();
    home.clock.pass(Duration::from_secs(30));
    engine.work().await.unwrap();
    assert_eq!(model.calls(), 1);
    home.clock.pass(MINUTE);
    engine.work().await.unwrap();
    assert_eq!(model.calls(), 4);
}

fn dear(text: &str) -> Reply {
    Reply { usage: Some(TokenUsage { input: 90_000, cached: 0, output: 10_000 }), ..Reply::complete(text) }
}

#[tokio::test]
async fn a_workspace_spends_no_more_than_its_cap_in_a_day() {
    let home = Home::memory();
    home.clock.set(Timestamp(1_800_000_000_000 / 86_400_000 * 86_400_000));
    let model = Scripted::new().otherwise(|_| Ok(dear("Customers in Oslo wait for their parcels.")));
    let engine = far(&home, &model, r#", "spend_cap_per_day": 2.02"#).await;
    for n in 0..5 {
        engine.session(format!("s{n}")).append(talk(n * 100 + 1, n * 100 + 20)).await.unwrap();
    }
    engine.work().await.unwrap();
    assert_eq!(
        model.calls(),
        2,
        "a call costs 1.00 and 2.02 may be spent; a third would begin under the cap, \
        but what it may cost is reckoned with"
    );
    let poor = slot(&engine.session("s4"), "short").await;
    assert_eq!((poor.status, poor.attempts), (SlotStatus::Waiting, 0));
    assert!(poor.why.contains("2.00 of 2.02 (summarize.spend_cap_per_day) is spent today"), "{}", poor.why);
    // Another workspace has its own.
    let other = engine.workspace("other").session("s");
    other.append(talk(1, 20)).await.unwrap();
    other.work().await.unwrap();
    assert_eq!(current_summary(&other, "short").await.unwrap().through, 20);
    // The next day there is money again, and nothing was lost.
    home.clock.pass(DAY);
    engine.work().await.unwrap();
    assert_eq!(model.calls(), 5);
    let mut written = 0;
    for n in 0..5 {
        written += usize::from(current_summary(&engine.session(format!("s{n}")), "short").await.is_some());
    }
    assert_eq!(written, 4);
}

#[tokio::test]
async fn when_the_spend_cap_is_reached_local_writes_a_fallback() {
    let home = Home::memory();
    let model = Scripted::new();
    let settings = r#", "slot": [{"name": "short", "trigger": "messages(20)"}],
        "summarize": {"models": ["main"], "stand_in_after": "10m", "spend_cap_per_day": 0},
        "prices": {"main": {"input": 10, "output": 10}}"#;
    let engine = home.open(with_settings(&model, settings)).await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    assert!(current_summary(&session, "short").await.is_none());
    home.clock.pass(11 * MINUTE);
    session.work().await.unwrap();
    let summary = current_summary(&session, "short").await.unwrap();
    assert_eq!((summary.model.as_str(), summary.stand_in, model.calls()), ("local", true, 0));
}

#[tokio::test]
async fn a_spend_cap_requires_prices_and_a_workspace_cannot_raise_it() {
    let home = Home::memory();
    for settings in [
        r#"{"summarize": {"models": ["main"], "spend_cap_per_day": 1}}"#,
        r#"{"summarize": {"spend_cap_per_day": 1}, "condense": {"model": "main"}}"#,
    ] {
        let unpriced = Engine::builder().model("main", Scripted::new()).settings(settings).memory().await;
        let error = unpriced.unwrap_err().to_string();
        assert!(
            error.contains("spend_cap_per_day: the model `main` has no price; set prices.\"main\""),
            "{error}"
        );
    }

    let model = Scripted::new().otherwise(|_| Ok(dear("Customers in Oslo wait for their parcels.")));
    let engine = far(&home, &model, r#", "spend_cap_per_day": 0.5"#).await;
    let patch = serde_json::from_value(json!({"summarize": {"spend_cap_per_day": 1_000}})).unwrap();
    engine.workspace("default").set(&patch).await.unwrap();
    let session = engine.session("s");
    for turn in 0..3 {
        session.append(talk(turn * 20 + 1, turn * 20 + 20)).await.unwrap();
        session.work().await.unwrap();
    }
    assert_eq!(model.calls(), 1);
}

#[tokio::test]
async fn the_same_prompt_is_not_sent_twice() {
    let home = Home::memory();
    let model = Scripted::new();
    let engine = far(&home, &model, "").await;
    let first = engine.session("first");
    first.append(talk(1, 15)).await.unwrap();
    let fork = first.fork(Fork::whole("fork")).await.unwrap();
    for session in [&first, &fork] {
        session.append(talk(16, 20)).await.unwrap();
        session.work().await.unwrap();
    }
    assert_eq!(model.calls(), 1);
    let (one, two) =
        (current_summary(&first, "short").await.unwrap(), current_summary(&fork, "short").await.unwrap());
    assert_eq!((&one.text, one.through), (&two.text, two.through));
    let usage = fork.usage().await.unwrap();
    let rows: Vec<_> = usage.iter().map(|row| (row.outcome.as_str(), row.input, row.cost)).collect();
    assert_eq!(rows, [("reused", 0, Some(0))]);
    // Once the two say different things, the questions differ.
    fork.append(talk(121, 140)).await.unwrap();
    first.append(talk(21, 40)).await.unwrap();
    engine.work().await.unwrap();
    assert_eq!(model.calls(), 3);
    // Nobody else's answer is used.
    let stranger = engine.workspace("other").session("first");
    stranger.append(talk(1, 20)).await.unwrap();
    stranger.work().await.unwrap();
    assert_eq!(model.calls(), 4);
}

#[tokio::test]
async fn a_stored_answer_is_not_used_for_another_provider() {
    let home = Home::memory();
    let (main, other) = (Scripted::new(), Scripted::new());
    let document = r#"{"slot": [{"name": "short", "trigger": "messages(20)"}],
        "summarize": {"models": ["main"], "stand_in_after": "never"}}"#;
    let builder = Engine::builder()
        .model("main", Far { script: main.clone(), provider: "http://far" })
        .model("other", Far { script: other.clone(), provider: "http://farther" });
    let engine = home.open(builder.settings(document).workers(0).pace(fast_pace(0))).await;
    let (one, two) = (engine.session("one"), engine.session("two"));
    two.set(&serde_json::from_value(json!({"summarize": {"models": ["other"]}})).unwrap()).await.unwrap();
    for session in [&one, &two] {
        session.append(talk(1, 20)).await.unwrap();
        session.work().await.unwrap();
    }
    assert_eq!((main.calls(), other.calls()), (1, 1));
}

#[tokio::test]
async fn an_undo_or_rebuild_does_not_reuse_the_stored_answer() {
    let home = Home::memory();
    let model = Scripted::new();
    let engine = far(&home, &model, "").await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    let summary = current_summary(&session, "short").await.unwrap();
    session.undo(summary.id).await.unwrap();
    session.summarize(Summarize::slot("short")).await.unwrap();
    assert_eq!(model.calls(), 2, "what was taken back is not given again");
    session.rebuild(None, "short").await.unwrap();
    session.work().await.unwrap();
    assert_eq!(model.calls(), 3);
}

#[tokio::test]
async fn only_the_program_can_define_models() {
    let engine = Engine::memory().await.unwrap();
    let patch = serde_json::from_value(
        json!({"models": {"evil": {"provider": "openai", "model": "m", "base_url": "http://evil.example"}}}),
    )
    .unwrap();
    for refused in [
        engine.workspace("w").set(&patch).await.unwrap_err(),
        engine.session("s").set(&patch).await.unwrap_err(),
    ] {
        assert!(matches!(&refused, Error::Invalid(_)), "{refused}");
        assert!(refused.to_string().contains("models: can only be set for the whole program"), "{refused}");
    }
}
