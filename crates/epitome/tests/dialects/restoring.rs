//! What came in is given back: value for value, key for key, number for number.

use epitome::dialect::Dialect;
use epitome_core::message::{Message, Part, Role};
use epitome_testkit::restored::restore_body;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::config;
use crate::drawn_wire::{anthropic, anything, chat, noise, ours, responses};

/// As a store gives them back.
fn stored(messages: &[Message]) -> Vec<Message> {
    serde_json::from_str(&serde_json::to_string(messages).unwrap()).unwrap()
}

fn text(value: &Value) -> String {
    serde_json::to_string(value).unwrap()
}

/// Those of a list that can be read at all.
fn readable(dialect: Dialect, list: Vec<Value>) -> Vec<Value> {
    list.into_iter().filter(|wire| dialect.read(&json!([wire])).is_ok()).collect()
}

#[track_caller]
fn check(dialect: Dialect, list: Vec<Value>) -> Result<(), TestCaseError> {
    let list = Value::Array(readable(dialect, list));
    let messages = stored(&dialect.read(&list).unwrap());
    for message in &messages {
        let fine = dialect == Dialect::EPITOME || message.check(&Default::default()).is_ok();
        prop_assert!(fine, "{:?}", message);
    }
    let restored = Value::Array(dialect.restore(&messages));
    prop_assert_eq!(text(&restored), text(&list));
    // Nothing is read differently for having been restored.
    prop_assert_eq!(dialect.read(&restored).unwrap(), messages);
    Ok(())
}

fn any_dialect() -> impl Strategy<Value = (Dialect, Vec<Value>)> {
    prop_oneof![
        prop::collection::vec(chat(), 1..5).prop_map(|list| (Dialect::OPENAI, list)),
        prop::collection::vec(responses(), 1..6).prop_map(|list| (Dialect::RESPONSES, list)),
        prop::collection::vec(anthropic(), 1..5).prop_map(|list| (Dialect::ANTHROPIC, list)),
        prop::collection::vec(ours(), 1..5).prop_map(|list| (Dialect::EPITOME, list)),
    ]
}

proptest! {
    #![proptest_config(config(3_000))]

    #[test]
    fn chat_is_given_back(list in prop::collection::vec(chat(), 1..5)) {
        check(Dialect::OPENAI, list)?;
    }

    #[test]
    fn responses_are_given_back(list in prop::collection::vec(responses(), 1..8)) {
        check(Dialect::RESPONSES, list)?;
    }

    #[test]
    fn anthropics_are_given_back(list in prop::collection::vec(anthropic(), 1..5)) {
        check(Dialect::ANTHROPIC, list)?;
    }

    #[test]
    fn ours_are_given_back(list in prop::collection::vec(ours(), 1..5)) {
        check(Dialect::EPITOME, list)?;
    }

    #[test]
    fn noise_is_refused_or_given_back(list in prop::collection::vec(noise(), 1..4)) {
        for dialect in Dialect::all() {
            check(dialect, list.clone())?;
            for wire in &list {
                let _ = Dialect::detect(wire);
            }
        }
    }

    #[test]
    fn reading_anything_never_panics_and_complaints_are_one_line(value in anything(), text in ".{0,40}") {
        for dialect in Dialect::all() {
            for body in [value.clone(), json!({ "messages": value, "input": value }), json!([value])] {
                if let Err(error) = dialect.read(&body) {
                    prop_assert!(!error.to_string().contains('\n'));
                }
            }
            let _ = dialect.read_text(&text);
            let _ = dialect.reader().push_text(&text);
            let _ = Dialect::detect(&value);
        }
    }

    #[test]
    fn numbers_and_doubled_keys_are_given_back_as_text(
        (dialect, list) in any_dialect(),
        number in prop::sample::select(vec!["1e2", "-0", "1.10", "123456789012345678901234567890", "0.1", "7"]),
        twice in any::<bool>(),
    ) {
        let list = readable(dialect, list);
        let texts = list.iter().map(|wire| match wire {
            Value::Object(fields) if !fields.is_empty() => {
                let text = text(wire);
                let doubled = if twice { ",\"x_n\": 0" } else { "" };
                format!("{}{doubled},\"x_n\": [{number}]}}", text.trim_end_matches('}').to_owned()
                    + &"}".repeat(text.len() - text.trim_end_matches('}').len() - 1))
            }
            other => text(other),
        });
        let texts: Vec<String> = texts.collect();
        let body = format!("[{}]", texts.join(", "));
        let messages = stored(&dialect.read_text(&body).unwrap());
        let restored = dialect.restore_text(&messages);
        prop_assert_eq!(restored.len(), texts.len());
        for (restored, came) in restored.iter().zip(&texts) {
            // Spaces may differ where nothing else would be lost.
            prop_assert_eq!(restored.replace(' ', ""), came.replace(' ', ""));
        }
    }

    #[test]
    fn flags_are_as_they_are_now((dialect, list) in any_dialect(), pinned in any::<bool>(), skip in any::<bool>()) {
        let list = Value::Array(readable(dialect, list));
        let mut messages = stored(&dialect.read(&list).unwrap());
        for message in &mut messages {
            (message.pinned, message.skip) = (pinned, skip);
        }
        let restored = Value::Array(dialect.restore(&messages));
        let again = dialect.read(&restored).unwrap();
        prop_assert_eq!(again.len(), messages.len());
        for (again, message) in again.iter().zip(&messages) {
            prop_assert_eq!((again.pinned, again.skip), (pinned, skip));
            prop_assert_eq!(&again.parts, &message.parts);
        }
    }

    #[test]
    fn changed_words_are_shown_changed((dialect, list) in any_dialect()) {
        let list = Value::Array(readable(dialect, list));
        let mut messages = stored(&dialect.read(&list).unwrap());
        for message in messages.iter_mut().filter(|message| message.role != Role::Tool) {
            message.parts = vec![Part::text("other words")];
        }
        for message in &messages {
            let restored = text(&Value::Array(dialect.restore(std::slice::from_ref(message))));
            prop_assert!(message.role == Role::Tool || restored.contains("other words"), "{}", restored);
        }
    }

    #[test]
    fn a_residue_that_does_not_fit_is_left((dialect, list) in any_dialect(), residue in anything(), raw in anything()) {
        let list = Value::Array(readable(dialect, list));
        for message in dialect.read(&list).unwrap() {
            let plain = Message { wire: None, ..message.clone() };
            let name = dialect.name();
            for wire in [json!({ name: residue }), json!({ name: { "raw": raw } }), residue.clone()] {
                let odd = Message { wire: Some(Box::new(wire)), ..message.clone() };
                let restored = Value::Array(dialect.restore(std::slice::from_ref(&odd)));
                prop_assert!(restored.as_array().is_some_and(|items| !items.is_empty()));
            }
            // What came in one dialect can be shown in every other.
            let sound = message.check(&Default::default()).is_ok();
            for other in Dialect::all().into_iter().filter(|_| sound) {
                prop_assert!(!other.restore(std::slice::from_ref(&plain)).is_empty());
                prop_assert!(!other.restore(std::slice::from_ref(&message)).is_empty());
            }
        }
    }
}

#[test]
fn whole_bodies_are_given_back() {
    let anthropic = json!({
        "system": [{ "type": "text", "text": "Be brief.", "cache_control": { "type": "ephemeral" } }],
        "messages": [{ "role": "user", "content": "Hello" }],
    });
    let responses = json!({ "instructions": "Be brief.", "input": "Hello" });
    let chat = json!({ "messages": [{ "role": "developer", "content": "Be brief." }] });
    for (dialect, body) in
        [(Dialect::ANTHROPIC, anthropic), (Dialect::RESPONSES, responses), (Dialect::OPENAI, chat)]
    {
        for messages in [dialect.read(&body).unwrap(), dialect.read_text(&text(&body)).unwrap()] {
            assert_eq!(text(&Value::Object(restore_body(dialect, &stored(&messages)))), text(&body));
        }
    }
}

#[test]
fn plain_messages_carry_no_residue() {
    let call = json!({ "id": "c1", "type": "function", "function": { "name": "f", "arguments": "{}" } });
    let chat = [
        json!({ "role": "user", "content": "Hello" }),
        json!({ "role": "assistant", "content": null, "tool_calls": [call] }),
        json!({ "role": "tool", "tool_call_id": "c1", "content": "done" }),
    ];
    let anthropic = [
        json!({ "role": "user", "content": "Hello" }),
        json!({ "role": "assistant", "content": [
            { "type": "thinking", "thinking": "hm", "signature": "abc" },
            { "type": "redacted_thinking", "data": "abc" },
            { "type": "tool_use", "id": "t1", "name": "f", "input": { "b": 1, "a": [0.5] } },
        ] }),
        json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t1", "content": "done" }] }),
    ];
    let responses = [
        json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Hello" }] }),
        json!({ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc" }),
        json!({ "type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}" }),
        json!({ "type": "function_call_output", "call_id": "c1", "output": "done" }),
    ];
    let ours = [json!({ "role": "user", "parts": [{ "type": "text", "text": "Hello" }] })];
    for (dialect, list) in [
        (Dialect::OPENAI, &chat[..]),
        (Dialect::ANTHROPIC, &anthropic),
        (Dialect::RESPONSES, &responses),
        (Dialect::EPITOME, &ours),
    ] {
        let messages = dialect.read(&json!(list)).unwrap();
        assert!(messages.iter().all(|message| message.wire.is_none()), "{dialect}: {messages:?}");
    }
}

#[test]
fn a_long_text_with_a_field_beside_it_is_kept_once() {
    let long = "word ".repeat(20_000);
    let data = "QUJD".repeat(25_000);
    for (dialect, wire) in [
        (
            Dialect::OPENAI,
            json!({ "x": 1, "content": [{ "type": "text", "text": long, "y": 2 }], "role": "user" }),
        ),
        (
            Dialect::OPENAI,
            json!({ "role": "assistant", "reasoning": long, "content": null, "function_call": {
            "name": "f", "arguments": long } }),
        ),
        (
            Dialect::OPENAI,
            json!({ "role": "user", "content": [{ "type": "file", "file": { "file_data": data } }] }),
        ),
        (Dialect::OPENAI, json!({ "role": "assistant", "content": null, "refusal": long })),
        (
            Dialect::OPENAI,
            json!({ "role": "user", "x": 1, "content": [
            { "type": "image_url", "image_url": { "url": format!("data:image/png;a=b;base64,{data}") } }] }),
        ),
        (Dialect::RESPONSES, json!({ "role": "user", "content": long })),
        (
            Dialect::RESPONSES,
            json!({ "type": "message", "role": "assistant", "id": "msg_1", "content": [
            { "type": "output_text", "text": long, "annotations": [] }, { "type": "output_text", "text": "b" }] }),
        ),
        (Dialect::RESPONSES, json!({ "instructions": long })),
        (
            Dialect::ANTHROPIC,
            json!({ "role": "user", "content": [
            { "type": "text", "text": long, "cache_control": { "type": "ephemeral" } },
            { "type": "new_kind" },
            { "type": "document", "source": { "type": "text", "media_type": "text/plain", "data": long } },
            { "type": "search_result", "content": [{ "type": "text", "text": long }] },
            { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": data }, "z": 1 },
        ] }),
        ),
        (
            Dialect::EPITOME,
            json!({ "parts": [{ "type": "text", "text": long, "y": 2 }], "role": "user", "x": 1 }),
        ),
    ] {
        let messages = dialect.read(&json!([wire])).unwrap();
        let residue = messages[0].wire.as_ref().unwrap().to_string();
        assert!(residue.len() < 500, "{dialect}: {} bytes", residue.len());
        assert_eq!(dialect.restore(&messages), [wire]);
    }
}

#[test]
fn what_is_nested_deeply_can_still_be_stored() {
    let deep = (0..124).fold(json!(1), |inner, _| json!([inner]));
    let wire = json!({ "role": "user", "content": "Hello", "x": deep });
    let messages = stored(&Dialect::OPENAI.read(&json!([wire])).unwrap());
    assert_eq!(Dialect::OPENAI.restore(&messages), [wire]);
}

#[test]
fn what_was_exported_as_ours_is_whole_when_it_is_imported() {
    let came = json!([{ "x": 1, "role": "user", "content": "Hello" }]);
    let messages = Dialect::OPENAI.read(&came).unwrap();
    let exported = Value::Array(Dialect::EPITOME.restore(&messages));
    let imported = Dialect::EPITOME.read(&exported).unwrap();
    assert_eq!(text(&Value::Array(Dialect::OPENAI.restore(&imported))), text(&came));
    assert_eq!(Dialect::EPITOME.restore(&imported), *exported.as_array().unwrap());
}
