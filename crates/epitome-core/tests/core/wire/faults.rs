//! Plants a fault for every rule of every wire format, so that every complaint is tested.

use serde_json::{Value, json};

use super::{anthropic, chat, responses};

/// Checks that each fault produces its complaint, and that each rule is violated by at least one fault.
#[track_caller]
fn all_heard(rules: &[&str], judge: impl Fn(&Value) -> Vec<String>, faults: &[(&str, Value)]) {
    for (words, body) in faults {
        let heard = judge(body);
        assert!(heard.iter().any(|complaint| complaint.contains(words)), "{words}: heard only {heard:?}");
    }
    for rule in rules {
        assert!(faults.iter().any(|(words, _)| words == rule), "no fault planted for: {rule}");
    }
}

fn user() -> Value {
    json!({ "role": "user", "content": "Hello" })
}

/// A chat body: the user's hello, then these.
fn chat_of(rest: &[Value]) -> Value {
    let messages = [&[user()], rest].concat();
    json!({ "messages": messages })
}

fn calls(ids: &[&str]) -> Value {
    let call =
        |id: &&str| json!({ "id": id, "type": "function", "function": { "name": "f", "arguments": "{}" } });
    json!({ "role": "assistant", "content": null, "tool_calls": ids.iter().map(call).collect::<Vec<_>>() })
}

fn tool(id: &str) -> Value {
    json!({ "role": "tool", "tool_call_id": id, "content": "done" })
}

/// A body with one field of its last message changed, by its path.
fn with(mut body: Value, path: &str, value: Value) -> Value {
    let list = if body["messages"].is_array() { "messages" } else { "input" };
    let last = body[list].as_array_mut().unwrap().last_mut().unwrap();
    let (parent, field) = path.rsplit_once('/').unwrap();
    last.pointer_mut(parent).unwrap()[field] = value;
    body
}

#[test]
fn chat_hears_every_fault() {
    let function = |field: &str, value: &str| {
        with(chat_of(&[calls(&["x"])]), &format!("/tool_calls/0/function/{field}"), json!(value))
    };
    let faults = [
        ("messages must be a list that is not empty", json!({})),
        ("messages must be a list that is not empty", json!({ "messages": [] })),
        ("messages must be a list that is not empty", json!({ "messages": "Hello" })),
        ("a message must be an object", chat_of(&[json!("Hello")])),
        ("unknown role", chat_of(&[json!({ "role": "peer", "content": "Hello" })])),
        ("unknown field", with(chat_of(&[user()]), "/epitome", json!({ "pinned": true }))),
        ("unknown field", with(chat_of(&[tool("x")]), "/name", json!("f"))),
        ("unknown field", with(chat_of(&[calls(&["x"])]), "/tool_calls/0/item_id", json!("fc_1"))),
        (
            "unknown kind of content",
            chat_of(&[json!({ "role": "user", "content": [{ "type": "image", "source": {} }] })]),
        ),
        (
            "unknown kind of content",
            chat_of(&[json!({ "role": "assistant", "content": [{ "type": "image_url", "image_url": {} }] })]),
        ),
        ("content is empty or blank", with(chat_of(&[user()]), "/content", json!(" \n"))),
        ("content is empty or blank", with(chat_of(&[user()]), "/content", json!([]))),
        ("content is empty or blank", with(chat_of(&[user()]), "/content", Value::Null)),
        (
            "content is empty or blank",
            chat_of(&[json!({ "role": "user", "content": [{ "type": "text", "text": "" }] })]),
        ),
        ("content is empty or blank", with(chat_of(&[calls(&["x"]), tool("x")]), "/content", Value::Null)),
        ("content may be null only with tool_calls", chat_of(&[json!({ "role": "assistant" })])),
        ("no user message", json!({ "messages": [{ "role": "system", "content": "Be brief." }] })),
        ("name has letters that are not allowed", with(chat_of(&[user()]), "/name", json!("Ann Lee"))),
        ("tool_calls must not be empty", with(chat_of(&[calls(&[])]), "/content", json!("Hm"))),
        ("a call is not a function", with(chat_of(&[calls(&["x"])]), "/tool_calls/0/type", json!("custom"))),
        ("id is longer than 40", chat_of(&[calls(&[&"x".repeat(41)])])),
        ("id is used twice", chat_of(&[calls(&["x"]), tool("x"), calls(&["x"]), tool("x")])),
        ("id is used twice", chat_of(&[calls(&["x", "x"]), tool("x")])),
        ("function name has letters that are not allowed", function("name", "files.read")),
        ("arguments are not a JSON object", function("arguments", "{\"path\": \"a")),
        ("arguments are not a JSON object", function("arguments", "[1]")),
        ("arguments are not a JSON object", function("arguments", "")),
        ("no such call in the reply directly before", chat_of(&[tool("x")])),
        ("no such call in the reply directly before", chat_of(&[calls(&["x"]), tool("y")])),
        ("no such call in the reply directly before", chat_of(&[calls(&["x"]), user(), tool("x")])),
        ("is answered twice", chat_of(&[calls(&["x"]), tool("x"), tool("x")])),
        ("no answer before the next message", chat_of(&[calls(&["x", "y"]), tool("y"), user()])),
    ];
    all_heard(chat::RULES, chat::complaints, &faults);
    let late = chat_of(&[json!({ "role": "developer", "content": "Be brief." })]);
    assert_eq!(chat::system_not_first(&late), ["messages[1]: system is not first"]);
    assert!(chat::complaints(&late).is_empty(), "the provider itself takes it");
}

fn input_of(rest: &[Value]) -> Value {
    let hello =
        json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Hello" }] });
    let input = [&[hello], rest].concat();
    json!({ "input": input })
}

fn call_item(id: &str) -> Value {
    json!({ "type": "function_call", "call_id": id, "id": format!("fc_{id}"), "name": "f", "arguments": "{}" })
}

fn output(id: &str) -> Value {
    json!({ "type": "function_call_output", "call_id": id, "output": "done" })
}

fn said() -> Value {
    json!({ "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "Hi" }] })
}

fn reasoning() -> Value {
    json!({ "type": "reasoning", "id": "rs_1", "summary": [] })
}

#[test]
fn responses_hear_every_fault() {
    let asks = |field: &str, value: Value| with(input_of(&[call_item("x")]), &format!("/{field}"), value);
    let says = |field: &str, value: Value| with(input_of(&[said()]), &format!("/{field}"), value);
    let faults = [
        ("input must be a list that is not empty", json!({ "input": [] })),
        ("unknown item", input_of(&[json!({ "type": "function_result" })])),
        ("unknown item", input_of(&[json!("Hello")])),
        ("unknown role", says("role", json!("tool"))),
        ("unknown field", says("name", json!("ann"))),
        ("unknown field", says("content/0/pinned", json!(true))),
        ("unknown kind of content", says("content/0/type", json!("input_text"))),
        ("content is empty or blank", says("content/0/text", json!(" "))),
        ("content is empty or blank", says("content", json!([]))),
        ("no user message", json!({ "input": [said()] })),
        ("call_id is longer than 64", asks("call_id", json!("x".repeat(65)))),
        ("call_id is used twice", input_of(&[call_item("x"), output("x"), call_item("x")])),
        ("item id is used twice", with(input_of(&[call_item("x"), call_item("y")]), "/id", json!("fc_x"))),
        ("item id must begin with", asks("id", json!("call_1"))),
        ("function name has letters that are not allowed", asks("name", json!("files.read"))),
        ("arguments are not a JSON object", asks("arguments", json!({}))),
        ("output is not text", with(input_of(&[call_item("x"), output("x")]), "/output", Value::Null)),
        ("no function_call before this output", input_of(&[output("x"), call_item("x")])),
        // A pair must not be found by the call's other id.
        ("no function_call before this output", input_of(&[call_item("x"), output("fc_x")])),
        ("has a second output", input_of(&[call_item("x"), output("x"), output("x")])),
        (
            "no output for this function_call",
            input_of(&[call_item("x"), call_item("y"), output("y"), said()]),
        ),
        (
            "no output for this function_call",
            with(input_of(&[call_item("x"), said()]), "/role", json!("user")),
        ),
        ("reasoning without its following item", input_of(&[reasoning()])),
        ("reasoning without its following item", input_of(&[call_item("x"), reasoning(), output("x")])),
    ];
    all_heard(responses::RULES, responses::complaints, &faults);
}

/// An Anthropic body: the user's hello, then these lists of blocks, in turns.
fn turns_of(rest: &[Value]) -> Value {
    let role = |at: usize| if at.is_multiple_of(2) { "assistant" } else { "user" };
    let turns = rest.iter().enumerate().map(|(at, blocks)| json!({ "role": role(at), "content": blocks }));
    let messages: Vec<Value> = std::iter::once(user()).chain(turns).collect();
    json!({ "messages": messages })
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn tool_use(id: &str) -> Value {
    json!({ "type": "tool_use", "id": id, "name": "f", "input": {} })
}

fn result(id: &str) -> Value {
    json!({ "type": "tool_result", "tool_use_id": id, "content": [text("done")] })
}

fn thinking() -> Value {
    json!({ "type": "thinking", "thinking": "Hm.", "signature": "c2ln" })
}

fn marked(mut block: Value, ttl: Option<&str>) -> Value {
    block["cache_control"] =
        ttl.map_or(json!({ "type": "ephemeral" }), |ttl| json!({ "type": "ephemeral", "ttl": ttl }));
    block
}

/// A mark on a tool, in the system prompt, inside a result, on that result, and on the request.
fn five_over_all() -> Value {
    let mut body = turns_of(&[json!([tool_use("x")]), json!([marked(result("x"), None)])]);
    body["messages"][2]["content"][0]["content"] = json!([marked(text("Hi"), None)]);
    body["tools"] = json!([marked(json!({ "name": "f" }), None)]);
    body["system"] = json!([marked(text("Hi"), None)]);
    marked(body, None)
}

#[test]
fn anthropic_hears_every_fault() {
    let reply = |blocks: Value| turns_of(&[blocks]);
    let asks = |field: &str, value: Value| {
        with(reply(json!([tool_use("x")])), &format!("/content/0/{field}"), value)
    };
    let second = |role: &str| json!({ "messages": [user(), { "role": role, "content": "Hello" }] });
    let x = json!([tool_use("x")]);
    let faults = [
        ("messages must be a list that is not empty", json!({ "system": "Be brief.", "messages": [] })),
        ("system must be text", json!({ "system": [text(" ")], "messages": [user()] })),
        ("system must be text", json!({ "system": { "role": "system" }, "messages": [user()] })),
        (
            "the first message must be from the user",
            json!({ "messages": [{ "role": "assistant", "content": "Hi" }] }),
        ),
        ("roles must alternate", second("user")),
        ("unknown role", second("tool")),
        ("no system role inside messages", second("system")),
        ("unknown field", with(second("assistant"), "/name", json!("ann"))),
        ("unknown field", asks("cached", json!(true))),
        ("unknown block", reply(json!([{ "type": "image_url" }]))),
        ("unknown block", reply(json!([result("x")]))),
        ("unknown block", reply(json!([{ "type": "image", "source": {} }]))),
        ("unknown block", turns_of(&[x.clone(), json!([tool_use("y")])])),
        ("unknown block", turns_of(&[x.clone(), json!([thinking(), text("Hi")])])),
        ("content is empty", reply(json!([]))),
        ("text block is blank", reply(json!([text("\n")]))),
        ("text block is blank", reply(json!(""))),
        (
            "text block is blank",
            with(turns_of(&[x.clone(), json!([result("x")])]), "/content/0/content", json!([text(" ")])),
        ),
        ("id has letters that are not allowed", asks("id", json!("call|1"))),
        ("id is used twice", turns_of(&[x.clone(), json!([result("x")]), x.clone()])),
        ("tool name has letters that are not allowed", asks("name", json!("files.read"))),
        ("input is not an object", asks("input", json!("{}"))),
        ("no tool_result right after", turns_of(&[x.clone(), json!([text("Stop")])])),
        ("no tool_result right after", turns_of(&[x.clone(), json!([text("Wait")]), json!([text("Hm")])])),
        (
            "no tool_result right after",
            turns_of(&[json!([tool_use("x"), tool_use("y")]), json!([result("x")]), json!([text("Hm")])]),
        ),
        (
            "tool_result without its tool_use right before",
            json!({ "messages": [{ "role": "user", "content": [result("x")] }] }),
        ),
        (
            "tool_result without its tool_use right before",
            turns_of(&[x.clone(), json!([result("x")]), json!([text("Hm")]), json!([result("x")])]),
        ),
        ("tool_use has a second tool_result", turns_of(&[x.clone(), json!([result("x"), result("x")])])),
        ("tool_result must come first", turns_of(&[x.clone(), json!([text("Here"), result("x")])])),
        (
            "thinking without a signature",
            reply(json!([{ "type": "thinking", "thinking": "Hm." }, text("Hi")])),
        ),
        ("thinking must come first", reply(json!([text("Hi"), thinking(), tool_use("x")]))),
        ("thinking must not be last", reply(json!([thinking()]))),
        (
            "thinking must not be last",
            reply(json!([thinking(), { "type": "redacted_thinking", "data": "x" }])),
        ),
        (
            "a turn must begin with its thinking",
            turns_of(&[x.clone(), json!([result("x")]), json!([thinking(), tool_use("y")])]),
        ),
        ("final text ends with whitespace", reply(json!("Once upon a time "))),
        ("more than four cache marks", reply(json!(vec![marked(text("Hi"), None); 5]))),
        ("more than four cache marks", five_over_all()),
        ("a cache mark is not allowed in this block", reply(json!([marked(thinking(), None), text("Hi")]))),
        ("a cache mark is not allowed in this block", reply(json!([marked(text(""), None)]))),
        (
            "a long cache mark after a short cache mark",
            json!({ "system": [marked(text("Hi"), None)], "messages": [{ "role": "user",
                "content": [marked(text("Hi"), Some("1h"))] }] }),
        ),
    ];
    let judge = |body: &Value| {
        [anthropic::complaints(body), anthropic::late_thinking(body), anthropic::cache_marks(body)].concat()
    };
    all_heard(anthropic::RULES, judge, &faults);
}
