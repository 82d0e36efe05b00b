//! What callers keep beside things: their own notes (`metadata`), and what they want done (`configuration`).
//!
//! Notes are kept as they are but for NUL characters, which no text of ours holds. Of a configuration the fields that
//! mean something are read as what they mean; others are kept beside them, since they may mean something to whoever
//! sent them. Both are bounded, for both are given back with everything.

use std::io::Write;

use serde_json::{Map, Value};

use super::fault::Found;
use super::given::{Fields, flag, text, whole};
use super::place::At;

/// So many keys notes may have, not counting those within.
const KEYS: usize = 100;

/// So deep they may be: an object with nothing but plain values is one deep.
const DEEP: usize = 5;

/// So long they may be as JSON, in bytes.
const LONG: usize = 64 << 10;

/// Reads notes or a configuration.
pub(crate) type Reader = fn(&At<'_>, &mut Found) -> Map<String, Value>;

/// Somebody's notes on something.
pub(crate) fn metadata(at: &At<'_>, found: &mut Found) -> Map<String, Value> {
    let fields = at.dict(found);
    bounded(at, found);
    fields.each().map(|(name, at)| (clean(name), kept(at.value))).collect()
}

/// What is wanted of a workspace or a session. A field that is `null` is kept as that: it takes back what was wanted before.
pub(crate) fn configuration(at: &At<'_>, found: &mut Found) -> Map<String, Value> {
    let fields = at.model(found);
    let mut wanted = all(at, &fields, CONFIGURATION, found);
    let taken_back = fields.each().filter(|(_, at)| at.value.is_null());
    wanted.extend(taken_back.map(|(name, _)| (clean(name), Value::Null)));
    wanted
}

/// What is wanted of one message. Summaries are not: they are a session's.
pub(crate) fn message_configuration(at: &At<'_>, found: &mut Found) -> Map<String, Value> {
    all(at, &at.model(found), MESSAGE_CONFIGURATION, found)
}

/// What is wanted of a peer.
pub(crate) fn peer_configuration(at: &At<'_>, found: &mut Found) -> Map<String, Value> {
    all(at, &at.dict(found), PEER_CONFIGURATION, found)
}

/// A field that is known, and what it holds.
type Known = (&'static str, Holds);

enum Holds {
    Flag,
    Text,
    AtLeast(i64),
    Table(&'static [Known]),
}

use Holds::{AtLeast, Flag, Table, Text};

const SHORT: &str = "messages_per_short_summary";
const LONGER: &str = "messages_per_long_summary";

const REASONING: Known = ("reasoning", Table(&[("enabled", Flag), ("custom_instructions", Text)]));

const CONFIGURATION: &[Known] = &[
    ("custom_instructions", Text),
    REASONING,
    ("peer_card", Table(&[("use", Flag), ("create", Flag), ("custom_instructions", Text)])),
    (
        "summary",
        Table(&[
            ("enabled", Flag),
            (SHORT, AtLeast(10)),
            (LONGER, AtLeast(20)),
            ("custom_instructions", Text),
        ]),
    ),
    ("dream", Table(&[("enabled", Flag), ("custom_instructions", Text)])),
    ("dialectic", Table(&[("custom_instructions", Text)])),
];

const MESSAGE_CONFIGURATION: &[Known] = &[REASONING];

const PEER_CONFIGURATION: &[Known] = &[("observe_me", Flag)];

/// Every field: the known ones as what they mean, the others as they are. One that is `null` says nothing.
fn all(at: &At<'_>, fields: &Fields<'_>, known: &[Known], found: &mut Found) -> Map<String, Value> {
    bounded(at, found);
    let mut all = meant(fields, known, found);
    for (name, at) in fields.each().filter(|(_, at)| !at.value.is_null()) {
        if !known.iter().any(|(known, _)| *known == name) {
            all.insert(clean(name), without_nulls(kept(at.value)));
        }
    }
    all
}

/// The known fields alone. In a table there is nothing else: the client takes no answer that holds more.
fn meant(fields: &Fields<'_>, known: &[Known], found: &mut Found) -> Map<String, Value> {
    let mut meant = Map::new();
    for (name, holds) in known {
        let read = fields.optional(name, found, |at, found| match holds {
            Flag => flag(at, found).into(),
            Text => clean(&text(at, found)).into(),
            AtLeast(least) => whole(*least..=i64::MAX)(at, found).into(),
            Table(known) => table(at, known, found).into(),
        });
        if let Some(read) = read {
            meant.insert((*name).to_owned(), read);
        }
    }
    meant
}

fn table(at: &At<'_>, known: &[Known], found: &mut Found) -> Map<String, Value> {
    let before = found.len();
    let table = meant(&at.model(found), known, found);
    let every = |name| table.get(name).and_then(Value::as_i64);
    // The short summary is written more often than the long one.
    if let (Some(short), Some(long)) = (every(SHORT), every(LONGER))
        && short >= long
        && found.len() == before
    {
        found.rule(at, &format!("{SHORT} must be less than {LONGER}"));
    }
    table
}

/// Notes that something is more than is kept. What it is called is the last step of its place.
fn bounded(at: &At<'_>, found: &mut Found) {
    let keys = at.value.as_object().map_or(0, Map::len);
    if keys > KEYS {
        found.rule(at, &format!("{keys} keys given; there may be {KEYS}, not counting those within"));
    } else if deeper(at.value, DEEP) {
        found.rule(at, &format!("nested too deep; {DEEP} objects and lists may be within each other"));
    } else if longer(at.value, LONG) {
        found.rule(at, &format!("too long; there may be {LONG} bytes of JSON"));
    }
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
