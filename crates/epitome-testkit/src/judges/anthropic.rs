//! Anthropic's Messages: two roles that alternate. Each message is a list of blocks.

use std::collections::HashSet;

use epitome_core::message::{Content, Media, MediaSource, Message, Part, Role};
use serde_json::{Map, Value, json};

use super::{
    Complaints, Spelled, is_blank, is_picture, is_plain, objects, safe_id, str_of, unspelled, value_of,
};

/// The rules that complaints contain.
pub const RULES: &[&str] = &[
    "messages must be a list that is not empty",
    "system must be text",
    "the first message must be from the user",
    "roles must alternate",
    "unknown role",
    "no system role inside messages",
    "unknown field",
    "unknown block",
    "content is empty",
    "text block is blank",
    "id has letters that are not allowed",
    "id is used twice",
    "tool name has letters that are not allowed",
    "input is not an object",
    "no tool_result right after",
    "tool_result without its tool_use right before",
    "tool_use has a second tool_result",
    "tool_result must come first",
    "thinking without a signature",
    "thinking must come first",
    "thinking must not be last",
    "a turn must begin with its thinking",
    "final text ends with whitespace",
    "more than four cache marks",
    "a cache mark is not allowed in this block",
    "a long cache mark after a short cache mark",
];

const LONGEST_ID: usize = 64;

pub fn spell(list: &[Message]) -> Spelled {
    let (mut system, mut messages, mut left) = (Vec::new(), Vec::<Value>::new(), Vec::new());
    for message in list {
        let side = if message.role == Role::Assistant { "assistant" } else { "user" };
        let (mut front, mut rest) = (Vec::new(), Vec::new());
        for part in &message.parts {
            match part {
                Part::Text { text } if message.role != Role::Tool => {
                    rest.push(json!({ "type": "text", "text": text }));
                }
                Part::Media(media) if message.role.is_user() => rest.push(block(media)),
                Part::Thinking { text, signature, .. } if side == "assistant" => {
                    front.push(json!({ "type": "thinking", "thinking": text, "signature": signature }));
                }
                Part::ToolCall(call) if side == "assistant" => rest.push(json!({
                    "type": "tool_use",
                    "id": safe_id(&call.id, LONGEST_ID),
                    "name": call.name,
                    "input": value_of(&call.arguments),
                })),
                Part::ToolResult(result) if matches!(message.role, Role::Tool | Role::User) => {
                    let mut spelled = json!({
                        "type": "tool_result",
                        "tool_use_id": safe_id(&result.call, LONGEST_ID),
                    });
                    // A result may have no content, but it must not contain a blank text.
                    let said = |c: &&Content| !matches!(c, Content::Text { text } if is_blank(text));
                    let content = result.content.iter().filter(said).map(|content| match content {
                        Content::Text { text } => json!({ "type": "text", "text": text }),
                        Content::Media(media) => block(media),
                    });
                    let content: Vec<Value> = content.collect();
                    if !content.is_empty() {
                        spelled["content"] = Value::Array(content);
                    }
                    if result.error {
                        spelled["is_error"] = json!(true);
                    }
                    front.push(spelled);
                }
                _ => left.push(unspelled(message, part)),
            }
        }
        if message.parts.is_empty() {
            left.push(format!("message {}: cannot be spelled: no parts", message.seq));
        }
        if message.role.is_system() && messages.is_empty() {
            system.append(&mut rest);
            continue;
        }
        front.append(&mut rest);
        match messages.last_mut() {
            Some(last) if last["role"] == side => {
                if let Some(blocks) = last["content"].as_array_mut() {
                    blocks.append(&mut front);
                    // Two messages were merged. A merged reply must begin with its reasoning. Results are not moved,
                    // because a wrong position is an error of the list.
                    blocks.sort_by_key(|block| block["type"] != "thinking");
                }
            }
            _ => messages.push(json!({ "role": side, "content": front })),
        }
    }
    let mut body = json!({ "messages": messages });
    if !system.is_empty() {
        body["system"] = Value::Array(system);
    }
    Spelled { body, unspelled: left }
}

fn block(media: &Media) -> Value {
    let source = match &media.source {
        MediaSource::Base64(data) => json!({ "type": "base64", "media_type": media.mime, "data": data }),
        MediaSource::Url(url) => json!({ "type": "url", "url": url }),
        MediaSource::File(id) => json!({ "type": "file", "file_id": id }),
    };
    json!({ "type": if is_picture(media) { "image" } else { "document" }, "source": source })
}

/// Returns a complaint for each error that the provider would reject in the `system` and the `messages` of this body.
pub fn complaints(body: &Value) -> Vec<String> {
    let mut out = Complaints::new(RULES);
    check_system(&mut out, &body["system"]);
    let messages = objects(&body["messages"]);
    if messages.is_empty() {
        out.add("body", "messages must be a list that is not empty", &body["messages"]);
        return out.out;
    }
    if str_of(&messages[0], "role") != "user" {
        out.add("body", "the first message must be from the user", str_of(&messages[0], "role"));
    }
    let contents: Vec<Vec<Map<String, Value>>> = messages.iter().map(blocks).collect();
    let mut ids = HashSet::new();
    for (at, message) in messages.iter().enumerate() {
        let place = format!("messages[{at}]");
        let role = str_of(message, "role");
        match role {
            "user" | "assistant" => {}
            "system" | "developer" => out.add(&place, "no system role inside messages", role),
            _ => out.add(&place, "unknown role", role),
        }
        if at > 0 && str_of(&messages[at - 1], "role") == role {
            out.add(&place, "roles must alternate", role);
        }
        out.fields(&place, message, &["role", "content"]);
        if contents[at].is_empty() {
            out.add(&place, "content is empty", role);
        }
        for block in &contents[at] {
            check_block(&mut out, &place, role, block);
            if is(block, "tool_use") && !ids.insert(str_of(block, "id").to_owned()) {
                out.add(&place, "id is used twice", str_of(block, "id"));
            }
        }
        check_thinking(&mut out, &place, &contents[at]);
        check_pairs(&mut out, at, &contents);
    }
    if let (Some(last), Some(block)) = (messages.last(), contents.last().and_then(|blocks| blocks.last()))
        && str_of(last, "role") == "assistant"
        && is(block, "text")
        && str_of(block, "text").ends_with(char::is_whitespace)
    {
        out.add("body", "final text ends with whitespace", "the last message is a reply");
    }
    out.out
}

fn is(block: &Map<String, Value>, kind: &str) -> bool {
    str_of(block, "type") == kind
}

fn is_thinking(block: &Map<String, Value>) -> bool {
    is(block, "thinking") || is(block, "redacted_thinking")
}

/// Returns a message's blocks. A plain string counts as one block.
fn blocks(message: &Map<String, Value>) -> Vec<Map<String, Value>> {
    match message.get("content") {
        Some(Value::String(text)) => objects(&json!([{ "type": "text", "text": text }])),
        Some(content) => objects(content),
        None => Vec::new(),
    }
}

fn check_system(out: &mut Complaints, system: &Value) {
    let good = match system {
        Value::Null => true,
        Value::String(text) => !is_blank(text),
        Value::Array(_) => {
            objects(system).iter().all(|block| is(block, "text") && !is_blank(str_of(block, "text")))
        }
        _ => false,
    };
    if !good {
        out.add("body", "system must be text", system);
    }
}

fn check_block(out: &mut Complaints, place: &str, role: &str, block: &Map<String, Value>) {
    let kind = str_of(block, "type");
    let (home, allowed): (&str, &[&str]) = match kind {
        "text" => (role, &["type", "text", "citations", "cache_control"]),
        "image" => ("user", &["type", "source", "cache_control"]),
        "document" => ("user", &["type", "source", "title", "context", "citations", "cache_control"]),
        "tool_result" => ("user", &["type", "tool_use_id", "content", "is_error", "cache_control"]),
        "tool_use" => ("assistant", &["type", "id", "name", "input", "cache_control"]),
        "thinking" => ("assistant", &["type", "thinking", "signature"]),
        "redacted_thinking" => ("assistant", &["type", "data"]),
        _ => ("nobody", &[]),
    };
    if home != role {
        return out.add(place, "unknown block", format!("{kind} from {role}"));
    }
    out.fields(place, block, allowed);
    match kind {
        "text" if is_blank(str_of(block, "text")) => out.add(place, "text block is blank", role),
        "thinking" if str_of(block, "signature").is_empty() => {
            out.add(place, "thinking without a signature", str_of(block, "thinking"));
        }
        "tool_use" => {
            let (id, name) = (str_of(block, "id"), str_of(block, "name"));
            if !is_plain(id, usize::MAX) {
                out.add(place, "id has letters that are not allowed", id);
            }
            if !is_plain(name, 64) {
                out.add(place, "tool name has letters that are not allowed", name);
            }
            if !block.get("input").is_some_and(Value::is_object) {
                out.add(place, "input is not an object", id);
            }
        }
        "tool_result" => {
            for inner in block.get("content").map(objects).unwrap_or_default() {
                if is(&inner, "tool_result") {
                    out.add(place, "unknown block", "tool_result in a tool_result");
                } else {
                    check_block(out, place, "user", &inner);
                }
            }
        }
        _ => {}
    }
}

fn check_thinking(out: &mut Complaints, place: &str, blocks: &[Map<String, Value>]) {
    if blocks.iter().skip_while(|block| is_thinking(block)).any(is_thinking) {
        out.add(place, "thinking must come first", blocks.len());
    }
    if blocks.last().is_some_and(is_thinking) {
        out.add(place, "thinking must not be last", blocks.len());
    }
}

/// Checks the pairs of tool calls and results around the message at `at`. The next message must begin with exactly
/// one result for each tool call of this message. Only the last calls of the list may still be without a result.
fn check_pairs(out: &mut Complaints, at: usize, contents: &[Vec<Map<String, Value>>]) {
    let ids = |at: usize, kind: &str, field: &str| -> Vec<String> {
        let found = contents.get(at).into_iter().flatten().filter(|block| is(block, kind));
        found.map(|block| str_of(block, field).to_owned()).collect()
    };
    let place = format!("messages[{at}]");
    let called_before = at.checked_sub(1).map(|before| ids(before, "tool_use", "id")).unwrap_or_default();
    let mut answered = HashSet::new();
    for id in ids(at, "tool_result", "tool_use_id") {
        if !called_before.contains(&id) {
            out.add(&place, "tool_result without its tool_use right before", &id);
        } else if !answered.insert(id.clone()) {
            out.add(&place, "tool_use has a second tool_result", &id);
        }
    }
    let is_result = |block: &Map<String, Value>| is(block, "tool_result");
    if contents[at].iter().skip_while(|block| is_result(block)).any(is_result) {
        out.add(&place, "tool_result must come first", contents[at].len());
    }
    let answers = ids(at + 1, "tool_result", "tool_use_id");
    let still_open = contents.len() <= at + 2 && contents.get(at + 1).is_none_or(|b| b.iter().all(is_result));
    for id in ids(at, "tool_use", "id") {
        if !answers.contains(&id) && !still_open {
            out.add(&place, "no tool_result right after", id);
        }
    }
}

/// Checks the rules for cache markers. The provider reads markers in this order: tools, system prompt, messages. This
/// check is separate, because a client's own request may already break these rules.
pub fn cache_marks(body: &Value) -> Vec<String> {
    let mut out = Complaints::new(RULES);
    let mut marks = Vec::new();
    for list in [&body["tools"], &body["system"]] {
        objects(list).iter().for_each(|block| gather_marks(&mut out, "body", block, &mut marks));
    }
    for (at, message) in objects(&body["messages"]).iter().enumerate() {
        let place = format!("messages[{at}]");
        blocks(message).iter().for_each(|block| gather_marks(&mut out, &place, block, &mut marks));
    }
    marks.extend(body.get("cache_control").filter(|mark| mark.is_object()).cloned());
    if marks.len() > 4 {
        out.add("body", "more than four cache marks", marks.len());
    }
    let long = |mark: &&Value| mark["ttl"] == "1h";
    if marks.iter().skip_while(long).any(|mark| long(&mark)) {
        out.add("body", "a long cache mark after a short cache mark", marks.len());
    }
    out.out
}

fn gather_marks(out: &mut Complaints, place: &str, block: &Map<String, Value>, marks: &mut Vec<Value>) {
    for inner in block.get("content").map(objects).unwrap_or_default() {
        gather_marks(out, place, &inner, marks);
    }
    let Some(mark) = block.get("cache_control").filter(|mark| !mark.is_null()) else { return };
    if is_thinking(block) || (is(block, "text") && is_blank(str_of(block, "text"))) {
        out.add(place, "a cache mark is not allowed in this block", str_of(block, "type"));
    }
    marks.push(mark.clone());
}

/// Checks the rule for thinking that the request enables explicitly. All messages after the last user text are one
/// turn of the assistant, including tool calls and results. Such a turn must contain no thinking, or begin with
/// thinking. Thinking that the model enables itself (`adaptive`) may begin later.
pub fn late_thinking(body: &Value) -> Vec<String> {
    let mut out = Complaints::new(RULES);
    let messages = objects(&body["messages"]);
    let contents: Vec<Vec<Map<String, Value>>> = messages.iter().map(blocks).collect();
    let from_user = |at: &usize| {
        str_of(&messages[*at], "role") == "user" && !contents[*at].iter().all(|b| is(b, "tool_result"))
    };
    let start = (0..messages.len()).rev().find(from_user).map_or(0, |at| at + 1);
    let replies = (start..messages.len()).filter(|at| str_of(&messages[*at], "role") == "assistant");
    let thinks: Vec<bool> = replies.map(|at| contents[at].first().is_some_and(is_thinking)).collect();
    if thinks.first() == Some(&false) && thinks.contains(&true) {
        out.add(format!("messages[{start}]"), "a turn must begin with its thinking", thinks.len());
    }
    out.out
}
