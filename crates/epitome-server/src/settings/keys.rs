//! Lists every settings key with its type, meaning and example. The list is built from the schemas of the sections.
//!
//! The environment, `--set` and `--write-config` use this list. This module only converts the text of a value to the
//! value that a settings file would contain. The sections check whether the value is allowed.

use std::sync::LazyLock;

use epitome::settings::{Settings, schema};
use serde_json::{Number, Value, json};

use super::server::Sections;

/// A settings key.
#[derive(Debug)]
pub(super) struct SettingKey {
    /// Full name, such as `models.*.window`. The `*` is a placeholder for a name that the user chooses.
    pub(super) path: String,
    /// The first type in the key's schema. It decides how a text is converted to a value.
    pub(super) value_type: &'static str,
    /// The help text.
    pub(super) meaning: &'static str,
    /// A value other than the default.
    pub(super) example: Value,
}

/// Schema of all settings.
pub(super) static SCHEMA: LazyLock<Value> = LazyLock::new(schema::<Sections>);

/// All keys, in the order of the sections.
pub(super) static KEYS: LazyLock<Vec<SettingKey>> = LazyLock::new(|| collect("", &SCHEMA));

/// Keys of one slot.
pub(super) static SLOT_KEYS: LazyLock<Vec<SettingKey>> =
    LazyLock::new(|| collect("", SCHEMA.pointer("/properties/slot/items").unwrap_or(&Value::Null)));

/// Returns the keys that a schema describes, with `path` as their prefix.
fn collect(path: &str, schema: &'static Value) -> Vec<SettingKey> {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    let properties = schema.get("properties").and_then(Value::as_object);
    match (properties, schema.get("additionalProperties")) {
        (Some(properties), _) => {
            properties.iter().flat_map(|(name, schema)| collect(&below(name), schema)).collect()
        }
        // The user may choose any slot names, so this lists only the names of the default slots.
        (None, Some(_)) if path == "trigger" => {
            Settings::default().slots.iter().map(|slot| key(below(&slot.slot.name), schema)).collect()
        }
        (None, Some(each)) => collect(&below("*"), each),
        (None, None) => vec![key(path.to_owned(), schema)],
    }
}

fn key(path: String, schema: &'static Value) -> SettingKey {
    let example = schema.pointer("/examples/0").cloned().unwrap_or_default();
    SettingKey { path, value_type: value_type(schema), meaning: meaning(schema), example }
}

/// Returns the first paragraph of a schema's description. Further paragraphs are for readers of the code.
pub(super) fn meaning(schema: &Value) -> &str {
    let text = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    text.split("\n\n").next().unwrap_or_default()
}

fn value_type(schema: &Value) -> &str {
    let form = schema.pointer("/anyOf/0").unwrap_or(schema);
    let types = form.get("type").map(|types| types.get(0).unwrap_or(types));
    match form.pointer("/items/type") {
        Some(items) if items == "string" => "names",
        _ => types.and_then(Value::as_str).unwrap_or_default(),
    }
}

/// Returns the type of a key's value, if the key exists.
pub(super) fn type_of(path: &[String]) -> Option<&'static str> {
    let fits = |key: &&SettingKey| {
        let pattern: Vec<&str> = key.path.split('.').collect();
        pattern.len() == path.len()
            && pattern.iter().zip(path).all(|(expected, part)| *expected == "*" || expected == part)
    };
    KEYS.iter().find(fits).map(|key| key.value_type)
}

/// Converts a text to the value that a settings file would contain. If the text cannot be converted, it stays a text.
/// The section then refuses the text and lists the allowed values. Only invalid JSON is an error here.
pub(super) fn parse_value(value_type: Option<&str>, text: &str) -> Result<Value, String> {
    let trimmed = text.trim();
    let as_text = || Value::String(text.to_owned());
    let json = || serde_json::from_str::<Value>(trimmed);
    Ok(match value_type {
        None => json().unwrap_or_else(|_| as_text()),
        Some("string" | "object" | "") => as_text(),
        Some(_) if trimmed == "null" => Value::Null,
        // Accepts `50000` and `50_000`.
        Some("integer") => trimmed.replace('_', "").parse::<u64>().map_or_else(|_| as_text(), Value::from),
        Some("number") => trimmed.parse().ok().and_then(Number::from_f64).map_or_else(as_text, Value::Number),
        Some("boolean") => trimmed.parse::<bool>().map_or_else(|_| as_text(), Value::from),
        // Accepts `cheap, main`, or a JSON list.
        Some("names") if !trimmed.starts_with('[') => {
            trimmed.split(',').map(str::trim).filter(|name| !name.is_empty()).map(Value::from).collect()
        }
        Some(_) => json().map_err(|error| format!("not JSON: {error}"))?,
    })
}

/// Splits a full name such as `prices."gpt-5.1".input` into its parts. Returns None if the name is malformed.
pub(super) fn path(name: &str) -> Option<Vec<String>> {
    let mut parts: Vec<String> = vec![String::new()];
    let mut quoted = false;
    for c in name.trim().chars() {
        match c {
            '"' => quoted = !quoted,
            '.' if !quoted => parts.push(String::new()),
            c => parts.last_mut()?.push(c),
        }
    }
    (!quoted && parts.iter().all(|part| !part.trim().is_empty())).then_some(parts)
}

/// Joins the parts of a key into its full name.
pub(super) fn name(path: &[String]) -> String {
    let plain = |part: &&String| part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let part = |part: &String| if plain(&part) { part.clone() } else { format!("{part:?}") };
    path.iter().map(part).collect::<Vec<_>>().join(".")
}

/// Returns the schema of a settings patch.
pub(crate) fn patch_schema() -> Value {
    let mut schema = schema::<Settings>();
    if let Some(sections) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        sections.retain(|section, _| section != "models" && section != "prices");
    }
    as_patch(&mut schema);
    let description = "Settings, with the same names as in the settings file. Only the settings in this object are \
                       changed. Null removes the value of a setting, so that the default applies again. Models and \
                       prices can only be set for the whole server.";
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

/// Allows null for every setting. Removes the examples, because the examples contain models that a server may not have.
/// Also removes the default values of whole tables.
fn as_patch(schema: &mut Value) {
    let text = meaning(schema).replace('\n', " ");
    let Some(entries) = schema.as_object_mut() else { return };
    if !text.is_empty() {
        entries.insert("description".to_owned(), Value::String(text));
    }
    entries.shift_remove("examples");
    if entries.contains_key("enum") {
        entries.shift_remove("type");
    }
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
