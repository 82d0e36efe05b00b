//! Implements OpenAI's chat completions: a flat list, with each tool result directly after the reply that
//! made the call.
//!
//! Many servers use this format, each with its own fields. Their reasoning is read (`reasoning_content`,
//! `reasoning`). So are calls in the form from before 2023: `function_call` and the role `function`, which
//! are linked only by the function's name. All other fields stay in the residue.

use epitome_core::message::{Content, Media, MediaSource, Message, Part, Role, ToolResult};
use serde_json::{Value, json};

use crate::field::{self, Object, Result};
use crate::fit::is_blank;
use crate::format::{About, Endpoint, Format, Sign};
use crate::pieces::{Piece, is_refused};
use crate::{blank_if_nothing, media, part_of};

const ROLES: &str = "system, developer, user, assistant, tool and function";

/// OpenAI's chat completions, also used by many other servers.
#[derive(Debug)]
pub(crate) struct OpenAi;

/// The endpoint of both OpenAI formats.
pub(crate) const ENDPOINT: Endpoint = Endpoint {
    provider: "openai",
    base_url: "https://api.openai.com/v1",
    route: "chat/completions",
    called: "chat completions",
    client_base: "/openai/v1",
    key_env: "OPENAI_API_KEY",
    key: ("authorization", "Bearer "),
    // The first is Azure's.
    credentials: &["api-key", "openai-organization", "openai-project"],
    headers: &[],
};

static ABOUT: About = About {
    // No server accepts both.
    limit_names: &["max_tokens", "max_completion_tokens"],
    endpoint: Some(ENDPOINT),
    ..About::new("openai")
};

impl Format for OpenAi {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn sign(&self, message: &Object) -> Option<Sign> {
        let fields = ["tool_calls", "tool_call_id", "function_call", "reasoning_content"];
        let role = message.get("role").and_then(Value::as_str);
        let own = fields.iter().any(|key| message.contains_key(*key))
            || matches!(role, Some("tool" | "function" | "developer"));
        own.then_some(Sign::Field)
    }

    fn has_piece(&self, kind: &str) -> bool {
        matches!(kind, "image_url" | "input_audio" | "file" | "refusal")
    }

    fn read(&self, wire: &Value) -> Result<Message> {
        let fields = field::object(wire)?;
        let role = match field::name(fields, "role")? {
            "tool" => return read_answer(fields, "tool_call_id"),
            "function" => return read_answer(fields, "name"),
            _ => field::role(fields, ROLES)?,
        };
        // A reply may consist of calls only. Any other message without content is probably misspelled.
        if role != Role::Assistant && !fields.contains_key("content") {
            return Err(field::missing("content"));
        }
        let mut parts = Vec::new();
        if role == Role::Assistant {
            let thought = ["reasoning_content", "reasoning"].into_iter();
            let thought = thought.filter_map(|key| fields.get(key)?.as_str()).find(|text| !text.is_empty());
            parts.extend(thought.map(Part::thinking));
        }
        content(fields, &mut |said| parts.push(part_of(said)))?;
        if role == Role::Assistant {
            let refusal = fields.get("refusal").and_then(Value::as_str).filter(|words| !words.is_empty());
            // If there is content, the refusal is part of it.
            if parts.iter().all(|part| matches!(part, Part::Thinking { .. })) {
                parts.extend(refusal.map(Part::text));
            }
            calls(fields, &mut parts)?;
        }
        let author = field::optional_text(fields, "name")?.filter(|name| !name.is_empty());
        Ok(Message { author: author.map(Into::into), ..Message::new(role, blank_if_nothing(parts)) })
    }

    /// Writes one message without adjustment. A message with results becomes several, results first.
    fn spell(&self, message: &Message) -> Vec<Value> {
        let mut out: Vec<Value> = message.results().map(spell_answer).collect();
        if message.role == Role::Tool {
            return out;
        }
        let role = if message.role == Role::Peer { Role::User } else { message.role };
        let (mut content, mut thoughts, mut calls) = (Vec::new(), Vec::new(), Vec::new());
        for part in &message.parts {
            match part {
                Part::Text { text } => content.push(words(text)),
                Part::Media(media) => content.push(spell_or_say(media)),
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
        let spelled = [
            ("role", Some(role.name().into())),
            ("content", Some(content)),
            ("name", message.author.as_deref().map(Value::from)),
            ("reasoning_content", (!thoughts.is_empty()).then(|| thoughts.join("\n\n").into())),
            ("tool_calls", (!calls.is_empty()).then_some(Value::Array(calls))),
        ];
        let given = spelled.into_iter().filter_map(|(key, value)| Some((key, value?)));
        out.push(given.collect());
        out
    }

    fn pieces<'a>(&self, text: &'a str, value: &Value) -> Vec<Piece<'a>> {
        let parts = self.read(value).map(|message| message.parts).unwrap_or_default();
        let form = is_old_call(value).then(|| FUNCTION.to_owned());
        vec![Piece { form, custom: custom_calls(value), sound: is_sound(value), ..Piece::new(text, parts) }]
    }

    fn answer_in_form(&self, spelled: &Value, form: &dyn Fn(&str) -> Option<String>) -> Option<Value> {
        let call = spelled.get("tool_call_id")?.as_str()?;
        form(call)?;
        Some(json!({ "role": FUNCTION, "name": call, "content": spelled.get("content") }))
    }

    /// Copies the received content into a message that is written from its parts, if the content is
    /// equivalent. Also copies unknown fields of its calls, because some servers require a signature that
    /// they put there.
    fn keep_inside(&self, fields: &mut Object, came: &str, own: &Message, fitted: &Message) {
        let came: Value = serde_json::from_str(came).unwrap_or_default();
        if came.get("role") != fields.get("role") {
            return;
        }
        let words = |message: &Message| -> Vec<Part> {
            let said = |part: &&Part| matches!(part, Part::Text { .. } | Part::Media(_));
            message.parts.iter().filter(said).cloned().collect()
        };
        if own.role != Role::Tool
            && words(own) == words(fitted)
            && let Some(content) = came.get("content").filter(|_| is_sound_content(&came))
        {
            fields.insert("content".to_owned(), content.clone());
        }
        // Servers use different names for this field.
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
}

fn read_answer(fields: &Object, call: &str) -> Result<Message> {
    let mut said = Vec::new();
    content(fields, &mut |piece| said.push(piece))?;
    let call = field::name(fields, call)?.into();
    Ok(Message::new(Role::Tool, [Part::ToolResult(ToolResult { call, content: said, error: false })]))
}

/// Reads the content. Unknown types and empty texts are ignored.
fn content(fields: &Object, say: &mut dyn FnMut(Content)) -> Result<()> {
    field::content(fields, "content", say, |piece, say| {
        let kind = field::name(piece, "type")?;
        match kind {
            "text" | "refusal" => say(Content::Text { text: field::text(piece, kind)?.to_owned() }),
            "image_url" => say(Content::Media(picture(piece)?)),
            "input_audio" => say(Content::Media(media::sound(piece)?)),
            "file" => file(piece)?.into_iter().for_each(|file| say(Content::Media(file))),
            _ => {}
        }
        Ok(())
    })
}

fn picture(piece: &Object) -> Result<Media> {
    let url = match piece.get("image_url") {
        // Some servers accept the URL directly.
        Some(Value::String(url)) => url,
        _ => field::inner(piece, "image_url", |image| field::text(image, "url"))?,
    };
    Ok(media::at_address(url, media::IMAGE))
}

fn file(piece: &Object) -> Result<Option<Media>> {
    field::inner(piece, "file", |file| {
        if let Some(data) = field::optional_text(file, "file_data")? {
            return Ok(Some(media::file_data(data)));
        }
        let id = field::optional_text(file, "file_id")?;
        Ok(id.map(|id| media::of(media::FILE, MediaSource::File(id.to_owned()))))
    })
}

fn calls(fields: &Object, parts: &mut Vec<Part>) -> Result<()> {
    field::each("tool_calls", field::list(fields, "tool_calls")?, |call| {
        let kind = field::optional_text(call, "type")?.unwrap_or("function");
        let arguments = match kind {
            "function" => "arguments",
            "custom" => "input",
            _ => return Ok(()),
        };
        let (name, arguments) = field::inner(call, kind, |called| named(called, arguments))?;
        parts.push(Part::call(field::name(call, "id")?, name, arguments));
        Ok(())
    })?;
    if fields.get("function_call").is_some_and(|called| !called.is_null()) {
        let (name, arguments) = field::inner(fields, "function_call", |called| named(called, "arguments"))?;
        parts.push(Part::call(name, name, arguments));
    }
    Ok(())
}

/// Returns the name and the arguments of a call.
fn named<'a>(called: &'a Object, arguments: &str) -> Result<(&'a str, String)> {
    Ok((field::name(called, "name")?, field::arguments(called, arguments)?))
}

fn words(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn spell_answer(result: &ToolResult) -> Value {
    let content = media::spelled(&result.content, words, spell_or_say);
    json!({ "role": "tool", "tool_call_id": &*result.call, "content": content })
}

fn spell_or_say(media: &Media) -> Value {
    spell_media(media).unwrap_or_else(|| words(&media::in_words(media)))
}

fn spell_media(media: &Media) -> Option<Value> {
    match &media.source {
        _ if media::is_picture(media) => {
            Some(json!({ "type": "image_url", "image_url": { "url": media::address(media)? } }))
        }
        MediaSource::Base64(_) if media.mime.starts_with("audio/") => media::sound_spelled(media),
        MediaSource::Base64(_) => {
            let file = json!({ "filename": media::file_name(media), "file_data": media::address(media)? });
            Some(json!({ "type": "file", "file": file }))
        }
        MediaSource::File(id) => Some(json!({ "type": "file", "file": { "file_id": id } })),
        MediaSource::Url(_) => None,
    }
}

/// The form of calls before tools existed.
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

/// Returns whether a chat message's content contains nothing that providers reject.
fn is_sound_content(value: &Value) -> bool {
    let given = |key: &str| value.get(key).filter(|given| !given.is_null());
    let role = given("role").and_then(Value::as_str).unwrap_or_default();
    let calls = given("tool_calls").is_some() || given("function_call").is_some();
    match given("content") {
        Some(Value::Array(pieces)) => {
            !pieces.is_empty() && !pieces.iter().any(|piece| is_refused(piece, role))
        }
        // A tool result may be empty, and so may a reply that makes calls.
        Some(Value::String(text)) if text.is_empty() => calls || matches!(role, "tool" | FUNCTION),
        Some(Value::String(text)) => matches!(role, "tool" | FUNCTION) || !is_blank(text),
        _ => role == "assistant" && (calls || given("refusal").is_some() || given("audio").is_some()),
    }
}

fn is_sound(value: &Value) -> bool {
    let role = value.get("role").and_then(Value::as_str).unwrap_or_default();
    let given = |key: &str| value.get(key).is_some_and(|given| !given.is_null());
    let named = value.get("name").is_none_or(|name| name.as_str().is_some_and(|name| !name.is_empty()));
    // A call of an unknown type would stay without a result, which providers reject.
    let known = |call: &Value| {
        call.get("type").is_none_or(|kind| kind.is_null() || kind == "function" || kind == "custom")
    };
    let called = value.get("tool_calls").map(|calls| calls.as_array().map_or(&[][..], Vec::as_slice));
    let called = called.is_none_or(|calls| !calls.is_empty() && calls.iter().all(known));
    let calls = given("tool_calls") || given("function_call");
    is_sound_content(value) && named && called && (role == "assistant" || !calls)
}
