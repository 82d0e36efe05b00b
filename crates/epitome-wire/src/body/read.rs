//! Parses a request: finds its list and its dialect, and records the origin of each message.

use std::ops::Range;

use epitome_core::message::Message;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Body, Origin};
use crate::asking::kind;
use crate::format::RequestSign;
use crate::raw::{self, Members};
use crate::reader::{goes_on, join_reply, list_is, parsed, unreadable};
use crate::{Dialect, DialectError, blank_if_nothing, field};

/// Reads a body. If `dialect` is `None`, it is detected from the shape.
pub(super) fn body(text: &str, dialect: Option<Dialect>) -> Result<Body, DialectError> {
    let first = text.trim_start().chars().next();
    let members = |text| serde_json::from_str::<Members<'_>>(text).map_err(|error| unreadable(&error));
    let fields = (first == Some('{')).then(|| members(text)).transpose()?;
    if fields.is_none() && first != Some('[') {
        return Err(field::wrong("", &parsed(text)?, "a request or a list of messages"));
    }
    let key = dialect.or_else(|| by_list(fields.as_ref()?)).unwrap_or(Dialect::OPENAI).0.about().list;
    let list = match &fields {
        None => text.trim(),
        Some(fields) => once(fields, key)?.ok_or_else(|| field::missing(key))?,
    };
    let mut of_key = Dialect::all().into_iter().filter(|dialect| dialect.0.about().list == key);
    let texts = if list.starts_with('[') {
        let items = serde_json::from_str::<Vec<&RawValue>>(list).map_err(|error| unreadable(&error))?;
        items.into_iter().map(RawValue::get).collect()
    } else if list.starts_with('"') && of_key.clone().any(|dialect| dialect.0.about().list_may_be_text) {
        vec![list]
    } else {
        return Err(field::wrong(key, &parsed(list)?, of_key.next().map_or("a list", list_is)));
    };
    let under =
        |key: &'static str, at: usize| move |error: DialectError| error.under(&format!("{key}[{at}]"));
    let values = texts.iter().enumerate().map(|(at, text)| parsed(text).map_err(under(key, at)));
    let values: Vec<Value> = values.collect::<Result<_, _>>()?;
    let dialect = dialect.unwrap_or_else(|| told(fields.as_ref(), key, &values));
    let key = dialect.0.about().list;

    let head = fields.as_ref().map_or(Ok(None), |fields| head(dialect, fields))?;
    let place = |(name, piece): &(String, &str)| (name.clone(), raw::place(text, piece));
    let mut body = Body {
        dialect,
        model: fields.as_ref().and_then(|fields| serde_json::from_str(fields.get("model")?).ok()),
        fields: fields.map(|fields| fields.0.iter().map(place).collect()),
        list: raw::place(text, list),
        items: texts.iter().map(|piece| raw::place(text, piece)).collect(),
        head: None,
        messages: Vec::new(),
        origins: Vec::new(),
        // The type of an item that refers to messages stored elsewhere.
        reference: values.iter().find_map(|value| {
            dialect.0.about().references.iter().copied().find(|known| *known == kind(value))
        }),
        text: text.to_owned(),
    };
    if let Some(head) = head {
        let name = dialect.0.about().head.map_or("", |head| head.field);
        let value = parsed(&head).map_err(|error| error.under(name))?;
        take(&mut body, &value, 0..0).map_err(|error| error.renamed(name))?;
        body.head = Some(head);
    }
    for (at, value) in values.iter().enumerate() {
        take(&mut body, value, at..at + 1).map_err(under(key, at))?;
    }
    if dialect.0.about().reply_is_items {
        for message in &mut body.messages {
            message.parts = blank_if_nothing(std::mem::take(&mut message.parts));
        }
    }
    Ok(body)
}

/// Returns a field that must not occur twice, because it would be ambiguous which one applies.
fn once<'a>(fields: &Members<'a>, name: &str) -> Result<Option<&'a str>, DialectError> {
    let mut found = fields.0.iter().filter(|(key, _)| key == name).map(|(_, text)| *text);
    match (found.next(), found.next()) {
        (_, Some(_)) => Err(DialectError::new(name, "appears twice")),
        (found, None) => Ok(found),
    }
}

/// Returns the system prompt from a separate field, as a wire message.
fn head(dialect: Dialect, fields: &Members<'_>) -> Result<Option<String>, DialectError> {
    let Some(head) = dialect.0.about().head else { return Ok(None) };
    let given = once(fields, head.field)?.filter(|text| *text != "null");
    Ok(given.map(|text| head.message(text)))
}

/// Returns the first format whose list field is among these fields.
fn by_list(fields: &Members<'_>) -> Option<Dialect> {
    Dialect::all().into_iter().find(|dialect| fields.get(dialect.0.about().list).is_some())
}

/// Detects the dialect of a body from its shape.
fn told(fields: Option<&Members<'_>>, key: &str, values: &[Value]) -> Dialect {
    let mut candidates = Dialect::all();
    if fields.is_some() {
        candidates.retain(|dialect| dialect.0.about().list == key);
    }
    if let ([only], Some(_)) = (candidates.as_slice(), fields) {
        return *only;
    }
    let system = values.iter().any(|value| value.get("role").is_some_and(|role| role == "system"));
    let by_fields = |sign: RequestSign| {
        let fields = fields?;
        candidates.iter().copied().find(|dialect| dialect.0.request_sign(fields, system) == Some(sign))
    };
    by_fields(RequestSign::Own)
        .or_else(|| values.iter().find_map(Dialect::of))
        .or_else(|| by_fields(RequestSign::Likely))
        // Plain text only, which most formats accept.
        .unwrap_or(Dialect::OPENAI)
}

/// Reads the message, or the merged messages, of one wire message.
fn take(body: &mut Body, wire: &Value, items: Range<usize>) -> Result<(), DialectError> {
    let message = body.dialect.understood(wire)?;
    if let Some(merged) = body.dialect.0.split(&message, wire)? {
        for (blocks, wire) in merged {
            let message = body.dialect.understood(&wire)?;
            push(body, message, Origin { items: items.clone(), blocks: Some(blocks) });
        }
        return Ok(());
    }
    if body.dialect.0.about().reply_is_items
        && let (Some(reply), Some(origin)) = (body.messages.last_mut(), body.origins.last_mut())
        && goes_on(reply, &message)
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
