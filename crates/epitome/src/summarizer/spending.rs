//! What the calls for a summary cost, until the caller has recorded it.

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

/// Outcome of a call whose answer was accepted, but that led to no summary: the lease was lost, for example.
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
    /// Returns what hooks receive about messages that are about to be summarized.
    pub(crate) fn due_messages(&self, span: Span, messages: Arc<[Message]>) -> DueMessages {
        let Self { workspace, session, slot, scope } = self.clone();
        DueMessages { workspace, session, slot, scope, span, messages }
    }

    /// Returns the record of one call.
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

/// The cost of a summary so far: calls that are not recorded yet, and the sums over all calls.
#[derive(Default)]
pub(crate) struct Spending {
    pub(crate) unrecorded: Vec<UsageRow>,
    /// The call in progress, and when it began. It is recorded like this if it is dropped before it ends.
    pub(super) in_progress: Option<(UsageRow, Instant)>,
    pub(crate) input: Tokens,
    pub(crate) output: Tokens,
    pub(crate) cost: Option<i64>,
    pub(crate) millis: u64,
    /// Models that failed to write the summary, with the reason; first choice first.
    pub(crate) model_failures: Vec<String>,
    /// Problems of the hooks.
    pub(crate) hook_problems: Vec<String>,
    /// Money reserved for calls that are not recorded yet.
    reserved: Vec<SpendReservation>,
    /// Models that failed, with the failure. They are not called again for the same window in smaller pieces.
    pub(crate) failed_models: HashMap<String, Failure>,
    /// Whether earlier steps of the same summary were paid for.
    pub(super) paid: bool,
}

impl Spending {
    /// Returns all calls for the case that no summary was stored: accepted answers become unused ones.
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

    /// Notes the start of a call, with the row to record if it is dropped.
    pub(super) fn call_started(&mut self, dropped: UsageRow) {
        self.in_progress = Some((dropped, Instant::now()));
    }

    /// Adds a finished call. Its reservation is replaced by its real cost until that is recorded.
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

/// Returns the provider's token counts, or our own if it reports none.
pub(super) fn usage_of(request: &SummaryRequest, reply: &Reply) -> TokenUsage {
    let counted =
        || TokenUsage { input: request.replaces, cached: 0, output: request.counter.text(&reply.text) };
    reply.usage.unwrap_or_else(counted)
}

/// Returns the maximum tokens of a call.
pub(super) fn max_usage(request: &SummaryRequest) -> TokenUsage {
    // A character is at most one token.
    let (Limit::Tokens(output) | Limit::Chars(output)) = request.limit;
    TokenUsage { input: request.replaces.saturating_add(PROMPT_OVERHEAD), cached: 0, output }
}
