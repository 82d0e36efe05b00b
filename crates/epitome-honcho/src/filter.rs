//! The filters of Honcho's list and search routes.
//!
//! A filter is parsed once (`filter/read.rs`), refused if it is invalid, and then applied to every item. It sees an
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

mod read;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::moment::Moment;

/// The filter of a list's items, each a JSON object with its fields.
pub(super) type Filter = Test;

/// The fields of a kind of items.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields {
    /// The names that a filter may use.
    pub(super) known: &'static [&'static str],
    /// Those of them that are aliases of `id`.
    pub(super) id: &'static [&'static str],
}

/// A condition on an item, or on a value in it. `read` limits its depth.
#[derive(Debug, Clone)]
pub(super) enum Test {
    All(Vec<Test>),
    Any(Vec<Test>),
    Not(Box<Test>),
    /// Applies to the value under this name in a dict: an item's field, or an entry of one.
    Inside(String, Box<Test>),
    /// The value is missing, or `null`.
    Absent,
    /// The value exists, and this condition is false.
    Differs(Box<Test>),
    /// The value is this, or a dict or list that contains this.
    Holds(Value),
    /// The value has this relation to a number or text. A value of another type has none.
    Compares(Relation, Value),
    /// The value is a timestamp with this relation to another one.
    At(Relation, Moment),
    /// The value is a text that contains this, or a list with this element.
    Contains(Value),
    /// Like `Contains`, but ignores case. This text is in lower case.
    ContainsFolded(String),
}

/// Which orderings match, such as `Ordering::is_gt`.
type Relation = fn(Ordering) -> bool;

impl Test {
    /// Returns whether an item matches.
    pub(super) fn keeps(&self, item: &Value) -> bool {
        self.passes(Some(item))
    }

    /// Returns the condition that everything matches, also a missing value.
    fn anything() -> Self {
        Self::All(Vec::new())
    }

    /// Returns whether everything matches, so that items need not be converted to JSON.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::All(tests) if tests.is_empty())
    }

    /// Returns the conjunction of these conditions, without those that everything matches.
    fn all(mut tests: Vec<Self>) -> Self {
        tests.retain(|test| !test.is_empty());
        if tests.len() == 1 { tests.remove(0) } else { Self::All(tests) }
    }

    fn any(mut tests: Vec<Self>) -> Self {
        if tests.len() == 1 { tests.remove(0) } else { Self::Any(tests) }
    }

    /// Applies the condition to the value under a name.
    fn inside(self, name: &str) -> Self {
        if self.is_empty() { self } else { Self::Inside(name.to_owned(), Box::new(self)) }
    }

    /// Returns how many conditions use a field, so that a caller can refuse what it cannot answer.
    pub(super) fn mentions(&self, field: &str) -> usize {
        match self {
            Self::All(tests) | Self::Any(tests) => tests.iter().map(|test| test.mentions(field)).sum(),
            Self::Not(test) => test.mentions(field),
            Self::Inside(name, _) => usize::from(name == field),
            _ => 0,
        }
    }

    /// Returns the one text that a field must equal, if that is obvious, so that a caller can use an index. The filter
    /// must still be applied to what is read that way.
    pub(super) fn must_equal(&self, field: &str) -> Option<&str> {
        match self {
            Self::All(tests) => tests.iter().find_map(|test| test.must_equal(field)),
            Self::Inside(name, test) if name == field => test.text(),
            _ => None,
        }
    }

    /// Returns the only text that matches.
    fn text(&self) -> Option<&str> {
        match self {
            Self::Holds(Value::String(text)) => Some(text),
            Self::All(tests) => tests.iter().find_map(Self::text),
            _ => None,
        }
    }

    fn passes(&self, value: Option<&Value>) -> bool {
        match self {
            Self::All(tests) => tests.iter().all(|test| test.passes(value)),
            Self::Any(tests) => tests.iter().any(|test| test.passes(value)),
            Self::Not(test) => !test.passes(value),
            Self::Inside(name, test) => test.passes(value.and_then(|value| value.get(name))),
            Self::Absent => value.is_none_or(Value::is_null),
            Self::Differs(test) => !Self::Absent.passes(value) && !test.passes(value),
            Self::Holds(wanted) => value.is_some_and(|value| holds(value, wanted)),
            Self::Compares(relation, bound) => {
                value.and_then(|value| beside(value, bound)).is_some_and(relation)
            }
            Self::At(relation, bound) => {
                let moment = value.and_then(Value::as_str).and_then(Moment::parse);
                moment.is_some_and(|moment| relation(moment.cmp(bound)))
            }
            Self::Contains(part) => value.is_some_and(|value| contains(value, part)),
            Self::ContainsFolded(part) => value.is_some_and(|value| contains_folded(value, part)),
        }
    }
}

/// Compares a value with another one.
fn beside(value: &Value, bound: &Value) -> Option<Ordering> {
    match (value, bound) {
        (Value::Number(number), Value::Number(bound)) => order(number, bound),
        (Value::String(text), Value::String(bound)) => Some(text.cmp(bound)),
        _ => None,
    }
}

/// Compares integers as integers, and as fractions only if one of them is a fraction.
fn order(one: &Number, other: &Number) -> Option<Ordering> {
    match (one.as_i128(), other.as_i128()) {
        (Some(one), Some(other)) => Some(one.cmp(&other)),
        _ => one.as_f64()?.partial_cmp(&other.as_f64()?),
    }
}

/// Returns `value @> wanted`. The depth of `wanted` limits the recursion.
fn holds(value: &Value, wanted: &Value) -> bool {
    match (value, wanted) {
        (Value::Object(value), Value::Object(wanted)) => {
            wanted.iter().all(|(name, wanted)| value.get(name).is_some_and(|value| holds(value, wanted)))
        }
        (Value::Array(value), Value::Array(wanted)) => {
            wanted.iter().all(|wanted| value.iter().any(|value| holds(value, wanted)))
        }
        (Value::Number(value), Value::Number(wanted)) => order(value, wanted) == Some(Ordering::Equal),
        _ => value == wanted,
    }
}

fn contains(value: &Value, part: &Value) -> bool {
    match (value, part) {
        (Value::String(value), Value::String(part)) => value.contains(part.as_str()),
        (Value::Array(_), Value::Array(_)) => holds(value, part),
        (Value::Array(value), part) => value.iter().any(|value| holds(value, part)),
        _ => holds(value, part),
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
