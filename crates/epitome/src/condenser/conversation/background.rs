//! Summaries that are written in the background between two calls. Such a summary is started early and inserted when a
//! condensation is due. A summary that is not ready in time becomes the base of the model's next summary.

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

/// The progress of a conversation's next summary. In the idle state, every field is `None`. The fields change
/// independently. For example, a fallback summary can be in use while the model still writes its own summary. In the
/// diagram, a conversation can be in the state `Stopped` and in another state at the same time.
///
/// ```text
///   Idle       ── a summary is started ───────────────▶ Background
///   Background ── the summary is inserted ────────────▶ Idle
///   Background ── due before the summary is ready ────▶ Fallback
///   Fallback   ── a summary of the model is inserted ─▶ Idle
///   any state  ── two condensations did not help ─────▶ Stopped
///   Stopped    ── one condensation helped ────────────▶ not stopped
/// ```
#[derive(Default)]
pub(super) struct Progress {
    /// The summary that is being written in the background.
    pub(super) background: Option<BackgroundSummary>,
    /// The messages that the model has not read yet. `None` if no fallback summary is in use.
    pub(super) unread: Option<UnreadMessages>,
    /// Set if condensing was stopped because it did not help. Contains the size of the request at that time, in the
    /// provider's tokens. While this is set, no summary is started in advance.
    pub(super) stopped_at: Option<Tokens>,
}

/// The state while a fallback summary is in use. It contains the last summary that the model wrote itself, and the
/// positions and tokens of the messages that the model has not read since.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::condenser) struct UnreadMessages {
    pub(super) prior: Option<String>,
    #[serde(rename = "places")]
    pub(super) positions: Vec<Seq>,
    pub(super) tokens: Tokens,
}

impl Progress {
    /// Records a fallback summary by `local`. `more` are the messages that this summary covers and that the model has
    /// not read yet.
    pub(super) fn fallback(&mut self, more: UnreadMessages) {
        match &mut self.unread {
            None => self.unread = Some(more),
            Some(unread) => {
                unread.positions.extend(more.positions);
                unread.tokens = unread.tokens.saturating_add(more.tokens);
            }
        }
    }

    /// Stores a summary of the model that was finished after `local` had written a fallback summary. The model's next
    /// summary is based on the stored summary. Returns false if no fallback summary is in use any more.
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
    /// The channel closes when the task ends: with a summary, with an error, or because it was aborted.
    pub(in crate::condenser) ended: watch::Receiver<()>,
    /// Whether a caller lends the model. The loan may end at any time, which ends the task.
    pub(in crate::condenser) lent: bool,
    /// Size in bytes of the messages that the task owns.
    pub(in crate::condenser) bytes: usize,
    /// Aborts the task when dropped.
    pub(in crate::condenser) _task: AbortOnDrop<()>,
}

/// The shared cell in which a task stores its result.
pub(in crate::condenser) type ResultCell = Arc<Mutex<Option<SummaryOutcome>>>;

impl BackgroundSummary {
    /// Takes the result out of the cell. If the task ended without a result, returns an error as the result. Returns
    /// `None` if the task is still running.
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

    /// Returns whether the loan ended before the model answered. This does not count as a failure of the model.
    pub(super) fn was_cancelled(&self) -> bool {
        self.lent && self.has_ended() && lock(&self.result).is_none()
    }
}

/// Sets when a lent model is called again after its loan ended too early: when the list has grown by its size divided
/// by this number, which is 10 %.
const LOAN_RETRY_GROWTH: Tokens = 10;

impl Conversation {
    /// Inserts the summary that was written in the background, if it is finished and makes the list smaller. If the
    /// summary failed after `check_background` was called, the next turn handles the failure.
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

    /// Handles a summary of the model that was finished after a fallback summary was inserted. The model's next summary
    /// is based on this late summary, not on the fallback summary.
    fn use_as_base(&mut self, written: &WrittenSummary, read: &[Seq]) {
        if self.progress.use_as_base(&written.text, read) {
            self.pauses.succeeded();
        }
    }

    /// Checks the summary in progress at the start of every turn. If the summary failed, starts a pause of the model.
    /// If the summary was finished too late, stores it as the base of the model's next summary.
    pub(super) fn check_background(&mut self, rules: &Rules) {
        if self.progress.background.take_if(|background| background.was_cancelled()).is_some() {
            // The caller that lent the model paid for a call that produced no summary. To limit this cost, the call is
            // not repeated on every turn.
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

    /// Returns the job for a summary that is written in advance. Returns `None` if the list would not be condensed, or
    /// would be condensed without a summary.
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

    /// Returns whether a summary may be written in advance. `local` never writes in advance, because it is fast enough
    /// to write when a condensation is due. At that time its summary covers all messages that leave the list; in
    /// advance it would cover fewer messages.
    pub(super) fn may_prepare(&self, counted: Tokens, rules: &Rules) -> bool {
        rules.has_next_call
            && !rules.local
            && self.progress.background.is_none()
            && self.progress.stopped_at.is_none()
            && self.pauses.prepare_at.is_none_or(|until| counted >= until)
            && !self.pauses.model_is_paused()
            && rules.policy.strategy.summarizes()
    }

    /// Stores the summary that is now being written in the background.
    pub(in crate::condenser) fn set_background(&mut self, background: BackgroundSummary) {
        self.progress.background = Some(background);
    }

    /// Returns a channel that closes when the task that writes the summary in progress ends. `None` if no summary is in
    /// progress.
    pub(in crate::condenser) fn in_progress(&self) -> Option<watch::Receiver<()>> {
        self.progress.background.as_ref().map(|background| background.ended.clone())
    }

    /// Takes the model calls of a background summary that is finished but not inserted yet. No later call of this
    /// method and no later report contains these model calls.
    pub(in crate::condenser) fn take_costs(&self) -> Vec<ModelCall> {
        let result = self.progress.background.as_ref().map(|background| &background.result);
        result.and_then(|result| Some(take(&mut lock(result).as_mut()?.spent))).unwrap_or_default()
    }

    /// Returns the plan for a summary by the model. If a fallback summary is in use, the plan is based on the model's
    /// own last summary, unless the unread messages have more than [`MAX_UNREAD`] tokens.
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
        // The extracts belong to the current summary. A plan that is based on another summary cannot use them.
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
