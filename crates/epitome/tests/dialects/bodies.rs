//! Whole requests and bare lists, given back as they came but for their messages.

use epitome::dialect::{Body, Dialect, OwnFields};
use epitome_core::message::{Part, Role};
use epitome_core::tokens::Counter;
use epitome_core::view;
use serde_json::{Value, json};

const CHAT: &str = r#" {
  "model": "gpt-x", "seed": 123456789012345678901234567890, "temperature": 1.0, "top_p": 1e0,
  "messages": [
    {"role": "system", "content": "Be brief.", "cache_control": {"type": "ephemeral"}},
    {"role": "user", "content": [{"type": "text", "text": "L\u00e4uft \ud83d\ude00 it?", "x": 1e2}], "name": "ann"},
    {"role": "assistant", "content": "", "reasoning_content": "hm", "reasoning_details": [{"n": 0.10}], "tool_calls": [
      {"id": "c1", "type": "function", "index": 0, "function": {"name": "run", "arguments": "{\"n\": 1.0}"}}]},
    {"tool_call_id": "c1", "role": "tool", "content": [{"type": "text", "text": "fine"}], "x": -0},
    {"role": "assistant", "content": "It does.", "refusal": null, "annotations": []}
  ],
  "tools": [{"type": "function", "function": {"name": "run", "parameters": {"a": 1, "a": 2.0}}}],
  "max_completion_tokens": 512, "extra": {"z": 1, "a": [1.50]}
}
"#;

const RESPONSES: &str = r#"{"store": false, "input": [
    {"role": "user", "content": "Hello"},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc", "x": 1.0},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"n": 1e2}},
    {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "phase": "final",
     "content": [{"type": "output_text", "text": "Hi", "annotations": []}]},
    {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "patch", "input": "*** free text"},
    {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on."}]}
], "instructions": "Be \u0062rief.", "max_output_tokens": 99, "text": {"format": {"type": "text"}}, "model": "o"}"#;

const ANTHROPIC: &str = r#"{
  "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
  "max_tokens": 1024, "thinking": {"type": "enabled", "budget_tokens": 1.0e3},
  "messages": [
    {"role": "user", "content": "Look at both.\n"},
    {"role": "assistant", "content": [
      {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
      {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"q": 1.0}},
      {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []},
      {"type": "tool_use", "id": "t1", "name": "read", "input": {"n": 1e2}},
      {"type": "tool_use", "id": "t2", "name": "read", "input": {}}]},
    {"role": "user", "content": [
      {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "one"}]},
      {"type": "tool_result", "tool_use_id": "t2", "content": "two", "cache_control": {"type": "ephemeral"}},
      {"type": "text", "text": "And?"}]},
    {"role": "assistant", "content": "Both are fine. "},
    {"role": "user", "content": [{"type": "text", "text": "Thanks."}], "x": 1}
  ]}"#;

const ALL: [(Dialect, &str); 3] =
    [(Dialect::OPENAI, CHAT), (Dialect::RESPONSES, RESPONSES), (Dialect::ANTHROPIC, ANTHROPIC)];

fn read(text: &str) -> Body {
    Body::read(text, None).unwrap()
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_request_is_told_by_its_shape_and_given_back_byte_for_byte() {
    for (dialect, text) in ALL {
        let body = read(text);
        assert_eq!(body.dialect(), dialect);
        assert_eq!(body.text(), text);
        assert_eq!(body.with_messages(body.messages(), OwnFields::Keep), text);
        assert_eq!(body.with_messages(body.messages(), OwnFields::Strip), text);
        assert_eq!(body.without_own_fields(), text);
        let list = value(text);
        let list = list.get("messages").or(list.get("input")).unwrap().to_string();
        let bare = Body::read(&list, Some(dialect)).unwrap();
        assert_eq!(bare.with_messages(bare.messages(), OwnFields::Keep), list);
    }
}

#[test]
fn what_is_asked_besides_the_list_is_known() {
    let counter = Counter::custom("letters", |text| text.chars().count() as u64);
    assert_eq!(read(CHAT).model(), Some("gpt-x"));
    assert_eq!(
        (read(CHAT).max_output(), read(RESPONSES).max_output(), read(ANTHROPIC).max_output()),
        (Some(512), Some(99), Some(1024))
    );
    assert!(read(CHAT).extra_tokens(&counter) > 50 && read(ANTHROPIC).extra_tokens(&counter) == 0);
    assert_eq!(read(RESPONSES).remote_history(), None);
}

#[test]
fn a_mended_list_keeps_every_letter_of_what_was_right() {
    for (_, text) in ALL {
        let body = read(text);
        let repaired = view::repair(body.messages().to_vec());
        assert_eq!(value(&body.with_messages(&repaired, OwnFields::Strip)), value(text));
    }
}

#[test]
fn a_summary_takes_the_place_of_what_it_covers_and_nothing_else_changes() {
    for (dialect, text) in ALL {
        let body = read(text);
        let mut shown = body.messages().to_vec();
        shown.drain(1..shown.len() - 1);
        shown.insert(1, view::summary("They looked.", 4));
        let out = body.with_messages(&shown, OwnFields::Strip);
        let (before, after) = (value(text), value(&out));
        for (key, value) in before.as_object().unwrap() {
            if !matches!(key.as_str(), "messages" | "input") {
                assert_eq!(Some(value), after.get(key), "{dialect}: {key}");
            }
        }
        assert!(out.contains("covers=\\\"1-4\\\""), "{out}");
        let again = read(&out);
        assert!(again.messages().iter().any(|message| view::recognise(message).is_some()), "{out}");
    }
}

#[test]
fn a_pin_does_not_spread_to_what_it_is_merged_with() {
    let body = read(
        r#"{"system":"S","messages":[
        {"role":"user","content":"Rule.","epitome":{"pinned":true}},
        {"role":"assistant","content":"Ok."},{"role":"user","content":"Go."}]}"#,
    );
    let own = body.messages();
    let shown = [own[0].clone(), own[1].clone(), view::summary("Said ok.", 2), own[3].clone()];
    let out = body.with_messages(&shown, OwnFields::Keep);
    assert_eq!(value(&out)["messages"].as_array().unwrap().len(), 1, "{out}");
    let again = read(&out);
    let pins: Vec<bool> = again.messages().iter().map(|message| message.pinned).collect();
    assert_eq!(pins, [false, true, false, false], "{out}");
    assert_eq!(again.with_messages(again.messages(), OwnFields::Keep), out);
    assert!(
        !again.without_own_fields().contains("epitome")
            && !again.with_messages(&shown, OwnFields::Strip).contains("epitome")
    );
    assert_eq!(
        value(&again.without_own_fields()),
        value(&again.with_messages(again.messages(), OwnFields::Strip))
    );
    assert_eq!(again.list_positions([2, 4]), [1, 1]);
}

#[test]
fn a_summary_between_merged_words_is_taken_out_again_and_they_keep_their_order() {
    let body = read(
        r#"{"system":"S","messages":[{"role":"user","content":"First."},
        {"role":"assistant","content":"Ok."},{"role":"user","content":"Go."}]}"#,
    );
    let own = body.messages();
    let shown = [own[0].clone(), own[1].clone(), view::summary("Said ok.", 2), own[3].clone()];
    let again = read(&body.with_messages(&shown, OwnFields::Keep));
    assert_eq!(again.messages().len(), 4);
    for (message, shown) in again.messages().iter().zip(&shown) {
        assert_eq!((message.role, &message.parts), (shown.role, &shown.parts));
    }
}

#[test]
fn a_masked_answer_keeps_its_kind_and_its_strangers() {
    for (text, id, rest) in [
        (CHAT, "c1", json!({ "tool_call_id": "c1", "role": "tool", "content": "[masked]", "x": -0.0 })),
        (
            RESPONSES,
            "c1",
            json!({ "type": "custom_tool_call_output", "call_id": "c1", "output": "[masked]" }),
        ),
    ] {
        let body = read(text);
        let mut shown = body.messages().to_vec();
        let answer = shown.iter_mut().find(|message| message.role == Role::Tool).unwrap();
        answer.parts = vec![Part::result(id, "[masked]")];
        let out = value(&body.with_messages(&shown, OwnFields::Strip));
        let list = out.get("messages").or(out.get("input")).unwrap().as_array().unwrap();
        assert!(list.contains(&rest), "{out}");
    }
}

#[test]
fn a_call_that_is_renamed_keeps_what_its_server_put_there() {
    let call = |n: &str| {
        format!(
            r#"{{"role": "assistant", "reasoning": "hm", "content": [{{"type": "text", "text": "I look.", "cache_control": {{}}}}],
            "tool_calls": [{{"id": "call_0", "index": 0, "type": "function", "extra_content": {{"google": {{"thought_signature": "{n}"}}}},
            "function": {{"name": "f", "arguments": "{{}}"}}}}]}}, {{"role": "tool", "tool_call_id": "call_0", "content": "done"}}"#
        )
    };
    let body = read(&format!(r#"[{{"role": "user", "content": "Go."}}, {}, {}]"#, call("a"), call("b")));
    let out = value(&body.with_messages(&view::repair(body.messages().to_vec()), OwnFields::Strip));
    let mut expected = value(body.text());
    expected[3]["tool_calls"][0]["id"] = json!("call_0_2");
    expected[4]["tool_call_id"] = json!("call_0_2");
    assert_eq!(out, expected);
}

#[test]
fn what_nobody_here_knows_stays_beside_what_it_came_with() {
    let body = read(
        r#"{"input": [
        {"role": "user", "content": "Hello"},
        {"type": "mcp_approval_request", "id": "mcpr_1", "name": "f", "arguments": "{}"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": true}]}"#,
    );
    let repaired = view::repair(body.messages().to_vec());
    assert_eq!(repaired.len(), 1, "nothing was read of them");
    assert_eq!(body.with_messages(&repaired, OwnFields::Strip), body.text());
    let sealed = r#"{"input": [{"type": "compaction", "encrypted_content": "abc"}, {"role": "user", "content": "Go."}]}"#;
    assert_eq!(read(sealed).remote_history(), Some("compaction"));
}

#[test]
fn bad_input_is_told_in_one_line_that_names_the_place() {
    for (text, expected) in [
        ("", "is not valid JSON: EOF while parsing a value at line 1 column 0"),
        ("7", "is a number; it must be a request or a list of messages"),
        ("{}", "messages: is missing"),
        (r#"{"messages": 7}"#, "messages: is a number; it must be a list"),
        (r#"{"messages": [], "messages": []}"#, "messages: appears twice"),
        (r#"{"input": 7}"#, "input: is a number; it must be a string or a list"),
        (r#"[{"role": "user", "content": "secret"}, 7]"#, "messages[1]: is a number; it must be an object"),
        (r#"{"system": 7, "messages": []}"#, "system: is a number; it must be a string or a list"),
        (r#"{"input": [], "instructions": 7}"#, "instructions: is a number; it must be a string"),
        (
            r#"{"system":"","messages":[{"role":"user","content":[{"type":"text","text":"a","epitome":{"pinned":7}}]}]}"#,
            "messages[0].content[0].epitome.pinned: is a number; it must be true or false",
        ),
        (
            r#"{"system":"","messages":[{"role":"user","content":[{"type":"text","text":"a","epitome":{"pined":true}}]}]}"#,
            "messages[0].content[0].epitome: \"pined\" is unknown; did you mean `pinned`? allowed are pinned, skip",
        ),
    ] {
        assert_eq!(Body::read(text, None).unwrap_err().to_string(), expected, "{text}");
    }
    for text in [r#"[{"role": "user", "content": "secret}"#, r#"{"messages": [}"#, "[1] x"] {
        let error = Body::read(text, None).unwrap_err().to_string();
        assert!(!error.contains('\n') && !error.contains("secret"), "{error}");
    }
}

#[test]
fn a_string_of_input_stays_one_until_something_stands_beside_it() {
    let body = read(r#"{"input": "Hello", "model": "o"}"#);
    assert_eq!(body.with_messages(body.messages(), OwnFields::Strip), body.text());
    let shown = [view::summary("S", 1), body.messages()[0].clone()];
    let out = value(&body.with_messages(&shown, OwnFields::Strip));
    assert_eq!(out["input"].as_array().map(Vec::len), Some(2), "{out}");
    assert!(read(r#"{"messages": []}"#).messages().is_empty());
}

#[test]
fn words_alone_are_anthropics_where_the_model_or_a_field_says_so() {
    let words =
        r#""messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]"#;
    for (fields, dialect) in [
        (r#""model": "claude-sonnet-4-5", "max_tokens": 100"#, Dialect::ANTHROPIC),
        (r#""model": "m", "max_tokens": 100, "stop_sequences": ["x"]"#, Dialect::ANTHROPIC),
        (r#""model": "m", "max_tokens": 100"#, Dialect::OPENAI),
        (r#""model": "anthropic/claude-sonnet-4-5""#, Dialect::OPENAI),
    ] {
        let body = Body::read(&format!("{{{fields}, {words}}}"), None).unwrap();
        assert_eq!(body.dialect(), dialect, "{fields}");
    }
    let system =
        r#"{"model": "claude-sonnet-4-5", "messages": [{"role": "system", "content": "Be brief."}]}"#;
    assert_eq!(Body::read(system, None).unwrap().dialect(), Dialect::OPENAI, "behind a gateway");
}

#[test]
fn outputs_of_the_providers_own_tools_stay_with_their_calls() {
    let shell =
        json!({ "type": "shell_call", "id": "sc", "call_id": "s1", "action": { "commands": ["ls"] } });
    for (call, output) in [
        (
            json!({ "type": "local_shell_call", "id": "l", "call_id": "lc", "action": { "type": "exec", "command": ["ls"] } }),
            json!({ "type": "local_shell_call_output", "id": "lc", "output": "README.md" }),
        ),
        (
            json!({ "type": "tool_search_call", "id": "ts", "call_id": "tsc" }),
            json!({ "type": "tool_search_output", "call_id": "tsc", "tools": [{ "name": "t" }] }),
        ),
        (
            shell.clone(),
            json!({ "type": "shell_call_output", "call_id": "s1", "output": [{ "stdout": "README.md", "stderr": "" }] }),
        ),
    ] {
        let input = json!({ "input": [{ "role": "user", "content": "Go." }, call, output, { "role": "user", "content": "Next." }] });
        let body = Body::read(&input.to_string(), None).unwrap();
        let shown = epitome::rules::view::repair(body.messages().iter().skip(1).cloned());
        let out: Value = serde_json::from_str(&body.with_messages(&shown, OwnFields::Keep)).unwrap();
        assert_eq!(out["input"].as_array().unwrap()[..2], [call, output]);
    }
    // Nobody answered: the mark has the form that such an answer has.
    let input = json!({ "input": [shell, { "role": "user", "content": "Next." }] });
    let body = Body::read(&input.to_string(), None).unwrap();
    let shown = epitome::rules::view::repair(body.messages().iter().cloned());
    let out: Value = serde_json::from_str(&body.with_messages(&shown, OwnFields::Keep)).unwrap();
    assert_eq!(out["input"][1]["output"][0]["stdout"], "[no result recorded]", "{out}");
}

/// Results that are still to come are waited for: what we cannot read does not end that.
#[test]
fn what_stands_beside_results_leaves_while_others_are_to_come() {
    let call = |id: &str| json!({ "type": "tool_use", "id": id, "name": "f", "input": {} });
    let list = |last: Value| json!([{ "role": "user", "content": "Go." }, { "role": "assistant", "content": [call("a"), call("b")] }, last]);
    let result = json!({ "type": "tool_result", "tool_use_id": "a", "content": "1" });
    let odd = json!({ "type": "search_result", "content": [] });
    for (last, sent) in [
        (json!([result, odd]), json!([result])),
        (json!([odd, result]), json!([result])),
        (json!([result]), json!([result])),
    ] {
        let text = list(json!({ "role": "user", "content": last })).to_string();
        let body = Body::read(&text, Some(Dialect::ANTHROPIC)).unwrap();
        let shown = epitome::rules::view::repair(body.messages().iter().cloned());
        let out: Value = serde_json::from_str(&body.with_messages(&shown, OwnFields::Strip)).unwrap();
        assert_eq!(out[2]["content"], sent, "{out}");
    }
}
