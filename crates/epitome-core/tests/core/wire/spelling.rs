//! Generated lists in the wire formats: valid lists pass, and writing does not repair invalid ones.

use epitome_core::message::{Media, MediaSource, Message, Part, Role};
use epitome_testkit::drawing;
use serde_json::{Value, json};

use super::{Spelled, anthropic, chat, complaints_of_all, late_thinking, responses, signed};

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

#[test]
fn a_message_without_a_wire_form_is_a_complaint() {
    let picture = Part::Media(Media {
        mime: "image/png".to_owned(),
        source: MediaSource::Base64("aGVsbG8=".to_owned()),
        size: None,
    });
    for (role, part) in [
        (Role::Assistant, picture.clone()),
        (Role::System, picture),
        (Role::Tool, Part::text("words")),
        (Role::User, Part::call("x", "f", "{}")),
        (Role::User, Part::thinking("hm")),
        (Role::Assistant, Part::result("x", "done")),
    ] {
        let list = [Message::user("Hello"), Message::new(role, [part])];
        for spelled in [chat::spell(&list), responses::spell(&list), anthropic::spell(&list)] {
            let Spelled { unspelled, .. } = spelled;
            assert!(unspelled.iter().any(|complaint| complaint.contains("cannot be spelled")), "{role}");
        }
    }
    assert!(complaints_of_all(&[]).len() == 3);
}

#[test]
fn spelling_mends_nothing() {
    // Faults that the core repairs must produce complaints without the core, in every wire format.
    for bad in [
        "s",
        "u r(x)",
        "u a(x) r(x) r(x)",
        "u a(x) r(y) r(x)",
        "u a(x) u",
        "u a(x,y) r(x) u",
        "u a(x) r(x) a(x) r(x)",
        "u a(x,x) r(x)",
        "u u-",
        "u a:0",
        "u r",
    ] {
        let heard = complaints_of_all(&drawing::messages(bad).unwrap());
        for wire in ["chat: ", "responses: ", "anthropic: "] {
            assert!(heard.iter().any(|complaint| complaint.starts_with(wire)), "{bad}: {wire}{heard:?}");
        }
    }
    // Not every provider enforces these.
    for (bad, wires) in [
        ("a u", "anthropic"),
        ("u a(x) s r(x)", "chat anthropic"),
        ("u a(x) u(x)", "chat"),
        ("u a:0(x) r(x)", "responses anthropic"),
        ("u a*-", "chat responses anthropic"),
        ("u a(x=ix) r(x) a(y=ix) r(y)", "responses"),
    ] {
        let heard = complaints_of_all(&drawing::messages(bad).unwrap());
        let mut by: Vec<&str> = heard.iter().filter_map(|complaint| complaint.split(':').next()).collect();
        by.dedup();
        assert_eq!(by.join(" "), wires, "{bad}: {heard:?}");
    }
    assert_eq!(late_thinking(&drawing::messages("u a(x) r(x) a*(y) r(y)").unwrap()).len(), 1);
}

#[test]
fn good_lists_are_taken_by_all() {
    for good in [
        "u",
        "s u a",
        "s d u a(x,y) r(y) r(x) a",
        "u a(x)",
        "u a(x,y) r(x)",
        "p p@ann a",
        "u a*(x) r(x) a",
        "u u a a u",
        "s u a s u",
        "u a-(x) r(x) s a",
        "u a*-(x) r(x) a*(y) r(y) a*",
        "u a(x=ix) r(x) a",
        "u a a*(x) r(x)",
        "u a(x) r(x):0 a",
        "u a(x)@ann r(x) a(y)@bob r(y)",
        "u a(x,y) r(x,y) a",
    ] {
        let list = drawing::messages(good).unwrap();
        assert_eq!(complaints_of_all(&list), Vec::<String>::new(), "{good}");
        assert_eq!(late_thinking(&list), Vec::<String>::new(), "{good}");
    }
}

#[test]
fn lists_are_spelled_as_the_providers_show_them() {
    let list = signed(&drawing::messages("s u a*(x=ix) r(x) s a").unwrap());
    assert_eq!(
        chat::spell(&list).body,
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
        responses::spell(&list).body,
        json!({ "input": [
            input("system", "m1"),
            input("user", "m2"),
            { "type": "reasoning", "id": "rs_2", "summary": [{ "type": "summary_text", "text": "hm" }],
              "encrypted_content": "c2lnbmVk" },
            input("assistant", "m3"),
            { "type": "function_call", "call_id": "x", "id": "fc_ix", "name": "f", "arguments": "{\"m\":3}" },
            { "type": "function_call_output", "call_id": "x", "output": "m4" },
            input("system", "m5"),
            input("assistant", "m6"),
        ] })
    );
    assert_eq!(
        anthropic::spell(&list).body,
        json!({ "system": [text("m1")], "messages": [
            { "role": "user", "content": [text("m2")] },
            { "role": "assistant", "content": [
                { "type": "thinking", "thinking": "hm", "signature": "c2lnbmVk" },
                text("m3"),
                { "type": "tool_use", "id": "x", "name": "f", "input": { "m": 3 } },
            ] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "x", "content": [text("m4")] },
                text("m5"),
            ] },
            { "role": "assistant", "content": [text("m6")] },
        ] })
    );
}
