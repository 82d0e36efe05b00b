//! Prices as they are set.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use super::form::{Amount, As, Maybe};
use crate::price::{Money, Price};

/// A price, `[prices.MODEL]`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table of settings")]
pub(super) struct Written {
    /// What it reads, per million tokens.
    #[serde(with = "As::<Amount<1_000_000>>")]
    #[schemars(example = 0.25)]
    input: Money,
    /// What it writes.
    #[serde(with = "As::<Amount<1_000_000>>")]
    #[schemars(example = 2.0)]
    output: Money,
    /// What it reads from a cache; `input` unless set.
    #[serde(default, with = "As::<Maybe<Amount<1_000_000>>>")]
    #[schemars(example = 0.025)]
    cache_read: Option<Money>,
    /// What it puts into a cache; `input` unless set.
    #[serde(default, with = "As::<Maybe<Amount<1_000_000>>>")]
    #[schemars(example = 0.25)]
    cache_write: Option<Money>,
}

/// Reads all prices.
pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Price>, D::Error> {
    let complete = |Written { input, output, cache_read, cache_write }| Price {
        input,
        output,
        cache_read: cache_read.unwrap_or(input),
        cache_write: cache_write.unwrap_or(input),
    };
    let written = BTreeMap::<String, Written>::deserialize(deserializer)?;
    Ok(written.into_iter().map(|(model, price)| (model, complete(price))).collect())
}
