//! How lists are spelled, case by case; that every list is taken is in `written_promises`.

use epitome::dialect::Dialect;
use epitome_core::message::{Content, Media, MediaSource, Message, Part, Role, ToolResult};
use epitome_testkit::drawing;
use serde_json::{Value, json};

use crate::judges;

fn written(dialect: Dialect, messages: &[Message]) -> Value {
    Value::Object(dialect.write(messages))
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn thought(text: &str, signature: &str) -> Value {
    json!({ "type": "thinking", "thinking": text, "signature": signature })
}

fn picture(mime: &str) -> Media {
    Media { mime: mime.to_owned(), source: MediaSource::Base64("iVBORw0KGgo=".to_owned()), size: None }
}

/// A tool was asked, and failed with this.
fn failed(content: Vec<Content>) -> Vec<Message> {
    vec![
        Message::user("Look"),
        Message::new(Role::Assistant, [Part::call("x", "f", "{}")]),
        Message::new(Role::Tool, [Part::ToolResult(ToolResult { call: "x".into(), content, error: true })]),
    ]
}

fn thinking(text: &str, signature: Option<&str>, id: Option<&str>) -> Part {
    let owned = |text: &str| text.to_owned();
    Part::Thinking { text: owned(text), signature: signature.map(owned), id: id.map(owned), redacted: false }
}

#[test]
fn lists_are_spelled_as_the_providers_show_them() {
    let list = drawing::messages("s u a*(x=fc_x) r(x) s a").unwrap();
    assert_eq!(
        written(Dialect::OPENAI, &list),
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
        written(Dialect::RESPONSES, &list),
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
        written(Dialect::ANTHROPIC, &list),
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
        written(Dialect::ANTHROPIC, &list)["messages"],
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
    let reply = &written(Dialect::ANTHROPIC, &merged)["messages"][1]["content"];
    assert_eq!(
        reply,
        &json!([thought("hm", "abc"), text("Let me think."), text("Hi")]),
        "a reply that reasons begins so"
    );
    let both = [
        Message::user("Hello"),
        Message::new(Role::Assistant, [thinking("1", Some("a"), None), Part::text("A")]),
        Message::new(
            Role::Assistant,
            [
                thinking("2", Some("b"), None),
                Part::text("B"),
                thinking("3", Some("c"), None),
                Part::text("C"),
            ],
        ),
    ];
    let reply = &written(Dialect::ANTHROPIC, &both)["messages"][1]["content"];
    let expected = [thought("1", "a"), thought("2", "b"), text("A"), text("B"), thought("3", "c"), text("C")];
    assert_eq!(reply, &json!(expected), "what came between words stays there");
}

#[test]
fn reasoning_between_words_stays_where_it_was() {
    // "Blocks of reasoning cannot be modified", their order included.
    let came = json!({ "messages": [
        { "role": "user", "content": [text("Find it.")] },
        { "role": "assistant", "content": [
            thought("First.", "c2ln"),
            text("I look."),
            thought("Then.", "c2lo"),
            { "type": "tool_use", "id": "t1", "name": "find", "input": {} },
        ] },
        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t1", "content": "one" }] },
        { "role": "assistant", "content": [text("Well."), thought("Or not.", "c2lp"), text("There.")] },
    ] });
    let messages = Dialect::ANTHROPIC.read(&came).unwrap();
    assert_eq!(written(Dialect::ANTHROPIC, &messages), came);
}

#[test]
fn reasoning_around_blocks_that_are_not_sent_is_not_sent() {
    let searched = json!({ "role": "assistant", "content": [
        thought("First.", "c2ln"),
        { "type": "server_tool_use", "id": "s1", "name": "web_search", "input": {} },
        { "type": "web_search_tool_result", "tool_use_id": "s1", "content": [] },
        thought("Then.", "c2lo"),
        text("Found."),
    ] });
    let marked = json!({ "role": "assistant", "content": [
        thought("First.", "c2ln"),
        { "type": "text", "text": "Found.", "cache_control": { "type": "ephemeral" } },
    ] });
    for (reply, expected) in
        [(searched, json!([text("Found.")])), (marked, json!([thought("First.", "c2ln"), text("Found.")]))]
    {
        let came = json!([{ "role": "user", "content": "Find it." }, reply]);
        let messages = Dialect::ANTHROPIC.read(&came).unwrap();
        assert_eq!(written(Dialect::ANTHROPIC, &messages)["messages"][1]["content"], expected);
        assert_eq!(json!(Dialect::ANTHROPIC.restore(&messages)), came);
    }
}

#[test]
fn a_turn_that_lost_reasoning_has_none_from_there_on() {
    let call = |id: &str| json!({ "type": "tool_use", "id": id, "name": "f", "input": {} });
    let result =
        |id: &str| json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": id }] });
    let came = json!([
        { "role": "user", "content": "Find it." },
        { "role": "assistant", "content": [thought("1", "a"), { "type": "server_tool_use" }, call("x")] },
        result("x"),
        { "role": "assistant", "content": [thought("2", "b"), call("y")] },
        result("y"),
        { "role": "assistant", "content": [thought("3", "c"), text("There.")] },
        { "role": "user", "content": "And now?" },
        { "role": "assistant", "content": [thought("4", "d"), text("Here.")] },
    ]);
    let messages = Dialect::ANTHROPIC.read(&came).unwrap();
    let written = written(Dialect::ANTHROPIC, &messages);
    let thoughts: Vec<&str> = ["1", "2", "3", "4"]
        .into_iter()
        .filter(|text| written.to_string().contains(&format!("\"thinking\":\"{text}\"")))
        .collect();
    assert_eq!(thoughts, ["4"], "the next turn begins anew");
    assert_eq!(judges::anthropic::late_thinking(&written), Vec::<String>::new());
}

#[test]
fn a_list_that_would_begin_with_a_reply_gets_a_mark_before_it() {
    let list = drawing::messages("s a u").unwrap();
    let messages = &written(Dialect::ANTHROPIC, &list)["messages"];
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
        (Dialect::OPENAI, vec![]),
        (Dialect::RESPONSES, vec!["openai", "unnamed"]),
        (Dialect::ANTHROPIC, vec!["anthropic"]),
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
    let messages = Dialect::ANTHROPIC.read(&came).unwrap();
    assert_eq!(written(Dialect::ANTHROPIC, &messages)["messages"][1], came[1]);
}

#[test]
fn instructions_go_back_where_they_came_from() {
    let body = json!({ "instructions": "Be brief.", "input": [
        { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Hello" }] },
    ] });
    let messages = Dialect::RESPONSES.read(&body).unwrap();
    assert_eq!(written(Dialect::RESPONSES, &messages), body);
    let items = json!({ "input": [
        { "type": "message", "role": "system", "content": [{ "type": "input_text", "text": "Be brief." }] },
        { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Hello" }] },
    ] });
    let messages = Dialect::RESPONSES.read(&items).unwrap();
    assert_eq!(written(Dialect::RESPONSES, &messages), items);
}

#[test]
fn nothing_of_ours_is_on_the_wire() {
    for dialect in [Dialect::OPENAI, Dialect::RESPONSES, Dialect::ANTHROPIC] {
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
            [
                Part::text(" \n"),
                Part::text("Hi"),
                thinking("hm", Some("abc"), None),
                thinking("and", Some("abd"), None),
                thinking("so", Some("abe"), Some("rs_1")),
                thinking("on", Some("abf"), Some("rs_2")),
            ],
        ),
        Message::assistant(""),
        Message::user("\t"),
    ];
    for dialect in [Dialect::OPENAI, Dialect::RESPONSES, Dialect::ANTHROPIC] {
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
    let chat = written(Dialect::OPENAI, &list);
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
            [(Dialect::OPENAI, chat), (Dialect::RESPONSES, responses), (Dialect::ANTHROPIC, anthropic)]
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
    let content = vec![Content::Text { text: "Here".to_owned() }, Content::Media(picture("image/png"))];
    let mut list = failed(content);
    assert_eq!(written(Dialect::OPENAI, &list)["messages"][2]["content"], "Here\n[image/png]");
    assert_eq!(written(Dialect::RESPONSES, &list)["input"][2]["output"], "Here\n[image/png]");
    // "all content must be type `text` if `is_error` is true"
    assert_eq!(
        written(Dialect::ANTHROPIC, &list)["messages"][2]["content"][0],
        json!({ "type": "tool_result", "tool_use_id": "x", "content": "Here\n[image/png]", "is_error": true })
    );
    if let Some(Part::ToolResult(result)) = list[2].parts.first_mut() {
        result.error = false;
    }
    let answer = &written(Dialect::ANTHROPIC, &list)["messages"][2]["content"][0];
    assert_eq!((&answer["content"][1]["type"], answer.get("is_error")), (&json!("image"), None));
}

#[test]
fn a_tool_that_failed_without_a_word_is_given_one() {
    // "content cannot be empty if `is_error` is true"; and who knows no such flag would take it for success.
    for content in [vec![], vec![Content::Text { text: " \n".to_owned() }]] {
        let list = failed(content);
        assert_eq!(written(Dialect::OPENAI, &list)["messages"][2]["content"], "[error]");
        assert_eq!(written(Dialect::RESPONSES, &list)["input"][2]["output"], "[error]");
        let answer = &written(Dialect::ANTHROPIC, &list)["messages"][2]["content"][0];
        assert_eq!((&answer["content"], &answer["is_error"]), (&json!("[error]"), &json!(true)));
    }
    let list = failed(vec![Content::Text { text: "No such file.".to_owned() }]);
    assert_eq!(written(Dialect::OPENAI, &list)["messages"][2]["content"], "No such file.", "as it was said");
}

#[test]
fn a_jpg_is_a_jpeg_and_parameters_are_no_part_of_a_type() {
    for (told, sent) in [
        ("image/jpg", "image/jpeg"),
        ("image/pjpeg", "image/jpeg"),
        ("IMAGE/PNG", "image/png"),
        ("image/png;charset=utf-8", "image/png"),
        ("image/gif; a=b;c=d", "image/gif"),
    ] {
        let url = format!("data:{told};base64,/9j/4AAQ");
        let came = json!([{ "role": "user", "content": [
            text("What is this?"),
            { "type": "image_url", "image_url": { "url": url } },
        ] }]);
        let messages = Dialect::OPENAI.read(&came).unwrap();
        assert_eq!(json!(Dialect::OPENAI.restore(&messages)), came);
        assert_eq!(
            written(Dialect::ANTHROPIC, &messages)["messages"][0]["content"][1],
            json!({ "type": "image", "source": { "type": "base64", "media_type": sent, "data": "/9j/4AAQ" } })
        );
        let url = format!("data:{sent};base64,/9j/4AAQ");
        let piece = &written(Dialect::OPENAI, &messages)["messages"][0]["content"][1];
        assert_eq!(piece["image_url"]["url"], url.as_str());
        assert_eq!(
            written(Dialect::RESPONSES, &messages)["input"][0]["content"][1]["image_url"],
            url.as_str()
        );
    }
}

#[test]
fn bytes_in_an_address_are_never_sent_as_an_address() {
    for (url, named) in [
        ("data:image/svg+xml,%3Csvg%3E", "[image/svg+xml]"),
        ("data:;base64,iVBORw0KGgo=", "[image/*]"),
        ("data:image/png,raw", "[image/png]"),
    ] {
        let came = json!([{ "role": "user", "content": [
            text("Look"),
            { "type": "image_url", "image_url": { "url": url } },
        ] }]);
        let messages = Dialect::OPENAI.read(&came).unwrap();
        for dialect in [Dialect::OPENAI, Dialect::RESPONSES, Dialect::ANTHROPIC] {
            let written = written(dialect, &messages);
            let list = written.get("messages").unwrap_or(&written["input"]);
            assert_eq!(list[0]["content"][1]["text"], named, "{dialect}: {written}");
        }
    }
}

#[test]
fn pictures_that_providers_cannot_read_are_named_in_words() {
    for mime in ["image/svg+xml", "image/tiff", "image/heic", "image/bmp"] {
        let linked = Media { source: MediaSource::Url("https://example.org/a".to_owned()), ..picture(mime) };
        for media in [picture(mime), linked] {
            let list = [Message::new(Role::User, [Part::text("Look."), Part::Media(media)])];
            for dialect in [Dialect::OPENAI, Dialect::RESPONSES, Dialect::ANTHROPIC] {
                let written = written(dialect, &list);
                let list = written.get("messages").unwrap_or(&written["input"]);
                assert_eq!(list[0]["content"][1]["text"], format!("[{mime}]"), "{dialect}");
            }
        }
    }
}
