//! The upstream hears every kind of fault: else that it refuses nothing would say nothing.

use serde_json::{Value, json};

use crate::agent_loop::upstream::refuse::Refusal;
use crate::agent_loop::upstream::{Manner, Upstream};

const CHAT: &str = "chat/completions";
const RESPONSES: &str = "responses";
const ANTHROPIC: &str = "messages";

async fn post(upstream: &Upstream, path: &str, body: &Value) -> (u16, Value) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    let answer = http.post(format!("{}/{path}", upstream.url())).body(body.to_string()).send().await.unwrap();
    (answer.status().as_u16(), serde_json::from_str(&answer.text().await.unwrap()).unwrap())
}

/// A request with this list.
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
async fn every_kind_of_fault_is_refused() {
    let answer = json!({ "role": "tool", "tool_call_id": "x", "content": "done" });
    let asks = json!({ "type": "tool_use", "id": "x", "name": "f", "input": {} });
    let result = json!({ "type": "tool_result", "tool_use_id": "x", "content": "done" });
    let thinking = json!({ "type": "thinking", "thinking": "Hm.", "signature": "c2ln" });
    let later = json!({ "type": "tool_use", "id": "y", "name": "f", "input": {} });
    let call = json!({ "type": "function_call", "call_id": "x", "name": "f", "arguments": "{}" });
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
        assert_eq!(upstream.misshapen().len(), at + 1, "{fault} on {path}");
    }
    assert_eq!(upstream.repeated(), 0);
    post(&upstream, CHAT, &faults[0].2).await;
    assert_eq!(upstream.repeated(), 1, "the same again is noticed");
}

#[tokio::test]
async fn what_is_too_long_is_refused_in_each_providers_words() {
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
    assert!(upstream.misshapen().is_empty());
}

#[tokio::test]
async fn what_is_well_is_answered_and_counted_and_what_is_the_same_was_cached() {
    let upstream = Upstream::start(Manner::default()).await;
    let first = with(CHAT, json!([user()]));
    let (status, answer) = post(&upstream, CHAT, &first).await;
    assert_eq!((status, &answer["usage"]["prompt_tokens_details"]["cached_tokens"]), (200, &json!(0)));
    let (_, answer) = post(&upstream, CHAT, &first).await;
    let usage = &answer["usage"];
    assert!(usage["prompt_tokens"].as_u64().is_some_and(|tokens| tokens > 0), "{usage}");
    assert_eq!(usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]);
}
