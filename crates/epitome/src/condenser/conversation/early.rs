//! Summaries that are written while the agent goes on, and what becomes of those that come late.

use std::time::Instant;

use epitome_core::condense::{Decision, Facts, Plan, Press, Unchanged};
use epitome_core::message::{Message, Seq, Tokens};
use epitome_core::strategy::Strategy;
use tokio::sync::watch;

use super::{
    Ahead, Conversation, MOST_STRIKES, MOST_UNTOLD, Preparing, Rules, Slip, Task, Untold, Who, grown,
};
use crate::condenser::report::{Report, Spent};
use crate::condenser::scribe::{Order, Written};
use crate::hook::Running;
use crate::lock::lock;

/// A model that was taken back before it had answered is asked again when the list has grown by this part of it.
const TRIED_AGAIN: Tokens = 10;

impl Conversation {
    /// Puts in the summary that was prepared, where it is there and worth it.
    pub(super) fn prepared(&mut self, ahead: &Ahead<'_>, rules: &Rules, facts: &Facts) -> Option<Report> {
        let preparing = self.preparing.take_if(|preparing| preparing.has_ended())?;
        if preparing.was_taken_back() {
            return None;
        }
        let outcome = preparing.outcome()?;
        self.note(outcome.spent, outcome.problems);
        let written = match outcome.written {
            Ok(written) => written,
            Err(failure) => {
                self.failed(&failure, rules);
                return None;
            }
        };
        let before = self.list.request(facts);
        let told = preparing.plan.places().to_vec();
        match preparing.plan.finish(&mut self.list, ahead.messages, &written.text, &rules.counter) {
            Ok(report) => {
                (self.failures, self.not_before, self.untold) = (0, None, None);
                Some(self.condensed(report, Some((&written, Who::Models)), before, facts, rules))
            }
            Err(Unchanged::Overtaken) => {
                self.late(&written, &told);
                None
            }
            Err(_) => {
                self.in_vain(rules);
                None
            }
        }
    }

    /// A summary came after another had to stand in for it: the next one is built on it, not on the stand-in.
    pub(super) fn late(&mut self, written: &Written, told: &[Seq]) {
        if let Some(untold) = &mut self.untold {
            untold.prior = Some(written.text.to_string());
            untold.places.retain(|place| !told.contains(place));
            (self.failures, self.not_before) = (0, None);
        }
    }

    /// Looks whether what was prepared is there, though nothing is due: a failure starts a pause, and what comes too late
    /// is kept for the next time.
    pub(super) fn collect(&mut self, rules: &Rules) {
        if self.preparing.take_if(|preparing| preparing.was_taken_back()).is_some() {
            // Whoever lent it paid for nothing. It is tried again, and not at every turn.
            let tokens = self.list.tokens();
            self.unprepared = Some(tokens.saturating_add(tokens / TRIED_AGAIN));
        }
        let ended = |preparing: &mut Preparing| {
            let failed = || lock(&preparing.done).as_ref().is_none_or(|outcome| outcome.written.is_err());
            preparing.has_ended() && (preparing.plan.is_overtaken(&self.list) || failed())
        };
        let Some(preparing) = self.preparing.take_if(ended) else { return };
        let Some(outcome) = preparing.outcome() else { return };
        self.note(outcome.spent, outcome.problems);
        match outcome.written {
            Ok(written) => self.late(&written, preparing.plan.places()),
            Err(failure) => self.failed(&failure, rules),
        }
    }

    /// Has a summary written ahead of time, where that is worth it.
    pub(super) fn prepare(
        &mut self,
        ahead: &Ahead<'_>,
        rules: &Rules,
        facts: &Facts,
        prepare: &mut dyn FnMut(&mut Self, Task),
    ) {
        let policy = self.policy(rules, facts).clone();
        let facts = Facts { force: Some(Press::Gently), ..*facts };
        match self.list.decide(ahead.messages, &policy, &facts, &rules.counter) {
            Decision::Ask(plan) => {
                let plan = if rules.local { *plan } else { self.for_model(*plan) };
                let order = self.order(&plan, ahead.messages);
                prepare(self, Task { plan, order });
            }
            Decision::Unchanged(_) | Decision::Done(_) => {
                self.unprepared = Some(grown(self.counted(ahead)));
            }
        }
    }

    /// Whether a summary might be written ahead of time. `local` writes at once, and then of all that leaves: ahead of time
    /// it would only leave more to be kept.
    pub(super) fn may_prepare(&self, counted: Tokens, rules: &Rules) -> bool {
        let summarizes = |stage: &Strategy| matches!(stage, Strategy::Summarize(_) | Strategy::Amortized(_));
        rules.ahead
            && !rules.local
            && self.preparing.is_none()
            && self.strikes < MOST_STRIKES
            && self.unprepared.is_none_or(|until| counted >= until)
            && self.not_before.is_none_or(|until| Instant::now() >= until)
            && rules.policy.strategy.stages().any(summarizes)
    }

    /// Notes what is being written.
    pub(in crate::condenser) fn begin(
        &mut self,
        plan: Plan,
        (done, ended): (Slip, watch::Receiver<()>),
        running: Running<()>,
        lent: bool,
        bytes: usize,
    ) {
        self.preparing = Some(Preparing { plan, done, ended, lent, bytes, _running: running });
    }

    /// Tells when what is being written is there, for who waits for it.
    pub(in crate::condenser) fn under_way(&self) -> Option<watch::Receiver<()>> {
        self.preparing.as_ref().map(|preparing| preparing.ended.clone())
    }

    /// What was paid for a summary that is there and waits to be put in, told once.
    pub(in crate::condenser) fn paid(&self) -> Vec<Spent> {
        let done = self.preparing.as_ref().map(|preparing| &preparing.done);
        done.and_then(|done| Some(std::mem::take(&mut lock(done).as_mut()?.spent))).unwrap_or_default()
    }

    /// A plan as the model is to carry it out: it builds on what it wrote itself, not on what stood in for it.
    pub(super) fn for_model(&self, plan: Plan) -> Plan {
        match &self.untold {
            Some(untold) if untold.tokens <= MOST_UNTOLD => {
                plan.built_on(untold.prior.clone(), &untold.places, untold.tokens)
            }
            _ => plan,
        }
    }

    pub(super) fn order(&self, plan: &Plan, messages: &[Message]) -> Order {
        // Only who wrote the summary knows what it was made of.
        let standing = self.list.summary().map(|prior| prior.text.as_str());
        let extracts = self.extracts.as_ref().filter(|_| plan.prior.as_deref() == standing);
        Order {
            leaving: plan.told(messages).collect(),
            span: plan.span,
            through: plan.through(),
            previous: plan.prior.as_deref().map(Into::into),
            extracts: extracts.cloned(),
            limit: plan.limit,
            replaces: plan.replaces(),
            whose: self.whose,
        }
    }

    /// Notes that a stand-in stands, and what the model has yet to be told.
    pub(super) fn stand_in(&mut self, told: Untold) {
        let Untold { prior, places, tokens } = told;
        let untold = self.untold.get_or_insert_with(|| Untold { prior, ..Untold::default() });
        untold.places.extend(places);
        untold.tokens = untold.tokens.saturating_add(tokens);
    }
}
