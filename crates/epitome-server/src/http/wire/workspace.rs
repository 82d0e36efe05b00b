//! A workspace as a whole: settings, what is due, what was used.

use epitome::store::UsageSum;
use epitome::{Queue, QueueEntry, SlotStatus};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::super::discreet::discreet;
use super::proxied::ProxiedOut;
use super::session::Status;
use crate::http::openapi::Settings;

/// What is due in a workspace.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Queue)]
pub(crate) struct QueueOut {
    /// Due, and not yet taken up.
    pub(crate) due: u64,
    /// Being written.
    pub(crate) working: u64,
    /// Failed, and tried again later.
    pub(crate) waiting: u64,
    /// Due, but nothing can be cut yet.
    pub(crate) parked: u64,
    /// The slots, those waiting longest first; 1,000 of them at most.
    pub(crate) slots: Vec<QueueEntryOut>,
}

/// A slot with something to do.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = QueueEntry)]
pub(crate) struct QueueEntryOut {
    /// In which session.
    pub(crate) session: String,
    /// The slot's name.
    pub(crate) slot: String,
    /// Whose messages; everybody's where nobody is named.
    pub(crate) scope: Option<String>,
    #[schema(value_type = Status)]
    pub(crate) status: SlotStatus,
    /// The message at which it became due.
    pub(crate) due: Option<u64>,
    /// Since when it waits, in milliseconds since 1970.
    pub(crate) since: Option<i64>,
    /// How often in a row it failed.
    pub(crate) attempts: u32,
    /// When it is tried again.
    pub(crate) not_before: Option<i64>,
    /// What failed last, in a line.
    pub(crate) last_error: Option<String>,
}

impl From<Queue> for QueueOut {
    fn from(queue: Queue) -> Self {
        let entry = |entry: QueueEntry| QueueEntryOut {
            session: entry.session.to_string(),
            slot: entry.slot,
            scope: entry.scope.map(|scope| scope.to_string()),
            status: entry.status,
            due: entry.due,
            since: entry.since.map(|at| at.0),
            attempts: entry.attempts,
            not_before: entry.not_before.map(|at| at.0),
            last_error: entry.last_error.as_deref().map(discreet),
        };
        Self {
            due: queue.due,
            working: queue.working,
            waiting: queue.waiting,
            parked: queue.parked,
            slots: queue.slots.into_iter().map(entry).collect(),
        }
    }
}

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
