//! One value that was sent, where it stands, and how it is read as what is wanted.
//!
//! Every reader goes on after a fault with a value that nobody will see, so that all faults are told at once: what was
//! read is given only where there are none ([`Found::give`]). Texts are taken for numbers and for yes or no as far as
//! the original takes them, which is why the parameters of a query are read in the same way (`query.rs`).

use std::fmt::Display;
use std::num::IntErrorKind;
use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

use super::fault::{Faults, Found};
use super::place::{At, Step};

/// Reads what is a body as a whole. One that must be there and is `null` was left out.
pub(crate) fn body<T: Default>(
    sent: &Value,
    read: impl FnOnce(&At<'_>, &mut Found) -> T,
) -> Result<T, Faults> {
    let at = At { value: sent, step: "body".into(), within: None };
    let mut found = Found::default();
    let read = match sent {
        Value::Null => {
            found.missing(&at);
            T::default()
        }
        _ => read(&at, &mut found),
    };
    found.give(read)
}

impl<'a> At<'a> {
    /// As an object whose fields are known.
    pub(crate) fn model(&'a self, found: &mut Found) -> Fields<'a> {
        let wanted = "Input should be a valid dictionary or object to extract fields from";
        self.fields("model_attributes_type", wanted, found)
    }

    /// As an object with whatever names.
    pub(crate) fn dict(&'a self, found: &mut Found) -> Fields<'a> {
        self.fields("dict_type", "Input should be a valid dictionary", found)
    }

    fn fields(&'a self, kind: &'static str, wanted: &str, found: &mut Found) -> Fields<'a> {
        let fields = self.value.as_object();
        if fields.is_none() {
            found.fault(self, kind, wanted);
        }
        Fields { at: self, fields }
    }
}

/// The fields of an object; of what is none too, which has been blamed for that already and is not for its fields.
pub(crate) struct Fields<'a> {
    at: &'a At<'a>,
    fields: Option<&'a Map<String, Value>>,
}

impl Fields<'_> {
    /// A field that must be there.
    pub(crate) fn needed<T: Default>(
        &self,
        name: &str,
        found: &mut Found,
        read: impl FnOnce(&At<'_>, &mut Found) -> T,
    ) -> T {
        match self.fields.map(|fields| fields.get(name)) {
            Some(Some(value)) => read(&self.at.inner(name, value), found),
            Some(None) => {
                found.missing(&self.at.inner(name, self.at.value));
                T::default()
            }
            None => T::default(),
        }
    }

    /// A field that may be left out, or be `null`.
    pub(crate) fn optional<T>(
        &self,
        name: &str,
        found: &mut Found,
        read: impl FnOnce(&At<'_>, &mut Found) -> T,
    ) -> Option<T> {
        let value = self.fields?.get(name).filter(|value| !value.is_null())?;
        Some(read(&self.at.inner(name, value), found))
    }

    /// A field that has a value also where it is left out. It may not be `null`.
    pub(crate) fn or<T>(
        &self,
        usual: T,
        name: &str,
        found: &mut Found,
        read: impl FnOnce(&At<'_>, &mut Found) -> T,
    ) -> T {
        match self.fields.and_then(|fields| fields.get(name)) {
            Some(value) => read(&self.at.inner(name, value), found),
            None => usual,
        }
    }

    /// All of them, by name, in order.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&str, At<'_>)> {
        let fields = self.fields.into_iter().flatten();
        fields.map(|(name, value)| (name.as_str(), self.at.inner(name.as_str(), value)))
    }
}

/// The items of a list.
pub(crate) fn list<T>(
    at: &At<'_>,
    found: &mut Found,
    mut read: impl FnMut(&At<'_>, &mut Found) -> T,
) -> Vec<T> {
    let Some(items) = at.value.as_array() else {
        found.fault(at, "list_type", "Input should be a valid list");
        return Vec::new();
    };
    let items = items.iter().enumerate();
    items.map(|(nr, item)| read(&at.inner(Step::Nr(nr), item), found)).collect()
}

/// Any text.
pub(crate) fn text(at: &At<'_>, found: &mut Found) -> String {
    sized(0..=usize::MAX)(at, found)
}

/// A text of so many characters, counted as the original's language counts them.
pub(crate) fn sized(bounds: RangeInclusive<usize>) -> impl Fn(&At<'_>, &mut Found) -> String {
    move |at, found| {
        let Some(text) = at.value.as_str() else {
            found.fault(at, "string_type", "Input should be a valid string");
            return String::new();
        };
        let (least, most) = (*bounds.start(), *bounds.end());
        let told =
            |count: usize| if count == 1 { "1 character".into() } else { format!("{count} characters") };
        // Most are shorter in bytes already, and need not be counted.
        if text.len() > most && text.chars().count() > most {
            let msg = format!("String should have at most {}", told(most));
            found.bound(at, "string_too_long", msg, json!({"max_length": most}));
        } else if text.len() < least || (least > 1 && text.chars().count() < least) {
            let msg = format!("String should have at least {}", told(least));
            found.bound(at, "string_too_short", msg, json!({"min_length": least}));
        } else {
            return text.to_owned();
        }
        String::new()
    }
}

/// What a workspace, a session or a peer may be called.
const NAME: &str = "^[a-zA-Z0-9_-]+$";

/// So many characters a name may have.
const NAME_LENGTH: RangeInclusive<usize> = 1..=512;

/// What something is called.
pub(crate) fn name(at: &At<'_>, found: &mut Found) -> String {
    let name = sized(NAME_LENGTH)(at, found);
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-') {
        let msg = format!("String should match pattern '{NAME}'");
        found.bound(at, "string_pattern_mismatch", msg, json!({"pattern": NAME}));
    }
    name
}

/// Yes or no, also in words and as a number.
pub(crate) fn flag(at: &At<'_>, found: &mut Found) -> bool {
    let read = match at.value {
        Value::Bool(given) => Some(*given),
        Value::Number(given) if given.as_f64() == Some(1.0) => Some(true),
        Value::Number(given) if given.as_f64() == Some(0.0) => Some(false),
        Value::Number(given) if !given.is_f64() => None,
        Value::String(given) => match given.to_ascii_lowercase().as_str() {
            "true" | "1" | "on" | "yes" | "t" | "y" => Some(true),
            "false" | "0" | "off" | "no" | "f" | "n" => Some(false),
            _ => None,
        },
        _ => {
            found.fault(at, "bool_type", "Input should be a valid boolean");
            return false;
        }
    };
    read.unwrap_or_else(|| {
        found.fault(at, "bool_parsing", "Input should be a valid boolean, unable to interpret input");
        false
    })
}

/// A whole number within bounds, also one that is written as a text or with nothing but zeros behind the point.
pub(crate) fn whole(bounds: RangeInclusive<i64>) -> impl Fn(&At<'_>, &mut Found) -> i64 {
    move |at, found| {
        let read = match at.value {
            Value::Number(given) => whole_number(given),
            Value::String(given) => whole_text(given).ok_or(NO_WHOLE_TEXT),
            _ => Err(("int_type", "Input should be a valid integer")),
        };
        let (least, most) = (*bounds.start(), *bounds.end());
        match read {
            Err((kind, msg)) => found.fault(at, kind, msg),
            Ok(given) if given < least => below(at, least, found),
            Ok(given) if given > most => above(at, most, found),
            Ok(given) => return given,
        }
        0
    }
}

/// A number within bounds, also one that is written as a text.
pub(crate) fn number(bounds: RangeInclusive<f64>) -> impl Fn(&At<'_>, &mut Found) -> f64 {
    move |at, found| {
        let read = match at.value {
            Value::Number(given) => given.as_f64(),
            Value::String(given) => given.trim().parse().ok(),
            _ => {
                found.fault(at, "float_type", "Input should be a valid number");
                return 0.0;
            }
        };
        let (least, most) = (*bounds.start(), *bounds.end());
        match read {
            None => {
                let msg = "Input should be a valid number, unable to parse string as a number";
                found.fault(at, "float_parsing", msg);
            }
            Some(given) if given < least => below(at, least, found),
            Some(given) if given <= most => return given,
            // No number at all ("nan") is not within any bounds.
            Some(_) => above(at, most, found),
        }
        0.0
    }
}

fn below(at: &At<'_>, least: impl Display + Into<Value>, found: &mut Found) {
    let msg = format!("Input should be greater than or equal to {least}");
    found.bound(at, "greater_than_equal", msg, json!({"ge": least.into()}));
}

fn above(at: &At<'_>, most: impl Display + Into<Value>, found: &mut Found) {
    let msg = format!("Input should be less than or equal to {most}");
    found.bound(at, "less_than_equal", msg, json!({"le": most.into()}));
}

/// A kind of fault, and its words.
type Wrong = (&'static str, &'static str);

const NO_WHOLE_TEXT: Wrong =
    ("int_parsing", "Input should be a valid integer, unable to parse string as an integer");

fn whole_number(given: &serde_json::Number) -> Result<i64, Wrong> {
    if let Some(whole) = given.as_i64() {
        return Ok(whole);
    }
    if given.is_u64() {
        // Larger than any bound.
        return Ok(i64::MAX);
    }
    let near = given.as_f64().unwrap_or(f64::INFINITY);
    if near.fract() != 0.0 {
        return Err((
            "int_from_float",
            "Input should be a valid integer, got a number with a fractional part",
        ));
    }
    let large = ("int_parsing_size", "Unable to parse input string as an integer, exceeded maximum size");
    format!("{near:.0}").parse().map_err(|_| large)
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
