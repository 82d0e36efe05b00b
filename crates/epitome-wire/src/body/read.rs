//! Taking a request in: where its list is, in which dialect, and what each message was made of.

use std::ops::Range;

use epitome_core::message::{Message, Part, Role};
use epitome_core::view;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::raw::{self, FLAGS, Members};
use super::{Body, Origin};
use crate::reader::{joined_reply, parsed, unreadable};
use crate::{Dialect, DialectError, blank_if_nothing, field, flags, responses};

/// Reads a body; the dialect is told from its shape where none is given.
pub(super) fn body(text: &str, dialect: Option<Dialect>) -> Result<Body, DialectError> {
    let first = text.trim_start().chars().next();
    let fields = if first == Some('{') { Some(members(text)?) } else { None };
    if fields.is_none() && first != Some('[') {
        return Err(field::wrong("", &parsed(text)?, "a request or a list of messages"));
    }
    let key = match (&fields, dialect) {
        (_, Some(Dialect::Responses)) => "input",
        (Some(fields), None) if fields.get("messages").is_none() && fields.get("input").is_some() => "input",
        _ => "messages",
    };
    let list = match &fields {
        None => text.trim(),
        Some(fields) => once(fields, key)?.ok_or_else(|| field::missing(key))?,
    };
    let texts = if fields.is_some() && key == "input" && list.starts_with('"') {
        vec![list]
    } else if list.starts_with('[') {
        serde_json::from_str::<Vec<&RawValue>>(list)
            .map_err(|error| unreadable(&error))?
            .into_iter()
            .map(RawValue::get)
            .collect()
    } else {
        let allowed = if key == "input" { "a string or a list" } else { "a list" };
        return Err(field::wrong(key, &parsed(list)?, allowed));
    };
    let under =
        |key: &'static str, at: usize| move |error: DialectError| error.under(&format!("{key}[{at}]"));
    let values = texts.iter().enumerate().map(|(at, text)| parsed(text).map_err(under(key, at)));
    let values: Vec<Value> = values.collect::<Result<_, _>>()?;
    let dialect = dialect.unwrap_or_else(|| told(fields.as_ref(), key, &values));
    let key = if dialect == Dialect::Responses { "input" } else { "messages" };

    let mut reading = Reading { dialect, messages: Vec::new(), origins: Vec::new() };
    let head = fields.as_ref().map_or(Ok(None), |fields| head(dialect, fields))?;
    if let Some(head) = &head {
        let name = if dialect == Dialect::Responses { responses::INSTRUCTIONS } else { "system" };
        let value = parsed(head).map_err(|error| error.under(name))?;
        reading.take(&value, 0..0).map_err(|error| error.renamed(name))?;
    }
    for (at, value) in values.iter().enumerate() {
        reading.take(value, at..at + 1).map_err(under(key, at))?;
    }
    let Reading { messages, origins, .. } = reading.finish();
    let model = fields.as_ref().and_then(|fields| serde_json::from_str(fields.get("model")?).ok());
    let place = |(name, piece): &(String, &str)| (name.clone(), raw::place(text, piece));
    Ok(Body {
        dialect,
        fields: fields.as_ref().map(|fields| fields.0.iter().map(place).collect()),
        list: raw::place(text, list),
        items: texts.iter().map(|piece| raw::place(text, piece)).collect(),
        head,
        messages,
        origins,
        model,
        reference: values.iter().find_map(|value| reference(dialect, value)),
        text: text.to_owned(),
    })
}

fn members(text: &str) -> Result<Members<'_>, DialectError> {
    serde_json::from_str(text).map_err(|error| unreadable(&error))
}

/// A field that must not be there twice: nobody could tell which one counts.
fn once<'a>(fields: &Members<'a>, name: &str) -> Result<Option<&'a str>, DialectError> {
    let mut found = fields.0.iter().filter(|(key, _)| key == name).map(|(_, text)| *text);
    match (found.next(), found.next()) {
        (_, Some(_)) => Err(DialectError::new(name, "is there twice")),
        (found, None) => Ok(found),
    }
}

/// The system prompt that is a field, as a wire message.
fn head(dialect: Dialect, fields: &Members<'_>) -> Result<Option<String>, DialectError> {
    let given = |name: &str| Ok(once(fields, name)?.filter(|text| *text != "null"));
    Ok(match dialect {
        Dialect::Responses => {
            given(responses::INSTRUCTIONS)?.map(|text| format!("{{\"{}\":{text}}}", responses::INSTRUCTIONS))
        }
        Dialect::Anthropic => {
            given("system")?.map(|text| format!("{{\"role\":\"system\",\"content\":{text}}}"))
        }
        Dialect::OpenAi | Dialect::Ours => None,
    })
}

/// What an item is called that stands for messages which are not here.
fn reference(dialect: Dialect, value: &Value) -> Option<&'static str> {
    let kinds = ["item_reference", "compaction", "compaction_summary"];
    let kind = value.get("type")?.as_str().filter(|_| dialect == Dialect::Responses)?;
    kinds.into_iter().find(|known| *known == kind)
}

/// The dialect of a body, by its shape.
fn told(fields: Option<&Members<'_>>, key: &str, values: &[Value]) -> Dialect {
    if let Some(fields) = fields {
        if key == "input" {
            return Dialect::Responses;
        }
        let tools = fields.get("tools").map(raw::items).unwrap_or_default();
        let schema = |tool: &&str| Members::of(tool).get("input_schema").is_some();
        if fields.get("system").is_some()
            || fields.get("anthropic_version").is_some()
            || tools.iter().any(schema)
        {
            return Dialect::Anthropic;
        }
    }
    values.iter().find_map(Dialect::of).unwrap_or_else(|| {
        // Words alone, which two of them take. The stricter one is meant where a field or the model is its own; a system
        // message in the list is never its own.
        let system = values.iter().any(|value| value.get("role").is_some_and(|role| role == "system"));
        let own = |fields: &Members<'_>| {
            let claude = fields.get("model").is_some_and(|model| model.starts_with("\"claude"));
            claude || ["stop_sequences", "thinking", "top_k"].iter().any(|field| fields.get(field).is_some())
        };
        if !system && fields.is_some_and(own) { Dialect::Anthropic } else { Dialect::OpenAi }
    })
}

/// Messages in the making.
struct Reading {
    dialect: Dialect,
    messages: Vec<Message>,
    origins: Vec<Origin>,
}

impl Reading {
    fn take(&mut self, wire: &Value, items: Range<usize>) -> Result<(), DialectError> {
        let message = self.dialect.understood(wire)?;
        if self.dialect == Dialect::Anthropic
            && let Some(groups) = groups(&message, wire)?
        {
            for (blocks, wire) in groups {
                let message = self.dialect.understood(&wire)?;
                self.push(message, Origin { items: items.clone(), blocks: Some(blocks) });
            }
            return Ok(());
        }
        if self.dialect == Dialect::Responses
            && let (Some(reply), Some(origin)) = (self.messages.last_mut(), self.origins.last_mut())
            && responses::goes_on(reply, &message)
        {
            *reply = joined_reply(std::mem::replace(reply, Message::user("")), message);
            origin.items.end = items.end;
            return Ok(());
        }
        self.push(message, Origin { items, blocks: None });
        Ok(())
    }

    fn push(&mut self, message: Message, origin: Origin) {
        self.messages.push(message);
        self.origins.push(origin);
    }

    fn finish(mut self) -> Self {
        for (message, seq) in self.messages.iter_mut().zip(1..) {
            message.seq = seq;
            if self.dialect == Dialect::Responses {
                message.parts = blank_if_nothing(std::mem::take(&mut message.parts));
            }
        }
        self
    }
}

/// The messages that were merged into this one of Anthropic's, each with its blocks and as it would stand alone: a
/// summary of ours, and runs of blocks with flags of their own. None where it is one message.
#[expect(clippy::type_complexity, reason = "said once")]
fn groups(message: &Message, wire: &Value) -> Result<Option<Vec<(Range<usize>, Value)>>, DialectError> {
    let (Some(fields), Some(blocks)) = (wire.as_object(), wire.get("content").and_then(Value::as_array))
    else {
        return Ok(None);
    };
    if message.role == Role::Tool && blocks.iter().all(|block| block.get(FLAGS).is_none()) {
        return Ok(None);
    }
    let whole = flags::of(fields)?;
    let mut groups: Vec<(Range<usize>, (bool, bool), bool)> = Vec::new();
    for (at, block) in blocks.iter().enumerate() {
        let own = block.as_object().map_or(Ok((false, false)), flags::of);
        let own = own.map_err(|error| error.under(&format!("content[{at}]")))?;
        let marks = (whole.0 || own.0, whole.1 || own.1);
        let text = block.get("text").and_then(Value::as_str).filter(|text| text.starts_with('<'));
        let summary = text.is_some_and(|text| {
            let alone = Message { parts: vec![Part::text(text)], ..Message::new(message.role, []) };
            view::recognise(&alone).is_some()
        });
        match groups.last_mut() {
            Some((run, flags, was)) if *flags == marks && !*was && !summary => run.end = at + 1,
            _ => groups.push((at..at + 1, marks, summary)),
        }
    }
    if groups.len() < 2 && groups.iter().all(|(_, flags, _)| *flags == whole) {
        return Ok(None);
    }
    let groups = groups.into_iter().map(|(run, (pinned, skip), _)| {
        let said = blocks.get(run.clone()).unwrap_or_default();
        let mut alone = Map::new();
        alone.insert("role".to_owned(), fields.get("role").cloned().unwrap_or_default());
        alone.insert("content".to_owned(), Value::Array(said.to_vec()));
        alone.insert(FLAGS.to_owned(), json!({ "pinned": pinned, "skip": skip }));
        (run, Value::Object(alone))
    });
    Ok(Some(groups.collect()))
}
