//! Which items of a list are wanted: the filters of Honcho's list and search routes.
//!
//! A filter is read once (`filter/read.rs`), refused where it is wrong, and then asked of every item. It knows nothing of
//! what an item is but its JSON.
//!
//! - The entries of a dict must all hold; `AND`, `OR` and `NOT` take lists of dicts: all, any, none of them. An empty
//!   `AND` or `NOT` keeps everything, an empty `OR` nothing, as an empty `in` does.
//! - A value is for equality; `gt`, `gte`, `lt`, `lte`, `ne`, `in`, `contains` and `icontains` compare, several at once
//!   where there are several. `"*"` is anything wherever one value is asked for, also something that is not there.
//! - Numbers compare as numbers, texts as their bytes, fields that end in `_at` as moments. A number is never a text.
//! - `metadata` and `configuration` hold JSON, and what is asked of them is asked as Postgres' `@>` would: a dict holds a
//!   dict that has less, a list holds a list whose elements it has, everything else is equal or not. At any depth there
//!   may be operators instead. `contains` finds a part of a text, or an element of a list.
//! - There are two answers, where SQL has three. Whatever is asked of a value that is not there, or `null`, is not so:
//!   `ne` keeps only what has another value. `NOT` turns that round, and keeps what has none too.

mod read;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::moment::Moment;

/// What is wanted of a list's items, each a JSON object with its fields.
pub(super) type Filter = Test;

/// The fields of a kind of items.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields {
    /// The names a filter may ask for.
    pub(super) known: &'static [&'static str],
    /// Those of them that are other names of `id`.
    pub(super) id: &'static [&'static str],
}

/// What is asked of an item, or of a value in it. Nowhere deeper than `read` allows.
#[derive(Debug, Clone)]
pub(super) enum Test {
    All(Vec<Test>),
    Any(Vec<Test>),
    Not(Box<Test>),
    /// Asked of what a dict has under this name: an item's field, or what is in one.
    Inside(String, Box<Test>),
    /// It is not there, or `null`.
    Absent,
    /// It is there, and this is not so of it.
    Differs(Box<Test>),
    /// It is this, or a dict or list that holds this.
    Holds(Value),
    /// It stands so to this number or text. A value of another kind is neither more nor less.
    Compares(Relation, Value),
    /// It is a moment, and stands so to this one.
    At(Relation, Moment),
    /// A text with this in it, or a list with this among its elements.
    Contains(Value),
    /// The same whatever the case; what is looked for is in small letters.
    ContainsFolded(String),
}

/// Which orders are so, such as `Ordering::is_gt`.
type Relation = fn(Ordering) -> bool;

impl Test {
    /// Whether an item is wanted.
    pub(super) fn keeps(&self, item: &Value) -> bool {
        self.passes(Some(item))
    }

    /// Passed by everything, also by nothing.
    fn anything() -> Self {
        Self::All(Vec::new())
    }

    /// Whether everything is kept, so that no item need be made for it.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::All(tests) if tests.is_empty())
    }

    /// All of them, without those that say nothing.
    fn all(mut tests: Vec<Self>) -> Self {
        tests.retain(|test| !test.is_empty());
        if tests.len() == 1 { tests.remove(0) } else { Self::All(tests) }
    }

    fn any(mut tests: Vec<Self>) -> Self {
        if tests.len() == 1 { tests.remove(0) } else { Self::Any(tests) }
    }

    /// Asked of what is under a name, where anything is asked.
    fn inside(self, name: &str) -> Self {
        if self.is_empty() { self } else { Self::Inside(name.to_owned(), Box::new(self)) }
    }

    /// How many conditions ask for a field: lets a caller refuse what it cannot answer.
    pub(super) fn mentions(&self, field: &str) -> usize {
        match self {
            Self::All(tests) | Self::Any(tests) => tests.iter().map(|test| test.mentions(field)).sum(),
            Self::Not(test) => test.mentions(field),
            Self::Inside(name, _) => usize::from(name == field),
            _ => 0,
        }
    }

    /// The one text a field must equal, where that is plain: lets a caller read by an index. What is read so must still be
    /// asked of the filter.
    pub(super) fn must_equal(&self, field: &str) -> Option<&str> {
        match self {
            Self::All(tests) => tests.iter().find_map(|test| test.must_equal(field)),
            Self::Inside(name, test) if name == field => test.text(),
            _ => None,
        }
    }

    /// The text that it is passed by alone.
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

/// How a value stands to another one.
fn beside(value: &Value, bound: &Value) -> Option<Ordering> {
    match (value, bound) {
        (Value::Number(number), Value::Number(bound)) => order(number, bound),
        (Value::String(text), Value::String(bound)) => Some(text.cmp(bound)),
        _ => None,
    }
}

/// Whole numbers are compared whole, and as fractions only where one of them is a fraction.
fn order(one: &Number, other: &Number) -> Option<Ordering> {
    match (one.as_i128(), other.as_i128()) {
        (Some(one), Some(other)) => Some(one.cmp(&other)),
        _ => one.as_f64()?.partial_cmp(&other.as_f64()?),
    }
}

/// `value @> wanted`. The depth is that of `wanted`, which is bounded.
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
