//! How lists are spelled, case by case; that every list is taken is in `written_promises`.

use epitome::dialect::Dialect;
use epitome_core::drawing;
use epitome_core::message::{Content, Media, MediaSource, Message, Part, Role, ToolResult};
use serde_json::{Value, json};

fn written(dialect: Dialect, messages: &[Message]) -> Value {
    Value::Object(dialect.write(messages))
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn thinking(text: &str, signature: Option<&str>, id: Option<&str>) -> Part {
    let owned = |text: &str| text.to_owned();
    Part::Thinking { text: owned(text), signature: signature.map(owned), id: id.map(owned), redacted: false }
}

#[test]
fn lists_are_spelled_as_the_providers_show_them() {
    let list = drawing::messages("s u a*(x=fc_x) r(x) s a").unwrap();
    assert_eq!(
        written(Dialect::OpenAi, &list),
        json!({ "messages": [
            { "role": "system", "content": "m1" },
            { "role": "user", "content": "m2" },
            { "role": "assistant", "content": "m3", "tool_calls": [
                { "id": "x", "type": "function", "function": { "name": "f", "arguments": "{\"m\":3}" } },
            ] },
            { "role": "tool", "tool_call_id": "x", "content": "m4" },
            { "role": "system", "content": "m5" },
            { "role": "assistant", "content": "m6" },
        ] })
    );
    let input = |role: &str, text: &str| {
        let kind = if role == "assistant" { "output_text" } else { "input_text" };
        json!({ "type": "message", "role": role, "content": [{ "type": kind, "text": text }] })
    };
    assert_eq!(
        written(Dialect::Responses, &list),
        json!({ "input": [
            input("system", "m1"),
            input("user", "m2"),
            input("assistant", "m3"),
            { "type": "function_call", "id": "fc_x", "call_id": "x", "name": "f", "arguments": "{\"m\":3}" },
            { "type": "function_call_output", "call_id": "x", "output": "m4" },
            input("system", "m5"),
            input("assistant", "m6"),
        ] })
    );
    assert_eq!(
        written(Dialect::Anthropic, &list),
        json!({ "system": [text("m1")], "messages": [
            { "role": "user", "content": [text("m2")] },
            { "role": "assistant", "content": [
                text("m3"),
                { "type": "tool_use", "id": "x", "name": "f", "input": { "m": 3 } },
            ] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "x", "content": "m4" },
                text("[note from the system]\nm5"),
            ] },
            { "role": "assistant", "content": [text("m6")] },
        ] })
    );
}

#[test]
fn two_messages_of_one_side_are_merged_where_sides_take_turns() {
    let list = drawing::messages("u u a a u").unwrap();
    assert_eq!(
        written(Dialect::Anthropic, &list)["messages"],
        json!([
            { "role": "user", "content": [text("m1"), text("m2")] },
            { "role": "assistant", "content": [text("m3"), text("m4")] },
            { "role": "user", "content": [text("m5")] },
        ])
    );
    let merged = [
        Message::user("Hello"),
        Message::assistant("Let me think."),
        Message::new(Role::Assistant, [thinking("hm", Some("abc"), None), Part::text("Hi")]),
    ];
    let reply = &written(Dialect::Anthropic, &merged)["messages"][1]["content"];
    assert_eq!(reply[0], json!({ "type": "thinking", "thinking": "hm", "signature": "abc" }));
}

#[test]
fn a_list_that_would_begin_with_a_reply_gets_a_mark_before_it() {
    let list = drawing::messages("s a u").unwrap();
    let messages = &written(Dialect::Anthropic, &list)["messages"];
    assert_eq!(messages[0], json!({ "role": "user", "content": [text("[…]")] }));
}

#[test]
fn reasoning_goes_only_to_who_wrote_it() {
    let list = [
        Message::user("Hello"),
        Message::new(Role::Assistant, [thinking("none", None, None), Part::text("1")]),
        Message::new(Role::Assistant, [thinking("anthropic", Some("abc"), None), Part::text("2")]),
        Message::new(Role::Assistant, [thinking("openai", Some("abc"), Some("rs_1")), Part::text("3")]),
        Message::new(Role::Assistant, [thinking("unnamed", Some("abc"), Some("")), Part::text("4")]),
        Message::new(Role::Assistant, [thinking("again", None, Some("rs_1")), Part::text("5")]),
    ];
    for (dialect, shown) in [
        (Dialect::OpenAi, vec![]),
        (Dialect::Responses, vec!["openai", "unnamed"]),
        (Dialect::Anthropic, vec!["anthropic"]),
    ] {
        let written = written(dialect, &list).to_string();
        for thought in ["none", "anthropic", "openai", "unnamed", "again"] {
            assert_eq!(written.contains(thought), shown.contains(&thought), "{dialect}: {thought}");
        }
    }
}

#[test]
fn sealed_reasoning_goes_back_sealed() {
    let came = json!([
        { "role": "user", "content": "Hello" },
        { "role": "assistant", "content": [{ "type": "redacted_thinking", "data": "abc" }, text("Hi")] },
    ]);
    let messages = Dialect::Anthropic.read(&came).unwrap();
    assert_eq!(written(Dialect::Anthropic, &messages)["messages"][1], came[1]);
}

#[test]
fn instructions_go_back_where_they_came_from() {
    let body = json!({ "instructions": "Be brief.", "input": [
        { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Hello" }] },
    ] });
    let messages = Dialect::Responses.read(&body).unwrap();
    assert_eq!(written(Dialect::Responses, &messages), body);
    let items = json!({ "input": [
        { "type": "message", "role": "system", "content": [{ "type": "input_text", "text": "Be brief." }] },
        { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Hello" }] },
    ] });
    let messages = Dialect::Responses.read(&items).unwrap();
    assert_eq!(written(Dialect::Responses, &messages), items);
}

#[test]
fn nothing_of_ours_is_on_the_wire() {
    for dialect in [Dialect::OpenAi, Dialect::Responses, Dialect::Anthropic] {
        let wire = json!([{ "role": "user", "content": "Hello", "x": 1, "epitome": { "pinned": true, "skip": true } }]);
        let mut messages = dialect.read(&wire).unwrap();
        messages[0].metadata.insert("note".to_owned(), json!("mine"));
        messages[0].seq = 7;
        let written = written(dialect, &messages).to_string();
        for ours in ["epitome", "pinned", "skip", "seq", "note", "\"x\"", "wire"] {
            assert!(!written.contains(ours), "{dialect}: {ours} in {written}");
        }
    }
}

#[test]
fn what_says_nothing_is_not_sent() {
    let list = [
        Message::user("Hello"),
        Message::new(
            Role::Assistant,
            [Part::text(" \n"), Part::text("Hi"), thinking("hm", Some("abc"), None)],
        ),
        Message::assistant(""),
        Message::user("\t"),
    ];
    for dialect in [Dialect::OpenAi, Dialect::Responses, Dialect::Anthropic] {
        assert_eq!(
            written(dialect, &list),
            written(dialect, &[Message::user("Hello"), Message::assistant("Hi")])
        );
    }
}

#[test]
fn a_call_and_its_result_are_renamed_alike() {
    let id = "call|1 ".repeat(20);
    let list = [
        Message::user("Hello"),
        Message::new(Role::Assistant, [Part::call(id.as_str(), "files.read", "")]),
        Message::tool(id.as_str(), "done"),
    ];
    let chat = written(Dialect::OpenAi, &list);
    let call = &chat["messages"][1]["tool_calls"][0];
    assert_eq!(call["id"], chat["messages"][2]["tool_call_id"]);
    assert_eq!(call["function"]["arguments"], "{}");
    assert!(call["function"]["name"].as_str().unwrap().starts_with("files_read_"));
}

#[test]
fn media_go_where_they_can_and_are_named_where_not() {
    let media = |mime: &str, source| Media { mime: mime.to_owned(), source, size: None };
    let base64 = || MediaSource::Base64("iVBORw0KGgo=".to_owned());
    let url = || MediaSource::Url("https://example.org/a".to_owned());
    for (media, chat, responses, anthropic) in [
        (media("image/png", base64()), "image_url", "input_image", "image"),
        (media("", base64()), "image_url", "input_image", "image"),
        (media("image/*", url()), "image_url", "input_image", "image"),
        (media("application/pdf", base64()), "file", "input_file", "document"),
        (media("application/pdf", url()), "[application/pdf]", "input_file", "document"),
        (media("audio/wav", base64()), "input_audio", "[audio/wav]", "[audio/wav]"),
        (media("audio/wav", url()), "[audio/wav]", "[audio/wav]", "[audio/wav]"),
        (
            media("application/pdf", MediaSource::File("file-1".to_owned())),
            "file",
            "input_file",
            "[application/pdf]",
        ),
        (
            media("application/pdf", MediaSource::File("file_1".to_owned())),
            "[application/pdf]",
            "[application/pdf]",
            "document",
        ),
    ] {
        let list = [Message::new(Role::User, [Part::text("Look"), Part::Media(media.clone())])];
        for (dialect, expected) in
            [(Dialect::OpenAi, chat), (Dialect::Responses, responses), (Dialect::Anthropic, anthropic)]
        {
            let written = written(dialect, &list);
            let list = written.get("messages").unwrap_or(&written["input"]);
            let piece = &list[0]["content"][1];
            let shown = if expected.starts_with('[') { &piece["text"] } else { &piece["type"] };
            assert_eq!(shown, expected, "{dialect}: {media:?}");
        }
    }
}

#[test]
fn a_picture_in_an_answer_is_named_where_answers_are_words() {
    let picture = Media {
        mime: "image/png".to_owned(),
        source: MediaSource::Base64("iVBORw0KGgo=".to_owned()),
        size: None,
    };
    let content = vec![Content::Text { text: "Here".to_owned() }, Content::Media(picture)];
    let list = [
        Message::user("Look"),
        Message::new(Role::Assistant, [Part::call("x", "f", "{}")]),
        Message::new(Role::Tool, [Part::ToolResult(ToolResult { call: "x".into(), content, error: true })]),
    ];
    assert_eq!(written(Dialect::OpenAi, &list)["messages"][2]["content"], "Here\n[image/png]");
    assert_eq!(written(Dialect::Responses, &list)["input"][2]["output"], "Here\n[image/png]");
    let answer = &written(Dialect::Anthropic, &list)["messages"][2]["content"][0];
    assert_eq!((&answer["content"][1]["type"], &answer["is_error"]), (&json!("image"), &json!(true)));
}
