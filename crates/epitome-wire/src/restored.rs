//! Giving wire messages back as they came.

use epitome_core::message::Message;
use serde_json::{Map, Value, json};

use super::reader::joined_reply;
use super::{Dialect, blank_if_nothing, flags, ours, residue, responses};

/// A message on its way out.
pub(super) enum Restored {
    Values(Vec<Value>),
    /// As they were written.
    Texts(Vec<String>),
}

impl Restored {
    pub(super) fn values(self) -> Vec<Value> {
        match self {
            Self::Values(values) => values,
            Self::Texts(texts) => texts.iter().filter_map(|text| serde_json::from_str(text).ok()).collect(),
        }
    }

    pub(super) fn texts(self) -> Vec<String> {
        match self {
            Self::Values(values) => values.iter().map(Value::to_string).collect(),
            Self::Texts(texts) => texts,
        }
    }
}

/// A message as it came, or plainly spelled.
pub(super) fn of(dialect: Dialect, message: &Message) -> Restored {
    let plain = || {
        let mut plain = dialect.spelled(message);
        show(dialect, &mut plain, message);
        Restored::Values(plain)
    };
    let residue = message.wire.as_deref().and_then(|wire| wire.get(dialect.name()));
    let Some(residue) = residue else { return plain() };
    let texts: Option<Vec<String>> = residue
        .get("raw")
        .and_then(Value::as_array)
        .map(|texts| texts.iter().filter_map(Value::as_str).map(str::to_owned).collect());
    let came = match &texts {
        Some(texts) => texts.iter().map(|text| serde_json::from_str(text).ok()).collect(),
        None => residue::apply(&dialect.spelled(message), residue),
    };
    // Parts may have been changed since, and a residue may be anybody's: what is read again must be the message.
    let Some(mut came) = came.filter(|came: &Vec<Value>| reads_as(dialect, came, message)) else {
        return plain();
    };
    let before = texts.is_some().then(|| came.clone());
    if !show(dialect, &mut came, message) {
        return plain();
    }
    match (texts, before) {
        (Some(texts), Some(before)) if before == came => Restored::Texts(texts),
        _ => Restored::Values(came),
    }
}

/// Whether these items say what the message says, flags and places aside.
fn reads_as(dialect: Dialect, items: &[Value], message: &Message) -> bool {
    let mut read: Option<Message> = None;
    for item in items {
        let Ok(next) = dialect.understood(item) else { return false };
        read = Some(match read {
            None => next,
            Some(reply) => joined_reply(reply, next),
        });
    }
    read.is_some_and(|mut read| {
        if dialect == Dialect::Responses {
            read.parts = blank_if_nothing(read.parts);
        }
        read.role == message.role
            && read.parts == message.parts
            && read.author == message.author
            && (dialect != Dialect::Ours || read.metadata == message.metadata)
    })
}

/// Makes the items say the message's flags. False where they cannot.
fn show(dialect: Dialect, items: &mut [Value], message: &Message) -> bool {
    if dialect == Dialect::Ours {
        ours::show(items, message);
        return true;
    }
    flags::show(items, message)
}

/// The fields of the request that these messages came in.
pub(super) fn body(dialect: Dialect, messages: &[Message]) -> Map<String, Value> {
    let mut list = dialect.restore(messages);
    let mut fields = Map::new();
    match dialect {
        Dialect::OpenAi | Dialect::Ours => {}
        Dialect::Anthropic => {
            let is_system = |wire: &Value| wire.get("role").is_some_and(|role| role == "system");
            let head = list.iter().take_while(|wire| is_system(wire)).count();
            let system: Vec<Value> =
                list.drain(..head).filter_map(|mut wire| Some(wire.get_mut("content")?.take())).collect();
            fields.extend(joined(system).map(|system| ("system".to_owned(), system)));
        }
        Dialect::Responses => {
            let first = list.first_mut().and_then(|item| item.get_mut(responses::INSTRUCTIONS));
            if let Some(instructions) = first.map(Value::take) {
                fields.insert(responses::INSTRUCTIONS.to_owned(), instructions);
                list.remove(0);
            }
            let input = match list.as_slice() {
                [text @ Value::String(_)] => text.clone(),
                _ => Value::Array(list),
            };
            fields.insert("input".to_owned(), input);
            return fields;
        }
    }
    fields.insert("messages".to_owned(), Value::Array(list));
    fields
}

/// What stood at the head of a request: one as it is, several as one list of blocks.
fn joined(mut contents: Vec<Value>) -> Option<Value> {
    if contents.len() < 2 {
        return contents.pop();
    }
    let blocks = contents.into_iter().flat_map(|content| match content {
        Value::Array(blocks) => blocks,
        text => vec![json!({ "type": "text", "text": text })],
    });
    Some(blocks.collect())
}
