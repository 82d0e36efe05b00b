//! A summary, all that is known of it, and the events that tell of it.

use epitome_core::message::{Author, Seq, Span, Timestamp, Tokens};
use serde::Serialize;

use crate::event::{Happened, SummaryFailed, SummaryMoved};
use crate::ids::{SummaryId, SummaryState};
use crate::price::Money;
use crate::store::{SlotRow, SummaryRow};

// fields: one flat record, printed and served as it is.
/// A summary and its facts. It serializes to plain JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Its number.
    pub id: SummaryId,
    /// Which slot's it is.
    pub slot: String,
    /// Whose messages it stands for; everybody's where nobody is named.
    pub scope: Option<Author>,
    /// It stands for all its scope's messages up to this one.
    pub through: Seq,
    /// What was new in it: the messages read for it, beside the summary it was built on.
    pub span: Option<Span>,
    /// Its text.
    pub text: String,
    /// The tokens of its text.
    pub tokens: Tokens,
    /// The tokens of what it replaced: messages, and the summary before.
    pub replaced_tokens: Tokens,
    /// How many messages there were to see before it; a summary counts as one.
    pub original_count: u64,
    /// How many there are with it: the recent ones that were kept, and itself.
    pub compressed_count: u64,
    /// By how much that is less, in percent.
    pub compression_ratio: f64,
    /// How many messages of its span were skipped.
    pub skipped: u64,
    /// Who wrote it.
    pub model: String,
    /// Whether it only stands in for one that a failing model should have written.
    pub stand_in: bool,
    /// Whether it stands, was superseded or undone.
    pub state: SummaryState,
    /// The one that stood before it, and stands again when this one is undone.
    pub parent: Option<SummaryId>,
    /// The one it was built on. Another than the parent where that was a stand-in, or this was rebuilt.
    pub built_on: Option<SummaryId>,
    /// The message at which it became due.
    pub fired_at: Seq,
    /// What whoever asked for it cared about most.
    pub focus: Option<String>,
    /// Names the model left out, and that were added.
    pub added_names: Vec<String>,
    /// Tokens sent for it, over all calls.
    pub input_tokens: Tokens,
    /// Tokens that came back, over all calls.
    pub output_tokens: Tokens,
    /// What it cost, in the price table's money; nothing where no price is known.
    pub cost: Option<f64>,
    /// How long it took to write, in milliseconds.
    pub millis: u64,
    /// When it was kept.
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

impl Happened {
    /// This summary was kept or taken back, and that one stands in its slot now.
    pub(crate) fn moved(row: &SummaryRow, state: SummaryState, stands: Option<SummaryId>) -> Self {
        Self::Summary(SummaryMoved {
            summary: row.id,
            slot: row.slot.as_str().into(),
            scope: row.scope.clone().into(),
            through: row.through,
            model: row.facts.model.as_str().into(),
            stand_in: row.facts.stand_in,
            state,
            stands,
        })
    }

    /// A slot's summary failed, as its row says.
    pub(crate) fn failed(row: &SlotRow) -> Self {
        Self::Failed(SummaryFailed {
            slot: row.name.as_str().into(),
            scope: row.scope.clone().into(),
            attempts: row.work.attempts,
            reason: row.work.last_error.clone().unwrap_or_default(),
            not_before: row.work.not_before,
        })
    }
}

/// By how much less `after` is, in percent, to a tenth: 8 → 5 is 37.5.
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
    fn the_ratio_is_the_documents() {
        assert_eq!([ratio(8, 5), ratio(13, 5), ratio(39, 5), ratio(0, 1)], [37.5, 61.5, 87.2, 0.0]);
    }
}
