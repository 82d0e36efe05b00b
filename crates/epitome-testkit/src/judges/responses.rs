//! OpenAI's Responses: a flat list of items. A reply may consist of several items.

use std::collections::{HashMap, HashSet};

use epitome_core::message::{Media, MediaSource, Message, Part, Role};
use serde_json::{Map, Value, json};

use super::{
    Complaints, Spelled, address, answer_in_words, is_blank, is_json_object, is_picture, is_plain, objects,
    safe_id, str_of, unspelled,
};

/// The rules that complaints contain.
pub const RULES: &[&str] = &[
    "input must be a list that is not empty",
    "unknown item",
    "unknown role",
    "unknown field",
    "unknown kind of content",
    "content is empty or blank",
    "no user message",
    "call_id is longer than 64",
    "call_id is used twice",
    "item id is used twice",
    "item id must begin with",
    "function name has letters that are not allowed",
    "arguments are not a JSON object",
    "output is not text",
    "no function_call before this output",
    "has a second output",
    "no output for this function_call",
    "reasoning without its following item",
];

const LONGEST_ID: usize = 64;

pub fn spell(list: &[Message]) -> Spelled {
    let (mut input, mut left) = (Vec::new(), Vec::new());
    for message in list {
        let role = if message.role == Role::Peer { Role::User } else { message.role };
        // Consecutive text and media become one item. A call, a result or reasoning becomes an item of its own.
        let mut content: Vec<Value> = Vec::new();
        for part in &message.parts {
            let mut item = None;
            match part {
                Part::Text { text } if role == Role::Assistant => {
                    content.push(json!({ "type": "output_text", "text": text }));
                }
                Part::Text { text } if role != Role::Tool => {
                    content.push(json!({ "type": "input_text", "text": text }));
                }
                Part::Media(found) if role == Role::User => match media(found) {
                    Some(found) => content.push(found),
                    None => left.push(unspelled(message, part)),
                },
                Part::Thinking { text, signature, .. } if role == Role::Assistant => {
                    item = Some(json!({
                        "type": "reasoning",
                        "id": format!("rs_{}", input.len()),
                        "summary": [{ "type": "summary_text", "text": text }],
                        "encrypted_content": signature,
                    }));
                }
                Part::ToolCall(call) if role == Role::Assistant => {
                    let mut spelled = json!({
                        "type": "function_call",
                        "call_id": safe_id(&call.id, LONGEST_ID),
                        "name": call.name,
                        "arguments": call.arguments,
                    });
                    if let Some(id) = &call.item_id {
                        let id = if id.starts_with("fc") { id.to_string() } else { format!("fc_{id}") };
                        spelled["id"] = json!(safe_id(&id, LONGEST_ID));
                    }
                    item = Some(spelled);
                }
                Part::ToolResult(result) if matches!(role, Role::Tool | Role::User) => {
                    item = Some(json!({
                        "type": "function_call_output",
                        "call_id": safe_id(&result.call, LONGEST_ID),
                        "output": answer_in_words(result),
                    }));
                }
                _ => left.push(unspelled(message, part)),
            }
            if let Some(item) = item {
                if !content.is_empty() {
                    input.push(said(role, &std::mem::take(&mut content)));
                }
                input.push(item);
            }
        }
        if !content.is_empty() {
            input.push(said(role, &content));
        }
        if message.parts.is_empty() {
            left.push(format!("message {}: cannot be spelled: no parts", message.seq));
        }
    }
    Spelled { body: json!({ "input": input }), unspelled: left }
}

fn said(role: Role, content: &[Value]) -> Value {
    json!({ "type": "message", "role": role.to_string(), "content": content })
}

fn media(media: &Media) -> Option<Value> {
    let kind = if is_picture(media) { "image" } else { "file" };
    let mut out = json!({ "type": format!("input_{kind}") });
    match &media.source {
        MediaSource::File(id) => out["file_id"] = json!(id),
        MediaSource::Base64(_) if kind == "file" => out["file_data"] = json!(address(media)?),
        MediaSource::Base64(_) | MediaSource::Url(_) => out[format!("{kind}_url")] = json!(address(media)?),
    }
    Some(out)
}

/// Returns a complaint for each error that the provider would reject in the `input` of this body.
pub fn complaints(body: &Value) -> Vec<String> {
    let mut out = Complaints::new(RULES);
    let items = objects(&body["input"]);
    if items.is_empty() {
        out.add("body", "input must be a list that is not empty", &body["input"]);
        return out.out;
    }
    if !items.iter().any(|item| str_of(item, "role") == "user") {
        out.add("body", "no user message", items.len());
    }
    let mut ids = HashSet::new();
    // The position of each call in the list, and the number of its results so far.
    let mut calls: HashMap<String, (usize, u32)> = HashMap::new();
    for (at, item) in items.iter().enumerate() {
        let place = format!("input[{at}]");
        let mut kind = str_of(item, "type");
        // The item of a message may have no type.
        if !item.contains_key("type") && item.contains_key("role") {
            kind = "message";
        }
        let (allowed, start): (&[&str], _) = match kind {
            "message" => (&["type", "role", "content", "id", "status"], "msg"),
            "reasoning" => (&["type", "id", "summary", "content", "encrypted_content", "status"], "rs"),
            "function_call" => (&["type", "call_id", "name", "arguments", "id", "status"], "fc"),
            "function_call_output" => (&["type", "call_id", "output", "id", "status"], "fc"),
            _ => {
                out.add(&place, "unknown item", kind);
                continue;
            }
        };
        out.fields(&place, item, allowed);
        if let Some(id) = item.get("id") {
            if !id.as_str().is_some_and(|id| id.starts_with(start) && is_plain(id, LONGEST_ID)) {
                out.add(&place, "item id must begin with", format!("{start}, and be plain: {id}"));
            }
            if !ids.insert(id.to_string()) {
                out.add(&place, "item id is used twice", id);
            }
        }
        check_item(&mut out, &items, (at, kind), &mut calls);
    }
    let last_reply = start_of_last_reply(&items);
    for (call, (at, _)) in calls.iter().filter(|(_, (at, answers))| *answers == 0 && *at < last_reply) {
        out.add(format!("input[{at}]"), "no output for this function_call", call);
    }
    out.out
}

/// Checks the content of the item at this position. The names of the fields are not checked here.
fn check_item(
    out: &mut Complaints,
    items: &[Map<String, Value>],
    (at, kind): (usize, &str),
    calls: &mut HashMap<String, (usize, u32)>,
) {
    let (item, place) = (&items[at], format!("input[{at}]"));
    let call = str_of(item, "call_id");
    match kind {
        "message" => check_message(out, &place, item),
        "reasoning" => {
            let next = items[at + 1..].iter().find(|item| str_of(item, "type") != "reasoning");
            let goes_on = next.is_some_and(|next| {
                str_of(next, "type") == "function_call" || str_of(next, "role") == "assistant"
            });
            if !goes_on {
                out.add(&place, "reasoning without its following item", str_of(item, "id"));
            }
        }
        "function_call" => {
            if call.is_empty() || call.chars().count() > LONGEST_ID {
                out.add(&place, "call_id is longer than 64", format!("or empty: `{call}`"));
            }
            if calls.insert(call.to_owned(), (at, 0)).is_some() {
                out.add(&place, "call_id is used twice", call);
            }
            if !is_plain(str_of(item, "name"), 64) {
                out.add(&place, "function name has letters that are not allowed", str_of(item, "name"));
            }
            if !is_json_object(str_of(item, "arguments")) {
                out.add(&place, "arguments are not a JSON object", call);
            }
        }
        _ => {
            if !item.get("output").is_some_and(is_output) {
                out.add(&place, "output is not text", call);
            }
            match calls.get_mut(call) {
                None => out.add(&place, "no function_call before this output", call),
                Some((_, answers)) => {
                    *answers += 1;
                    if *answers > 1 {
                        out.add(&place, "has a second output", call);
                    }
                }
            }
        }
    }
}

/// Returns whether a tool output is text, or a list of pieces that a user message may contain.
fn is_output(output: &Value) -> bool {
    let allowed = |piece: &Map<String, Value>| match str_of(piece, "type") {
        "input_text" => !is_blank(str_of(piece, "text")),
        kind => matches!(kind, "input_image" | "input_file"),
    };
    output.is_string()
        || (output.as_array().is_some_and(|pieces| !pieces.is_empty()) && objects(output).iter().all(allowed))
}

/// Returns the position of the first item of the last reply, if only outputs come after the reply. The calls of such
/// a reply may still be without an output. A reply is a sequence of items from the model. If there is no such reply,
/// returns the length of the list.
fn start_of_last_reply(items: &[Map<String, Value>]) -> usize {
    let kind = |at: usize| str_of(&items[at], "type");
    let own = |at: usize| {
        matches!(kind(at), "reasoning" | "function_call") || str_of(&items[at], "role") == "assistant"
    };
    let mut at = items.len();
    while at > 0 && kind(at - 1) == "function_call_output" {
        at -= 1;
    }
    if at == 0 || !own(at - 1) {
        return items.len();
    }
    while at > 0 && own(at - 1) {
        at -= 1;
    }
    at
}

fn check_message(out: &mut Complaints, place: &str, item: &Map<String, Value>) {
    let role = str_of(item, "role");
    let (words, others): (&str, &[&str]) = match role {
        "system" | "developer" => ("input_text", &[]),
        "user" => ("input_text", &["input_image", "input_file"]),
        "assistant" => ("output_text", &["refusal"]),
        _ => return out.add(place, "unknown role", role),
    };
    if item.get("content").and_then(Value::as_str).is_some_and(|text| !is_blank(text)) {
        return;
    }
    let pieces = item.get("content").map(objects).unwrap_or_default();
    if pieces.is_empty() {
        out.add(place, "content is empty or blank", role);
    }
    for piece in pieces {
        let kind = str_of(&piece, "type");
        if kind == words {
            out.fields(place, &piece, &["type", "text", "annotations"]);
            if is_blank(str_of(&piece, "text")) {
                out.add(place, "content is empty or blank", role);
            }
        } else if !others.contains(&kind) {
            out.add(place, "unknown kind of content", format!("{kind} from {role}"));
        }
    }
}
