//! Reads what callers attach to things: metadata and configurations.
//!
//! Both are stored unchanged except for NUL characters, which Epitome's texts do not contain. Both are limited in size,
//! because many answers contain them.

use std::io::Write;

use serde_json::{Map, Value};

use super::fault::Faults;
use super::values::{Fields, Read, any_text, clean, dict, flag, whole};

/// A field of a table, and its reader.
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

/// Reads metadata.
pub(crate) fn notes(value: &Value) -> Read<Map<String, Value>> {
    let notes = dict(value)?;
    bounded(value)?;
    Ok(notes.iter().map(|(name, value)| (clean(name), kept(value))).collect())
}

/// Reads the configuration of a session or a workspace. A `null` field is returned as `null`: it removes the stored
/// value.
pub(crate) fn of_session(value: &Value) -> Read<Map<String, Value>> {
    configuration(value, Fields::of(value)?, OF_SESSION, true)
}

pub(crate) fn of_peer(value: &Value) -> Read<Map<String, Value>> {
    configuration(value, Fields::of_any(value)?, &[OBSERVE_ME], false)
}

/// Reads the configuration of a message. It has no summaries: those belong to sessions.
pub(crate) fn of_message(value: &Value) -> Read<Map<String, Value>> {
    configuration(value, Fields::of(value)?, &[REASONING], false)
}

/// Reads the settings of a peer's membership in a session.
pub(crate) fn member(value: &Value) -> Read<Value> {
    table(value, &[("observe_others", FLAG), OBSERVE_ME])
}

/// Reads every field: defined fields with their readers, and the others unchanged, because they may mean something to
/// the caller. A `null` field is left out unless `nulls`.
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

/// Reads only the defined fields: the client refuses an answer that contains others.
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

/// Maximum number of keys, without nested ones.
const KEYS: usize = 100;

/// Maximum depth. An object that contains only plain values has depth 1.
const DEEP: usize = 5;

/// Maximum size as JSON, in bytes.
const LONGEST: usize = 64 << 10;

/// Refuses values that exceed these limits.
fn bounded(value: &Value) -> Read<()> {
    let keys = value.as_object().map_or(0, Map::len);
    let broken = if keys > KEYS {
        format!("{keys} keys; at most {KEYS} are allowed, without nested ones")
    } else if deeper(value, DEEP) {
        format!("nested too deep; at most {DEEP} levels of objects and lists are allowed")
    } else if longer(value, LONGEST) {
        format!("too long; at most {LONGEST} bytes of JSON are allowed")
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

/// Serializes the value without storing the output, and stops when it is too long.
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

/// Removes `null` fields. `null` items of lists stay, because removing one would shift the others.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let said = fields.into_iter().filter(|(_, value)| !value.is_null());
            said.map(|(name, value)| (name, without_nulls(value))).collect()
        }
        _ => value,
    }
}
