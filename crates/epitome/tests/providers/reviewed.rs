//! Found in review: what providers really say, and what became of it.

use std::time::Duration;

use epitome::Engine;
use epitome::model::{Model, ModelError, Remote};
use epitome::settings::{ModelSettings, Patch, Provider as Wire, Settings};
use serde_json::json;

use crate::provider::{Act, Provider};
use crate::support::{Clock, KEY, WAYS, Way, ask, engine, history, slot, talk};

fn raw(status: u16, body: serde_json::Value) -> Act {
    Act::Raw(status, vec![("content-type".to_owned(), "application/json".to_owned())], body.to_string())
}

const CHAT: Way = WAYS[0];

fn document(provider: &Provider, model: &str, more: &str) -> String {
    format!(
        r#"{{
            "slot": [{{"name": "short", "trigger": "messages(20)"}}],
            "models": {{"main": {{"provider": "openai", "model": "{model}", "base_url": "{}"}}}},
            "summarize": {{"models": ["main"], "stand_in_after": "never"{more}}}
        }}"#,
        provider.url()
    )
}

#[tokio::test]
async fn a_window_told_in_thousands_does_not_make_a_model_useless_for_ever() {
    for body in [
        json!({"error": {"code": "context_length_exceeded",
            "message": "This model's maximum context length is 32k tokens. Please reduce your prompt."}}),
        json!({"error": {"type": "exceed_context_size_error", "message": "too large", "n_ctx": 0}}),
        json!({"error": {"message": "the request exceeds the available context size (8K tokens)"}}),
    ] {
        let provider = Provider::start().await;
        provider.then(raw(400, body.clone()));
        let model = CHAT.remote(&provider);
        let error = model.write(&ask()).await.unwrap_err();
        assert!(matches!(error, ModelError::TooLong { .. }), "{error:?}");
        assert!(model.room().is_none_or(|room| room >= 1_000), "{:?} after {body}", model.room());
        let again = model.write(&ask()).await;
        assert!(again.is_ok(), "the provider is well, and never asked again: {again:?}");
    }
}

#[tokio::test]
async fn a_model_whose_name_is_local_is_not_taken_for_the_one_that_is_built_in() {
    // llama.cpp and its kin take any name, and many people write this one.
    let provider = Provider::start().await;
    provider.always(Act::Status(500));
    let engine = Engine::builder().settings(&document(&provider, "local", "")).workers(0).memory().await;
    let Ok(engine) = engine else { return };
    for n in 0..8 {
        engine.session(format!("s{n}")).append(talk(1, 20)).await.unwrap();
    }
    engine.work().await.unwrap();
    assert_eq!(provider.calls(), 5, "after five failures it is left alone");
}

#[tokio::test]
async fn what_is_served_at_an_address_of_ones_own_has_no_price_of_the_shipped_table() {
    let provider = Provider::start().await;
    let own = document(&provider, "gpt-5-mini", "");
    let settings = Settings::default().with(&Patch::parse(&own).unwrap()).unwrap();
    assert_eq!(settings.price("main"), None, "as Settings::price says");
    let engine = Engine::builder().settings(&own).workers(0).memory().await.unwrap();
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    let usage = session.usage().await.unwrap();
    assert_eq!((usage[0].calls, usage[0].cost), (1, None), "and so nobody knows what it cost");
    let capped = document(&provider, "gpt-5-mini", r#", "spend_cap_per_day": 1"#);
    assert!(Engine::builder().settings(&capped).workers(0).memory().await.is_err());
}

#[tokio::test]
async fn an_answer_that_ended_in_an_error_is_never_kept() {
    // As OpenRouter gives it: 200, half a text, and the error inside of the choice.
    let half = "The customer in Oslo wrote twice about the parcel of order 10071. It was sent yesterday.";
    let body = json!({"choices": [{"index": 0, "finish_reason": "error",
        "error": {"code": 502, "message": "Upstream failed"},
        "message": {"role": "assistant", "content": half}}],
        "usage": {"prompt_tokens": 1_000, "completion_tokens": 20}});
    let clock = Clock::new();
    let provider = Provider::start().await;
    provider.always(raw(200, body));
    let engine = engine(CHAT.remote(&provider), &clock, "never").await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    assert!(history(&session).await.is_empty(), "half an answer stands as the summary");
    assert!(slot(&session).await.last_error.is_some());
}

#[tokio::test]
async fn an_error_beside_an_empty_list_of_choices_text_is_told_as_an_error() {
    let body = json!({"error": {"code": 429, "message": "Rate limited"},
        "choices": [{"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": null}]});
    let provider = Provider::start().await;
    provider.always(raw(200, body));
    let error = CHAT.remote(&provider).write(&ask()).await;
    assert!(matches!(error, Err(ModelError::Busy { .. })), "{error:?}");
}

#[tokio::test]
async fn a_request_that_is_larger_than_a_minute_allows_is_made_smaller_and_not_repeated_for_ever() {
    // OpenAI's own words; no waiting makes it fit.
    let message = "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, \
        Requested 44000. The input or output tokens must be reduced in order to run successfully.";
    let body = json!({"error": {"message": message, "type": "tokens", "param": null, "code": "rate_limit_exceeded"}});
    let provider = Provider::start().await;
    provider.always(raw(429, body));
    let error = CHAT.remote(&provider).write(&ask()).await.unwrap_err();
    assert!(matches!(error, ModelError::TooLong { .. }), "{error:?}");
}

#[tokio::test]
async fn a_password_in_an_address_is_never_shown() {
    let settings = ModelSettings {
        base_url: Some("http://ann:hunter22@127.0.0.1:1/v1".to_owned()),
        timeout: Duration::from_secs(2),
        ..ModelSettings::new(Wire::OpenAi, "m")
    };
    let Ok(model) = Remote::new("main", &settings, Some(KEY.to_owned().into())) else { return };
    let error = model.write(&ask()).await.unwrap_err();
    let shown = format!("{model:?} {error} {error:?} {:?}", model.provider());
    assert!(!shown.contains("hunter22"), "{shown}");
}

#[tokio::test]
async fn carriage_returns_alone_end_the_lines_of_a_stream_too() {
    // The standard allows CR, LF and CRLF.
    let event = |text: &str, end: &str| {
        format!(
            "data: {}\r\r",
            json!({"choices": [{"delta": {"content": text}, "finish_reason": if end.is_empty() { json!(null) } else { json!(end) }}]})
        )
    };
    let body = event("Ann ", "") + &event("asked.", "stop") + "data: [DONE]\r\r";
    let provider = Provider::start().await;
    provider.always(Act::Raw(200, vec![("content-type".to_owned(), "text/event-stream".to_owned())], body));
    let reply = WAYS[1].remote(&provider).write(&ask()).await;
    assert_eq!(reply.map(|reply| reply.text).unwrap_or_else(|error| error.to_string()), "Ann asked.");
}
