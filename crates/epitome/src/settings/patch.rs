//! Partial settings: a patch contains only the settings that it changes.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Settings, SettingsError, drop_other_forms};

/// Partial settings, as stored for a workspace or a session.
///
/// Parsing a patch checks that all keys are defined and all values are allowed. A null means that the key is not set in
/// this layer, so the value of the layer below applies.
///
/// ```
/// use epitome::settings::{Patch, Settings};
///
/// let stored = Patch::parse(r#"{"summarize": {"redact": false, "stand_in_after": "2h"}}"#)?;
/// let newer = Patch::parse(r#"{"summarize": {"redact": null}, "limits": {"batch": 50}}"#)?;
/// let merged = stored.merged(&newer);
/// assert_eq!(
///     serde_json::to_string(&merged).unwrap(),
///     r#"{"summarize":{"stand_in_after":"2h"},"limits":{"batch":50}}"#,
/// );
/// assert!(Settings::default().with(&merged)?.summarize.redact);
/// # Ok::<(), epitome::settings::SettingsError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value")]
pub struct Patch(pub(super) Map<String, Value>);

impl Patch {
    /// Parses a JSON or TOML document. A document that starts with a brace is JSON.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        match serde_json::from_str(text) {
            Ok(value) => Self::from_value(value),
            Err(error) if text.trim_start().starts_with('{') => {
                Err(SettingsError::new("settings", format!("not JSON: {error}")))
            }
            Err(_) => match toml::from_str(text) {
                Ok(value) => Self::from_value(value).map_err(|error| error.at_line(text)),
                // The full text of the TOML error quotes the line, which may contain a secret. So only the error's
                // message is used.
                Err(error) => {
                    let at = error.span().map_or(0, |span| span.start);
                    let line = text.get(..at).unwrap_or(text).matches('\n').count() + 1;
                    let problem = format!("line {line}: not TOML: {}", error.message());
                    Err(SettingsError::new("settings", problem))
                }
            },
        }
    }

    /// Reads and validates a patch from its JSON value.
    pub fn from_value(value: Value) -> Result<Self, SettingsError> {
        match value {
            Value::Object(entries) => {
                // Whether a value is valid does not depend on the layer below, so validating over the defaults is
                // enough.
                Settings::default().overlaid(&entries)?;
                Ok(Self(entries))
            }
            other => Err(SettingsError::not_allowed("settings", &other, "a table of settings")),
        }
    }

    /// Returns this patch, changed by the patch `newer`. Values in `newer` replace the old values, and nulls in `newer`
    /// remove keys. The result contains no nulls.
    ///
    /// As in [`Settings::with`], the list of slots and the price of a model are replaced as a whole. The short form of
    /// a setting replaces its [long form](super::other_form), and the long form replaces the short form.
    pub fn merged(&self, newer: &Self) -> Self {
        let mut merged = self.0.clone();
        drop_other_forms(&mut merged, &newer.0);
        for (key, value) in &newer.0 {
            overlay(&mut merged, key, value, 1, Nulls::SetNull);
        }
        for value in merged.values_mut() {
            if let Value::Object(entries) = value {
                entries.retain(|_, value| !value.is_null());
            }
        }
        merged.retain(|_, value| !value.is_null() && value.as_object().is_none_or(|table| !table.is_empty()));
        Self(merged)
    }

    /// Returns whether the patch sets nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the patch as a JSON value.
    pub fn to_value(&self) -> Value {
        Value::Object(self.0.clone())
    }

    /// Returns the patch as text for the store; empty if it sets nothing.
    pub fn document(&self) -> String {
        if self.is_empty() { String::new() } else { self.to_value().to_string() }
    }

    /// Returns the top-level keys and their values.
    pub fn entries(&self) -> &Map<String, Value> {
        &self.0
    }
}

impl TryFrom<&str> for Patch {
    type Error = SettingsError;

    fn try_from(document: &str) -> Result<Self, SettingsError> {
        Self::parse(document)
    }
}

impl TryFrom<&String> for Patch {
    type Error = SettingsError;

    fn try_from(document: &String) -> Result<Self, SettingsError> {
        Self::parse(document)
    }
}

impl From<Settings> for Patch {
    /// Converts all settings. They are validated when the patch is applied.
    fn from(settings: Settings) -> Self {
        settings.patch()
    }
}

impl TryFrom<Value> for Patch {
    type Error = SettingsError;

    fn try_from(value: Value) -> Result<Self, SettingsError> {
        Self::from_value(value)
    }
}

/// What a null in a layer does to the value of the layer below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nulls {
    /// Keeps the value.
    KeepValue,
    /// Replaces the value with null.
    SetNull,
}

/// Sets a key to the value of the layer above. Merges nested tables down to `levels` levels.
pub fn overlay(tree: &mut Map<String, Value>, key: &str, value: &Value, levels: u8, nulls: Nulls) {
    match (tree.get_mut(key), value) {
        (Some(_), Value::Null) if nulls == Nulls::KeepValue => {}
        (Some(Value::Object(old)), Value::Object(new)) if levels > 0 => {
            for (key, value) in new {
                overlay(old, key, value, levels - 1, nulls);
            }
        }
        _ => {
            tree.insert(key.to_owned(), value.clone());
        }
    }
}
