//! How large a request is, by our count and by the provider's, and what is decided by that.

use epitome_core::condense::{Facts, List, rescaled};
use epitome_core::economic::{Growth, threshold};
use epitome_core::message::{Seq, Tokens};
use epitome_core::tokens::Factor;
use epitome_core::trigger::Fraction;

use super::{Conversation, Rules, grown};
use crate::condenser::Call;
use crate::condenser::ready::Turn;
use crate::condenser::scribe::now;
use crate::fingerprint::Prints;
use crate::summarizer::PROMPT_OVERHEAD;

/// After so many passes in a row that did not help, it stops.
pub(super) const MOST_STRIKES: u32 = 2;

/// The bytes of one message's fingerprints.
const PRINT: usize = 16;

/// What is known of the sizes of a conversation's requests.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) growth: Growth,
    pub(super) factor: Factor,
    /// What the provider turned out to take at most.
    pub(super) room: Option<Tokens>,
    /// The provider found the last request too long.
    pub(super) too_long: bool,
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
    pub(super) fn forked(&self) -> Self {
        Self { too_long: false, last: None, on_trial: None, economic: None, ..*self }
    }

    /// The list is another one from here on.
    pub(super) fn begin_anew(&mut self) {
        (self.last, self.reported) = (None, None);
    }

    /// A call of this size is about to be made.
    pub(super) fn call(&mut self, counted: Tokens, list: &List) {
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
    pub(super) fn condensed(&mut self, before: Tokens, rounds: u64) {
        self.too_long = false;
        if self.reported.is_some() {
            self.on_trial = Some((before, rounds));
        }
    }

    /// The request that we count as so much, as the provider would count it, where anything is known of that.
    fn as_provider(&self, counted: Tokens, rounds: u64) -> Option<Tokens> {
        match self.reported {
            Some(told) if told.rounds == rounds && counted >= told.counted => {
                Some(told.reported.saturating_add(self.factor.apply(counted - told.counted)))
            }
            Some(told) if told.rounds == rounds => {
                Some(told.reported.saturating_sub(self.factor.apply(told.counted - counted)))
            }
            // Before it says anything of this list, what it said of others, or before a restart.
            Some(_) => Some(self.factor.apply(counted)),
            None => (self.factor != Factor::default()).then(|| self.factor.apply(counted)),
        }
    }
}

impl Conversation {
    /// What the provider says it counted for a turn's request, and how much of one a pass must save.
    pub(in crate::condenser) fn reported(&mut self, turn: &Turn, reported: Tokens, worth: Fraction) {
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
    pub(in crate::condenser) fn too_long(&mut self, room: Option<Tokens>) {
        self.counts.too_long = true;
        self.counts.room = smaller(self.counts.room, room);
    }

    pub(super) fn counted(&self, call: &Call<'_>) -> Tokens {
        self.list.tokens().saturating_add(call.fixed)
    }

    pub(super) fn facts(&mut self, call: &Call<'_>, rules: &Rules, counted: Tokens) -> Facts {
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
    pub(in crate::condenser) fn full_and_sent(&self, fixed: Tokens) -> (Tokens, Tokens) {
        let counted = self.list.tokens().saturating_add(fixed);
        let sent = self.counts.as_provider(counted, self.list.standing().rounds).unwrap_or(counted);
        (rescaled(sent, self.list.untouched().saturating_add(fixed), counted), sent)
    }

    /// About how many bytes of memory it holds.
    pub(in crate::condenser) fn bytes(&self) -> usize {
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

    /// What the first call of a conversation is decided by.
    pub(in crate::condenser) fn first_facts(&mut self, call: &Call<'_>, rules: &Rules) -> Facts {
        let counted = self.counted(call);
        self.counts.call(counted, &self.list);
        self.facts(call, rules, counted)
    }
}

/// The smaller of two sizes, as far as they are known.
fn smaller(one: Option<Tokens>, other: Option<Tokens>) -> Option<Tokens> {
    one.into_iter().chain(other).min()
}
