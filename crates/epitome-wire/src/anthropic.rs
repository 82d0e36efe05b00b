//! Anthropic's messages: two sides that take turns, each message a list of blocks.
//!
//! The system prompt is a field of the request and not a message; here it is read and given back as a message of
//! the role `system`. Blocks that are unknown, such as those of tools that run at the provider, live in the residue
//! of the message they stand in.

use epitome_core::message::{Content, Media, MediaSource, Message, Part, Role, ToolCall, ToolResult};
use serde_json::{Map, Value, json};

use super::field::{self, Object, Result};
use super::fit::{Fitter, Wants, opener};
use super::{Dialect, blank_if_nothing, media, restored};

const LONGEST_ID: usize = 64;

/// What a later standing order begins with, where there is no place for one.
pub(super) const NOTE: &str = "[note from the system]\n";

pub(super) fn read(wire: &Value) -> Result<Message> {
    let fields = field::object(wire)?;
    let role = match field::name(fields, "role")? {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "system" => Role::System,
        other => {
            return Err(field::unknown("role", other, "user, assistant and, for the system prompt, system"));
        }
    };
    let mut parts = Vec::new();
    match fields.get("content") {
        None => return Err(field::missing("content")),
        Some(Value::Null) => {}
        Some(Value::String(text)) => parts.push(Part::text(text)),
        Some(Value::Array(blocks)) => {
            field::each("content", blocks, |block| read_block(role, block, &mut parts))?;
        }
        Some(other) => return Err(field::wrong("content", other, "a string or a list")),
    }
    let answers = role == Role::User && !parts.is_empty();
    let answers = answers && parts.iter().all(|part| matches!(part, Part::ToolResult(_)));
    Ok(Message::new(if answers { Role::Tool } else { role }, blank_if_nothing(parts)))
}

/// A block; one that is unknown, or that this role never says, is passed over.
pub(super) fn read_block(role: Role, block: &Object, parts: &mut Vec<Part>) -> Result<()> {
    let kind = field::name(block, "type")?;
    match (kind, role) {
        ("thinking", Role::Assistant) => parts.push(Part::Thinking {
            text: field::text(block, "thinking")?.to_owned(),
            signature: field::optional_text(block, "signature")?.map(str::to_owned),
            id: None,
            redacted: false,
        }),
        ("redacted_thinking", Role::Assistant) => parts.push(Part::Thinking {
            text: String::new(),
            signature: Some(field::text(block, "data")?.to_owned()),
            id: None,
            redacted: true,
        }),
        ("tool_use", Role::Assistant) => {
            let arguments = match block.get("input") {
                None | Some(Value::Null) => String::new(),
                Some(input) => input.to_string(),
            };
            parts.push(Part::ToolCall(ToolCall {
                id: field::name(block, "id")?.into(),
                item_id: None,
                name: field::name(block, "name")?.to_owned(),
                arguments,
            }));
        }
        ("tool_result", Role::User) => parts.push(Part::ToolResult(ToolResult {
            call: field::name(block, "tool_use_id")?.into(),
            content: answer(block)?,
            error: field::flag(block, "is_error")?,
        })),
        _ => read_words(block, &mut |piece| {
            parts.push(match piece {
                Content::Text { text } => Part::Text { text },
                Content::Media(media) => Part::Media(media),
            });
        })?,
    }
    Ok(())
}

fn answer(block: &Object) -> Result<Vec<Content>> {
    let mut said = Vec::new();
    match block.get("content") {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => said.push(Content::Text { text: text.clone() }),
        Some(Value::Array(blocks)) => {
            field::each("content", blocks, |block| read_words(block, &mut |piece| said.push(piece)))?;
        }
        Some(other) => return Err(field::wrong("content", other, "a string or a list")),
    }
    Ok(said)
}

/// Words and media, which stand in messages, in results and in documents alike.
fn read_words(block: &Object, say: &mut dyn FnMut(Content)) -> Result<()> {
    match field::name(block, "type")? {
        "text" => say(Content::Text { text: field::text(block, "text")?.to_owned() }),
        kind @ ("image" | "document") => {
            let source = field::inner(block, "source")?;
            let mime = if kind == "image" { media::IMAGE } else { "application/pdf" };
            read_source(source, mime, say).map_err(|error| error.under("source"))?;
        }
        "search_result" => texts(block, say),
        _ => {}
    }
    Ok(())
}

fn read_source(source: &Object, mime: &str, say: &mut dyn FnMut(Content)) -> Result<()> {
    let source = match field::name(source, "type")? {
        "base64" => {
            let told = field::optional_text(source, "media_type")?.unwrap_or_default();
            let data = MediaSource::Base64(field::text(source, "data")?.to_owned());
            say(Content::Media(media::of(told, data)));
            return Ok(());
        }
        "url" => MediaSource::Url(field::text(source, "url")?.to_owned()),
        "file" => MediaSource::File(field::text(source, "file_id")?.to_owned()),
        // A document of words is words.
        "text" => {
            say(Content::Text { text: field::text(source, "data")?.to_owned() });
            return Ok(());
        }
        "content" => {
            texts(source, say);
            return Ok(());
        }
        _ => return Ok(()),
    };
    say(Content::Media(media::of(mime, source)));
    Ok(())
}

/// The words of a document or of something found, whose other fields stay in the residue.
fn texts(block: &Object, say: &mut dyn FnMut(Content)) {
    let (one, several) = match block.get("content") {
        Some(Value::String(text)) => (Some(text.as_str()), &[][..]),
        Some(Value::Array(blocks)) => (None, blocks.as_slice()),
        _ => (None, &[][..]),
    };
    let is_text = |block: &&Value| block.get("type").is_some_and(|kind| kind == "text");
    let several = several.iter().filter(is_text).filter_map(|block| block.get("text")?.as_str());
    one.into_iter().chain(several).for_each(|text| say(Content::Text { text: text.to_owned() }));
}

/// One message, the plain way.
pub(super) fn spell(message: &Message) -> Vec<Value> {
    let role = match message.role {
        Role::System | Role::Developer => "system",
        Role::Assistant => "assistant",
        Role::User | Role::Peer | Role::Tool => "user",
    };
    let content = match message.parts.as_slice() {
        [Part::Text { text }] => json!(text),
        parts => parts.iter().map(spell_part).collect(),
    };
    vec![json!({ "role": role, "content": content })]
}

fn words(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

pub(super) fn spell_part(part: &Part) -> Value {
    match part {
        Part::Text { text } => words(text),
        Part::Media(media) => spell_media(media),
        Part::Thinking { signature, redacted: true, .. } => {
            json!({ "type": "redacted_thinking", "data": signature.as_deref().unwrap_or_default() })
        }
        Part::Thinking { text, signature, .. } => {
            let mut spelled = json!({ "type": "thinking", "thinking": text });
            if let (Some(signature), Some(spelled)) = (signature, spelled.as_object_mut()) {
                spelled.insert("signature".to_owned(), json!(signature));
            }
            spelled
        }
        Part::ToolCall(call) => {
            let input = call.arguments_as_object();
            let input: Value = serde_json::from_str(&input).unwrap_or_else(|_| json!({}));
            json!({ "type": "tool_use", "id": &*call.id, "name": call.name, "input": input })
        }
        Part::ToolResult(result) => {
            let mut spelled = Map::new();
            spelled.insert("type".to_owned(), json!("tool_result"));
            spelled.insert("tool_use_id".to_owned(), json!(&*result.call));
            match result.content.as_slice() {
                [] => {}
                [Content::Text { text }] => {
                    spelled.insert("content".to_owned(), json!(text));
                }
                several => {
                    let several = several.iter().map(|piece| match piece {
                        Content::Text { text } => words(text),
                        Content::Media(media) => spell_media(media),
                    });
                    spelled.insert("content".to_owned(), several.collect());
                }
            }
            if result.error {
                spelled.insert("is_error".to_owned(), json!(true));
            }
            Value::Object(spelled)
        }
    }
}

fn spell_media(media: &Media) -> Value {
    let source = match &media.source {
        MediaSource::Base64(data) => json!({ "type": "base64", "media_type": media.mime, "data": data }),
        MediaSource::Url(url) => json!({ "type": "url", "url": url }),
        MediaSource::File(id) => json!({ "type": "file", "file_id": id }),
    };
    json!({ "type": if media::is_picture(media) { "image" } else { "document" }, "source": source })
}

/// What the provider takes: reasoning that it signed, and media in results too.
pub(super) fn wants() -> Wants {
    let carried = |media: &Media| match &media.source {
        // A file of OpenAI's begins so, and is not known here.
        MediaSource::File(id) => !id.starts_with("file-"),
        MediaSource::Url(url) => {
            url.starts_with("http") && (media::is_known_picture(media) || media.mime == "application/pdf")
        }
        MediaSource::Base64(_) => media::is_known_picture(media) || media.mime == "application/pdf",
    };
    Wants {
        longest_id: LONGEST_ID,
        carried,
        media_in_results: true,
        // Who has an id was written by another provider.
        reasoning: |signature, id| signature.is_some() && id.is_none(),
        item_ids: false,
    }
}

/// What goes out: sides that take turns, the user first; a reply's reasoning where it was; a standing order that
/// comes later as a note from the user's side.
pub(super) fn write(messages: &[Message]) -> Map<String, Value> {
    let mut fitter = Fitter::new(wants());
    let (mut system, mut turns) = (Vec::new(), Vec::<(&str, Vec<Value>)>::new());
    let mut unreasoned = false;
    for message in messages {
        let lost = lost_a_block(message);
        let Some(mut message) = fitter.fit(message) else { continue };
        // Who takes part of a turn's reasoning away takes the rest: none is taken that begins in its midst.
        unreasoned = match message.role {
            Role::Assistant => unreasoned || lost,
            Role::Tool => unreasoned,
            _ => false,
        };
        let head = message.role.is_system() && turns.is_empty();
        if message.role == Role::Assistant {
            // A reply that ends in white space is refused as the last one. Whether it is the last must not change
            // how it is spelled, so all are trimmed.
            for part in &mut message.parts {
                if let Part::Text { text } = part {
                    text.truncate(text.trim_end().len());
                }
            }
            message.parts.retain(|part| !unreasoned || !matches!(part, Part::Thinking { .. }));
        } else if message.role.is_system() && !head {
            for part in &mut message.parts {
                if let Part::Text { text } = part {
                    text.insert_str(0, NOTE);
                }
            }
        }
        // Results come before anything else the user's side says. A reply keeps its order: reasoning between
        // words and calls must be given back as it came.
        message.parts.sort_by_key(|part| !matches!(part, Part::ToolResult(_)));
        let mut blocks: Vec<Value> = message.parts.iter().map(spell_part).collect();
        if head {
            system.append(&mut blocks);
            continue;
        }
        let side = if message.role == Role::Assistant { "assistant" } else { "user" };
        match turns.last_mut() {
            Some((last, said)) if *last == side => {
                // One reply now, which has to begin with the reasoning that either began with.
                let leading =
                    |blocks: &[Value]| blocks.iter().take_while(|block| is_reasoning(block)).count();
                let (at, count) = (leading(said), leading(&blocks));
                said.splice(at..at, blocks.drain(..count));
                said.append(&mut blocks);
            }
            last => {
                if last.is_none() && side == "assistant" {
                    turns.push(("user", opener().parts.iter().map(spell_part).collect()));
                }
                turns.push((side, blocks));
            }
        }
    }
    if turns.is_empty() && !system.is_empty() {
        turns.push(("user", opener().parts.iter().map(spell_part).collect()));
    }
    let mut fields = Map::new();
    if !system.is_empty() {
        fields.insert("system".to_owned(), Value::Array(system));
    }
    let turns = turns.into_iter().map(|(role, content)| json!({ "role": role, "content": content }));
    fields.insert("messages".to_owned(), turns.collect());
    fields
}

/// Whether a reply with reasoning came with blocks that are not sent, such as those of tools that run at the
/// provider. The reasoning goes on from what they said and may not be sent without them. They themselves are not
/// sent, since no context counts them: what was searched may be larger than all that is said.
fn lost_a_block(message: &Message) -> bool {
    let thinks = message.parts.iter().any(|part| matches!(part, Part::Thinking { .. }));
    if !thinks || message.role != Role::Assistant || message.wire.is_none() {
        return false;
    }
    let came = restored::of(Dialect::Anthropic, message).values();
    let mut blocks = came.iter().filter_map(|wire| wire.get("content")?.as_array()).flatten();
    let sent = ["text", "thinking", "redacted_thinking", "tool_use", "image", "document", "search_result"];
    blocks.any(|block| block.get("type").and_then(Value::as_str).is_none_or(|kind| !sent.contains(&kind)))
}

pub(super) fn is_reasoning(block: &Value) -> bool {
    block.get("type").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("thinking"))
}
