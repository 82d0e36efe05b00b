//! Which items of a list are wanted: the filters of Honcho's list and search routes.
//!
//! A filter is read once (`filter/read.rs`), refused where it is wrong, and then asked of every item. It knows nothing of
//! what an item is: it asks for a field by its name.
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

use std::borrow::Cow;
use std::cell::OnceCell;
use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::moment::Moment;

/// What is wanted of a list's items.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Filter {
    node: Node,
    /// The fields it asks for, each once.
    fields: Vec<String>,
}

/// A tree of conditions on fields. Nowhere deeper than `read` allows.
#[derive(Debug, Clone, PartialEq)]
enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    Not(Box<Node>),
    Field(String, Test),
}

/// What is asked of one value.
#[derive(Debug, Clone, PartialEq)]
enum Test {
    All(Vec<Test>),
    Any(Vec<Test>),
    /// Asked of what a dict has under this name.
    Inside(String, Box<Test>),
    /// It is not there, or `null`.
    Absent,
    /// It is there, and this is not so of it.
    Differs(Box<Test>),
    /// It is this, or a dict or list that holds this.
    Holds(Value),
    Compares(Relation, Bound),
    /// A text with this in it, or a list with this among its elements.
    Contains(Value),
    /// The same whatever the case; what is looked for is in small letters.
    ContainsFolded(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    Equal,
}

/// What a value is compared with. A value of another kind is neither more nor less.
#[derive(Debug, Clone, PartialEq)]
enum Bound {
    Moment(Moment),
    Number(Number),
    Text(String),
}

impl Filter {
    /// Reads a filter for items with these fields; a sentence that says what is wrong, and where, otherwise. `null` and
    /// `{}` are the filter that keeps everything.
    pub(super) fn read(filters: &Value, known: &[&str]) -> Result<Self, String> {
        let node = read::filter(filters, known)?;
        let mut fields = Vec::new();
        node.fields(&mut fields);
        Ok(Self { node, fields })
    }

    /// Whether an item is wanted. `field` gives what the item has under one of the names known, and is asked for it once at
    /// most: a thousand conditions may look at the same text, and none of them needs its own.
    pub(super) fn keeps<'a>(&self, field: impl Fn(&str) -> Option<Cow<'a, Value>>) -> bool {
        let made: Vec<_> = self.fields.iter().map(|name| (name, OnceCell::new())).collect();
        self.node.keeps(&|name| {
            let (_, made) = made.iter().find(|(known, _)| *known == name)?;
            made.get_or_init(|| field(name)).as_deref()
        })
    }

    /// Whether everything is kept, so that nobody need be asked.
    pub(super) fn is_empty(&self) -> bool {
        self.node.is_empty()
    }

    /// The one text a field must equal, where that is plain: lets a caller read by an index. What is read so must still be
    /// asked of the filter.
    pub(super) fn must_equal(&self, field: &str) -> Option<&str> {
        self.node.must_equal(field)
    }

    /// How many conditions ask for a field: lets a caller refuse what it cannot answer.
    pub(super) fn mentions(&self, field: &str) -> usize {
        self.node.mentions(field)
    }
}

impl Node {
    /// All of them, without those that say nothing.
    fn all(mut nodes: Vec<Self>) -> Self {
        nodes.retain(|node| !node.is_empty());
        if nodes.len() == 1 { nodes.remove(0) } else { Self::All(nodes) }
    }

    fn any(mut nodes: Vec<Self>) -> Self {
        if nodes.len() == 1 { nodes.remove(0) } else { Self::Any(nodes) }
    }

    fn is_empty(&self) -> bool {
        matches!(self, Self::All(nodes) if nodes.is_empty())
    }

    /// The names of the fields that are asked for, each once.
    fn fields(&self, all: &mut Vec<String>) {
        match self {
            Self::All(nodes) | Self::Any(nodes) => nodes.iter().for_each(|node| node.fields(all)),
            Self::Not(node) => node.fields(all),
            Self::Field(name, _) if all.contains(name) => {}
            Self::Field(name, _) => all.push(name.clone()),
        }
    }

    fn keeps<'v>(&self, field: &dyn Fn(&str) -> Option<&'v Value>) -> bool {
        match self {
            Self::All(nodes) => nodes.iter().all(|node| node.keeps(field)),
            Self::Any(nodes) => nodes.iter().any(|node| node.keeps(field)),
            Self::Not(node) => !node.keeps(field),
            Self::Field(name, test) => test.passes(field(name)),
        }
    }

    fn mentions(&self, field: &str) -> usize {
        match self {
            Self::All(nodes) | Self::Any(nodes) => nodes.iter().map(|node| node.mentions(field)).sum(),
            Self::Not(node) => node.mentions(field),
            Self::Field(name, _) => usize::from(name == field),
        }
    }

    fn must_equal(&self, field: &str) -> Option<&str> {
        match self {
            Self::All(nodes) => nodes.iter().find_map(|node| node.must_equal(field)),
            Self::Field(name, test) if name == field => test.must_equal(),
            _ => None,
        }
    }
}

impl Test {
    /// Passed by everything, also by nothing.
    fn anything() -> Self {
        Self::All(Vec::new())
    }

    fn is_anything(&self) -> bool {
        matches!(self, Self::All(tests) if tests.is_empty())
    }

    fn all(mut tests: Vec<Self>) -> Self {
        tests.retain(|test| !test.is_anything());
        if tests.len() == 1 { tests.remove(0) } else { Self::All(tests) }
    }

    fn any(mut tests: Vec<Self>) -> Self {
        match tests.len() {
            1 => tests.remove(0),
            _ if tests.iter().any(Self::is_anything) => Self::anything(),
            _ => Self::Any(tests),
        }
    }

    fn passes(&self, value: Option<&Value>) -> bool {
        match self {
            Self::All(tests) => tests.iter().all(|test| test.passes(value)),
            Self::Any(tests) => tests.iter().any(|test| test.passes(value)),
            Self::Inside(name, test) => test.passes(value.and_then(|value| value.get(name))),
            Self::Absent => value.is_none_or(Value::is_null),
            Self::Differs(test) => !Self::Absent.passes(value) && !test.passes(value),
            Self::Holds(wanted) => value.is_some_and(|value| holds(value, wanted)),
            Self::Compares(relation, bound) => {
                value.and_then(|value| bound.beside(value)).is_some_and(|order| relation.allows(order))
            }
            Self::Contains(part) => value.is_some_and(|value| contains(value, part)),
            Self::ContainsFolded(part) => value.is_some_and(|value| contains_folded(value, part)),
        }
    }

    fn must_equal(&self) -> Option<&str> {
        match self {
            Self::Holds(Value::String(text)) => Some(text),
            Self::All(tests) => tests.iter().find_map(Self::must_equal),
            _ => None,
        }
    }
}

impl Relation {
    fn allows(self, order: Ordering) -> bool {
        match self {
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Equal => order.is_eq(),
        }
    }
}

impl Bound {
    /// How a value stands to it.
    fn beside(&self, value: &Value) -> Option<Ordering> {
        match (self, value) {
            (Self::Moment(bound), Value::String(text)) => Moment::parse(text).map(|moment| moment.cmp(bound)),
            (Self::Number(bound), Value::Number(number)) => order(number, bound),
            (Self::Text(bound), Value::String(text)) => Some(text.as_str().cmp(bound)),
            _ => None,
        }
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
