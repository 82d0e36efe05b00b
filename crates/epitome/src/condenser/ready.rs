//! Defines the result of condensing before a model call: the list to send, a report, and a [`Turn`]. After the call,
//! the caller passes the provider's token count or rejection to the [`Turn`].

use std::ops::Deref;
use std::sync::Arc;

use epitome_core::condense::ListState;
use epitome_core::message::{Message, Seq, Tokens};
use epitome_core::trigger::Fraction;
use serde::{Deserialize, Serialize};

use super::SharedConversation;
use crate::lock::lock;

/// The list to send, and a report of what was done to the list. Dereferences to the list.
///
/// Drop this value before the next turn. Otherwise the next turn must copy the list.
#[derive(Debug)]
pub struct ReadyList<'a> {
    /// The caller's own list.
    pub(super) own: &'a [Message],
    /// The condensed list, which is sent instead. `None` if the caller's own list is sent.
    pub(super) condensed: Option<Arc<Vec<Message>>>,
    /// What was done to the list and why, or why nothing was done.
    pub report: Report,
    /// Size in tokens of the whole request if the conversation had never been condensed. If the provider has reported
    /// token counts, this is an estimate of the provider's count; otherwise it is the local count. If condensing is
    /// switched off, the list is not counted, and this is only the size of the request without the list.
    pub full: Tokens,
    /// Size in tokens of the request that is sent, counted in the same way as `full`.
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

    /// Returns the turn. After the call, the caller passes the provider's token count or rejection to the turn.
    pub fn turn(&self) -> Turn {
        self.turn.clone()
    }

    /// Returns the list as an owned value.
    pub fn into_messages(self) -> Vec<Message> {
        self.condensed.map_or_else(|| self.own.to_vec(), Arc::unwrap_or_clone)
    }
}

/// One turn of a conversation. After the turn's model call, the caller reports the provider's token count with
/// [`Turn::reported`], or the provider's rejection with [`Turn::too_long`]. A turn is small, so a caller can store it
/// until then.
#[derive(Debug, Clone, Default)]
pub struct Turn {
    pub(super) conversation: SharedConversation,
    pub(super) counted: Tokens,
    pub(super) rounds: u64,
    pub(super) worth: Option<Fraction>,
}

impl Turn {
    /// Records the provider's count of input tokens, including cached tokens. From then on, the condenser uses the
    /// provider's count to decide whether a condensation is due, and whether the last condensation saved enough tokens.
    /// After two condensations in a row that saved too few tokens, condensing stops.
    pub fn reported(&self, input: Tokens) {
        if let Some(worth) = self.worth {
            lock(&self.conversation).reported(self, input, worth);
        }
    }

    /// Records that the provider rejected the list as too long. `limit` is the largest input that the provider accepts,
    /// in tokens; `None` if the provider did not report it. The condenser then shortens the next list of this
    /// conversation.
    pub fn too_long(&self, limit: Option<Tokens>) {
        lock(&self.conversation).too_long(limit);
    }

    /// Waits until the summary in progress for this conversation is finished, and returns the model calls for this
    /// summary. No later report contains these calls again.
    pub async fn settled(&self) -> Vec<ModelCall> {
        let ended = lock(&self.conversation).in_progress();
        if let Some(mut ended) = ended {
            while ended.changed().await.is_ok() {}
        }
        lock(&self.conversation).take_costs()
    }

    /// Returns the state to store for [`Condenser::resume`](super::Condenser::resume). Of the conversation's text, the
    /// state contains only the summary.
    pub fn list_state(&self) -> ListState {
        lock(&self.conversation).list.state().clone()
    }
}

/// What was done to a list before a call and why, or why nothing was done.
///
/// `epitome condense --report` writes this report. The route `POST /v1/condense` returns it in the header
/// `x-epitome-report`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Whether this turn changed the list.
    pub condensed: bool,
    /// Why this turn did or did not change the list. If it did: `due`, `forced` or `too_long`. If it did not: the name
    /// of a [`core::condense::Unchanged`](epitome_core::condense::Unchanged), `off` or `stopped`. `model_failed` means
    /// that the model wrote no summary. The list is then unchanged, or only the steps without a model were done.
    pub reason: String,
    /// The strategy that was applied. If the list is unchanged: the configured strategy.
    pub strategy: String,
    /// Number of messages that would have been sent without this turn's condensation.
    pub messages_before: u64,
    /// Number of messages that are sent.
    pub messages_after: u64,
    /// Tokens of the request that would have been sent without this turn's condensation, including tool definitions.
    pub tokens_before: Tokens,
    /// Tokens of the request that is sent, including tool definitions.
    pub tokens_after: Tokens,
    /// Positions in the caller's list, from 1, of the first and the last message that are no longer sent verbatim.
    /// `None` if this turn did not change the list.
    pub covers: Option<[Seq; 2]>,
    /// The model that wrote the summary. `None` if no new summary was inserted on this turn.
    pub model: Option<String>,
    /// A one-line message for people.
    pub notice: String,
    /// Window of the model that receives the list, minus the model's output reserve, in tokens. `None` if unknown.
    pub window: Option<Tokens>,
    /// Percentage of `window` that the sent request uses. `None` if `window` is unknown.
    pub percent: Option<u64>,
    /// Whether `local` wrote the summary as a fallback, because the model's summary was not ready.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stand_in: bool,
    /// Model calls that ended since the previous report, including failed calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spent: Vec<ModelCall>,
    /// Problems since the previous report, one line for each problem. They contain no text of the conversation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

impl Report {
    /// The value of [`Report::reason`] if the model wrote no summary.
    pub const MODEL_FAILED: &'static str = "model_failed";
}

/// One model call, successful or not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelCall {
    /// The name of the model.
    pub model: String,
    /// `kept` if the answer was accepted. Otherwise a word for the reason why the answer was not used.
    pub outcome: String,
    /// Input tokens.
    pub input: Tokens,
    /// Input tokens that the provider read from its cache.
    pub cached: Tokens,
    /// Output tokens.
    pub output: Tokens,
    /// Cost in millionths of the currency unit. `None` if the price is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<i64>,
    /// Duration in milliseconds.
    pub millis: u64,
}

/// Sums over all calls to a condenser.
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
    /// Number of calls on which the condenser shortened a list.
    pub condensed: u64,
    /// Tokens that condensations removed. Each condensation is counted once, although it also makes later requests
    /// smaller.
    pub saved: Tokens,
    /// Number of model calls, including failed ones.
    pub calls: u64,
    /// Input tokens of the model calls.
    pub input: Tokens,
    /// Output tokens of the model calls.
    pub output: Tokens,
    /// Cost of the model calls in millionths of the currency unit. Calls with an unknown price are not included.
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
