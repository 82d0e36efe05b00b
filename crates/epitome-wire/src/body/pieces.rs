//! What a message was made of on the wire, piece by piece.
//!
//! A piece is what goes out as it came or not at all: a chat message, an item of Responses, a block of Anthropic's.
//! Each knows which parts were read of it, so that a message of which the core took something away (its reasoning,
//! one of several results) still goes out in its own letters for the rest.

use std::borrow::Cow;

use epitome_core::message::{Content, MediaSource, Message, Part, Role};
use serde_json::{Map, Value};

use super::raw::{self, FLAGS, Members};
use crate::fit::is_blank;
use crate::{Dialect, anthropic, blank_if_nothing};

/// A piece of a wire message.
pub(super) struct Piece<'a> {
    pub(super) text: Cow<'a, str>,
    /// What was read of it; nothing of what is unknown.
    pub(super) parts: Vec<Part>,
    /// What kind of call or answer it is, where it is not the common one: the answer to a call must be of its kind.
    pub(super) form: Option<String>,
    /// Calls whose arguments are no object, and need not be.
    pub(super) custom: Vec<String>,
    /// What the provider calls it, where the parts do not say so; nothing may be called so twice.
    pub(super) id: Option<String>,
    /// Whether it holds, besides its parts, nothing that a provider is known to refuse.
    pub(super) sound: bool,
}

/// Reads a wire message again, for its pieces.
pub(super) fn of<'a>(dialect: Dialect, text: &'a str) -> Vec<Piece<'a>> {
    let Ok(value) = serde_json::from_str::<Value>(text) else { return Vec::new() };
    let parts = || dialect.understood(&value).map(|message| message.parts).unwrap_or_default();
    let whole = Cow::Borrowed(text);
    match dialect {
        Dialect::OpenAi => {
            let form = is_old_call(&value).then(|| FUNCTION.to_owned());
            vec![Piece {
                text: whole,
                parts: parts(),
                form,
                custom: custom_calls(&value),
                id: None,
                sound: is_sound_chat(&value),
            }]
        }
        Dialect::Responses => {
            let kind = value.get("type").and_then(Value::as_str).unwrap_or_default();
            let form = match kind {
                "tool_search_output" => "tool_search_call",
                kind => kind.strip_suffix("_output").unwrap_or(kind),
            };
            let form = (form != "function_call" && form.ends_with("_call")).then(|| form.to_owned());
            let sound = is_sound_item(&value);
            let unsaid = matches!(kind, "" | "message" | "function_call_output");
            let id = value.get("id").filter(|_| unsaid).and_then(Value::as_str).map(str::to_owned);
            let mut parts = blank_if_nothing(parts());
            parts.retain(|part| !matches!(part, Part::Text { text } if text.is_empty()));
            let calls = parts.iter().filter_map(|part| match part {
                Part::ToolCall(call) => Some(call.id.to_string()),
                _ => None,
            });
            let custom = if form.is_some() { calls.collect() } else { Vec::new() };
            vec![Piece { text: whole, parts, form, custom, id, sound }]
        }
        Dialect::Anthropic => blocks(text, &value),
        Dialect::Ours => {
            vec![Piece { text: whole, parts: parts(), form: None, custom: Vec::new(), id: None, sound: true }]
        }
    }
}

/// What came before there were tools, in chat.
pub(super) const FUNCTION: &str = "function";

fn is_old_call(value: &Value) -> bool {
    value.get("function_call").is_some_and(Value::is_object)
        || value.get("role").is_some_and(|role| role == FUNCTION)
}

/// The calls of a chat message whose arguments are their own kind of text.
fn custom_calls(value: &Value) -> Vec<String> {
    let calls = value.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
    let custom = calls.filter(|call| call.get("type").is_some_and(|kind| kind == "custom"));
    custom.filter_map(|call| Some(call.get("id")?.as_str()?.to_owned())).collect()
}

fn is_blank_text(piece: &Value) -> bool {
    let is_text = |kind: &str| matches!(kind, "text" | "input_text" | "output_text");
    piece.get("type").and_then(Value::as_str).is_some_and(is_text)
        && piece.get("text").and_then(Value::as_str).is_none_or(is_blank)
}

/// Whether a piece of content is known and refused: nothing said, or media from anybody but the user.
fn is_refused(piece: &Value, role: &str) -> bool {
    let kind = piece.get("type").and_then(Value::as_str).unwrap_or_default();
    let media = matches!(kind, "image_url" | "input_audio" | "file" | "input_image" | "input_file");
    kind.is_empty() || is_blank_text(piece) || (media && role != "user")
}

/// Whether what a chat message says holds nothing that is known to be refused.
fn is_sound_content(value: &Value) -> bool {
    let given = |key: &str| value.get(key).filter(|given| !given.is_null());
    let role = given("role").and_then(Value::as_str).unwrap_or_default();
    let calls = given("tool_calls").is_some() || given("function_call").is_some();
    match given("content") {
        Some(Value::Array(pieces)) => {
            !pieces.is_empty() && !pieces.iter().any(|piece| is_refused(piece, role))
        }
        // A tool may have nothing to say, and so may a reply that calls one.
        Some(Value::String(text)) if text.is_empty() => calls || matches!(role, "tool" | FUNCTION),
        Some(Value::String(text)) => matches!(role, "tool" | FUNCTION) || !is_blank(text),
        _ => role == "assistant" && (calls || given("refusal").is_some() || given("audio").is_some()),
    }
}

fn is_sound_chat(value: &Value) -> bool {
    let role = value.get("role").and_then(Value::as_str).unwrap_or_default();
    let given = |key: &str| value.get(key).is_some_and(|given| !given.is_null());
    let named = value.get("name").is_none_or(|name| name.as_str().is_some_and(|name| !name.is_empty()));
    // A call of a kind that is unknown would stay without its answer, which nobody takes for one.
    let known = |call: &Value| {
        call.get("type").is_none_or(|kind| kind.is_null() || kind == "function" || kind == "custom")
    };
    let called = value.get("tool_calls").is_none_or(|calls| {
        calls.as_array().is_some_and(|calls| !calls.is_empty() && calls.iter().all(known))
    });
    let calls = given("tool_calls") || given("function_call");
    is_sound_content(value) && named && called && (role == "assistant" || !calls)
}

fn is_sound_item(value: &Value) -> bool {
    let Some(item) = value.as_object() else { return false };
    let is_message = item.get("type").is_none_or(|kind| kind == "message");
    let role = item.get("role").and_then(Value::as_str).unwrap_or_default();
    let content = match item.get("content") {
        Some(Value::Array(pieces)) if is_message => {
            !pieces.is_empty() && !pieces.iter().any(|piece| is_refused(piece, role))
        }
        Some(Value::String(text)) if is_message => !is_blank(text),
        _ => !is_message,
    };
    if item.get("type").is_some_and(Value::is_null) {
        return false;
    }
    let start = match item.get("type").and_then(Value::as_str) {
        _ if is_message => "msg",
        Some("function_call_output") => "fc",
        // How these begin is seen in their parts.
        Some("reasoning" | "function_call") => "",
        _ => return is_sound_output(item),
    };
    let plain = |id: &str| id.starts_with(start) && is_plain(id);
    let named = item.get("id").is_none_or(|id| id.as_str().is_some_and(plain));
    content
        && named
        && is_sound_output(item)
        && (item.contains_key("role") || !item.contains_key("instructions"))
}

/// Words, or a list of what a user could say as well; of other tools nothing is known.
fn is_sound_output(item: &Map<String, Value>) -> bool {
    let kind = item.get("type").and_then(Value::as_str);
    let pairs =
        |kind: &str| kind.ends_with("_output") || matches!(kind, "function_call" | "custom_tool_call");
    if kind.is_some_and(pairs) && !item.contains_key("call_id") {
        return false;
    }
    if !matches!(kind, Some("function_call_output" | "custom_tool_call_output")) {
        return true;
    }
    let known = |piece: &Value| {
        let kind = piece.get("type").and_then(Value::as_str);
        matches!(kind, Some("input_text" | "input_image" | "input_file")) && !is_blank_text(piece)
    };
    match item.get("output") {
        Some(Value::Array(pieces)) => !pieces.is_empty() && pieces.iter().all(known),
        output => output.is_some_and(Value::is_string),
    }
}

fn is_plain(id: &str) -> bool {
    (1..=64).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// The blocks of a message of Anthropic's; a string is one of them.
fn blocks<'a>(text: &'a str, value: &Value) -> Vec<Piece<'a>> {
    let role = match value.get("role").and_then(Value::as_str) {
        Some("assistant") => Role::Assistant,
        Some("system") => Role::System,
        _ => Role::User,
    };
    let Some(content) = Members::of(text).get("content") else { return Vec::new() };
    if content.starts_with('"') {
        let text = Cow::Owned(format!("{{\"type\":\"text\",\"text\":{content}}}"));
        let said = value.get("content").and_then(Value::as_str).unwrap_or_default();
        return vec![Piece {
            text,
            parts: vec![Part::text(said)],
            form: None,
            custom: Vec::new(),
            id: None,
            sound: !is_blank(said),
        }];
    }
    let values = value.get("content").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let pieces = raw::items(content).into_iter().zip(values).map(|(text, block)| {
        let mut parts = Vec::new();
        if let Some(fields) = block.as_object() {
            let _ = anthropic::read_block(role, fields, &mut parts);
        }
        let empty = |part: &Part| matches!(part, Part::Text { text } if text.is_empty());
        parts.retain(|part| !empty(part));
        // What it answers with in letters of nothing is refused wherever it stands.
        let nested = block.get("content").and_then(Value::as_array).into_iter().flatten();
        let kind = block.get("type").and_then(Value::as_str).unwrap_or_default();
        let misplaced = match kind {
            // Of these nothing was read where they are the other side's to say.
            "tool_use" | "tool_result" | "thinking" | "redacted_thinking" => parts.is_empty(),
            "image" | "document" | "search_result" => role != Role::User,
            kind => role == Role::System && kind != "text",
        };
        let sound = !misplaced && !is_blank_text(block) && !nested.into_iter().any(is_blank_text);
        Piece { text: Cow::Borrowed(text), parts, form: None, custom: Vec::new(), id: None, sound }
    });
    pieces.collect()
}

/// Whether this is the part that came, as far as it can be told apart.
pub(super) fn is_same(piece: &Piece<'_>, came: &Part, shown: &Part) -> bool {
    match (came, shown) {
        (Part::ToolCall(came), Part::ToolCall(shown)) if piece.custom.iter().any(|id| **id == *came.id) => {
            came.id == shown.id && came.name == shown.name
        }
        _ => came == shown,
    }
}

/// Whether a part that came may go out as it is, where `fitted` is what else would be sent for it.
pub(super) fn is_taken(piece: &Piece<'_>, came: &Part, fitted: Option<&Part>) -> bool {
    match (came, fitted) {
        (Part::Text { text }, None) => text.is_empty(),
        (Part::Media(came), Some(Part::Media(fitted))) => {
            !matches!(came.source, MediaSource::Base64(_)) || came.mime == fitted.mime
        }
        (Part::Thinking { id, .. }, Some(Part::Thinking { id: fitted, .. })) => id == fitted,
        (Part::ToolCall(came), Some(Part::ToolCall(fitted))) => {
            let custom = piece.custom.iter().any(|id| **id == *came.id);
            came.id == fitted.id && if custom { true } else { came == fitted }
        }
        (Part::ToolResult(came), Some(Part::ToolResult(fitted))) => {
            came.call == fitted.call && said_alike(&came.content, &fitted.content)
        }
        (came, fitted) => Some(came) == fitted,
    }
}

/// Words in several pieces are as good as in one.
fn said_alike(came: &[Content], fitted: &[Content]) -> bool {
    if came == fitted {
        return true;
    }
    let words = |content: &[Content]| -> Option<Vec<String>> {
        let words = content.iter().map(|piece| match piece {
            Content::Text { text } if !is_blank(text) => Some(text.clone()),
            _ => None,
        });
        words.collect()
    };
    matches!((words(came), words(fitted)), (Some(came), Some(fitted)) if came.join("\n") == fitted.join("\n"))
}

/// Puts into a chat message that is spelled anew what it said in other letters, and what its calls had besides: some
/// servers want a signature back that they put there.
pub(super) fn keep_inside(fields: &mut Map<String, Value>, came: &Value, own: &Message, fitted: &Message) {
    if came.get("role") != fields.get("role") {
        return;
    }
    let words = |message: &Message| -> Vec<Part> {
        let said = |part: &&Part| matches!(part, Part::Text { .. } | Part::Media(_));
        message.parts.iter().filter(said).cloned().collect()
    };
    if own.role != Role::Tool
        && words(own) == words(fitted)
        && let Some(content) = came.get("content").filter(|_| is_sound_content(came))
    {
        fields.insert("content".to_owned(), content.clone());
    }
    // Servers disagree on what it is called.
    if came.get("reasoning_content").is_none()
        && came.get("reasoning").is_some()
        && let Some(thought) = fields.shift_remove("reasoning_content")
    {
        fields.insert("reasoning".to_owned(), thought);
    }
    let had = came.get("tool_calls").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let calls = fields.get_mut("tool_calls").and_then(Value::as_array_mut);
    let Some(calls) = calls.filter(|calls| calls.len() == had.len()) else { return };
    for (call, had) in calls.iter_mut().zip(had) {
        let same = call.pointer("/function/name") == had.pointer("/function/name");
        if let (true, Some(call), Some(had)) = (same, call.as_object_mut(), had.as_object()) {
            for (key, value) in had {
                call.entry(key.as_str()).or_insert_with(|| value.clone());
            }
        }
    }
}

/// The fields of a piece that we have no name for, as they came.
pub(super) fn others<'a>(text: &'a str, spelled: &Value) -> Vec<(String, &'a str)> {
    const KNOWN: &[&str] = &[
        "type",
        "role",
        "content",
        "name",
        "tool_calls",
        "function_call",
        "tool_call_id",
        "refusal",
        "reasoning_content",
        "reasoning",
        "id",
        "call_id",
        "arguments",
        "input",
        "output",
        "action",
        "summary",
        "encrypted_content",
        "text",
        "thinking",
        "signature",
        "data",
        "source",
        "tool_use_id",
        "is_error",
        FLAGS,
    ];
    let members = Members::of(text);
    let kind = |key: &str| members.get(key).and_then(|text| serde_json::from_str::<Value>(text).ok());
    let same = |key: &str| spelled.get(key).cloned() == kind(key);
    // A field belongs to the kind of thing it came with.
    if !(same("type") && same("role")) {
        return Vec::new();
    }
    let thinks = spelled.get("reasoning_content").is_some() || spelled.get("reasoning").is_some();
    let stays = |key: &str| !KNOWN.contains(&key) && (thinks || !key.starts_with("reasoning"));
    members.0.into_iter().filter(|(key, _)| stays(key)).collect()
}
