//! A summary with its metadata, and the events that report summaries.

use epitome_core::message::{Author, Seq, Span, Timestamp, Tokens};
use serde::Serialize;

use crate::event::{EventBody, SummaryChanged, SummaryFailed};
use crate::ids::{SummaryId, SummaryState};
use crate::price::Money;
use crate::store::{SlotRow, SummaryRow};

// fields: one flat record, printed and served as it is.
/// A summary with its metadata. It serializes to plain JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// The summary's id.
    pub id: SummaryId,
    /// The slot.
    pub slot: String,
    /// The author whose messages the summary covers; `None` for all messages.
    pub scope: Option<Author>,
    /// The last message that the summary covers. The summary covers all messages of its scope up to this message.
    pub through: Seq,
    /// The messages that were read to write this summary. Earlier messages are covered because this summary continues
    /// the text of an earlier summary (`built_on`).
    pub span: Option<Span>,
    /// The text of the summary.
    pub text: String,
    /// Number of tokens of `text`.
    pub tokens: Tokens,
    /// Number of tokens that the summary replaced: the tokens of the messages and of the previous summary.
    pub replaced_tokens: Tokens,
    /// Number of messages without this summary: the messages that the previous summary does not cover, and 1 for the
    /// previous summary.
    pub original_count: u64,
    /// Number of messages with this summary: the messages that stay verbatim, and 1 for the summary.
    pub compressed_count: u64,
    /// By how many percent `compressed_count` is smaller than `original_count`.
    pub compression_ratio: f64,
    /// Number of messages in `span` that the summary leaves out because they have the skip flag.
    pub skipped: u64,
    /// The model that wrote the summary.
    pub model: String,
    /// Whether the summary is a fallback summary, which `local` wrote because the configured models failed.
    pub stand_in: bool,
    /// Whether the summary is current, superseded or undone.
    pub state: SummaryState,
    /// The previous summary of the slot, which becomes current again if this summary is undone.
    pub parent: Option<SummaryId>,
    /// The summary whose text this summary continues. It differs from `parent` if the parent is a fallback summary, or
    /// if this summary was rebuilt from the first message on.
    pub built_on: Option<SummaryId>,
    /// The message at which the summary became due.
    pub fired_at: Seq,
    /// The topic on which the summary should focus; `None` if the request for the summary named no topic.
    pub focus: Option<String>,
    /// Names that were missing in the model's text. Epitome added these names to the text.
    pub added_names: Vec<String>,
    /// Tokens sent to models for this summary, over all calls.
    pub input_tokens: Tokens,
    /// Tokens received from models for this summary, over all calls.
    pub output_tokens: Tokens,
    /// What the model calls cost, in the currency of the prices; `None` if no model had a price.
    pub cost: Option<f64>,
    /// How long the summary took to write, in milliseconds.
    pub millis: u64,
    /// When the summary was stored.
    pub created: Timestamp,
}

impl From<SummaryRow> for Summary {
    fn from(row: SummaryRow) -> Self {
        let facts = row.facts;
        Self {
            id: row.id,
            slot: row.slot,
            scope: row.scope.into(),
            through: row.through,
            span: Span::new(facts.from, row.through),
            text: row.text,
            tokens: facts.tokens,
            replaced_tokens: facts.replaced,
            original_count: facts.original_count,
            compressed_count: facts.compressed_count,
            compression_ratio: ratio(facts.original_count, facts.compressed_count),
            skipped: facts.skipped,
            model: facts.model,
            stand_in: facts.stand_in,
            state: row.state,
            parent: row.parent,
            built_on: facts.built_on,
            fired_at: facts.firing,
            focus: facts.focus,
            added_names: facts.added,
            input_tokens: facts.input,
            output_tokens: facts.output,
            cost: facts.cost.map(|cost| Money::millionths(cost).get()),
            millis: facts.millis,
            created: row.created,
        }
    }
}

impl EventBody {
    /// Creates the event for a summary that was stored or undone. `current` is the id of the slot's current summary
    /// after the change.
    pub(crate) fn summary_changed(row: &SummaryRow, state: SummaryState, current: Option<SummaryId>) -> Self {
        Self::Summary(SummaryChanged {
            summary: row.id,
            slot: row.slot.as_str().into(),
            scope: row.scope.clone().into(),
            through: row.through,
            model: row.facts.model.as_str().into(),
            stand_in: row.facts.stand_in,
            state,
            current,
        })
    }

    /// Creates the event for a failed summary from the row of its slot.
    pub(crate) fn summary_failed(row: &SlotRow) -> Self {
        Self::Failed(SummaryFailed {
            slot: row.name.as_str().into(),
            scope: row.scope.clone().into(),
            attempts: row.work.attempts,
            reason: row.work.last_error.clone().unwrap_or_default(),
            not_before: row.work.not_before,
        })
    }
}

/// Returns by how many percent `after` is less than `before`, rounded to a tenth. For 8 and 5, the result is 37.5.
#[expect(clippy::cast_precision_loss, reason = "counts of messages are far below 2^52")]
fn ratio(before: u64, after: u64) -> f64 {
    if before == 0 {
        return 0.0;
    }
    let percent = (1.0 - after as f64 / before as f64) * 100.0;
    (percent * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_matches_the_documented_examples() {
        assert_eq!([ratio(8, 5), ratio(13, 5), ratio(39, 5), ratio(0, 1)], [37.5, 61.5, 87.2, 0.0]);
    }
}
