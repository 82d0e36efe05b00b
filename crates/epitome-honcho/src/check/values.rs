//! Single values: texts, numbers, yes or no; and objects and lists of them.
//!
//! Texts are taken for numbers and for yes or no as far as the original takes them, which is why the parameters of a query
//! are read in the same way. Reading goes on after a fault, so that a caller sees all of them at once: what was read is given only
//! where there are none ([`Faults::give`]).

use std::fmt::Display;
use std::num::IntErrorKind;
use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

use super::fault::{Faults, clipped};

/// What a value means, or what is wrong with it.
pub(crate) type Read<T> = Result<T, Faults>;

/// A name in a place is repeated up to so many characters.
const STEP: usize = 100;

/// An object that is read field by field. Fields that are not read are passed over.
pub(crate) struct Fields<'a> {
    value: &'a Value,
    pub(crate) given: &'a Map<String, Value>,
    pub(crate) faults: Faults,
}

impl<'a> Fields<'a> {
    /// Of an object whose fields are known.
    pub(crate) fn of(value: &'a Value) -> Read<Self> {
        let wanted = "Input should be a valid dictionary or object to extract fields from";
        let given = value.as_object().ok_or_else(|| Faults::new(value, "model_attributes_type", wanted))?;
        Ok(Self { value, given, faults: Faults::default() })
    }

    /// Of an object with whatever names.
    pub(crate) fn of_any(value: &'a Value) -> Read<Self> {
        dict(value).map(|given| Self { value, given, faults: Faults::default() })
    }

    /// What was read of a part, or nothing where something is wrong with it.
    pub(crate) fn part<T>(&mut self, name: &str, read: Read<T>) -> Option<T> {
        read.map_err(|wrong| self.faults.add(clipped(name, STEP), wrong)).ok()
    }

    /// A field that has to be there.
    pub(crate) fn must<T: Default>(&mut self, name: &str, read: impl FnOnce(&'a Value) -> Read<T>) -> T {
        let read = self.given.get(name).map_or_else(|| Err(Faults::missing(self.value)), read);
        self.part(name, read).unwrap_or_default()
    }

    /// A field that may be left out, or be `null`.
    pub(crate) fn may<T>(&mut self, name: &str, read: impl FnOnce(&'a Value) -> Read<T>) -> Option<T> {
        let value = self.given.get(name).filter(|value| !value.is_null())?;
        self.part(name, read(value))
    }

    /// A field that may be left out, but not be `null`.
    pub(crate) fn or<T>(&mut self, name: &str, usual: T, read: impl FnOnce(&'a Value) -> Read<T>) -> T {
        self.given.get(name).and_then(|value| self.part(name, read(value))).unwrap_or(usual)
    }

    /// What was read, if nothing was wrong with it.
    pub(crate) fn give<T>(self, read: T) -> Read<T> {
        self.faults.give(read)
    }
}

/// An object with whatever names.
pub(crate) fn dict(value: &Value) -> Read<&Map<String, Value>> {
    value.as_object().ok_or_else(|| Faults::new(value, "dict_type", "Input should be a valid dictionary"))
}

/// A list of so many items.
pub(crate) fn list<T>(
    value: &Value,
    bounds: RangeInclusive<usize>,
    each: impl Fn(&Value) -> Read<T>,
) -> Read<Vec<T>> {
    let Some(items) = value.as_array() else {
        return Err(Faults::new(value, "list_type", "Input should be a valid list"));
    };
    let given = items.len();
    let wrong = |kind, words: &str, bound: &str, count| {
        let msg =
            format!("List should have {words} {} after validation, not {given}", counted(count, "item"));
        let ctx = json!({"field_type": "List", bound: count, "actual_length": given});
        Err(Faults::bound(value, kind, msg, ctx))
    };
    let (least, most) = bounds.into_inner();
    if given < least {
        return wrong("too_short", "at least", "min_length", least);
    }
    if given > most {
        // Their own faults are not listed: most of them will be sent otherwise.
        return wrong("too_long", "at most", "max_length", most);
    }
    let (mut read, mut faults) = (Vec::with_capacity(given), Faults::default());
    for (nr, item) in items.iter().enumerate() {
        match each(item) {
            Ok(item) => read.push(item),
            Err(wrong) => faults.add(nr, wrong),
        }
    }
    faults.give(read)
}

/// `1 item`, `2 items`.
fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// A text of so many characters, counted as the original's language counts them.
fn sized(value: &Value, bounds: RangeInclusive<usize>) -> Read<&str> {
    let Some(text) = value.as_str() else {
        return Err(Faults::new(value, "string_type", "Input should be a valid string"));
    };
    let (least, most) = bounds.into_inner();
    // Most are shorter in bytes already, and need not be counted.
    if text.len() > most && text.chars().count() > most {
        let msg = format!("String should have at most {}", counted(most, "character"));
        return Err(Faults::bound(value, "string_too_long", msg, json!({"max_length": most})));
    }
    if text.len() < least {
        let msg = format!("String should have at least {}", counted(least, "character"));
        return Err(Faults::bound(value, "string_too_short", msg, json!({"min_length": least})));
    }
    Ok(text)
}

/// The same without NUL characters.
pub(crate) fn text(value: &Value, bounds: RangeInclusive<usize>) -> Read<String> {
    sized(value, bounds).map(clean)
}

/// A text as long as may be.
pub(crate) fn any_text(value: &Value) -> Read<String> {
    text(value, 0..=usize::MAX)
}

/// A text without NUL characters: the original's database takes none, and its callers know.
pub(crate) fn clean(text: &str) -> String {
    text.replace('\0', "")
}

/// What a workspace, a session or a peer may be called.
const NAME: &str = "^[a-zA-Z0-9_-]+$";

/// What something is called.
pub(crate) fn name(value: &Value) -> Read<String> {
    let name = sized(value, 1..=512)?;
    match name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-') {
        true => Ok(name.to_owned()),
        false => {
            let msg = format!("String should match pattern '{NAME}'");
            Err(Faults::bound(value, "string_pattern_mismatch", msg, json!({"pattern": NAME})))
        }
    }
}

/// A moment: a text, at least.
pub(crate) fn moment(value: &Value) -> Read<String> {
    let wrong = || Faults::new(value, "datetime_type", "Input should be a valid datetime");
    value.as_str().map(str::to_owned).ok_or_else(wrong)
}

/// Yes or no, also in words and as a number.
pub(crate) fn flag(value: &Value) -> Read<bool> {
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
        _ => return Err(Faults::new(value, "bool_type", "Input should be a valid boolean")),
    };
    let msg = "Input should be a valid boolean, unable to interpret input";
    read.ok_or_else(|| Faults::new(value, "bool_parsing", msg))
}

/// A number within bounds.
fn within<T>(value: &Value, given: T, bounds: RangeInclusive<T>) -> Read<T>
where
    T: Copy + PartialOrd + Display + Into<Value>,
{
    let (least, most) = bounds.into_inner();
    if given < least {
        let msg = format!("Input should be greater than or equal to {least}");
        Err(Faults::bound(value, "greater_than_equal", msg, json!({"ge": least.into()})))
    } else if given <= most {
        Ok(given)
    } else {
        // No number at all ("nan") is not within any bounds.
        let msg = format!("Input should be less than or equal to {most}");
        Err(Faults::bound(value, "less_than_equal", msg, json!({"le": most.into()})))
    }
}

/// A number, also one that is written as a text.
pub(crate) fn number(value: &Value, bounds: RangeInclusive<f64>) -> Read<f64> {
    let read = match value {
        Value::Number(given) => given.as_f64(),
        Value::String(given) => given.trim().parse().ok(),
        _ => return Err(Faults::new(value, "float_type", "Input should be a valid number")),
    };
    let msg = "Input should be a valid number, unable to parse string as a number";
    within(value, read.ok_or_else(|| Faults::new(value, "float_parsing", msg))?, bounds)
}

/// A whole number, also one that is written as a text or with nothing but zeros behind the point.
pub(crate) fn whole(value: &Value, bounds: RangeInclusive<i64>) -> Read<i64> {
    let read = match value {
        Value::Number(given) if given.is_f64() => whole_fraction(given.as_f64().unwrap_or(f64::INFINITY)),
        // Larger than any bound.
        Value::Number(given) => Ok(given.as_i64().unwrap_or(i64::MAX)),
        Value::String(given) => whole_text(given)
            .ok_or(("int_parsing", "Input should be a valid integer, unable to parse string as an integer")),
        _ => Err(("int_type", "Input should be a valid integer")),
    };
    within(value, read.map_err(|(kind, msg)| Faults::new(value, kind, msg))?, bounds)
}

/// `10.0`.
fn whole_fraction(given: f64) -> Result<i64, (&'static str, &'static str)> {
    if given.fract() != 0.0 {
        let msg = "Input should be a valid integer, got a number with a fractional part";
        return Err(("int_from_float", msg));
    }
    let msg = "Unable to parse input string as an integer, exceeded maximum size";
    format!("{given:.0}").parse().map_err(|_| ("int_parsing_size", msg))
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
