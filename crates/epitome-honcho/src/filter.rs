//! The filters of Honcho's list and search routes.
//!
//! A filter is parsed once (`filter/parse.rs`), refused if it is invalid, and then applied to every item. It sees an
//! item only as JSON.
//!
//! - All entries of a dict must match. `AND`, `OR` and `NOT` take lists of dicts, of which all, any or none must match.
//!   An empty `AND` or `NOT` matches everything. An empty `OR` matches nothing, and neither does an empty `in`.
//! - A plain value means equality. `gt`, `gte`, `lt`, `lte`, `ne`, `in`, `contains` and `icontains` compare; one
//!   condition may have several. `"*"` in place of a value matches anything, also a missing value.
//! - Numbers compare as numbers, texts by their bytes, fields that end in `_at` as timestamps. A number never equals a
//!   text.
//! - `metadata` and `configuration` contain JSON, and match as in Postgres' `@>`: a dict matches a dict with fewer
//!   entries, a list matches a list whose elements it contains, everything else must be equal. Operators may be used at
//!   any depth. `contains` finds a part of a text, or an element of a list.
//! - A condition is true or false, where SQL has a third value. A condition on a missing value or `null` is false: `ne`
//!   matches only a different value. `NOT` inverts that, and so also matches items without the value.

mod parse;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::iso_time::IsoTime;

/// The filter of a list's items, each a JSON object with its fields.
pub(super) type Filter = Condition;

/// The fields of a kind of items.
#[derive(Debug, Clone, Copy)]
pub(super) struct FilterFields {
    /// The names that a filter may use.
    pub(super) allowed: &'static [&'static str],
    /// Those of them that are aliases of `id`.
    pub(super) id_aliases: &'static [&'static str],
}

/// A condition on an item, or on a value in it. `parse` limits its depth.
#[derive(Debug, Clone)]
pub(super) enum Condition {
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Box<Condition>),
    /// Applies to the value under this name in a dict: an item's field, or an entry of one.
    Field(String, Box<Condition>),
    /// The value is missing, or `null`.
    Absent,
    /// The value exists, and this condition is false.
    Differs(Box<Condition>),
    /// The value is this, or a dict or list that contains this.
    Includes(Value),
    /// The value has this relation to a number or text. A value of another type has none.
    Compares(Relation, Value),
    /// The value is a timestamp with this relation to another one.
    Time(Relation, IsoTime),
    /// The value is a text that contains this, or a list with this element.
    Contains(Value),
    /// Like `Contains`, but ignores case. This text is in lower case.
    ContainsFolded(String),
}

/// Which orderings match, such as `Ordering::is_gt`.
type Relation = fn(Ordering) -> bool;

impl Condition {
    /// Returns whether an item matches.
    pub(super) fn matches(&self, item: &Value) -> bool {
        self.matches_value(Some(item))
    }

    /// Returns the condition that everything matches, also a missing value.
    fn anything() -> Self {
        Self::All(Vec::new())
    }

    /// Returns whether everything matches, so that items need not be converted to JSON.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::All(conditions) if conditions.is_empty())
    }

    /// Returns the conjunction of these conditions, without those that everything matches.
    fn all(mut conditions: Vec<Self>) -> Self {
        conditions.retain(|condition| !condition.is_empty());
        if conditions.len() == 1 { conditions.remove(0) } else { Self::All(conditions) }
    }

    fn any(mut conditions: Vec<Self>) -> Self {
        if conditions.len() == 1 { conditions.remove(0) } else { Self::Any(conditions) }
    }

    /// Applies the condition to the value under a name.
    fn of_field(self, name: &str) -> Self {
        if self.is_empty() { self } else { Self::Field(name.to_owned(), Box::new(self)) }
    }

    /// Returns how many conditions use a field, so that a caller can refuse what it cannot answer.
    pub(super) fn mentions(&self, field: &str) -> usize {
        match self {
            Self::All(conditions) | Self::Any(conditions) => {
                conditions.iter().map(|condition| condition.mentions(field)).sum()
            }
            Self::Not(condition) => condition.mentions(field),
            Self::Field(name, _) => usize::from(name == field),
            _ => 0,
        }
    }

    /// Returns the one text that a field must equal, if that is obvious, so that a caller can use an index. The filter
    /// must still be applied to what is read that way.
    pub(super) fn must_equal(&self, field: &str) -> Option<&str> {
        match self {
            Self::All(conditions) => conditions.iter().find_map(|condition| condition.must_equal(field)),
            Self::Field(name, condition) if name == field => condition.text(),
            _ => None,
        }
    }

    /// Returns the only text that matches.
    fn text(&self) -> Option<&str> {
        match self {
            Self::Includes(Value::String(text)) => Some(text),
            Self::All(conditions) => conditions.iter().find_map(Self::text),
            _ => None,
        }
    }

    fn matches_value(&self, value: Option<&Value>) -> bool {
        match self {
            Self::All(conditions) => conditions.iter().all(|condition| condition.matches_value(value)),
            Self::Any(conditions) => conditions.iter().any(|condition| condition.matches_value(value)),
            Self::Not(condition) => !condition.matches_value(value),
            Self::Field(name, condition) => condition.matches_value(value.and_then(|value| value.get(name))),
            Self::Absent => value.is_none_or(Value::is_null),
            Self::Differs(condition) => !Self::Absent.matches_value(value) && !condition.matches_value(value),
            Self::Includes(expected) => value.is_some_and(|value| includes(value, expected)),
            Self::Compares(relation, bound) => {
                value.and_then(|value| compare(value, bound)).is_some_and(relation)
            }
            Self::Time(relation, bound) => {
                let time = value.and_then(Value::as_str).and_then(IsoTime::parse);
                time.is_some_and(|time| relation(time.cmp(bound)))
            }
            Self::Contains(part) => value.is_some_and(|value| contains(value, part)),
            Self::ContainsFolded(part) => value.is_some_and(|value| contains_folded(value, part)),
        }
    }
}

/// Compares a value with another one.
fn compare(value: &Value, bound: &Value) -> Option<Ordering> {
    match (value, bound) {
        (Value::Number(number), Value::Number(bound)) => compare_numbers(number, bound),
        (Value::String(text), Value::String(bound)) => Some(text.cmp(bound)),
        _ => None,
    }
}

/// Compares integers as integers, and as fractions only if one of them is a fraction.
fn compare_numbers(one: &Number, other: &Number) -> Option<Ordering> {
    match (one.as_i128(), other.as_i128()) {
        (Some(one), Some(other)) => Some(one.cmp(&other)),
        _ => one.as_f64()?.partial_cmp(&other.as_f64()?),
    }
}

/// Returns `value @> expected`. The depth of `expected` limits the recursion.
fn includes(value: &Value, expected: &Value) -> bool {
    match (value, expected) {
        (Value::Object(value), Value::Object(expected)) => expected
            .iter()
            .all(|(name, expected)| value.get(name).is_some_and(|value| includes(value, expected))),
        (Value::Array(value), Value::Array(expected)) => {
            expected.iter().all(|expected| value.iter().any(|value| includes(value, expected)))
        }
        (Value::Number(value), Value::Number(expected)) => {
            compare_numbers(value, expected) == Some(Ordering::Equal)
        }
        _ => value == expected,
    }
}

fn contains(value: &Value, part: &Value) -> bool {
    match (value, part) {
        (Value::String(value), Value::String(part)) => value.contains(part.as_str()),
        (Value::Array(_), Value::Array(_)) => includes(value, part),
        (Value::Array(value), part) => value.iter().any(|value| includes(value, part)),
        _ => includes(value, part),
    }
}

fn contains_folded(value: &Value, part: &str) -> bool {
    match value {
        Value::String(value) => value.to_lowercase().contains(part),
        Value::Array(value) => {
            value.iter().filter_map(Value::as_str).any(|value| value.to_lowercase() == part)
        }
        _ => false,
    }
}
