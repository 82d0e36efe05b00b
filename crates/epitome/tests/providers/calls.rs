//! Tests calls of remote models without an engine.

use std::time::{Duration, Instant};

use epitome::model::{Model, ModelError, Remote, Reply, SummaryRequest, TokenUsage};
use epitome::rules::inspect::{Finish, Standard, inspect};
use epitome::rules::slot::Limit;
use epitome::settings::{ModelSettings, Provider as Wire};
use serde_json::{Value, json};

use crate::provider::{Act, CACHED, INPUT, OUTPUT, Provider};
use crate::support::{KEY, WAYS, Way, assert_no_secrets, request, until};

const USAGE: TokenUsage = TokenUsage { input: INPUT, cached: CACHED, output: OUTPUT };
const SECOND: Duration = Duration::from_secs(1);

/// Runs a test in all four ways.
async fn every_way(test: impl AsyncFn(Way, Provider)) {
    for way in WAYS {
        test(way, Provider::start().await).await;
    }
}

async fn reply(way: Way, provider: &Provider, act: Act) -> Reply {
    provider.then(act);
    way.remote(provider).write(&request()).await.unwrap()
}

/// Checks that this act gives exactly this error in all ways.
async fn fails(act: Act, expected: ModelError) {
    every_way(async |way, provider| {
        provider.then(act.clone());
        let error = way.within(&provider, SECOND).write(&request()).await.unwrap_err();
        assert_eq!(error, expected, "{way:?} {act:?}");
        assert_eq!(provider.calls(), 1, "once");
    })
    .await;
}

fn passes(reply: &Reply, request: &SummaryRequest) -> Option<String> {
    let standard = Standard {
        limit: request.limit,
        replaces: request.replaces,
        prior: None,
        names: &[],
        counter: &request.counter,
        redact: true,
    };
    inspect(&reply.text, reply.finish, &standard).ok().map(|kept| kept.text)
}

const SUMMARY: &str =
    "Messages 1 to 20: customers in Oslo inquired where their parcels are; each got a date.";

#[tokio::test]
async fn an_answer_is_complete_with_its_usage_and_the_request_is_valid() {
    every_way(async |way, provider| {
        provider.strict(KEY);
        let reply = reply(way, &provider, Act::Good).await;
        let expected =
            Reply { text: SUMMARY.to_owned(), finish: Finish::Complete, usage: Some(USAGE), extracts: None };
        assert_eq!(reply, expected, "{way:?}");
        let request = provider.last();
        assert_eq!(request.body["model"], "stand-in-1");
        assert_eq!(request.body["max_tokens"], 400 * 2 + 4_096);
        assert_eq!((request.streamed(), request.body.get("temperature")), (way.stream, None));
        assert_eq!(request.seqs(), (1..=20).collect::<Vec<u64>>());
        match way.wire == Wire::ANTHROPIC {
            true => {
                assert_eq!(request.path, "/v1/messages");
                assert_eq!(request.header("x-api-key"), Some(KEY));
                assert_eq!(request.header("anthropic-version"), Some("2023-06-01"));
                assert!(request.body["system"].as_str().is_some_and(|rules| !rules.is_empty()));
            }
            false => {
                assert_eq!(request.path, "/v1/chat/completions");
                assert_eq!(request.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
                assert_eq!(request.body["messages"][0]["role"], "system");
                assert_eq!(request.body["stream_options"]["include_usage"] == true, way.stream);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn without_a_key_a_custom_address_is_called_without_one() {
    every_way(async |way, provider| {
        let settings = ModelSettings { key_env: None, ..way.settings(&provider) };
        let model = Remote::new("main", &settings, None).unwrap();
        assert_eq!(model.write(&request()).await.unwrap().text, SUMMARY);
        let sent = provider.last();
        assert_eq!((sent.header("authorization"), sent.header("x-api-key")), (None, None));
        provider.strict(KEY);
        let error = model.write(&request()).await.unwrap_err().to_string();
        assert!(error.contains("requires a key (401)") && error.contains("models.main.key_env"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn reasoning_is_no_part_of_the_summary() {
    every_way(async |way, provider| {
        let reply = reply(way, &provider, Act::Thinks).await;
        assert!(!reply.text.contains("Let me see"), "{way:?}: {}", reply.text);
        assert_eq!(passes(&reply, &request()).as_deref(), Some(SUMMARY));
    })
    .await;
}

#[tokio::test]
async fn the_stop_reason_is_reported_and_a_bad_one_fails_inspection() {
    for (act, finish) in [
        (Act::Length, Finish::Length),
        (Act::ThinksForEver, Finish::Length),
        (Act::Declines, Finish::Filtered),
        (Act::Empty, Finish::Complete),
        (Act::CallsTool, Finish::Unknown),
    ] {
        every_way(async |way, provider| {
            let reply = reply(way, &provider, act.clone()).await;
            assert_eq!((reply.finish, reply.usage), (finish, Some(USAGE)), "{way:?} {act:?}");
            assert_eq!(passes(&reply, &request()), None, "{way:?} {act:?}");
        })
        .await;
    }
}

#[tokio::test]
async fn an_answer_without_usage_is_accepted() {
    every_way(async |way, provider| {
        let reply = reply(way, &provider, Act::Uncounted).await;
        assert_eq!((reply.text.as_str(), reply.usage), (SUMMARY, None), "{way:?}");
    })
    .await;
}

#[tokio::test]
async fn a_truncated_answer_is_never_complete_and_its_usage_is_reported_if_known() {
    for act in [Act::Cut, Act::Unfinished, Act::Stall, Act::Huge] {
        every_way(async |way, provider| {
            // With a limit in characters, a truncated text could be taken for a text that was cut at the limit.
            let request = SummaryRequest { limit: Limit::Chars(20), ..request() };
            provider.then(act.clone());
            match way.within(&provider, SECOND).write(&request).await {
                Ok(reply) => {
                    assert!(way.reports_usage_first(), "{way:?} {act:?}: {reply:?}");
                    assert_eq!((reply.finish, passes(&reply, &request)), (Finish::Length, None));
                    assert_eq!(reply.usage.unwrap().input, INPUT);
                }
                Err(error) => {
                    assert!(!way.reports_usage_first(), "{way:?} {act:?}: {error}");
                    assert_eq!(error.kind(), "no_answer");
                }
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_provider_that_sends_retry_after_is_busy() {
    let busy = |seconds: Option<u64>| ModelError::Busy { retry_after: seconds.map(Duration::from_secs) };
    fails(Act::Busy(Some("7".to_owned())), busy(Some(7))).await;
    fails(Act::Busy(None), busy(None)).await;
    fails(Act::Status(503), busy(None)).await;
    fails(Act::Status(529), busy(None)).await;
    fails(Act::ErrorInside, busy(None)).await;
    let raw =
        |name: &str, value: &str| Act::Raw(429, vec![(name.to_owned(), value.to_owned())], String::new());
    fails(raw("retry-after-ms", "2000"), busy(Some(2))).await;
    fails(raw("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT"), busy(Some(0))).await;
    fails(raw("x-ratelimit-reset-requests", "9s"), busy(None)).await;
}

#[tokio::test]
async fn a_permanent_failure_is_refused_and_says_what_to_fix() {
    fails(Act::WrongKey, ModelError::refused("the key in STAND_IN_KEY is not accepted (401)")).await;
    fails(Act::Status(403), ModelError::refused("the key in STAND_IN_KEY is not accepted (403)")).await;
    fails(Act::NoModel, ModelError::refused("the provider has no model `stand-in-1` (404)")).await;
    fails(Act::NoCredit, ModelError::refused("no credit (429, insufficient_quota)")).await;
    fails(Act::Status(400), ModelError::refused("the provider refused the request (400, api_error)")).await;
    fails(Act::Echo, ModelError::refused("the provider refused the request (400)")).await;
}

#[tokio::test]
async fn a_wrong_address_is_named_in_the_error() {
    every_way(async |way, provider| {
        let path = if way.wire == Wire::ANTHROPIC { "messages" } else { "chat/completions" };
        let address = format!("{}/{path}", provider.url());
        let words = if way.wire == Wire::ANTHROPIC { "messages" } else { "chat completions" };
        provider.then(Act::Raw(404, Vec::new(), "<html>404 page not found</html>".to_owned()));
        let error = way.remote(&provider).write(&request()).await.unwrap_err();
        let expected = format!("no endpoint for {words} at {address} (404); is base_url right?");
        assert_eq!(error, ModelError::refused(&expected));
    })
    .await;
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_the_key_is_not_sent_on() {
    every_way(async |way, provider| {
        let elsewhere = Provider::start().await;
        provider.then(Act::Redirect(format!("{}/chat/completions", elsewhere.url())));
        let error = way.remote(&provider).write(&request()).await.unwrap_err();
        assert_eq!(error.kind(), "refused");
        assert!(error.to_string().contains("redirects (307)"), "{error}");
        assert_eq!((provider.calls(), elsewhere.calls()), (1, 0));
    })
    .await;
}

#[tokio::test]
async fn a_temporary_failure_is_no_answer() {
    fails(Act::Status(500), ModelError::no_answer("the provider failed (500, api_error)")).await;
    fails(Act::Garbage, ModelError::no_answer("the answer is not JSON; no text could be read from it")).await;
    fails(Act::WrongLength, ModelError::no_answer("the answer is not JSON; no text could be read from it"))
        .await;
    fails(Act::Html, ModelError::no_answer("the answer is a web page; no text could be read from it")).await;
    fails(Act::WrongShape, ModelError::no_answer("the answer is JSON of an unexpected shape")).await;
}

#[tokio::test]
async fn a_closed_connection_and_a_closed_port_are_no_answer() {
    every_way(async |way, provider| {
        let origin = provider.url().trim_end_matches("/v1").to_owned();
        let model = way.remote(&provider);
        provider.then(Act::Close);
        let error = model.write(&request()).await.unwrap_err();
        assert_eq!(
            error,
            ModelError::no_answer(&format!("{origin} closed the connection without an answer"))
        );
        provider.leave().await;
        let error = model.write(&request()).await.unwrap_err();
        assert_eq!(error, ModelError::no_answer(&format!("nothing answers at {origin}: connection refused")));
        provider.come_back().await;
        assert_eq!(model.write(&request()).await.unwrap().text, SUMMARY);
    })
    .await;
}

#[tokio::test]
async fn a_silent_provider_times_out_and_the_connection_is_closed() {
    let silent = async |way: Way, act: Act| {
        let provider = Provider::start().await;
        provider.then(act);
        let started = Instant::now();
        let error = way.within(&provider, SECOND).write(&request()).await.unwrap_err();
        assert_eq!(error, ModelError::no_answer("no answer within 1s"));
        assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
        until("the connection is closed", || provider.open() == 0).await;
    };
    let slow = Act::Slow(Duration::from_secs(30));
    tokio::join!(
        silent(WAYS[0], Act::Silent),
        silent(WAYS[1], Act::Silent),
        silent(WAYS[2], slow.clone()),
        silent(WAYS[3], slow),
        silent(WAYS[0], Act::Stall),
    );
}

#[tokio::test]
async fn too_long_is_reported_with_its_numbers_and_lowers_the_room_permanently() {
    every_way(async |way, provider| {
        let model = way.remote(&provider);
        assert_eq!(model.room(), None);
        let sent = 4_000;
        for (limit, room) in [(3_000, 2_250), (2_800, 2_100), (90_000, 2_100)] {
            provider.then(Act::TooLong { sent, limit });
            let error = model.write(&request()).await.unwrap_err();
            assert_eq!(error, ModelError::TooLong { sent, limit: Some(limit) }, "{way:?}");
            assert!(model.room().unwrap() <= room, "{way:?} {:?}", model.room());
        }
        let written = model.write(&request()).await;
        assert!(matches!(&written, Ok(_) | Err(ModelError::TooLong { .. })), "{written:?}");
    })
    .await;
}

#[tokio::test]
async fn a_window_reported_in_thousands_or_as_zero_does_no_harm() {
    for body in [
        json!({"error": {"code": "context_length_exceeded",
            "message": "This model's maximum context length is 32k tokens. Please reduce your prompt."}}),
        json!({"error": {"type": "exceed_context_size_error", "message": "too large", "n_ctx": 0}}),
        json!({"error": {"message": "the request exceeds the available context size (8K tokens)"}}),
    ] {
        let provider = Provider::start().await;
        provider.then(Act::Raw(400, Vec::new(), body.to_string()));
        let model = WAYS[0].remote(&provider);
        let error = model.write(&request()).await.unwrap_err();
        assert!(matches!(error, ModelError::TooLong { .. }), "{error:?}");
        assert!(model.room().is_none_or(|room| room >= 1_000), "{:?} after {body}", model.room());
        assert_eq!(model.write(&request()).await.unwrap().text, SUMMARY, "it is asked again");
    }
}

#[tokio::test]
async fn a_reported_window_without_room_for_a_prompt_is_reset() {
    let provider = Provider::start().await;
    let model = WAYS[0].remote(&provider);
    provider.then(Act::TooLong { sent: 4_000, limit: 7 });
    assert!(model.write(&request()).await.is_err());
    assert_eq!(model.room(), Some(1_500), "never less than this");
    let large = SummaryRequest { instructions: "Write of Oslo first. ".repeat(500).into(), ..request() };
    let error = model.write(&large).await.unwrap_err();
    assert!(matches!(error, ModelError::TooLong { limit: Some(1_500), .. }), "{error:?}");
    assert_eq!((provider.calls(), model.room()), (1, None), "it is forgotten");
    assert_eq!(model.write(&large).await.map(|reply| reply.text), Ok(SUMMARY.to_owned()));
}

#[tokio::test]
async fn a_request_above_the_rate_limit_is_too_long_and_not_busy() {
    // OpenAI's own words. Waiting does not make the request fit.
    let message = "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, \
        Requested 44000. The input or output tokens must be reduced in order to run successfully.";
    let body = json!({"error": {"message": message, "type": "tokens", "param": null, "code": "rate_limit_exceeded"}});
    let too_long = ModelError::TooLong { sent: 44_000, limit: Some(30_000) };
    fails(Act::Raw(429, Vec::new(), body.to_string()), too_long).await;
}

#[tokio::test]
async fn a_prompt_that_does_not_fit_is_not_sent() {
    every_way(async |way, provider| {
        let settings = ModelSettings { window: Some(400), ..way.settings(&provider) };
        let model = Remote::new("main", &settings, Some(KEY.to_owned().into())).unwrap();
        let error = model.write(&request()).await.unwrap_err();
        assert!(matches!(error, ModelError::TooLong { limit: Some(300), .. }), "{error:?}");
        assert_eq!(provider.calls(), 0);
    })
    .await;
}

#[tokio::test]
async fn the_other_parameter_name_is_tried_once_and_remembered() {
    for way in &WAYS[..2] {
        let provider = Provider::start().await;
        let model = way.remote(&provider);
        provider.always(Act::RejectsParameter("max_tokens"));
        for _ in 0..2 {
            assert_eq!(model.write(&request()).await.unwrap().text, SUMMARY);
        }
        let used: Vec<bool> =
            provider.requests().iter().map(|request| request.body.get("max_tokens").is_some()).collect();
        assert_eq!(used, [true, false, false]);
        // And back, if the server changed.
        provider.always(Act::RejectsParameter("max_completion_tokens"));
        assert_eq!(model.write(&request()).await.unwrap().text, SUMMARY);
        assert!(provider.last().body.get("max_tokens").is_some());
    }
}

#[tokio::test]
async fn after_a_cut_off_answer_the_next_call_allows_more_output() {
    let provider = Provider::start().await;
    let model = WAYS[0].remote(&provider);
    provider.always(Act::Length);
    let mut given = Vec::new();
    for _ in 0..6 {
        model.write(&request()).await.unwrap();
        given.push(provider.last().body["max_tokens"].as_u64().unwrap() - 800);
    }
    assert_eq!(given, [4_096, 8_192, 16_384, 32_768, 32_768, 32_768]);
}

#[tokio::test]
async fn a_server_that_ignores_the_stream_parameter_is_understood() {
    let body = |text: &str| {
        let message = serde_json::json!({"content": text});
        serde_json::json!({"choices": [{"message": message, "finish_reason": "stop"}]})
    };
    let whole = Act::Raw(200, Vec::new(), body("Ann ordered tea.").to_string());
    let chunk = r#"data: {"choices":[{"delta":{"content":"Ann ordered tea."},"finish_reason":"stop"}]}"#;
    let kind = ("content-type".to_owned(), "text/event-stream; charset=utf-8".to_owned());
    let streamed = Act::Raw(200, vec![kind], format!("{chunk}\n\n"));
    let provider = Provider::start().await;
    for (way, act) in [(WAYS[1], whole), (WAYS[0], streamed)] {
        let reply = reply(way, &provider, act).await;
        assert_eq!((reply.text.as_str(), reply.finish), ("Ann ordered tea.", Finish::Complete));
    }
}

#[tokio::test]
async fn carriage_returns_end_the_lines_of_a_stream_too() {
    let event = |text: &str, end: Value| {
        format!("data: {}\r\r", json!({"choices": [{"delta": {"content": text}, "finish_reason": end}]}))
    };
    let body = event("Ann ", Value::Null) + &event("asked.", json!("stop")) + "data: [DONE]\r\r";
    let kind = ("content-type".to_owned(), "text/event-stream".to_owned());
    let provider = Provider::start().await;
    let reply = reply(WAYS[1], &provider, Act::Raw(200, vec![kind], body)).await;
    assert_eq!((reply.text.as_str(), reply.finish), ("Ann asked.", Finish::Complete));
}

#[tokio::test]
async fn an_error_next_to_choices_is_an_error() {
    let body = json!({"error": {"code": 429, "message": "Rate limited"},
        "choices": [{"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": null}]});
    let provider = Provider::start().await;
    provider.always(Act::Raw(200, Vec::new(), body.to_string()));
    let error = WAYS[0].remote(&provider).write(&request()).await.unwrap_err();
    assert_eq!(error, ModelError::Busy { retry_after: None });
}

#[tokio::test]
async fn no_proxy_is_used_for_loopback_addresses() {
    // The environment belongs to the whole process, so the test runs itself again in a process with a proxy.
    const NAMES: [&str; 4] = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
    let proxied = std::env::var("EPITOME_TEST_PROXIED").is_ok();
    if proxied {
        let provider = Provider::start().await;
        assert_eq!(WAYS[0].remote(&provider).write(&request()).await.unwrap().text, SUMMARY);
        return;
    }
    let proxy = Provider::start().await;
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "calls::no_proxy_is_used_for_loopback_addresses"]);
    again.envs(NAMES.map(|name| (name, proxy.url().trim_end_matches("/v1").to_owned())));
    again.env_remove("NO_PROXY").env_remove("no_proxy").env("EPITOME_TEST_PROXIED", "1");
    let output = tokio::task::spawn_blocking(move || again.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    assert_eq!((proxy.calls(), proxy.open()), (0, 0), "nothing went through the proxy");
}

#[tokio::test]
async fn an_error_in_the_middle_of_a_stream_is_an_error() {
    let kind = ("content-type".to_owned(), "text/event-stream".to_owned());
    let raw = |events: &str| Act::Raw(200, vec![kind.clone()], events.to_owned());
    let check = async |way: Way, events: &str, expected: ModelError| {
        let provider = Provider::start().await;
        provider.then(raw(events));
        assert_eq!(way.remote(&provider).write(&request()).await.unwrap_err(), expected);
    };
    let start = r#"data: {"type":"message_start","message":{"usage":{"input_tokens":9}}}"#;
    let overloaded = r#"data: {"type":"error","error":{"type":"overloaded_error","message":"x"}}"#;
    check(WAYS[3], &format!("{start}\n\n{overloaded}\n\n"), ModelError::Busy { retry_after: None }).await;
    let failed = "data: {\"error\":{\"message\":\"x\",\"type\":\"server_error\"}}\n\n";
    check(WAYS[1], failed, ModelError::no_answer("the provider failed (500, server_error)")).await;
    let odd = ModelError::no_answer("the stream contains an unexpected event");
    check(WAYS[1], "data: <html>\n\n", odd.clone()).await;
    check(WAYS[3], "data: {\"a\":1}\n\n", odd).await;
}

#[tokio::test]
async fn no_response_of_a_provider_causes_a_panic_or_is_repeated() {
    let odd: Vec<Value> = ["null", "0", "[]", "{}", "\"x\"", r#"{"choices":{}}"#, r#"{"choices":[null]}"#]
        .into_iter()
        .chain([r#"{"choices":[{"message":{"content":{}}}]}"#, r#"{"content":[null,{"type":"text"}]}"#])
        .chain([
            r#"{"content":{"a":1}}"#,
            r#"{"error":7}"#,
            r#"{"error":[]}"#,
            r#"[{"error":{"code":1e99}}]"#,
        ])
        .map(|text| serde_json::from_str(text).unwrap())
        .collect();
    every_way(async |way, provider| {
        let model = way.remote(&provider);
        for body in &odd {
            for status in [200, 201, 204, 301, 400, 404, 413, 418, 500, 599, 999] {
                provider.then(Act::Raw(status, Vec::new(), body.to_string()));
                let error = model.write(&request()).await.unwrap_err();
                assert_no_secrets(&format!("{error} {error:?} {model:?}"));
            }
        }
    })
    .await;
}

#[tokio::test]
async fn dropping_the_call_closes_the_connection() {
    every_way(async |way, provider| {
        provider.always(Act::Silent);
        let model = way.within(&provider, Duration::from_secs(60));
        let call = tokio::spawn(async move { model.write(&request()).await });
        until("it asks", || provider.calls() == 1).await;
        assert_eq!(provider.open(), 1);
        call.abort();
        until("the connection is closed", || provider.open() == 0).await;
    })
    .await;
}
