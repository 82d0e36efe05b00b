//! Defines the result of condensing before a model call: the list, the report, and the turn, to which the caller
//! reports how the call went.

use std::ops::Deref;
use std::sync::Arc;

use epitome_core::condense::ListState;
use epitome_core::message::{Message, Seq, Tokens};
use epitome_core::trigger::Fraction;
use serde::{Deserialize, Serialize};

use super::SharedConversation;
use crate::lock::lock;

/// The list to send, and what was done to it. Dereferences to the list.
///
/// Drop it before the next turn: otherwise the next turn has to copy the list.
#[derive(Debug)]
pub struct ReadyList<'a> {
    /// The caller's own list.
    pub(super) own: &'a [Message],
    /// The list that is sent instead, if there is one.
    pub(super) condensed: Option<Arc<Vec<Message>>>,
    /// What was done and why, also if nothing was done.
    pub report: Report,
    /// Size in tokens of the whole request if nothing had ever been condensed, by the provider's count as far as it is
    /// available. If condensing is switched off, nothing is counted, and this is the size of the request outside the
    /// list.
    pub full: Tokens,
    /// Size in tokens of the request that is sent.
    pub sent: Tokens,
    pub(super) turn: Turn,
}

impl Deref for ReadyList<'_> {
    type Target = [Message];

    fn deref(&self) -> &[Message] {
        self.condensed.as_deref().map_or(self.own, Vec::as_slice)
    }
}

impl ReadyList<'_> {
    /// Returns whether this is the caller's own list, unchanged.
    pub fn is_untouched(&self) -> bool {
        self.condensed.is_none()
    }

    /// Returns the turn, to which the caller reports how the call went.
    pub fn turn(&self) -> Turn {
        self.turn.clone()
    }

    /// Returns the list as an owned value.
    pub fn into_messages(self) -> Vec<Message> {
        self.condensed.map_or_else(|| self.own.to_vec(), Arc::unwrap_or_clone)
    }
}

/// One turn of a conversation, to which the caller reports results later. It is cheap to store.
#[derive(Debug, Clone, Default)]
pub struct Turn {
    pub(super) conversation: SharedConversation,
    pub(super) counted: Tokens,
    pub(super) rounds: u64,
    pub(super) worth: Option<Fraction>,
}

impl Turn {
    /// Records the provider's count of input tokens, including cached ones. From then on the provider's count decides
    /// when the list is due, and whether condensing helps: after two condensations that did not help, condensing stops.
    pub fn reported(&self, input: Tokens) {
        if let Some(worth) = self.worth {
            lock(&self.conversation).reported(self, input, worth);
        }
    }

    /// Records that the provider rejected the list as too long; `limit` is the largest input it accepts, in tokens, if
    /// it says so. The next list of this conversation is made to fit.
    pub fn too_long(&self, limit: Option<Tokens>) {
        lock(&self.conversation).too_long(limit);
    }

    /// Waits until the summary in progress for this conversation is finished, and returns its cost. No later report
    /// contains that cost again.
    pub async fn settled(&self) -> Vec<ModelCall> {
        let ended = lock(&self.conversation).in_progress();
        if let Some(mut ended) = ended {
            while ended.changed().await.is_ok() {}
        }
        lock(&self.conversation).take_costs()
    }

    /// Returns the state to store for [`Condenser::resume`](super::Condenser::resume). Of the conversation's text it
    /// contains only the summary.
    pub fn list_state(&self) -> ListState {
        lock(&self.conversation).list.state().clone()
    }
}

/// What was done to a list before a call, and why; also if nothing was done.
///
/// The first nine fields are also in the command's `--report` and the route's `x-epitome-report`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Whether this turn changed the list.
    pub condensed: bool,
    /// Why it did or did not. If it did: `due`, `forced` or `too_long`. If not: the name of a
    /// [`core::condense::Unchanged`](epitome_core::condense::Unchanged), or `model_failed`, `off` or `stopped`.
    pub reason: String,
    /// The strategy that was, or would be, applied.
    pub strategy: String,
    /// Number of messages that would have been sent.
    pub messages_before: u64,
    /// Number of messages that are sent.
    pub messages_after: u64,
    /// Tokens of the request that would have been sent, including tools.
    pub tokens_before: Tokens,
    /// Tokens of the request that is sent, including tools.
    pub tokens_after: Tokens,
    /// The first and the last message of the caller's list, counted from 1, that are no longer sent verbatim.
    pub covers: Option<[Seq; 2]>,
    /// The model that wrote the current summary, if it was written on this turn.
    pub model: Option<String>,
    /// A one-line message for people.
    pub notice: String,
    /// Window of the model that the list is for, minus its output reserve, in tokens, or `None` if unknown.
    pub window: Option<Tokens>,
    /// Percentage of that window that the sent request uses.
    pub percent: Option<u64>,
    /// Whether the summary is only a fallback until the model's summary is ready.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stand_in: bool,
    /// Model calls that ended since the last turn, including failed ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spent: Vec<ModelCall>,
    /// Problems on the way, one line each, without any text of the conversation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

impl Report {
    /// The reason of a report if the model wrote no summary.
    pub const MODEL_FAILED: &'static str = "model_failed";
}

/// One model call, successful or not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelCall {
    /// The name of the model.
    pub model: String,
    /// `kept` if the answer was accepted, or else a word for why it was not used.
    pub outcome: String,
    /// Input tokens.
    pub input: Tokens,
    /// Input tokens that came from the provider's cache.
    pub cached: Tokens,
    /// Output tokens.
    pub output: Tokens,
    /// Cost in millionths of the price unit, unless the price is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<i64>,
    /// Duration in milliseconds.
    pub millis: u64,
}

/// What a condenser has done so far.
///
/// ```
/// use epitome::{Condenser, Totals};
///
/// let condenser = Condenser::builder().build()?;
/// assert_eq!(condenser.totals(), Totals::default());
/// # Ok::<(), epitome::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Number of calls to the condenser.
    pub turns: u64,
    /// Number of times that it shortened a list.
    pub condensed: u64,
    /// Tokens saved, counted once per condensation.
    pub saved: Tokens,
    /// Number of model calls, including failed ones.
    pub calls: u64,
    /// Input tokens of these calls.
    pub input: Tokens,
    /// Output tokens of these calls.
    pub output: Tokens,
    /// Cost of these calls in millionths of the price unit, without calls whose price is unknown.
    pub cost: i64,
}

impl Totals {
    pub(super) fn add(&mut self, report: &Report) {
        self.turns = self.turns.saturating_add(1);
        if report.condensed {
            self.condensed = self.condensed.saturating_add(1);
            let saved = report.tokens_before.saturating_sub(report.tokens_after);
            self.saved = self.saved.saturating_add(saved);
        }
        for spent in &report.spent {
            self.calls = self.calls.saturating_add(1);
            self.input = self.input.saturating_add(spent.input);
            self.output = self.output.saturating_add(spent.output);
            self.cost = self.cost.saturating_add(spent.cost.unwrap_or(0));
        }
    }
}
