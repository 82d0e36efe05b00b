//! OpenAI's chat completions: a flat list, each tool's answer right behind the reply that asked.
//!
//! Many servers speak it, each with fields of its own: what they call reasoning is read (`reasoning_content`,
//! `reasoning`), the calls of before 2023 are too (`function_call`, role `function`, where the function's name is
//! the only tie between the two), and whatever else there is stays in the residue.

use epitome_core::message::{Content, Media, MediaSource, Message, Part, Role, ToolResult};
use serde_json::{Map, Value, json};

use super::field::{self, Object, Result};
use super::fit::{Fitter, Wants};
use super::{blank_if_nothing, media};

const ROLES: &str = "system, developer, user, assistant, tool and function";

/// Longer ids are refused by the provider: "Expected a string with maximum length 40".
const LONGEST_ID: usize = 40;

pub(super) fn read(wire: &Value) -> Result<Message> {
    let fields = field::object(wire)?;
    let role = match field::name(fields, "role")? {
        "system" => Role::System,
        "developer" => Role::Developer,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => return answer(fields, "tool_call_id"),
        "function" => return answer(fields, "name"),
        other => return Err(field::unknown("role", other, ROLES)),
    };
    // A reply may be calls alone. Whoever else says nothing at all has most likely misspelled it.
    if role != Role::Assistant && !fields.contains_key("content") {
        return Err(field::missing("content"));
    }
    let mut parts = Vec::new();
    if role == Role::Assistant {
        let thought = ["reasoning_content", "reasoning"].into_iter();
        let thought = thought.filter_map(|key| fields.get(key)?.as_str()).find(|text| !text.is_empty());
        parts.extend(thought.map(Part::thinking));
    }
    content(fields, &mut |said| {
        parts.push(match said {
            Content::Text { text } => Part::Text { text },
            Content::Media(media) => Part::Media(media),
        });
    })?;
    if role == Role::Assistant {
        let refusal = fields.get("refusal").and_then(Value::as_str).filter(|words| !words.is_empty());
        // Where there is content, it says so itself.
        if parts.iter().all(|part| matches!(part, Part::Thinking { .. })) {
            parts.extend(refusal.map(Part::text));
        }
        calls(fields, &mut parts)?;
    }
    let author = field::optional_text(fields, "name")?.filter(|name| !name.is_empty());
    Ok(Message { author: author.map(Into::into), ..Message::new(role, blank_if_nothing(parts)) })
}

fn answer(fields: &Object, call: &str) -> Result<Message> {
    let mut said = Vec::new();
    content(fields, &mut |piece| said.push(piece))?;
    let call = field::name(fields, call)?.into();
    Ok(Message::new(Role::Tool, [Part::ToolResult(ToolResult { call, content: said, error: false })]))
}

/// What is said; kinds that are unknown are passed over, and so is a text of no letters.
fn content(fields: &Object, say: &mut dyn FnMut(Content)) -> Result<()> {
    match fields.get("content") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(text)) => {
            if !text.is_empty() {
                say(Content::Text { text: text.clone() });
            }
            Ok(())
        }
        Some(Value::Array(pieces)) => field::each("content", pieces, |piece| {
            let kind = field::name(piece, "type")?;
            match kind {
                "text" | "refusal" => say(Content::Text { text: field::text(piece, kind)?.to_owned() }),
                "image_url" => say(Content::Media(picture(piece)?)),
                "input_audio" => say(Content::Media(media::sound(piece)?)),
                "file" => file(piece)?.into_iter().for_each(|file| say(Content::Media(file))),
                _ => {}
            }
            Ok(())
        }),
        Some(other) => Err(field::wrong("content", other, "a string, a list or null")),
    }
}

fn picture(piece: &Object) -> Result<Media> {
    // Some servers take the address itself.
    let url = match piece.get("image_url") {
        Some(Value::String(url)) => url,
        _ => {
            let inner = field::inner(piece, "image_url")?;
            field::text(inner, "url").map_err(|error| error.under("image_url"))?
        }
    };
    Ok(media::at_address(url, media::IMAGE))
}

fn file(piece: &Object) -> Result<Option<Media>> {
    let inner = field::inner(piece, "file")?;
    let under = |error: super::DialectError| error.under("file");
    if let Some(data) = field::optional_text(inner, "file_data").map_err(under)? {
        let media = media::at_address(data, "");
        let bare = matches!(media.source, MediaSource::Url(_));
        return Ok(Some(if bare { media::of("", MediaSource::Base64(data.to_owned())) } else { media }));
    }
    let id = field::optional_text(inner, "file_id").map_err(under)?;
    Ok(id.map(|id| media::of(media::FILE, MediaSource::File(id.to_owned()))))
}

fn calls(fields: &Object, parts: &mut Vec<Part>) -> Result<()> {
    field::each("tool_calls", field::list(fields, "tool_calls")?, |call| {
        let kind = field::optional_text(call, "type")?.unwrap_or("function");
        let arguments = match kind {
            "function" => "arguments",
            "custom" => "input",
            _ => return Ok(()),
        };
        let called = field::inner(call, kind)?;
        let under = |error: super::DialectError| error.under(kind);
        let name = field::name(called, "name").map_err(under)?;
        let arguments = arguments_of(called, arguments).map_err(under)?;
        parts.push(Part::call(field::name(call, "id")?, name, arguments));
        Ok(())
    })?;
    if let Some(called) = fields.get("function_call").filter(|called| !called.is_null()) {
        let under = |error: super::DialectError| error.under("function_call");
        let called = field::object(called).map_err(under)?;
        let name = field::name(called, "name").map_err(under)?;
        parts.push(Part::call(name, name, arguments_of(called, "arguments").map_err(under)?));
    }
    Ok(())
}

/// Arguments as text; some servers send the object itself.
fn arguments_of(called: &Object, key: &str) -> Result<String> {
    match called.get(key) {
        Some(object @ Value::Object(_)) => Ok(object.to_string()),
        _ => Ok(field::optional_text(called, key)?.unwrap_or_default().to_owned()),
    }
}

/// One message, the plain way. A message with results is several, results first.
pub(super) fn spell(message: &Message) -> Vec<Value> {
    let mut out: Vec<Value> = message.results().map(spell_answer).collect();
    if message.role == Role::Tool {
        return out;
    }
    let role = if message.role == Role::Peer { Role::User } else { message.role };
    let (mut content, mut thoughts, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for part in &message.parts {
        match part {
            Part::Text { text } => content.push(words(text)),
            Part::Media(media) => {
                content.push(spell_media(media).unwrap_or_else(|| words(&media::in_words(media))));
            }
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
    let mut spelled = Map::new();
    spelled.insert("role".to_owned(), json!(role.to_string()));
    let content = match content.as_slice() {
        [] => Value::Null,
        [one] => one.get("text").cloned().unwrap_or(Value::Array(content)),
        _ => Value::Array(content),
    };
    spelled.insert("content".to_owned(), content);
    if let Some(author) = &message.author {
        spelled.insert("name".to_owned(), json!(&**author));
    }
    if !thoughts.is_empty() {
        spelled.insert("reasoning_content".to_owned(), json!(thoughts.join("\n\n")));
    }
    if !calls.is_empty() {
        spelled.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    out.push(Value::Object(spelled));
    out
}

fn words(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn spell_answer(result: &ToolResult) -> Value {
    let content = match result.content.as_slice() {
        [] => json!(""),
        [Content::Text { text }] => json!(text),
        several => several
            .iter()
            .map(|content| match content {
                Content::Text { text } => words(text),
                Content::Media(media) => spell_media(media).unwrap_or_else(|| words(&media::in_words(media))),
            })
            .collect(),
    };
    json!({ "role": "tool", "tool_call_id": &*result.call, "content": content })
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

/// What the provider takes: no reasoning, and results in words.
pub(super) fn wants() -> Wants {
    let carried = |media: &Media| match &media.source {
        MediaSource::Base64(_) if media.mime.starts_with("audio/") => {
            matches!(media.mime.as_str(), "audio/wav" | "audio/x-wav" | "audio/mpeg")
        }
        MediaSource::Base64(_) => media::is_seen(media),
        MediaSource::Url(_) => media::is_picture(media) && media::is_seen(media),
        // A file of Anthropic's begins so, and is not known here.
        MediaSource::File(id) => !media::is_picture(media) && !id.starts_with("file_"),
    };
    Wants {
        longest_id: LONGEST_ID,
        carried,
        media_in_results: false,
        reasoning: |_, _| false,
        item_ids: false,
    }
}

/// What goes out.
pub(super) fn write(messages: &[Message]) -> Map<String, Value> {
    let mut fitter = Fitter::new(wants());
    let fitted = messages.iter().filter_map(|message| fitter.fit(message));
    let list: Vec<Value> = fitted.flat_map(|message| spell(&message)).collect();
    Map::from_iter([("messages".to_owned(), Value::Array(list))])
}
