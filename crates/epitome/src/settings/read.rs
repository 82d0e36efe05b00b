//! Reads a section of settings from a JSON value; errors contain the full name of the setting.
//!
//! Sections are structs that derive `Deserialize` and `JsonSchema`. Validation uses only the schema. An error contains
//! the full key (`slot[1].trigger`), the rejected value, the allowed keys or values, and the key that was probably
//! meant. Nulls count as not set.
//!
//! This module contains no setting's name, and does not read files, flags or environment variables.

use std::convert::Infallible;
use std::fmt;
use std::time::Duration;

use epitome_core::suggest::{did_you_mean, similar_names};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use serde_path_to_error::Segment;

use super::form::is_model_name;
use super::line::line_of;
use super::time::{self, YEAR, write_time};

/// Maximum number of characters of a rejected value that an error repeats.
const MAX_VALUE_CHARS: usize = 60;

/// An invalid setting. The message contains the key of the setting to fix and the problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{key}: {problem}", line.map(|line| format!("line {line}: ")).unwrap_or_default())]
pub struct SettingsError {
    /// The line of the document, if the settings were read from a TOML document of several lines.
    line: Option<usize>,
    key: String,
    problem: String,
}

impl SettingsError {
    /// Creates an error for the setting with this full name.
    pub fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        let key = Some(key.into()).filter(|key| !key.is_empty());
        Self { line: None, key: key.unwrap_or_else(|| "settings".to_owned()), problem: problem.into() }
    }

    /// Creates an error for a value that is not allowed.
    pub(super) fn not_allowed(key: &str, value: &Value, allowed: &str) -> Self {
        Self::new(key, format!("{} is not allowed; expected {allowed}", shortened(&value.to_string())))
    }

    /// Adds the line to the error, if the document has several lines.
    pub(super) fn at_line(mut self, document: &str) -> Self {
        self.line = line_of(document, &self.key).filter(|_| document.trim().contains('\n'));
        self
    }

    /// Returns the full name of the setting to fix, such as `slot[1].trigger`.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns what is wrong and what is allowed.
    pub fn problem(&self) -> &str {
        &self.problem
    }
}

impl From<Infallible> for SettingsError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// Reads a struct from a JSON value. Null entries count as not set.
///
/// A program can also read sections of its own with this function.
///
/// ```
/// use epitome::settings::{Limits, read, schema};
/// use serde_json::json;
///
/// let limits: Limits = read(json!({"batch": 5, "body": null}), &schema::<Limits>())?;
/// assert_eq!((limits.batch, limits.body), (5, Limits::default().body));
/// assert_eq!(
///     read::<Limits>(json!({"batches": 5}), &schema::<Limits>()).unwrap_err().to_string(),
///     "batches: no such setting; did you mean batch? allowed here are message, batch, body, metadata",
/// );
/// # Ok::<(), epitome::settings::SettingsError>(())
/// ```
pub fn read<T: DeserializeOwned>(mut value: Value, schema: &Value) -> Result<T, SettingsError> {
    check(&mut value, schema, "")?;
    serde_path_to_error::deserialize(value).map_err(|error| {
        let key = error.path().iter().fold(String::new(), |key, segment| match segment {
            Segment::Map { key: name } => join(&key, name),
            Segment::Seq { index } => format!("{key}[{index}]"),
            _ => key,
        });
        let problem = error.inner().to_string();
        // Some parsers already put the key into their error.
        let bare = key.split('.').find_map(|name| problem.strip_prefix(name)?.strip_prefix(": "));
        SettingsError::new(&key, bare.unwrap_or(&problem))
    })
}

/// Rejects what the schema does not allow, and removes entries that count as not set.
fn check(value: &mut Value, schema: &Value, key: &str) -> Result<(), SettingsError> {
    match (value, schema.get("items")) {
        (Value::Object(entries), _) if is_table(schema) => check_table(entries, schema, key),
        (value, _) if is_table(schema) => Err(SettingsError::not_allowed(key, value, "a table of settings")),
        (Value::Array(list), Some(items)) if is_table(items) => {
            let mut all = list.iter_mut().enumerate();
            all.try_for_each(|(at, item)| check(item, items, &format!("{key}[{at}]")))
        }
        (value, _) => match check_value(value, schema) {
            (true, _) => Ok(()),
            (false, allowed) => {
                let expected = format!("{}expected {allowed}", similar_keyword(value, schema));
                let value = shortened(&value.to_string());
                Err(SettingsError::new(key, format!("{value} is not allowed; {expected}")))
            }
        },
    }
}

fn check_table(entries: &mut Map<String, Value>, schema: &Value, key: &str) -> Result<(), SettingsError> {
    entries.retain(|name, value| schema_of(schema, name).is_none_or(|schema| !is_unset(value, schema)));
    for (name, value) in entries.iter_mut() {
        let key = join(key, name);
        let Some(schema) = schema_of(schema, name) else {
            return Err(SettingsError::new(key, unknown_key(name, schema)));
        };
        check(value, schema, &key)?;
    }
    let mut required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    match required.find_map(|name| name.as_str().filter(|name| !entries.contains_key(*name))) {
        None => Ok(()),
        Some(name) => {
            let hint = schema_of(schema, name).and_then(hint).unwrap_or_default();
            Err(SettingsError::new(join(key, name), format!("is missing{hint}")))
        }
    }
}

/// Returns the problem of an unknown key as text. The text contains the schema's hint for this key (`x-hints`), or the
/// most similar key.
fn unknown_key(name: &str, schema: &Value) -> String {
    let keys = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let keys: Vec<&str> = keys.map(|(name, _)| name.as_str()).collect();
    if let Some(hint) = schema.get("x-hints").and_then(|hints| hints.get(name)?.as_str()) {
        return format!("no such setting; {hint}");
    }
    let similar = similar_names(name, keys.iter().copied(), 1);
    let similar = similar.first().map(|name| format!("did you mean {name}? ")).unwrap_or_default();
    format!("no such setting; {similar}allowed here are {}", keys.join(", "))
}

/// Suggests the keyword that was probably meant, for an error message; empty if no keyword is similar.
fn similar_keyword(value: &Value, schema: &Value) -> String {
    let form = schema.pointer("/anyOf/0").unwrap_or(schema);
    let never = (kind(form) == "time-or-never").then_some("never");
    let words =
        keywords(form).into_iter().filter_map(Value::as_str).chain(never).chain(unset_keyword(schema));
    value.as_str().map(|text| did_you_mean(text, words)).unwrap_or_default()
}

/// Returns whether a value fits a schema, and a description of the allowed values that can follow "expected".
fn check_value(value: &Value, schema: &Value) -> (bool, String) {
    let form = schema.pointer("/anyOf/0").unwrap_or(schema);
    // A duration takes its bounds in seconds from the numeric alternative of the schema.
    let bounds = schema.pointer("/anyOf/1").filter(|other| other.get("maximum").is_some()).unwrap_or(form);
    let bound = |name: &str| bounds.get(name).and_then(Value::as_f64).unwrap_or_default();
    let (min, max) = (bound("minimum"), bound("maximum"));
    let is_within = |number: f64| (min..=max).contains(&number);
    let is_number = || value.as_f64().is_some_and(is_within);
    let is_time = || time::read(value).is_some_and(|time| is_within(time.as_secs_f64()));
    let (fits, allowed) = match kind(form) {
        "boolean" => (value.is_boolean(), "true or false".to_owned()),
        "integer" => (value.is_u64() && is_number(), whole_number(min, max)),
        "number" if max <= 1.0 => (is_number(), "a number more than 0 and at most 1, such as 0.4".to_owned()),
        "number" => (is_number(), format!("an amount from 0 to {max}, such as 2.50")),
        "time" => (is_time(), time_within(min, max)),
        "time-or-never" => {
            let is_never = value.as_str().is_some_and(|text| text.trim() == "never");
            (is_never || is_time(), format!("\"never\", or {}", time_within(min, max)))
        }
        "model" => (is_model(value), "the name of a model, such as \"local\"".to_owned()),
        "array" if form.get("items").is_some_and(is_table) => (false, "a list of tables".to_owned()),
        "array" => {
            let allowed = "a list of model names, at least one and no duplicates, such as [\"local\"]";
            (value.as_array().is_some_and(|names| are_models(names)), allowed.to_owned())
        }
        _ => match keywords(form) {
            none if none.is_empty() => (value.is_string(), "a text".to_owned()),
            keywords => (keywords.contains(&value), one_of(&keywords)),
        },
    };
    match unset_keyword(schema) {
        Some(keyword) => (fits, format!("{allowed}, or \"{keyword}\"")),
        None => (fits, allowed),
    }
}

/// Returns the `format` of a schema, or the first type of a schema without a format.
fn kind(schema: &Value) -> &str {
    let named = schema.get("type").map(|named| named.get(0).unwrap_or(named));
    schema.get("format").or(named).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the allowed keywords of a type that derives its schema. The list is empty for a type with its own parser:
/// the errors of this parser list the allowed values, and the type's schema contains no `type`.
fn keywords(schema: &Value) -> Vec<&Value> {
    let all = |key: &str| schema.get(key).and_then(Value::as_array).into_iter().flatten();
    let listed = all("enum").filter(|_| schema.get("type").is_some());
    all("oneOf").filter_map(|keyword| keyword.get("const")).chain(listed).collect()
}

fn whole_number(min: f64, max: f64) -> String {
    let from = if min > 0.0 { format!(" from {min}") } else { String::new() };
    let to = if max < u64::MAX as f64 { format!(" to {max}") } else { String::new() };
    format!("a whole number{from}{to}")
}

fn time_within(min: f64, max: f64) -> String {
    if min == 0.0 && max >= Duration::from_millis(YEAR).as_secs_f64() {
        return "a time of at most a year such as \"10m\", \"30s\", \"2h\", \"500ms\" or 600 for seconds"
            .to_owned();
    }
    let [min, max] = [min, max].map(|seconds| write_time(Duration::from_secs_f64(seconds)));
    format!("a time from \"{min}\" to \"{max}\" such as \"10m\" or 600 for seconds")
}

fn is_model(name: &Value) -> bool {
    name.as_str().is_some_and(is_model_name)
}

fn are_models(names: &[Value]) -> bool {
    let each_once =
        names.iter().enumerate().all(|(at, name)| !names.iter().take(at).any(|other| other == name));
    !names.is_empty() && each_once && names.iter().all(is_model)
}

/// Returns whether the schema describes a table of keys.
fn is_table(schema: &Value) -> bool {
    schema.get("properties").is_some() || schema.get("additionalProperties").is_some()
}

/// Returns the schema of the value under this name, if the name is allowed.
fn schema_of<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    let named = schema.get("properties").and_then(|properties| properties.get(name));
    named.or_else(|| schema.get("additionalProperties").filter(|each| each.is_object()))
}

/// Returns whether a value counts as not set: null, or the keyword for "not set".
fn is_unset(value: &Value, schema: &Value) -> bool {
    value.is_null() || value.as_str().is_some_and(|text| unset_keyword(schema) == Some(text.trim()))
}

/// Returns the keyword that is allowed instead of a value.
fn unset_keyword(schema: &Value) -> Option<&str> {
    schema.pointer("/anyOf/1/const")?.as_str()
}

/// Appends a name to a full key. The name is in quotes if it could be misread.
pub(super) fn join(key: &str, name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name = match shortened(name) {
        name if !name.is_empty() && name.chars().all(plain) => name,
        odd => format!("{odd:?}"),
    };
    if key.is_empty() { name } else { format!("{key}.{name}") }
}

/// Returns the start of a text, with at most [`MAX_VALUE_CHARS`] characters, for an error message.
fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(MAX_VALUE_CHARS).collect();
    if text.chars().nth(MAX_VALUE_CHARS).is_some() {
        short.push('…');
    }
    short
}

/// Returns the end of the error for a missing setting: its allowed keywords, or its example.
fn hint(schema: &Value) -> Option<String> {
    match schema.get("enum").and_then(Value::as_array) {
        Some(keywords) => Some(format!("; expected {}", one_of(keywords))),
        None => schema.pointer("/examples/0").map(|example| format!("; for example {example}")),
    }
}

/// Lists keywords, with "or" before the last one.
fn one_of(keywords: &[impl fmt::Display]) -> String {
    let keywords: Vec<String> = keywords.iter().map(ToString::to_string).collect();
    match keywords.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => keywords.concat(),
    }
}
