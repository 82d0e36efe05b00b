//! A. No invalid transcript is sent. Each case runs on the `crate::run::Runner` of the including test.

use epitome::dialect::Dialect;
use epitome_testkit::drawing::messages;
use serde_json::{Value, json};

use crate::cases::out::{SHAPES, spelled, talk};
use crate::judges::signed;
use crate::run::Runner;

const KEEP_2: [&str; 4] = ["--force", "--keep-messages", "2", "--strip"];

pub(crate) fn no_result_without_its_call() {
    let runner = Runner::new();
    for drawing in [
        "s u:300 a(x):90 r(x):300 a(y):40 r(y):30 a:9 u:9",
        "u:300 a:300 u a(x,y):50 r(x):90 r(y):90 a u a(z) r(z)",
        "u:400 a(x,y,z):50 r(x):50 r(z):50 a:40 u:9 a(v) r(v)",
    ] {
        for strategy in ["recent", "mask", "summarize", "amortized", "pipeline(mask, summarize)"] {
            for keep in ["1", "2", "3", "4"] {
                let args = ["--force", "--strategy", strategy, "--keep-messages", keep, "--strip"];
                runner.drawn(drawing, &args);
            }
        }
    }
}

pub(crate) fn orphans_duplicates_and_late_results() {
    let runner = Runner::new();
    for drawing in [
        "u:300 a:300 r(q):9 u a(x) r(x) r(x) a u",
        "r(a) u:300 a(x):90 u:20 r(x):9 a:90 u a(y) r(y) r(y) u",
        "u:300 a(x) a(x) r(x) r(x) a:90 r(z) u a(y) u a",
    ] {
        for out in runner.drawn(drawing, &KEEP_2) {
            out.is_condensed();
        }
    }
}

pub(crate) fn a_rejection_is_an_answer() {
    for shape in SHAPES {
        let mut list = messages("u:300 a:300 u a(x) r(x) u").unwrap();
        for part in list.iter_mut().flat_map(|message| &mut message.parts) {
            if let epitome_core::message::Part::ToolResult(result) = part {
                result.error = true;
                result.content =
                    vec![epitome_core::message::Content::Text { text: "denied by Ann".to_owned() }];
            }
        }
        let out = Runner::new().strict(
            shape,
            &spelled(shape, &list),
            &["--force", "--keep-messages", "4", "--strip"],
        );
        assert!(out.is_condensed().text.contains("denied by Ann"), "{}", out.text);
        assert!(!out.text.contains("no result recorded"), "{}", out.text);
    }
}

pub(crate) fn a_thinking_loop_is_whole_or_without_its_reasoning() {
    let runner = Runner::new();
    let drawing = "u:9 a*(x):90 r(x):300 a(y):30 r(y):30 a(z) r(z)";
    for out in runner.drawn(drawing, &["--force", "--keep-messages", "2"]) {
        assert!(["no_legal_cut", "due", "forced"].contains(&out.reason()), "{}", out.report);
    }
    for out in runner.drawn("u:9 a*(x):90 r(x):300 a*(y):30 r(y):30 a u:9 a*(z) r(z)", &KEEP_2) {
        out.is_condensed();
    }
    // Over its window something must go: the loop is entered, and its reasoning leaves.
    for out in runner.drawn(drawing, &["--window", "260", "--keep-messages", "2", "--strip"]) {
        assert!(!out.is_condensed().drawn().contains('*'), "{}", out.text);
    }
}

pub(crate) fn parallel_calls_stay_together() {
    for out in Runner::new().drawn("u:300 a:300 u a(x,y,z) r(x) r(y) r(z) u", &KEEP_2) {
        let calls = out
            .messages()
            .iter()
            .flat_map(|message| message.calls().count().checked_sub(1))
            .collect::<Vec<_>>();
        assert!(calls.is_empty() || calls == [2], "all three or none: {}", out.is_condensed().text);
    }
}

pub(crate) fn anthropic_takes_turns() {
    let runner = Runner::new();
    for drawing in ["u:300 a:300 u:9 u:9 u:9", "u!:9 a:300 u:300 u!:9 a:9 u:9", "s a:300 u:300 a:9 u u"] {
        let outs = runner.drawn(drawing, &KEEP_2);
        let body = outs[2].is_condensed().body();
        let roles: Vec<&str> =
            body["messages"].as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap()).collect();
        assert!(roles.windows(2).all(|pair| pair[0] != pair[1]) && roles[0] == "user", "{roles:?}");
    }
}

pub(crate) fn a_user_message_is_always_there() {
    let runner = Runner::new();
    for drawing in ["s a:300 a:300 a:9 a:9", "s a(x):300 r(x):300 a(y) r(y) a:9", "u:300 a:300 a:9 a:9"] {
        for strategy in ["recent", "summarize"] {
            let args = ["--force", "--strategy", strategy, "--keep-messages", "2", "--strip"];
            for out in runner.drawn(drawing, &args) {
                // Replies in a row are one on two of the wires, and then all of it is kept.
                let users = out.messages().iter().filter(|message| message.role.is_user()).count();
                assert!(users > 0 || out.reason() == "all_kept", "{}", out.text);
            }
        }
    }
}

pub(crate) fn arguments_are_json() {
    let mut list = talk(6);
    let call = json!({ "id": "c1", "type": "function", "function": { "name": "read", "arguments": "{\"path\": \"a" } });
    list.push(json!({ "role": "assistant", "content": null, "tool_calls": [call] }));
    list.push(json!({ "role": "tool", "tool_call_id": "c1", "content": "ok" }));
    list.push(json!({ "role": "user", "content": "Go on." }));
    let args = ["--force", "--keep-messages", "3", "--strip"];
    let out = Runner::new().strict(Dialect::OPENAI, &json!({ "messages": list }), &args);
    let body = out.is_condensed().body();
    let calls =
        body["messages"].as_array().unwrap().iter().filter_map(|m| m["tool_calls"].as_array()).flatten();
    let arguments: Vec<&str> = calls.map(|call| call["function"]["arguments"].as_str().unwrap()).collect();
    assert!(arguments.len() == 1 && serde_json::from_str::<Value>(arguments[0]).is_ok(), "{arguments:?}");
    assert!(arguments[0].contains("path"), "what it said is carried along: {arguments:?}");
}

pub(crate) fn items_are_paired_by_either_id() {
    let list = json!({ "input": [
        { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "word ".repeat(400) }] },
        { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "word ".repeat(400) }] },
        { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Look." }] },
        { "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read", "arguments": "{}" },
        { "type": "function_call_output", "call_id": "call_1", "output": "contents" },
        { "type": "function_call", "id": "fc_2", "call_id": "call_2", "name": "read", "arguments": "{}" },
        { "type": "function_call_output", "call_id": "call_2", "output": "more" },
    ] });
    let out =
        Runner::new().strict(Dialect::RESPONSES, &list, &["--force", "--keep-messages", "4", "--strip"]);
    let kept = out.is_condensed().body()["input"].as_array().unwrap().clone();
    assert!(kept.ends_with(&list["input"].as_array().unwrap()[3..]), "as they came: {}", out.text);
}

pub(crate) fn the_system_prompt_is_first_and_untouched() {
    let runner = Runner::new();
    let system = "You are a harbour master.\n\nNever say \"no\".  ";
    let mut headed = vec![json!({ "role": "system", "content": system, "name": "boss" })];
    headed.extend(talk(9));
    for (shape, body) in [
        (Dialect::OPENAI, json!({ "messages": headed })),
        (Dialect::RESPONSES, json!({ "instructions": system, "input": talk(9) })),
        (
            Dialect::ANTHROPIC,
            json!({ "system": [{ "type": "text", "text": system, "cache_control": { "type": "ephemeral" } }], "messages": talk(9) }),
        ),
    ] {
        for strategy in ["recent", "mask", "summarize", "amortized"] {
            let args = ["--force", "--strategy", strategy, "--keep-messages", "2", "--strip"];
            let out = runner.condense(shape, &body.to_string(), &args).body();
            for field in ["system", "instructions"] {
                assert_eq!(out.get(field), body.get(field), "{shape} {strategy}");
            }
            if shape == Dialect::OPENAI {
                assert_eq!(out["messages"][0], body["messages"][0], "{strategy}");
            }
        }
    }
}

/// A request one of whose messages says that it is pinned.
pub(crate) fn pinned(shape: Dialect) -> Value {
    let list = signed(&messages("s u!:9 a:300 u:300 a:9 u~:9 u:9").unwrap());
    let mut body = spelled(shape, &list);
    let key = if shape == Dialect::RESPONSES { "input" } else { "messages" };
    let at = usize::from(shape == Dialect::OPENAI);
    body[key][at]["epitome"] = json!({ "pinned": true });
    body
}

pub(crate) fn no_field_of_ours_is_left() {
    let runner = Runner::new();
    for shape in SHAPES {
        let body = pinned(shape);
        let out = runner.strict(shape, &body, &KEEP_2);
        assert!(!out.is_condensed().text.contains("epitome"), "{}", out.text);
        // Where nothing is due, the flags alone go.
        let bare = runner.condense(shape, &body.to_string(), &["--strip"]);
        assert!(bare.reason() == "not_due" && !bare.text.contains("epitome"), "{}", bare.text);
    }
}
