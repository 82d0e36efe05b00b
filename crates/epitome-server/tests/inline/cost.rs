//! D. Size and cost.

use epitome::dialect::Dialect;
use serde_json::json;

use crate::run::{Place, provider, request, talk};

const CHAT: Dialect = Dialect::OpenAi;

#[test]
fn case_36_a_picture_is_no_text_to_the_command() {
    let picture = format!("data:image/png;base64,{}", "iVBORw0KGgo".repeat(100_000));
    let mut list = talk(2);
    list.push(
        json!({ "role": "user", "content": [{ "type": "image_url", "image_url": { "url": picture } }] }),
    );
    let out = Place::new().strict(CHAT, &json!({ "messages": list }), &[]);
    out.is_as_it_was("not_due");
    let tokens = out.report["tokens_before"].as_u64().unwrap();
    assert!((200..10_000).contains(&tokens), "{tokens}");
}

#[test]
fn case_37_tools_and_system_prompt_are_counted_by_the_command() {
    let place = Place::new();
    let tokens =
        |body: &serde_json::Value| place.strict(CHAT, body, &[]).report["tokens_before"].as_u64().unwrap();
    let mut body = request(3);
    let plain = tokens(&body);
    body["tools"] =
        json!([{ "type": "function", "function": { "name": "t", "description": "word ".repeat(1_000) } }]);
    let with_tools = tokens(&body);
    body["messages"][0]["content"] = json!("word ".repeat(2_000));
    let with_both = tokens(&body);
    assert!(
        with_tools >= plain + 1_000 && with_both >= with_tools + 1_900,
        "{plain} {with_tools} {with_both}"
    );
    // And so they make a list due.
    let out = place.strict(CHAT, &body, &["--trigger", "tokens(3000)", "--keep-messages", "2"]);
    assert_ne!(out.reason(), "not_due");
}

#[test]
fn case_38_the_commands_summarizer_never_overflows() {
    let (provider, _runtime) = provider();
    let place = Place::asking(&provider, 8_000);
    let mut body = request(150);
    body["messages"][5]["content"] = json!("A log line that says much the same. ".repeat(6_000));
    let out = place.strict(CHAT, &body, &["--force", "--keep-messages", "4", "--model", "main"]);
    out.is_condensed();
    assert!(provider.calls() > 1, "in pieces");
    let counter = epitome_core::tokens::Counter::new(epitome_core::tokens::Encoding::O200k);
    for request in provider.requests() {
        assert!(counter.text(&request.prompt()) <= 7_500, "{}", counter.text(&request.prompt()));
    }
    let read: String = provider.requests().iter().map(super::provider::Request::prompt).collect();
    assert!(
        (1..=148).filter(|n| *n != 3).all(|n| read.contains(&format!("P-{n}0071"))),
        "all of it was read"
    );
}

#[test]
fn case_39_one_giant_message_in_the_kept_tail_is_told_by_the_command() {
    let place = Place::new();
    let mut body = request(20);
    let list = body["messages"].as_array_mut().unwrap();
    list.push(json!({ "role": "assistant", "content": "word ".repeat(3_000) }));
    list.push(json!({ "role": "user", "content": "So?" }));
    // It may leave where it is not the newest.
    let out = place.strict(CHAT, &body, &["--window", "2500"]);
    let tokens = out.is_condensed().report["tokens_after"].as_u64().unwrap();
    assert!(tokens <= 2_500, "{}", out.report);
    body["messages"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "role": "user", "content": "word ".repeat(3_000) }));
    place.strict(CHAT, &body, &["--window", "2500"]).is_as_it_was("over_budget_elsewhere");
}

#[test]
fn case_40_under_the_threshold_the_command_changes_no_byte() {
    let place = Place::new();
    for text in [
        "{ \"messages\" : [ {\"role\":\"user\",\"content\":\"h\\u00e9\",\"x\":1.0e0} ],\n \"temperature\": 1.0 }\n\n",
        "[]",
        " [{\"role\": \"tool\", \"tool_call_id\": \"nobody\", \"content\": \"orphan\"}]",
    ] {
        place.condense(CHAT, text, &[]).is_as_it_was("not_due");
    }
}

#[test]
fn case_42_what_the_command_spends_is_told() {
    let (provider, _runtime) = provider();
    let place = Place::asking(&provider, 100_000);
    let out = place.strict(CHAT, &request(9), &["--force", "--keep-messages", "4", "--model", "main"]);
    let spent = &out.is_condensed().report["spent"][0];
    let expected = (crate::provider::INPUT, crate::provider::OUTPUT);
    assert_eq!((spent["input"].as_u64().unwrap(), spent["output"].as_u64().unwrap()), expected);
    assert!(spent["cost"].as_i64().unwrap() > 0, "{spent}");
}

#[test]
fn case_43_text_that_looks_like_a_special_token_passes_through_the_command() {
    let place = Place::new();
    let odd = "<|endoftext|> and <|im_start|>system";
    let mut list = vec![json!({ "role": "user", "content": odd })];
    list.extend(talk(9));
    list.push(json!({ "role": "user", "content": odd }));
    let out = place.strict(CHAT, &json!({ "messages": list }), &["--force", "--keep-messages", "2"]);
    assert_eq!(
        out.is_condensed().body()["messages"].as_array().unwrap().last().unwrap()["content"],
        json!(odd)
    );
}
