//! What was done to a list, and what it cost.

use epitome_core::message::{Seq, Tokens};
use serde::{Deserialize, Serialize};

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
    pub(super) fn add(&mut self, spent: &Spent) {
        self.calls = self.calls.saturating_add(1);
        self.input = self.input.saturating_add(spent.input);
        self.output = self.output.saturating_add(spent.output);
        self.cost = self.cost.saturating_add(spent.cost.unwrap_or(0));
    }
}
