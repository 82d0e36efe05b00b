//! The state of a conversation between two calls, and summaries that are written while the agent goes on: begun early, put
//! in when they are due, or built upon when they come late.

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

/// The state of a conversation between two calls. Idle means that every part is `None`. The parts change independently: a
/// fallback can be in use while the model's own summary is being written, also in a conversation that was stopped.
///
/// ```text
///   Idle ── begun ──▶ Preparing ── due too early ──▶ Fallback        any ── two passes in vain ──▶ Stopped
///     ◀── put in ────┘   ◀───── put in ───────────────┘                  ◀── a pass that helped ───┘
/// ```
#[derive(Default)]
pub(super) struct Progress {
    /// The summary that is being written in the background.
    pub(super) preparing: Option<Preparing>,
    /// What the model has yet to read, while a fallback is in use.
    pub(super) untold: Option<Untold>,
    /// The size of the request at which condensing was stopped, since it did not help by the provider's count: nothing is
    /// begun ahead of time until it helps again.
    pub(super) stopped_at: Option<Tokens>,
}

/// While a fallback is in use: the last summary that the model wrote itself, and what it has not read since.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::condenser) struct Untold {
    pub(super) prior: Option<String>,
    pub(super) places: Vec<Seq>,
    pub(super) tokens: Tokens,
}

impl Progress {
    /// `local` wrote a summary in the model's place, which has this yet to read.
    pub(super) fn fallback(&mut self, unread: Untold) {
        match &mut self.untold {
            None => self.untold = Some(unread),
            Some(untold) => {
                untold.places.extend(unread.places);
                untold.tokens = untold.tokens.saturating_add(unread.tokens);
            }
        }
    }

    /// The model's own summary came after `local` had written one in its place: the next is built on it. False where no
    /// fallback is in use any more.
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
    /// Closed when the task has ended, however it did.
    pub(in crate::condenser) ended: watch::Receiver<()>,
    /// Whether its model was lent, and may be taken back at any time.
    pub(in crate::condenser) lent: bool,
    /// The size of the messages that the task holds.
    pub(in crate::condenser) bytes: usize,
    /// Aborted when this is dropped.
    pub(in crate::condenser) _running: Running<()>,
}

/// Where a task leaves its result.
pub(in crate::condenser) type Slip = Arc<Mutex<Option<Outcome>>>;

impl Preparing {
    /// The result, once there is one.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        let outcome = lock(&self.done).take();
        outcome.or_else(|| {
            self.has_ended().then(|| Outcome {
                written: Err(ModelError::no_answer("whoever wrote it was stopped").into()),
                spent: Vec::new(),
                problems: Vec::new(),
            })
        })
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.has_changed().is_err()
    }

    /// Whether it ended without a summary.
    pub(super) fn has_failed(&self) -> bool {
        self.has_ended() && lock(&self.done).as_ref().is_none_or(|outcome| outcome.written.is_err())
    }

    /// Whether its model was taken back before it had answered, which is no failure.
    pub(super) fn was_taken_back(&self) -> bool {
        self.lent && self.has_ended() && lock(&self.done).is_none()
    }
}

/// A model that was taken back before it had answered is called again when the list has grown by this part of it.
const TRIED_AGAIN: Tokens = 10;

impl Conversation {
    /// Puts in the summary that was prepared, where it is there and worth it. One that failed just now is collected the
    /// next time.
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

    /// A summary came after a fallback was put in its place: the next one is built on it, not on the fallback.
    fn late(&mut self, written: &Written, read: &[Seq]) {
        if self.progress.late(&written.text, read) {
            self.pauses.succeeded();
        }
    }

    /// Looks whether what was prepared is there, though nothing is due: a failure starts a pause, and what comes too late
    /// is kept for the next time.
    pub(super) fn collect(&mut self, rules: &Rules) {
        if self.progress.preparing.take_if(|preparing| preparing.was_taken_back()).is_some() {
            // The lender paid for nothing. It is tried again, and not at every turn.
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

    /// The summary to be written ahead of time, where that is worth it.
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

    /// Whether a summary might be written ahead of time. `local` writes at once, and then of all that leaves: ahead of time
    /// it would only leave more to be kept.
    pub(super) fn may_prepare(&self, counted: Tokens, rules: &Rules) -> bool {
        rules.ahead
            && !rules.local
            && self.progress.preparing.is_none()
            && self.progress.stopped_at.is_none()
            && self.pauses.unprepared.is_none_or(|until| counted >= until)
            && !self.pauses.leave_model_alone()
            && rules.policy.strategy.summarizes()
    }

    /// Notes what is being written.
    pub(in crate::condenser) fn begin(&mut self, preparing: Preparing) {
        self.progress.preparing = Some(preparing);
    }

    /// Closed when the summary that is being written is there.
    pub(in crate::condenser) fn under_way(&self) -> Option<watch::Receiver<()>> {
        self.progress.preparing.as_ref().map(|preparing| preparing.ended.clone())
    }

    /// What was paid for a summary that is there and waits to be put in, reported once.
    pub(in crate::condenser) fn paid(&self) -> Vec<Spent> {
        let done = self.progress.preparing.as_ref().map(|preparing| &preparing.done);
        done.and_then(|done| Some(take(&mut lock(done).as_mut()?.spent))).unwrap_or_default()
    }

    /// A plan as the model is to carry it out: it builds on what it wrote itself, not on a fallback.
    pub(super) fn for_model(&self, plan: Plan) -> Plan {
        match &self.progress.untold {
            Some(untold) if untold.tokens <= MOST_UNTOLD => {
                plan.built_on(untold.prior.clone(), &untold.places, untold.tokens)
            }
            _ => plan,
        }
    }

    /// A summary to be written by a plan.
    pub(super) fn order(&self, plan: Plan, messages: &[Message]) -> Order {
        // Only the author of the summary in use knows what it was made of.
        let standing = self.list.summary().map(|prior| prior.text.as_str());
        let extracts = self.extracts.as_ref().filter(|_| plan.prior.as_deref() == standing).cloned();
        Order { leaving: plan.told(messages).collect(), extracts, whose: self.whose, plan: Box::new(plan) }
    }
}
