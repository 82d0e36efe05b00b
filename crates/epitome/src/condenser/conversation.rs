//! One conversation as a condenser knows it, and what is decided before each of its calls.
//!
//! No model is called here and nothing is waited for: [`Conversation::look`] takes the list in and says what to do, and
//! [`Conversation::take`] takes what came of it. Everything happens under one lock, so two callers at once see one after the
//! other. Its states and summaries ahead of time are in `state`, reports in `telling`.

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

/// What could not be done is tried again once the list is larger by one part in so many.
const GROWN_BY: Tokens = 20;

/// A list of fewer messages is looked at each turn: that costs next to nothing.
const FEW: usize = 256;

/// What stood in is told to the model again up to so many tokens; beyond them it is built upon.
const MOST_UNTOLD: Tokens = 400_000;

/// After so many passes in a row that did not help, it stops.
const MOST_STRIKES: u32 = 2;

/// The bytes of one message's fingerprints.
const PRINT: usize = 16;

/// What is decided by, the same for all conversations of a condenser.
#[derive(Clone)]
pub(super) struct Rules {
    pub(super) enabled: bool,
    /// Whether the model that a list is for should write its summaries too.
    pub(super) borrows: bool,
    /// What comes with every request besides the list.
    pub(super) fixed: Tokens,
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
    /// The key of the fingerprints in memory.
    pub(super) key: RandomState,
}

impl Rules {
    pub(super) fn policy(&self, facts: &Facts) -> &Policy {
        if facts.room.is_some() { &self.policy } else { &self.roomless }
    }
}

/// One look at a list: the call that is about to be made, by which rules, and what is known of its size.
struct Look<'a> {
    call: &'a Call<'a>,
    rules: &'a Rules,
    facts: Facts,
}

/// One conversation.
#[derive(Default)]
pub(super) struct Conversation {
    /// How often it has changed: grown, been condensed, or become another.
    pub(super) changes: u64,
    /// Where its list was in memory when it was last handed in.
    pub(super) place: Place,
    pub(super) prints: Prints,
    /// What was handed out when it was last condensed: some callers continue with that.
    handed: Option<Prints>,
    pub(super) list: List,
    /// What the summary in use was made of, where `local` wrote it.
    extracts: Option<Arc<Extracts>>,
    progress: Progress,
    counts: Counts,
    pauses: Pauses,
    notes: Notes,
    /// Whose it is, where that is known: answers that were paid for by others are not recalled for it.
    pub(super) whose: Option<Whose>,
}

/// What is not tried again for now.
#[derive(Clone, Copy, Default)]
struct Pauses {
    /// Nothing could be done below that size, and why.
    resting: Option<(Tokens, Unchanged)>,
    /// Nothing could be prepared below that size.
    unprepared: Option<Tokens>,
    /// How often the model failed in a row.
    failures: u32,
    /// The model is not called before this.
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

    /// The model wrote a summary.
    fn succeeded(&mut self) {
        (self.failures, self.not_before) = (0, None);
    }

    fn leave_model_alone(&self) -> bool {
        self.not_before.is_some_and(|until| Instant::now() < until)
    }
}

/// What is known of the sizes of a conversation's requests.
#[derive(Clone, Copy, Default)]
struct Counts {
    growth: Growth,
    factor: Factor,
    /// What the provider turned out to take at most.
    room: Option<Tokens>,
    /// The provider found the last request too long.
    too_long: bool,
    /// The request of the turn before: its size as counted, and how often the list had been condensed.
    last: Option<(Tokens, u64)>,
    /// The provider's own count, and ours of the same request.
    reported: Option<Reported>,
    /// How many passes in a row did not help, by the provider's count.
    strikes: u32,
    /// The request before the last pass, in the provider's tokens, until its next count tells whether it helped.
    on_trial: Option<(Tokens, u64)>,
    /// Where cutting costs least, and the size at which that was worked out.
    economic: Option<(Tokens, u64, Option<Tokens>)>,
}

#[derive(Clone, Copy)]
struct Reported {
    counted: Tokens,
    reported: Tokens,
    rounds: u64,
}

impl Counts {
    /// What holds for a fork as well.
    fn forked(&self) -> Self {
        Self { too_long: false, last: None, on_trial: None, economic: None, ..*self }
    }

    /// The list is another one from here on.
    fn begin_anew(&mut self) {
        (self.last, self.reported) = (None, None);
    }

    /// A call of this size is about to be made.
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

    /// The list was condensed: whether that helps shows in the provider's next count.
    fn condensed(&mut self, before: Tokens, rounds: u64) {
        self.too_long = false;
        if self.reported.is_some() {
            self.on_trial = Some((before, rounds));
        }
    }

    /// The request that we count as so much, as the provider would count it, where anything is known of that.
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
            // Before it says anything of this list, what it said of others, or before a restart.
            Some(_) => Some(self.factor.apply(counted)),
            None => (self.factor != Factor::default()).then(|| self.factor.apply(counted)),
        }
    }
}

/// What is to be done.
pub(super) enum Step {
    /// Nothing more: this was done.
    Done(Report),
    /// A summary is written now, and waited for.
    Write(Order, Who),
    /// The one that is being written is waited for: closed when it is there.
    Wait(watch::Receiver<()>),
    /// Something would be done, but the list is not the one that was taken in.
    Stranger,
}

impl Conversation {
    /// One that begins with this list, condensed before or not.
    pub(super) fn begun(messages: &[Message], standing: Option<&Standing>, rules: &Rules) -> Self {
        let mut new = Self {
            prints: Prints::of(messages, &rules.key),
            list: list_of(messages, standing, &rules.counter),
            ..Self::default()
        };
        // Calls that were not seen here: each reply was one, and the next is in progress.
        let replies = messages.iter().filter(|message| message.role == Role::Assistant).count() as u64;
        new.counts.growth = Growth::of(replies.saturating_add(1), new.list.tokens());
        new.left_so_far();
        new
    }

    /// Whether the list seems to go on with this conversation, as far as some looks tell.
    pub(super) fn seems_to_go_on(&mut self, messages: &[Message], rules: &Rules) -> bool {
        let from = usize::try_from(self.list.standing().from).unwrap_or(0);
        self.prints.len() > 0 && self.prints.seem(messages, from, &rules.key)
    }

    /// The same conversation with another end, where the list is that: shortened again since it was last condensed, or
    /// continued by another caller. What was done until then holds for it as well, and so does what was learnt.
    pub(super) fn forked(&mut self, messages: &[Message], rules: &Rules) -> Option<Self> {
        let standing = self.list.standing();
        let seen = usize::try_from(standing.seen).unwrap_or(usize::MAX);
        if standing.rounds == 0 || !self.prints.are(messages, seen, &rules.key) {
            return None;
        }
        let new = Self::begun(messages, Some(standing), rules);
        // What is being written of all before they parted is not thrown away, where it suits the other end.
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

    /// Whether the list is this one with other standing orders; then those are taken over. They are counted again with all
    /// the rest, and nothing else is forgotten.
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

    /// Whether the list is what was handed out, with more at its end. Then that is the list from here on: what was left out
    /// is not at hand any more, and places count anew.
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

    /// Takes the list in, and says what to do with it, and which summary to begin in the background. Before anything is
    /// done, every message is compared, unless that was done `already`. `given_up`: the models were waited for this time,
    /// and gave nothing.
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
                    "; stopped: by the provider's count, condensing did not help {MOST_STRIKES} times in a row"
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

    /// Something is due: the summary that was prepared, or what is decided now.
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

    /// A summary must be written now.
    fn ask(&mut self, plan: Plan, look: &Look<'_>, given_up: bool, begin: &mut Option<Order>) -> Step {
        let Look { call, rules, .. } = look;
        // A caller that forces it is heard at once. Otherwise a model that failed is not called in vain.
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
                // Too late for this time. What comes of it is built upon the next time.
                *begin = Some(self.order(self.for_model(plan.clone()), call.messages));
            }
            (plan, Who::StandIn)
        };
        Step::Write(self.order(plan, call.messages), who)
    }

    /// Takes what came of a summary that was waited for. Nothing where the models gave none, and another should be asked.
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
                    // What the stages before it did is something, too.
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

    /// Puts a summary in, where that makes the list smaller.
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

    /// A summary was good and still of no use, because too little would be gained: it is not asked for again at once.
    fn in_vain(&mut self, rules: &Rules) {
        let failure = ModelError::no_answer("its summary would have saved too little").into();
        self.pauses.failed(&failure, &rules.backoff);
    }
}

impl Conversation {
    /// What the provider says it counted for a turn's request, and how much of one a pass must save.
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

    /// The provider found the last request too long, and takes so much where it says so.
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

    /// The size of the request as it came, and of what is sent in its place, both as the provider would count them as far
    /// as that is known: it is taken to count the one as it counts the other.
    pub(super) fn full_and_sent(&self, fixed: Tokens) -> (Tokens, Tokens) {
        let counted = self.list.tokens().saturating_add(fixed);
        let sent = self.counts.as_provider(counted, self.list.standing().rounds).unwrap_or(counted);
        (rescaled(sent, self.list.untouched().saturating_add(fixed), counted), sent)
    }

    /// About how many bytes of memory it holds.
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

    /// Where cutting costs least, worked out again when the list has grown by a part. It is reckoned in tokens of ours, and
    /// compared with the provider's.
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

    /// What a new call is decided by.
    pub(super) fn facts_of_new(&mut self, call: &Call<'_>, rules: &Rules) -> Facts {
        self.counts.call(self.counted(call), &self.list);
        self.facts(call, rules)
    }
}

/// The smaller of two sizes, as far as they are known.
fn smaller(one: Option<Tokens>, other: Option<Tokens>) -> Option<Tokens> {
    one.into_iter().chain(other).min()
}

/// What is known of a list, condensed before or not.
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

/// A size at which something that failed is tried again.
fn grown(tokens: Tokens) -> Tokens {
    tokens.saturating_add((tokens / GROWN_BY).max(1))
}
