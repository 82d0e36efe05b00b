//! Summaries: what is known of them, and what came of a wish for one.

use epitome::{Summarized, Summary};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::super::discreet::discreet;
use super::SpanOut;

/// A summary, and all that is known of it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Summary)]
pub(crate) struct SummaryOut {
    /// Its number in its session.
    pub(crate) id: i64,
    /// Its slot.
    pub(crate) slot: String,
    /// Whose messages it stands for; everybody's where nobody is named.
    pub(crate) scope: Option<String>,
    /// It stands for all its scope's messages up to this one.
    pub(crate) through: u64,
    /// What was new in it.
    pub(crate) span: Option<SpanOut>,
    /// What it says.
    pub(crate) text: String,
    /// How large it is.
    pub(crate) tokens: u64,
    /// The tokens of what it replaced: messages, and the summary before.
    pub(crate) replaced_tokens: u64,
    /// How many messages there were to see before it; a summary counts as one.
    pub(crate) original_count: u64,
    /// How many there are to see with it.
    pub(crate) compressed_count: u64,
    /// By how much that is less, in percent.
    pub(crate) compression_ratio: f64,
    /// How many messages beneath it were skipped.
    pub(crate) skipped: u64,
    /// Who wrote it.
    pub(crate) model: String,
    /// Whether it only stands in for one that a failing model should have written.
    pub(crate) stand_in: bool,
    /// `standing`, `superseded` or `undone`.
    #[schema(value_type = StateName)]
    pub(crate) state: epitome::store::SummaryState,
    /// The one that stood before it, and stands again when this one is undone.
    pub(crate) parent: Option<i64>,
    /// The summary it was built on.
    pub(crate) built_on: Option<i64>,
    /// The message at which it became due.
    pub(crate) fired_at: u64,
    /// What it was to pay attention to most.
    pub(crate) focus: Option<String>,
    /// Names the model left out, and that were added.
    pub(crate) added_names: Vec<String>,
    /// What the model read.
    pub(crate) input_tokens: u64,
    /// What it wrote.
    pub(crate) output_tokens: u64,
    /// In the price table's money; nothing where no price is known.
    pub(crate) cost: Option<f64>,
    /// How long that took.
    pub(crate) millis: u64,
    /// When it was written, in milliseconds since 1970.
    pub(crate) created: i64,
}

/// Whether a summary stands.
#[derive(ToSchema)]
#[schema(as = SummaryState, rename_all = "lowercase")]
#[expect(dead_code, reason = "it is there to be described")]
pub(crate) enum StateName {
    Standing,
    Superseded,
    Undone,
}

impl From<Summary> for SummaryOut {
    fn from(summary: Summary) -> Self {
        Self {
            id: summary.id,
            slot: summary.slot,
            scope: summary.scope.map(|scope| scope.to_string()),
            through: summary.through,
            span: summary.span.map(SpanOut::from),
            text: summary.text,
            tokens: summary.tokens,
            replaced_tokens: summary.replaced_tokens,
            original_count: summary.original_count,
            compressed_count: summary.compressed_count,
            compression_ratio: summary.compression_ratio,
            skipped: summary.skipped,
            model: summary.model,
            stand_in: summary.stand_in,
            state: summary.state,
            parent: summary.parent,
            built_on: summary.built_on,
            fired_at: summary.fired_at,
            focus: summary.focus,
            added_names: summary.added_names,
            input_tokens: summary.input_tokens,
            output_tokens: summary.output_tokens,
            cost: summary.cost,
            millis: summary.millis,
            created: summary.created.0,
        }
    }
}

/// What came of a wish for a summary now.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Summarized)]
pub(crate) struct SummarizedOut {
    pub(crate) status: SummarizedStatus,
    /// The one that was written, or that stands where nothing is new.
    pub(crate) summary: Option<SummaryOut>,
    /// Why it is not written yet, where that is known.
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SummarizedStatus {
    /// Nothing new was said, or all that is new is kept verbatim.
    NothingNew,
    Written,
    /// It will be written.
    Pending,
}

impl From<Summarized> for SummarizedOut {
    fn from(summarized: Summarized) -> Self {
        let (status, summary, reason) = match summarized {
            Summarized::NothingNew { summary } => (SummarizedStatus::NothingNew, summary, None),
            Summarized::Written { summary } => (SummarizedStatus::Written, Some(summary), None),
            Summarized::Pending { reason } => (SummarizedStatus::Pending, None, reason),
        };
        Self { status, summary: summary.map(SummaryOut::from), reason: reason.as_deref().map(discreet) }
    }
}

/// What an undo left.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Undone {
    /// The summary that was taken back.
    pub(crate) undone: i64,
    /// The one that stands again, where there was one before.
    pub(crate) stands: Option<SummaryOut>,
}

/// Whether a slot is written anew.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Rebuilding {
    /// False where there is nothing to summarize.
    pub(crate) rebuilding: bool,
}

/// A summary wanted now.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = Summarize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SummarizeIn {
    /// Which slot; the first where none is named.
    pub(crate) slot: Option<String>,
    /// Whose messages; everybody's where nobody is named.
    pub(crate) scope: Option<String>,
    /// What to pay attention to most.
    #[schema(max_length = 4000)]
    pub(crate) focus: Option<String>,
}
