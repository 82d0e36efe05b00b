//! OpenAI's chat completions: a flat list, in which tool results directly follow the reply with the calls.

use std::collections::HashSet;

use epitome_core::message::{Media, MediaSource, Message, Part, Role};
use serde_json::{Map, Value, json};

use super::{
    Complaints, Spelled, address, answer_in_words, is_blank, is_json_object, is_picture, is_plain, objects,
    safe_id, str_of, unspelled,
};

/// The rules that complaints contain.
pub const RULES: &[&str] = &[
    "messages must be a list that is not empty",
    "a message must be an object",
    "unknown role",
    "unknown field",
    "unknown kind of content",
    "content is empty or blank",
    "content may be null only with tool_calls",
    "no user message",
    "name has letters that are not allowed",
    "tool_calls must not be empty",
    "a call is not a function",
    "id is longer than 40",
    "id is used twice",
    "function name has letters that are not allowed",
    "arguments are not a JSON object",
    "no such call in the reply directly before",
    "is answered twice",
    "no answer before the next message",
];

/// Maximum length of an id, in characters. The provider rejects a longer id: "Expected a string with maximum length
/// 40".
const LONGEST_ID: usize = 40;

pub fn spell(list: &[Message]) -> Spelled {
    let (mut messages, mut left) = (Vec::new(), Vec::new());
    for message in list {
        let mut unable = |part: &Part| left.push(unspelled(message, part));
        let (mut content, mut calls) = (Vec::new(), Vec::new());
        for part in &message.parts {
            match part {
                Part::Text { text } if message.role != Role::Tool => {
                    content.push(json!({ "type": "text", "text": text }));
                }
                Part::Media(found) if message.role.is_user() => match media(found) {
                    Some(found) => content.push(found),
                    None => unable(part),
                },
                // The chat format has no field for reasoning.
                Part::Thinking { .. } if message.role == Role::Assistant => {}
                Part::ToolCall(call) if message.role == Role::Assistant => calls.push(json!({
                    "id": safe_id(&call.id, LONGEST_ID),
                    "type": "function",
                    "function": { "name": call.name, "arguments": call.arguments },
                })),
                Part::ToolResult(result) if message.role == Role::Tool => messages.push(json!({
                    "role": "tool",
                    "tool_call_id": safe_id(&result.call, LONGEST_ID),
                    "content": answer_in_words(result),
                })),
                _ => unable(part),
            }
        }
        if message.role == Role::Tool {
            if message.parts.is_empty() {
                left.push(format!("message {}: cannot be spelled: no parts", message.seq));
            }
            continue;
        }
        let role = if message.role == Role::Peer { Role::User } else { message.role };
        let mut spelled = Map::new();
        spelled.insert("role".to_owned(), json!(role.to_string()));
        let content = match content.as_slice() {
            [] if role == Role::Assistant => Value::Null,
            [one] if one["type"] == "text" => one["text"].clone(),
            _ => Value::Array(content),
        };
        spelled.insert("content".to_owned(), content);
        if let Some(author) = &message.author {
            spelled.insert("name".to_owned(), json!(safe_id(author, 64)));
        }
        if !calls.is_empty() {
            spelled.insert("tool_calls".to_owned(), Value::Array(calls));
        }
        messages.push(Value::Object(spelled));
    }
    Spelled { body: json!({ "messages": messages }), unspelled: left }
}

fn media(media: &Media) -> Option<Value> {
    if is_picture(media) {
        return Some(json!({ "type": "image_url", "image_url": { "url": address(media)? } }));
    }
    match &media.source {
        MediaSource::Base64(_) => Some(json!({ "type": "file", "file": { "file_data": address(media)? } })),
        MediaSource::File(id) => Some(json!({ "type": "file", "file": { "file_id": id } })),
        MediaSource::Url(_) => None,
    }
}

/// Returns a complaint for each error that the provider would reject in the `messages` of this body.
pub fn complaints(body: &Value) -> Vec<String> {
    let mut out = Complaints::new(RULES);
    let messages = objects(&body["messages"]);
    if messages.is_empty() {
        out.add("body", "messages must be a list that is not empty", &body["messages"]);
        return out.out;
    }
    if !messages.iter().any(|message| str_of(message, "role") == "user") {
        out.add("body", "no user message", messages.len());
    }
    let mut pairs = Pairs::default();
    for (at, message) in messages.iter().enumerate() {
        let place = format!("messages[{at}]");
        if message.is_empty() {
            out.add(&place, "a message must be an object", &body["messages"][at]);
        }
        let role = str_of(message, "role");
        let allowed: &[&str] = match role {
            "system" | "developer" | "user" => &["role", "content", "name"],
            "assistant" => &["role", "content", "name", "tool_calls", "refusal", "audio"],
            "tool" => &["role", "content", "tool_call_id"],
            _ => {
                out.add(&place, "unknown role", role);
                continue;
            }
        };
        out.fields(&place, message, allowed);
        check_content(&mut out, &place, message);
        if let Some(name) = message.get("name")
            && !name.as_str().is_some_and(|name| is_plain(name, 64))
        {
            out.add(&place, "name has letters that are not allowed", name);
        }
        if role == "tool" {
            pairs.answer(&mut out, &place, str_of(message, "tool_call_id"));
            continue;
        }
        pairs.close(&mut out, &place);
        if let Some(calls) = message.get("tool_calls") {
            if objects(calls).is_empty() {
                out.add(&place, "tool_calls must not be empty", calls);
            }
            for call in objects(calls) {
                check_call(&mut out, &place, &call, &mut pairs);
            }
        }
    }
    out.out
}

/// Checks a stricter rule, which only some servers with this wire format have: system messages must be at the start
/// of the list. OpenAI itself accepts system messages at any position, so a later system message stays in its
/// position. Use this check only for dialects of such servers, not for all lists.
pub fn system_not_first(body: &Value) -> Vec<String> {
    let messages = objects(&body["messages"]);
    let is_system = |message: &Map<String, Value>| matches!(str_of(message, "role"), "system" | "developer");
    let later = messages.iter().enumerate().skip_while(|(_, message)| is_system(message));
    let late = later.filter(|(_, message)| is_system(message));
    late.map(|(at, _)| format!("messages[{at}]: system is not first")).collect()
}

fn check_content(out: &mut Complaints, place: &str, message: &Map<String, Value>) {
    let role = str_of(message, "role");
    match message.get("content") {
        None | Some(Value::Null) if role == "assistant" => {
            if !message.contains_key("tool_calls") {
                out.add(place, "content may be null only with tool_calls", role);
            }
        }
        // A tool result may have an empty text. A reply that calls a tool may have an empty text too.
        Some(Value::String(text)) if text.is_empty() && message.contains_key("tool_calls") => {}
        Some(Value::String(text)) if role == "tool" || !is_blank(text) => {}
        Some(Value::Array(pieces)) if !pieces.is_empty() => {
            for piece in pieces {
                let kind = piece["type"].as_str().unwrap_or("");
                let at_home = match kind {
                    "text" => true,
                    "image_url" | "input_audio" | "file" => role == "user",
                    "refusal" => role == "assistant",
                    _ => false,
                };
                if !at_home || piece[kind].is_null() {
                    out.add(place, "unknown kind of content", format!("{kind} from {role}"));
                }
                if kind == "text" && piece["text"].as_str().is_none_or(is_blank) {
                    out.add(place, "content is empty or blank", role);
                }
            }
        }
        _ => out.add(place, "content is empty or blank", role),
    }
}

fn check_call(out: &mut Complaints, place: &str, call: &Map<String, Value>, pairs: &mut Pairs) {
    let id = str_of(call, "id");
    out.fields(place, call, &["id", "type", "function"]);
    let function = call.get("function").and_then(Value::as_object).cloned().unwrap_or_default();
    out.fields(place, &function, &["name", "arguments"]);
    if str_of(call, "type") != "function" {
        out.add(place, "a call is not a function", id);
    }
    if id.is_empty() || id.chars().count() > LONGEST_ID {
        out.add(place, "id is longer than 40", format!("or empty: `{id}`"));
    }
    if !pairs.seen.insert(id.to_owned()) {
        out.add(place, "id is used twice", id);
    }
    if !is_plain(str_of(&function, "name"), 64) {
        out.add(place, "function name has letters that are not allowed", str_of(&function, "name"));
    }
    if !is_json_object(str_of(&function, "arguments")) {
        out.add(place, "arguments are not a JSON object", id);
    }
    pairs.waiting.push(id.to_owned());
}

/// The calls of the newest reply: the calls that wait for a result, and the calls that have a result.
#[derive(Default)]
struct Pairs {
    seen: HashSet<String>,
    waiting: Vec<String>,
    answered: Vec<String>,
}

impl Pairs {
    fn answer(&mut self, out: &mut Complaints, place: &str, id: &str) {
        if let Some(found) = self.waiting.iter().position(|waiting| waiting == id) {
            self.answered.push(self.waiting.remove(found));
        } else if self.answered.iter().any(|answered| answered == id) {
            out.add(place, "is answered twice", id);
        } else {
            out.add(place, "no such call in the reply directly before", id);
        }
    }

    /// Reports each call without a result. This function is called at each message that is not a tool result. It is
    /// not called at the end of the list, because calls may be without a result there.
    fn close(&mut self, out: &mut Complaints, place: &str) {
        for id in self.waiting.drain(..) {
            out.add(place, "no answer before the next message", id);
        }
        self.answered.clear();
    }
}
