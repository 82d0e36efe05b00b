//! Reading a section from a JSON value, with errors that name the setting in full.
//!
//! Sections are structs that derive `Deserialize` and `JsonSchema`. The schema says what is allowed, and is all that is
//! known here: what it does not allow is refused by its full name (`slot[1].trigger`), with the value that was given, the
//! names or values that are allowed, and the name that was probably meant. Nulls count as not set.
//!
//! It knows no setting by name, and nothing of files, flags or the environment.

use std::convert::Infallible;
use std::fmt;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use serde_path_to_error::Segment;

use super::form::is_model_name;
use super::near::near;
use super::time::{self, YEAR, write_time};

/// The longest part of a wrong value that an error repeats, in characters.
const LONGEST_GIVEN: usize = 60;

/// Why settings were refused: fix the setting that is named.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct SettingsError {
    key: String,
    problem: String,
}

impl SettingsError {
    /// A problem with the setting of this full name.
    pub fn wrong(key: impl Into<String>, problem: impl Into<String>) -> Self {
        let key = Some(key.into()).filter(|key| !key.is_empty());
        Self { key: key.unwrap_or_else(|| "settings".to_owned()), problem: problem.into() }
    }

    /// A value that is not allowed for the setting of this full name.
    pub(super) fn not_allowed(key: &str, given: &Value, allowed: &str) -> Self {
        Self::wrong(key, format!("{} given; allowed is {allowed}", shortened(&given.to_string())))
    }

    /// The full name of the setting to be fixed, such as `slot[1].trigger`.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What is wrong, and what would be right.
    pub fn problem(&self) -> &str {
        &self.problem
    }
}

impl From<Infallible> for SettingsError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// Reads a struct from a value. Null entries count as not set.
///
/// Programs that have sections of their own read them with it too.
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
        // Some parsers name the key themselves.
        let bare = key.split('.').find_map(|name| problem.strip_prefix(name)?.strip_prefix(": "));
        SettingsError::wrong(&key, bare.unwrap_or(&problem))
    })
}

/// Refuses what a schema does not allow under this name, and takes out what counts as not set.
fn check(value: &mut Value, schema: &Value, key: &str) -> Result<(), SettingsError> {
    match (value, schema.get("items")) {
        (Value::Object(entries), _) if is_table(schema) => check_table(entries, schema, key),
        (value, _) if is_table(schema) => Err(SettingsError::not_allowed(key, value, "a table of settings")),
        (Value::Array(list), Some(items)) if is_table(items) => {
            let mut all = list.iter_mut().enumerate();
            all.try_for_each(|(at, item)| check(item, items, &format!("{key}[{at}]")))
        }
        (value, _) => match judge(value, schema) {
            (true, _) => Ok(()),
            (false, allowed) => Err(SettingsError::not_allowed(key, value, &allowed)),
        },
    }
}

fn check_table(entries: &mut Map<String, Value>, schema: &Value, key: &str) -> Result<(), SettingsError> {
    entries.retain(|name, value| below(schema, name).is_none_or(|schema| !is_unset(value, schema)));
    for (name, value) in entries.iter_mut() {
        let key = join(key, name);
        let Some(schema) = below(schema, name) else {
            let known = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
            let known: Vec<&str> = known.map(|(name, _)| name.as_str()).collect();
            let meant = near(name, known.iter().copied(), 1);
            let meant = meant.first().map(|meant| format!("did you mean {meant}? ")).unwrap_or_default();
            let problem = format!("no such setting; {meant}allowed here are {}", known.join(", "));
            return Err(SettingsError::wrong(key, problem));
        };
        check(value, schema, &key)?;
    }
    let mut required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    match required.find_map(|name| name.as_str().filter(|name| !entries.contains_key(*name))) {
        None => Ok(()),
        Some(name) => {
            let hint = below(schema, name).and_then(hint).unwrap_or_default();
            Err(SettingsError::wrong(join(key, name), format!("is missing{hint}")))
        }
    }
}

/// Whether a value is as a schema wants it, and what is allowed, as it follows "allowed is".
fn judge(value: &Value, schema: &Value) -> (bool, String) {
    let form = schema.pointer("/anyOf/0").unwrap_or(schema);
    // The bounds of a time are those of its seconds, in the form beside it.
    let bounds = schema.pointer("/anyOf/1").filter(|beside| beside.get("maximum").is_some()).unwrap_or(form);
    let bound = |name: &str| bounds.get(name).and_then(Value::as_f64).unwrap_or_default();
    let (min, max) = (bound("minimum"), bound("maximum"));
    let is_within = |number: f64| (min..=max).contains(&number);
    let is_number = || value.as_f64().is_some_and(is_within);
    let is_time = || time::read(value).is_some_and(|time| is_within(time.as_secs_f64()));
    let (fits, allowed) = match kind(form) {
        "boolean" => (value.is_boolean(), "true or false".to_owned()),
        "integer" => (value.is_u64() && is_number(), whole(min, max)),
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
            let allowed = "a list of different models' names, at least one, such as [\"local\"]";
            (value.as_array().is_some_and(|names| are_models(names)), allowed.to_owned())
        }
        _ => match words(form) {
            none if none.is_empty() => (value.is_string(), "a text".to_owned()),
            words => (words.contains(&value), one_of(&words)),
        },
    };
    match word(schema) {
        Some(word) => (fits, format!("{allowed}, or \"{word}\"")),
        None => (fits, allowed),
    }
}

/// The format that a schema wants, or the first type.
fn kind(schema: &Value) -> &str {
    let named = schema.get("type").map(|named| named.get(0).unwrap_or(named));
    schema.get("format").or(named).and_then(Value::as_str).unwrap_or_default()
}

/// The words of a type that derives them. Types that parse themselves say in their own way which there are, and have none
/// here: their schema names no type.
fn words(schema: &Value) -> Vec<&Value> {
    let all = |key: &str| schema.get(key).and_then(Value::as_array).into_iter().flatten();
    let listed = all("enum").filter(|_| schema.get("type").is_some());
    all("oneOf").filter_map(|word| word.get("const")).chain(listed).collect()
}

fn whole(min: f64, max: f64) -> String {
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

/// Whether it is a schema of keys.
fn is_table(schema: &Value) -> bool {
    schema.get("properties").is_some() || schema.get("additionalProperties").is_some()
}

/// The schema of what stands under this name, where something may.
fn below<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    let named = schema.get("properties").and_then(|properties| properties.get(name));
    named.or_else(|| schema.get("additionalProperties").filter(|each| each.is_object()))
}

/// Whether it counts as not set: null, and the word that stands for it.
fn is_unset(value: &Value, schema: &Value) -> bool {
    value.is_null() || value.as_str().is_some_and(|text| word(schema) == Some(text.trim()))
}

/// The word that may stand in place of a value.
fn word(schema: &Value) -> Option<&str> {
    schema.pointer("/anyOf/1/const")?.as_str()
}

/// Appends a name to a full name, in quotes where it could be misread.
pub(super) fn join(key: &str, name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name = match shortened(name) {
        name if !name.is_empty() && name.chars().all(plain) => name,
        odd => format!("{odd:?}"),
    };
    if key.is_empty() { name } else { format!("{key}.{name}") }
}

/// The beginning of a text that an error repeats.
fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(LONGEST_GIVEN).collect();
    if text.chars().nth(LONGEST_GIVEN).is_some() {
        short.push('…');
    }
    short
}

/// What to write where a setting without a default is missing: one of its words, or its example.
fn hint(schema: &Value) -> Option<String> {
    match schema.get("enum").and_then(Value::as_array) {
        Some(words) => Some(format!("; say {}", one_of(words))),
        None => schema.pointer("/examples/0").map(|example| format!("; such as {example}")),
    }
}

/// Words in quotes, the last after "or".
fn one_of(words: &[impl fmt::Display]) -> String {
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => words.concat(),
    }
}
