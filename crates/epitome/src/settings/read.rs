//! Reading a section from a JSON value, with errors that name the setting in full.
//!
//! Sections are structs that derive `Deserialize`; what they accept is theirs. This module adds what a settings file
//! needs on top: the full name of the wrong key (`slot[1].trigger`), the value that was given, the names or values that
//! are allowed, the name that was probably meant, and nulls, which count as not set.
//!
//! It knows no setting by name, and nothing of files, flags or the environment.

use std::convert::Infallible;
use std::fmt;

use schemars::JsonSchema;
use serde::de::value::{MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{self, Deserialize, Deserializer, Expected, IntoDeserializer, Unexpected, Visitor};
use serde_json::Value;
use serde_path_to_error::Segment;

/// The longest part of a wrong value that an error repeats, in characters.
const LONGEST_GIVEN: usize = 60;

/// Why settings were refused. All of these mean: fix the setting that is named.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A name that no setting has.
    #[error("{key}: no such setting; {}allowed here are {}", did_you_mean(.meant.as_deref()), .allowed.join(", "))]
    Unknown {
        /// Its full name.
        key: String,
        /// The names that are allowed there.
        allowed: &'static [&'static str],
        /// The one of them that was probably meant.
        meant: Option<&'static str>,
    },
    /// Something else is wrong with it: its value is not allowed, say, or the text is neither JSON nor TOML.
    #[error("{key}: {problem}")]
    Wrong {
        /// The setting's full name.
        key: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
}

impl SettingsError {
    /// The full name of the setting to be fixed, such as `slot[1].trigger`.
    #[must_use]
    pub fn key(&self) -> &str {
        let (Self::Unknown { key, .. } | Self::Wrong { key, .. }) = self;
        key
    }

    /// A value that is not allowed for the setting of this full name.
    pub(super) fn not_allowed(key: impl Into<String>, given: &Value, allowed: &str) -> Self {
        Self::wrong(key, format!("{} given; allowed is {allowed}", shortened(&given.to_string())))
    }

    /// A problem with the setting of this full name.
    pub(crate) fn wrong(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Wrong { key: key.into(), problem: problem.into() }
    }
}

impl From<Infallible> for SettingsError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

fn did_you_mean(meant: Option<&str>) -> String {
    meant.map(|meant| format!("did you mean {meant}? ")).unwrap_or_default()
}

/// Reads a struct that derives `Deserialize` from a value. Null entries count as not set.
///
/// Programs that have sections of their own read them with it too.
///
/// ```
/// use epitome::settings::{Limits, read};
/// use serde_json::json;
///
/// let limits: Limits = read(&json!({"batch": 5, "body": null}))?;
/// assert_eq!((limits.batch, limits.body), (5, Limits::default().body));
/// assert_eq!(
///     read::<Limits>(&json!({"batches": 5})).unwrap_err().to_string(),
///     "batches: no such setting; did you mean batch? allowed here are message, batch, body, metadata",
/// );
/// # Ok::<(), epitome::settings::SettingsError>(())
/// ```
pub fn read<'de, T: Deserialize<'de> + JsonSchema>(value: &'de Value) -> Result<T, SettingsError> {
    serde_path_to_error::deserialize(Node(value)).map_err(|error| {
        let schema = super::schema::<T>();
        let (mut key, mut given, mut described) = (String::new(), Some(value), Some(&schema));
        for segment in error.path() {
            match segment {
                Segment::Map { key: name } => {
                    join(&mut key, name);
                    given = given.and_then(|given| given.get(name));
                    described = described.and_then(|schema| below(schema, name));
                }
                Segment::Seq { index } => {
                    key.push_str(&format!("[{index}]"));
                    given = given.and_then(|given| given.get(index));
                    described = described.and_then(|schema| schema.get("items"));
                }
                _ => {}
            }
        }
        error.into_inner().named(key, given.unwrap_or(&Value::Null), described)
    })
}

/// The schema of what stands under this name.
fn below<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    let named = schema.get("properties").and_then(|properties| properties.get(name));
    named.or_else(|| schema.get("additionalProperties"))
}

/// Appends a name to a full name, in quotes where it could be misread.
pub(super) fn join(key: &mut String, name: &str) {
    if !key.is_empty() {
        key.push('.');
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name = shortened(name);
    match !name.is_empty() && name.chars().all(plain) {
        true => key.push_str(&name),
        false => key.push_str(&format!("{name:?}")),
    }
}

/// The beginning of a text that an error repeats.
fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(LONGEST_GIVEN).collect();
    if text.chars().nth(LONGEST_GIVEN).is_some() {
        short.push('…');
    }
    short
}

/// What serde has against a value, before it is known under which name it stands.
#[derive(Debug, thiserror::Error)]
#[error("{self:?}")]
enum Problem {
    Unknown(&'static [&'static str]),
    Missing(&'static str),
    NotAllowed(String),
    Other(String),
}

impl Problem {
    fn named(self, mut key: String, given: &Value, described: Option<&Value>) -> SettingsError {
        let last = key.rsplit('.').next().unwrap_or_default().to_owned();
        if let Self::Missing(field) = self {
            join(&mut key, field);
        }
        if key.is_empty() {
            "settings".clone_into(&mut key);
        }
        match self {
            Self::Unknown(allowed) => SettingsError::Unknown { key, allowed, meant: nearest(&last, allowed) },
            Self::Missing(field) => {
                let hint = described.and_then(|schema| hint(below(schema, field)?)).unwrap_or_default();
                SettingsError::wrong(key, format!("is missing{hint}"))
            }
            Self::NotAllowed(allowed) => SettingsError::not_allowed(key, given, &allowed),
            Self::Other(problem) => {
                // Some parsers name the key themselves.
                let bare = key.split('.').find_map(|name| problem.strip_prefix(name)?.strip_prefix(": "));
                let problem = bare.unwrap_or(&problem).to_owned();
                SettingsError::wrong(key, problem)
            }
        }
    }
}

/// What to write where a setting without a default is missing: one of its words, or its example.
fn hint(schema: &Value) -> Option<String> {
    let words = schema.get("enum").and_then(Value::as_array);
    let example = || schema.pointer("/examples/0").map(|example| format!("; such as {example}"));
    words.map(|words| format!("; say {}", one_of(words))).or_else(example)
}

/// Words in quotes, the last after "or".
fn one_of(words: &[impl fmt::Display]) -> String {
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// The name that was probably meant: at most a third of its letters differ, or one is a part of the other.
fn nearest<'a>(given: &str, names: &[&'a str]) -> Option<&'a str> {
    let most = (given.chars().count() / 3).clamp(1, 3);
    let part = |name: &str| given.len() >= 3 && (name.contains(given) || given.contains(name));
    let near = names.iter().map(|name| (strsim::levenshtein(given, name), *name));
    near.filter(|(distance, name)| *distance <= most || part(name)).min().map(|(_, name)| name)
}

impl de::Error for Problem {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Other(message.to_string())
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::NotAllowed(match expected.to_string().as_str() {
            "a boolean" => "true or false".to_owned(),
            "a string" => "a text".to_owned(),
            "a sequence" => "a list of tables".to_owned(),
            "a map" => "a table of settings".to_owned(),
            other => other.to_owned(),
        })
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::NotAllowed(expected.to_string())
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self::NotAllowed(one_of(&expected.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>()))
    }

    fn unknown_field(_: &str, expected: &'static [&'static str]) -> Self {
        Self::Unknown(expected)
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing(field)
    }
}

/// A JSON value that reports what is wrong as a [`Problem`], and leaves out null entries.
#[derive(Clone, Copy)]
struct Node<'de>(&'de Value);

impl<'de> Node<'de> {
    fn visit_map<V: Visitor<'de>>(
        self,
        known: impl Fn(&str) -> bool,
        visitor: V,
    ) -> Result<V::Value, Problem> {
        let Value::Object(entries) = self.0 else { return self.deserialize_any(visitor) };
        let set = entries.iter().filter(|(key, value)| !value.is_null() || !known(key));
        visitor.visit_map(MapDeserializer::new(set.map(|(key, value)| (key.as_str(), Node(value)))))
    }
}

impl<'de> IntoDeserializer<'de, Problem> for Node<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Node<'de> {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(flag) => visitor.visit_bool(*flag),
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(whole), _) => visitor.visit_u64(whole),
                (None, Some(whole)) => visitor.visit_i64(whole),
                (None, None) => visitor.visit_f64(number.as_f64().unwrap_or_default()),
            },
            Value::Array(list) => visitor.visit_seq(SeqDeserializer::new(list.iter().map(Node))),
            Value::Object(_) => self.visit_map(|_| false, visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.visit_map(|_| true, visitor)
    }

    /// A name that no field has is refused even where its value is null.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        self.visit_map(|key| fields.contains(&key), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        match self.0 {
            Value::String(text) => visitor.visit_enum(StrDeserializer::new(text)),
            _ => Err(de::Error::unknown_variant("", variants)),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq
        newtype_struct tuple tuple_struct identifier ignored_any
    }
}
