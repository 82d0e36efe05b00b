//! Implements OpenAI's chat completions: a flat list of messages, in which each tool result comes directly
//! after the reply that made the call.
//!
//! Many servers use this format and add their own fields. Only the fields for reasoning are read:
//! `reasoning_content` and `reasoning`. The older form of calls is read too: the call is in the field
//! `function_call`, and the result has the role `function`. In that form, only the function's name connects the
//! call and the result. All other fields stay in the residue of their message.

use epitome_core::message::{Content, Media, MediaSource, Message, Part, Role, ToolResult};
use serde_json::{Value, json};

use crate::field::{self, Object, Result};
use crate::fit::is_blank;
use crate::format::{About, Endpoint, Format, FormatHint};
use crate::pieces::{Piece, is_rejected};
use crate::{blank_if_nothing, media, part_of};

const ROLES: &[&str] = &["system", "developer", "user", "assistant", "tool", "function"];

/// OpenAI's chat completions. Many other servers use this format too.
#[derive(Debug)]
pub(crate) struct OpenAi;

/// The endpoint of both OpenAI formats.
pub(crate) const ENDPOINT: Endpoint = Endpoint {
    provider: "openai",
    base_url: "https://api.openai.com/v1",
    route: "chat/completions",
    route_name: "chat completions",
    client_base: "/openai/v1",
    key_env: "OPENAI_API_KEY",
    key: ("authorization", "Bearer "),
    // Azure uses the header `api-key`.
    credentials: &["api-key", "openai-organization", "openai-project"],
    headers: &[],
};

static ABOUT: About = About {
    // A server accepts only one of these names.
    limit_names: &["max_tokens", "max_completion_tokens"],
    endpoint: Some(ENDPOINT),
    ..About::new("openai")
};

impl Format for OpenAi {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn message_hint(&self, message: &Object) -> Option<FormatHint> {
        let fields = ["tool_calls", "tool_call_id", "function_call", "reasoning_content"];
        let role = message.get("role").and_then(Value::as_str);
        let own = fields.iter().any(|key| message.contains_key(*key))
            || matches!(role, Some("tool" | "function" | "developer"));
        own.then_some(FormatHint::Field)
    }

    fn owns_content_type(&self, kind: &str) -> bool {
        matches!(kind, "image_url" | "input_audio" | "file" | "refusal")
    }

    fn read(&self, wire: &Value) -> Result<Message> {
        let fields = field::object(wire)?;
        let role = match field::name(fields, "role")? {
            "tool" => return read_result(fields, "tool_call_id"),
            "function" => return read_result(fields, "name"),
            _ => field::role(fields, ROLES)?,
        };
        // A reply may contain only calls and no `content`. In any other message, the name of the field is
        // probably misspelled.
        if role != Role::Assistant && !fields.contains_key("content") {
            return Err(field::missing("content"));
        }
        let mut parts = Vec::new();
        if role == Role::Assistant {
            let thought = ["reasoning_content", "reasoning"].into_iter();
            let thought = thought.filter_map(|key| fields.get(key)?.as_str()).find(|text| !text.is_empty());
            parts.extend(thought.map(Part::thinking));
        }
        read_content(fields, &mut |piece| parts.push(part_of(piece)))?;
        if role == Role::Assistant {
            let refusal = fields.get("refusal").and_then(Value::as_str).filter(|text| !text.is_empty());
            // If there is content, the content already includes the refusal.
            if parts.iter().all(|part| matches!(part, Part::Thinking { .. })) {
                parts.extend(refusal.map(Part::text));
            }
            read_calls(fields, &mut parts)?;
        }
        let author = field::optional_text(fields, "name")?.filter(|name| !name.is_empty());
        Ok(Message { author: author.map(Into::into), ..Message::new(role, blank_if_nothing(parts)) })
    }

    /// Encodes one message. Each tool result becomes a separate wire message, and these come first. If the
    /// message has other content, one more wire message contains that content.
    fn encode(&self, message: &Message) -> Vec<Value> {
        let mut out: Vec<Value> = message.results().map(encode_result).collect();
        if message.role == Role::Tool {
            return out;
        }
        let role = if message.role == Role::Peer { Role::User } else { message.role };
        let (mut content, mut thoughts, mut calls) = (Vec::new(), Vec::new(), Vec::new());
        for part in &message.parts {
            match part {
                Part::Text { text } => content.push(text_piece(text)),
                Part::Media(media) => content.push(encode_media(media)),
                Part::Thinking { text, .. } => thoughts.push(text.as_str()),
                Part::ToolCall(call) => calls.push(json!({
                    "id": &*call.id,
                    "type": "function",
                    "function": { "name": call.name, "arguments": call.arguments },
                })),
                Part::ToolResult(_) => {}
            }
        }
        if !out.is_empty() && content.is_empty() && calls.is_empty() {
            return out;
        }
        let content = match content.as_slice() {
            [] => Value::Null,
            [one] => one.get("text").cloned().unwrap_or(Value::Array(content)),
            _ => Value::Array(content),
        };
        let fields = [
            ("role", Some(role.name().into())),
            ("content", Some(content)),
            ("name", message.author.as_deref().map(Value::from)),
            ("reasoning_content", (!thoughts.is_empty()).then(|| thoughts.join("\n\n").into())),
            ("tool_calls", (!calls.is_empty()).then_some(Value::Array(calls))),
        ];
        let present = fields.into_iter().filter_map(|(key, value)| Some((key, value?)));
        out.push(present.collect());
        out
    }

    fn pieces<'a>(&self, text: &'a str, value: &Value) -> Vec<Piece<'a>> {
        let parts = self.read(value).map(|message| message.parts).unwrap_or_default();
        let call_type = is_old_call(value).then(|| FUNCTION.to_owned());
        let acceptable = is_acceptable(value);
        vec![Piece { call_type, custom_calls: custom_calls(value), acceptable, ..Piece::new(text, parts) }]
    }

    fn result_in_call_type(
        &self,
        encoded: &Value,
        call_type: &dyn Fn(&str) -> Option<String>,
    ) -> Option<Value> {
        let call = encoded.get("tool_call_id")?.as_str()?;
        call_type(call)?;
        Some(json!({ "role": FUNCTION, "name": call, "content": encoded.get("content") }))
    }

    /// Copies the received content into the encoded message, if the content is equivalent. Also copies the
    /// unknown fields of the calls. Some servers put a signature into a call and require it in later requests.
    fn copy_received_fields(
        &self,
        fields: &mut Object,
        received: &str,
        original: &Message,
        fitted: &Message,
    ) {
        let received: Value = serde_json::from_str(received).unwrap_or_default();
        if received.get("role") != fields.get("role") {
            return;
        }
        let content = |message: &Message| -> Vec<Part> {
            let is_content = |part: &&Part| matches!(part, Part::Text { .. } | Part::Media(_));
            message.parts.iter().filter(is_content).cloned().collect()
        };
        if original.role != Role::Tool
            && content(original) == content(fitted)
            && let Some(content) = received.get("content").filter(|_| is_acceptable_content(&received))
        {
            fields.insert("content".to_owned(), content.clone());
        }
        // Servers use different names for the field with the reasoning. The name of the received field is used.
        if received.get("reasoning_content").is_none()
            && received.get("reasoning").is_some()
            && let Some(thought) = fields.shift_remove("reasoning_content")
        {
            fields.insert("reasoning".to_owned(), thought);
        }
        let before = received.get("tool_calls").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let calls = fields.get_mut("tool_calls").and_then(Value::as_array_mut);
        let Some(calls) = calls.filter(|calls| calls.len() == before.len()) else { return };
        for (call, before) in calls.iter_mut().zip(before) {
            let same = call.pointer("/function/name") == before.pointer("/function/name");
            if let (true, Some(call), Some(before)) = (same, call.as_object_mut(), before.as_object()) {
                for (key, value) in before {
                    call.entry(key.as_str()).or_insert_with(|| value.clone());
                }
            }
        }
    }
}

fn read_result(fields: &Object, call: &str) -> Result<Message> {
    let mut content = Vec::new();
    read_content(fields, &mut |piece| content.push(piece))?;
    let call = field::name(fields, call)?.into();
    Ok(Message::new(Role::Tool, [Part::ToolResult(ToolResult { call, content, error: false })]))
}

/// Reads the content. Pieces of unknown types and empty texts are ignored.
fn read_content(fields: &Object, push: &mut dyn FnMut(Content)) -> Result<()> {
    field::content(fields, "content", push, |piece, push| {
        let kind = field::name(piece, "type")?;
        match kind {
            "text" | "refusal" => push(Content::Text { text: field::text(piece, kind)?.to_owned() }),
            "image_url" => push(Content::Media(read_image(piece)?)),
            "input_audio" => push(Content::Media(media::audio(piece)?)),
            "file" => read_file(piece)?.into_iter().for_each(|file| push(Content::Media(file))),
            _ => {}
        }
        Ok(())
    })
}

fn read_image(piece: &Object) -> Result<Media> {
    let url = match piece.get("image_url") {
        // Some servers accept the URL as a string in place of an object.
        Some(Value::String(url)) => url,
        _ => field::inner(piece, "image_url", |image| field::text(image, "url"))?,
    };
    Ok(media::from_url(url, media::IMAGE))
}

fn read_file(piece: &Object) -> Result<Option<Media>> {
    field::inner(piece, "file", |file| {
        if let Some(data) = field::optional_text(file, "file_data")? {
            return Ok(Some(media::file_data(data)));
        }
        let id = field::optional_text(file, "file_id")?;
        Ok(id.map(|id| media::new(media::FILE, MediaSource::File(id.to_owned()))))
    })
}

fn read_calls(fields: &Object, parts: &mut Vec<Part>) -> Result<()> {
    field::each("tool_calls", field::list(fields, "tool_calls")?, |call| {
        let kind = field::optional_text(call, "type")?.unwrap_or("function");
        let arguments = match kind {
            "function" => "arguments",
            "custom" => "input",
            _ => return Ok(()),
        };
        let (name, arguments) = field::inner(call, kind, |call| name_and_arguments(call, arguments))?;
        parts.push(Part::call(field::name(call, "id")?, name, arguments));
        Ok(())
    })?;
    if fields.get("function_call").is_some_and(|call| !call.is_null()) {
        let (name, arguments) =
            field::inner(fields, "function_call", |call| name_and_arguments(call, "arguments"))?;
        parts.push(Part::call(name, name, arguments));
    }
    Ok(())
}

/// Returns the name and the arguments of a call. `arguments` is the field that contains the arguments.
fn name_and_arguments<'a>(call: &'a Object, arguments: &str) -> Result<(&'a str, String)> {
    Ok((field::name(call, "name")?, field::arguments(call, arguments)?))
}

fn text_piece(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn encode_result(result: &ToolResult) -> Value {
    let content = media::encode_content(&result.content, text_piece, encode_media);
    json!({ "role": "tool", "tool_call_id": &*result.call, "content": content })
}

/// Encodes media. If this format cannot carry the media, encodes a placeholder text instead.
fn encode_media(media: &Media) -> Value {
    media_piece(media).unwrap_or_else(|| text_piece(&media::placeholder(media)))
}

fn media_piece(media: &Media) -> Option<Value> {
    match &media.source {
        _ if media::is_image(media) => {
            Some(json!({ "type": "image_url", "image_url": { "url": media::url(media)? } }))
        }
        MediaSource::Base64(_) if media.mime.starts_with("audio/") => media::encode_audio(media),
        MediaSource::Base64(_) => {
            let file = json!({ "filename": media::file_name(media), "file_data": media::url(media)? });
            Some(json!({ "type": "file", "file": file }))
        }
        MediaSource::File(id) => Some(json!({ "type": "file", "file": { "file_id": id } })),
        MediaSource::Url(_) => None,
    }
}

/// The type of calls in the older form, from before `tool_calls` existed.
const FUNCTION: &str = "function";

fn is_old_call(value: &Value) -> bool {
    value.get("function_call").is_some_and(Value::is_object)
        || value.get("role").is_some_and(|role| role == FUNCTION)
}

/// Returns the ids of calls whose arguments are free text.
fn custom_calls(value: &Value) -> Vec<String> {
    let calls = value.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
    let custom = calls.filter(|call| call.get("type").is_some_and(|kind| kind == "custom"));
    custom.filter_map(|call| Some(call.get("id")?.as_str()?.to_owned())).collect()
}

/// Returns whether providers accept the content of this chat message.
fn is_acceptable_content(value: &Value) -> bool {
    let field = |key: &str| value.get(key).filter(|value| !value.is_null());
    let role = field("role").and_then(Value::as_str).unwrap_or_default();
    let calls = field("tool_calls").is_some() || field("function_call").is_some();
    match field("content") {
        Some(Value::Array(pieces)) => {
            !pieces.is_empty() && !pieces.iter().any(|piece| is_rejected(piece, role))
        }
        // A tool result may have an empty text. A reply that makes calls may have an empty text too.
        Some(Value::String(text)) if text.is_empty() => calls || matches!(role, "tool" | FUNCTION),
        Some(Value::String(text)) => matches!(role, "tool" | FUNCTION) || !is_blank(text),
        _ => role == "assistant" && (calls || field("refusal").is_some() || field("audio").is_some()),
    }
}

/// Returns whether providers accept this chat message.
fn is_acceptable(value: &Value) -> bool {
    let role = value.get("role").and_then(Value::as_str).unwrap_or_default();
    let is_set = |key: &str| value.get(key).is_some_and(|value| !value.is_null());
    let has_valid_name =
        value.get("name").is_none_or(|name| name.as_str().is_some_and(|name| !name.is_empty()));
    // A call of an unknown type would have no result, and providers reject a call without a result.
    let is_readable = |call: &Value| {
        call.get("type").is_none_or(|kind| kind.is_null() || kind == "function" || kind == "custom")
    };
    let tool_calls = value.get("tool_calls").map(|calls| calls.as_array().map_or(&[][..], Vec::as_slice));
    let has_valid_calls = tool_calls.is_none_or(|calls| !calls.is_empty() && calls.iter().all(is_readable));
    let calls = is_set("tool_calls") || is_set("function_call");
    is_acceptable_content(value) && has_valid_name && has_valid_calls && (role == "assistant" || !calls)
}
