//! OpenAI's Responses: a flat list of items, in which a reply is several of them.
//!
//! A reply's items (reasoning, words, calls) are one message of ours, because a cut between a reasoning item and
//! what it led to is refused by the provider. Calls of tools that the provider defines (`shell_call`,
//! `computer_call` and the like) are calls where they have a `call_id`, so that they keep their outputs; what has
//! none, and every item that is unknown, lives in the residue of the message it stands in.
//!
//! `instructions`, and an `input` that is a bare string, are items here too: `{"instructions": …}` and the string.

use epitome_core::message::{Content, Media, MediaSource, Message, Part, Role, ToolCall, ToolResult};
use serde_json::{Map, Value, json};

use super::field::{self, Object, Result};
use super::fit::{Fitter, Wants};
use super::{blank_if_nothing, media};

const ROLES: &str = "system, developer, user and assistant";
const LONGEST_ID: usize = 64;
/// The field of a request, and the item that stands for it.
pub(super) const INSTRUCTIONS: &str = "instructions";

/// Whether an item goes on with the reply before it.
pub(super) fn goes_on(reply: &Message, next: &Message) -> bool {
    reply.role == Role::Assistant && next.role == Role::Assistant
}

pub(super) fn read(item: &Value) -> Result<Message> {
    if let Value::String(text) = item {
        return Ok(Message::user(text));
    }
    let fields = field::object(item)?;
    match field::optional_text(fields, "type")? {
        None if !fields.contains_key("role") && fields.contains_key(INSTRUCTIONS) => {
            Ok(Message::system(field::text(fields, INSTRUCTIONS)?))
        }
        None | Some("message") => said(fields),
        Some("reasoning") => reasoning(fields),
        Some("item_reference") => Ok(Message::assistant("")),
        Some(kind) => match kind.strip_suffix("_output") {
            Some(_) if fields.contains_key("call_id") || fields.contains_key(answers_by(kind)) => {
                answer(kind, fields)
            }
            Some(_) => Ok(Message::user("")),
            None if kind.ends_with("_call") && fields.contains_key("call_id") => call(kind, fields),
            None if kind.ends_with("_response") => Ok(Message::user("")),
            None => Ok(Message::assistant("")),
        },
    }
}

fn said(fields: &Object) -> Result<Message> {
    let role = match field::name(fields, "role")? {
        "system" => Role::System,
        "developer" => Role::Developer,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        other => return Err(field::unknown("role", other, ROLES)),
    };
    if !fields.contains_key("content") {
        return Err(field::missing("content"));
    }
    let mut parts = Vec::new();
    content(fields, "content", &mut |piece| {
        parts.push(match piece {
            Content::Text { text } => Part::Text { text },
            Content::Media(media) => Part::Media(media),
        });
    })?;
    Ok(Message::new(role, blank_if_nothing(parts)))
}

/// What is said; kinds that are unknown are passed over.
fn content(fields: &Object, key: &str, say: &mut dyn FnMut(Content)) -> Result<()> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(text)) => {
            if !text.is_empty() {
                say(Content::Text { text: text.clone() });
            }
            Ok(())
        }
        Some(Value::Array(pieces)) => field::each(key, pieces, |piece| {
            match field::optional_text(piece, "type")?.unwrap_or_default() {
                "input_text" | "output_text" | "text" => {
                    say(Content::Text { text: field::text(piece, "text")?.to_owned() });
                }
                "refusal" => say(Content::Text { text: field::text(piece, "refusal")?.to_owned() }),
                "input_audio" => say(Content::Media(media::sound(piece)?)),
                _ => medium(piece)?.into_iter().for_each(|found| say(Content::Media(found))),
            }
            Ok(())
        }),
        Some(other) if key == "output" => {
            say(Content::Text { text: other.to_string() });
            Ok(())
        }
        Some(other) => Err(field::wrong(key, other, "a string, a list or null")),
    }
}

fn medium(piece: &Object) -> Result<Option<Media>> {
    let (mime, address) = match field::optional_text(piece, "type")? {
        Some("input_image" | "computer_screenshot") => (media::IMAGE, "image_url"),
        Some("input_file") => (media::FILE, "file_url"),
        _ => return Ok(None),
    };
    if let Some(url) = field::optional_text(piece, address)? {
        return Ok(Some(match address {
            // A link to a file is never taken for its bytes, so that it is given back as one.
            "file_url" => media::of(mime, MediaSource::Url(url.to_owned())),
            _ => media::at_address(url, mime),
        }));
    }
    if let Some(data) = field::optional_text(piece, "file_data")? {
        let media = media::at_address(data, "");
        let bare = matches!(media.source, MediaSource::Url(_));
        return Ok(Some(if bare { media::of("", MediaSource::Base64(data.to_owned())) } else { media }));
    }
    let id = field::optional_text(piece, "file_id")?;
    Ok(id.map(|id| media::of(mime, MediaSource::File(id.to_owned()))))
}

fn reasoning(fields: &Object) -> Result<Message> {
    let mut texts = Vec::new();
    field::each("summary", field::list(fields, "summary")?, |piece| {
        texts.push(field::optional_text(piece, "text")?.unwrap_or_default().to_owned());
        Ok(())
    })?;
    let part = Part::Thinking {
        text: texts.join("\n\n"),
        signature: field::optional_text(fields, "encrypted_content")?.map(str::to_owned),
        id: Some(field::optional_text(fields, "id")?.unwrap_or_default().to_owned()),
        redacted: false,
    };
    Ok(Message::new(Role::Assistant, [part]))
}

fn call(kind: &str, fields: &Object) -> Result<Message> {
    let given = |key: &str| match fields.get(key) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(object @ Value::Object(_)) => Ok(object.to_string()),
        None | Some(Value::Null) => Ok(String::new()),
        Some(other) => Err(field::wrong(key, other, "a string")),
    };
    let (name, arguments) = match kind {
        "function_call" => (field::name(fields, "name")?, given("arguments")?),
        "custom_tool_call" => (field::name(fields, "name")?, given("input")?),
        // A tool of the provider's: its kind is its name.
        _ => (kind.trim_end_matches("_call"), given("action")?),
    };
    let name = if name.is_empty() { kind } else { name };
    let item_id = field::optional_text(fields, "id")?.filter(|id| !id.is_empty());
    let call = ToolCall {
        id: field::name(fields, "call_id")?.into(),
        item_id: item_id.map(Into::into),
        name: name.to_owned(),
        arguments,
    };
    Ok(Message::new(Role::Assistant, [Part::ToolCall(call)]))
}

/// By which field an output names its call.
pub(super) fn answers_by(kind: &str) -> &'static str {
    if kind == "local_shell_call_output" { "id" } else { "call_id" }
}

fn answer(kind: &str, fields: &Object) -> Result<Message> {
    let mut said = Vec::new();
    match fields.get("output").and_then(Value::as_object).map(medium) {
        Some(found) => match found.map_err(|error| error.under("output"))? {
            Some(media) => said.push(Content::Media(media)),
            None => content(fields, "output", &mut |piece| said.push(piece))?,
        },
        None => content(fields, "output", &mut |piece| said.push(piece))?,
    }
    // Some send it under the name that all others have.
    let by = if fields.contains_key("call_id") { "call_id" } else { answers_by(kind) };
    let call = field::name(fields, by)?.into();
    Ok(Message::new(Role::Tool, [Part::ToolResult(ToolResult { call, content: said, error: false })]))
}

/// One message, the plain way: of a reply each part is an item, of anything else all words are one.
pub(super) fn spell(message: &Message) -> Vec<Value> {
    let role = if message.role == Role::Peer { Role::User } else { message.role };
    let mut out = Vec::new();
    let mut content = Vec::new();
    for part in &message.parts {
        match part {
            Part::Text { text } if role == Role::Assistant => {
                out.push(item(role, &[json!({ "type": "output_text", "text": text })]));
            }
            Part::Media(media) if role == Role::Assistant => {
                out.push(item(role, &[json!({ "type": "output_text", "text": media::in_words(media) })]));
            }
            Part::Text { text } => content.push(words(text)),
            Part::Media(media) => content.push(spell_media(media)),
            Part::Thinking { text, signature, id, .. } => {
                let mut spelled = Map::from_iter([("type".to_owned(), json!("reasoning"))]);
                if let Some(id) = id.as_ref().filter(|id| !id.is_empty()) {
                    spelled.insert("id".to_owned(), json!(id));
                }
                let text = (!text.is_empty()).then(|| json!({ "type": "summary_text", "text": text }));
                spelled.insert("summary".to_owned(), text.into_iter().collect());
                if let Some(signature) = signature {
                    spelled.insert("encrypted_content".to_owned(), json!(signature));
                }
                out.push(Value::Object(spelled));
            }
            Part::ToolCall(call) => {
                let mut spelled = Map::from_iter([("type".to_owned(), json!("function_call"))]);
                if let Some(id) = &call.item_id {
                    spelled.insert("id".to_owned(), json!(&**id));
                }
                spelled.insert("call_id".to_owned(), json!(&*call.id));
                spelled.insert("name".to_owned(), json!(call.name));
                spelled.insert("arguments".to_owned(), json!(call.arguments));
                out.push(Value::Object(spelled));
            }
            Part::ToolResult(result) => out.push(json!({
                "type": "function_call_output",
                "call_id": &*result.call,
                "output": spell_answer(&result.content),
            })),
        }
    }
    if !content.is_empty() {
        out.push(item(role, &content));
    }
    out
}

fn item(role: Role, content: &[Value]) -> Value {
    json!({ "type": "message", "role": role.to_string(), "content": content })
}

fn words(text: &str) -> Value {
    json!({ "type": "input_text", "text": text })
}

fn spell_answer(content: &[Content]) -> Value {
    match content {
        [] => json!(""),
        [Content::Text { text }] => json!(text),
        several => several
            .iter()
            .map(|piece| match piece {
                Content::Text { text } => words(text),
                Content::Media(media) => spell_media(media),
            })
            .collect(),
    }
}

fn spell_media(media: &Media) -> Value {
    if let Some(sound) = media::sound_spelled(media) {
        return sound;
    }
    let picture = media::is_picture(media);
    let kind = if picture { "input_image" } else { "input_file" };
    match (&media.source, media::address(media)) {
        (MediaSource::File(id), _) => json!({ "type": kind, "file_id": id }),
        (_, Some(address)) if picture => json!({ "type": kind, "image_url": address }),
        (MediaSource::Base64(_), Some(address)) => {
            json!({ "type": kind, "filename": media::file_name(media), "file_data": address })
        }
        (_, address) => json!({ "type": kind, "file_url": address }),
    }
}

/// What the provider takes: reasoning by the name or the seal it gave it, and results in words.
pub(super) fn wants() -> Wants {
    let carried = |media: &Media| match &media.source {
        // A file of Anthropic's begins so, and is not known here.
        MediaSource::File(id) => !id.starts_with("file_"),
        _ => media::is_seen(media),
    };
    Wants {
        longest_id: LONGEST_ID,
        carried,
        media_in_results: false,
        // Who has no id was written by another provider.
        reasoning: |signature, id| id.is_some_and(|id| !id.is_empty() || signature.is_some()),
        item_ids: true,
    }
}

/// What goes out.
///
/// Standing orders are items, since those keep their role and stay apart; only what came as `instructions` goes
/// back there, so that who puts these fields into the request they came from says nothing twice.
pub(super) fn write(messages: &[Message], first_is_instructions: bool) -> Map<String, Value> {
    let mut fitter = Fitter::new(wants());
    let mut fields = Map::new();
    let mut rest = messages;
    if let (true, Some((first, others))) = (first_is_instructions, messages.split_first()) {
        let words = first.parts.iter().filter_map(|part| match part {
            Part::Text { text } => Some(text.as_str()),
            _ => None,
        });
        fields.insert(INSTRUCTIONS.to_owned(), json!(words.collect::<Vec<_>>().join("\n\n")));
        rest = others;
    }
    let fitted = rest.iter().filter_map(|message| fitter.fit(message));
    let input: Vec<Value> = fitted.flat_map(|message| spell(&message)).collect();
    fields.insert("input".to_owned(), Value::Array(input));
    fields
}
