//! Settings as a tree of tables.

use epitome::settings::other_form;
use serde_json::{Map, Value};

/// Sets a key, whatever was there; tables are laid over each other.
pub(super) fn put(tree: &mut Map<String, Value>, path: &[String], value: Value) {
    let Some((first, rest)) = path.split_first() else { return };
    let place = tree.entry(first.clone()).or_insert(Value::Null);
    if rest.is_empty() {
        match (place, value) {
            (Value::Object(old), Value::Object(new)) => {
                for (key, value) in new {
                    put(old, &[key], value);
                }
            }
            (place, value) => *place = value,
        }
        return;
    }
    if !place.is_object() {
        *place = Value::Object(Map::new());
    }
    if let Value::Object(table) = place {
        put(table, rest, value);
    }
}

/// Takes out what was said before in another form of what is said now: a flag's short form goes over a file's long one.
pub(super) fn give_way(tree: &mut Map<String, Value>, path: &[String], value: &Value) {
    match value {
        Value::Null => {}
        Value::Object(table) => {
            for (key, value) in table {
                give_way(tree, &[path, std::slice::from_ref(key)].concat(), value);
            }
        }
        _ => {
            let other = other_form(&path.join(".")).and_then(|other| other.split_once('.'));
            if let Some((table, key)) = other
                && let Some(Value::Object(table)) = tree.get_mut(table)
            {
                table.shift_remove(key);
            }
        }
    }
}

/// Every key with a value of its own. A list is one value.
pub(super) fn leaves(
    table: &Map<String, Value>,
    path: &mut Vec<String>,
    tell: &mut dyn FnMut(&[String], &Value),
) {
    for (key, value) in table {
        path.push(key.clone());
        match value {
            Value::Object(inner) => leaves(inner, path, tell),
            value => tell(path, value),
        }
        path.pop();
    }
}
