//! Marks for the provider's cache, in requests that are condensed: never more than came, always where they are taken, and on
//! the summary where they stood on what it stands for.

use epitome::dialect::{Body, Dialect, OwnFields};
use epitome_core::condense::{Decision, List, Policy, Press, RequestFacts};
use epitome_core::message::Timestamp;
use epitome_core::view;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::condensed_bodies::{condensed, grown, policies, press, wired};
use crate::drawn::session;
use crate::written_promises::{counter, odder, odds};
use crate::{config, judges};

const CACHE: &str = "cache_control";

/// Where a mark may stand: the paths of all blocks that take one, in the provider's order.
fn places(body: &Value) -> Vec<String> {
    let takes = |block: &Value| match block["type"].as_str().unwrap_or_default() {
        "text" => !block["text"].as_str().unwrap_or_default().trim().is_empty(),
        "image" | "document" | "tool_use" | "tool_result" => true,
        _ => false,
    };
    let mut out = Vec::new();
    let mut look = |path: String, block: &Value| {
        for (at, inner) in block["content"].as_array().into_iter().flatten().enumerate() {
            out.extend(takes(inner).then(|| format!("{path}/content/{at}")));
        }
        out.extend(takes(block).then_some(path));
    };
    for (at, block) in body["system"].as_array().into_iter().flatten().enumerate() {
        look(format!("/system/{at}"), block);
    }
    for (at, message) in body["messages"].as_array().into_iter().flatten().enumerate() {
        for (inner, block) in message["content"].as_array().into_iter().flatten().enumerate() {
            look(format!("/messages/{at}/content/{inner}"), block);
        }
    }
    out
}

/// A request of Anthropic's with its words in blocks.
fn in_blocks(text: &str) -> Value {
    let mut body: Value = serde_json::from_str(text).unwrap();
    let blocks = |content: &mut Value| {
        if content.is_string() {
            *content = json!([{ "type": "text", "text": content.take() }]);
        }
    };
    body.get_mut("system").into_iter().for_each(blocks);
    for message in body["messages"].as_array_mut().unwrap() {
        blocks(&mut message["content"]);
    }
    body
}

/// The same with marks at these places, the first few of them long.
fn marked(body: &Value, at: &[prop::sample::Index], long: usize) -> Value {
    let (mut body, places) = (body.clone(), places(body));
    if places.is_empty() {
        return body;
    }
    let mut at: Vec<usize> = at.iter().map(|at| at.index(places.len())).collect();
    at.sort_unstable();
    at.dedup();
    for (count, at) in at.into_iter().enumerate() {
        let mark = if count < long {
            json!({"type": "ephemeral", "ttl": "1h"})
        } else {
            json!({"type": "ephemeral"})
        };
        body.pointer_mut(&places[at]).unwrap()[CACHE] = mark;
    }
    body
}

fn count(text: &str) -> usize {
    text.matches(CACHE).count()
}

fn without(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(without).collect(),
        Value::Object(fields) => {
            let rest = fields.iter().filter(|(key, _)| *key != CACHE);
            Value::Object(rest.map(|(key, value)| (key.clone(), without(value))).collect())
        }
        other => other.clone(),
    }
}

proptest! {
    #![proptest_config(config(2_000))]

    #[test]
    fn marks_stay_within_what_the_provider_takes(
        drawn in session(), odds in odds(), policy in policies(), press in press(),
        at in prop::collection::vec(any::<prop::sample::Index>(), 0..5), long in 0..5usize,
    ) {
        let plain = in_blocks(&wired(Dialect::ANTHROPIC, odder(drawn.messages(), &odds)));
        let body = marked(&plain, &at, long);
        prop_assert_eq!(judges::anthropic::cache_marks(&body), Vec::<String>::new());
        let body = Body::read(&body.to_string(), Some(Dialect::ANTHROPIC)).unwrap();
        let Some(shown) = condensed(&body, &policy, press) else { return Ok(()) };
        let out = body.with_messages(&shown, OwnFields::Strip);
        let sent: Value = serde_json::from_str(&out).unwrap();
        prop_assert_eq!(judges::anthropic::cache_marks(&sent), Vec::<String>::new(), "{} of {}", &out, body.text());
        prop_assert!(count(&out) <= count(body.text()), "{} of {}", &out, body.text());
        let summarized = shown.iter().any(|message| message.seq == 0 && view::recognise(message).is_some());
        let lost = count(&out) == 0 && count(body.text()) > 0;
        prop_assert!(!(summarized && lost), "{} of {}", &out, body.text());
        // Marks change nothing else.
        let bare = Body::read(&plain.to_string(), Some(Dialect::ANTHROPIC)).unwrap();
        let bare: Value = serde_json::from_str(&bare.with_messages(&shown, OwnFields::Strip)).unwrap();
        prop_assert_eq!(without(&sent), bare);
    }

    #[test]
    fn between_two_passes_only_marks_that_the_client_moves_change_the_beginning(
        drawn in session(), later in session(), policy in policies(),
        at in prop::collection::vec(any::<prop::sample::Index>(), 0..5), moved in any::<bool>(),
    ) {
        let dialect = Dialect::ANTHROPIC;
        let plain = in_blocks(&wired(dialect, drawn.messages()));
        let first = marked(&plain, &at, 0);
        let more = later.messages().into_iter().filter(|message| !message.role.is_system()).collect::<Vec<_>>();
        let whole = in_blocks(&grown(dialect, &if moved { &plain } else { &first }.to_string(), &more));
        let whole = if moved { marked(&whole, &at, 1) } else { whole };
        let read = |body: &Value| Body::read(&body.to_string(), Some(dialect)).unwrap();
        let (before, after, counter) = (read(&first), read(&whole), counter());
        let mut list = List::default();
        list.advance(before.messages(), &counter);
        let facts = RequestFacts { force: Some(Press::Gently), ..RequestFacts::at(Timestamp(0)) };
        match list.decide(before.messages(), &policy, &facts, &counter) {
            Decision::Unchanged(_) => return Ok(()),
            Decision::Apply(done) => drop(done.apply(&mut list)),
            Decision::Summarize(plan) => drop(plan.finish(&mut list, before.messages(), "They spoke.", &counter)),
        }
        if list.state().rounds == 0 || before.messages() != &after.messages()[..before.messages().len()] {
            return Ok(());
        }
        let short = list.shown(before.messages()).into_owned();
        list.advance(after.messages(), &counter);
        let long = list.shown(after.messages()).into_owned();
        // Calls that were open may be answered meanwhile.
        if long.get(..short.len()) != Some(&short[..]) {
            return Ok(());
        }
        let items = |text: &str| -> Vec<Value> {
            let body: Value = serde_json::from_str(text).unwrap();
            let list = body["messages"].as_array().unwrap().clone();
            if moved { list.iter().map(without).collect() } else { list }
        };
        let (short, long) = (items(&before.with_messages(&short, OwnFields::Strip)), items(&after.with_messages(&long, OwnFields::Strip)));
        // The last may be merged with what comes.
        let steady = short.len().saturating_sub(1);
        let texts = |items: &[Value]| -> Vec<String> { items.iter().map(Value::to_string).collect() };
        prop_assert_eq!(texts(&short[..steady]), texts(&long[..steady]));
    }
}

fn pass(text: &str, dialect: Dialect) -> Value {
    let body = Body::read(text, Some(dialect)).unwrap();
    let policy = Policy { strategy: "summarize(messages(2))".parse().unwrap(), ..Policy::default() };
    let shown = condensed(&body, &policy, Press::Hard).unwrap();
    serde_json::from_str(&body.with_messages(&shown, OwnFields::Strip)).unwrap()
}

/// Eight messages that say enough to be worth a summary; these have a mark.
fn talk(marks: &[(usize, Value)]) -> Vec<Value> {
    let message = |at: usize| {
        let role = if at.is_multiple_of(2) { "user" } else { "assistant" };
        let mut block = json!({"type": "text", "text": format!("{at}: {}", "and so on ".repeat(40))});
        if let Some((_, mark)) = marks.iter().find(|(marked, _)| *marked == at) {
            block[CACHE] = mark.clone();
        }
        json!({"role": role, "content": [block]})
    };
    (0..9).map(message).collect()
}

#[test]
fn several_marks_that_leave_become_one_on_the_summary_and_those_that_stay_stay() {
    let (short, long) = (json!({"type": "ephemeral"}), json!({"type": "ephemeral", "ttl": "1h"}));
    let marks = [(1, long.clone()), (3, short.clone()), (8, short.clone())];
    let request = json!({"model": "m", "system": "Be brief.", "messages": talk(&marks)});
    let sent = pass(&request.to_string(), Dialect::ANTHROPIC);
    assert_eq!(sent["messages"][0]["content"][0][CACHE], long);
    assert!(sent["messages"][0]["content"][0]["text"].as_str().unwrap().contains("<summary"));
    let last = sent["messages"].as_array().unwrap().last().unwrap();
    assert_eq!(last["content"][0][CACHE], short);
    assert_eq!(count(&sent.to_string()), 2);
}

#[test]
fn a_summary_gets_no_mark_where_none_left() {
    let request = json!({"model": "m", "messages": talk(&[(8, json!({"type": "ephemeral"}))]),
        "system": [{"type": "text", "text": "Be brief.", CACHE: {"type": "ephemeral"}}]});
    let sent = pass(&request.to_string(), Dialect::ANTHROPIC);
    assert_eq!(count(&sent.to_string()), 2);
    assert_eq!(sent["messages"][0]["content"][0][CACHE], Value::Null);
}

#[test]
fn gateways_that_take_marks_in_other_forms_get_them_there() {
    let mark = json!({"type": "ephemeral"});
    let request = json!({"model": "m", "messages": talk(&[(1, mark.clone()), (8, mark.clone())])});
    let sent = pass(&request.to_string(), Dialect::OPENAI);
    assert_eq!(sent["messages"][0]["content"][0][CACHE], mark);
    assert_eq!(sent["messages"][0]["content"][0]["type"], "text");
    assert_eq!(count(&sent.to_string()), 2);
    assert_eq!(judges::chat::complaints(&without(&sent)), Vec::<String>::new());
    let plain = pass(&json!({"model": "m", "messages": talk(&[])}).to_string(), Dialect::OPENAI);
    assert!(plain["messages"][0]["content"].is_string(), "as it always was");

    let mut items = talk(&[(1, mark.clone())]);
    for item in &mut items {
        let word = if item["role"] == "user" { "input_text" } else { "output_text" };
        item["content"][0]["type"] = json!(word);
    }
    let sent = pass(&json!({"model": "m", "input": items}).to_string(), Dialect::RESPONSES);
    assert_eq!(sent["input"][0]["content"][0][CACHE], mark);
    assert_eq!(judges::responses::complaints(&without(&sent)), Vec::<String>::new());
}

#[test]
fn what_a_call_is_given_is_no_mark() {
    let mut messages = talk(&[]);
    messages[1]["content"] =
        json!([{"type": "tool_use", "id": "t1", "name": "f", "input": {CACHE: {"type": "ephemeral"}}}]);
    messages[2]["content"] =
        json!([{"type": "tool_result", "tool_use_id": "t1", "content": "yes ".repeat(200)}]);
    let sent = pass(&json!({"model": "m", "messages": messages}).to_string(), Dialect::ANTHROPIC);
    assert_eq!(count(&sent.to_string()), 0);
}
