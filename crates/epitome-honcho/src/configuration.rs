//! Stores Honcho's configurations, and derives Epitome's settings from them.

use std::borrow::Cow;
use std::sync::Arc;

use epitome::settings::Patch;
use epitome::{Attributes, Error};
use serde_json::{Map, Value, json};

/// The name of the slot for Honcho's short summary.
const SHORT: &str = "short";
/// The name of the slot for Honcho's long summary.
pub(super) const LONG: &str = "long";

/// The name under which configurations are stored in attributes.
const OWNER: &str = "honcho";

/// Returns the configuration that is stored in attributes.
pub(super) fn stored(attributes: &Map<String, Value>) -> Cow<'_, Map<String, Value>> {
    match attributes.get(OWNER) {
        Some(Value::Object(part)) => Cow::Borrowed(part),
        _ => Cow::Owned(Map::new()),
    }
}

/// Returns attributes that contain only this configuration.
pub(super) fn attributes(configuration: Map<String, Value>) -> Map<String, Value> {
    Map::from_iter([(OWNER.to_owned(), Value::Object(configuration))])
}

/// Returns a change that merges the sent configuration into the stored configuration, and derives settings from the
/// result. A sent table replaces the stored table of the same name. `null` removes the stored table.
pub(super) fn configure(sent: Map<String, Value>) -> Attributes {
    let change = move |stored: &Map<String, Value>| {
        let mut merged = stored.clone();
        merged.extend(sent.clone());
        merged.retain(|_, value| !value.is_null());
        let patch = settings(&merged)?;
        Ok((merged, patch))
    };
    Attributes { owner: OWNER, change: Arc::new(change) }
}

/// Derives settings from a configuration. A setting that the configuration does not contain is removed.
fn settings(configuration: &Map<String, Value>) -> Result<Patch, Error> {
    let summary = configuration.get("summary");
    let field = |key: &str| summary.and_then(|summary| summary.get(key));
    let every = |key: &str| field(key).map_or(Value::Null, |count| format!("messages({count})").into());
    let general = configuration.get("custom_instructions").filter(|value| value.is_string());
    let instructions = field("custom_instructions").or(general);
    let patch = json!({
        "summarize": {"auto": field("enabled"), "instructions": instructions},
        "trigger": {
            SHORT: every("messages_per_short_summary"),
            LONG: every("messages_per_long_summary"),
        },
    });
    Ok(Patch::from_value(patch)?)
}

#[cfg(test)]
mod tests {
    use epitome::settings::Settings;

    use super::*;

    fn map(value: &Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    /// Returns the configuration and the settings after these were sent one after the other.
    fn after(sent: &[Value]) -> (Value, Settings) {
        let (mut stored, mut patch) = (Map::new(), Patch::default());
        for value in sent {
            let changed = (configure(map(value)).change)(&stored).unwrap();
            (stored, patch) = (changed.0, patch.merged(&changed.1));
        }
        (Value::Object(stored), Settings::default().with(&patch).unwrap())
    }

    #[test]
    fn sent_tables_replace_stored_ones_and_null_removes_them() {
        let every = |settings: &Settings| {
            settings.slots.iter().map(|slot| slot.slot.trigger.to_string()).collect::<Vec<_>>()
        };
        let (_, settings) = after(&[json!({"summary": {"messages_per_short_summary": 10}})]);
        assert_eq!(every(&settings), ["messages(10)", "messages(60)"]);
        let tens = json!({"summary": {"messages_per_short_summary": 10, "messages_per_long_summary": 20}});
        let off = json!({"summary": {"enabled": false}, "else": 1});
        let (stored, settings) = after(&[tens.clone(), off.clone()]);
        assert_eq!(stored, off);
        assert_eq!(every(&settings), ["messages(20)", "messages(60)"]);
        assert!(settings.slots.iter().all(|slot| !slot.slot.auto));
        let (stored, settings) = after(&[off, tens.clone()]);
        assert_eq!((stored["else"].clone(), stored["summary"].clone()), (json!(1), tens["summary"].clone()));
        assert_eq!(every(&settings), ["messages(10)", "messages(20)"]);
        assert!(settings.slots.iter().all(|slot| slot.slot.auto));
        let (stored, settings) = after(&[tens, json!({"summary": null, "else": null})]);
        assert_eq!((stored, settings), (json!({}), Settings::default()));
    }

    #[test]
    fn instructions_for_summaries_take_precedence() {
        let instructions = |sent: Value| after(&[sent]).1.summarize.instructions;
        assert_eq!(instructions(json!({"custom_instructions": "all"})), "all");
        let both = json!({"custom_instructions": "all", "summary": {"custom_instructions": "these"}});
        assert_eq!(instructions(both), "these");
        assert_eq!(instructions(json!({"summary": {}})), "");
    }
}
