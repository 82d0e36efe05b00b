//! Computes the difference between a received wire message and its plain form.
//!
//! A message is stored once, in Epitome's form. Of the received JSON, only the difference to the form that
//! Epitome would write is stored with it: unknown fields, another key order, a string in place of a list.
//! [`diff`] computes it and [`apply`] restores the original, value for value and key for key.
//!
//! A long text that only moved to another position is stored as a reference, not again. This module does not
//! depend on dialects. [`apply`] validates its input: a difference that does not fit gives `None`.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

/// Minimum length in bytes of a string that is stored as a reference; a shorter one costs less as it is.
const SHARED: usize = 24;

/// Returns the edits that turn `plain` into `came`; `None` if they are the same, including key order.
pub(crate) fn diff(plain: &[Value], came: &[Value]) -> Option<Value> {
    let mut shared = Vec::new();
    plain.iter().for_each(|value| long_strings(value, &mut shared));
    let mut places = HashMap::new();
    for (place, text) in shared.into_iter().enumerate() {
        places.entry(text).or_insert(place);
    }
    items(plain, came, &places)
}

/// Returns `plain` with these edits applied.
pub(crate) fn apply(plain: &[Value], edit: &Value) -> Option<Vec<Value>> {
    let mut shared = Vec::new();
    plain.iter().for_each(|value| long_strings(value, &mut shared));
    match applied(&Value::Array(plain.to_vec()), edit, &shared)? {
        Value::Array(values) => Some(values),
        _ => None,
    }
}

/// Returns the nesting depth of a value.
pub(crate) fn depth(value: &Value) -> usize {
    let inner = match value {
        Value::Array(values) => values.iter().map(depth).max(),
        Value::Object(fields) => fields.values().map(depth).max(),
        _ => return 0,
    };
    inner.unwrap_or_default() + 1
}

fn long_strings<'a>(value: &'a Value, out: &mut Vec<&'a str>) {
    match value {
        Value::String(text) if text.len() >= SHARED => out.push(text),
        Value::Array(values) => values.iter().for_each(|value| long_strings(value, out)),
        Value::Object(fields) => fields.values().for_each(|value| long_strings(value, out)),
        _ => {}
    }
}

type Places<'a> = HashMap<&'a str, usize>;

fn edit(plain: &Value, came: &Value, places: &Places<'_>) -> Option<Value> {
    match (plain, came) {
        (Value::Object(plain), Value::Object(came)) => fields(plain, came, places),
        (Value::Array(plain), Value::Array(came)) => items(plain, came, places),
        // `1` and `1.0`, `0.0` and `-0.0` are equal but written differently.
        (Value::Number(plain), Value::Number(came)) if plain.to_string() == came.to_string() => None,
        (plain, came) if plain == came && !plain.is_number() => None,
        _ => Some(replaced(came, places)),
    }
}

fn items(plain: &[Value], came: &[Value], places: &Places<'_>) -> Option<Value> {
    if plain.len() != came.len() {
        return Some(json!({ "=": came.iter().map(|value| pointed(value, places)).collect::<Vec<_>>() }));
    }
    let edits = plain.iter().zip(came).enumerate();
    let edits = edits.filter_map(|(at, (plain, came))| Some((at.to_string(), edit(plain, came, places)?)));
    let edits: Map<String, Value> = edits.collect();
    (!edits.is_empty()).then(|| json!({ "items": edits }))
}

fn fields(plain: &Map<String, Value>, came: &Map<String, Value>, places: &Places<'_>) -> Option<Value> {
    let gone: Vec<&String> = plain.keys().filter(|key| !came.contains_key(*key)).collect();
    let mut edits = Map::new();
    for (key, value) in came {
        let found = match plain.get(key) {
            Some(plain) => edit(plain, value, places),
            None => Some(replaced(value, places)),
        };
        edits.extend(found.map(|found| (key.clone(), found)));
    }
    let stay = plain.keys().filter(|key| came.contains_key(*key));
    let new = came.keys().filter(|key| !plain.contains_key(*key));
    let in_order = stay.chain(new).eq(came.keys());
    let mut out = Map::new();
    if !gone.is_empty() {
        out.insert("gone".to_owned(), json!(gone));
    }
    if !in_order {
        out.insert("keys".to_owned(), json!(came.keys().collect::<Vec<_>>()));
    }
    if !edits.is_empty() {
        out.insert("edits".to_owned(), Value::Object(edits));
    }
    (!out.is_empty()).then_some(Value::Object(out))
}

fn replaced(value: &Value, places: &Places<'_>) -> Value {
    json!({ "=": pointed(value, places) })
}

/// Replaces every long string that also occurs in the plain form by `{"@": place}`. An object that has this
/// form itself is wrapped in `{"@@": …}`.
fn pointed(value: &Value, places: &Places<'_>) -> Value {
    match value {
        Value::String(text) => match places.get(text.as_str()) {
            Some(place) => json!({ "@": place }),
            None => value.clone(),
        },
        Value::Array(values) => values.iter().map(|value| pointed(value, places)).collect(),
        Value::Object(fields) => {
            let inner = fields.iter().map(|(key, value)| (key.clone(), pointed(value, places))).collect();
            if sole(fields).is_some() { json!({ "@@": Value::Object(inner) }) } else { Value::Object(inner) }
        }
        _ => value.clone(),
    }
}

/// Returns the only field of an object that is a reference, or looks like one.
fn sole(fields: &Map<String, Value>) -> Option<(&str, &Value)> {
    let mut fields = fields.iter();
    let (key, value) = fields.next()?;
    (fields.next().is_none() && matches!(key.as_str(), "@" | "@@")).then_some((key.as_str(), value))
}

fn found(value: &Value, shared: &[&str]) -> Option<Value> {
    match value {
        Value::Array(values) => values.iter().map(|value| found(value, shared)).collect(),
        Value::Object(fields) => {
            let fields = match sole(fields) {
                Some(("@", place)) => {
                    let place = usize::try_from(place.as_u64()?).ok()?;
                    return Some(Value::from(*shared.get(place)?));
                }
                Some((_, inner)) => inner.as_object()?,
                None => fields,
            };
            fields.iter().map(|(key, value)| Some((key.clone(), found(value, shared)?))).collect()
        }
        _ => Some(value.clone()),
    }
}

fn applied(plain: &Value, edit: &Value, shared: &[&str]) -> Option<Value> {
    let edit = edit.as_object()?;
    if let Some(value) = edit.get("=") {
        return found(value, shared);
    }
    match plain {
        Value::Array(plain) => {
            let mut out = plain.clone();
            for (at, edit) in edit.get("items")?.as_object()? {
                let place = out.get_mut(at.parse::<usize>().ok()?)?;
                *place = applied(place, edit, shared)?;
            }
            Some(Value::Array(out))
        }
        Value::Object(plain) => {
            let mut out = plain.clone();
            for key in list(edit, "gone")? {
                out.shift_remove(key.as_str()?);
            }
            for (key, edit) in edit.get("edits").map_or(Some(&Map::new()), Value::as_object)? {
                let value = applied(out.get(key).unwrap_or(&Value::Null), edit, shared)?;
                out.insert(key.clone(), value);
            }
            let mut ordered = Map::new();
            for key in list(edit, "keys")? {
                let key = key.as_str()?;
                ordered.extend(out.shift_remove(key).map(|value| (key.to_owned(), value)));
            }
            // Fields added since then come last.
            ordered.extend(out);
            Some(Value::Object(ordered))
        }
        _ => None,
    }
}

/// Returns the list under this key; empty if missing, `None` if it is not a list.
fn list<'a>(edit: &'a Map<String, Value>, key: &str) -> Option<&'a [Value]> {
    edit.get(key).map_or(Some(&[]), |found| found.as_array().map(Vec::as_slice))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json() -> impl Strategy<Value = Value> {
        let word =
            || prop::sample::select(vec!["a", "b", "@", "@@", "=", "a text that is long enough to share"]);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-2..2i64).prop_map(Value::from),
            prop::sample::select(vec![0.0, -0.0, 1.0, 0.1]).prop_map(Value::from),
            word().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, move |inner| {
            let keys =
                prop::sample::select(vec!["a", "b", "c", "@", "@@", "=", "gone", "keys", "edits", "items"]);
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((keys, inner), 0..4).prop_map(|fields| {
                    Value::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
                }),
            ]
        })
    }

    proptest! {
        #![proptest_config(epitome_testkit::budget::config(20_000))]

        #[test]
        fn what_came_is_given_back_with_its_order(
            plain in prop::collection::vec(json(), 0..3), came in prop::collection::vec(json(), 0..3),
        ) {
            let spelled = |values: &[Value]| serde_json::to_string(values).unwrap();
            match diff(&plain, &came) {
                None => prop_assert_eq!(spelled(&plain), spelled(&came)),
                Some(edit) => {
                    let restored = apply(&plain, &edit);
                    prop_assert_eq!(restored.map(|values| spelled(&values)), Some(spelled(&came)), "{}", edit);
                    prop_assert!(spelled(&plain) != spelled(&came), "a difference where there is none");
                }
            }
        }

        #[test]
        fn a_difference_that_does_not_fit_is_told(
            plain in prop::collection::vec(json(), 0..3), other in prop::collection::vec(json(), 0..3),
            came in prop::collection::vec(json(), 0..3), any in json(),
        ) {
            // It must only not panic: the caller validates the result.
            let _ = apply(&plain, &any);
            let _ = diff(&other, &came).and_then(|edit| apply(&plain, &edit));
        }
    }

    #[test]
    fn a_long_text_is_kept_once() {
        let text = "word ".repeat(20_000);
        let plain = [json!({ "role": "user", "content": text })];
        for came in [
            json!({ "role": "user", "content": text, "x": 1 }),
            json!({ "x": 1, "content": text, "role": "user" }),
            json!({ "role": "user", "content": [{ "type": "text", "text": text }, { "type": "new" }] }),
        ] {
            let edit = diff(&plain, std::slice::from_ref(&came)).unwrap();
            assert!(edit.to_string().len() < 120, "{edit}");
            assert_eq!(apply(&plain, &edit), Some(vec![came]));
        }
    }

    #[test]
    fn what_is_there_since_then_is_shown_too() {
        let came = [json!({ "x": 1, "role": "user" })];
        let edit = diff(&[json!({ "role": "user" })], &came).unwrap();
        let now = apply(&[json!({ "role": "user", "new": true })], &edit).unwrap();
        assert_eq!(serde_json::to_string(&now).unwrap(), r#"[{"x":1,"role":"user","new":true}]"#);
    }
}
