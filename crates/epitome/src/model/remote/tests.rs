use super::*;
use epitome_core::message::Message;
use epitome_core::tokens::{Counter, Encoding};

fn settings(model: &str) -> ModelSettings {
    ModelSettings::new(Provider::OPENAI, model)
}

fn remote(settings: &ModelSettings) -> Remote {
    Remote::new("cheap", settings, None).unwrap()
}

fn request() -> SummaryRequest {
    let said = [Message::user("Please ship order 10071 to Oslo by Friday.").into()];
    SummaryRequest::new(said, Limit::Tokens(100), Counter::new(Encoding::O200k))
}

#[tokio::test]
async fn without_a_key_the_call_fails_and_names_the_variable() {
    let error = remote(&settings("gpt-5-mini")).write(&request()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the model refused: no key: environment variable OPENAI_API_KEY is not set (setting: models.cheap.key_env)"
    );
    let named = ModelSettings {
        key_env: Some("MY_KEY".to_owned()),
        base_url: Some("http://127.0.0.1:1/v1".to_owned()),
        ..settings("x")
    };
    let error = remote(&named).write(&request()).await.unwrap_err();
    assert!(error.to_string().contains("environment variable MY_KEY is not set"), "{error}");
    let own = ModelSettings { key_env: None, ..named };
    let error = remote(&own).write(&request()).await.unwrap_err();
    assert_eq!(
        error,
        ModelError::no_answer("nothing answers at http://127.0.0.1:1: connection refused"),
        "called without a key"
    );
    let blank = Remote::new("cheap", &settings("x"), Some(" \n".to_owned().into())).unwrap();
    assert_eq!(blank.check().await.unwrap_err().cause, FailureCause::Key);
    let odd = Remote::new("cheap", &settings("x"), Some("a\nb".to_owned().into())).unwrap();
    let error = odd.check().await.unwrap_err();
    assert_eq!(error.reason, "OPENAI_API_KEY contains an invalid character");
}

#[test]
fn an_invalid_address_is_refused_with_the_name_of_the_setting() {
    let wrong = |settings: &ModelSettings| Remote::new("cheap", settings, None).unwrap_err().to_string();
    for url in ["", "nowhere", "ftp://x/v1", "http://", "http://exa mple/v1", "http://x:99999/v1"] {
        let error = wrong(&ModelSettings { base_url: Some(url.to_owned()), ..settings("x") });
        assert!(error.starts_with("models.cheap.base_url: "), "{url}: {error}");
    }
    for url in ["http://ann:hunter22@x/v1", "https://hunter22@x/v1", "http://:hunter22@x/v1"] {
        let error = wrong(&ModelSettings { base_url: Some(url.to_owned()), ..settings("x") });
        assert_eq!(error, "models.cheap.base_url: must contain no user and no password");
    }
    let local = wrong(&ModelSettings::new(Provider::Local, ""));
    assert!(local.starts_with("models.cheap.provider: "), "{local}");
}

#[test]
fn room_comes_from_settings_then_table_and_reported_windows_only_reduce_it() {
    assert_eq!(remote(&settings("gpt-4o-mini-2024-07-18")).room(), Some(128_000 - 16_384));
    assert_eq!(remote(&settings("unheard-of")).room(), None);
    let small = remote(&ModelSettings { window: Some(8_000), ..settings("gpt-4o") });
    assert_eq!(small.room(), Some(4_000), "the table's reserve would leave nothing");
    let own = remote(&ModelSettings { window: Some(40_000), ..settings("unheard-of") });
    assert_eq!((own.room(), own.reserve()), (Some(30_000), Some(10_000)));
    let reserved = remote(&ModelSettings { output_reserve: Some(1_000), ..settings("gpt-4o") });
    assert_eq!((reserved.room(), reserved.max_output(Limit::Tokens(2_000))), (Some(127_000), 1_000));

    let model = remote(&settings("unheard-of"));
    let hear = |sent: &str, limit: &str| {
        let message = format!("prompt is too long: {sent} tokens > {limit} maximum");
        let error_text = ErrorText::of(&serde_json::json!({"error": {"message": message}}));
        model.call_error(400, &error_text, None, &model.question("", "", 10_000, 100));
    };
    hear("9000", "8000");
    assert_eq!(model.room(), Some(6_000));
    hear("20000", "8000");
    assert_eq!(model.room(), Some(3_000), "it counts twice as much as we do");
    hear("9000", "64000");
    assert_eq!(model.room(), Some(3_000));
    hear("90000", "8000");
    assert_eq!(model.room(), Some(3_000), "ten times our count is not believed");
    hear("9000", "0");
    assert_eq!(model.room(), Some(3_000), "a window of 0 is not believed");
    hear("9000", "8");
    assert_eq!(model.room(), Some(1_500), "nor one of eight");
    let known = remote(&ModelSettings { window: Some(40_000), ..settings("unheard-of") });
    let error_text =
        ErrorText::of(&serde_json::json!({"error": {"message": "context window of 4096", "code": "x"}}));
    known.call_error(400, &error_text, None, &known.question("", "", 10_000, 100));
    assert_eq!(known.window(), Some(10_000), "a quarter of the configured window at least");
}

#[test]
fn the_provider_is_its_address_and_callers_wait_longer_than_the_timeout() {
    let model = remote(&ModelSettings {
        base_url: Some("http://127.0.0.1:11434/v1/".to_owned()),
        timeout: Duration::from_secs(7),
        ..settings("llama3.1")
    });
    assert_eq!((model.name(), model.provider()), ("llama3.1", "http://127.0.0.1:11434"));
    assert_eq!(model.endpoint.url.as_str(), "http://127.0.0.1:11434/v1/chat/completions");
    assert!(model.timeout().unwrap() > Duration::from_secs(7) && model.reusable());
}

#[test]
fn debug_output_hides_the_key() {
    let key = Some(SecretString::from("sk-very-secret".to_owned()));
    let shown = format!("{:?}", Remote::new("cheap", &settings("gpt-5"), key).unwrap());
    assert!(shown.contains("gpt-5") && !shown.contains("very"), "{shown}");
}

#[test]
fn an_incomplete_text_is_shorter_than_the_limit() {
    let model = remote(&settings("gpt-5"));
    let answer =
        |usage| Answer { text: "word ".repeat(100), finish: Finish::Unknown, usage, complete: false };
    let request = SummaryRequest { limit: Limit::Chars(50), ..request() };
    let usage = TokenUsage { input: 10, cached: 0, output: 1 };
    let reply = model.cut_short(&request, &answer(Some(usage)), Incomplete::Broken).unwrap();
    assert_eq!((reply.text.len(), reply.finish), (50, Finish::Length));
    assert!(reply.usage.unwrap().output > 5, "what was written was counted here");
    let error = model.cut_short(&request, &answer(None), Incomplete::Broken).unwrap_err();
    assert_eq!(error, ModelError::no_answer("the answer broke off"));
}
