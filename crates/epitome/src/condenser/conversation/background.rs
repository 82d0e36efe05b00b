//! Summaries that are written in the background between two calls: begun early, inserted when due, and used as the base
//! of the next summary if they are late.

use std::mem::take;
use std::sync::{Arc, Mutex};

use epitome_core::condense::{CondensePlan, Decision, Press, RequestFacts, Unchanged};
use epitome_core::message::{Message, Seq, Tokens};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::{Conversation, DecisionInput, MAX_UNREAD, Rules, grown};
use crate::condenser::list_summarizer::{SummaryJob, SummaryOutcome, WrittenSummary};
use crate::condenser::ready::{ModelCall, Report};
use crate::hook::AbortOnDrop;
use crate::lock::lock;
use crate::model::ModelError;
use crate::named_model::ModelChoice;

/// The progress of a conversation's next summary between two calls. In the idle state, every part is `None`. The parts
/// change independently: a fallback can be in use while the model's own summary is being written, also in a
/// conversation for which condensing was stopped.
///
/// ```text
///   Idle ── begun ──▶ Background ── due too early ──▶ Fallback     any ── two without effect ──▶ Stopped
///     ◀── inserted ──┘    ◀───── inserted ─────────────┘               ◀── one with effect ────────┘
/// ```
#[derive(Default)]
pub(super) struct Progress {
    /// The summary that is being written in the background.
    pub(super) background: Option<BackgroundSummary>,
    /// What the model has not read yet, while a fallback is in use.
    pub(super) unread: Option<UnreadMessages>,
    /// Size of the request at which condensing was stopped because it did not help by the provider's count. No summary
    /// is begun in advance until condensing helps again.
    pub(super) stopped_at: Option<Tokens>,
}

/// While a fallback is in use: the last summary that the model wrote itself, and the positions of the messages that it
/// has not read since.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::condenser) struct UnreadMessages {
    pub(super) prior: Option<String>,
    #[serde(rename = "places")]
    pub(super) positions: Vec<Seq>,
    pub(super) tokens: Tokens,
}

impl Progress {
    /// Records that `local` wrote a fallback instead of the model, so that the model has not read these messages yet.
    pub(super) fn fallback(&mut self, more: UnreadMessages) {
        match &mut self.unread {
            None => self.unread = Some(more),
            Some(unread) => {
                unread.positions.extend(more.positions);
                unread.tokens = unread.tokens.saturating_add(more.tokens);
            }
        }
    }

    /// Stores the model's own summary, which came after `local` had written a fallback, as the base of the next
    /// summary. Returns false if no fallback is in use any more.
    pub(super) fn use_as_base(&mut self, text: &str, read: &[Seq]) -> bool {
        let Some(unread) = &mut self.unread else { return false };
        unread.prior = Some(text.to_owned());
        unread.positions.retain(|position| !read.contains(position));
        true
    }
}

/// A summary that is being written in the background.
pub(in crate::condenser) struct BackgroundSummary {
    pub(in crate::condenser) plan: Box<CondensePlan>,
    pub(in crate::condenser) result: ResultCell,
    /// The channel closes when the task has ended, in any way.
    pub(in crate::condenser) ended: watch::Receiver<()>,
    /// Whether the model is lent, so that the loan may end at any time.
    pub(in crate::condenser) lent: bool,
    /// Size in bytes of the messages that the task owns.
    pub(in crate::condenser) bytes: usize,
    /// Aborts the task when dropped.
    pub(in crate::condenser) _task: AbortOnDrop<()>,
}

/// The shared cell into which a task puts its result.
pub(in crate::condenser) type ResultCell = Arc<Mutex<Option<SummaryOutcome>>>;

impl BackgroundSummary {
    /// Returns the result, if the task has ended.
    pub(super) fn outcome(&self) -> Option<SummaryOutcome> {
        let outcome = lock(&self.result).take();
        outcome.or_else(|| {
            self.has_ended().then(|| SummaryOutcome {
                written: Err(ModelError::no_answer("the task that wrote the summary was stopped").into()),
                spent: Vec::new(),
                problems: Vec::new(),
            })
        })
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.has_changed().is_err()
    }

    /// Returns whether the task ended without a summary.
    pub(super) fn has_failed(&self) -> bool {
        self.has_ended() && lock(&self.result).as_ref().is_none_or(|outcome| outcome.written.is_err())
    }

    /// Returns whether the loan of the model ended before it answered, which does not count as a failure.
    pub(super) fn was_cancelled(&self) -> bool {
        self.lent && self.has_ended() && lock(&self.result).is_none()
    }
}

/// After the loan of a model ended too early, the model is called again when the list has grown by one part in this
/// many (10 %).
const LOAN_RETRY_GROWTH: Tokens = 10;

impl Conversation {
    /// Inserts the prepared summary, if it is finished and makes the list smaller. A failure that just happened is
    /// handled on the next turn.
    pub(super) fn insert_prepared(&mut self, input: &DecisionInput<'_>) -> Option<Report> {
        let is_ready =
            |background: &mut BackgroundSummary| background.has_ended() && !background.has_failed();
        let background = self.progress.background.take_if(is_ready)?;
        let SummaryOutcome { written, spent, problems } = background.outcome()?;
        self.add_to_report(spent, problems);
        let (written, read) = (written.ok()?, background.plan.positions.clone());
        match self.insert_summary(*background.plan, &written, ModelChoice::Configured, input) {
            Ok(report) => return Some(report),
            Err(Unchanged::Overtaken) => self.use_as_base(&written, &read),
            Err(_) => self.saved_too_little(input.rules),
        }
        None
    }

    /// Handles a summary that came after a fallback was inserted: the next summary is based on it, not on the fallback.
    fn use_as_base(&mut self, written: &WrittenSummary, read: &[Seq]) {
        if self.progress.use_as_base(&written.text, read) {
            self.pauses.succeeded();
        }
    }

    /// Checks on the summary in progress although nothing is due. A failure starts a pause, and a summary that came too
    /// late is stored as the base of the next one.
    pub(super) fn check_background(&mut self, rules: &Rules) {
        if self.progress.background.take_if(|background| background.was_cancelled()).is_some() {
            // The caller that lent the model paid for a call without a summary. The call is repeated later, but not on
            // every turn.
            let tokens = self.list.tokens();
            self.pauses.prepare_at = Some(tokens.saturating_add(tokens / LOAN_RETRY_GROWTH));
        }
        let list = &self.list;
        let is_useless = |background: &mut BackgroundSummary| {
            background.has_failed() || background.has_ended() && background.plan.is_overtaken(list)
        };
        let Some(background) = self.progress.background.take_if(is_useless) else { return };
        let Some(outcome) = background.outcome() else { return };
        self.add_to_report(outcome.spent, outcome.problems);
        match outcome.written {
            Ok(written) => self.use_as_base(&written, &background.plan.positions),
            Err(failure) => self.pauses.failed(&failure, &rules.backoff),
        }
    }

    /// Returns the job for a summary in advance, if one is worthwhile.
    pub(super) fn background_job(&mut self, input: &DecisionInput<'_>) -> Option<SummaryJob> {
        let DecisionInput { call, rules, facts } = input;
        let facts = RequestFacts { force: Some(Press::Gently), ..*facts };
        match self.list.decide(call.messages, rules.policy(&facts), &facts, &rules.counter) {
            Decision::Summarize(plan) => {
                let plan = if rules.local { *plan } else { self.plan_for_model(*plan) };
                Some(self.job(plan, call.messages))
            }
            Decision::Unchanged(_) | Decision::Apply(_) => {
                self.pauses.prepare_at = Some(grown(self.counted(call)));
                None
            }
        }
    }

    /// Returns whether a summary may be written in advance. Not for `local`: it writes immediately when something is
    /// due, and then covers all messages that leave. In advance, it would cover fewer.
    pub(super) fn may_prepare(&self, counted: Tokens, rules: &Rules) -> bool {
        rules.has_next_call
            && !rules.local
            && self.progress.background.is_none()
            && self.progress.stopped_at.is_none()
            && self.pauses.prepare_at.is_none_or(|until| counted >= until)
            && !self.pauses.model_is_paused()
            && rules.policy.strategy.summarizes()
    }

    /// Stores the summary in progress.
    pub(in crate::condenser) fn set_background(&mut self, background: BackgroundSummary) {
        self.progress.background = Some(background);
    }

    /// Returns a channel that closes when the summary in progress is finished.
    pub(in crate::condenser) fn in_progress(&self) -> Option<watch::Receiver<()>> {
        self.progress.background.as_ref().map(|background| background.ended.clone())
    }

    /// Returns the cost of a finished summary that is not inserted yet. Each cost is returned once.
    pub(in crate::condenser) fn take_costs(&self) -> Vec<ModelCall> {
        let result = self.progress.background.as_ref().map(|background| &background.result);
        result.and_then(|result| Some(take(&mut lock(result).as_mut()?.spent))).unwrap_or_default()
    }

    /// Returns the plan for the model: based on its own last summary, not on a fallback.
    pub(super) fn plan_for_model(&self, plan: CondensePlan) -> CondensePlan {
        match &self.progress.unread {
            Some(unread) if unread.tokens <= MAX_UNREAD => {
                plan.built_on(unread.prior.clone(), &unread.positions, unread.tokens)
            }
            _ => plan,
        }
    }

    /// Creates the job for a plan.
    pub(super) fn job(&self, plan: CondensePlan, messages: &[Message]) -> SummaryJob {
        // The extracts belong to the current summary only.
        let current = self.list.summary().map(|summary| summary.text.as_str());
        let extracts = self.extracts.as_ref().filter(|_| plan.prior.as_deref() == current).cloned();
        SummaryJob {
            leaving: plan.read_numbered(messages).collect(),
            extracts,
            owner: self.owner,
            plan: Box::new(plan),
        }
    }
}
