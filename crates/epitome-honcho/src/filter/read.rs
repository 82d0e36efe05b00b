//! Parses JSON into a tree of conditions. Invalid filters are refused here, by name, so that applying a filter cannot
//! fail.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::{Fields, Relation, Test};
use crate::check::clipped;
use crate::moment::Moment;

/// Maximum depth of nested dicts: deeper than real filters, and small enough for the stack.
const DEEPEST: usize = 16;

/// Maximum number of values in a filter, each of which may be compared with every item.
const MOST: usize = 1_000;

/// Maximum number of searches within texts, which take far longer than comparisons.
const TEXTS: usize = 32;

/// Maximum number of characters of an unknown name that an error repeats.
const LONGEST_NAME: usize = 64;

/// Fields that contain JSON of the caller.
const JSON: [&str; 2] = ["metadata", "configuration"];

const OPERATORS: [&str; 8] = ["gt", "gte", "lt", "lte", "ne", "in", "contains", "icontains"];

/// The type of a field, which determines the conditions it may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Moment,
    Json,
}

impl Test {
    /// Parses a filter for items with these fields. If it is invalid, returns a message that says what is wrong and
    /// where. `null` and `{}` are the filter that matches everything.
    pub(in super::super) fn read(filters: &Value, fields: Fields) -> Result<Self, String> {
        let mut texts = 0;
        measure(filters, 1, &mut MOST.clone(), &mut texts)?;
        if texts > TEXTS {
            return Err(format!("filters contain more than {TEXTS} times `contains` or `icontains`"));
        }
        match filters {
            Value::Null => Ok(Self::anything()),
            Value::Object(entries) => node(entries, fields),
            _ => Err("filters must be a dict of conditions, or null".to_owned()),
        }
    }
}

/// Refuses a filter that is too deep or too large, before anything is built from it. Its own recursion is limited: a
/// list in a dict is not a level of its own, but what the list contains is. Counts the searches within texts.
fn measure(value: &Value, depth: usize, left: &mut usize, texts: &mut usize) -> Result<(), String> {
    if depth > DEEPEST {
        return Err(format!("filters are nested more than {DEEPEST} levels deep"));
    }
    match value {
        Value::Object(entries) if !entries.is_empty() => entries.iter().try_for_each(|(name, value)| {
            *texts += usize::from(matches!(name.as_str(), "contains" | "icontains"));
            measure(value, depth + usize::from(value.is_object()), left, texts)
        }),
        Value::Array(values) if !values.is_empty() => values.iter().try_for_each(|value| {
            measure(value, depth + usize::from(value.is_object() || value.is_array()), left, texts)
        }),
        _ => match left.checked_sub(1) {
            Some(fewer) => {
                *left = fewer;
                Ok(())
            }
            None => {
                Err(format!("filters have more than {MOST} conditions; each value of a list counts as one"))
            }
        },
    }
}

fn node(entries: &Map<String, Value>, fields: Fields) -> Result<Test, String> {
    let read = |(name, value): (&String, &Value)| match name.as_str() {
        "AND" => nodes(name, value, fields).map(Test::all),
        "OR" => nodes(name, value, fields).map(Test::any),
        "NOT" => nodes(name, value, fields).map(|nodes| {
            if nodes.is_empty() { Test::anything() } else { Test::Not(Box::new(Test::any(nodes))) }
        }),
        _ => field(name, value, fields),
    };
    entries.iter().map(read).collect::<Result<_, _>>().map(Test::all)
}

/// Reads the list under `AND`, `OR` or `NOT`.
fn nodes(name: &str, value: &Value, fields: Fields) -> Result<Vec<Test>, String> {
    let wrong = || format!("`{name}` takes a list of dicts, each a filter of its own");
    let list = value.as_array().ok_or_else(wrong)?;
    list.iter().map(|value| node(value.as_object().ok_or_else(wrong)?, fields)).collect()
}

fn field(name: &str, value: &Value, fields: Fields) -> Result<Test, String> {
    if !fields.known.contains(&name) {
        return Err(format!(
            "unknown field `{}`; allowed are {}, and AND, OR, NOT",
            clipped(name, LONGEST_NAME),
            fields.known.join(", ")
        ));
    }
    let kind = match name {
        _ if JSON.contains(&name) => Kind::Json,
        _ if name.ends_with("_at") => Kind::Moment,
        _ => Kind::Plain,
    };
    if kind == Kind::Json && !value.is_object() && !wild(value) {
        return Err(format!("`{name}` takes a dict of what it must contain"));
    }
    let test = test(name, value, kind)?;
    Ok(test.inside(if fields.id.contains(&name) { "id" } else { name }))
}

/// Reads the condition at one location. `place` is the path from the field down, for error messages.
fn test(place: &str, value: &Value, kind: Kind) -> Result<Test, String> {
    let Value::Object(entries) = value else { return plain(place, value, kind) };
    let operators = entries.keys().filter(|name| OPERATORS.contains(&name.as_str())).count();
    if kind == Kind::Json && operators == 0 {
        if entries.is_empty() {
            return Ok(Test::Holds(value.clone()));
        }
        let inside = |(name, value): (&String, &Value)| {
            let test = test(&format!("{place}.{}", clipped(name, LONGEST_NAME)), value, kind)?;
            Ok::<_, String>(test.inside(name))
        };
        return entries.iter().map(inside).collect::<Result<_, _>>().map(Test::all);
    }
    if entries.is_empty() {
        return Err(format!("`{place}` takes a value, or a dict of operators; this one is empty"));
    }
    let compared = |(name, value): (&String, &Value)| operator(place, name, value, kind);
    entries.iter().map(compared).collect::<Result<_, _>>().map(Test::all)
}

fn operator(place: &str, name: &str, value: &Value, kind: Kind) -> Result<Test, String> {
    let compares = |relation: Relation| match (kind, value) {
        (Kind::Moment, value) => Ok(Test::At(relation, moment(place, value)?)),
        (_, Value::Number(_) | Value::String(_)) => Ok(Test::Compares(relation, value.clone())),
        _ => Err(format!("`{name}` at `{place}` takes a number or a text")),
    };
    match name {
        _ if !OPERATORS.contains(&name) => Err(format!(
            "unknown operator `{}` at `{place}`; allowed are {}",
            clipped(name, LONGEST_NAME),
            OPERATORS.join(", ")
        )),
        _ if wild(value) => Ok(Test::anything()),
        "gt" => compares(Ordering::is_gt),
        "gte" => compares(Ordering::is_ge),
        "lt" => compares(Ordering::is_lt),
        "lte" => compares(Ordering::is_le),
        "ne" => plain(place, value, kind).map(|test| Test::Differs(Box::new(test))),
        "in" => {
            let list = value.as_array().ok_or_else(|| format!("`in` at `{place}` takes a list of values"))?;
            let tests: Vec<Test> =
                list.iter().map(|value| plain(place, value, kind)).collect::<Result<_, _>>()?;
            Ok(if tests.iter().any(Test::is_empty) { Test::anything() } else { Test::any(tests) })
        }
        _ if kind == Kind::Moment => {
            Err(format!("`{name}` is not for times: `{place}` takes gt, gte, lt, lte, ne and in"))
        }
        "contains" if !value.is_null() => Ok(Test::Contains(value.clone())),
        "contains" => Err(format!("`contains` at `{place}` takes a text, or an element to look for")),
        // The remaining operator is `icontains`.
        _ => match value {
            Value::String(text) => Ok(Test::ContainsFolded(text.to_lowercase())),
            _ => Err(format!("`{name}` at `{place}` takes a text")),
        },
    }
}

/// Reads a value that must be equal. Names of a dict in it are never operators.
fn plain(place: &str, value: &Value, kind: Kind) -> Result<Test, String> {
    match (kind, value) {
        _ if wild(value) => Ok(Test::anything()),
        (Kind::Json, value) => Ok(Test::Holds(value.clone())),
        (_, Value::Null) => Ok(Test::Absent),
        (_, Value::Array(_) | Value::Object(_)) => {
            Err(format!("`{place}` takes one value; for one of several, use the operator `in`"))
        }
        (Kind::Moment, value) => Ok(Test::At(Ordering::is_eq, moment(place, value)?)),
        (Kind::Plain, value) => Ok(Test::Holds(value.clone())),
    }
}

fn moment(place: &str, value: &Value) -> Result<Moment, String> {
    let wrong = || format!("`{place}` takes a time in ISO 8601, such as 2026-03-14T10:22:05Z");
    value.as_str().and_then(Moment::parse).ok_or_else(wrong)
}

fn wild(value: &Value) -> bool {
    value.as_str() == Some("*")
}
