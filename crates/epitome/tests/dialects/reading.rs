//! How wire messages become ours.

use epitome::dialect::{Dialect, ReadMessage};
use epitome_core::message::{Message, Part, Role};
use epitome_testkit::drawing::draw;
use serde_json::{Value, json};

fn read(dialect: Dialect, list: &Value) -> Vec<Message> {
    let messages = dialect.read(list).unwrap();
    for message in &messages {
        message.check(&Default::default()).unwrap();
    }
    messages
}

#[test]
fn the_same_loop_reads_the_same_in_all_dialects() {
    let chat = json!({ "messages": [
        { "role": "system", "content": "Be brief." },
        { "role": "user", "content": "Which day?" },
        { "role": "assistant", "content": "Let me look.", "tool_calls": [
            { "id": "c1", "type": "function", "function": { "name": "today", "arguments": "{\"zone\":\"UTC\"}" } },
        ] },
        { "role": "tool", "tool_call_id": "c1", "content": "Friday" },
    ] });
    let responses = json!({ "instructions": "Be brief.", "input": [
        { "role": "user", "content": "Which day?" },
        { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "Let me look." }] },
        { "type": "function_call", "call_id": "c1", "name": "today", "arguments": "{\"zone\":\"UTC\"}" },
        { "type": "function_call_output", "call_id": "c1", "output": "Friday" },
    ] });
    let anthropic = json!({ "system": "Be brief.", "messages": [
        { "role": "user", "content": "Which day?" },
        { "role": "assistant", "content": [
            { "type": "text", "text": "Let me look." },
            { "type": "tool_use", "id": "c1", "name": "today", "input": { "zone": "UTC" } },
        ] },
        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "c1", "content": "Friday" }] },
    ] });
    let expected = [
        Message::system("Be brief."),
        Message::user("Which day?"),
        Message::new(
            Role::Assistant,
            [Part::text("Let me look."), Part::call("c1", "today", "{\"zone\":\"UTC\"}")],
        ),
        Message::tool("c1", "Friday"),
    ];
    for (dialect, body) in
        [(Dialect::OPENAI, chat), (Dialect::RESPONSES, responses), (Dialect::ANTHROPIC, anthropic)]
    {
        let bare: Vec<Message> =
            read(dialect, &body).into_iter().map(|message| Message { wire: None, ..message }).collect();
        assert_eq!(bare, expected, "{dialect}");
    }
}

#[test]
fn a_reply_of_several_items_is_one_message() {
    let items = [
        json!({ "role": "user", "content": "Go on" }),
        json!({ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc" }),
        json!({ "type": "web_search_call", "id": "ws_1" }),
        json!({ "type": "function_call", "id": "fc_1", "call_id": "x", "name": "f", "arguments": "{}" }),
        json!({ "type": "function_call", "id": "fc_2", "call_id": "y", "name": "f", "arguments": "{}" }),
        json!({ "type": "function_call_output", "call_id": "x", "output": "1" }),
        json!({ "type": "function_call_output", "call_id": "fc_2", "output": "2" }),
        json!({ "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "Done" }] }),
    ];
    let mut reader = Dialect::RESPONSES.reader();
    let mut reads: Vec<ReadMessage> = Vec::new();
    for item in &items {
        reads.extend(reader.push(item).unwrap());
    }
    reads.extend(reader.finish());
    assert_eq!(reads.iter().map(|read| read.count).collect::<Vec<_>>(), [1, 4, 1, 1, 1]);
    let messages: Vec<Message> = reads.into_iter().map(|read| read.message).collect();
    assert_eq!(draw(&messages), "u:2 a*-(x=fc_1,y=fc_2) r(x) r(fc_2) a");
    assert_eq!(Dialect::RESPONSES.restore(&messages), items);
    // Whichever of its two names an output uses, it finds its call.
    let repaired = epitome_core::view::repair(messages);
    assert_eq!(draw(&repaired), "u:2 a*-(x=fc_1,y=fc_2) r(x) r(y) a");
}

#[test]
fn a_tool_of_the_providers_keeps_its_output() {
    let items = json!([
        { "type": "shell_call", "id": "sh_1", "call_id": "x", "action": { "commands": ["ls"] }, "status": "completed" },
        { "type": "shell_call_output", "call_id": "x", "output": [{ "stdout": "a.rs", "stderr": "" }] },
        { "type": "computer_call", "call_id": "y", "action": { "type": "screenshot" } },
        { "type": "computer_call_output", "call_id": "y", "output": {
            "type": "computer_screenshot", "image_url": "data:image/png;base64,aGVsbG8=" } },
    ]);
    let messages = read(Dialect::RESPONSES, &items);
    assert_eq!(draw(&messages), "a-(x=sh_1) r(x):0 a-(y) r(y):0");
    assert_eq!(json!(Dialect::RESPONSES.restore(&messages)), items);
}

#[test]
fn a_user_message_of_results_only_is_a_tools() {
    let result = json!({ "type": "tool_result", "tool_use_id": "t1" });
    let text = json!({ "type": "text", "text": "Go on" });
    let messages = read(
        Dialect::ANTHROPIC,
        &json!([
            { "role": "user", "content": [result, result] },
            { "role": "user", "content": [result, text] },
            { "role": "user", "content": [] },
            { "role": "assistant", "content": [{ "type": "server_tool_use", "id": "s1", "input": {} }] },
        ]),
    );
    let roles: Vec<(Role, usize)> =
        messages.iter().map(|message| (message.role, message.parts.len())).collect();
    assert_eq!(roles, [(Role::Tool, 2), (Role::User, 2), (Role::User, 1), (Role::Assistant, 1)]);
    assert_eq!(messages[3].parts, [Part::text("")]);
}

#[test]
fn old_calls_are_tied_by_the_functions_name() {
    let list = json!([
        { "role": "assistant", "content": null, "function_call": { "name": "today", "arguments": "{}" } },
        { "role": "function", "name": "today", "content": "Friday" },
    ]);
    let messages = read(Dialect::OPENAI, &list);
    assert_eq!(draw(&messages), "a-(today) r(today)");
    assert_eq!(json!(Dialect::OPENAI.restore(&messages)), list);
}

#[test]
fn reasoning_of_other_servers_is_read_and_given_back() {
    for field in ["reasoning_content", "reasoning"] {
        let list = json!([{ "role": "assistant", "content": "Friday", field: "It was Thursday yesterday." }]);
        let messages = read(Dialect::OPENAI, &list);
        assert_eq!(messages[0].parts[0], Part::thinking("It was Thursday yesterday."));
        assert_eq!(json!(Dialect::OPENAI.restore(&messages)), list);
    }
}

#[test]
fn the_words_of_a_refusal_are_words() {
    for content in [Value::Null, json!(""), json!([])] {
        let list = json!([
            { "role": "user", "content": "Do it." },
            { "role": "assistant", "content": content, "refusal": "I can't help with that." },
            { "role": "assistant", "content": "Why not?", "refusal": "I can't help with that." },
            { "role": "user", "content": null, "refusal": "no field of theirs" },
        ]);
        let messages = read(Dialect::OPENAI, &list);
        assert_eq!(messages[1].parts, [Part::text("I can't help with that.")]);
        assert_eq!(messages[2].parts, [Part::text("Why not?")]);
        assert_eq!(messages[3].parts, [Part::text("")]);
        assert_eq!(json!(Dialect::OPENAI.restore(&messages)), list);
        let written = Dialect::OPENAI.write(&messages);
        assert_eq!(
            written["messages"][1],
            json!({ "role": "assistant", "content": "I can't help with that." })
        );
    }
}

#[test]
fn the_words_of_documents_and_search_results_are_words() {
    let text = |text: &str| json!({ "type": "text", "text": text });
    let document = |source: Value| json!({ "type": "document", "title": "Book", "source": source });
    let list = json!([
        { "role": "user", "content": [
            document(json!({ "type": "content", "content": [text("Chapter one."), { "type": "new" }, text("Two.")] })),
            document(json!({ "type": "content", "content": "Chapter three." })),
            document(json!({ "type": "text", "media_type": "text/plain", "data": "The end." })),
            text("Sum it up."),
        ] },
        { "role": "assistant", "content": [{ "type": "tool_use", "id": "t1", "name": "find", "input": {} }] },
        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t1", "content": [
            { "type": "search_result", "source": "https://x.org", "title": "X", "content": [text("Found in Oslo.")] },
        ] }] },
    ]);
    let messages = read(Dialect::ANTHROPIC, &list);
    let words = ["Chapter one.", "Two.", "Chapter three.", "The end.", "Sum it up."];
    assert_eq!(messages[0].parts, words.map(Part::text));
    assert_eq!(messages[2].parts, [Part::result("t1", "Found in Oslo.")]);
    assert_eq!(json!(Dialect::ANTHROPIC.restore(&messages)), list);
}

#[test]
fn flags_ride_on_every_wire() {
    for (dialect, wire) in [
        (Dialect::OPENAI, json!({ "role": "user", "content": "Hello" })),
        (Dialect::RESPONSES, json!({ "role": "user", "content": "Hello" })),
        (Dialect::ANTHROPIC, json!({ "role": "user", "content": "Hello" })),
    ] {
        let mut flagged = wire.clone();
        flagged["epitome"] = json!({ "pinned": true, "skip": true });
        let message = &read(dialect, &json!([flagged]))[0];
        assert!(message.pinned && message.skip);
        flagged["epitome"] = json!({ "pinned": "yes" });
        let error = dialect.read(&json!([wire, flagged])).unwrap_err().to_string();
        assert!(error.ends_with("[1].epitome.pinned: is a string; it must be true or false"), "{error}");
        flagged["epitome"] = json!({ "pined": true });
        let error = dialect.read(&json!([wire, flagged])).unwrap_err().to_string();
        let expected = "[1].epitome: \"pined\" is unknown; did you mean `pinned`? allowed are pinned, skip";
        assert!(error.ends_with(expected), "{error}");
        // Other keys are ignored.
        flagged["epitome"] = json!({ "note": "own", "skip": true });
        assert!(read(dialect, &json!([flagged]))[0].skip);
    }
}

#[test]
fn complaints_name_the_place_and_repeat_no_words() {
    let call = |function: Value| json!([{ "role": "assistant", "tool_calls": [{ "id": "x", "function": function }] }]);
    for (dialect, body, expected) in [
        (Dialect::OPENAI, json!("Hello"), "is a string; it must be a request or a list of messages"),
        (Dialect::OPENAI, json!({}), "messages: is missing"),
        (Dialect::OPENAI, json!({ "messages": "secret" }), "messages: is a string; it must be a list"),
        (Dialect::OPENAI, json!(["secret"]), "messages[0]: is a string; it must be an object"),
        (Dialect::OPENAI, json!([{ "content": "secret" }]), "messages[0].role: is missing"),
        (Dialect::OPENAI, json!([{ "role": "user", "text": "secret" }]), "messages[0].content: is missing"),
        (Dialect::ANTHROPIC, json!([{ "role": "assistant" }]), "messages[0].content: is missing"),
        (Dialect::RESPONSES, json!([{ "role": "user", "text": "secret" }]), "input[0].content: is missing"),
        (
            Dialect::OPENAI,
            json!([{ "role": "user", "content": [{ "type": "text", "text": "a" }, { "text": "secret" }] }]),
            "messages[0].content[1].type: is missing",
        ),
        (Dialect::OPENAI, call(json!({})), "messages[0].tool_calls[0].function.name: is missing"),
        (
            Dialect::OPENAI,
            json!([{ "role": "tool", "content": "secret" }]),
            "messages[0].tool_call_id: is missing",
        ),
        (Dialect::RESPONSES, json!({ "input": 7 }), "input: is a number; it must be a string or a list"),
        (
            Dialect::RESPONSES,
            json!({ "instructions": 7, "input": [] }),
            "instructions: is a number; it must be a string",
        ),
        (
            Dialect::RESPONSES,
            json!([{ "type": "function_call", "call_id": "", "name": "f" }]),
            "input[0].call_id: must not be empty",
        ),
        (
            Dialect::ANTHROPIC,
            json!({ "system": [{ "type": "text" }], "messages": [] }),
            "system[0].text: is missing",
        ),
        (
            Dialect::ANTHROPIC,
            json!([{ "role": "user", "content": [{ "type": "tool_result", "content": "secret" }] }]),
            "messages[0].content[0].tool_use_id: is missing",
        ),
        (
            Dialect::ANTHROPIC,
            json!([{ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "x", "content": [
                { "type": "image", "source": { "type": "base64" } }] }] }]),
            "messages[0].content[0].content[0].source.data: is missing",
        ),
        (
            Dialect::EPITOME,
            json!([{ "role": "user", "parts": [{ "type": "words of somebody who says a lot" }] }]),
            "messages[0].parts[0].type: \"words of somebody who sa…\" is unknown; allowed are text, thinking, tool_call, \
             tool_result, media",
        ),
        (
            Dialect::EPITOME,
            json!([{ "role": "user", "parts": [{ "type": "txt" }] }]),
            "messages[0].parts[0].type: \"txt\" is unknown; did you mean `text`? allowed are text, thinking, tool_call, \
             tool_result, media",
        ),
        (
            Dialect::OPENAI,
            json!([{ "role": "usr", "content": "secret" }]),
            "messages[0].role: \"usr\" is unknown; did you mean `user`? allowed are system, developer, user, assistant, \
             tool, function",
        ),
        (
            Dialect::ANTHROPIC,
            json!([{ "role": "systm", "content": "secret" }]),
            "messages[0].role: \"systm\" is unknown; did you mean `system`? allowed are user, assistant, system",
        ),
        (
            Dialect::EPITOME,
            json!([{ "role": "user", "parts": "secret" }]),
            "messages[0].parts: is a string; it must be a list",
        ),
    ] {
        assert_eq!(dialect.read(&body).unwrap_err().to_string(), expected);
    }
    let error = Dialect::OPENAI.read_text("[{\"role\": secret").unwrap_err().to_string();
    assert!(error.starts_with("is not valid JSON: ") && !error.contains("secret"), "{error}");
}

#[test]
fn the_shape_tells_the_dialect() {
    for (wire, dialect) in [
        (json!({ "role": "user", "parts": [] }), Some(Dialect::EPITOME)),
        (json!({ "role": "tool", "tool_call_id": "x", "content": "" }), Some(Dialect::OPENAI)),
        (json!({ "role": "developer", "content": "Hello" }), Some(Dialect::OPENAI)),
        (json!({ "role": "assistant", "content": null, "tool_calls": [] }), Some(Dialect::OPENAI)),
        (json!({ "role": "user", "content": [{ "type": "image_url" }] }), Some(Dialect::OPENAI)),
        (json!({ "type": "reasoning", "summary": [] }), Some(Dialect::RESPONSES)),
        (json!({ "type": "item_reference", "id": "x" }), Some(Dialect::RESPONSES)),
        (json!({ "role": "user", "content": [{ "type": "input_text" }] }), Some(Dialect::RESPONSES)),
        (json!({ "type": "message", "role": "user", "content": "Hello" }), Some(Dialect::RESPONSES)),
        (
            json!({ "type": "message", "role": "assistant", "content": [{ "type": "tool_use" }] }),
            Some(Dialect::ANTHROPIC),
        ),
        (json!({ "role": "user", "content": [{ "type": "document" }] }), Some(Dialect::ANTHROPIC)),
        (
            json!({ "role": "assistant", "content": [{ "type": "web_search_tool_result" }] }),
            Some(Dialect::ANTHROPIC),
        ),
        (
            json!({ "role": "user", "content": [{ "type": "text", "text": "a", "cache_control": {} }] }),
            Some(Dialect::ANTHROPIC),
        ),
        (
            json!({ "role": "assistant", "content": [{ "type": "text", "text": "a", "citations": null }] }),
            Some(Dialect::ANTHROPIC),
        ),
        (json!({ "role": "user", "content": [{ "type": "search_result" }] }), Some(Dialect::ANTHROPIC)),
        (
            json!({ "role": "tool", "content": [{ "type": "text", "text": "a", "cache_control": {} }] }),
            Some(Dialect::OPENAI),
        ),
        (json!({ "instructions": "Be brief." }), Some(Dialect::RESPONSES)),
        (json!({ "instructions": "Be brief.", "input": "Hello" }), Some(Dialect::RESPONSES)),
        (json!({ "role": "user", "instructions": "Be brief.", "content": "Hello" }), None),
        (
            json!({ "type": "assistant", "message": { "role": "assistant", "content": [] }, "uuid": "x" }),
            None,
        ),
        (json!({ "role": "user", "content": [{ "type": "text", "text": "Hello" }] }), None),
        (json!({ "role": "user", "content": "Hello" }), None),
        (json!("Hello"), None),
    ] {
        assert_eq!(Dialect::detect(&wire), dialect, "{wire}");
    }
}
