//! Implements Epitome's own format: `{"role", "parts", …}`, as `serde` writes messages.
//!
//! Messages are nevertheless parsed field by field. The errors of `serde` repeat the invalid value, which may
//! be message content, and report only the line. Data from other formats stays with the message (`wire`), so
//! that an exported session is complete when it is imported again.

use epitome_core::message::{
    Content, Media, MediaSource, Message, Part, Role, Timestamp, ToolCall, ToolResult,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::DialectError;
use crate::field::{self, Object, Result};
use crate::format::{About, Format, Sign};

/// The format's name.
const NAME: &str = "epitome";

/// Epitome's own format.
#[derive(Debug)]
pub(crate) struct Ours;

static ABOUT: About = About { is_native: true, ..About::new(NAME) };

impl Format for Ours {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn sign(&self, message: &Object) -> Option<Sign> {
        message.get("parts").is_some_and(Value::is_array).then_some(Sign::Shape)
    }

    fn read(&self, wire: &Value) -> Result<Message> {
        let fields = field::object(wire)?;
        let named = field::name(fields, "role")?;
        let role = Role::deserialize(Value::from(named)).map_err(|_| {
            field::unknown("role", named, "system, developer, user, assistant, tool and peer")
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
        let told = |key| fields.get(key).filter(|value: &&Value| !value.is_null());
        if let Some(seq) = told("seq") {
            message.seq = seq.as_u64().ok_or_else(|| field::wrong("seq", seq, "a whole number from 0"))?;
        }
        if let Some(at) = told("at") {
            let at = at.as_i64().ok_or_else(|| field::wrong("at", at, "a whole number of milliseconds"))?;
            message.at = Timestamp(at);
        }
        if told("metadata").is_some() {
            message.metadata = field::inner(fields, "metadata", |notes| Ok(notes.clone()))?;
        }
        if let Some(came) = told("wire") {
            field::inner(fields, "wire", |_| Ok(()))?;
            message.wire = Some(Box::new(came.clone()));
        }
        Ok(message)
    }

    /// Writes one message as `serde` does, without a position or timestamp that is not set.
    fn spell(&self, message: &Message) -> Vec<Value> {
        let Ok(Value::Object(mut spelled)) = serde_json::to_value(message) else { return Vec::new() };
        spelled.retain(|key, value| !(matches!(key.as_str(), "seq" | "at") && value.as_i64() == Some(0)));
        if let Some(Value::Object(came)) = spelled.get_mut("wire") {
            came.shift_remove(NAME);
            if came.is_empty() {
                spelled.shift_remove("wire");
            }
        }
        vec![Value::Object(spelled)]
    }

    /// Writes the messages without the data from other formats.
    fn write(&self, messages: &[Message]) -> Map<String, Value> {
        let list = messages.iter().flat_map(|message| self.spell(&Message { wire: None, ..message.clone() }));
        Map::from_iter([("messages".to_owned(), list.collect())])
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
                    other => return Err(field::unknown("type", other, "text and media")),
                });
                Ok(())
            })?;
            let (call, error) = (field::name(part, "call")?.into(), field::flag(part, "error")?);
            Part::ToolResult(ToolResult { call, content, error })
        }
        "media" => Part::Media(read_media(part)?),
        other => {
            let allowed = "text, thinking, tool_call, tool_result and media";
            return Err(field::unknown("type", other, allowed));
        }
    })
}

fn read_media(piece: &Object) -> Result<Media> {
    let source = field::inner(piece, "source", |source| {
        let told = |key| Ok(field::optional_text(source, key)?.map(str::to_owned));
        match (told("base64")?, told("url")?, told("file")?) {
            (Some(data), None, None) => Ok(MediaSource::Base64(data)),
            (None, Some(url), None) => Ok(MediaSource::Url(url)),
            (None, None, Some(id)) => Ok(MediaSource::File(id)),
            _ => Err(DialectError::new("", "must be one of base64, url and file")),
        }
    })?;
    let size = Option::deserialize(piece.get("size").unwrap_or(&Value::Null));
    let size = size.map_err(|_| DialectError::new("size", "must be a width and a height in pixels"))?;
    Ok(Media { mime: field::text(piece, "mime")?.to_owned(), source, size })
}

/// Updates the position, time and flags in a received message to the current ones. Changes nothing if they
/// are already right.
pub(crate) fn show(items: &mut [Value], message: &Message) {
    let Some(fields) = items.first_mut().and_then(Value::as_object_mut) else { return };
    let (zero, unset) = (Value::from(0), Value::Bool(false));
    for (key, now, usual) in [
        ("seq", Value::from(message.seq), &zero),
        ("at", message.at.0.into(), &zero),
        ("pinned", message.pinned.into(), &unset),
        ("skip", message.skip.into(), &unset),
    ] {
        if *fields.get(key).filter(|said| !said.is_null()).unwrap_or(usual) != now {
            fields.insert(key.to_owned(), now);
        }
    }
}
