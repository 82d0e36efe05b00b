//! Tests models that are called with a caller's own key.

use epitome::dialect::Dialect;
use epitome::model::{Credentials, Lender, Model, ModelError, TokenUsage};
use epitome::rules::inspect::Finish;
use serde_json::{Value, json};

use crate::provider::{Act, CACHED, INPUT, OUTPUT, Provider};
use crate::support::{KEY, assert_no_secrets, request};

const WIRES: [Dialect; 3] = [Dialect::OPENAI, Dialect::RESPONSES, Dialect::ANTHROPIC];

/// Returns a caller's headers, including some that are not for the provider.
fn credentials(dialect: Dialect) -> Credentials {
    let bearer = format!("Bearer {KEY}");
    let key =
        if dialect == Dialect::ANTHROPIC { ("X-Api-Key", KEY) } else { ("Authorization", bearer.as_str()) };
    let rest = [
        ("cookie", "session=1"),
        ("host", "elsewhere.example"),
        ("x-epitome-key", "ek-own"),
        ("content-length", "7"),
        ("anthropic-beta", "one"),
        ("anthropic-beta", "two"),
        ("openai-organization", "org-1"),
    ];
    Credentials::of([key].into_iter().chain(rest))
}

#[tokio::test]
async fn the_callers_model_writes_the_summary_on_the_callers_route() {
    for dialect in WIRES {
        let provider = Provider::start().await;
        provider.strict(KEY);
        let model = Lender::new(dialect, &provider.url()).unwrap().lend("stand-in-1", credentials(dialect));
        let reply = model.write(&request()).await.unwrap();
        assert!(reply.text.starts_with("Messages 1 to 20:"), "{dialect}: {}", reply.text);
        assert_eq!(reply.finish, Finish::Complete);
        assert_eq!(reply.usage, Some(TokenUsage { input: INPUT, cached: CACHED, output: OUTPUT }));
        let request = provider.last();
        let path = match dialect.name() {
            "responses" => "/v1/responses",
            "anthropic" => "/v1/messages",
            _ => "/v1/chat/completions",
        };
        assert_eq!((request.path.as_str(), &request.body["model"]), (path, &json!("stand-in-1")));
        for name in ["cookie", "x-epitome-key"] {
            assert_eq!(request.header(name), None, "{name} is none of the provider's");
        }
        assert_ne!(request.header("host"), Some("elsewhere.example"));
        assert_eq!(request.header("openai-organization"), Some("org-1"));
        let betas: Vec<&str> = request
            .headers
            .iter()
            .filter(|(name, _)| name == "anthropic-beta")
            .map(|(_, value)| value.as_str())
            .collect();
        assert_eq!(betas, ["one", "two"]);
        let version = request.header("anthropic-version");
        assert_eq!(version.is_some(), dialect == Dialect::ANTHROPIC, "{dialect}: {version:?}");
    }
}

#[tokio::test]
async fn answers_of_the_responses_api_are_recognised() {
    let provider = Provider::start().await;
    let lender = Lender::new(Dialect::RESPONSES, &provider.url()).unwrap();
    let model = lender.lend("stand-in-1", credentials(Dialect::RESPONSES));
    for (act, finish) in [
        (Act::Thinks, Finish::Complete),
        (Act::Length, Finish::Length),
        (Act::Declines, Finish::Filtered),
        (Act::Uncounted, Finish::Complete),
    ] {
        provider.then(act.clone());
        assert_eq!(model.write(&request()).await.unwrap().finish, finish, "{act:?}");
    }
    provider.then(Act::CallsTool);
    assert_eq!(model.write(&request()).await.unwrap().text, "", "a call is no summary");
    for act in
        [Act::WrongShape, Act::ErrorInside, Act::Garbage, Act::Html, Act::Cut, Act::Close, Act::Status(500)]
    {
        provider.then(act.clone());
        let error = model.write(&request()).await.unwrap_err();
        assert!(matches!(error, ModelError::NoAnswer { .. } | ModelError::Busy { .. }), "{act:?}: {error}");
    }
    provider.then(Act::TooLong { sent: 9_000, limit: 8_000 });
    let error = model.write(&request()).await.unwrap_err();
    assert_eq!(error, ModelError::TooLong { sent: 9_000, limit: Some(8_000) });
}

#[tokio::test]
async fn a_callers_key_is_never_shown() {
    for dialect in WIRES {
        let provider = Provider::start().await;
        let lender = Lender::new(dialect, &provider.url()).unwrap();
        let model = lender.lend("stand-in-1", credentials(dialect));
        let mut shown =
            format!("{model:?} {lender:?} {:?} {} {}", credentials(dialect), model.provider(), model.name());
        for act in [Act::WrongKey, Act::Echo, Act::Status(403), Act::NoCredit, Act::Close] {
            provider.then(act);
            let error = model.write(&request()).await.unwrap_err();
            shown.push_str(&format!(" {error} {error:?}"));
        }
        assert_no_secrets(&shown);
        assert!(shown.contains("the key in the caller's request is not accepted (401)"), "{shown}");
    }
}

#[tokio::test]
async fn an_invalid_header_value_is_refused_without_being_shown() {
    let provider = Provider::start().await;
    let odd = Credentials::of([("authorization", "Bearer sk-odd\nsecret")]);
    let model = Lender::new(Dialect::OPENAI, &provider.url()).unwrap().lend("m", odd);
    let error = model.write(&request()).await.unwrap_err().to_string();
    assert!(error.contains("the caller's header authorization") && !error.contains("odd"), "{error}");
    assert_eq!(provider.calls(), 0);
}

#[tokio::test]
async fn circuit_breakers_are_separate_for_callers_and_for_models_of_the_settings() {
    let lender = Lender::new(Dialect::OPENAI, "http://127.0.0.1:1/v1").unwrap();
    let of = |key: &str| lender.lend("m", Credentials::of([("authorization", key)])).provider().to_owned();
    assert_eq!(of("Bearer a"), of("Bearer a"), "whose model fails is known again");
    let all: std::collections::HashSet<String> = (0..2_000).map(|n| of(&format!("Bearer {n}"))).collect();
    assert!((100..=256).contains(&all.len()), "{}", all.len());
    assert!(!all.contains("http://127.0.0.1:1"));
    assert!(!lender.lend("m", Credentials::default()).reusable(), "what one paid for is not another's");
}

#[tokio::test]
async fn a_callers_model_is_never_called_with_the_operators_key() {
    let provider = Provider::start().await;
    let model = Lender::new(Dialect::ANTHROPIC, &provider.url()).unwrap().lend("m", Credentials::default());
    model.write(&request()).await.unwrap();
    let request = provider.last();
    for name in ["authorization", "x-api-key", "api-key"] {
        assert_eq!(request.header(name), None);
    }
    assert_eq!(request.body["stream"], Value::Bool(false));
    assert!(Lender::new(Dialect::OPENAI, "http://ann:pass@x/v1").is_err());
}
