//! The filters of Honcho's list and search routes.
//!
//! A filter is parsed once (`filter/parse.rs`). An invalid filter is refused. A valid filter is applied to the JSON
//! form of every item.
//!
//! - All entries of a dict must match. `AND`, `OR` and `NOT` take a list of dicts. For `AND`, all of these dicts must
//!   match. For `OR`, at least one dict must match. For `NOT`, no dict may match. An empty `AND` or `NOT` matches
//!   everything. An empty `OR` or `in` matches nothing.
//! - A condition is a value, which must be equal, or a dict of operators: `gt`, `gte`, `lt`, `lte`, `ne`, `in`,
//!   `contains` and `icontains`. One dict may have several operators. `"*"` in place of a value matches anything, also
//!   a missing value.
//! - Numbers are compared as numbers, and texts by their bytes. Fields whose names end in `_at` are compared as
//!   timestamps. A number never equals a text.
//! - `metadata` and `configuration` contain JSON. They are matched as PostgreSQL's operator `@>` matches: the item's
//!   dict must contain every entry of the filter's dict, and the item's list must contain every element of the filter's
//!   list. All other values must be equal. Operators may be used at any depth. `contains` matches a part of a text, or
//!   an element of a list.
//! - A condition is either true or false. SQL also has a third result, unknown; filters do not. In general, a condition
//!   on a missing value or on `null` is false. So `ne` matches only if there is a value and this value is different.
//!   `NOT` inverts the result, and therefore also matches items without the value.

mod parse;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::iso_time::IsoTime;

/// A filter for the items of a list. Each item is a JSON object.
pub(super) type Filter = Condition;

/// The fields of one type of items.
#[derive(Debug, Clone, Copy)]
pub(super) struct FilterFields {
    /// The names that a filter may use.
    pub(super) allowed: &'static [&'static str],
    /// The allowed names that are aliases of `id`.
    pub(super) id_aliases: &'static [&'static str],
}

/// A condition on an item, or on a value inside an item. `parse` limits how deep conditions can be nested.
#[derive(Debug, Clone)]
pub(super) enum Condition {
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Box<Condition>),
    /// In a dict, the value under this name matches this condition. The dict is an item, or a value inside an item.
    Field(String, Box<Condition>),
    /// The value is missing, or `null`.
    Absent,
    /// The value exists, and this condition is false.
    Differs(Box<Condition>),
    /// The value equals the filter's value, or is a dict or list that contains the filter's value. [`includes`]
    /// decides.
    Includes(Value),
    /// The value has the same type as the filter's number or text, and has this relation to it.
    Compares(Relation, Value),
    /// The value is a timestamp, and has this relation to the filter's timestamp.
    Time(Relation, IsoTime),
    /// The value is a text that contains the filter's text, or a list that contains the filter's element.
    Contains(Value),
    /// Like `Contains`, but upper and lower case are equal. The filter's text is stored in lower case.
    ContainsFolded(String),
}

/// A function that returns whether an ordering matches, such as `Ordering::is_gt`.
type Relation = fn(Ordering) -> bool;

impl Condition {
    /// Returns whether an item matches.
    pub(super) fn matches(&self, item: &Value) -> bool {
        self.matches_value(Some(item))
    }

    /// Returns a condition that every value matches, also a missing value.
    fn anything() -> Self {
        Self::All(Vec::new())
    }

    /// Returns whether every value matches this condition. If so, items need not be converted to JSON.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::All(conditions) if conditions.is_empty())
    }

    /// Returns the condition that all these conditions are true. Leaves out conditions that every value matches.
    fn all(mut conditions: Vec<Self>) -> Self {
        conditions.retain(|condition| !condition.is_empty());
        if conditions.len() == 1 { conditions.remove(0) } else { Self::All(conditions) }
    }

    fn any(mut conditions: Vec<Self>) -> Self {
        if conditions.len() == 1 { conditions.remove(0) } else { Self::Any(conditions) }
    }

    /// Returns this condition, applied to the value under a name.
    fn of_field(self, name: &str) -> Self {
        if self.is_empty() { self } else { Self::Field(name.to_owned(), Box::new(self)) }
    }

    /// Returns the number of conditions that use a field. A route that cannot evaluate all conditions on the field can
    /// refuse the filter.
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

    /// Returns the text that a field must equal; `None` if no condition states this text directly. The caller can use
    /// the text to read items by an index, and must still apply the filter to these items.
    pub(super) fn must_equal(&self, field: &str) -> Option<&str> {
        match self {
            Self::All(conditions) => conditions.iter().find_map(|condition| condition.must_equal(field)),
            Self::Field(name, condition) if name == field => condition.text(),
            _ => None,
        }
    }

    /// Returns the only text that matches this condition; `None` if no condition states this text directly.
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

/// Compares two numbers or two texts. Returns `None` for values of other types.
fn compare(value: &Value, bound: &Value) -> Option<Ordering> {
    match (value, bound) {
        (Value::Number(number), Value::Number(bound)) => compare_numbers(number, bound),
        (Value::String(text), Value::String(bound)) => Some(text.cmp(bound)),
        _ => None,
    }
}

/// Compares two numbers: as integers if both are integers, otherwise as floating-point numbers.
fn compare_numbers(one: &Number, other: &Number) -> Option<Ordering> {
    match (one.as_i128(), other.as_i128()) {
        (Some(one), Some(other)) => Some(one.cmp(&other)),
        _ => one.as_f64()?.partial_cmp(&other.as_f64()?),
    }
}

/// Returns whether `value` contains `expected`, as PostgreSQL's `value @> expected` does. The depth of `expected`
/// limits the recursion.
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
