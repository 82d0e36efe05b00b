//! Tests an engine whose models are defined in its settings, also while they fail.

use std::time::Duration;

use epitome::model::Model;
use epitome::{Engine, Error, Pace};
use epitome_testkit::scripted::Scripted;

use crate::provider::{Act, INPUT, Provider};
use crate::support::{Clock, WAYS, assert_whole, engine, history, slot, talk, until};

fn settings(provider: &Provider, wire: &str) -> String {
    let url = provider.url();
    format!(
        r#"{{
            "slot": [{{"name": "short", "trigger": "messages(20)"}}],
            "models": {{"main": {{"provider": "{wire}", "model": "stand-in-1", "base_url": "{url}",
                "timeout": "60s"}}}},
            "summarize": {{"models": ["main"], "stand_in_after": "never"}}
        }}"#
    )
}

#[tokio::test]
async fn a_model_named_in_the_settings_is_called() {
    for wire in ["openai", "anthropic"] {
        let provider = Provider::start().await;
        let engine =
            Engine::builder().settings(&settings(&provider, wire)).workers(0).memory().await.unwrap();
        let session = engine.session("s");
        session.append(talk(1, 20)).await.unwrap();
        session.work().await.unwrap();
        let all = history(&session).await;
        assert_eq!(
            (all.len(), all[0].model.as_str()),
            (1, "stand-in-1"),
            "{:?}",
            slot(&session).await.last_error
        );
        let usage = session.usage().await.unwrap();
        assert_eq!((usage[0].calls, usage[0].input), (1, INPUT));
    }
}

#[tokio::test]
async fn a_model_added_by_the_program_takes_precedence_over_the_settings() {
    let provider = Provider::start().await;
    let model = Scripted::new().named("own");
    let builder = Engine::builder().model("main", model.clone()).settings(&settings(&provider, "openai"));
    let engine = builder.workers(0).memory().await.unwrap();
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    assert_eq!((model.calls(), provider.calls(), model.name()), (1, 0, "own"));
}

#[tokio::test]
async fn local_works_under_another_name_and_a_missing_key_is_no_error_at_start() {
    let document = r#"{
        "models": {
            "plain": {"provider": "local"},
            "cloud": {"provider": "openai", "model": "gpt-5-mini", "key_env": "NOBODY_SETS_THIS"}
        },
        "slot": [{"name": "short", "trigger": "messages(20)"}],
        "summarize": {"models": ["cloud", "plain"]}
    }"#;
    let engine = Engine::builder().settings(document).workers(0).memory().await.unwrap();
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    assert_eq!(history(&session).await[0].model, "local");
    let usage = session.usage().await.unwrap();
    assert!(usage.iter().any(|row| row.model == "gpt-5-mini" && row.outcome == "refused"), "{usage:?}");
    let unknown = r#"{"summarize": {"models": ["nobody"]}}"#;
    let refused = Engine::builder().settings(unknown).workers(0).memory().await.unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)));
}

#[tokio::test]
async fn a_fallback_summary_is_replaced_when_the_provider_works_again() {
    for way in WAYS {
        let (provider, clock) = (Provider::start().await, Clock::new());
        provider.always(Act::Status(500));
        let engine = engine(way.remote(&provider), &clock, "0s").await;
        let session = engine.session("s");
        session.append(talk(1, 20)).await.unwrap();
        session.work().await.unwrap();
        let stand_in = history(&session).await.pop().unwrap();
        assert_eq!((stand_in.through, stand_in.stand_in, stand_in.model.as_str()), (20, true, "local"));
        assert!(slot(&session).await.last_error.unwrap().contains("failed (500"));
        assert_whole(&session.context(4_000).await.unwrap(), 20);
        provider.heal();
        session.append(talk(21, 40)).await.unwrap();
        clock.wait_for(&session).await;
        session.work().await.unwrap();
        let real = history(&session).await.pop().unwrap();
        assert_eq!((real.through, real.stand_in, real.model.as_str()), (40, false, "stand-in-1"), "{way:?}");
        assert!(real.text.starts_with("Messages 1 to 40:"), "{}", real.text);
        assert_whole(&session.context(4_000).await.unwrap(), 40);
    }
}

#[tokio::test]
async fn dropping_the_engine_closes_the_connection_of_a_call_in_progress() {
    let provider = Provider::start().await;
    provider.always(Act::Silent);
    let pace = Pace { workers: 1, poll: Duration::from_millis(10), ..Pace::default() };
    let builder = Engine::builder().settings(&settings(&provider, "openai")).pace(pace);
    let engine = builder.memory().await.unwrap();
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    until("it asks", || provider.calls() == 1).await;
    assert_eq!(provider.open(), 1);
    drop((session, engine));
    until("the connection is closed", || provider.open() == 0).await;
}
