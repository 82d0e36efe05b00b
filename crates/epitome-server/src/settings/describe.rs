//! The JSON Schema of settings as a workspace or session changes them, for the description of the HTTP API.
//!
//! The engine's schema describes settings that are complete. A patch names only some of them, and may set any of them
//! to null, which takes a change back. Models and prices are set for the whole server.

use epitome::settings::{Settings, schema};
use serde_json::{Value, json};

use super::keys::meaning;

/// The schema of a patch.
pub(crate) fn patch_schema() -> Value {
    let mut schema = schema::<Settings>();
    if let Some(sections) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        sections.retain(|section, _| section != "models" && section != "prices");
    }
    as_patch(&mut schema);
    let description = "Settings, by the names of the settings file. What is named is changed and nothing else; null \
                       takes a change back. Models and prices are set for the whole server.";
    let example = json!({
        "context": {"max_tokens": 50_000},
        "slot": [{"name": "short", "trigger": "messages(20)", "max_tokens": 1_000}],
    });
    if let Some(entries) = schema.as_object_mut() {
        entries.insert("description".to_owned(), json!(description));
        entries.insert("examples".to_owned(), json!([example]));
    }
    schema
}

/// Allows null for every setting. Leaves out examples, which are for the settings file and name models that a server
/// may not have, and defaults of whole tables.
fn as_patch(schema: &mut Value) {
    let text = meaning(schema).replace('\n', " ");
    let Some(entries) = schema.as_object_mut() else { return };
    if !text.is_empty() {
        entries.insert("description".to_owned(), Value::String(text));
    }
    entries.shift_remove("examples");
    if entries
        .get("default")
        .is_some_and(|default| !(default.is_string() || default.is_number() || default.is_boolean()))
    {
        entries.shift_remove("default");
    }
    if let Some(items) = entries.get_mut("items") {
        as_patch(items);
    }
    if let Some(each) = entries.get_mut("additionalProperties") {
        as_nullable(each);
    }
    let properties = entries.get_mut("properties").and_then(Value::as_object_mut);
    for (_, property) in properties.into_iter().flatten() {
        as_nullable(property);
    }
}

fn as_nullable(schema: &mut Value) {
    as_patch(schema);
    let Some(entries) = schema.as_object_mut() else { return };
    if let Some(named) = entries.get_mut("type") {
        if named.is_string() {
            *named = json!([named, "null"]);
        }
    } else if let Some(words) = entries.get_mut("enum").and_then(Value::as_array_mut) {
        words.push(Value::Null);
    } else if let Some(forms) = entries.get_mut("anyOf").and_then(Value::as_array_mut) {
        forms.push(json!({"type": "null"}));
    }
}
