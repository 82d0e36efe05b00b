//! Reads single values (texts, numbers, booleans), and objects and lists of such values.
//!
//! As in Honcho, some texts are accepted as numbers and booleans. So query parameters, which are texts, are read by the
//! same functions as bodies. Reading continues after a fault, so that a caller sees all faults at once. A result is
//! returned only if there are no faults ([`Faults::finish`]).

use std::fmt::Display;
use std::num::IntErrorKind;
use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

use super::fault::{Faults, clipped};

/// A parsed value, or the faults of the value.
pub(crate) type Parsed<T> = Result<T, Faults>;

/// Maximum length of a name in the path of a fault, in characters.
const MAX_NAME_CHARS: usize = 100;

/// Reads an object field by field. Fields that are not read are ignored.
pub(crate) struct ObjectReader<'a> {
    value: &'a Value,
    pub(crate) entries: &'a Map<String, Value>,
    pub(crate) faults: Faults,
}

impl<'a> ObjectReader<'a> {
    /// Returns a reader for an object with defined fields.
    pub(crate) fn of(value: &'a Value) -> Parsed<Self> {
        let msg = "Input should be a valid dictionary or object to extract fields from";
        let entries = value.as_object().ok_or_else(|| Faults::new(value, "model_attributes_type", msg))?;
        Ok(Self { value, entries, faults: Faults::default() })
    }

    /// Returns a reader for an object whose fields may have any names.
    pub(crate) fn of_any(value: &'a Value) -> Parsed<Self> {
        dict(value).map(|entries| Self { value, entries, faults: Faults::default() })
    }

    /// Returns the value of a part of the object. If the part has faults, records these faults and returns `None`.
    pub(crate) fn part<T>(&mut self, name: &str, read: Parsed<T>) -> Option<T> {
        read.map_err(|error| self.faults.add(clipped(name, MAX_NAME_CHARS), error)).ok()
    }

    /// Reads a required field.
    pub(crate) fn required<T: Default>(
        &mut self,
        name: &str,
        read: impl FnOnce(&'a Value) -> Parsed<T>,
    ) -> T {
        let read = self.entries.get(name).map_or_else(|| Err(Faults::missing(self.value)), read);
        self.part(name, read).unwrap_or_default()
    }

    /// Reads a field that may be missing or `null`.
    pub(crate) fn optional<T>(&mut self, name: &str, read: impl FnOnce(&'a Value) -> Parsed<T>) -> Option<T> {
        let value = self.entries.get(name).filter(|value| !value.is_null())?;
        self.part(name, read(value))
    }

    /// Reads a field that may be missing, but not `null`. Returns `default` if the field is missing.
    pub(crate) fn or_default<T>(
        &mut self,
        name: &str,
        default: T,
        read: impl FnOnce(&'a Value) -> Parsed<T>,
    ) -> T {
        self.entries.get(name).and_then(|value| self.part(name, read(value))).unwrap_or(default)
    }

    /// Returns the value if there are no faults, otherwise the faults.
    pub(crate) fn finish<T>(self, read: T) -> Parsed<T> {
        self.faults.finish(read)
    }
}

/// Reads an object whose fields may have any names.
pub(crate) fn dict(value: &Value) -> Parsed<&Map<String, Value>> {
    value.as_object().ok_or_else(|| Faults::new(value, "dict_type", "Input should be a valid dictionary"))
}

/// Reads a list. The number of its items must be within these bounds.
pub(crate) fn list<T>(
    value: &Value,
    bounds: RangeInclusive<usize>,
    each: impl Fn(&Value) -> Parsed<T>,
) -> Parsed<Vec<T>> {
    let Some(items) = value.as_array() else {
        return Err(Faults::new(value, "list_type", "Input should be a valid list"));
    };
    let length = items.len();
    let error = |kind, words: &str, bound: &str, limit| {
        let msg = format!("List should have {words} {} after validation, not {length}", count(limit, "item"));
        let ctx = json!({"field_type": "List", bound: limit, "actual_length": length});
        Err(Faults::bound(value, kind, msg, ctx))
    };
    let (least, most) = bounds.into_inner();
    if length < least {
        return error("too_short", "at least", "min_length", least);
    }
    if length > most {
        // The faults of the items are not listed, because the caller must send fewer items anyway.
        return error("too_long", "at most", "max_length", most);
    }
    let (mut read, mut faults) = (Vec::with_capacity(length), Faults::default());
    for (index, item) in items.iter().enumerate() {
        match each(item) {
            Ok(item) => read.push(item),
            Err(error) => faults.add(index, error),
        }
    }
    faults.finish(read)
}

/// Formats a count of things, such as `1 item` or `2 items`.
fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// Reads a text. Its length must be within these bounds. As in Python, the length is the number of Unicode characters.
fn sized(value: &Value, bounds: RangeInclusive<usize>) -> Parsed<&str> {
    let Some(text) = value.as_str() else {
        return Err(Faults::new(value, "string_type", "Input should be a valid string"));
    };
    let (least, most) = bounds.into_inner();
    // A text has at most as many characters as bytes, so the characters of most texts need not be counted.
    if text.len() > most && text.chars().count() > most {
        let msg = format!("String should have at most {}", count(most, "character"));
        return Err(Faults::bound(value, "string_too_long", msg, json!({"max_length": most})));
    }
    if text.len() < least {
        let msg = format!("String should have at least {}", count(least, "character"));
        return Err(Faults::bound(value, "string_too_short", msg, json!({"min_length": least})));
    }
    Ok(text)
}

/// Reads a text and removes its NUL characters. The length of the text must be within these bounds.
pub(crate) fn text(value: &Value, bounds: RangeInclusive<usize>) -> Parsed<String> {
    sized(value, bounds).map(clean)
}

/// Reads a text of any length.
pub(crate) fn any_text(value: &Value) -> Parsed<String> {
    text(value, 0..=usize::MAX)
}

/// Removes NUL characters. Honcho's clients expect this, because Honcho's database cannot store NUL characters.
pub(crate) fn clean(text: &str) -> String {
    text.replace('\0', "")
}

/// The pattern of names of workspaces, sessions and peers.
const NAME: &str = "^[a-zA-Z0-9_-]+$";

/// Reads a name.
pub(crate) fn name(value: &Value) -> Parsed<String> {
    let name = sized(value, 1..=512)?;
    match name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-') {
        true => Ok(name.to_owned()),
        false => {
            let msg = format!("String should match pattern '{NAME}'");
            Err(Faults::bound(value, "string_pattern_mismatch", msg, json!({"pattern": NAME})))
        }
    }
}

/// Reads a time as text. The text is parsed later.
pub(crate) fn time_text(value: &Value) -> Parsed<String> {
    let error = || Faults::new(value, "datetime_type", "Input should be a valid datetime");
    value.as_str().map(str::to_owned).ok_or_else(error)
}

/// Reads a boolean. A word such as `yes`, and the numbers 0 and 1, are also accepted.
pub(crate) fn flag(value: &Value) -> Parsed<bool> {
    let read = match value {
        Value::Bool(sent) => Some(*sent),
        Value::Number(sent) if sent.as_f64() == Some(1.0) => Some(true),
        Value::Number(sent) if sent.as_f64() == Some(0.0) => Some(false),
        Value::Number(sent) if !sent.is_f64() => None,
        Value::String(sent) => match sent.to_ascii_lowercase().as_str() {
            "true" | "1" | "on" | "yes" | "t" | "y" => Some(true),
            "false" | "0" | "off" | "no" | "f" | "n" => Some(false),
            _ => None,
        },
        _ => return Err(Faults::new(value, "bool_type", "Input should be a valid boolean")),
    };
    let msg = "Input should be a valid boolean, unable to interpret input";
    read.ok_or_else(|| Faults::new(value, "bool_parsing", msg))
}

/// Checks that a number is within bounds.
fn within<T>(value: &Value, number: T, bounds: RangeInclusive<T>) -> Parsed<T>
where
    T: Copy + PartialOrd + Display + Into<Value>,
{
    let (least, most) = bounds.into_inner();
    if number < least {
        let msg = format!("Input should be greater than or equal to {least}");
        Err(Faults::bound(value, "greater_than_equal", msg, json!({"ge": least.into()})))
    } else if number <= most {
        Ok(number)
    } else {
        // This branch also refuses NaN, which is not within any bounds.
        let msg = format!("Input should be less than or equal to {most}");
        Err(Faults::bound(value, "less_than_equal", msg, json!({"le": most.into()})))
    }
}

/// Reads a number. A number that is written as text is also accepted. The number must be within these bounds.
pub(crate) fn number(value: &Value, bounds: RangeInclusive<f64>) -> Parsed<f64> {
    let read = match value {
        Value::Number(sent) => sent.as_f64(),
        Value::String(sent) => sent.trim().parse().ok(),
        _ => return Err(Faults::new(value, "float_type", "Input should be a valid number")),
    };
    let msg = "Input should be a valid number, unable to parse string as a number";
    within(value, read.ok_or_else(|| Faults::new(value, "float_parsing", msg))?, bounds)
}

/// Reads an integer. An integer that is written as text, or has only zeros after the decimal point, is also accepted.
/// The integer must be within these bounds.
pub(crate) fn whole(value: &Value, bounds: RangeInclusive<i64>) -> Parsed<i64> {
    let read = match value {
        Value::Number(sent) if sent.is_f64() => whole_fraction(sent.as_f64().unwrap_or(f64::INFINITY)),
        // An integer that does not fit is larger than every bound.
        Value::Number(sent) => Ok(sent.as_i64().unwrap_or(i64::MAX)),
        Value::String(sent) => whole_text(sent)
            .ok_or(("int_parsing", "Input should be a valid integer, unable to parse string as an integer")),
        _ => Err(("int_type", "Input should be a valid integer")),
    };
    within(value, read.map_err(|(kind, msg)| Faults::new(value, kind, msg))?, bounds)
}

/// Converts a number such as `10.0`. Returns the kind and the message of the fault for a number with a fractional part.
fn whole_fraction(sent: f64) -> Result<i64, (&'static str, &'static str)> {
    if sent.fract() != 0.0 {
        let msg = "Input should be a valid integer, got a number with a fractional part";
        return Err(("int_from_float", msg));
    }
    let msg = "Unable to parse input string as an integer, exceeded maximum size";
    format!("{sent:.0}").parse().map_err(|_| ("int_parsing_size", msg))
}

/// Parses a text such as `10`, ` +10 `, `1_000` or `10.00`. A number that does not fit `i64` becomes the largest or the
/// smallest `i64`.
fn whole_text(sent: &str) -> Option<i64> {
    let sent = sent.trim();
    let zeros = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte == b'0');
    let whole = sent.split_once('.').filter(|(_, behind)| zeros(behind)).map_or(sent, |(whole, _)| whole);
    let digits = whole.strip_prefix(['+', '-']).unwrap_or(whole);
    let run = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits.split('_').all(run) {
        return None;
    }
    match whole.replace('_', "").parse::<i64>() {
        Ok(whole) => Some(whole),
        Err(error) if *error.kind() == IntErrorKind::NegOverflow => Some(i64::MIN),
        Err(_) => Some(i64::MAX),
    }
}
