//! One conversation as a condenser knows it, and what is decided before each of its calls.
//!
//! No model is asked here and nobody is waited for: [`Conversation::look`] takes the list in and says what to do, and
//! [`Conversation::take`] takes what came of it. Everything happens under one lock, so two callers at once see one after the
//! other. Summaries ahead of time are in `early`, sizes and the provider's count in `sizes`, reports in `telling`.

use std::collections::VecDeque;
use std::hash::RandomState;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use epitome_core::condense::{Decision, Facts, List, Plan, Policy, Press, Standing, Unchanged};
use epitome_core::economic::{Growth, Prices};
use epitome_core::local::Extracts;
use epitome_core::message::{Message, Role, Seq, Tokens};
use epitome_core::tokens::{Counter, Factor};
use epitome_core::trigger::{Fraction, SOFT};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::Call;
use super::known::{Place, Prints};
use super::report::{Report, Spent};
use super::scribe::{Order, Outcome};
use crate::hook::Running;
use crate::lock::lock;
use crate::model::ModelError;
use crate::retry::{Backoff, after_failure, jitter};

mod early;
mod sizes;
mod telling;

/// After so many passes in a row that did not help, it stops.
const MOST_STRIKES: u32 = 2;

/// What could not be done is tried again once the list is larger by one part in so many.
const GROWN_BY: Tokens = 20;

/// A list of fewer messages is looked at each turn: that costs next to nothing.
const FEW: usize = 256;

/// What stood in is told to the model again up to so many tokens; beyond them it is built upon.
const MOST_UNTOLD: Tokens = 400_000;

/// So much of what went wrong is kept until it is told.
const MOST_TOLD: usize = 32;

/// What is decided by, the same for all conversations of a condenser.
#[derive(Clone)]
pub(super) struct Rules {
    pub(super) policy: Policy,
    /// The policy where the model's room is not known.
    pub(super) roomless: Policy,
    pub(super) counter: Counter,
    pub(super) room: Option<Tokens>,
    /// The same with what is kept free for the answer.
    pub(super) window: Option<Tokens>,
    pub(super) prices: Prices,
    /// The same where the model that the list is for writes its summaries itself.
    pub(super) prices_of_same: Prices,
    /// Whether a turn waits for the model.
    pub(super) wait: bool,
    /// Whether there is a next time: then summaries are begun ahead of it, and `local` stands in where one is not there.
    pub(super) ahead: bool,
    /// Whether the only model is `local`.
    pub(super) local: bool,
    pub(super) backoff: Backoff,
}

/// What is known of a call that is about to be made.
#[derive(Clone, Copy)]
pub(super) struct Ahead<'a> {
    pub(super) messages: &'a [Message],
    pub(super) fixed: Tokens,
    pub(super) room: Option<Tokens>,
    /// By the provider's count.
    pub(super) request: Option<Tokens>,
    pub(super) force: Option<Press>,
    /// Whether the models were waited for this time already, and gave nothing.
    pub(super) given_up: bool,
}

impl<'a> Ahead<'a> {
    pub(super) fn of(call: &Call<'a>) -> Self {
        let Call { messages, fixed, room, counted, force } = *call;
        Self { messages, fixed, room, request: counted, force, given_up: false }
    }
}

/// One conversation.
#[derive(Default)]
pub(super) struct Conversation {
    /// How often it has changed: grown, been condensed, or become another.
    pub(super) changes: u64,
    /// Where its list was in memory when it was last handed in.
    pub(super) place: Place,
    pub(super) prints: Prints,
    pub(super) list: List,
    /// What was handed out when it was last condensed: some go on with that.
    handed: Option<Prints>,
    /// What the summary that stands was made of, where `local` wrote it.
    extracts: Option<Arc<Extracts>>,
    growth: Growth,
    /// The request of the turn before: its size as counted, and how often the list had been condensed.
    last: Option<(Tokens, u64)>,
    /// What the provider said it counted, of what we had counted as so much.
    told: Option<Told>,
    factor: Factor,
    /// What the provider turned out to take at most.
    room: Option<Tokens>,
    /// The provider found the last request too long.
    too_long: bool,
    preparing: Option<Preparing>,
    /// What the model has not told itself, while a stand-in stands.
    untold: Option<Untold>,
    strikes: u32,
    /// The request's size by the provider's count when it was given up on. Half as large again, it is tried once more.
    stopped_at: Option<Tokens>,
    /// The request before the last pass, in the provider's tokens, until its next count tells whether it helped.
    on_trial: Option<(Tokens, u64)>,
    /// Nothing could be done at that size, and why.
    resting: Option<(Tokens, Unchanged)>,
    /// Nothing could be prepared at that size.
    unprepared: Option<Tokens>,
    failures: u32,
    not_before: Option<Instant>,
    /// Where cutting costs least, and the size at which that was worked out.
    economic: Option<(Tokens, u64, Option<Tokens>)>,
    spent: Vec<Spent>,
    problems: VecDeque<String>,
    left: Left,
    /// Whose it is, where that is known: answers that were paid for by others are not recalled for it.
    pub(super) whose: Option<Whose>,
}

/// A number for whoever a conversation belongs to.
pub(super) type Whose = [u8; 16];

/// What had left the list after a pass.
#[derive(Default)]
struct Left {
    from: Seq,
    masked: Seq,
    kept: Vec<Seq>,
}

#[derive(Clone, Copy)]
struct Told {
    counted: Tokens,
    reported: Tokens,
    rounds: u64,
}

/// A summary that is being written.
struct Preparing {
    plan: Plan,
    done: Slip,
    /// Closed when the task has ended, however it did.
    ended: watch::Receiver<()>,
    /// Whether its model was lent, and may be taken back at any time.
    lent: bool,
    /// How much of what was said is held for it.
    bytes: usize,
    /// Ends when it is let go of.
    _running: Running<()>,
}

impl Preparing {
    /// What came of it, once something did.
    fn outcome(&self) -> Option<Outcome> {
        let outcome = lock(&self.done).take();
        outcome.or_else(|| {
            self.has_ended().then(|| Outcome {
                written: Err(ModelError::no_answer("whoever wrote it was stopped").into()),
                spent: Vec::new(),
                problems: Vec::new(),
            })
        })
    }

    fn has_ended(&self) -> bool {
        self.ended.has_changed().is_err()
    }

    /// Whether its model was taken back before it had an answer. That is nobody's failure.
    fn was_taken_back(&self) -> bool {
        self.lent && self.has_ended() && lock(&self.done).is_none()
    }
}

/// Where a task leaves what came of it.
pub(super) type Slip = Arc<Mutex<Option<Outcome>>>;

/// While a stand-in stands: what the last summary says that is none, and what it leaves untold.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Untold {
    prior: Option<String>,
    places: Vec<Seq>,
    tokens: Tokens,
}

/// What is to be done.
pub(super) enum Step {
    /// Nothing more: this was done.
    Done(Report),
    /// A summary is written now, and waited for.
    Write(Box<Plan>, Order, Who),
    /// The one that is being written is waited for.
    Wait,
    /// Something would be done, but the list is not the one that was taken in.
    Stranger,
}

/// Who writes a summary that is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    /// The models of the settings.
    Models,
    /// `local`, in their place.
    StandIn,
}

/// A summary to be written while the agent goes on.
pub(super) struct Task {
    pub(super) plan: Plan,
    pub(super) order: Order,
}

impl Conversation {
    /// One that begins with this list, condensed before or not.
    pub(super) fn begun(
        messages: &[Message],
        standing: Option<&Standing>,
        rules: &Rules,
        hash: &RandomState,
    ) -> Self {
        let mut new = Self { prints: Prints::of(messages, hash), ..Self::default() };
        new.list = match standing {
            Some(standing) => List::resume(messages, standing, &rules.counter),
            None => {
                let mut list = List::default();
                list.advance(messages, &rules.counter);
                list
            }
        };
        // Calls that nobody followed: each reply was one, and the next is under way.
        let replies = messages.iter().filter(|message| message.role == Role::Assistant).count() as u64;
        new.growth = Growth::of(replies.saturating_add(1), new.list.tokens());
        new.left_so_far();
        new
    }

    /// Whether the list seems to go on with this conversation, as far as some looks tell.
    pub(super) fn seems_to_go_on(&mut self, messages: &[Message], hash: &RandomState) -> bool {
        let from = usize::try_from(self.list.standing().from).unwrap_or(0);
        self.prints.len() > 0 && self.prints.seem(messages, from, hash)
    }

    /// The same conversation with another end, where the list is that: shortened again since it was last condensed, or
    /// gone on with by somebody else. What was done until then holds for it as well, and so does what was learnt.
    pub(super) fn forked(&mut self, messages: &[Message], rules: &Rules, hash: &RandomState) -> Option<Self> {
        let standing = self.list.standing();
        let seen = usize::try_from(standing.seen).unwrap_or(usize::MAX);
        if standing.rounds == 0 || !self.prints.are(messages, seen, hash) {
            return None;
        }
        let new = Self::begun(messages, Some(standing), rules, hash);
        // What is being written of all before they parted is not thrown away, where it suits the other end.
        let suits = |preparing: &mut Preparing| {
            let through = usize::try_from(preparing.plan.cuts_after()).unwrap_or(usize::MAX);
            self.prints.are(messages, through, hash) && preparing.plan.suits(&new.list)
        };
        let preparing = self.preparing.take_if(suits);
        Some(Self {
            preparing,
            extracts: self.extracts.clone(),
            growth: self.growth,
            told: self.told,
            factor: self.factor,
            room: self.room,
            untold: self.untold.clone(),
            strikes: self.strikes,
            stopped_at: self.stopped_at,
            failures: self.failures,
            not_before: self.not_before,
            whose: self.whose,
            ..new
        })
    }

    /// Whether the list is this one with other standing orders; then those are taken over. They are counted anew with all
    /// the rest, and nothing else is forgotten.
    pub(super) fn takes_head(&mut self, messages: &[Message], rules: &Rules, hash: &RandomState) -> bool {
        if !self.prints.differ_in_head(messages, hash) {
            return false;
        }
        let known = messages.get(..self.prints.len()).unwrap_or(messages);
        let standing = self.list.standing();
        self.list = if standing.rounds > 0 {
            List::resume(known, standing, &rules.counter)
        } else {
            let mut list = List::default();
            list.advance(known, &rules.counter);
            list
        };
        self.prints = Prints::of(known, hash);
        self.changes = self.changes.wrapping_add(1);
        true
    }

    /// Whether the list is what was handed out, with more at its end.
    pub(super) fn went_on_with_handed(&mut self, messages: &[Message], hash: &RandomState) -> bool {
        self.handed
            .as_mut()
            .is_some_and(|handed| handed.seem(messages, 0, hash) && handed.are(messages, handed.len(), hash))
    }

    /// The caller goes on with what was handed out: from here on that is the list.
    pub(super) fn begin_anew(&mut self, messages: &[Message], rules: &Rules, hash: &RandomState) {
        let fresh = Self::begun(messages, None, rules, hash);
        (self.prints, self.list, self.left) = (fresh.prints, fresh.list, fresh.left);
        self.changes = self.changes.wrapping_add(1);
        // What was left out is not at hand any more, and places count anew.
        (self.handed, self.preparing, self.untold, self.last) = (None, None, None, None);
        self.told = None;
    }

    /// Takes the list in, and says what to do with it. `prepare` has a summary written that is not waited for. Before
    /// anything is done, every message is looked at, unless that was done `already`.
    pub(super) fn look(
        &mut self,
        ahead: &Ahead<'_>,
        rules: &Rules,
        hash: &RandomState,
        already: bool,
        prepare: &mut dyn FnMut(&mut Self, Task),
    ) -> Step {
        let known = self.prints.len();
        let strange = |this: &Self| !already && !this.prints.are(ahead.messages, known, hash);
        if ahead.messages.len() > known {
            self.changes = self.changes.wrapping_add(1);
        }
        self.list.advance(ahead.messages, &rules.counter);
        self.prints.extend(ahead.messages, hash);
        self.collect(rules);
        let counted = self.counted(ahead);
        self.count_call(counted);
        let mut facts = self.facts(ahead, rules, counted);
        if self.too_long {
            facts.force = Some(Press::Hard);
        }
        let policy = self.policy(rules, &facts);
        let over = facts.room.is_some_and(|room| self.list.request(&facts) > room);
        let due = facts.force.is_some() || over || self.list.due(policy, &facts, Fraction::ONE).is_now();
        if !due || self.list.is_empty() {
            if self.may_prepare(counted, rules) && self.list.due(policy, &facts, SOFT).is_now() {
                if strange(self) {
                    return Step::Stranger;
                }
                self.prepare(ahead, rules, &facts, prepare);
            }
            return Step::Done(self.unchanged(&Unchanged::NotDue, &facts, rules));
        }
        if facts.force.is_none() {
            let request = self.list.request(&facts);
            let grown = self.stopped_at.is_none_or(|size| request >= size.saturating_add(size / 2));
            if self.strikes >= MOST_STRIKES && !over && !grown {
                return Step::Done(self.stopped(&facts, rules));
            }
            if let Some((until, why)) = self.resting
                && counted < until
                && !over
                && self.list.shown_len() > FEW
            {
                return Step::Done(self.unchanged(&why, &facts, rules));
            }
        }
        if strange(self) {
            return Step::Stranger;
        }
        self.act(ahead, rules, &facts, prepare)
    }

    /// Something is due: the summary that was prepared, or what is decided now.
    fn act(
        &mut self,
        ahead: &Ahead<'_>,
        rules: &Rules,
        facts: &Facts,
        prepare: &mut dyn FnMut(&mut Self, Task),
    ) -> Step {
        if let Some(done) = self.prepared(ahead, rules, facts) {
            return Step::Done(done);
        }
        if rules.wait && self.preparing.is_some() {
            return Step::Wait;
        }
        let policy = self.policy(rules, facts).clone();
        match self.list.decide(ahead.messages, &policy, facts, &rules.counter) {
            Decision::Unchanged(why) => {
                self.rest(&why, facts);
                Step::Done(self.unchanged(&why, facts, rules))
            }
            Decision::Done(done) => {
                let before = self.list.request(facts);
                match done.apply(&mut self.list) {
                    Ok(report) => Step::Done(self.condensed(report, None, before, facts, rules)),
                    Err(why) => Step::Done(self.unchanged(&why, facts, rules)),
                }
            }
            Decision::Ask(plan) => self.ask(*plan, ahead, rules, facts, prepare),
        }
    }

    /// Somebody must write a summary now.
    fn ask(
        &mut self,
        plan: Plan,
        ahead: &Ahead<'_>,
        rules: &Rules,
        facts: &Facts,
        prepare: &mut dyn FnMut(&mut Self, Task),
    ) -> Step {
        if rules.local {
            let order = self.order(&plan, ahead.messages);
            return Step::Write(Box::new(plan), order, Who::Models);
        }
        // Who asks for it is heard at once; a provider's refusal is no reason to ask another in vain.
        let pausing = ahead.force.is_none() && self.not_before.is_some_and(|until| Instant::now() < until);
        let left_alone = ahead.given_up || pausing;
        if rules.wait && !left_alone {
            let plan = self.for_model(plan);
            let order = self.order(&plan, ahead.messages);
            return Step::Write(Box::new(plan), order, Who::Models);
        }
        if !rules.ahead {
            return Step::Done(self.model_failed(facts, rules));
        }
        if self.preparing.is_none() && !left_alone {
            // Too late for this time. What comes of it is built upon the next time.
            let plan = self.for_model(plan.clone());
            let order = self.order(&plan, ahead.messages);
            prepare(self, Task { plan, order });
        }
        let order = self.order(&plan, ahead.messages);
        Step::Write(Box::new(plan), order, Who::StandIn)
    }

    /// Takes what came of a summary that was waited for. Nothing where the models gave none, and another should be asked.
    pub(super) fn take(
        &mut self,
        plan: Plan,
        outcome: Outcome,
        who: Who,
        ahead: &Ahead<'_>,
        rules: &Rules,
    ) -> Option<Report> {
        self.note(outcome.spent, outcome.problems);
        let facts = self.facts(ahead, rules, self.counted(ahead));
        let before = self.list.request(&facts);
        let written = match outcome.written {
            Ok(written) => written,
            Err(failure) => {
                if who == Who::Models {
                    self.failed(&failure, rules);
                    if rules.ahead && !rules.local {
                        return None;
                    }
                }
                return Some(match plan.without_answer(&mut self.list, ahead.messages, &rules.counter) {
                    // What the stages before it did is something, too.
                    Ok(report) => {
                        let report = self.condensed(report, None, before, &facts, rules);
                        Report { reason: Report::MODEL_FAILED.to_owned(), ..report }
                    }
                    Err(why) => {
                        self.rest(&why, &facts);
                        self.model_failed(&facts, rules)
                    }
                });
            }
        };
        let told = Told::of_stand_in(&plan);
        match plan.finish(&mut self.list, ahead.messages, &written.text, &rules.counter) {
            Ok(report) => {
                match who {
                    Who::Models => (self.failures, self.not_before, self.untold) = (0, None, None),
                    Who::StandIn => self.stand_in(told),
                }
                Some(self.condensed(report, Some((&written, who)), before, &facts, rules))
            }
            Err(why) => {
                if who == Who::Models {
                    self.in_vain(rules);
                }
                self.rest(&why, &facts);
                Some(self.unchanged(&why, &facts, rules))
            }
        }
    }

    pub(super) fn policy<'a>(&self, rules: &'a Rules, facts: &Facts) -> &'a Policy {
        if facts.room.is_some() { &rules.policy } else { &rules.roomless }
    }

    fn rest(&mut self, why: &Unchanged, facts: &Facts) {
        let counted = self.list.tokens().saturating_add(facts.fixed);
        self.too_long = false;
        self.resting = Some((grown(counted), *why));
    }

    fn failed(&mut self, failure: &crate::retry::Failure, rules: &Rules) {
        if failure.is_attempt() {
            self.failures = self.failures.saturating_add(1);
        }
        let wait = after_failure(failure, self.failures, jitter(), &rules.backoff);
        self.not_before = Instant::now().checked_add(wait);
    }

    /// A summary was good and still of no use, because too little would be gained: it is not asked for again at once.
    fn in_vain(&mut self, rules: &Rules) {
        self.failed(&ModelError::no_answer("its summary would have saved too little").into(), rules);
    }
}

impl Told {
    /// What a model has yet to be told when another writes this in its place.
    fn of_stand_in(plan: &Plan) -> Untold {
        Untold { prior: plan.prior.clone(), places: plan.places().to_vec(), tokens: plan.replaces() }
    }
}

/// A size at which something that failed is tried again.
fn grown(tokens: Tokens) -> Tokens {
    tokens.saturating_add((tokens / GROWN_BY).max(1))
}
