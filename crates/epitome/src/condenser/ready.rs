//! What a caller gets before its call: the list, what was done to it and what that cost. And what it may say after it.

use std::ops::Deref;
use std::sync::Arc;

use epitome_core::condense::Standing;
use epitome_core::message::{Message, Seq, Tokens};
use epitome_core::trigger::Fraction;
use serde::{Deserialize, Serialize};

use super::Shared;
use crate::lock::lock;

/// The list to be sent, and what was done to it. It reads as the list.
///
/// Let go of it before the next turn: what is still held then has to be copied.
#[derive(Debug)]
pub struct Ready<'a> {
    /// The caller's own list.
    pub(super) own: &'a [Message],
    /// What is sent in its place.
    pub(super) condensed: Option<Arc<Vec<Message>>>,
    /// What was done, also where that is nothing.
    pub report: Report,
    /// The size of the whole request had nothing ever been condensed, as the provider would count it as far as that is
    /// known. Where condensing is off nobody counts, and this is what comes besides the list.
    pub full: Tokens,
    /// The same of the request that is sent.
    pub sent: Tokens,
    pub(super) turn: Turn,
}

impl Deref for Ready<'_> {
    type Target = [Message];

    fn deref(&self) -> &[Message] {
        self.condensed.as_deref().map_or(self.own, Vec::as_slice)
    }
}

impl Ready<'_> {
    /// Whether it is the caller's own list, untouched.
    pub fn is_untouched(&self) -> bool {
        self.condensed.is_none()
    }

    /// The turn it is for, to say what became of it.
    pub fn turn(&self) -> Turn {
        self.turn.clone()
    }

    /// The list itself, to be kept.
    pub fn into_messages(self) -> Vec<Message> {
        self.condensed.map_or_else(|| self.own.to_vec(), Arc::unwrap_or_clone)
    }
}

/// One turn, for what its caller learns of it later. Cheap to keep.
#[derive(Debug, Clone, Default)]
pub struct Turn {
    pub(super) conversation: Shared,
    pub(super) counted: Tokens,
    pub(super) rounds: u64,
    pub(super) worth: Option<Fraction>,
}

impl Turn {
    /// The provider counted so many tokens of input, cached ones included. From then on its count decides when the list is
    /// due, and whether condensing helps: after two passes that did not, no more are made.
    pub fn reported(&self, input: Tokens) {
        if let Some(worth) = self.worth {
            lock(&self.conversation).reported(self, input, worth);
        }
    }

    /// The provider found the list too long, and takes at most `limit` tokens of input where it says so. The next list of
    /// this conversation is made to fit.
    pub fn too_long(&self, limit: Option<Tokens>) {
        lock(&self.conversation).too_long(limit);
    }

    /// Waits until what is being written for this conversation is there, and takes what that cost: no report tells it
    /// again.
    pub async fn settled(&self) -> Vec<Spent> {
        let ended = lock(&self.conversation).under_way();
        if let Some(mut ended) = ended {
            while ended.changed().await.is_ok() {}
        }
        lock(&self.conversation).paid()
    }

    /// All that must be kept for [`Condenser::resume`](super::Condenser::resume), without a word of the history but the summary.
    pub fn standing(&self) -> Standing {
        lock(&self.conversation).list.standing().clone()
    }
}

/// What was done to a list before a call, and why; also where nothing was.
///
/// The first nine fields are those of the command's `--report` and of the route's `x-epitome-report`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Whether the list is another than before this turn.
    pub condensed: bool,
    /// Why it is or is not: `due`, `forced`, `too_long` where it is; the name of a
    /// [`core::condense::Unchanged`](epitome_core::condense::Unchanged), `model_failed`, `off` or `stopped` where
    /// it is not.
    pub reason: String,
    /// By which means it was, or would be.
    pub strategy: String,
    /// How many messages would have been sent.
    pub messages_before: u64,
    /// How many are.
    pub messages_after: u64,
    /// The tokens of the request that would have been sent, tools included.
    pub tokens_before: Tokens,
    /// Those of the one that is.
    pub tokens_after: Tokens,
    /// The first and the last message of the caller's list, from 1, that are no longer there word for word.
    pub covers: Option<[Seq; 2]>,
    /// Who wrote the summary that stands, where one was written this time.
    pub model: Option<String>,
    /// The same for people, in one line.
    pub notice: String,
    /// The window of the model the list is for, less its output reserve, where known.
    pub window: Option<Tokens>,
    /// How much of that is used by what is sent.
    pub percent: Option<u64>,
    /// Whether the summary only stands in until the model's is there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stand_in: bool,
    /// Calls of models that ended since the last turn, failed ones too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spent: Vec<Spent>,
    /// What went wrong on the way, a line each, without a word of the conversation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

impl Report {
    /// The reason of a report where the model gave no summary.
    pub const MODEL_FAILED: &'static str = "model_failed";
}

/// One call of a model, whatever came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// Which model.
    pub model: String,
    /// `kept`, or in a word why not.
    pub outcome: String,
    /// What went in.
    pub input: Tokens,
    /// The part of it that came from a cache.
    pub cached: Tokens,
    /// What came out.
    pub output: Tokens,
    /// What it cost, where the price is known, in millionths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<i64>,
    /// How long it took.
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
    /// How often it was asked.
    pub turns: u64,
    /// How often it made a list shorter.
    pub condensed: u64,
    /// By how many tokens, each time counted once.
    pub saved: Tokens,
    /// Calls of models, failed ones too.
    pub calls: u64,
    /// What went into them.
    pub input: Tokens,
    /// What came out.
    pub output: Tokens,
    /// What they cost, where the price is known, in millionths.
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
