//! Requests that are condensed, again and again: what goes out is taken by strict providers, and what must stay is in
//! it word for word.

use epitome::dialect::{Body, Dialect, OwnFields};
use epitome_core::condense::{Decision, List, Policy, Press, RequestFacts, SummaryRole};
use epitome_core::message::{Message, Part, Role, Timestamp};
use epitome_core::trigger::Fraction;
use epitome_core::view;
use epitome_testkit::restored::restore_body;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::drawn::{Drawn, session};
use crate::drawn_wire::{anthropic, chat, responses};
use crate::written_promises::{counter, odder, odds};
use crate::{complaints, config, conversations};

const FOREIGN: [Dialect; 3] = [Dialect::OPENAI, Dialect::RESPONSES, Dialect::ANTHROPIC];

pub(crate) fn policies() -> impl Strategy<Value = Policy> {
    let keep =
        prop::sample::select(vec!["messages(0)", "messages(1)", "messages(3)", "turns(1)", "tokens(40)"]);
    let named = prop::sample::select(vec!["recent", "mask", "summarize", "amortized", "pipeline"]);
    (named, keep, 0..3usize, prop::bool::weighted(0.2)).prop_map(|(name, keep, keep_first, system)| Policy {
        strategy: match name {
            "pipeline" => format!("pipeline(mask({keep}), summarize({keep}))"),
            name => format!("{name}({keep})"),
        }
        .parse()
        .unwrap(),
        worth: Fraction::new(0.01).unwrap(),
        keep_first,
        summary_role: if system { SummaryRole::System } else { SummaryRole::User },
        ..Policy::default()
    })
}

/// The list that a forced step gives; none where it does nothing.
pub(crate) fn condensed(body: &Body, policy: &Policy, press: Press) -> Option<Vec<Message>> {
    let (messages, counter) = (body.messages(), counter());
    let mut list = List::default();
    list.advance(messages, &counter);
    let facts = RequestFacts { force: Some(press), ..RequestFacts::at(Timestamp(0)) };
    match list.decide(messages, policy, &facts, &counter) {
        Decision::Unchanged(_) => return None,
        Decision::Apply(done) => drop(done.apply(&mut list).ok()?),
        Decision::Summarize(plan) => drop(plan.finish(&mut list, messages, "They spoke.", &counter).ok()?),
    }
    Some(list.shown(messages).into_owned())
}

/// What the provider says of a body; what is a stranger's is not held against us.
fn heard(dialect: Dialect, text: &str) -> Vec<String> {
    let mut body: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    if body.is_array() {
        let messages = dialect.read(&body).unwrap();
        body = match dialect.name() {
            "anthropic" => Value::Object(restore_body(dialect, &messages)),
            "responses" => json!({ "input": body }),
            _ => json!({ "messages": body }),
        };
    }
    let fields = body.as_object_mut().unwrap();
    for key in ["messages", "input"] {
        if let Some(list) = fields.get_mut(key).and_then(Value::as_array_mut) {
            *list = std::mem::take(list).into_iter().filter_map(|wire| common(dialect, wire)).collect();
        }
    }
    let mut heard = complaints(dialect, fields);
    // Fields of strangers' stay with what they came with.
    let strange = ["x_", "reasoning", "function_call", "annotations", "status", "detail", "custom"];
    heard.retain(|complaint| {
        let field = complaint.split_once("unknown field: ").map(|(_, field)| field);
        field.is_none_or(|field| !strange.iter().any(|start| field.starts_with(start)))
    });
    heard
}

/// A wire message as the judges know it: without kinds that are strangers', and calls of all kinds as functions.
fn common(dialect: Dialect, mut wire: Value) -> Option<Value> {
    let kind = wire["type"].as_str().unwrap_or_default().to_owned();
    let fields = wire.as_object_mut()?;
    let known: &[&str] = match dialect.name() {
        "openai" => &["text", "image_url", "input_audio", "file"],
        "responses" => &["input_text", "output_text", "input_image", "input_file"],
        _ => &["text", "image", "document", "tool_use", "tool_result", "thinking", "redacted_thinking"],
    };
    if let Some(pieces) = fields.get_mut("content").and_then(Value::as_array_mut) {
        let strange = |piece: &Value| !known.contains(&piece["type"].as_str().unwrap_or_default());
        for piece in pieces.iter_mut() {
            if strange(piece) {
                let word = if dialect == Dialect::RESPONSES { "input_text" } else { "text" };
                *piece = json!({ "type": word, "text": "strange" });
            }
            if let Some(inner) = piece.get_mut("content").and_then(Value::as_array_mut) {
                inner.retain(|piece| !strange(piece));
            }
        }
    }
    if dialect == Dialect::RESPONSES {
        if let Some(Value::Array(pieces)) = fields.get("content").cloned() {
            // Only its own side says it so.
            let word =
                if fields.get("role") == Some(&json!("assistant")) { "output_text" } else { "input_text" };
            let pieces = pieces.into_iter().map(|mut piece| {
                if piece["text"].is_string() {
                    piece["type"] = json!(word);
                }
                piece
            });
            fields.insert("content".to_owned(), pieces.collect());
        }
        // One of them is named otherwise.
        let by = if kind == "local_shell_call_output" && !fields.contains_key("call_id") {
            "id"
        } else {
            "call_id"
        };
        let call = fields.get(by).cloned().unwrap_or_default();
        match kind.as_str() {
            "" | "message" | "reasoning" | "function_call" | "function_call_output" => {}
            kind if kind.ends_with("_output") && call.is_string() => {
                return Some(json!({ "type": "function_call_output", "call_id": call, "output": "" }));
            }
            kind if kind.ends_with("_call") && call.is_string() => {
                return Some(
                    json!({ "type": "function_call", "call_id": call, "name": "f", "arguments": "{}" }),
                );
            }
            _ => return None,
        }
    }
    if dialect == Dialect::OPENAI {
        common_chat(fields);
    }
    Some(wire)
}

fn common_chat(fields: &mut Map<String, Value>) {
    let mut calls = fields.get("tool_calls").and_then(Value::as_array).cloned();
    for call in calls.iter_mut().flatten() {
        match call["type"].as_str() {
            Some("custom") => call["function"] = json!({ "name": "f", "arguments": "{}" }),
            Some("function") => {}
            None if call["function"].is_object() => {}
            _ => call["function"] = json!({ "name": "f", "arguments": "{}" }),
        }
        call["type"] = json!("function");
        if call["function"]["arguments"].is_object() {
            call["function"]["arguments"] = json!("{}");
        }
    }
    if let Some(called) = fields.get("function_call").filter(|called| called.is_object()) {
        let call = json!({ "id": called["name"], "type": "function", "function": called });
        calls.get_or_insert_default().push(call);
    }
    if let Some(calls) = calls {
        fields.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    let told = fields.contains_key("audio") || fields.contains_key("refusal");
    if told && fields.get("content").is_none_or(Value::is_null) {
        fields.insert("content".to_owned(), json!("spoken"));
    }
    if fields.get("role") == Some(&json!("function")) {
        let id = fields.shift_remove("name").unwrap_or_default();
        fields.insert("role".to_owned(), json!("tool"));
        fields.insert("tool_call_id".to_owned(), id);
    }
}

/// A drawn history on this wire, as its client holds it: nothing about it is mended.
pub(crate) fn wired(dialect: Dialect, mut messages: Vec<Message>) -> String {
    for message in &mut messages {
        message.wire = None;
        if message.role == Role::Peer {
            message.role = Role::User;
        }
        // A system prompt that nobody takes is not ours to mend.
        if message.role.is_system() {
            message.parts.retain(|part| matches!(part, Part::Text { text } if !text.trim().is_empty()));
        }
    }
    messages.retain(|message| !(message.role.is_system() && message.parts.is_empty()));
    let mut fields = restore_body(dialect, &messages);
    // What a message of ours may hold and none of theirs can is not sent by anybody.
    for key in ["messages", "input"] {
        if let Some(list) = fields.get_mut(key).and_then(Value::as_array_mut) {
            list.retain(|wire| dialect.read(&json!([wire])).is_ok());
        }
    }
    fields.insert("model".to_owned(), json!("m"));
    Value::Object(fields).to_string()
}

/// What is said in a message, as far as it must stay.
fn words(messages: &[Message]) -> Vec<String> {
    let said = messages.iter().flat_map(|message| &message.parts).filter_map(|part| match part {
        Part::Text { text } if !text.trim().is_empty() => Some(text.trim().to_owned()),
        _ => None,
    });
    said.collect()
}

/// What every output must hold: standing orders at the head, what is pinned, the user's last words, open calls.
fn check_stays(body: &Body, again: &Body) -> Result<(), TestCaseError> {
    let own = body.messages();
    let is_no_summary = |message: &&Message| view::recognise(message).is_none();
    // What comes after a summary is not at the head, also where the summary is the system's.
    let head = own.iter().take_while(|message| message.role.is_system() && is_no_summary(message));
    let pinned = own.iter().filter(|message| message.pinned && message.role != Role::Tool);
    let speaks = |part: &Part| match part {
        Part::Text { text } => !text.trim().is_empty(),
        part => matches!(part, Part::Media(_)),
    };
    let said = |message: &&Message| message.role.is_user() && message.parts.iter().any(speaks);
    let last = own.iter().rfind(said);
    let must: Vec<Message> = head.chain(pinned).chain(last).filter(is_no_summary).cloned().collect();
    let there = words(again.messages());
    for word in words(&must).iter().filter(|word| **word != view::NOTE) {
        let found = there.iter().any(|said| said == word || said.ends_with(word.as_str()));
        prop_assert!(found, "{:?} is not in {}", word, again.text());
    }
    Ok(())
}

/// What is pinned, but for replies: those that were logged in pieces are one, and so is their pin.
fn pins(body: &Body) -> Vec<String> {
    let pinned = body.messages().iter().filter(|message| message.pinned && message.role != Role::Assistant);
    let pinned: Vec<Message> = pinned.cloned().collect();
    let mut said = words(&pinned);
    said.sort();
    said.dedup();
    said
}

/// Whether fields of ours stand where we put them: on a message, and on Anthropic's blocks. What somebody calls so within
/// a field of their own is theirs.
fn has_flags(dialect: Dialect, text: &str) -> bool {
    let body: Value = serde_json::from_str(text).unwrap();
    let list = ["messages", "input"].iter().find_map(|key| body.get(key)).unwrap_or(&body);
    let items = list.as_array().into_iter().flatten();
    let blocks = items.clone().filter_map(|item| item.get("content")?.as_array()).flatten();
    let blocks = blocks.filter(|_| dialect == Dialect::ANTHROPIC);
    items.chain(blocks).any(|value| value.get("epitome").is_some())
}

fn check(dialect: Dialect, text: &str, policy: &Policy, press: Press) -> Result<(), TestCaseError> {
    let body = Body::read(text, Some(dialect)).unwrap();
    let Some(shown) = condensed(&body, policy, press) else { return Ok(()) };
    let out = body.with_messages(&shown, OwnFields::Strip);
    let heard = heard(dialect, &out);
    prop_assert_eq!(heard, Vec::<String>::new(), "{}: {}\n of {}", dialect, out, text);
    let kept = Body::read(&body.with_messages(&shown, OwnFields::Keep), Some(dialect)).unwrap();
    check_stays(&body, &kept)?;
    // A pin stays where it is.
    for pin in pins(&kept) {
        let known = pins(&body).iter().any(|known| pin.ends_with(known.as_str()) || known.ends_with(&pin));
        prop_assert!(known || pin.starts_with('['), "{:?} is pinned in {}\n of {}", pin, kept.text(), text);
    }
    let summaries = |messages: &[Message]| messages.iter().filter_map(view::recognise).collect::<Vec<_>>();
    prop_assert_eq!(summaries(&shown), summaries(kept.messages()), "{}", kept.text());
    let bare = kept.without_own_fields();
    prop_assert!(!has_flags(dialect, &bare), "{} of {}", bare, kept.text());
    // What is read again and written again is the same.
    let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    prop_assert_eq!(value(&kept.without_own_fields()), value(&out), "{}", kept.text());
    Ok(())
}

pub(crate) fn press() -> impl Strategy<Value = Press> {
    prop::sample::select(vec![Press::Gently, Press::Hard])
}

proptest! {
    #![proptest_config(config(2_000))]

    #[test]
    fn every_condensed_request_is_taken(drawn in session(), odds in odds(), policy in policies(), press in press()) {
        for dialect in FOREIGN {
            check(dialect, &wired(dialect, odder(drawn.messages(), &odds)), &policy, press)?;
        }
    }

    #[test]
    fn every_condensed_list_of_strange_messages_is_taken(
        chat in prop::collection::vec(chat(), 1..14), responses in prop::collection::vec(responses(), 1..16),
        anthropic in prop::collection::vec(anthropic(), 1..14), policy in policies(), press in press(),
        bare in any::<bool>(),
    ) {
        for (dialect, list) in FOREIGN.into_iter().zip([chat, responses, anthropic]) {
            let list: Vec<Value> =
                list.into_iter().filter(|wire| dialect.read(&json!([wire])).is_ok()).collect();
            let key = if dialect == Dialect::RESPONSES { "input" } else { "messages" };
            let text = if bare { json!(list).to_string() } else { json!({ key: list, "x": 1 }).to_string() };
            check(dialect, &text, &policy, press)?;
        }
    }

    #[test]
    fn what_is_not_condensed_is_given_back(
        chat in prop::collection::vec(chat(), 1..8), responses in prop::collection::vec(responses(), 1..8),
        anthropic in prop::collection::vec(anthropic(), 1..8),
    ) {
        for (dialect, list) in FOREIGN.into_iter().zip([chat, responses, anthropic]) {
            let list: Vec<Value> =
                list.into_iter().filter(|wire| dialect.read(&json!([wire])).is_ok()).collect();
            let text = serde_json::to_string_pretty(&list).unwrap();
            let body = Body::read(&text, Some(dialect)).unwrap();
            prop_assert_eq!(body.text(), text.as_str());
            for marks in [OwnFields::Keep, OwnFields::Strip] {
                let read = Body::read(&body.with_messages(body.messages(), marks), Some(dialect));
                prop_assert!(read.is_ok(), "{:?}: {}", read, text);
            }
        }
    }
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn requests_are_condensed_again_and_again(
        drawn in prop::collection::vec(session(), 5), odds in odds(), policies in prop::collection::vec(policies(), 5),
    ) {
        for dialect in FOREIGN {
            let mut text = wired(dialect, odder(drawn[0].messages(), &odds));
            for (pass, policy) in policies.iter().enumerate() {
                check(dialect, &text, policy, Press::Gently)?;
                let body = Body::read(&text, Some(dialect)).unwrap();
                let Some(shown) = condensed(&body, policy, Press::Gently) else { continue };
                let kept = body.with_messages(&shown, OwnFields::Keep);
                let again = Body::read(&kept, Some(dialect)).unwrap();
                let summaries = again.messages().iter().filter(|message| view::recognise(message).is_some());
                prop_assert!(summaries.count() <= 1, "{}", kept);
                let more = drawn.get(pass + 1).map(Drawn::messages).unwrap_or_default();
                let more = more.into_iter().filter(|message| !message.role.is_system()).collect();
                text = grown(dialect, &kept, &odder(more, &odds));
            }
        }
    }

    #[test]
    fn a_condensed_request_that_grows_keeps_its_beginning(
        drawn in session(), later in session(), odds in odds(), policy in policies(),
    ) {
        for dialect in FOREIGN {
            let first = wired(dialect, odder(drawn.messages(), &odds));
            let more = later.messages().into_iter().filter(|message| !message.role.is_system());
            let whole = grown(dialect, &first, &odder(more.collect(), &odds));
            let (before, counter) = (Body::read(&first, Some(dialect)).unwrap(), counter());
            let mut list = List::default();
            list.advance(before.messages(), &counter);
            let facts = RequestFacts { force: Some(Press::Gently), ..RequestFacts::at(Timestamp(0)) };
            match list.decide(before.messages(), &policy, &facts, &counter) {
                Decision::Unchanged(_) => continue,
                Decision::Apply(done) => drop(done.apply(&mut list)),
                Decision::Summarize(plan) => drop(plan.finish(&mut list, before.messages(), "They spoke.", &counter)),
            }
            let short = list.shown(before.messages()).into_owned();
            let after = Body::read(&whole, Some(dialect)).unwrap();
            // A reply of Responses may go on, and then it is another message.
            let same = before.messages().len();
            if list.state().rounds == 0 || before.messages() != &after.messages()[..same] {
                continue;
            }
            list.advance(after.messages(), &counter);
            let long = list.shown(after.messages()).into_owned();
            // Calls that were open may be answered meanwhile.
            let steady = short.iter().zip(&long).take_while(|(short, long)| short == long).count();
            let short = before.with_messages(&short[..steady], OwnFields::Strip);
            let long = after.with_messages(&long, OwnFields::Strip);
            let texts = |text: &str| -> Vec<String> {
                let body: Map<String, Value> = serde_json::from_str(text).unwrap();
                let list = body.get("messages").or(body.get("input")).unwrap().as_array().unwrap();
                list.iter().map(Value::to_string).collect()
            };
            let (short, long) = (texts(&short), texts(&long));
            // The last may be merged with what comes.
            let steady = short.len().saturating_sub(usize::from(dialect == Dialect::ANTHROPIC));
            prop_assert_eq!(&short[..steady], &long[..steady], "{}", dialect);
        }
    }
}

#[test]
fn conversations_are_condensed_again_and_again() {
    for conversation in conversations::all() {
        for dialect in FOREIGN {
            for strategy in
                ["summarize(messages(2))", "amortized", "pipeline(mask(messages(2)), summarize(turns(1)))"]
            {
                let policy = Policy { strategy: strategy.parse().unwrap(), ..Policy::default() };
                let step = conversation.messages.len() / 5;
                let mut messages = conversation.messages[..step].to_vec();
                messages[1].pinned = true;
                let mut text = wired(dialect, messages);
                let first = Body::read(&text, None).unwrap();
                for round in 1..=5 {
                    let body = Body::read(&text, Some(dialect)).unwrap();
                    let shown =
                        condensed(&body, &policy, Press::Hard).unwrap_or_else(|| body.messages().to_vec());
                    assert_eq!(
                        heard(dialect, &body.with_messages(&shown, OwnFields::Strip)),
                        Vec::<String>::new()
                    );
                    let kept = body.with_messages(&shown, OwnFields::Keep);
                    let again = Body::read(&kept, Some(dialect)).unwrap();
                    assert_eq!(pins(&again), pins(&first), "{dialect}, {strategy}, round {round}: {kept}");
                    let summaries =
                        again.messages().iter().filter(|message| view::recognise(message).is_some());
                    assert!(summaries.count() <= 1, "{kept}");
                    let more = &conversation.messages
                        [round * step..((round + 1) * step).min(conversation.messages.len())];
                    text = grown(dialect, &kept, more);
                }
            }
        }
    }
}

/// The request with more at its end, as a client adds it.
pub(crate) fn grown(dialect: Dialect, text: &str, more: &[Message]) -> String {
    let mut body: Value = serde_json::from_str(text).unwrap();
    let key = if dialect == Dialect::RESPONSES { "input" } else { "messages" };
    let mut more: Value = serde_json::from_str(&wired(dialect, more.to_vec())).unwrap();
    let more = std::mem::take(more[key].as_array_mut().unwrap());
    body[key].as_array_mut().unwrap().extend(more);
    body.to_string()
}
