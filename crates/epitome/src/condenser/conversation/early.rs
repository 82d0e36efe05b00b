//! Summaries that are written while the agent goes on, and what becomes of those that come late.

use std::mem::take;

use epitome_core::condense::{Decision, Facts, Plan, Press, Unchanged};
use epitome_core::message::{Message, Seq, Tokens};
use epitome_core::strategy::Strategy;
use tokio::sync::watch;

use super::state::Preparing;
use super::{Conversation, Look, MOST_UNTOLD, Rules, Task, Who, grown};
use crate::condenser::report::{Report, Spent};
use crate::condenser::scribe::{Order, Written};
use crate::lock::lock;

/// A model that was taken back before it had answered is called again when the list has grown by this part of it.
const TRIED_AGAIN: Tokens = 10;

impl Conversation {
    /// Puts in the summary that was prepared, where it is there and worth it.
    pub(super) fn prepared(&mut self, look: &Look<'_>) -> Option<Report> {
        let Look { ahead, rules, facts } = look;
        let preparing = self.state.taken_if(Preparing::has_ended)?;
        if preparing.was_taken_back() {
            return None;
        }
        let outcome = preparing.outcome()?;
        self.note(outcome.spent, outcome.problems);
        let written = match outcome.written {
            Ok(written) => written,
            Err(failure) => {
                self.pauses.failed(&failure, &rules.backoff);
                return None;
            }
        };
        let before = self.list.request(facts);
        let read = preparing.plan.places().to_vec();
        match preparing.plan.finish(&mut self.list, ahead.messages, &written.text, &rules.counter) {
            Ok(report) => {
                self.own_summary();
                return Some(self.condensed(report, Some((&written, Who::Models)), before, look));
            }
            Err(Unchanged::Overtaken) => self.late(&written, &read),
            Err(_) => self.in_vain(rules),
        }
        None
    }

    /// A summary came after a fallback was put in its place: the next one is built on it, not on the fallback.
    fn late(&mut self, written: &Written, read: &[Seq]) {
        if self.state.untold().is_some() {
            self.state = take(&mut self.state).late(&written.text, read);
            self.pauses.succeeded();
        }
    }

    /// Looks whether what was prepared is there, though nothing is due: a failure starts a pause, and what comes too late
    /// is kept for the next time.
    pub(super) fn collect(&mut self, rules: &Rules) {
        if self.state.taken_if(Preparing::was_taken_back).is_some() {
            // The lender paid for nothing. It is tried again, and not at every turn.
            let tokens = self.list.tokens();
            self.pauses.unprepared = Some(tokens.saturating_add(tokens / TRIED_AGAIN));
        }
        let list = &self.list;
        let of_no_use = |preparing: &Preparing| {
            preparing.has_failed() || preparing.has_ended() && preparing.plan.is_overtaken(list)
        };
        let Some(preparing) = self.state.taken_if(of_no_use) else { return };
        let Some(outcome) = preparing.outcome() else { return };
        self.note(outcome.spent, outcome.problems);
        match outcome.written {
            Ok(written) => self.late(&written, preparing.plan.places()),
            Err(failure) => self.pauses.failed(&failure, &rules.backoff),
        }
    }

    /// The summary to be written ahead of time, where that is worth it.
    pub(super) fn prepare(&mut self, look: &Look<'_>) -> Option<Task> {
        let Look { ahead, rules, facts } = look;
        let facts = Facts { force: Some(Press::Gently), ..*facts };
        match self.list.decide(ahead.messages, rules.policy(&facts), &facts, &rules.counter) {
            Decision::Ask(plan) => {
                let plan = if rules.local { *plan } else { self.for_model(*plan) };
                Some(self.task(plan, ahead.messages))
            }
            Decision::Unchanged(_) | Decision::Done(_) => {
                self.pauses.unprepared = Some(grown(self.counted(ahead)));
                None
            }
        }
    }

    /// Whether a summary might be written ahead of time. `local` writes at once, and then of all that leaves: ahead of time
    /// it would only leave more to be kept.
    pub(super) fn may_prepare(&self, counted: Tokens, rules: &Rules) -> bool {
        let summarizes = |stage: &Strategy| matches!(stage, Strategy::Summarize(_) | Strategy::Amortized(_));
        rules.ahead
            && !rules.local
            && self.state.preparing().is_none()
            && self.state.stopped_at().is_none()
            && self.pauses.unprepared.is_none_or(|until| counted >= until)
            && !self.pauses.leave_model_alone()
            && rules.policy.strategy.stages().any(summarizes)
    }

    /// Notes what is being written.
    pub(in crate::condenser) fn begin(&mut self, preparing: Preparing) {
        self.state = take(&mut self.state).begun(preparing);
    }

    /// Closed when the summary that is being written is there.
    pub(in crate::condenser) fn under_way(&self) -> Option<watch::Receiver<()>> {
        self.state.preparing().map(|preparing| preparing.ended.clone())
    }

    /// What was paid for a summary that is there and waits to be put in, reported once.
    pub(in crate::condenser) fn paid(&self) -> Vec<Spent> {
        let done = self.state.preparing().map(|preparing| &preparing.done);
        done.and_then(|done| Some(take(&mut lock(done).as_mut()?.spent))).unwrap_or_default()
    }

    /// A plan as the model is to carry it out: it builds on what it wrote itself, not on a fallback.
    pub(super) fn for_model(&self, plan: Plan) -> Plan {
        match self.state.untold() {
            Some(untold) if untold.tokens <= MOST_UNTOLD => {
                plan.built_on(untold.prior.clone(), &untold.places, untold.tokens)
            }
            _ => plan,
        }
    }

    /// A summary to be written by a plan.
    pub(super) fn task(&self, plan: Plan, messages: &[Message]) -> Task {
        // Only the author of the summary in use knows what it was made of.
        let standing = self.list.summary().map(|prior| prior.text.as_str());
        let extracts = self.extracts.as_ref().filter(|_| plan.prior.as_deref() == standing);
        let order = Order {
            leaving: plan.told(messages).collect(),
            span: plan.span,
            through: plan.through(),
            previous: plan.prior.as_deref().map(Into::into),
            extracts: extracts.cloned(),
            limit: plan.limit,
            replaces: plan.replaces(),
            whose: self.whose,
        };
        Task { plan, order }
    }
}
