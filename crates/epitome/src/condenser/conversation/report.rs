//! Builds the report of a turn for the caller, and collects removed messages for hooks.

use std::collections::VecDeque;
use std::mem::take;
use std::sync::Arc;

use epitome_core::condense::{self, ListState, Press, Unchanged};
use epitome_core::economic::Growth;
use epitome_core::local::Extracts;
use epitome_core::message::{Message, Seq, Tokens};
use epitome_core::tokens::Factor;
use serde::{Deserialize, Serialize};

use super::background::{Progress, UnreadMessages};
use super::{Conversation, DecisionInput, Rules};
use crate::condenser::list_summarizer::WrittenSummary;
use crate::condenser::ready::{ModelCall, Report};
use crate::fingerprint::MessageFingerprints;
use crate::hook::grouped;
use crate::named_model::ModelChoice;

/// Maximum number of problems that are stored until the next report.
const MAX_PROBLEMS: usize = 32;

/// Data that the next report will contain.
#[derive(Default)]
pub(super) struct PendingReport {
    spent: Vec<ModelCall>,
    problems: VecDeque<String>,
    /// The messages that all earlier condensations removed or masked.
    pub(super) removed: RemovedMessages,
}

/// The state of a [`Thread`](super::super::Thread). A caller stores this state to continue the thread later. The state
/// contains the effect of all condensations, and what the condenser learned from the provider's token counts. Of the
/// conversation's text, it contains only summaries and their extracts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadState {
    /// The effect of all condensations of the list.
    #[serde(rename = "standing")]
    pub list: ListState,
    /// The material from which `local` can extend the summary: sentences, and names of the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) extracts: Option<Arc<Extracts>>,
    #[serde(default)]
    growth: Growth,
    #[serde(default)]
    factor: Factor,
    /// The largest input in tokens that the provider accepts. `None` until the provider reports this limit in a
    /// rejection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    room: Option<Tokens>,
    /// The messages that the model has not read yet. `None` if no fallback summary is in use.
    #[serde(rename = "untold", default, skip_serializing_if = "Option::is_none")]
    unread: Option<UnreadMessages>,
}

/// The messages that condensations removed from the list or masked.
#[derive(Default)]
pub(super) struct RemovedMessages {
    /// Messages up to this position were removed, except the messages in `front`.
    from: Seq,
    /// Tool results up to this position were masked.
    masked: Seq,
    front: Vec<Seq>,
}

impl Conversation {
    /// Stores spending and problems for the next report.
    pub(in crate::condenser) fn add_to_report(&mut self, spent: Vec<ModelCall>, problems: Vec<String>) {
        self.pending_report.spent.extend(spent);
        self.pending_report.problems.extend(problems);
        let excess = self.pending_report.problems.len().saturating_sub(MAX_PROBLEMS);
        self.pending_report.problems.drain(..excess);
    }

    /// Returns the report of a list that stays unchanged.
    pub(super) fn unchanged(&mut self, why: &Unchanged, input: &DecisionInput<'_>) -> Report {
        let addition = if *why == Unchanged::NotDue { String::new() } else { format!("; unchanged: {why}") };
        self.unchanged_report(why.name(), &addition, input)
    }

    pub(super) fn model_failed(&mut self, input: &DecisionInput<'_>) -> Report {
        self.unchanged_report(Report::MODEL_FAILED, "; unchanged: the model wrote no summary", input)
    }

    /// Returns the report of an unchanged list. `addition` is appended to the notice.
    pub(super) fn unchanged_report(
        &mut self,
        reason: &str,
        addition: &str,
        input: &DecisionInput<'_>,
    ) -> Report {
        let DecisionInput { rules, facts, .. } = input;
        let tokens = self.list.request(facts);
        let messages = self.list.shown_len() as u64;
        Report {
            condensed: false,
            reason: reason.to_owned(),
            strategy: rules.policy.strategy.to_string(),
            messages_before: messages,
            messages_after: messages,
            tokens_before: tokens,
            tokens_after: tokens,
            notice: format!("{}{addition}", used(tokens, facts.room)),
            window: facts.room,
            percent: percent(tokens, facts.room),
            spent: take(&mut self.pending_report.spent),
            problems: self.pending_report.problems.drain(..).collect(),
            ..Report::default()
        }
    }

    /// Returns the report of a list that was shortened.
    pub(super) fn condensed(
        &mut self,
        done: condense::CondenseReport,
        written: Option<(&WrittenSummary, ModelChoice)>,
        before: Tokens,
        input: &DecisionInput<'_>,
    ) -> Report {
        let facts = &input.facts;
        let reason = match (self.sizes.too_long, facts.force) {
            (true, _) | (_, Some(Press::Hard)) => "too_long",
            (_, Some(Press::Gently)) => "forced",
            _ => "due",
        };
        self.version = self.version.wrapping_add(1);
        self.sizes.condensed(before, self.list.state().rounds);
        (self.pauses.retry_at, self.pauses.prepare_at) = (None, None);
        if let Some((written, _)) = written {
            self.extracts = written.extracts.clone();
        }
        let report = self.unchanged_report(reason, "", input);
        Report {
            condensed: true,
            strategy: done.strategy,
            messages_before: done.messages_before,
            messages_after: done.messages_after,
            tokens_before: done.tokens_before,
            tokens_after: done.tokens_after,
            covers: done.covers,
            model: written.map(|(written, _)| written.model.clone()),
            stand_in: written.is_some_and(|(_, choice)| choice == ModelChoice::Fallback),
            notice: done.notice,
            percent: percent(done.tokens_after, facts.room),
            ..report
        }
    }

    /// Returns the state to store.
    pub(in crate::condenser) fn state(&self) -> ThreadState {
        ThreadState {
            list: self.list.state().clone(),
            extracts: self.extracts.clone(),
            growth: self.sizes.growth,
            factor: self.sizes.factor,
            room: self.sizes.room,
            unread: self.progress.unread.clone(),
        }
    }

    /// Restores the stored state except the list. [`Conversation::new`] restores the list.
    pub(in crate::condenser) fn restore(&mut self, stored: &ThreadState) {
        self.extracts.clone_from(&stored.extracts);
        (self.sizes.factor, self.sizes.room) = (stored.factor, stored.room);
        self.progress = Progress { unread: stored.unread.clone(), ..Progress::default() };
        if stored.growth.calls() > 0 {
            self.sizes.growth = stored.growth;
        }
    }

    /// Stores the fingerprints of the list that is returned right after a condensation.
    pub(in crate::condenser) fn remember_returned(&mut self, shown: &[Message], rules: &Rules) {
        self.returned = Some(MessageFingerprints::of(shown, &rules.key));
    }

    /// Returns the messages that the last condensation removed, for hooks. These messages were sent verbatim before the
    /// condensation, and are not sent verbatim after it.
    pub(in crate::condenser) fn removed(&self, messages: &[Message]) -> Vec<Message> {
        let (now, before) = (self.list.state(), &self.pending_report.removed);
        let shown = |from: Seq, front: &[Seq], seq: Seq| seq > from || front.binary_search(&seq).is_ok();
        (1..=now.length)
            .zip(messages)
            .filter(|(seq, message)| {
                let masked = *seq > before.masked && *seq <= now.masked && message.results().next().is_some();
                shown(before.from, &before.front, *seq) && (masked || !shown(now.from, &now.front, *seq))
            })
            .map(|(seq, message)| Message { seq, ..message.clone() })
            .collect()
    }

    /// Records which messages are now removed, so that hooks receive each removed message only once.
    pub(in crate::condenser) fn mark_removed(&mut self) {
        let ListState { from, masked, front, .. } = self.list.state();
        self.pending_report.removed = RemovedMessages { from: *from, masked: *masked, front: front.clone() };
    }
}

fn percent(tokens: Tokens, room: Option<Tokens>) -> Option<u64> {
    room.filter(|room| *room > 0).map(|room| tokens.saturating_mul(100) / room)
}

/// Describes the token usage, as text for people.
fn used(tokens: Tokens, room: Option<Tokens>) -> String {
    match (room, percent(tokens, room)) {
        (Some(room), Some(percent)) => {
            format!("{} of {} tokens are used, {percent} %", grouped(tokens), grouped(room))
        }
        _ => format!("{} tokens are used", grouped(tokens)),
    }
}
