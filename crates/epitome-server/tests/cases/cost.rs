//! D. Size and cost. Each case runs on the `crate::run::Runner` of the including test.

use epitome::dialect::Dialect;
use serde_json::json;

use crate::cases::out::{request, talk};
use crate::run::Runner;

const CHAT: Dialect = Dialect::OPENAI;

pub(crate) fn a_picture_is_no_text() {
    let picture = format!("data:image/png;base64,{}", "iVBORw0KGgo".repeat(100_000));
    let mut list = talk(2);
    list.push(
        json!({ "role": "user", "content": [{ "type": "image_url", "image_url": { "url": picture } }] }),
    );
    let out = Runner::new().strict(CHAT, &json!({ "messages": list }), &[]);
    out.is_as_it_was("not_due");
    let tokens = out.report["tokens_before"].as_u64().unwrap();
    assert!((200..10_000).contains(&tokens), "{tokens}");
}

pub(crate) fn tools_and_system_prompt_are_counted() {
    let runner = Runner::new();
    let tokens =
        |body: &serde_json::Value| runner.strict(CHAT, body, &[]).report["tokens_before"].as_u64().unwrap();
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
    let out = runner.strict(CHAT, &body, &["--trigger", "tokens(3000)", "--keep-messages", "2"]);
    assert_ne!(out.reason(), "not_due");
}

pub(crate) fn one_giant_message_in_the_kept_tail_is_told() {
    let runner = Runner::new();
    let mut body = request(20);
    let list = body["messages"].as_array_mut().unwrap();
    list.push(json!({ "role": "assistant", "content": "word ".repeat(3_000) }));
    list.push(json!({ "role": "user", "content": "So?" }));
    // It may leave where it is not the newest.
    let out = runner.strict(CHAT, &body, &["--window", "2500"]);
    let tokens = out.is_condensed().report["tokens_after"].as_u64().unwrap();
    assert!(tokens <= 2_500, "{}", out.report);
    body["messages"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "role": "user", "content": "word ".repeat(3_000) }));
    let out = Runner::new().strict(CHAT, &body, &["--window", "2500"]);
    out.is_as_it_was("over_budget_elsewhere");
}

pub(crate) fn under_the_threshold_no_byte_changes() {
    let runner = Runner::new();
    for text in [
        "{ \"messages\" : [ {\"role\":\"user\",\"content\":\"h\\u00e9\",\"x\":1.0e0} ],\n \"temperature\": 1.0 }\n\n",
        "{\"messages\":[]}",
        " {\"messages\": [{\"role\": \"tool\", \"tool_call_id\": \"nobody\", \"content\": \"orphan\"}]}",
    ] {
        runner.condense(CHAT, text, &[]).is_as_it_was("not_due");
    }
}

pub(crate) fn text_that_looks_like_a_special_token_passes() {
    let runner = Runner::new();
    let odd = "<|endoftext|> and <|im_start|>system";
    let mut list = vec![json!({ "role": "user", "content": odd })];
    list.extend(talk(9));
    list.push(json!({ "role": "user", "content": odd }));
    let out = runner.strict(CHAT, &json!({ "messages": list }), &["--force", "--keep-messages", "2"]);
    assert_eq!(
        out.is_condensed().body()["messages"].as_array().unwrap().last().unwrap()["content"],
        json!(odd)
    );
}
