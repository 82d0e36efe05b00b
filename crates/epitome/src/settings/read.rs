//! Reading values under their full names.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use epitome_core::slot::CatchUp;
use epitome_core::trigger::Fraction;
use serde_json::{Map, Value};

use super::{Money, SettingsError, StandIn, time};

/// So much of a wrong value is repeated, in characters.
const LONGEST_GIVEN: usize = 60;

/// The longest name of a model.
const LONGEST_NAME: usize = 128;

const TABLE: &str = "a table of settings";
const WHOLE: &str = "a whole number from 1";
const COUNT: &str = "a whole number";
const FRACTION: &str = "a number more than 0 and at most 1, such as 0.4";
const TEXT: &str = "a text";
const YES_OR_NO: &str = "true or false";
const MODELS: &str = "a list of different models' names, at least one, such as [\"local\"]";
const TABLES: &str = "a list of tables";

/// Some settings under a common name. What is null is as if it were not there.
pub(super) struct Table<'a> {
    /// Its full name; empty at the top.
    name: String,
    entries: &'a Map<String, Value>,
}

impl<'a> Table<'a> {
    pub(super) fn top(entries: &'a Map<String, Value>) -> Self {
        Self { name: String::new(), entries }
    }

    /// The full name of one of its keys. One that could be misread is put in quotes, as in the file.
    pub(super) fn at(&self, key: &str) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let key = if !key.is_empty() && key.chars().all(plain) { key.to_owned() } else { format!("{key:?}") };
        if self.name.is_empty() { key } else { format!("{}.{key}", self.name) }
    }

    /// Refuses keys that are not among these, which are given as they are told.
    pub(super) fn only(&self, allowed: &'static str) -> Result<(), SettingsError> {
        match self.entries.keys().find(|key| !allowed.split(", ").any(|known| known == *key)) {
            Some(key) => Err(SettingsError::Unknown { key: self.at(&shortened(key)), allowed }),
            None => Ok(()),
        }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.entries.keys().map(String::as_str)
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.entries.get(key).filter(|value| !value.is_null())
    }

    /// Whether it says something of a key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// What `read` makes of a value; where it makes nothing of it, it is refused.
    pub(super) fn read<T>(
        &self,
        key: &str,
        allowed: &'static str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, SettingsError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match read(value) {
            Some(read) => Ok(Some(read)),
            None => {
                Err(SettingsError::Value { key: self.at(key), given: shortened(&value.to_string()), allowed })
            }
        }
    }

    pub(super) fn wrong(&self, key: &str, problem: impl Into<String>) -> SettingsError {
        SettingsError::Wrong { key: self.at(key), problem: problem.into() }
    }

    pub(super) fn table(&self, key: &str) -> Result<Option<Table<'a>>, SettingsError> {
        let entries = self.read(key, TABLE, Value::as_object)?;
        Ok(entries.map(|entries| Table { name: self.at(key), entries }))
    }

    pub(super) fn list(&self, key: &str) -> Result<Option<Vec<Table<'a>>>, SettingsError> {
        let Some(list) = self.read(key, TABLES, Value::as_array)? else { return Ok(None) };
        let mut tables = Vec::with_capacity(list.len());
        for (at, value) in list.iter().enumerate() {
            let name = format!("{}[{at}]", self.at(key));
            let Some(entries) = value.as_object() else {
                let given = shortened(&value.to_string());
                return Err(SettingsError::Value { key: name, given, allowed: TABLE });
            };
            tables.push(Table { name, entries });
        }
        Ok(Some(tables))
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, SettingsError> {
        self.read(key, TEXT, Value::as_str)
    }

    /// Something that is written as a text and says itself what is wrong with it.
    pub(super) fn parsed<T>(&self, key: &str) -> Result<Option<T>, SettingsError>
    where
        T: FromStr<Err: Display>,
    {
        let Some(text) = self.text(key)? else { return Ok(None) };
        text.parse().map(Some).map_err(|error: T::Err| {
            // Some name the key themselves.
            let problem = error.to_string();
            let bare = problem.strip_prefix(key).and_then(|rest| rest.strip_prefix(": "));
            self.wrong(key, bare.unwrap_or(&problem))
        })
    }

    /// The same, or this word for none of its own.
    pub(super) fn parsed_or<T>(&self, key: &str, none: &str) -> Result<Option<Option<T>>, SettingsError>
    where
        T: FromStr<Err: Display>,
    {
        match self.text(key)? {
            Some(word) if word.trim() == none => Ok(Some(None)),
            _ => Ok(self.parsed(key)?.map(Some)),
        }
    }

    pub(super) fn whole(&self, key: &str) -> Result<Option<u64>, SettingsError> {
        self.read(key, WHOLE, |value| value.as_u64().filter(|whole| *whole > 0))
    }

    /// A whole number that may be 0.
    pub(super) fn count(&self, key: &str) -> Result<Option<u64>, SettingsError> {
        self.read(key, COUNT, Value::as_u64)
    }

    pub(super) fn fraction(&self, key: &str) -> Result<Option<Fraction>, SettingsError> {
        self.read(key, FRACTION, |value| Fraction::new(value.as_f64()?).ok())
    }

    pub(super) fn yes_or_no(&self, key: &str) -> Result<Option<bool>, SettingsError> {
        self.read(key, YES_OR_NO, Value::as_bool)
    }

    pub(super) fn catch_up(&self, key: &str) -> Result<Option<CatchUp>, SettingsError> {
        self.read(key, "\"join\" or \"step\"", |value| match value.as_str()? {
            "join" => Some(CatchUp::Join),
            "step" => Some(CatchUp::Step),
            _ => None,
        })
    }

    pub(super) fn stand_in(&self, key: &str) -> Result<Option<StandIn>, SettingsError> {
        self.read(key, time::ALLOWED, StandIn::read)
    }

    /// A time that is told as such.
    pub(super) fn time(&self, key: &str) -> Result<Option<Duration>, SettingsError> {
        self.read(key, time::TIME, time::read)
    }

    /// An amount of money, or `"none"`.
    pub(super) fn cap(&self, key: &str) -> Result<Option<Option<Money>>, SettingsError> {
        self.read(key, "an amount of at least 0, such as 2.50, or \"none\"", |value| match value {
            Value::String(none) if none == "none" => Some(None),
            Value::Number(_) => {
                let amount = value.as_f64().filter(|amount| (0.0..=1e9).contains(amount))?;
                Some(Some(Money::from(amount)))
            }
            _ => None,
        })
    }

    pub(super) fn models(&self, key: &str) -> Result<Option<Vec<String>>, SettingsError> {
        self.read(key, MODELS, |value| {
            let list = value.as_array().filter(|list| !list.is_empty())?;
            let mut names: Vec<String> = Vec::with_capacity(list.len());
            for value in list {
                let name = value.as_str().filter(|name| is_name(name))?;
                if names.iter().any(|known| known == name) {
                    return None;
                }
                names.push(name.to_owned());
            }
            Some(names)
        })
    }
}

/// Whether a model can be called so.
pub(super) fn is_name(name: &str) -> bool {
    !name.trim().is_empty() && name.len() <= LONGEST_NAME && !name.contains(char::is_control)
}

fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(LONGEST_GIVEN).collect();
    if text.chars().nth(LONGEST_GIVEN).is_some() {
        short.push('…');
    }
    short
}
