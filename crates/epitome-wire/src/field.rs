//! Reads fields of wire messages, and reports errors with the path of the field.
//!
//! Every error is one line that contains the path of the field. An error never contains message content. An
//! error quotes the value only of a field that has a fixed set of allowed values, and shortens this value.

use epitome_core::message::{Content, Role};
use epitome_core::suggest::did_you_mean;
use serde_json::{Map, Value};

/// The fields of a JSON object.
pub type Object = Map<String, Value>;
pub(crate) type Result<T> = std::result::Result<T, DialectError>;

/// The error for an invalid wire message: one line with the path and the problem, without message content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}{}{problem}", if path.is_empty() { "" } else { ": " })]
pub struct DialectError {
    /// The path, such as `messages[3].content[1].type`. Empty if the problem concerns the whole message.
    path: String,
    problem: String,
}

impl DialectError {
    /// Creates an error from the path of the field and a description of the problem.
    pub fn new(path: &str, problem: impl Into<String>) -> Self {
        Self { path: path.to_owned(), problem: problem.into() }
    }

    /// Prepends an outer path. For example, the outer path `messages[3]` and the path `role` become
    /// `messages[3].role`.
    pub fn under(self, outer: &str) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        Self { path: format!("{outer}{dot}{}", self.path), problem: self.problem }
    }

    /// Replaces the first field name in the path with `field`, the field's name in the request.
    pub(crate) fn renamed(self, field: &str) -> Self {
        let inner = self.path.find(['.', '[']).and_then(|end| self.path.get(end..)).unwrap_or_default();
        Self { path: format!("{field}{inner}"), problem: self.problem }
    }
}

pub(crate) fn object(value: &Value) -> Result<&Object> {
    value
        .as_object()
        .ok_or_else(|| DialectError::new("", format!("is {}; it must be an object", type_name(value))))
}

/// Returns a required string field.
pub(crate) fn text<'a>(fields: &'a Object, key: &str) -> Result<&'a str> {
    optional_text(fields, key)?.ok_or_else(|| missing(key))
}

/// Returns a string field. `None` if the field is missing or null.
pub(crate) fn optional_text<'a>(fields: &'a Object, key: &str) -> Result<Option<&'a str>> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(wrong_type(key, other, "a string")),
    }
}

/// Returns a required string field that must not be empty.
pub(crate) fn name<'a>(fields: &'a Object, key: &str) -> Result<&'a str> {
    let name = text(fields, key)?;
    if name.is_empty() { Err(DialectError::new(key, "must not be empty")) } else { Ok(name) }
}

/// Returns the role in the field `role`, which must be one of OpenAI's role names. The error lists the `allowed` roles.
pub(crate) fn role(fields: &Object, allowed: &[&str]) -> Result<Role> {
    match name(fields, "role")? {
        "system" => Ok(Role::System),
        "developer" => Ok(Role::Developer),
        "user" => Ok(Role::User),
        "assistant" => Ok(Role::Assistant),
        other => Err(unknown_value("role", other, allowed)),
    }
}

/// Returns a boolean field. The result is false if the field is missing or null.
pub(crate) fn flag(fields: &Object, key: &str) -> Result<bool> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(other) => Err(wrong_type(key, other, "true or false")),
    }
}

/// Passes the required object in the field `key` to `read`, and returns the result.
pub(crate) fn inner<'a, T>(
    fields: &'a Object,
    key: &str,
    read: impl FnOnce(&'a Object) -> Result<T>,
) -> Result<T> {
    let value = fields.get(key).ok_or_else(|| missing(key))?;
    object(value).and_then(read).map_err(|error| error.under(key))
}

/// Returns a list field. The result is empty if the field is missing or null.
pub(crate) fn list<'a>(fields: &'a Object, key: &str) -> Result<&'a [Value]> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(values)) => Ok(values),
        Some(other) => Err(wrong_type(key, other, "a list")),
    }
}

/// Passes each object of the list `values` to `read`. `key` is the name of the list in errors.
pub(crate) fn each(key: &str, values: &[Value], mut read: impl FnMut(&Object) -> Result<()>) -> Result<()> {
    for (at, value) in values.iter().enumerate() {
        let read = object(value).and_then(&mut read);
        read.map_err(|error| error.under(&format!("{key}[{at}]")))?;
    }
    Ok(())
}

/// Reads the content in the field `key`: null, a string, or a list of pieces. `read_piece` reads each piece and
/// passes the piece's content to `push`.
pub(crate) fn content(
    fields: &Object,
    key: &str,
    push: &mut dyn FnMut(Content),
    read_piece: impl Fn(&Object, &mut dyn FnMut(Content)) -> Result<()>,
) -> Result<()> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(text)) => {
            if !text.is_empty() {
                push(Content::Text { text: text.clone() });
            }
            Ok(())
        }
        Some(Value::Array(pieces)) => each(key, pieces, |piece| read_piece(piece, push)),
        Some(other) => Err(wrong_type(key, other, "a string, a list or null")),
    }
}

/// Returns the arguments of a call as text. Some servers send an object instead of text; the object is
/// converted to text.
pub(crate) fn arguments(fields: &Object, key: &str) -> Result<String> {
    match fields.get(key) {
        Some(object @ Value::Object(_)) => Ok(object.to_string()),
        _ => Ok(optional_text(fields, key)?.unwrap_or_default().to_owned()),
    }
}

/// Removes the null fields of an object.
pub(crate) fn without_nulls(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    object
}

/// Returns the error for a missing field.
pub(crate) fn missing(key: &str) -> DialectError {
    DialectError::new(key, "is missing")
}

/// Returns the error for a value of the wrong type.
pub(crate) fn wrong_type(key: &str, value: &Value, allowed: &str) -> DialectError {
    DialectError::new(key, format!("is {}; it must be {allowed}", type_name(value)))
}

/// Returns the error for a word that is not one of the allowed values.
pub(crate) fn unknown_value(key: &str, word: &str, allowed: &[&str]) -> DialectError {
    let mut short: String = word.chars().take(24).collect();
    if short.len() < word.len() {
        short.push('…');
    }
    let similar = did_you_mean(word, allowed.iter().copied());
    let listed = allowed.join(", ");
    DialectError::new(key, format!("{short:?} is unknown; {similar}allowed are {listed}"))
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
