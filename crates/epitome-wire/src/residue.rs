//! Computes the difference between a received wire message and its encoded form.
//!
//! A message is stored once, in Epitome's form. The received JSON may differ from the JSON that Epitome would
//! encode: it may contain unknown fields, another order of the keys, or a string in place of a list. This
//! difference is the residue, and only the residue is stored with the message. [`diff`] computes the residue.
//! [`apply`] restores the received JSON, with the same values and the same order of the keys.
//!
//! If a long text of the residue also occurs in the encoded form, the residue contains a reference to that
//! text. This module does not depend on dialects. [`apply`] validates the residue, and returns `None` if the
//! residue does not fit the encoded form.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

/// Minimum length in bytes of a string that is stored as a reference. A shorter string takes less space than
/// its reference.
const MIN_SHARED: usize = 24;

/// Returns the edits that turn `encoded` into `received`. `None` if both are equal, including the order of the
/// keys.
pub(crate) fn diff(encoded: &[Value], received: &[Value]) -> Option<Value> {
    let mut shared = Vec::new();
    encoded.iter().for_each(|value| long_strings(value, &mut shared));
    let mut positions = HashMap::new();
    for (position, text) in shared.into_iter().enumerate() {
        positions.entry(text).or_insert(position);
    }
    diff_items(encoded, received, &positions)
}

/// Returns `encoded` with these edits applied. `None` if the edits do not fit.
pub(crate) fn apply(encoded: &[Value], edit: &Value) -> Option<Vec<Value>> {
    let mut shared = Vec::new();
    encoded.iter().for_each(|value| long_strings(value, &mut shared));
    match apply_value(&Value::Array(encoded.to_vec()), edit, &shared)? {
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
        Value::String(text) if text.len() >= MIN_SHARED => out.push(text),
        Value::Array(values) => values.iter().for_each(|value| long_strings(value, out)),
        Value::Object(fields) => fields.values().for_each(|value| long_strings(value, out)),
        _ => {}
    }
}

/// Maps each long string of the encoded form to its position in the list of these strings.
type SharedStrings<'a> = HashMap<&'a str, usize>;

fn diff_value(encoded: &Value, received: &Value, shared: &SharedStrings<'_>) -> Option<Value> {
    match (encoded, received) {
        (Value::Object(encoded), Value::Object(received)) => diff_fields(encoded, received, shared),
        (Value::Array(encoded), Value::Array(received)) => diff_items(encoded, received, shared),
        // Two numbers may be equal but written differently: `1` and `1.0`, or `0.0` and `-0.0`.
        (Value::Number(encoded), Value::Number(received)) if encoded.to_string() == received.to_string() => {
            None
        }
        (encoded, received) if encoded == received && !encoded.is_number() => None,
        _ => Some(replacement(received, shared)),
    }
}

fn diff_items(encoded: &[Value], received: &[Value], shared: &SharedStrings<'_>) -> Option<Value> {
    if encoded.len() != received.len() {
        return Some(
            json!({ "=": received.iter().map(|value| with_references(value, shared)).collect::<Vec<_>>() }),
        );
    }
    let edits = encoded.iter().zip(received).enumerate();
    let edits = edits.filter_map(|(at, (encoded, received))| {
        Some((at.to_string(), diff_value(encoded, received, shared)?))
    });
    let edits: Map<String, Value> = edits.collect();
    (!edits.is_empty()).then(|| json!({ "items": edits }))
}

fn diff_fields(
    encoded: &Map<String, Value>,
    received: &Map<String, Value>,
    shared: &SharedStrings<'_>,
) -> Option<Value> {
    let removed: Vec<&String> = encoded.keys().filter(|key| !received.contains_key(*key)).collect();
    let mut edits = Map::new();
    for (key, value) in received {
        let found = match encoded.get(key) {
            Some(encoded) => diff_value(encoded, value, shared),
            None => Some(replacement(value, shared)),
        };
        edits.extend(found.map(|found| (key.clone(), found)));
    }
    let stay = encoded.keys().filter(|key| received.contains_key(*key));
    let new = received.keys().filter(|key| !encoded.contains_key(*key));
    let in_order = stay.chain(new).eq(received.keys());
    let mut out = Map::new();
    if !removed.is_empty() {
        out.insert("gone".to_owned(), json!(removed));
    }
    if !in_order {
        out.insert("keys".to_owned(), json!(received.keys().collect::<Vec<_>>()));
    }
    if !edits.is_empty() {
        out.insert("edits".to_owned(), Value::Object(edits));
    }
    (!out.is_empty()).then_some(Value::Object(out))
}

fn replacement(value: &Value, shared: &SharedStrings<'_>) -> Value {
    json!({ "=": with_references(value, shared) })
}

/// Replaces every long string that also occurs in the encoded form with the reference `{"@": position}`. A
/// received object that looks like a reference is wrapped in `{"@@": …}`.
fn with_references(value: &Value, shared: &SharedStrings<'_>) -> Value {
    match value {
        Value::String(text) => match shared.get(text.as_str()) {
            Some(position) => json!({ "@": position }),
            None => value.clone(),
        },
        Value::Array(values) => values.iter().map(|value| with_references(value, shared)).collect(),
        Value::Object(fields) => {
            let inner =
                fields.iter().map(|(key, value)| (key.clone(), with_references(value, shared))).collect();
            if reference_key(fields).is_some() {
                json!({ "@@": Value::Object(inner) })
            } else {
                Value::Object(inner)
            }
        }
        _ => value.clone(),
    }
}

/// Returns the field of an object whose only field is `@` or `@@`. Such an object is a reference or looks like
/// a reference. `None` for other objects.
fn reference_key(fields: &Map<String, Value>) -> Option<(&str, &Value)> {
    let mut fields = fields.iter();
    let (key, value) = fields.next()?;
    (fields.next().is_none() && matches!(key.as_str(), "@" | "@@")).then_some((key.as_str(), value))
}

fn without_references(value: &Value, shared: &[&str]) -> Option<Value> {
    match value {
        Value::Array(values) => values.iter().map(|value| without_references(value, shared)).collect(),
        Value::Object(fields) => {
            let fields = match reference_key(fields) {
                Some(("@", position)) => {
                    let position = usize::try_from(position.as_u64()?).ok()?;
                    return Some(Value::from(*shared.get(position)?));
                }
                Some((_, inner)) => inner.as_object()?,
                None => fields,
            };
            fields
                .iter()
                .map(|(key, value)| Some((key.clone(), without_references(value, shared)?)))
                .collect()
        }
        _ => Some(value.clone()),
    }
}

fn apply_value(encoded: &Value, edit: &Value, shared: &[&str]) -> Option<Value> {
    let edit = edit.as_object()?;
    if let Some(value) = edit.get("=") {
        return without_references(value, shared);
    }
    match encoded {
        Value::Array(encoded) => {
            let mut out = encoded.clone();
            for (at, edit) in edit.get("items")?.as_object()? {
                let item = out.get_mut(at.parse::<usize>().ok()?)?;
                *item = apply_value(item, edit, shared)?;
            }
            Some(Value::Array(out))
        }
        Value::Object(encoded) => {
            let mut out = encoded.clone();
            for key in list(edit, "gone")? {
                out.shift_remove(key.as_str()?);
            }
            for (key, edit) in edit.get("edits").map_or(Some(&Map::new()), Value::as_object)? {
                let value = apply_value(out.get(key).unwrap_or(&Value::Null), edit, shared)?;
                out.insert(key.clone(), value);
            }
            let mut ordered = Map::new();
            for key in list(edit, "keys")? {
                let key = key.as_str()?;
                ordered.extend(out.shift_remove(key).map(|value| (key.to_owned(), value)));
            }
            // Fields that were added after the difference was computed come last.
            ordered.extend(out);
            Some(Value::Object(ordered))
        }
        _ => None,
    }
}

/// Returns the list under this key. The list is empty if the key is missing. `None` if the value is not a list.
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
        fn the_received_json_is_restored_with_its_key_order(
            plain in prop::collection::vec(json(), 0..3), came in prop::collection::vec(json(), 0..3),
        ) {
            let encoded = |values: &[Value]| serde_json::to_string(values).unwrap();
            match diff(&plain, &came) {
                None => prop_assert_eq!(encoded(&plain), encoded(&came)),
                Some(edit) => {
                    let restored = apply(&plain, &edit);
                    prop_assert_eq!(restored.map(|values| encoded(&values)), Some(encoded(&came)), "{}", edit);
                    prop_assert!(encoded(&plain) != encoded(&came), "a difference where there is none");
                }
            }
        }

        #[test]
        fn a_difference_that_does_not_fit_does_not_panic(
            plain in prop::collection::vec(json(), 0..3), other in prop::collection::vec(json(), 0..3),
            came in prop::collection::vec(json(), 0..3), any in json(),
        ) {
            // The caller validates the result.
            let _ = apply(&plain, &any);
            let _ = diff(&other, &came).and_then(|edit| apply(&plain, &edit));
        }
    }

    #[test]
    fn a_long_text_is_stored_once() {
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
    fn fields_added_later_are_restored_too() {
        let came = [json!({ "x": 1, "role": "user" })];
        let edit = diff(&[json!({ "role": "user" })], &came).unwrap();
        let now = apply(&[json!({ "role": "user", "new": true })], &edit).unwrap();
        assert_eq!(serde_json::to_string(&now).unwrap(), r#"[{"x":1,"role":"user","new":true}]"#);
    }
}
