//! Collects the cost of the calls for a summary, until the caller has recorded the cost.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use epitome_core::message::{Author, Message, Span, Timestamp, Tokens};
use epitome_core::slot::Limit;

use super::PROMPT_OVERHEAD;
use crate::hook::DueMessages;
use crate::metrics::ACCEPTED;
use crate::model::{Reply, SummaryRequest, TokenUsage};
use crate::named_model::NamedModel;
use crate::retry::Failure;
use crate::settings::Settings;
use crate::spend_reservations::SpendReservation;
use crate::store::UsageRow;

/// Outcome of a call that was dropped before it ended.
pub(super) const DROPPED: &str = "dropped";

/// Outcome of a call whose answer was accepted, although no summary was stored. This happens, for example, if the lease
/// is lost.
const UNUSED: &str = "unused";

/// The names under which calls are recorded and hooks are notified.
#[derive(Clone)]
pub(crate) struct Label {
    pub(crate) workspace: Arc<str>,
    pub(crate) session: Arc<str>,
    pub(crate) slot: Arc<str>,
    pub(crate) scope: Option<Author>,
}

impl Label {
    /// Returns the value that hooks receive before messages are summarized.
    pub(crate) fn due_messages(&self, span: Span, messages: Arc<[Message]>) -> DueMessages {
        let Self { workspace, session, slot, scope } = self.clone();
        DueMessages { workspace, session, slot, scope, span, messages }
    }

    /// Returns the usage record of one call.
    pub(super) fn row(
        &self,
        writer: &NamedModel,
        settings: &Settings,
        outcome: &str,
        usage: &TokenUsage,
    ) -> UsageRow {
        UsageRow {
            workspace: self.workspace.to_string(),
            session: self.session.to_string(),
            scope: self.scope.as_deref().unwrap_or_default().to_owned(),
            slot: self.slot.to_string(),
            model: writer.model.name().to_owned(),
            outcome: outcome.to_owned(),
            input: usage.input,
            cached: usage.cached,
            output: usage.output,
            cost: writer.price(settings).map(|price| price.cost(usage).to_millionths()),
            millis: 0,
            at: Timestamp(0),
        }
    }
}

/// The cost of a summary so far: the calls that are not recorded yet, and the sums over all calls.
#[derive(Default)]
pub(crate) struct Spending {
    pub(crate) unrecorded: Vec<UsageRow>,
    /// The call in progress, and the time at which it began. If the call is dropped before it ends, this row is
    /// recorded.
    pub(super) in_progress: Option<(UsageRow, Instant)>,
    pub(crate) input: Tokens,
    pub(crate) output: Tokens,
    pub(crate) cost: Option<i64>,
    pub(crate) millis: u64,
    /// One line for each model that failed to write the summary, with the reason, in the order of the failures.
    pub(crate) model_failures: Vec<String>,
    /// Problems of the hooks.
    pub(crate) hook_problems: Vec<String>,
    /// Money reserved for calls that are not recorded yet.
    reserved: Vec<SpendReservation>,
    /// The failures of models, by the model's name. These models are not called again for the same summary, not even
    /// with fewer messages.
    pub(crate) failed_models: HashMap<String, Failure>,
    /// Whether calls for earlier steps of the same summary were made. These calls may have cost money.
    pub(super) paid: bool,
}

impl Spending {
    /// Returns the records of all calls, including a call in progress, for the case that no summary was stored. The
    /// outcome of accepted answers becomes `unused`.
    pub(crate) fn rows_without_summary(&self) -> Vec<UsageRow> {
        let stopped = self.in_progress.as_ref().map(|(row, begun)| UsageRow {
            millis: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            ..row.clone()
        });
        let mut rows: Vec<UsageRow> = self.unrecorded.iter().cloned().chain(stopped).collect();
        for row in rows.iter_mut().filter(|row| row.outcome == ACCEPTED) {
            row.outcome = UNUSED.to_owned();
        }
        rows
    }

    /// Stores the start of a call. `dropped` is the row to record if the call is dropped before it ends.
    pub(super) fn call_started(&mut self, dropped: UsageRow) {
        self.in_progress = Some((dropped, Instant::now()));
    }

    /// Adds a finished call. The real cost of the call replaces the reserved amount, and stays reserved until it is
    /// recorded.
    pub(super) fn call_ended(&mut self, row: UsageRow, reserved: Option<SpendReservation>) {
        self.input = self.input.saturating_add(row.input);
        self.output = self.output.saturating_add(row.output);
        self.millis = self.millis.saturating_add(row.millis);
        if let Some(cost) = row.cost {
            self.cost = Some(self.cost.unwrap_or(0).saturating_add(cost));
        }
        if let Some(mut reserved) = reserved {
            reserved.settle(row.cost.unwrap_or(0));
            self.reserved.push(reserved);
        }
        self.unrecorded.push(row);
    }
}

/// Returns the provider's token counts. If the provider reports none, returns local counts.
pub(super) fn usage_of(request: &SummaryRequest, reply: &Reply) -> TokenUsage {
    let counted =
        || TokenUsage { input: request.replaces, cached: 0, output: request.counter.text(&reply.text) };
    reply.usage.unwrap_or_else(counted)
}

/// Returns the maximum token counts of a call.
pub(super) fn max_usage(request: &SummaryRequest) -> TokenUsage {
    // Assumes at most one token for each character.
    let (Limit::Tokens(output) | Limit::Chars(output)) = request.limit;
    TokenUsage { input: request.replaces.saturating_add(PROMPT_OVERHEAD), cached: 0, output }
}
