//! Parses a request: finds its list and its dialect, and records the origin of each message.

use std::ops::Range;

use epitome_core::message::Message;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Body, Origin};
use crate::answer::kind;
use crate::format::RequestHint;
use crate::raw::{self, RawFields};
use crate::reader::{continues_reply, invalid_json, join_reply, list_types, parse_json};
use crate::{Dialect, DialectError, blank_if_nothing, field};

/// Reads a body. If `dialect` is `None`, the dialect is detected from the body's shape.
pub(super) fn body(text: &str, dialect: Option<Dialect>) -> Result<Body, DialectError> {
    let first = text.trim_start().chars().next();
    let members = |text| serde_json::from_str::<RawFields<'_>>(text).map_err(|error| invalid_json(&error));
    let fields = (first == Some('{')).then(|| members(text)).transpose()?;
    if fields.is_none() && first != Some('[') {
        return Err(field::wrong_type("", &parse_json(text)?, "a request or a list of messages"));
    }
    let key = dialect.or_else(|| by_list(fields.as_ref()?)).unwrap_or(Dialect::OPENAI).0.about().list_field;
    let list = match &fields {
        None => text.trim(),
        Some(fields) => unique_field(fields, key)?.ok_or_else(|| field::missing(key))?,
    };
    let mut of_key = Dialect::all().into_iter().filter(|dialect| dialect.0.about().list_field == key);
    let texts = if list.starts_with('[') {
        let items = serde_json::from_str::<Vec<&RawValue>>(list).map_err(|error| invalid_json(&error))?;
        items.into_iter().map(RawValue::get).collect()
    } else if list.starts_with('"') && of_key.clone().any(|dialect| dialect.0.about().list_may_be_text) {
        vec![list]
    } else {
        return Err(field::wrong_type(key, &parse_json(list)?, of_key.next().map_or("a list", list_types)));
    };
    let under =
        |key: &'static str, at: usize| move |error: DialectError| error.under(&format!("{key}[{at}]"));
    let values = texts.iter().enumerate().map(|(at, text)| parse_json(text).map_err(under(key, at)));
    let values: Vec<Value> = values.collect::<Result<_, _>>()?;
    let dialect = dialect.unwrap_or_else(|| detect(fields.as_ref(), key, &values));
    let key = dialect.0.about().list_field;

    let system = fields.as_ref().map_or(Ok(None), |fields| system_message(dialect, fields))?;
    let range = |(name, value): &(String, &str)| (name.clone(), raw::range_of(text, value));
    let mut body = Body {
        dialect,
        model: fields.as_ref().and_then(|fields| serde_json::from_str(fields.get("model")?).ok()),
        fields: fields.map(|fields| fields.0.iter().map(range).collect()),
        list: raw::range_of(text, list),
        items: texts.iter().map(|piece| raw::range_of(text, piece)).collect(),
        system: None,
        messages: Vec::new(),
        origins: Vec::new(),
        reference: values.iter().find_map(|value| {
            dialect.0.about().remote_history_items.iter().copied().find(|name| *name == kind(value))
        }),
        text: text.to_owned(),
    };
    if let Some(system) = system {
        let name = dialect.0.about().system_field.map_or("", |field| field.name);
        let value = parse_json(&system).map_err(|error| error.under(name))?;
        add_messages(&mut body, &value, 0..0).map_err(|error| error.renamed(name))?;
        body.system = Some(system);
    }
    for (at, value) in values.iter().enumerate() {
        add_messages(&mut body, value, at..at + 1).map_err(under(key, at))?;
    }
    if dialect.0.about().reply_is_items {
        for message in &mut body.messages {
            message.parts = blank_if_nothing(std::mem::take(&mut message.parts));
        }
    }
    Ok(body)
}

/// Returns the value of the field with this name. Fails if the field occurs twice, because it would be unclear
/// which value applies. `None` if the field is missing.
fn unique_field<'a>(fields: &RawFields<'a>, name: &str) -> Result<Option<&'a str>, DialectError> {
    let mut values = fields.0.iter().filter(|(key, _)| key == name).map(|(_, text)| *text);
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(DialectError::new(name, "appears twice")),
        (value, None) => Ok(value),
    }
}

/// Returns the system prompt from the request's system field, as a wire message. `None` if there is no such
/// field.
fn system_message(dialect: Dialect, fields: &RawFields<'_>) -> Result<Option<String>, DialectError> {
    let Some(system) = dialect.0.about().system_field else { return Ok(None) };
    let value = unique_field(fields, system.name)?.filter(|text| *text != "null");
    Ok(value.map(|text| system.message(text)))
}

/// Returns the first format whose list field is among these fields.
fn by_list(fields: &RawFields<'_>) -> Option<Dialect> {
    Dialect::all().into_iter().find(|dialect| fields.get(dialect.0.about().list_field).is_some())
}

/// Detects the dialect of a body from its shape.
fn detect(fields: Option<&RawFields<'_>>, key: &str, values: &[Value]) -> Dialect {
    let mut candidates = Dialect::all();
    if fields.is_some() {
        candidates.retain(|dialect| dialect.0.about().list_field == key);
    }
    if let ([only], Some(_)) = (candidates.as_slice(), fields) {
        return *only;
    }
    let system = values.iter().any(|value| value.get("role").is_some_and(|role| role == "system"));
    let by_fields = |hint: RequestHint| {
        let fields = fields?;
        candidates.iter().copied().find(|dialect| dialect.0.request_hint(fields, system) == Some(hint))
    };
    by_fields(RequestHint::Certain)
        .or_else(|| values.iter().find_map(Dialect::detect))
        .or_else(|| by_fields(RequestHint::Likely))
        // Without a hint, the messages contain only text, and all formats write text in the same way.
        .unwrap_or(Dialect::OPENAI)
}

/// Reads one wire message and adds it to the body. If it was merged from several messages, adds each of these
/// messages.
fn add_messages(body: &mut Body, wire: &Value, items: Range<usize>) -> Result<(), DialectError> {
    let message = body.dialect.read_new_message(wire)?;
    if let Some(merged) = body.dialect.0.split(&message, wire)? {
        for (blocks, wire) in merged {
            let message = body.dialect.read_message(&wire)?;
            push(body, message, Origin { items: items.clone(), blocks: Some(blocks) });
        }
        return Ok(());
    }
    if body.dialect.0.about().reply_is_items
        && let (Some(reply), Some(origin)) = (body.messages.last_mut(), body.origins.last_mut())
        && continues_reply(reply, &message)
    {
        join_reply(reply, message);
        origin.items.end = items.end;
        return Ok(());
    }
    push(body, message, Origin { items, blocks: None });
    Ok(())
}

fn push(body: &mut Body, message: Message, origin: Origin) {
    body.origins.push(origin);
    body.messages.push(Message { seq: body.origins.len() as u64, ..message });
}
