//! The state of a conversation between two calls, including summaries written in the background: begun early, put in
//! when due, and used as the base of the next summary if they are late.

use std::mem::take;
use std::sync::{Arc, Mutex};

use epitome_core::condense::{Decision, Facts, Plan, Press, Unchanged};
use epitome_core::message::{Message, Seq, Tokens};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::{Conversation, Look, MOST_UNTOLD, Rules, grown};
use crate::condenser::ready::{Report, Spent};
use crate::condenser::scribe::{Order, Outcome, Written};
use crate::hook::Running;
use crate::lock::lock;
use crate::model::ModelError;
use crate::writer::Who;

/// The state of a conversation between two calls. In the idle state, every part is `None`. The parts change
/// independently: a fallback can be in use while the model's own summary is being written, also in a conversation for
/// which condensing was stopped. (In the diagram, a pass is one condensation.)
///
/// ```text
///   Idle ── begun ──▶ Preparing ── due too early ──▶ Fallback        any ── two passes in vain ──▶ Stopped
///     ◀── put in ────┘   ◀───── put in ───────────────┘                  ◀── a pass that helped ───┘
/// ```
#[derive(Default)]
pub(super) struct Progress {
    /// The summary that is being written in the background.
    pub(super) preparing: Option<Preparing>,
    /// What the model has not read yet, while a fallback is in use.
    pub(super) untold: Option<Untold>,
    /// Size of the request at which condensing was stopped because it did not help by the provider's count. No summary
    /// is begun in advance until condensing helps again.
    pub(super) stopped_at: Option<Tokens>,
}

/// While a fallback is in use: the last summary that the model wrote itself, and the positions of the messages that it
/// has not read since.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::condenser) struct Untold {
    pub(super) prior: Option<String>,
    pub(super) places: Vec<Seq>,
    pub(super) tokens: Tokens,
}

impl Progress {
    /// Records that `local` wrote a summary instead of the model, which has not read these messages yet.
    pub(super) fn fallback(&mut self, unread: Untold) {
        match &mut self.untold {
            None => self.untold = Some(unread),
            Some(untold) => {
                untold.places.extend(unread.places);
                untold.tokens = untold.tokens.saturating_add(unread.tokens);
            }
        }
    }

    /// Takes over the model's own summary, which came after `local` had written a fallback: the next summary is based
    /// on it. Returns false if no fallback is in use any more.
    pub(super) fn late(&mut self, text: &str, read: &[Seq]) -> bool {
        let Some(untold) = &mut self.untold else { return false };
        untold.prior = Some(text.to_owned());
        untold.places.retain(|place| !read.contains(place));
        true
    }
}

/// A summary that is being written in the background.
pub(in crate::condenser) struct Preparing {
    pub(in crate::condenser) plan: Box<Plan>,
    pub(in crate::condenser) done: Slip,
    /// The channel closes when the task has ended, in any way.
    pub(in crate::condenser) ended: watch::Receiver<()>,
    /// Whether the model is lent, so that the lender may take it back at any time.
    pub(in crate::condenser) lent: bool,
    /// Size in bytes of the messages that the task owns.
    pub(in crate::condenser) bytes: usize,
    /// Aborts the task when dropped.
    pub(in crate::condenser) _running: Running<()>,
}

/// The shared cell into which a task puts its result.
pub(in crate::condenser) type Slip = Arc<Mutex<Option<Outcome>>>;

impl Preparing {
    /// Returns the result, if the task has ended.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        let outcome = lock(&self.done).take();
        outcome.or_else(|| {
            self.has_ended().then(|| Outcome {
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
        self.has_ended() && lock(&self.done).as_ref().is_none_or(|outcome| outcome.written.is_err())
    }

    /// Returns whether the lender took the model back before it answered, which does not count as a failure.
    pub(super) fn was_taken_back(&self) -> bool {
        self.lent && self.has_ended() && lock(&self.done).is_none()
    }
}

/// After a model was taken back, it is called again when the list has grown by one part in this many (10 %).
const TRIED_AGAIN: Tokens = 10;

impl Conversation {
    /// Puts in the prepared summary, if it is finished and makes the list smaller. A failure that just happened is
    /// handled on the next turn.
    pub(super) fn prepared(&mut self, look: &Look<'_>) -> Option<Report> {
        let is_there = |preparing: &mut Preparing| preparing.has_ended() && !preparing.has_failed();
        let preparing = self.progress.preparing.take_if(is_there)?;
        let Outcome { written, spent, problems } = preparing.outcome()?;
        self.note(spent, problems);
        let (written, read) = (written.ok()?, preparing.plan.places.clone());
        match self.put_in(*preparing.plan, &written, Who::Models, look) {
            Ok(report) => return Some(report),
            Err(Unchanged::Overtaken) => self.late(&written, &read),
            Err(_) => self.in_vain(look.rules),
        }
        None
    }

    /// Handles a summary that came after a fallback was put in: the next summary is based on it instead of the
    /// fallback.
    fn late(&mut self, written: &Written, read: &[Seq]) {
        if self.progress.late(&written.text, read) {
            self.pauses.succeeded();
        }
    }

    /// Checks on the summary in progress although nothing is due. A failure starts a pause, and a summary that came too
    /// late is stored as the base of the next one.
    pub(super) fn collect(&mut self, rules: &Rules) {
        if self.progress.preparing.take_if(|preparing| preparing.was_taken_back()).is_some() {
            // The lender paid without getting a summary. The call is repeated later, but not on every turn.
            let tokens = self.list.tokens();
            self.pauses.unprepared = Some(tokens.saturating_add(tokens / TRIED_AGAIN));
        }
        let list = &self.list;
        let of_no_use = |preparing: &mut Preparing| {
            preparing.has_failed() || preparing.has_ended() && preparing.plan.is_overtaken(list)
        };
        let Some(preparing) = self.progress.preparing.take_if(of_no_use) else { return };
        let Some(outcome) = preparing.outcome() else { return };
        self.note(outcome.spent, outcome.problems);
        match outcome.written {
            Ok(written) => self.late(&written, &preparing.plan.places),
            Err(failure) => self.pauses.failed(&failure, &rules.backoff),
        }
    }

    /// Returns the order for a summary in advance, if one is worthwhile.
    pub(super) fn prepare(&mut self, look: &Look<'_>) -> Option<Order> {
        let Look { call, rules, facts } = look;
        let facts = Facts { force: Some(Press::Gently), ..*facts };
        match self.list.decide(call.messages, rules.policy(&facts), &facts, &rules.counter) {
            Decision::Ask(plan) => {
                let plan = if rules.local { *plan } else { self.for_model(*plan) };
                Some(self.order(plan, call.messages))
            }
            Decision::Unchanged(_) | Decision::Done(_) => {
                self.pauses.unprepared = Some(grown(self.counted(call)));
                None
            }
        }
    }

    /// Returns whether a summary may be written in advance. Not for `local`: it writes immediately when something is
    /// due, and then covers all messages that leave. In advance, it would cover fewer.
    pub(super) fn may_prepare(&self, counted: Tokens, rules: &Rules) -> bool {
        rules.ahead
            && !rules.local
            && self.progress.preparing.is_none()
            && self.progress.stopped_at.is_none()
            && self.pauses.unprepared.is_none_or(|until| counted >= until)
            && !self.pauses.leave_model_alone()
            && rules.policy.strategy.summarizes()
    }

    /// Stores the summary in progress.
    pub(in crate::condenser) fn begin(&mut self, preparing: Preparing) {
        self.progress.preparing = Some(preparing);
    }

    /// Returns a channel that closes when the summary in progress is finished.
    pub(in crate::condenser) fn under_way(&self) -> Option<watch::Receiver<()>> {
        self.progress.preparing.as_ref().map(|preparing| preparing.ended.clone())
    }

    /// Returns the cost of a finished summary that waits to be put in. Each cost is returned once.
    pub(in crate::condenser) fn paid(&self) -> Vec<Spent> {
        let done = self.progress.preparing.as_ref().map(|preparing| &preparing.done);
        done.and_then(|done| Some(take(&mut lock(done).as_mut()?.spent))).unwrap_or_default()
    }

    /// Returns the plan for the model: based on its own last summary, not on a fallback.
    pub(super) fn for_model(&self, plan: Plan) -> Plan {
        match &self.progress.untold {
            Some(untold) if untold.tokens <= MOST_UNTOLD => {
                plan.built_on(untold.prior.clone(), &untold.places, untold.tokens)
            }
            _ => plan,
        }
    }

    /// Creates the order for a plan.
    pub(super) fn order(&self, plan: Plan, messages: &[Message]) -> Order {
        // The extracts belong to the current summary only.
        let standing = self.list.summary().map(|prior| prior.text.as_str());
        let extracts = self.extracts.as_ref().filter(|_| plan.prior.as_deref() == standing).cloned();
        Order { leaving: plan.told(messages).collect(), extracts, whose: self.whose, plan: Box::new(plan) }
    }
}
