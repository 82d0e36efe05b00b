//! Parses a filter from JSON into a tree of conditions. Refuses an invalid filter with an error that names the invalid
//! part. So applying a parsed filter cannot fail.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::{Condition, FilterFields, Relation};
use crate::iso_time::IsoTime;
use crate::validate::clipped;

/// Maximum depth of nested dicts. Real filters are less deep, and this depth is small enough for the stack.
const MAX_DEPTH: usize = 16;

/// Maximum number of values in a filter. Each value may be compared with every item.
const MAX_VALUES: usize = 1_000;

/// Maximum number of operators `contains` and `icontains` in a filter. These operators search within texts, which takes
/// far longer than a comparison.
const MAX_TEXT_SEARCHES: usize = 32;

/// Maximum number of characters of an unknown name that an error repeats.
const MAX_NAME_CHARS: usize = 64;

/// Fields that contain any JSON that the caller has stored.
const JSON_FIELDS: [&str; 2] = ["metadata", "configuration"];

const OPERATORS: [&str; 8] = ["gt", "gte", "lt", "lte", "ne", "in", "contains", "icontains"];

/// The type of a field. The type determines which conditions are valid for the field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldType {
    Plain,
    Time,
    Json,
}

impl Condition {
    /// Parses a filter for items with these fields. `null` and `{}` match everything. If the filter is invalid, returns
    /// an error text that names what is wrong and where.
    pub(in super::super) fn parse(filters: &Value, fields: FilterFields) -> Result<Self, String> {
        let mut texts = 0;
        check_size(filters, 1, &mut MAX_VALUES.clone(), &mut texts)?;
        if texts > MAX_TEXT_SEARCHES {
            return Err(format!(
                "filters use `contains` and `icontains` more than {MAX_TEXT_SEARCHES} times; use fewer"
            ));
        }
        match filters {
            Value::Null => Ok(Self::anything()),
            Value::Object(entries) => parse_dict(entries, fields),
            _ => Err("filters must be a dict of conditions, or null".to_owned()),
        }
    }
}

/// Refuses a filter that is too deep or has too many values, before any condition is built from the filter. Adds the
/// number of searches within texts to `texts`. The limit on depth also limits the recursion of this function.
///
/// A list that is an entry of a dict does not count as a level, but dicts and lists inside this list do.
fn check_size(value: &Value, depth: usize, left: &mut usize, texts: &mut usize) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err(format!("filters are nested deeper than {MAX_DEPTH} levels; use fewer levels"));
    }
    match value {
        Value::Object(entries) if !entries.is_empty() => entries.iter().try_for_each(|(name, value)| {
            *texts += usize::from(matches!(name.as_str(), "contains" | "icontains"));
            check_size(value, depth + usize::from(value.is_object()), left, texts)
        }),
        Value::Array(values) if !values.is_empty() => values.iter().try_for_each(|value| {
            check_size(value, depth + usize::from(value.is_object() || value.is_array()), left, texts)
        }),
        _ => match left.checked_sub(1) {
            Some(fewer) => {
                *left = fewer;
                Ok(())
            }
            None => Err(format!(
                "filters have more than {MAX_VALUES} conditions (each value of a list counts as one); use fewer"
            )),
        },
    }
}

fn parse_dict(entries: &Map<String, Value>, fields: FilterFields) -> Result<Condition, String> {
    let parse = |(name, value): (&String, &Value)| match name.as_str() {
        "AND" => parse_list(name, value, fields).map(Condition::all),
        "OR" => parse_list(name, value, fields).map(Condition::any),
        "NOT" => parse_list(name, value, fields).map(|nodes| {
            if nodes.is_empty() {
                Condition::anything()
            } else {
                Condition::Not(Box::new(Condition::any(nodes)))
            }
        }),
        _ => parse_field(name, value, fields),
    };
    entries.iter().map(parse).collect::<Result<_, _>>().map(Condition::all)
}

/// Reads the list under `AND`, `OR` or `NOT`.
fn parse_list(name: &str, value: &Value, fields: FilterFields) -> Result<Vec<Condition>, String> {
    let wrong = || format!("`{name}` takes a list of dicts, and each dict is a filter");
    let list = value.as_array().ok_or_else(wrong)?;
    list.iter().map(|value| parse_dict(value.as_object().ok_or_else(wrong)?, fields)).collect()
}

fn parse_field(name: &str, value: &Value, fields: FilterFields) -> Result<Condition, String> {
    if !fields.allowed.contains(&name) {
        return Err(format!(
            "unknown field `{}`; allowed are {}, and AND, OR, NOT",
            clipped(name, MAX_NAME_CHARS),
            fields.allowed.join(", ")
        ));
    }
    let field_type = match name {
        _ if JSON_FIELDS.contains(&name) => FieldType::Json,
        _ if name.ends_with("_at") => FieldType::Time,
        _ => FieldType::Plain,
    };
    if field_type == FieldType::Json && !value.is_object() && !is_wildcard(value) {
        return Err(format!("`{name}` takes a dict of the entries that it must contain"));
    }
    let condition = parse_condition(name, value, field_type)?;
    Ok(condition.of_field(if fields.id_aliases.contains(&name) { "id" } else { name }))
}

/// Parses the condition on one value. `path` is the path from the field down to this value, for error messages.
fn parse_condition(path: &str, value: &Value, field_type: FieldType) -> Result<Condition, String> {
    let Value::Object(entries) = value else { return parse_equality(path, value, field_type) };
    let operators = entries.keys().filter(|name| OPERATORS.contains(&name.as_str())).count();
    if field_type == FieldType::Json && operators == 0 {
        if entries.is_empty() {
            return Ok(Condition::Includes(value.clone()));
        }
        let entry = |(name, value): (&String, &Value)| {
            let condition =
                parse_condition(&format!("{path}.{}", clipped(name, MAX_NAME_CHARS)), value, field_type)?;
            Ok::<_, String>(condition.of_field(name))
        };
        return entries.iter().map(entry).collect::<Result<_, _>>().map(Condition::all);
    }
    if entries.is_empty() {
        return Err(format!("`{path}` takes a value, or a dict of operators; this dict is empty"));
    }
    let operator = |(name, value): (&String, &Value)| parse_operator(path, name, value, field_type);
    entries.iter().map(operator).collect::<Result<_, _>>().map(Condition::all)
}

fn parse_operator(path: &str, name: &str, value: &Value, field_type: FieldType) -> Result<Condition, String> {
    let compares = |relation: Relation| match (field_type, value) {
        (FieldType::Time, value) => Ok(Condition::Time(relation, parse_time(path, value)?)),
        (_, Value::Number(_) | Value::String(_)) => Ok(Condition::Compares(relation, value.clone())),
        _ => Err(format!("`{name}` at `{path}` takes a number or a text")),
    };
    match name {
        _ if !OPERATORS.contains(&name) => Err(format!(
            "unknown operator `{}` at `{path}`; allowed are {}",
            clipped(name, MAX_NAME_CHARS),
            OPERATORS.join(", ")
        )),
        _ if is_wildcard(value) => Ok(Condition::anything()),
        "gt" => compares(Ordering::is_gt),
        "gte" => compares(Ordering::is_ge),
        "lt" => compares(Ordering::is_lt),
        "lte" => compares(Ordering::is_le),
        "ne" => {
            parse_equality(path, value, field_type).map(|condition| Condition::Differs(Box::new(condition)))
        }
        "in" => {
            let list = value.as_array().ok_or_else(|| format!("`in` at `{path}` takes a list of values"))?;
            let conditions: Vec<Condition> =
                list.iter().map(|value| parse_equality(path, value, field_type)).collect::<Result<_, _>>()?;
            Ok(if conditions.iter().any(Condition::is_empty) {
                Condition::anything()
            } else {
                Condition::any(conditions)
            })
        }
        _ if field_type == FieldType::Time => {
            Err(format!("`{name}` is not for times: `{path}` takes gt, gte, lt, lte, ne and in"))
        }
        "contains" if !value.is_null() => Ok(Condition::Contains(value.clone())),
        "contains" => Err(format!("`contains` at `{path}` takes a text, or an element to look for")),
        // The remaining operator is `icontains`.
        _ => match value {
            Value::String(text) => Ok(Condition::ContainsFolded(text.to_lowercase())),
            _ => Err(format!("`{name}` at `{path}` takes a text")),
        },
    }
}

/// Parses a value that must be equal. If this value contains dicts, their names are never operators.
fn parse_equality(path: &str, value: &Value, field_type: FieldType) -> Result<Condition, String> {
    match (field_type, value) {
        _ if is_wildcard(value) => Ok(Condition::anything()),
        (FieldType::Json, value) => Ok(Condition::Includes(value.clone())),
        (_, Value::Null) => Ok(Condition::Absent),
        (_, Value::Array(_) | Value::Object(_)) => {
            Err(format!("`{path}` takes one value; for one of several, use the operator `in`"))
        }
        (FieldType::Time, value) => Ok(Condition::Time(Ordering::is_eq, parse_time(path, value)?)),
        (FieldType::Plain, value) => Ok(Condition::Includes(value.clone())),
    }
}

fn parse_time(path: &str, value: &Value) -> Result<IsoTime, String> {
    let wrong = || format!("`{path}` takes a time in ISO 8601, such as 2026-03-14T10:22:05Z");
    value.as_str().and_then(IsoTime::parse).ok_or_else(wrong)
}

fn is_wildcard(value: &Value) -> bool {
    value.as_str() == Some("*")
}
