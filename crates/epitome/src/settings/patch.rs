//! Settings that name only what they change.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Settings, SettingsError, give_way};

/// A part of the settings, as it is stored for a workspace or a session.
///
/// Every name in it is known and every value allowed; that was seen to when it was read. A null says
/// that a key is not to be set here, so that what is below it holds again.
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
    /// Reads a JSON or TOML document. What begins with a brace is JSON.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        match serde_json::from_str(text) {
            Ok(value) => Self::from_value(value),
            Err(error) if text.trim_start().starts_with('{') => {
                Err(SettingsError::wrong("settings", format!("not JSON: {error}")))
            }
            Err(_) => match toml::from_str(text) {
                Ok(value) => Self::from_value(value),
                Err(error) => {
                    let problem = format!("not TOML: {}", error.to_string().trim_end());
                    Err(SettingsError::wrong("settings", problem))
                }
            },
        }
    }

    /// The patch that is written so.
    pub fn from_value(value: Value) -> Result<Self, SettingsError> {
        match value {
            Value::Object(entries) => {
                // No value's rightness depends on what it is laid over, so the defaults will do.
                Settings::default().overlaid(&entries)?;
                Ok(Self(entries))
            }
            other => Err(SettingsError::not_allowed("settings", &other, "a table of settings")),
        }
    }

    /// This one with what a newer one says: its values in place of the old, and its nulls in place of
    /// nothing. No null is left.
    ///
    /// As in [`Settings::with`], the list of slots is taken as a whole, and a model's price too. What is said in one form
    /// takes the place of what was said in the [other](super::other_form).
    pub fn merged(&self, newer: &Self) -> Self {
        let mut merged = self.0.clone();
        give_way(&mut merged, &newer.0);
        for (key, value) in &newer.0 {
            overlay(&mut merged, key, value, 1, Nulls::TakeBack);
        }
        for value in merged.values_mut() {
            if let Value::Object(entries) = value {
                entries.retain(|_, value| !value.is_null());
            }
        }
        merged.retain(|_, value| !value.is_null() && value.as_object().is_none_or(|table| !table.is_empty()));
        Self(merged)
    }

    /// Whether it names nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As it is written.
    pub fn to_value(&self) -> Value {
        Value::Object(self.0.clone())
    }

    /// As text, to be stored; empty where nothing is changed.
    pub fn document(&self) -> String {
        if self.is_empty() { String::new() } else { self.to_value().to_string() }
    }

    /// What it is made of.
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
    /// All of them. They are checked when the patch is applied.
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

/// What a null in a layer does to what a layer below says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nulls {
    /// Nothing.
    Leave,
    /// It goes in its place.
    TakeBack,
}

/// Sets a key to what a layer above says, where tables are merged down to this many levels.
pub fn overlay(tree: &mut Map<String, Value>, key: &str, value: &Value, levels: u8, nulls: Nulls) {
    match (tree.get_mut(key), value) {
        (Some(_), Value::Null) if nulls == Nulls::Leave => {}
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
