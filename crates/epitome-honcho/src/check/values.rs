//! Single values: texts, numbers, yes or no; and what callers keep with things: their own notes (`metadata`), and what they
//! want done (`configuration`).
//!
//! Texts are taken for numbers and for yes or no as far as the original takes them, which is why the parameters of a query
//! are read in the same way. Notes and wishes are kept as they are but for NUL characters, which no text of ours holds, and
//! both are bounded, for both are given back with everything.

use std::fmt::Display;
use std::io::Write;
use std::num::IntErrorKind;
use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

use super::fault::{At, Found, Wrong};

/// `1 item`, `2 items`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// A text of so many characters, counted as the original's language counts them.
pub(crate) fn text<'a>(value: &'a Value, bounds: &RangeInclusive<usize>) -> Result<&'a str, Wrong> {
    let Some(text) = value.as_str() else {
        return Err(Wrong::new("string_type", "Input should be a valid string"));
    };
    let (least, most) = (*bounds.start(), *bounds.end());
    // Most are shorter in bytes already, and need not be counted.
    if text.len() > most && text.chars().count() > most {
        let msg = format!("String should have at most {}", counted(most, "character"));
        return Err(Wrong::bound("string_too_long", msg, json!({"max_length": most})));
    }
    if text.len() < least {
        let msg = format!("String should have at least {}", counted(least, "character"));
        return Err(Wrong::bound("string_too_short", msg, json!({"min_length": least})));
    }
    Ok(text)
}

/// What a workspace, a session or a peer may be called.
const NAME: &str = "^[a-zA-Z0-9_-]+$";

/// What something is called.
pub(crate) fn name(value: &Value) -> Result<Value, Wrong> {
    let name = text(value, &(1..=512))?;
    match name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-') {
        true => Ok(name.into()),
        false => {
            let msg = format!("String should match pattern '{NAME}'");
            Err(Wrong::bound("string_pattern_mismatch", msg, json!({"pattern": NAME})))
        }
    }
}

/// Yes or no, also in words and as a number.
pub(crate) fn flag(value: &Value) -> Result<Value, Wrong> {
    let read = match value {
        Value::Bool(given) => Some(*given),
        Value::Number(given) if given.as_f64() == Some(1.0) => Some(true),
        Value::Number(given) if given.as_f64() == Some(0.0) => Some(false),
        Value::Number(given) if !given.is_f64() => None,
        Value::String(given) => match given.to_ascii_lowercase().as_str() {
            "true" | "1" | "on" | "yes" | "t" | "y" => Some(true),
            "false" | "0" | "off" | "no" | "f" | "n" => Some(false),
            _ => None,
        },
        _ => return Err(Wrong::new("bool_type", "Input should be a valid boolean")),
    };
    let wrong = || Wrong::new("bool_parsing", "Input should be a valid boolean, unable to interpret input");
    read.map(Value::Bool).ok_or_else(wrong)
}

/// A number within bounds.
pub(crate) fn within<T>(given: T, bounds: &RangeInclusive<T>) -> Result<Value, Wrong>
where
    T: Copy + PartialOrd + Display + Into<Value>,
{
    let (least, most) = (*bounds.start(), *bounds.end());
    if given < least {
        let msg = format!("Input should be greater than or equal to {least}");
        Err(Wrong::bound("greater_than_equal", msg, json!({"ge": least.into()})))
    } else if given <= most {
        Ok(given.into())
    } else {
        // No number at all ("nan") is not within any bounds.
        let msg = format!("Input should be less than or equal to {most}");
        Err(Wrong::bound("less_than_equal", msg, json!({"le": most.into()})))
    }
}

/// A number, also one that is written as a text.
pub(crate) fn number(value: &Value) -> Result<f64, Wrong> {
    let read = match value {
        Value::Number(given) => given.as_f64(),
        Value::String(given) => given.trim().parse().ok(),
        _ => return Err(Wrong::new("float_type", "Input should be a valid number")),
    };
    let msg = "Input should be a valid number, unable to parse string as a number";
    read.ok_or_else(|| Wrong::new("float_parsing", msg))
}

/// A whole number, also one that is written as a text or with nothing but zeros behind the point.
pub(crate) fn whole(value: &Value) -> Result<i64, Wrong> {
    let (kind, msg) = match value {
        Value::Number(given) => match given.as_i64() {
            Some(whole) => return Ok(whole),
            // Larger than any bound.
            None if given.is_u64() => return Ok(i64::MAX),
            None => {
                let near = given.as_f64().unwrap_or(f64::INFINITY);
                if near.fract() == 0.0
                    && let Ok(whole) = format!("{near:.0}").parse()
                {
                    return Ok(whole);
                }
                match near.fract() == 0.0 {
                    true => (
                        "int_parsing_size",
                        "Unable to parse input string as an integer, exceeded maximum size",
                    ),
                    false => (
                        "int_from_float",
                        "Input should be a valid integer, got a number with a fractional part",
                    ),
                }
            }
        },
        Value::String(given) => match whole_text(given) {
            Some(whole) => return Ok(whole),
            None => ("int_parsing", "Input should be a valid integer, unable to parse string as an integer"),
        },
        _ => ("int_type", "Input should be a valid integer"),
    };
    Err(Wrong::new(kind, msg))
}

/// `10`, ` +10 `, `1_000`, `10.00`. What is larger than any bound is as large as can be.
fn whole_text(given: &str) -> Option<i64> {
    let given = given.trim();
    let zeros = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte == b'0');
    let whole = given.split_once('.').filter(|(_, behind)| zeros(behind)).map_or(given, |(whole, _)| whole);
    let digits = whole.strip_prefix(['+', '-']).unwrap_or(whole);
    let run = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits.split('_').all(run) {
        return None;
    }
    match whole.replace('_', "").parse::<i64>() {
        Ok(whole) => Some(whole),
        Err(wrong) if *wrong.kind() == IntErrorKind::NegOverflow => Some(i64::MIN),
        Err(_) => Some(i64::MAX),
    }
}

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
