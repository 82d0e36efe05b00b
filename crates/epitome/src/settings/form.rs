//! JSON Schemas of setting values. A schema defines which values of a setting are allowed.
//!
//! A field refers to its schema with one attribute, `#[schemars(schema_with = "form::share")]`, and
//! [`read`](super::read) rejects values that the schema does not allow. Fields whose Rust type is precise enough need
//! no schema here.

use std::time::Duration;

use epitome_core::tokens::Encoding;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use super::time::YEAR;

/// Maximum length of a model name, in bytes.
const LONGEST_NAME: usize = 128;

macro_rules! forms {
    ($($name:ident: $schema:tt;)*) => {$(
        pub(super) fn $name(_: &mut SchemaGenerator) -> Schema {
            json_schema!($schema)
        }
    )*};
}

// If both a value and a keyword are allowed, the value's schema comes first: the first schema decides how a text is
// parsed.
forms! {
    count: {"type": "integer", "minimum": 0, "maximum": u64::MAX};
    positive: {"type": "integer", "minimum": 1, "maximum": u64::MAX};
    positive_or_none: {"anyOf": [{"type": "integer", "minimum": 1, "maximum": u64::MAX}, {"const": "none"}]};
    size: {"type": "integer", "minimum": 16, "maximum": u64::MAX};
    size_or_default: {"anyOf": [{"type": "integer", "minimum": 16, "maximum": u64::MAX}, {"const": "default"}]};
    share: {"type": "number", "minimum": 0.000_001, "maximum": 1};
    price: {"type": "number", "minimum": 0, "maximum": 1_000_000};
    cap_or_none: {"anyOf": [{"type": "number", "minimum": 0, "maximum": 1_000_000_000}, {"const": "none"}]};
    stand_in: {"anyOf": [
        {"type": "string", "format": "time-or-never"},
        {"type": "number", "minimum": 0, "maximum": YEAR / 1_000},
    ]};
    model: {"type": "string", "format": "model", "minLength": 1, "maxLength": LONGEST_NAME};
    models: {"type": "array", "minItems": 1, "uniqueItems": true, "items": {
        "type": "string", "format": "model", "minLength": 1, "maxLength": LONGEST_NAME,
    }};
    encoding: {"enum": (Encoding::ALL.map(Encoding::name))};
    profile: {"enum": ["auto", "general", "coding", "research", "support"]};
    preset: {"enum": ["frequent", "long", "lean"]};
    catch_up: {"type": "string", "enum": ["join", "step"]};
    summary_role: {"type": "string", "enum": ["user", "system"]};
    strategy: {"type": "string", "format": "strategy"};
    trigger: {"type": "string", "format": "trigger"};
    triggers: {"type": "object", "additionalProperties": {"type": "string", "format": "trigger"}};
    trigger_or_default: {"anyOf": [{"type": "string", "format": "trigger"}, {"const": "default"}]};
    keep: {"type": "string", "format": "keep"};
    keep_or_default: {"anyOf": [{"type": "string", "format": "keep"}, {"const": "default"}]};
    template: {"type": "string", "format": "template"};
    template_or_default: {"anyOf": [{"type": "string", "format": "template"}, {"const": "default"}]};
    text: {"type": "string"};
}

/// Schema of an integer from `MIN` to `MAX`.
pub fn whole<const MIN: u64, const MAX: u64>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "minimum": MIN, "maximum": MAX})
}

/// Schema of a duration from `MIN` to `MAX` milliseconds, which [`super::time`] reads and writes.
pub fn time<const MIN: u64, const MAX: u64>(_: &mut SchemaGenerator) -> Schema {
    let [min, max] = [MIN, MAX].map(|millis| Duration::from_millis(millis).as_secs_f64());
    json_schema!({"anyOf": [
        {"type": "string", "format": "time"},
        {"type": "number", "minimum": min, "maximum": max},
    ]})
}

/// Schema of a duration of at most one year.
pub(super) fn any_time(generator: &mut SchemaGenerator) -> Schema {
    time::<0, YEAR>(generator)
}

/// Serializes a value, or `"default"` if it is not set and its default depends on other settings.
pub(super) fn or_default<T: Serialize, S: Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => value.serialize(serializer),
        None => serializer.serialize_str("default"),
    }
}

/// Returns whether `name` is a valid model name.
pub(super) fn is_model_name(name: &str) -> bool {
    !name.trim().is_empty() && name.len() <= LONGEST_NAME && !name.contains(char::is_control)
}
