//! Sessions: how long they are, where their summaries stand, what they shall be.

use epitome::{Explanation, SessionInfo, SlotExplanation, SlotStatus};
use epitome_http::discreet::discreet;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::http::openapi::{Name, SessionSettings};

/// A session: how long it is, and the caller's notes on it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Session)]
pub(crate) struct SessionOut {
    /// What it is called.
    pub(crate) name: String,
    /// How many messages it holds: the place of the newest.
    pub(crate) messages: u64,
    /// How many turns: a user message and what follows it.
    pub(crate) turns: u64,
    /// How large it is.
    pub(crate) tokens: u64,
    /// How tokens are counted.
    #[schema(example = "o200k_base")]
    pub(crate) encoding: String,
    /// How many messages are skipped, by whole call batches.
    pub(crate) skipped: u64,
    /// The caller's notes on it.
    #[schema(value_type = Object)]
    pub(crate) metadata: Map<String, Value>,
    /// Milliseconds since 1970.
    pub(crate) created: i64,
    /// When it was last written to.
    pub(crate) updated: i64,
}

impl From<SessionInfo> for SessionOut {
    fn from(info: SessionInfo) -> Self {
        Self {
            name: info.name.to_string(),
            messages: info.messages,
            turns: info.turns,
            tokens: info.tokens,
            encoding: info.encoding,
            skipped: info.skipped,
            metadata: info.metadata,
            created: info.created.0,
            updated: info.updated.0,
        }
    }
}

/// A session with its slots and settings.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionWhole {
    #[serde(flatten)]
    pub(crate) session: SessionOut,
    /// Where each summary stands, and why it is due or not.
    pub(crate) slots: Vec<SlotOut>,
    /// The settings that hold in it.
    #[schema(value_type = Object)]
    pub(crate) settings: Value,
}

impl SessionWhole {
    pub(crate) fn new(explained: Explanation, settings: Value) -> Self {
        let slots = explained.slots.into_iter().map(SlotOut::from).collect();
        Self { session: explained.session.into(), slots, settings }
    }
}

/// Where a slot stands.
// One field for each that the API has, hence so many: in parts they would be harder to find.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Slot)]
pub(crate) struct SlotOut {
    /// The slot's name.
    pub(crate) slot: String,
    /// Whose messages it covers; everybody's where nobody is named.
    pub(crate) scope: Option<String>,
    #[schema(value_type = Status)]
    pub(crate) status: SlotStatus,
    /// The same in words.
    pub(crate) why: String,
    /// The summary that stands.
    pub(crate) summary: Option<i64>,
    /// Up to which message it stands.
    pub(crate) covered: u64,
    /// The first firing to be worked off.
    pub(crate) due: Option<u64>,
    /// When it fires if nobody says anything more.
    pub(crate) due_at: Option<i64>,
    /// When it fires.
    #[schema(example = "messages(20)")]
    pub(crate) trigger: Option<String>,
    /// How far each condition of the trigger is.
    pub(crate) gauges: Vec<GaugeOut>,
    /// What stays out of its summary.
    pub(crate) keep: Option<String>,
    /// How large its summary may be; or `max_chars`.
    pub(crate) max_tokens: Option<u64>,
    /// The same in characters.
    pub(crate) max_chars: Option<u64>,
    /// Who writes it: the first that can.
    pub(crate) models: Vec<String>,
    /// How often in a row it failed.
    pub(crate) attempts: u32,
    /// Since when it fails.
    pub(crate) failing_since: Option<i64>,
    /// When it is tried again.
    pub(crate) not_before: Option<i64>,
    /// What failed last, in a line.
    pub(crate) last_error: Option<String>,
}

/// What a slot does.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "it is there to be described")]
pub(crate) enum Status {
    Idle,
    Due,
    Working,
    Waiting,
    Parked,
    Retired,
}

/// How far one condition is: `messages 13 of 20`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Gauge)]
pub(crate) struct GaugeOut {
    /// Its name, as in the trigger.
    pub(crate) condition: &'static str,
    /// How far it is.
    pub(crate) have: u64,
    /// From where on it is met; nothing where that is not known.
    pub(crate) need: Option<u64>,
}

impl From<SlotExplanation> for SlotOut {
    fn from(slot: SlotExplanation) -> Self {
        let gauges = slot.gauges.map(|standing| standing.gauges).unwrap_or_default();
        Self {
            slot: slot.slot,
            scope: slot.scope.map(|scope| scope.to_string()),
            status: slot.status,
            why: discreet(&slot.why),
            summary: slot.summary,
            covered: slot.covered,
            due: slot.due,
            due_at: slot.due_at.map(|at| at.0),
            trigger: slot.trigger,
            gauges: gauges
                .into_iter()
                .map(|gauge| GaugeOut { condition: gauge.condition, have: gauge.have, need: gauge.need })
                .collect(),
            keep: slot.keep,
            max_tokens: slot.max_tokens,
            max_chars: slot.max_chars,
            models: slot.models,
            attempts: slot.attempts,
            failing_since: slot.failing_since.map(|at| at.0),
            not_before: slot.not_before.map(|at| at.0),
            last_error: slot.last_error.as_deref().map(discreet),
        }
    }
}

/// What a session shall be.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = SetSession)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionIn {
    /// Settings of this session alone: what is named is changed, null takes a change back.
    #[schema(value_type = Option<SessionSettings>)]
    pub(crate) settings: Option<Map<String, Value>>,
    /// The caller's notes, in place of those there are; 64 KiB at most.
    #[schema(value_type = Option<Object>)]
    pub(crate) metadata: Option<Map<String, Value>>,
}

/// A new session from this one.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = Fork)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForkIn {
    /// What it is called. There must be no such session yet.
    #[schema(value_type = Name)]
    pub(crate) name: String,
    /// The last message it takes over; the newest where none is named.
    #[schema(minimum = 1)]
    pub(crate) at: Option<u64>,
    #[serde(default)]
    pub(crate) kind: ForkKindIn,
}

/// What a fork takes over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[schema(as = ForkKind)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ForkKindIn {
    /// Every message, and the summaries that stood there.
    #[default]
    Whole,
    /// What a context would hold: for a sub-agent.
    Condensed,
}
