//! Reads the metadata and configurations of workspaces, peers, sessions and messages.
//!
//! NUL characters are removed, because Epitome's texts do not contain NUL characters. The size of metadata and
//! configurations is limited, because many responses contain them.

use std::io::Write;

use serde_json::{Map, Value};

use super::fault::Faults;
use super::values::{ObjectReader, Parsed, any_text, clean, dict, flag, whole};

/// The name of a field, and the function that reads the field's value.
type FieldReader = (&'static str, fn(&Value) -> Parsed<Value>);

const SHORT: &str = "messages_per_short_summary";
const LONG: &str = "messages_per_long_summary";

const FLAG: fn(&Value) -> Parsed<Value> = |value| flag(value).map(Value::from);
const ENABLED: FieldReader = ("enabled", FLAG);
const OBSERVE_ME: FieldReader = ("observe_me", FLAG);
const INSTRUCTIONS: FieldReader = ("custom_instructions", |value| any_text(value).map(Value::from));
const REASONING: FieldReader = ("reasoning", |value| defined_object(value, &[ENABLED, INSTRUCTIONS]));

const OF_SESSION: &[FieldReader] = &[
    INSTRUCTIONS,
    REASONING,
    ("peer_card", |value| defined_object(value, &[("use", FLAG), ("create", FLAG), INSTRUCTIONS])),
    ("summary", summary),
    ("dream", |value| defined_object(value, &[ENABLED, INSTRUCTIONS])),
    ("dialectic", |value| defined_object(value, &[INSTRUCTIONS])),
];

const SUMMARY: &[FieldReader] = &[
    ENABLED,
    (SHORT, |value| whole(value, 10..=i64::MAX).map(Value::from)),
    (LONG, |value| whole(value, 20..=i64::MAX).map(Value::from)),
    INSTRUCTIONS,
];

/// Reads metadata.
pub(crate) fn metadata(value: &Value) -> Parsed<Map<String, Value>> {
    let metadata = dict(value)?;
    check_size(value)?;
    Ok(metadata.iter().map(|(name, value)| (clean(name), cleaned(value))).collect())
}

/// Reads the configuration of a session or a workspace. A field that is `null` stays `null`, because `null` removes the
/// stored value.
pub(crate) fn of_session(value: &Value) -> Parsed<Map<String, Value>> {
    configuration(value, ObjectReader::of(value)?, OF_SESSION, true)
}

pub(crate) fn of_peer(value: &Value) -> Parsed<Map<String, Value>> {
    configuration(value, ObjectReader::of_any(value)?, &[OBSERVE_ME], false)
}

/// Reads the configuration of a message. It has no field for summaries, because summaries are configured per session.
pub(crate) fn of_message(value: &Value) -> Parsed<Map<String, Value>> {
    configuration(value, ObjectReader::of(value)?, &[REASONING], false)
}

/// Reads the settings of a peer's membership in a session.
pub(crate) fn member(value: &Value) -> Parsed<Value> {
    defined_object(value, &[("observe_others", FLAG), OBSERVE_ME])
}

/// Reads all fields of a configuration. Defined fields are read by their readers. Other fields are retained, because
/// they may have a meaning for the caller. Fields that are `null` are left out, unless `nulls` is true.
fn configuration(
    value: &Value,
    mut fields: ObjectReader<'_>,
    defined: &[FieldReader],
    nulls: bool,
) -> Parsed<Map<String, Value>> {
    fields.faults = check_size(value).err().unwrap_or_default();
    let mut read = fields.defined(defined);
    for (name, value) in fields.entries {
        if value.is_null() && nulls {
            read.insert(clean(name), Value::Null);
        } else if !value.is_null() && !defined.iter().any(|(defined, _)| defined == name) {
            read.insert(clean(name), without_nulls(cleaned(value)));
        }
    }
    fields.finish(read)
}

/// Reads only the defined fields. Other fields are left out, because Honcho's client refuses a response that contains
/// them.
fn defined_object(value: &Value, defined: &[FieldReader]) -> Parsed<Value> {
    let mut fields = ObjectReader::of(value)?;
    let read = fields.defined(defined);
    fields.finish(read.into())
}

impl ObjectReader<'_> {
    /// Reads the defined fields that the object contains.
    fn defined(&mut self, defined: &[FieldReader]) -> Map<String, Value> {
        let read = |(name, read): &FieldReader| Some(((*name).to_owned(), self.optional(name, read)?));
        defined.iter().filter_map(read).collect()
    }
}

fn summary(value: &Value) -> Parsed<Value> {
    let summary = defined_object(value, SUMMARY)?;
    let every = |name| summary.get(name).and_then(Value::as_i64);
    // As in Honcho, the short summary must be written more often than the long summary.
    match (every(SHORT), every(LONG)) {
        (Some(short), Some(long)) if short >= long => {
            Err(Faults::rule(value, &format!("{SHORT} must be less than {LONG}")))
        }
        _ => Ok(summary),
    }
}

/// Maximum number of keys of metadata or a configuration. Keys of nested objects do not count.
const MAX_KEYS: usize = 100;

/// Maximum depth of nested objects and lists. An object that contains only plain values has depth 1.
const MAX_DEPTH: usize = 5;

/// Maximum size of metadata or a configuration as JSON, in bytes.
const MAX_BYTES: usize = 64 << 10;

/// Refuses values that exceed these limits.
fn check_size(value: &Value) -> Parsed<()> {
    let keys = value.as_object().map_or(0, Map::len);
    let broken = if keys > MAX_KEYS {
        format!("{keys} keys; at most {MAX_KEYS} are allowed; nested keys do not count")
    } else if is_deeper(value, MAX_DEPTH) {
        format!("nested too deep; at most {MAX_DEPTH} levels of objects and lists are allowed")
    } else if is_longer(value, MAX_BYTES) {
        format!("too long; at most {MAX_BYTES} bytes of JSON are allowed")
    } else {
        return Ok(());
    };
    Err(Faults::rule(value, &broken))
}

fn is_deeper(value: &Value, than: usize) -> bool {
    let Some(within) = than.checked_sub(1) else { return value.is_object() || value.is_array() };
    match value {
        Value::Object(fields) => fields.values().any(|value| is_deeper(value, within)),
        Value::Array(items) => items.iter().any(|value| is_deeper(value, within)),
        _ => false,
    }
}

/// Returns whether a value is longer than this number of bytes as JSON. Serializes the value without storing the
/// output, and stops at this number of bytes.
fn is_longer(value: &Value, than: usize) -> bool {
    /// A writer that fails after this number of bytes.
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

fn cleaned(value: &Value) -> Value {
    match value {
        Value::String(text) => clean(text).into(),
        Value::Array(items) => items.iter().map(cleaned).collect(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (clean(name), cleaned(value))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// Removes fields that are `null`. Items of lists that are `null` stay, because a removal would change the positions of
/// the other items.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let present = fields.into_iter().filter(|(_, value)| !value.is_null());
            present.map(|(name, value)| (name, without_nulls(value))).collect()
        }
        _ => value,
    }
}
