//! Prices as settings spell them.

use serde_json::{Value, json};

use super::SettingsError;
use super::read::Table;
use crate::price::{Money, Price};

/// The most a million tokens may cost.
const MOST: f64 = 1_000_000.0;

impl Price {
    pub(super) fn read(table: &Table<'_>) -> Result<Self, SettingsError> {
        table.only("input, output, cache_read, cache_write")?;
        let read = |key: &str| {
            table.read(key, "a price for a million tokens, from 0 to 1000000", |value| {
                value.as_f64().filter(|price| (0.0..=MOST).contains(price)).map(Money::from)
            })
        };
        let missing = |key| table.wrong(key, "is missing; a price names input and output");
        let input = read("input")?.ok_or_else(|| missing("input"))?;
        Ok(Self {
            input,
            output: read("output")?.ok_or_else(|| missing("output"))?,
            cache_read: read("cache_read")?.unwrap_or(input),
            cache_write: read("cache_write")?.unwrap_or(input),
        })
    }

    pub(super) fn to_value(self) -> Value {
        json!({
            "input": self.input.get(),
            "output": self.output.get(),
            "cache_read": self.cache_read.get(),
            "cache_write": self.cache_write.get(),
        })
    }
}
