//! Implements Epitome's own format: `{"role", "parts", …}`. It is the JSON that `serde` writes for a
//! [`Message`].
//!
//! This module parses messages field by field and not with `serde`. An error of `serde` contains the invalid
//! value, which may be message content, and does not contain the field's name. The field `wire` contains a
//! message's data from other formats, so that an exported session is complete when it is imported again.

use epitome_core::message::{
    Content, Media, MediaSource, Message, Part, Role, Timestamp, ToolCall, ToolResult,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::DialectError;
use crate::field::{self, Object, Result};
use crate::format::{About, Format, FormatHint};

/// The format's name.
const NAME: &str = "epitome";

/// Epitome's own format.
#[derive(Debug)]
pub(crate) struct Native;

static ABOUT: About = About { is_native: true, ..About::new(NAME) };

impl Format for Native {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn message_hint(&self, message: &Object) -> Option<FormatHint> {
        message.get("parts").is_some_and(Value::is_array).then_some(FormatHint::Shape)
    }

    fn read(&self, wire: &Value) -> Result<Message> {
        let fields = field::object(wire)?;
        let role = field::name(fields, "role")?;
        let role = Role::deserialize(Value::from(role)).map_err(|_| {
            field::unknown_value("role", role, &["system", "developer", "user", "assistant", "tool", "peer"])
        })?;
        if !fields.contains_key("parts") {
            return Err(field::missing("parts"));
        }
        let mut parts = Vec::new();
        field::each("parts", field::list(fields, "parts")?, |part| {
            parts.push(read_part(part)?);
            Ok(())
        })?;
        let mut message = Message::new(role, parts);
        message.author =
            field::optional_text(fields, "author")?.filter(|name| !name.is_empty()).map(Into::into);
        message.pinned = field::flag(fields, "pinned")?;
        message.skip = field::flag(fields, "skip")?;
        let optional = |key| fields.get(key).filter(|value: &&Value| !value.is_null());
        if let Some(seq) = optional("seq") {
            message.seq =
                seq.as_u64().ok_or_else(|| field::wrong_type("seq", seq, "a whole number from 0"))?;
        }
        message.at = read_time(fields)?;
        if optional("metadata").is_some() {
            message.metadata = field::inner(fields, "metadata", |metadata| Ok(metadata.clone()))?;
        }
        if let Some(residues) = optional("wire") {
            field::inner(fields, "wire", |_| Ok(()))?;
            message.wire = Some(Box::new(residues.clone()));
        }
        Ok(message)
    }

    /// Writes one message as `serde` does. Leaves out the position and the timestamp if they are 0, which means
    /// that they are not set.
    fn encode(&self, message: &Message) -> Vec<Value> {
        let Ok(Value::Object(mut fields)) = serde_json::to_value(message) else { return Vec::new() };
        fields.retain(|key, value| !(matches!(key.as_str(), "seq" | "at") && value.as_i64() == Some(0)));
        if let Some(Value::Object(residues)) = fields.get_mut("wire") {
            residues.shift_remove(NAME);
            if residues.is_empty() {
                fields.shift_remove("wire");
            }
        }
        vec![Value::Object(fields)]
    }

    /// Writes the messages without the data from other formats.
    fn write(&self, messages: &[Message]) -> Map<String, Value> {
        let list =
            messages.iter().flat_map(|message| self.encode(&Message { wire: None, ..message.clone() }));
        Map::from_iter([("messages".to_owned(), list.collect())])
    }
}

/// Returns the time at which a message was written. The field is `created_at`, or `at`, which is its older
/// name. Both fields accept RFC 3339 or milliseconds since 1970. If both are present, they must be equal. If
/// both are missing, the result is 0.
fn read_time(fields: &Object) -> Result<Timestamp> {
    const EXPECTED: &str = "RFC 3339 with an offset (2026-03-14T10:22:00Z) or milliseconds since 1970";
    let mut found = None;
    for key in TIMES {
        let Some(value) = fields.get(key).filter(|value| !value.is_null()) else { continue };
        let at = time(value).ok_or_else(|| field::wrong_type(key, value, EXPECTED))?;
        if found.is_some_and(|other| other != at) {
            return Err(DialectError::new(key, "differs from `at`; send only one of the two fields"));
        }
        found = Some(at);
    }
    Ok(found.unwrap_or_default())
}

/// The fields that may contain the time at which a message was written.
const TIMES: [&str; 2] = ["at", "created_at"];

fn time(value: &Value) -> Option<Timestamp> {
    match value {
        Value::String(text) => Timestamp::from_rfc3339(text),
        value => value.as_i64().map(Timestamp),
    }
}

fn read_part(part: &Object) -> Result<Part> {
    Ok(match field::name(part, "type")? {
        "text" => Part::text(field::text(part, "text")?),
        "thinking" => Part::Thinking {
            text: field::text(part, "text")?.to_owned(),
            signature: field::optional_text(part, "signature")?.map(str::to_owned),
            id: field::optional_text(part, "id")?.map(str::to_owned),
            redacted: field::flag(part, "redacted")?,
        },
        "tool_call" => Part::ToolCall(ToolCall {
            id: field::name(part, "id")?.into(),
            item_id: field::optional_text(part, "item_id")?.map(Into::into),
            name: field::name(part, "name")?.to_owned(),
            arguments: field::text(part, "arguments")?.to_owned(),
        }),
        "tool_result" => {
            let mut content = Vec::new();
            field::each("content", field::list(part, "content")?, |piece| {
                content.push(match field::name(piece, "type")? {
                    "text" => Content::Text { text: field::text(piece, "text")?.to_owned() },
                    "media" => Content::Media(read_media(piece)?),
                    other => return Err(field::unknown_value("type", other, &["text", "media"])),
                });
                Ok(())
            })?;
            let (call, error) = (field::name(part, "call")?.into(), field::flag(part, "error")?);
            Part::ToolResult(ToolResult { call, content, error })
        }
        "media" => Part::Media(read_media(part)?),
        other => {
            let allowed = ["text", "thinking", "tool_call", "tool_result", "media"];
            return Err(field::unknown_value("type", other, &allowed));
        }
    })
}

fn read_media(piece: &Object) -> Result<Media> {
    let source = field::inner(piece, "source", |source| {
        let text = |key| Ok(field::optional_text(source, key)?.map(str::to_owned));
        match (text("base64")?, text("url")?, text("file")?) {
            (Some(data), None, None) => Ok(MediaSource::Base64(data)),
            (None, Some(url), None) => Ok(MediaSource::Url(url)),
            (None, None, Some(id)) => Ok(MediaSource::File(id)),
            _ => Err(DialectError::new("", "must contain exactly one of base64, url and file")),
        }
    })?;
    let size = Option::deserialize(piece.get("size").unwrap_or(&Value::Null));
    let size = size.map_err(|_| DialectError::new("size", "must be a width and a height in pixels"))?;
    Ok(Media { mime: field::text(piece, "mime")?.to_owned(), source, size })
}

/// Writes the message's current position, timestamp and flags to the received JSON. A value that is already
/// correct is not changed.
pub(crate) fn write_current(items: &mut [Value], message: &Message) {
    let Some(fields) = items.first_mut().and_then(Value::as_object_mut) else { return };
    let (zero, unset) = (Value::from(0), Value::Bool(false));
    let time = TIMES.iter().find_map(|key| time(fields.get(*key)?)).unwrap_or_default();
    if time != message.at {
        fields.shift_remove("created_at");
        fields.insert("at".to_owned(), message.at.0.into());
    }
    for (key, current, default) in [
        ("seq", Value::from(message.seq), &zero),
        ("pinned", message.pinned.into(), &unset),
        ("skip", message.skip.into(), &unset),
    ] {
        if *fields.get(key).filter(|value| !value.is_null()).unwrap_or(default) != current {
            fields.insert(key.to_owned(), current);
        }
    }
}
