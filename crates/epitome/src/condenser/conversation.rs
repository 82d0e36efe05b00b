//! The state of one conversation, and the decision before each of its calls.
//!
//! This module calls no model and waits for nothing. [`Conversation::look`] takes the list in and returns the next
//! step; [`Conversation::take`] takes the result of a summary. Both run under the conversation's lock, so concurrent
//! callers are serialized. The state and summaries written in advance are in `state`, reports in `telling`.

use std::hash::RandomState;
use std::sync::Arc;
use std::time::Instant;

use epitome_core::condense::{Decision, Facts, List, Plan, Policy, Press, Standing, Unchanged, rescaled};
use epitome_core::economic::{Growth, Prices, threshold};
use epitome_core::local::Extracts;
use epitome_core::message::{Message, Role, Seq, Tokens};
use epitome_core::tokens::{Counter, Factor};
use epitome_core::trigger::{Fraction, SOFT};
use tokio::sync::watch;

use super::Call;
use super::ready::{Report, Turn};
use super::scribe::{Order, Outcome, Whose, Written, now};
use crate::fingerprint::{Place, Prints};
use crate::model::ModelError;
use crate::retry::{Backoff, Failure, after_failure, jitter};
use crate::summarizer::PROMPT_OVERHEAD;
use crate::writer::Who;

mod state;
mod telling;

pub(super) use state::{Preparing, Slip};
use state::{Progress, Untold};
pub use telling::Kept;
use telling::Notes;

/// After a failure, the same work is tried again when the list has grown by one part in this many (5 %).
const GROWN_BY: Tokens = 20;

/// Up to this number of messages, the list is examined on every turn even after a failure, because that is cheap.
const FEW: usize = 256;

/// Up to this many tokens, the model reads again what a fallback summary covers. Beyond, it builds on the fallback
/// summary.
const MOST_UNTOLD: Tokens = 400_000;

/// Number of consecutive condensations without effect after which condensing stops.
const MOST_STRIKES: u32 = 2;

/// Size of one message's fingerprints in bytes.
const PRINT: usize = 16;

/// The configuration of decisions, shared by all conversations of a condenser.
#[derive(Clone)]
pub(super) struct Rules {
    pub(super) enabled: bool,
    /// Whether the model that a list is for should also write its summaries.
    pub(super) borrows: bool,
    /// Tokens of every request outside the list.
    pub(super) fixed: Tokens,
    pub(super) policy: Policy,
    /// The policy if the model's window is unknown.
    pub(super) roomless: Policy,
    pub(super) counter: Counter,
    pub(super) room: Option<Tokens>,
    /// The model's whole window, including the output reserve.
    pub(super) window: Option<Tokens>,
    pub(super) prices: Prices,
    /// Token prices if the model that the list is for writes the summaries itself.
    pub(super) prices_of_same: Prices,
    /// Whether a turn waits for the model.
    pub(super) wait: bool,
    /// Whether there is a next call. If so, summaries are begun in advance, and `local` writes a fallback if one is
    /// late.
    pub(super) ahead: bool,
    /// Whether `local` is the only model.
    pub(super) local: bool,
    pub(super) backoff: Backoff,
    /// The key of the in-memory fingerprints.
    pub(super) key: RandomState,
}

impl Rules {
    pub(super) fn policy(&self, facts: &Facts) -> &Policy {
        if facts.room.is_some() { &self.policy } else { &self.roomless }
    }
}

/// One examination of a list: the call, the rules, and the facts about its size.
struct Look<'a> {
    call: &'a Call<'a>,
    rules: &'a Rules,
    facts: Facts,
}

/// The state of one conversation.
#[derive(Default)]
pub(super) struct Conversation {
    /// Counts changes: the list grew, was condensed, or was replaced.
    pub(super) changes: u64,
    /// Memory address of the list when it was last passed in.
    pub(super) place: Place,
    pub(super) prints: Prints,
    /// Fingerprints of the list returned after the last condensation; some callers continue with that list.
    handed: Option<Prints>,
    pub(super) list: List,
    /// The extracts that the current summary was made of, if `local` wrote it.
    extracts: Option<Arc<Extracts>>,
    progress: Progress,
    counts: Counts,
    pauses: Pauses,
    notes: Notes,
    /// The owner of the conversation, if it has one. Cached answers that other owners paid for are not reused for it.
    pub(super) whose: Option<Whose>,
}

/// Work that is not tried again for now.
#[derive(Clone, Copy, Default)]
struct Pauses {
    /// Below this size nothing could be done, and the reason.
    resting: Option<(Tokens, Unchanged)>,
    /// Below this size no summary could be prepared.
    unprepared: Option<Tokens>,
    /// Number of consecutive failures of the model.
    failures: u32,
    /// The model is not called before this time.
    not_before: Option<Instant>,
}

impl Pauses {
    fn failed(&mut self, failure: &Failure, backoff: &Backoff) {
        if failure.is_attempt() {
            self.failures = self.failures.saturating_add(1);
        }
        let wait = after_failure(failure, self.failures, jitter(), backoff);
        self.not_before = Instant::now().checked_add(wait);
    }

    /// Resets the failures after the model wrote a summary.
    fn succeeded(&mut self) {
        (self.failures, self.not_before) = (0, None);
    }

    fn leave_model_alone(&self) -> bool {
        self.not_before.is_some_and(|until| Instant::now() < until)
    }
}

/// Sizes of a conversation's requests.
#[derive(Clone, Copy, Default)]
struct Counts {
    growth: Growth,
    factor: Factor,
    /// The largest input that the provider accepts, learned from a rejection.
    room: Option<Tokens>,
    /// Whether the provider rejected the last request as too long.
    too_long: bool,
    /// The previous turn's request: its local token count, and the number of condensations at that time.
    last: Option<(Tokens, u64)>,
    /// The provider's own count of a request, with the local count of the same request.
    reported: Option<Reported>,
    /// Number of consecutive condensations that did not help, by the provider's count.
    strikes: u32,
    /// Size of the request before the last condensation, in the provider's tokens, until the provider's next count
    /// shows whether the condensation helped.
    on_trial: Option<(Tokens, u64)>,
    /// Result of the economic threshold, and the size and number of condensations for which it was computed.
    economic: Option<(Tokens, u64, Option<Tokens>)>,
}

#[derive(Clone, Copy)]
struct Reported {
    counted: Tokens,
    reported: Tokens,
    rounds: u64,
}

impl Counts {
    /// Returns the part of the state that also applies to a fork.
    fn forked(&self) -> Self {
        Self { too_long: false, last: None, on_trial: None, economic: None, ..*self }
    }

    /// Resets the state because the list was replaced.
    fn begin_anew(&mut self) {
        (self.last, self.reported) = (None, None);
    }

    /// Records the size of a call that is about to be made.
    fn call(&mut self, counted: Tokens, list: &List) {
        let rounds = list.standing().rounds;
        match self.last {
            Some((last, before)) if before == rounds && counted > last => self.growth.add(counted - last),
            Some(_) => {}
            None if self.growth.calls() == 0 => self.growth.add(counted),
            None => {}
        }
        self.last = Some((counted, rounds));
    }

    /// Records a condensation; the provider's next count shows whether it helped.
    fn condensed(&mut self, before: Tokens, rounds: u64) {
        self.too_long = false;
        if self.reported.is_some() {
            self.on_trial = Some((before, rounds));
        }
    }

    /// Returns the provider's count for a request with this local count, if there is any information about it.
    fn as_provider(&self, counted: Tokens, rounds: u64) -> Option<Tokens> {
        match self.reported {
            Some(told) if told.rounds == rounds => {
                let apart = self.factor.apply(counted.abs_diff(told.counted));
                let larger = counted >= told.counted;
                Some(if larger {
                    told.reported.saturating_add(apart)
                } else {
                    told.reported.saturating_sub(apart)
                })
            }
            // Without a count of this list: uses the ratio from earlier counts, including those before a restart.
            Some(_) => Some(self.factor.apply(counted)),
            None => (self.factor != Factor::default()).then(|| self.factor.apply(counted)),
        }
    }
}

/// The next step for a list.
pub(super) enum Step {
    /// Nothing more to do; this was done.
    Done(Report),
    /// Write a summary now, and wait for it.
    Write(Order, Who),
    /// Wait for the summary that is being written; the channel closes when it is finished.
    Wait(watch::Receiver<()>),
    /// Something is due, but the list is not the one that was taken in.
    Stranger,
}

impl Conversation {
    /// Creates the state for a conversation that begins with this list, condensed before or not.
    pub(super) fn begun(messages: &[Message], standing: Option<&Standing>, rules: &Rules) -> Self {
        let mut new = Self {
            prints: Prints::of(messages, &rules.key),
            list: list_of(messages, standing, &rules.counter),
            ..Self::default()
        };
        // Calls made before: one per assistant message, plus the call in progress.
        let replies = messages.iter().filter(|message| message.role == Role::Assistant).count() as u64;
        new.counts.growth = Growth::of(replies.saturating_add(1), new.list.tokens());
        new.left_so_far();
        new
    }

    /// Returns whether the list appears to continue this conversation, by sampling.
    pub(super) fn seems_to_go_on(&mut self, messages: &[Message], rules: &Rules) -> bool {
        let from = usize::try_from(self.list.standing().from).unwrap_or(0);
        self.prints.len() > 0 && self.prints.seem(messages, from, &rules.key)
    }

    /// Returns a fork of the conversation if the list shares everything up to the last condensation but ends
    /// differently: it was shortened again, or continued by another caller. The fork inherits the condensation and the
    /// learned counts.
    pub(super) fn forked(&mut self, messages: &[Message], rules: &Rules) -> Option<Self> {
        let standing = self.list.standing();
        let seen = usize::try_from(standing.seen).unwrap_or(usize::MAX);
        if standing.rounds == 0 || !self.prints.are(messages, seen, &rules.key) {
            return None;
        }
        let new = Self::begun(messages, Some(standing), rules);
        // Moves the summary in progress to the fork if it covers only messages that both share.
        let preparing = self.progress.preparing.take_if(|preparing| {
            let through = usize::try_from(preparing.plan.standing.from).unwrap_or(usize::MAX);
            self.prints.are(messages, through, &rules.key) && preparing.plan.suits(&new.list)
        });
        let Progress { untold, stopped_at, .. } = &self.progress;
        Some(Self {
            progress: Progress { preparing, untold: untold.clone(), stopped_at: *stopped_at },
            extracts: self.extracts.clone(),
            counts: self.counts.forked(),
            pauses: Pauses { resting: None, unprepared: None, ..self.pauses },
            whose: self.whose,
            ..new
        })
    }

    /// Returns whether the list differs from this one only in its leading system messages, and then takes them over.
    /// The whole list is counted again; the rest of the state stays.
    pub(super) fn takes_head(&mut self, messages: &[Message], rules: &Rules) -> bool {
        if !self.prints.differ_in_head(messages, &rules.key) {
            return false;
        }
        let known = messages.get(..self.prints.len()).unwrap_or(messages);
        let standing = Some(self.list.standing()).filter(|standing| standing.rounds > 0);
        self.list = list_of(known, standing, &rules.counter);
        self.prints = Prints::of(known, &rules.key);
        self.changes = self.changes.wrapping_add(1);
        true
    }

    /// Returns whether the list is the one returned last, with more messages at its end. From then on that is the
    /// conversation's list: the messages left out are no longer available, and positions are counted from its start.
    pub(super) fn takes_handed(&mut self, messages: &[Message], rules: &Rules) -> bool {
        let key = &rules.key;
        let goes_on =
            |handed: &mut Prints| handed.seem(messages, 0, key) && handed.are(messages, handed.len(), key);
        if !self.handed.as_mut().is_some_and(goes_on) {
            return false;
        }
        let fresh = Self::begun(messages, None, rules);
        (self.prints, self.list, self.notes.left) = (fresh.prints, fresh.list, fresh.notes.left);
        self.changes = self.changes.wrapping_add(1);
        self.handed = None;
        (self.progress.untold, self.progress.preparing) = (None, None);
        self.counts.begin_anew();
        true
    }

    /// Takes the list in and returns the next step, and in `begin` the summary to write in the background. Before
    /// anything is done, every message is compared, unless `already` says that this was done. `given_up` says that this
    /// call already waited for the models, and they wrote no summary.
    pub(super) fn look(
        &mut self,
        call: &Call<'_>,
        rules: &Rules,
        already: bool,
        given_up: bool,
        begin: &mut Option<Order>,
    ) -> Step {
        let known = self.prints.len();
        let strange = |this: &Self| !already && !this.prints.are(call.messages, known, &rules.key);
        if call.messages.len() > known {
            self.changes = self.changes.wrapping_add(1);
        }
        self.list.advance(call.messages, &rules.counter);
        self.prints.extend(call.messages, &rules.key);
        self.collect(rules);
        let mut facts = self.facts_of_new(call, rules);
        if self.counts.too_long {
            facts.force = Some(Press::Hard);
        }
        let policy = rules.policy(&facts);
        let request = self.list.request(&facts);
        let over = facts.room.is_some_and(|room| request > room);
        let due = facts.force.is_some() || over || self.list.due(policy, &facts, Fraction::ONE).is_now();
        let look = Look { call, rules, facts };
        let counted = self.counted(call);
        if !due || self.list.is_empty() {
            if self.may_prepare(counted, rules) && self.list.due(policy, &look.facts, SOFT).is_now() {
                if strange(self) {
                    return Step::Stranger;
                }
                *begin = self.prepare(&look);
            }
            return Step::Done(self.unchanged(&Unchanged::NotDue, &look));
        }
        if look.facts.force.is_none() && !over {
            let half_more = |size: Tokens| size.saturating_add(size / 2);
            if self.progress.stopped_at.is_some_and(|size| request < half_more(size)) {
                let said = format!(
                    "; stopped: by the provider's token count, condensing did not help {MOST_STRIKES} times in a row"
                );
                return Step::Done(self.plain("stopped", &said, &look));
            }
            if let Some((until, why)) = self.pauses.resting
                && counted < until
                && self.list.shown_len() > FEW
            {
                return Step::Done(self.unchanged(&why, &look));
            }
        }
        if strange(self) {
            return Step::Stranger;
        }
        self.act(&look, given_up, begin)
    }

    /// Carries out what is due: puts in the prepared summary, or decides now.
    fn act(&mut self, look: &Look<'_>, given_up: bool, begin: &mut Option<Order>) -> Step {
        let Look { call, rules, facts } = look;
        if let Some(done) = self.prepared(look) {
            return Step::Done(done);
        }
        if rules.wait
            && let Some(ended) = self.under_way()
        {
            return Step::Wait(ended);
        }
        match self.list.decide(call.messages, rules.policy(facts), facts, &rules.counter) {
            Decision::Unchanged(why) => {
                self.rest(&why, facts);
                Step::Done(self.unchanged(&why, look))
            }
            Decision::Done(done) => {
                let before = self.list.request(facts);
                Step::Done(match done.apply(&mut self.list) {
                    Ok(report) => self.condensed(report, None, before, look),
                    Err(why) => self.unchanged(&why, look),
                })
            }
            Decision::Ask(plan) => self.ask(*plan, look, given_up, begin),
        }
    }

    /// Requests a summary that is needed now.
    fn ask(&mut self, plan: Plan, look: &Look<'_>, given_up: bool, begin: &mut Option<Order>) -> Step {
        let Look { call, rules, .. } = look;
        // A forced call calls the model immediately. Otherwise a model that failed is not called during its pause.
        let pausing = call.force.is_none() && self.pauses.leave_model_alone();
        let left_alone = given_up || pausing;
        let (plan, who) = if rules.local {
            (plan, Who::Models)
        } else if rules.wait && !left_alone {
            (self.for_model(plan), Who::Models)
        } else if !rules.ahead {
            return Step::Done(self.model_failed(look));
        } else {
            if self.progress.preparing.is_none() && !left_alone {
                // Too late for this turn; the next summary is based on the result.
                *begin = Some(self.order(self.for_model(plan.clone()), call.messages));
            }
            (plan, Who::StandIn)
        };
        Step::Write(self.order(plan, call.messages), who)
    }

    /// Takes the result of a summary that was waited for. Returns `None` if the models wrote none and `local` should
    /// write it.
    pub(super) fn take(
        &mut self,
        plan: Plan,
        outcome: Outcome,
        who: Who,
        call: &Call<'_>,
        rules: &Rules,
    ) -> Option<Report> {
        self.note(outcome.spent, outcome.problems);
        let facts = self.facts(call, rules);
        let look = Look { call, rules, facts };
        let written = match outcome.written {
            Ok(written) => written,
            Err(failure) => {
                if who == Who::Models {
                    self.pauses.failed(&failure, &rules.backoff);
                    if rules.ahead && !rules.local {
                        return None;
                    }
                }
                let before = self.list.request(&facts);
                return Some(match plan.without_answer(&mut self.list, call.messages, &rules.counter) {
                    // The earlier stages of a pipeline may have shortened the list.
                    Ok(report) => {
                        let report = self.condensed(report, None, before, &look);
                        Report { reason: Report::MODEL_FAILED.to_owned(), ..report }
                    }
                    Err(why) => {
                        self.rest(&why, &facts);
                        self.model_failed(&look)
                    }
                });
            }
        };
        Some(self.put_in(plan, &written, who, &look).unwrap_or_else(|why| {
            if who == Who::Models {
                self.in_vain(rules);
            }
            self.rest(&why, &facts);
            self.unchanged(&why, &look)
        }))
    }

    /// Puts a summary into the list, if that makes the list smaller.
    fn put_in(
        &mut self,
        plan: Plan,
        written: &Written,
        who: Who,
        look: &Look<'_>,
    ) -> Result<Report, Unchanged> {
        let before = self.list.request(&look.facts);
        let (prior, places, tokens) = (plan.prior.clone(), plan.places.clone(), plan.replaces);
        let done = plan.finish(&mut self.list, look.call.messages, &written.text, &look.rules.counter)?;
        match who {
            Who::Models => {
                self.pauses.succeeded();
                self.progress.untold = None;
            }
            Who::StandIn => self.progress.fallback(Untold { prior, places, tokens }),
        }
        Ok(self.condensed(done, Some((written, who)), before, look))
    }

    fn rest(&mut self, why: &Unchanged, facts: &Facts) {
        let counted = self.list.tokens().saturating_add(facts.fixed);
        self.counts.too_long = false;
        self.pauses.resting = Some((grown(counted), *why));
    }

    /// Starts a pause after a valid summary that would have saved too little, so that it is not requested again
    /// immediately.
    fn in_vain(&mut self, rules: &Rules) {
        let failure = ModelError::no_answer("the summary would have saved too little").into();
        self.pauses.failed(&failure, &rules.backoff);
    }
}

impl Conversation {
    /// Records the provider's token count of a turn's request. `worth` is the share that a condensation must save.
    pub(super) fn reported(&mut self, turn: &Turn, reported: Tokens, worth: Fraction) {
        let Turn { counted, rounds, .. } = *turn;
        let counts = &mut self.counts;
        counts.factor.learn(counted, reported);
        counts.reported = Some(Reported { counted, reported, rounds });
        let Some((before, _)) = counts.on_trial.take_if(|(_, pass)| *pass == rounds) else { return };
        let helped = before.saturating_sub(reported) >= worth.of_rounded_up(before);
        counts.strikes = if helped { 0 } else { counts.strikes.saturating_add(1) };
        self.progress.stopped_at = (counts.strikes >= MOST_STRIKES).then_some(reported);
    }

    /// Records that the provider rejected the last request as too long, and the input limit if it reported one.
    pub(super) fn too_long(&mut self, room: Option<Tokens>) {
        self.counts.too_long = true;
        self.counts.room = smaller(self.counts.room, room);
    }

    fn counted(&self, call: &Call<'_>) -> Tokens {
        self.list.tokens().saturating_add(call.fixed)
    }

    fn facts(&mut self, call: &Call<'_>, rules: &Rules) -> Facts {
        let counted = self.counted(call);
        let room = smaller(call.room.or(rules.room), self.counts.room);
        let rounds = self.list.standing().rounds;
        let request = call.counted.or_else(|| self.counts.as_provider(counted, rounds));
        let mut facts = Facts { room, request, fixed: call.fixed, force: call.force, ..Facts::at(now()) };
        if rules.policy.trigger.is_economic() {
            facts.economic = self.economic(rules, &facts, counted);
        }
        facts
    }

    /// Returns the size of the request as it came in, and of the request that is sent. Both are in the provider's
    /// tokens as far as its counts are available, assuming the same ratio to the local count for both.
    pub(super) fn full_and_sent(&self, fixed: Tokens) -> (Tokens, Tokens) {
        let counted = self.list.tokens().saturating_add(fixed);
        let sent = self.counts.as_provider(counted, self.list.standing().rounds).unwrap_or(counted);
        (rescaled(sent, self.list.untouched().saturating_add(fixed), counted), sent)
    }

    /// Returns the approximate memory use in bytes.
    pub(super) fn bytes(&self) -> usize {
        let prints = self.prints.len().saturating_add(self.handed.as_ref().map_or(0, Prints::len));
        let untold = self.progress.untold.as_ref().map_or(0, |untold| {
            let places = untold.places.capacity().saturating_mul(size_of::<Seq>());
            untold.prior.as_ref().map_or(0, String::len).saturating_add(places)
        });
        let others = [
            prints.saturating_mul(PRINT),
            untold,
            self.extracts.as_ref().map_or(0, |extracts| extracts.bytes()),
            self.progress.preparing.as_ref().map_or(0, |preparing| preparing.bytes),
            size_of::<Self>(),
        ];
        others.into_iter().fold(self.list.bytes(), usize::saturating_add)
    }

    /// Returns the size at which cutting costs least. It is recomputed when the list has grown. The computation uses
    /// local token counts; the result is converted to the provider's.
    fn economic(&mut self, rules: &Rules, facts: &Facts, counted: Tokens) -> Option<Tokens> {
        let rounds = self.list.standing().rounds;
        let growth = &self.counts.growth;
        let ours = match self.counts.economic {
            Some((at, then, known)) if then == rounds && counted < grown(at) && growth.calls() > 8 => known,
            _ => {
                let prompt = if rules.local { 0 } else { PROMPT_OVERHEAD };
                let shape = self.list.shape(&rules.policy, facts, growth, prompt, &rules.counter);
                let room = facts.room.map(|room| self.list.as_ours(room, facts));
                let found = threshold(&rules.prices, &shape, room);
                self.counts.economic = Some((counted, rounds, found));
                found
            }
        };
        ours.map(|ours| self.list.as_theirs(ours, facts))
    }

    /// Returns the facts for a new call, and records its size.
    pub(super) fn facts_of_new(&mut self, call: &Call<'_>, rules: &Rules) -> Facts {
        self.counts.call(self.counted(call), &self.list);
        self.facts(call, rules)
    }
}

/// Returns the smaller of two optional sizes.
fn smaller(one: Option<Tokens>, other: Option<Tokens>) -> Option<Tokens> {
    one.into_iter().chain(other).min()
}

/// Builds the list state of messages that may have been condensed before.
fn list_of(messages: &[Message], standing: Option<&Standing>, counter: &Counter) -> List {
    match standing {
        Some(standing) => List::resume(messages, standing, counter),
        None => {
            let mut list = List::default();
            list.advance(messages, counter);
            list
        }
    }
}

/// Returns the size at which failed work is tried again.
fn grown(tokens: Tokens) -> Tokens {
    tokens.saturating_add((tokens / GROWN_BY).max(1))
}
