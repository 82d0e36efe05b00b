//! What callers keep with things: their own notes (`metadata`), and what they want done (`configuration`).
//!
//! Both are kept as they are but for NUL characters, which no text of ours holds, and both are bounded, for both are given
//! back with everything.

use std::io::Write;

use serde_json::{Map, Value};

use super::fault::Faults;
use super::values::{Fields, Read, any_text, clean, dict, flag, whole};

/// A field of a table, and how it is read.
type Entry = (&'static str, fn(&Value) -> Read<Value>);

const SHORT: &str = "messages_per_short_summary";
const LONG: &str = "messages_per_long_summary";

const FLAG: fn(&Value) -> Read<Value> = |value| flag(value).map(Value::from);
const ENABLED: Entry = ("enabled", FLAG);
const OBSERVE_ME: Entry = ("observe_me", FLAG);
const INSTRUCTIONS: Entry = ("custom_instructions", |value| any_text(value).map(Value::from));
const REASONING: Entry = ("reasoning", |value| table(value, &[ENABLED, INSTRUCTIONS]));

const OF_SESSION: &[Entry] = &[
    INSTRUCTIONS,
    REASONING,
    ("peer_card", |value| table(value, &[("use", FLAG), ("create", FLAG), INSTRUCTIONS])),
    ("summary", summary),
    ("dream", |value| table(value, &[ENABLED, INSTRUCTIONS])),
    ("dialectic", |value| table(value, &[INSTRUCTIONS])),
];

const SUMMARY: &[Entry] = &[
    ENABLED,
    (SHORT, |value| whole(value, 10..=i64::MAX).map(Value::from)),
    (LONG, |value| whole(value, 20..=i64::MAX).map(Value::from)),
    INSTRUCTIONS,
];

/// Somebody's notes on something.
pub(crate) fn notes(value: &Value) -> Read<Map<String, Value>> {
    let notes = dict(value)?;
    bounded(value)?;
    Ok(notes.iter().map(|(name, value)| (clean(name), kept(value))).collect())
}

/// What is wanted of a session or a workspace. A field that is `null` is kept as that: it takes back what was wanted
/// before.
pub(crate) fn of_session(value: &Value) -> Read<Map<String, Value>> {
    configuration(value, Fields::of(value)?, OF_SESSION, true)
}

pub(crate) fn of_peer(value: &Value) -> Read<Map<String, Value>> {
    configuration(value, Fields::of_any(value)?, &[OBSERVE_ME], false)
}

/// What is wanted of a message. Summaries are not: they are a session's.
pub(crate) fn of_message(value: &Value) -> Read<Map<String, Value>> {
    configuration(value, Fields::of(value)?, &[REASONING], false)
}

/// How a peer takes part in a session.
pub(crate) fn member(value: &Value) -> Read<Value> {
    table(value, &[("observe_others", FLAG), OBSERVE_ME])
}

/// Every field: the known ones as what they mean, the others as they are, since they may mean something to whoever sent
/// them. One that is `null` says nothing, unless nulls stay.
fn configuration(
    value: &Value,
    mut fields: Fields<'_>,
    known: &[Entry],
    nulls: bool,
) -> Read<Map<String, Value>> {
    fields.faults = bounded(value).err().unwrap_or_default();
    let mut read = fields.known(known);
    for (name, value) in fields.given {
        if value.is_null() && nulls {
            read.insert(clean(name), Value::Null);
        } else if !value.is_null() && !known.iter().any(|(known, _)| known == name) {
            read.insert(clean(name), without_nulls(kept(value)));
        }
    }
    fields.give(read)
}

/// The known fields alone: the client takes no answer that holds more.
fn table(value: &Value, known: &[Entry]) -> Read<Value> {
    let mut fields = Fields::of(value)?;
    let read = fields.known(known);
    fields.give(read.into())
}

impl Fields<'_> {
    fn known(&mut self, known: &[Entry]) -> Map<String, Value> {
        let read = |(name, read): &Entry| Some(((*name).to_owned(), self.may(name, read)?));
        known.iter().filter_map(read).collect()
    }
}

fn summary(value: &Value) -> Read<Value> {
    let table = table(value, SUMMARY)?;
    let every = |name| table.get(name).and_then(Value::as_i64);
    // The short summary is written more often than the long one.
    match (every(SHORT), every(LONG)) {
        (Some(short), Some(long)) if short >= long => {
            Err(Faults::rule(value, &format!("{SHORT} must be less than {LONG}")))
        }
        _ => Ok(table),
    }
}

/// So many keys notes may have, not counting those within.
const KEYS: usize = 100;

/// So deep they may be: an object with nothing but plain values is one deep.
const DEEP: usize = 5;

/// So long they may be as JSON, in bytes.
const LONGEST: usize = 64 << 10;

/// Refuses notes that are more than is kept.
fn bounded(value: &Value) -> Read<()> {
    let keys = value.as_object().map_or(0, Map::len);
    let broken = if keys > KEYS {
        format!("{keys} keys given; there may be {KEYS}, not counting those within")
    } else if deeper(value, DEEP) {
        format!("nested too deep; {DEEP} objects and lists may be within each other")
    } else if longer(value, LONGEST) {
        format!("too long; there may be {LONGEST} bytes of JSON")
    } else {
        return Ok(());
    };
    Err(Faults::rule(value, &broken))
}

fn deeper(value: &Value, than: usize) -> bool {
    let Some(within) = than.checked_sub(1) else { return value.is_object() || value.is_array() };
    match value {
        Value::Object(fields) => fields.values().any(|value| deeper(value, within)),
        Value::Array(items) => items.iter().any(|value| deeper(value, within)),
        _ => false,
    }
}

/// It is written to nowhere, and broken off where it is too long.
fn longer(value: &Value, than: usize) -> bool {
    struct Left(usize);

    impl Write for Left {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::FileTooLarge)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    serde_json::to_writer(Left(than), value).is_err()
}

fn kept(value: &Value) -> Value {
    match value {
        Value::String(text) => clean(text).into(),
        Value::Array(items) => items.iter().map(kept).collect(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (clean(name), kept(value))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// Items of lists stay, or others would move up.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let said = fields.into_iter().filter(|(_, value)| !value.is_null());
            said.map(|(name, value)| (name, without_nulls(value))).collect()
        }
        _ => value,
    }
}
