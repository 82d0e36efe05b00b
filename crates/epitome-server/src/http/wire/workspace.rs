//! A workspace as a whole: settings, what was used.

use epitome::store::UsageSum;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::proxied::ProxiedOut;
use crate::http::openapi::Settings;

/// Calls of models, added up.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Usage)]
pub(crate) struct UsageOut {
    /// All of them together.
    pub(crate) total: UsageSumOut,
    /// By slot, model and outcome.
    pub(crate) items: Vec<UsageItemOut>,
    /// What went through the proxy. Not there where one session is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) proxy: Option<ProxiedOut>,
}

#[derive(Debug, Default, Clone, Copy, Serialize, ToSchema)]
#[schema(as = UsageSum)]
pub(crate) struct UsageSumOut {
    /// How many calls.
    pub(crate) calls: u64,
    /// Tokens sent.
    pub(crate) input: u64,
    /// Of those, read from the provider's cache.
    pub(crate) cached: u64,
    /// Tokens written.
    pub(crate) output: u64,
    /// In the price table's money; nothing where no price was known for any of them.
    pub(crate) cost: Option<f64>,
    /// How long they took together.
    pub(crate) millis: u64,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UsageItem)]
pub(crate) struct UsageItemOut {
    /// Whose messages; everybody's where nobody is named.
    pub(crate) scope: Option<String>,
    pub(crate) slot: String,
    pub(crate) model: String,
    /// `kept`, or what was wrong.
    pub(crate) outcome: String,
    #[serde(flatten)]
    pub(crate) sum: UsageSumOut,
}

impl From<Vec<UsageSum>> for UsageOut {
    fn from(sums: Vec<UsageSum>) -> Self {
        let mut total = UsageSumOut::default();
        let mut items = Vec::new();
        for row in sums {
            let sum = UsageSumOut {
                calls: row.calls,
                input: row.input,
                cached: row.cached,
                output: row.output,
                cost: row.cost.map(money),
                millis: row.millis,
            };
            total.calls = total.calls.saturating_add(sum.calls);
            total.input = total.input.saturating_add(sum.input);
            total.cached = total.cached.saturating_add(sum.cached);
            total.output = total.output.saturating_add(sum.output);
            total.millis = total.millis.saturating_add(sum.millis);
            if let Some(cost) = sum.cost {
                total.cost = Some(total.cost.unwrap_or_default() + cost);
            }
            let scope = Some(row.scope).filter(|scope| !scope.is_empty());
            items.push(UsageItemOut { scope, slot: row.slot, model: row.model, outcome: row.outcome, sum });
        }
        Self { total, items, proxy: None }
    }
}

/// Millionths to whole money.
#[expect(clippy::cast_precision_loss, reason = "nobody pays 2^52 millionths")]
pub(super) fn money(millionths: i64) -> f64 {
    millionths as f64 / 1_000_000.0
}

/// What a workspace's settings shall be.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = SetWorkspace)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkspaceIn {
    /// What is named is changed, null takes a change back.
    #[schema(value_type = Settings)]
    pub(crate) settings: Map<String, Value>,
}

/// A workspace's settings.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Workspace)]
pub(crate) struct WorkspaceOut<'a> {
    /// What it is called.
    pub(crate) name: &'a str,
    /// What was set here.
    #[schema(value_type = Object)]
    pub(crate) own: Value,
    /// The settings that hold in its sessions, those that change some themselves excepted.
    #[schema(value_type = Object)]
    pub(crate) settings: Value,
}
