//! What callers keep with things: their own notes (`metadata`), and what they want done (`configuration`).
//!
//! Both are kept as they are but for NUL characters, which no text of ours holds, and both are bounded, for both are given
//! back with everything.

use std::io::Write;

use serde_json::{Map, Value};

use super::fault::{Found, Wrong};
use super::place::At;

/// So many keys notes may have, not counting those within.
const KEYS: usize = 100;

/// So deep they may be: an object with nothing but plain values is one deep.
const DEEP: usize = 5;

/// So long they may be as JSON, in bytes.
const LONG: usize = 64 << 10;

/// Notes that something is more than is kept. What it is called is the last step of its place.
pub(crate) fn bounded(at: &At<'_>, found: &mut Found) {
    let keys = at.value.as_object().map_or(0, Map::len);
    let broken = if keys > KEYS {
        format!("{keys} keys given; there may be {KEYS}, not counting those within")
    } else if deeper(at.value, DEEP) {
        format!("nested too deep; {DEEP} objects and lists may be within each other")
    } else if longer(at.value, LONG) {
        format!("too long; there may be {LONG} bytes of JSON")
    } else {
        return;
    };
    found.refuse(at, Wrong::rule(&broken));
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

/// A text without NUL characters: the original's database takes none, and its callers know.
pub(crate) fn clean(text: &str) -> String {
    text.replace('\0', "")
}

pub(crate) fn kept(value: &Value) -> Value {
    match value {
        Value::String(text) => clean(text).into(),
        Value::Array(items) => items.iter().map(kept).collect(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (clean(name), kept(value))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// Items of lists stay, or others would move up.
pub(crate) fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let said = fields.into_iter().filter(|(_, value)| !value.is_null());
            said.map(|(name, value)| (name, without_nulls(value))).collect()
        }
        _ => value,
    }
}
