//! Edge cases of spend caps, circuit breakers and lists of models, found in review.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use epitome::Engine;
use epitome::model::{Model, ModelError, Reply, SummaryRequest, TokenUsage};
use epitome::rules::message::{Timestamp, Tokens};
use epitome::settings::Patch;
use epitome_testkit::scripted::Scripted;
use serde_json::json;

use crate::failing::down;
use crate::support::{Home, MINUTE, current_summary, fast_pace, one_slot, slot, talk, with_settings};

fn patch(value: serde_json::Value) -> Patch {
    serde_json::from_value(value).unwrap()
}

fn dear(text: &str) -> Reply {
    Reply { usage: Some(TokenUsage { input: 90_000, cached: 0, output: 10_000 }), ..Reply::complete(text) }
}

fn capped(cap: &str) -> String {
    format!(
        r#", "slot": [{{"name": "short", "trigger": "messages(20)"}}],
        "summarize": {{"models": ["main"], "stand_in_after": "never", "spend_cap_per_day": {cap}}},
        "prices": {{"main": {{"input": 10, "output": 10}}}}"#
    )
}

#[tokio::test]
async fn a_workspace_cannot_evade_the_cap_with_its_own_prices() {
    for by_session in [false, true] {
        let home = Home::memory();
        let model = Scripted::new().otherwise(|_| Ok(dear("Customers in Oslo wait for their parcels.")));
        let engine = home.open(with_settings(&model, &capped("0.5"))).await;
        let free = patch(json!({"prices": {"main": {"input": 0, "output": 0}}}));
        let session = engine.session("s");
        // Refusing it would do as well.
        let _ =
            if by_session { session.set(&free).await } else { engine.workspace("default").set(&free).await };
        for turn in 0..4 {
            session.append(talk(turn * 20 + 1, turn * 20 + 20)).await.unwrap();
            session.work().await.unwrap();
        }
        assert_eq!(model.calls(), 1, "the engine allows 0.50 a day, and one call costs 1.00");
    }
}

#[tokio::test]
async fn a_session_cannot_raise_its_workspaces_spend_cap() {
    let home = Home::memory();
    let model = Scripted::new().otherwise(|_| Ok(dear("Customers in Oslo wait for their parcels.")));
    let engine = home.open(with_settings(&model, &capped("100"))).await;
    engine.workspace("default").set(&patch(json!({"summarize": {"spend_cap_per_day": 0.5}}))).await.unwrap();
    let session = engine.session("s");
    let _ = session.set(&patch(json!({"summarize": {"spend_cap_per_day": 100}}))).await;
    for turn in 0..4 {
        session.append(talk(turn * 20 + 1, turn * 20 + 20)).await.unwrap();
        session.work().await.unwrap();
    }
    assert_eq!(model.calls(), 1, "summarize.spend_cap_per_day is what a workspace may spend");
}

/// Two calls that are under way at the same time; what the first and the second get.
struct Together {
    calls: AtomicUsize,
    first: Result<Reply, ModelError>,
    second: Result<Reply, ModelError>,
}

impl Together {
    fn new(first: Result<Reply, ModelError>, second: Result<Reply, ModelError>) -> Self {
        Self { calls: AtomicUsize::new(0), first, second }
    }
}

struct Shared(Arc<Together>);

#[async_trait]
impl Model for Shared {
    fn name(&self) -> &str {
        "together"
    }
    fn room(&self) -> Option<Tokens> {
        None
    }
    async fn write(&self, _: &SummaryRequest) -> Result<Reply, ModelError> {
        let at = self.0.calls.fetch_add(1, Ordering::SeqCst);
        for _ in 0..40 {
            if self.0.calls.load(Ordering::SeqCst) > 1 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        if at == 0 {
            return self.0.first.clone();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        self.0.second.clone()
    }
}

async fn together(home: &Home, model: &Arc<Together>, more: &str) -> Engine {
    let document = format!(
        r#"{{"slot": [{{"name": "short", "trigger": "messages(20)"}}],
            "summarize": {{"models": ["main"], "stand_in_after": "never"{more}}},
            "prices": {{"main": {{"input": 10, "output": 10}}}}}}"#
    );
    let builder = Engine::builder().model("main", Shared(Arc::clone(model))).settings(&document);
    home.open(builder.workers(0).pace(fast_pace(0))).await
}

#[tokio::test]
async fn a_failing_call_in_progress_does_not_shorten_the_providers_retry_after() {
    for second in [
        ModelError::no_answer("connection reset"),
        ModelError::Busy { retry_after: None },
        ModelError::Busy { retry_after: Some(Duration::from_secs(1)) },
    ] {
        let home = Home::memory();
        let busy = ModelError::Busy { retry_after: Some(Duration::from_secs(1_800)) };
        let model = Arc::new(Together::new(Err(busy), Err(second.clone())));
        let engine = together(&home, &model, "").await;
        for name in ["a", "b", "c"] {
            engine.session(name).append(talk(1, 20)).await.unwrap();
        }
        let (a, b) = (engine.session("a"), engine.session("b"));
        let (one, two) = tokio::join!(a.work(), b.work());
        one.unwrap();
        two.unwrap();
        assert_eq!(model.calls.load(Ordering::SeqCst), 2);
        home.clock.pass(Duration::from_secs(10));
        engine.session("c").work().await.unwrap();
        assert_eq!(
            model.calls.load(Ordering::SeqCst),
            2,
            "its retry-after is half an hour, but it is called ten seconds later, after {second}"
        );
    }
}

#[tokio::test]
async fn two_concurrent_sessions_cannot_reserve_the_same_money() {
    let home = Home::memory();
    let text = Reply {
        usage: Some(TokenUsage { input: 2_000, cached: 0, output: 1_000 }),
        ..Reply::complete("Customers in Oslo wait for their parcels.")
    };
    let model = Arc::new(Together::new(Ok(text.clone()), Ok(text)));
    // One call is reckoned with about 0.04.
    let engine = together(&home, &model, r#", "spend_cap_per_day": 0.05"#).await;
    let (a, b) = (engine.session("a"), engine.session("b"));
    a.append(talk(1, 20)).await.unwrap();
    b.append(talk(101, 120)).await.unwrap();
    let (one, two) = tokio::join!(a.work(), b.work());
    one.unwrap();
    two.unwrap();
    let spent: i64 = engine
        .workspace("default")
        .usage(Timestamp(0))
        .await
        .unwrap()
        .iter()
        .filter_map(|row| row.cost)
        .sum();
    assert!(spent <= 50_000, "0.05 may be spent, and {spent} millionths were");
}

#[tokio::test]
async fn a_clock_set_back_does_not_prolong_the_pause_of_a_provider() {
    let home = Home::memory();
    let mut model = Scripted::new();
    for _ in 0..5 {
        model = model.fails(down());
    }
    let engine = home.open(one_slot(&model)).await;
    for n in 0..5 {
        engine.session(format!("s{n}")).append(talk(1, 20)).await.unwrap();
    }
    engine.work().await.unwrap();
    assert_eq!(model.calls(), 5);
    let now = home.clock.now();
    home.clock.set(Timestamp(now.0 - 24 * 3_600_000));
    home.clock.pass(10 * MINUTE);
    let session = engine.session("new");
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    assert_eq!(model.calls(), 6, "the pause is a minute: {}", slot(&session, "short").await.why);
}

#[tokio::test]
async fn a_second_model_that_failed_is_not_delayed_by_the_first_models_spend_cap() {
    let home = Home::memory();
    let main = Scripted::new();
    let spare = Scripted::new().named("spare-1").fails(down());
    let settings = r#", "slot": [{"name": "short", "trigger": "messages(20)"}],
        "summarize": {"models": ["main", "spare"], "stand_in_after": "never", "spend_cap_per_day": 0},
        "prices": {"main": {"input": 10, "output": 10}, "spare": {"input": 0, "output": 0}}"#;
    let engine = home.open(with_settings(&main, settings).model("spare", spare.clone())).await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    assert_eq!(spare.calls(), 1);
    // The first backoff is a second; the spare is free and well again.
    home.clock.pass(MINUTE);
    session.work().await.unwrap();
    assert!(current_summary(&session, "short").await.is_some(), "{}", slot(&session, "short").await.why);
}

#[tokio::test]
async fn a_second_model_that_failed_is_not_delayed_by_another_providers_pause() {
    let home = Home::memory();
    let main =
        Scripted::new().otherwise_fails(ModelError::Busy { retry_after: Some(Duration::from_secs(3_000)) });
    let spare = Scripted::new().named("spare-1").fails(down());
    let settings = r#", "slot": [{"name": "short", "trigger": "messages(20)"}],
        "summarize": {"models": ["main", "spare"], "stand_in_after": "never"}"#;
    let engine = home.open(with_settings(&main, settings).model("spare", spare.clone())).await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    home.clock.pass(MINUTE);
    session.work().await.unwrap();
    assert!(current_summary(&session, "short").await.is_some(), "{}", slot(&session, "short").await.why);
}

#[tokio::test]
async fn a_remote_model_named_local_has_a_circuit_breaker_too() {
    let home = Home::memory();
    let model = Scripted::new().named("local").otherwise_fails(down());
    let engine = home.open(one_slot(&model)).await;
    for n in 0..20 {
        engine.session(format!("s{n}")).append(talk(1, 20)).await.unwrap();
    }
    engine.work().await.unwrap();
    assert_eq!(model.calls(), 5);
}

#[tokio::test]
async fn a_model_without_a_price_under_a_cap_is_retried_with_backoff() {
    let home = Home::file();
    let slots = r#""slot": [{"name": "short", "trigger": "messages(20)"}]"#;
    let open = |more: &str| {
        let document = format!(r#"{{{slots}, "summarize": {{"stand_in_after": "never"{more}}}}}"#);
        Engine::builder().model("main", Scripted::new()).settings(&document).workers(0).pace(fast_pace(0))
    };
    let engine = home.open(open("")).await;
    engine.session("s").set(&patch(json!({"summarize": {"models": ["main"]}}))).await.unwrap();
    engine.session("s").append(talk(1, 20)).await.unwrap();
    engine.close().await;
    // On another day a cap is set.
    let engine = home.open(open(r#", "spend_cap_per_day": 1"#)).await;
    let session = engine.session("s");
    let mut tries = 0;
    let end = home.clock.now().0 + 3_600_000;
    while home.clock.now().0 < end && tries < 1_000 {
        session.work().await.unwrap();
        tries += 1;
        let then = slot(&session, "short").await.not_before.unwrap();
        home.clock.set(Timestamp(then.0 + 1));
    }
    assert!(tries < 100, "{tries} tries in an hour: {}", slot(&session, "short").await.why);
}

/// The cap allows one call: the reservation for a model that is then skipped must be released for the next.
#[tokio::test]
async fn money_reserved_for_a_call_that_was_not_made_is_released() {
    let home = Home::memory();
    let main =
        Scripted::new().otherwise_fails(ModelError::Busy { retry_after: Some(Duration::from_secs(3_000)) });
    let spare = Scripted::new().named("spare-1");
    let settings = r#", "slot": [{"name": "short", "trigger": "messages(20)"}],
        "summarize": {"models": ["main", "spare"], "stand_in_after": "never", "spend_cap_per_day": 0.06},
        "prices": {"main": {"input": 10, "output": 10}, "spare": {"input": 10, "output": 10}}"#;
    let engine = home.open(with_settings(&main, settings).model("spare", spare.clone())).await;
    let (first, second) = (engine.session("first"), engine.session("second"));
    first.append(talk(1, 20)).await.unwrap();
    first.work().await.unwrap();
    assert_eq!((main.calls(), spare.calls()), (1, 1));
    // The first provider is not called from here on.
    second.append(talk(101, 120)).await.unwrap();
    second.work().await.unwrap();
    assert_eq!((main.calls(), spare.calls()), (1, 2), "{}", slot(&second, "short").await.why);
}

/// `local` in the list costs nothing, and takes nothing back of what the one before it cost.
#[tokio::test]
async fn the_cost_of_a_rejected_answer_is_recorded_while_local_writes() {
    let home = Home::memory();
    let model = Scripted::new().otherwise(|_| Ok(dear("")));
    let settings = r#", "slot": [{"name": "short", "trigger": "messages(20)"}],
        "summarize": {"models": ["main", "local"], "stand_in_after": "never", "spend_cap_per_day": 1.5},
        "prices": {"main": {"input": 10, "output": 10}}"#;
    let engine = home.open(with_settings(&model, settings)).await;
    let session = engine.session("s");
    for turn in 0..3 {
        session.append(talk(turn * 20 + 1, turn * 20 + 20)).await.unwrap();
        session.work().await.unwrap();
    }
    assert_eq!(model.calls(), 2, "each costs 1.00");
    assert_eq!(current_summary(&session, "short").await.unwrap().model, "local");
}
