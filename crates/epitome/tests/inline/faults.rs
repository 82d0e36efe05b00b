//! Tests that the test upstream refuses every kind of invalid request. Otherwise its acceptance would prove nothing.

use serde_json::{Value, json};

use epitome_testkit::upstream::refuse::Refusal;
use epitome_testkit::upstream::{Behavior, Manner, Upstream};

const CHAT: &str = "chat/completions";
const RESPONSES: &str = "responses";
const ANTHROPIC: &str = "messages";

fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap()
}

async fn post(upstream: &Upstream, path: &str, body: &Value) -> (u16, Value) {
    let answer =
        client().post(format!("{}/{path}", upstream.url())).body(body.to_string()).send().await.unwrap();
    (answer.status().as_u16(), serde_json::from_str(&answer.text().await.unwrap()).unwrap())
}

/// Returns a request with this list.
fn with(path: &str, list: impl Into<Value>) -> Value {
    let list: Value = list.into();
    match path {
        RESPONSES => json!({ "model": "m", "tools": [], "input": list }),
        ANTHROPIC => json!({ "model": "m", "tools": [], "max_tokens": 100, "messages": list }),
        _ => json!({ "model": "m", "tools": [], "messages": list }),
    }
}

fn user() -> Value {
    json!({ "role": "user", "content": "Hello" })
}

fn chat_calls(arguments: &str) -> Value {
    let function = json!({ "name": "f", "arguments": arguments });
    json!({ "role": "assistant", "tool_calls": [{ "id": "x", "type": "function", "function": function }] })
}

fn blocks(role: &str, blocks: impl Into<Value>) -> Value {
    let blocks: Value = blocks.into();
    json!({ "role": role, "content": blocks })
}

fn said() -> Value {
    json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Hello" }] })
}

#[tokio::test]
async fn every_invalid_request_is_refused() {
    let answer = json!({ "role": "tool", "tool_call_id": "x", "content": "done" });
    let asks = json!({ "type": "tool_use", "id": "x", "name": "f", "input": {} });
    let result = json!({ "type": "tool_result", "tool_use_id": "x", "content": "done" });
    let thinking = json!({ "type": "thinking", "thinking": "Hm.", "signature": "c2ln" });
    let later = json!({ "type": "tool_use", "id": "y", "name": "f", "input": {} });
    let call = json!({ "type": "function_call", "call_id": "x", "name": "f", "arguments": "{}" });
    let marked = json!({ "type": "text", "text": "Hi", "cache_control": { "type": "ephemeral" } });
    let output = json!({ "type": "function_call_output", "call_id": "x", "output": "done" });
    let faults = [
        ("an orphan", CHAT, with(CHAT, json!([user(), answer]))),
        ("an orphan", ANTHROPIC, with(ANTHROPIC, json!([blocks("user", json!([result]))]))),
        ("an orphan", RESPONSES, with(RESPONSES, json!([said(), output]))),
        ("no result", CHAT, with(CHAT, json!([user(), chat_calls("{}"), user()]))),
        ("no result at the end", CHAT, with(CHAT, json!([user(), chat_calls("{}")]))),
        ("no result", RESPONSES, with(RESPONSES, json!([said(), call, said()]))),
        ("no result at the end", RESPONSES, with(RESPONSES, json!([said(), call]))),
        (
            "no result",
            ANTHROPIC,
            with(ANTHROPIC, json!([user(), blocks("assistant", json!([asks])), user()])),
        ),
        (
            "no result at the end",
            ANTHROPIC,
            with(ANTHROPIC, json!([user(), blocks("assistant", json!([asks]))])),
        ),
        ("no alternation", ANTHROPIC, with(ANTHROPIC, json!([user(), user()]))),
        ("no user", CHAT, with(CHAT, json!([{ "role": "system", "content": "Be brief." }]))),
        ("no user", RESPONSES, with(RESPONSES, json!([call, output]))),
        (
            "not the user first",
            ANTHROPIC,
            with(ANTHROPIC, json!([blocks("assistant", json!([{ "type": "text", "text": "Hi" }])), user()])),
        ),
        (
            "a loop without its reasoning",
            ANTHROPIC,
            with(
                ANTHROPIC,
                json!([
                    user(),
                    blocks("assistant", json!([asks])),
                    blocks("user", json!([result])),
                    blocks("assistant", json!([thinking, later])),
                    blocks("user", json!([{ "type": "tool_result", "tool_use_id": "y", "content": "done" }])),
                ]),
            ),
        ),
        (
            "reasoning alone",
            RESPONSES,
            with(RESPONSES, json!([said(), { "type": "reasoning", "id": "rs_1", "summary": [] }, said()])),
        ),
        ("arguments that are no JSON", CHAT, with(CHAT, json!([user(), chat_calls("{\"a\": "), answer]))),
        (
            "arguments that are no JSON",
            RESPONSES,
            with(
                RESPONSES,
                json!([said(), { "type": "function_call", "call_id": "x", "name": "f", "arguments": "{" }, output]),
            ),
        ),
        (
            "our own field",
            CHAT,
            with(CHAT, json!([{ "role": "user", "content": "Hi", "epitome": { "pinned": true } }])),
        ),
        (
            "our own field",
            ANTHROPIC,
            with(ANTHROPIC, json!([{ "role": "user", "content": "Hi", "epitome": { "pinned": true } }])),
        ),
        ("our own field", CHAT, json!({ "model": "m", "messages": [user()], "epitome": {} })),
        (
            "an unknown field",
            ANTHROPIC,
            json!({ "model": "m", "max_tokens": 1, "messages": [user()], "x": 1 }),
        ),
        ("too many marks for a cache", ANTHROPIC, with(ANTHROPIC, json!([blocks("user", vec![marked; 5])]))),
        ("no limit", ANTHROPIC, json!({ "model": "m", "messages": [user()] })),
        ("no model", CHAT, json!({ "messages": [user()] })),
        ("no JSON", CHAT, json!("Hello")),
    ];
    let upstream = Upstream::start(Manner::default()).await;
    for (at, (fault, path, body)) in faults.iter().enumerate() {
        let (status, told) = post(&upstream, path, body).await;
        assert_eq!(status, 400, "{fault} on {path}: {told}");
        assert!(told["error"]["message"].as_str().is_some_and(|said| !said.is_empty()), "{told}");
        assert_eq!(told["error"]["type"], "invalid_request_error");
        assert_eq!(upstream.invalid().len(), at + 1, "{fault} on {path}");
    }
    assert_eq!(upstream.repeated(), 0);
    post(&upstream, CHAT, &faults[0].2).await;
    assert_eq!(upstream.repeated(), 1, "the same again is noticed");
}

#[tokio::test]
async fn a_request_that_is_too_long_is_refused_in_each_providers_words() {
    let long = "so it goes ".repeat(500);
    let upstream = Upstream::start(Manner { window: 1_000, ..Manner::default() }).await;
    let messages = json!([{ "role": "user", "content": long }]);
    let (status, told) = post(&upstream, CHAT, &with(CHAT, messages.clone())).await;
    assert_eq!((status, &told["error"]["code"]), (400, &json!("context_length_exceeded")));
    let (status, told) = post(&upstream, ANTHROPIC, &with(ANTHROPIC, messages)).await;
    let message = told["error"]["message"].as_str().unwrap();
    assert!(status == 400 && message.starts_with("prompt is too long: "), "{message}");
    assert!(message.ends_with(" tokens > 1000 maximum"), "{message}");
    assert!(matches!(upstream.refused()[..], [Refusal::TooLong { .. }, Refusal::TooLong { .. }]));
    assert!(upstream.invalid().is_empty());
}

#[tokio::test]
async fn a_valid_request_is_answered_and_counted_and_a_repeated_beginning_is_cached() {
    let upstream = Upstream::start(Manner::default()).await;
    let first = with(CHAT, json!([{ "role": "user", "content": "so it goes ".repeat(400) }]));
    let (status, answer) = post(&upstream, CHAT, &first).await;
    assert_eq!((status, &answer["usage"]["prompt_tokens_details"]["cached_tokens"]), (200, &json!(0)));
    let (_, answer) = post(&upstream, CHAT, &first).await;
    let usage = &answer["usage"];
    assert!(usage["prompt_tokens"].as_u64().is_some_and(|tokens| tokens > 1_024), "{usage}");
    assert_eq!(usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]);
    // A prefix that is too short is not cached.
    for _ in 0..2 {
        let (_, answer) = post(&upstream, CHAT, &with(CHAT, json!([user()]))).await;
        assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    }
}

/// Returns the events of a stream: the text after `data: `.
async fn streamed(upstream: &Upstream, path: &str, mut body: Value) -> Vec<String> {
    body["stream"] = json!(true);
    let answer =
        client().post(format!("{}/{path}", upstream.url())).body(body.to_string()).send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], "text/event-stream; charset=utf-8");
    let text = answer.text().await.unwrap();
    text.lines().filter_map(|line| line.strip_prefix("data: ")).map(str::to_owned).collect()
}

/// A stream contains the same text as the complete answer.
#[tokio::test]
async fn a_stream_is_the_same_answer_in_pieces() {
    for (path, list) in [(CHAT, json!([user()])), (RESPONSES, json!([said()])), (ANTHROPIC, json!([user()]))]
    {
        let (whole, pieces) =
            (Upstream::start(Manner::default()).await, Upstream::start(Manner::default()).await);
        for _ in 0..9 {
            let mut body = with(path, list.clone());
            let (_, answer) = post(&whole, path, &body).await;
            if path == CHAT {
                body["stream_options"] = json!({ "include_usage": true });
            }
            let events = streamed(&pieces, path, body).await;
            let heard: Vec<Value> =
                events.iter().map(|event| serde_json::from_str(event).unwrap_or(Value::Null)).collect();
            let last = |kind: &str| heard.iter().rfind(|event| event["type"] == kind).unwrap().clone();
            let all = |at: &dyn Fn(&Value) -> Option<&str>| heard.iter().filter_map(at).collect::<String>();
            match path {
                CHAT => {
                    let message = &answer["choices"][0]["message"];
                    let words = all(&|event| event["choices"][0]["delta"]["content"].as_str());
                    assert_eq!(words, message["content"].as_str().unwrap_or_default());
                    for (at, call) in message["tool_calls"].as_array().into_iter().flatten().enumerate() {
                        let arguments = all(&|event| {
                            let call = &event["choices"][0]["delta"]["tool_calls"][0];
                            if call["index"] == at { call["function"]["arguments"].as_str() } else { None }
                        });
                        assert_eq!(arguments, call["function"]["arguments"].as_str().unwrap());
                    }
                    assert_eq!(heard[heard.len() - 2]["usage"], answer["usage"]);
                    assert_eq!(events.last().unwrap(), "[DONE]");
                }
                RESPONSES => assert_eq!(last("response.completed")["response"], answer),
                _ => {
                    let blocks = answer["content"].as_array().unwrap();
                    let words = all(&|event| event["delta"]["text"].as_str());
                    let text = blocks.iter().filter_map(|block| block["text"].as_str()).collect::<String>();
                    assert_eq!(words, text);
                    assert_eq!(
                        last("message_delta")["usage"]["output_tokens"],
                        answer["usage"]["output_tokens"]
                    );
                    last("message_stop");
                    last("ping");
                }
            }
        }
    }
}

#[tokio::test]
async fn the_upstream_can_be_told_to_fail() {
    let upstream = Upstream::start(Manner { key: Some("sk-1"), ..Manner::default() }).await;
    let (status, told) = post(&upstream, CHAT, &with(CHAT, json!([user()]))).await;
    assert_eq!((status, &told["error"]["code"]), (401, &json!("invalid_api_key")));
    let send = async |body: &Value| {
        let request = client().post(format!("{}/{CHAT}", upstream.url())).bearer_auth("sk-1");
        request.body(body.to_string()).send().await
    };
    let mut body = with(CHAT, json!([user()]));
    upstream
        .then(Behavior::Busy(7))
        .then(Behavior::Fails)
        .then(Behavior::Page(502))
        .then(Behavior::TooLong)
        .then(Behavior::Refuses);
    let answer = send(&body).await.unwrap();
    assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (429, &"7".parse().unwrap()));
    assert_eq!(send(&body).await.unwrap().status(), 500);
    let page = send(&body).await.unwrap();
    assert!(page.status() == 502 && page.headers()["content-type"] == "text/html");
    assert!(send(&body).await.unwrap().text().await.unwrap().contains("context_length_exceeded"));
    assert_eq!(send(&body).await.unwrap().status(), 400);
    assert_eq!((upstream.refused().len(), upstream.invalid().len()), (2, 1));
    body["stream"] = json!(true);
    upstream.then(Behavior::Breaks);
    assert!(send(&body).await.unwrap().text().await.is_err());
    assert!(send(&body).await.unwrap().text().await.unwrap().ends_with("data: [DONE]\n\n"));
    // The upstream notices a client that disconnects.
    upstream.then(Behavior::Stalls);
    drop(send(&body).await.unwrap());
    upstream.always(Behavior::Silent);
    assert!(tokio::time::timeout(std::time::Duration::from_millis(50), send(&body)).await.is_err());
    while upstream.in_progress() != (0, 2) {
        tokio::task::yield_now().await;
    }
    assert_eq!(upstream.last().unwrap().json(), body);
}

#[tokio::test]
async fn other_routes_echo_the_request() {
    let upstream = Upstream::start(Manner::default()).await;
    let url = |path: &str| format!("{}/{path}", upstream.url());
    let models = client().get(url("models")).send().await.unwrap().text().await.unwrap();
    assert!(models.contains("stand-in-mini"));
    let raw = [0_u8, 255, 13, 10, 7];
    let sent = client().post(url("files?x=1")).header("content-type", "image/png").body(raw.to_vec());
    let answer = sent.send().await.unwrap();
    assert_eq!(
        (&answer.headers()["content-type"], answer.status().as_u16()),
        (&"image/png".parse().unwrap(), 200)
    );
    assert_eq!(answer.bytes().await.unwrap()[..], raw);
    assert_eq!(
        (upstream.last().unwrap().path.as_str(), upstream.last().unwrap().route()),
        ("/v1/files?x=1", "/v1/files")
    );
    let gone = client().delete(url("files/f1")).send().await.unwrap().text().await.unwrap();
    assert_eq!(gone, r#"{"method":"DELETE","path":"/v1/files/f1"}"#);
}
