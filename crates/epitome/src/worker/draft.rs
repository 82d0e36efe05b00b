//! A summary on its way: what it is built on, and what came of it.

use std::collections::HashMap;
use std::sync::Arc;

use epitome_core::ledger::Ledger;
use epitome_core::local::Extracts;
use epitome_core::message::{Seq, Tokens};

use crate::engine::Reserved;
use crate::measure::KEPT;
use crate::retry::Failure;
use crate::store::{Sources, SummaryId, SummaryRow, UsageRow};

/// What the next summary is built on.
#[derive(Clone, Default)]
pub(super) struct Base {
    /// It stands for everything up to here; 0 where there is nothing.
    pub(super) through: Seq,
    /// Its number, where it is stored.
    pub(super) id: Option<SummaryId>,
    pub(super) text: Option<Arc<str>>,
    pub(super) tokens: Tokens,
    pub(super) extracts: Option<Arc<Extracts>>,
    pub(super) ledger: Option<Ledger>,
}

impl Base {
    /// The names known so far.
    pub(super) fn ledger(&self) -> Ledger {
        match (&self.ledger, &self.extracts, &self.text) {
            (Some(ledger), _, _) => ledger.clone(),
            (None, Some(extracts), _) => extracts.ledger().clone(),
            (None, None, Some(text)) => Extracts::of_text(text, self.through).ledger().clone(),
            (None, None, None) => Ledger::default(),
        }
    }
}

impl From<SummaryRow> for Base {
    fn from(row: SummaryRow) -> Self {
        let Sources { extracts, ledger } = row.sources();
        Self {
            through: row.through,
            id: Some(row.id),
            text: Some(row.text.into()),
            tokens: row.facts.tokens,
            extracts: extracts.map(Arc::new),
            ledger,
        }
    }
}

/// A summary that passed inspection.
pub(super) struct Draft {
    pub(super) text: String,
    pub(super) tokens: Tokens,
    /// Who wrote it.
    pub(super) model: String,
    pub(super) sources: Sources,
    /// Names that were missing, and were added.
    pub(super) added: Vec<String>,
    /// What its model was asked, hashed, where that is worth knowing.
    pub(super) asked: Option<String>,
}

impl Draft {
    /// What the next one is built on, when this one is not stored but only a step on the way.
    pub(super) fn base(self, through: Seq) -> Base {
        Base {
            through,
            id: None,
            tokens: self.tokens,
            text: Some(self.text.into()),
            extracts: self.sources.extracts.map(Arc::new),
            ledger: self.sources.ledger,
        }
    }
}

/// What is recorded of a call whose answer passed, where no summary came of it after all: the lease was lost, say.
const UNUSED: &str = "unused";

/// What was spent on a summary so far: calls not yet recorded, and the sums over all of them.
#[derive(Default)]
pub(super) struct Spent {
    pub(super) unrecorded: Vec<UsageRow>,
    /// The call under way: recorded as it is here when nobody waits for it to end.
    pub(super) under_way: Option<UsageRow>,
    pub(super) input: Tokens,
    pub(super) output: Tokens,
    pub(super) cost: Option<i64>,
    pub(super) millis: u64,
    /// Who should have written it and did not, in words; first choice first.
    pub(super) missed: Vec<String>,
    /// Money set aside for calls that are not recorded yet.
    pub(super) reserved: Vec<Reserved>,
    /// Models that failed already, and how: they are not asked again for the same window in smaller pieces.
    pub(super) down: HashMap<String, Failure>,
}

impl Spent {
    /// What is to be recorded although no summary was kept: whatever passed was of no use.
    pub(super) fn in_vain(&self) -> Vec<UsageRow> {
        let mut rows: Vec<UsageRow> = self.unrecorded.iter().chain(&self.under_way).cloned().collect();
        for row in rows.iter_mut().filter(|row| row.outcome == KEPT) {
            row.outcome = UNUSED.to_owned();
        }
        rows
    }

    pub(super) fn add(&mut self, row: UsageRow) {
        self.input = self.input.saturating_add(row.input);
        self.output = self.output.saturating_add(row.output);
        self.millis = self.millis.saturating_add(row.millis);
        if let Some(cost) = row.cost {
            self.cost = Some(self.cost.unwrap_or(0).saturating_add(cost));
        }
        self.unrecorded.push(row);
    }
}
