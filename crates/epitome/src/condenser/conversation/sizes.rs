//! How large a request is, by our count and by the provider's, and what is decided by that.

use epitome_core::condense::Facts;
use epitome_core::economic::threshold;
use epitome_core::message::Tokens;
use epitome_core::trigger::Fraction;

use super::{Ahead, Conversation, MOST_STRIKES, Rules, Told, grown};
use crate::condenser::scribe::now;
use crate::writing::PROMPT_OVERHEAD;

impl Conversation {
    /// What the provider says it counted for the last request.
    pub(in crate::condenser) fn reported(
        &mut self,
        counted: Tokens,
        rounds: u64,
        reported: Tokens,
        worth: Fraction,
    ) {
        self.factor.learn(counted, reported);
        self.told = Some(Told { counted, reported, rounds });
        if let Some((before, pass)) = self.on_trial
            && pass == rounds
        {
            self.on_trial = None;
            let helped = before.saturating_sub(reported) >= worth.of_rounded_up(before);
            self.strikes = if helped { 0 } else { self.strikes.saturating_add(1) };
            self.stopped_at = (self.strikes >= MOST_STRIKES).then_some(reported);
        }
    }

    /// The provider found the last request too long, and takes so much where it says so.
    pub(in crate::condenser) fn too_long(&mut self, room: Option<Tokens>) {
        self.too_long = true;
        if let Some(room) = room {
            self.room = Some(self.room.map_or(room, |known| known.min(room)));
        }
    }

    pub(super) fn counted(&self, ahead: &Ahead<'_>) -> Tokens {
        self.list.tokens().saturating_add(ahead.fixed)
    }

    pub(super) fn count_call(&mut self, counted: Tokens) {
        let rounds = self.list.standing().rounds;
        match self.last {
            Some((last, before)) if before == rounds && counted > last => self.growth.add(counted - last),
            Some(_) => {}
            None if self.growth.calls() == 0 => self.growth.add(counted),
            None => {}
        }
        self.last = Some((counted, rounds));
    }

    pub(super) fn facts(&mut self, ahead: &Ahead<'_>, rules: &Rules, counted: Tokens) -> Facts {
        let room = ahead.room.or(rules.room);
        let room = match (room, self.room) {
            (Some(known), Some(found)) => Some(known.min(found)),
            (known, found) => known.or(found),
        };
        let rounds = self.list.standing().rounds;
        let request = ahead.request.or(self.told.map(|told| match told.rounds == rounds {
            true if counted >= told.counted => {
                told.reported.saturating_add(self.factor.apply(counted - told.counted))
            }
            true => told.reported.saturating_sub(self.factor.apply(told.counted - counted)),
            false => self.factor.apply(counted),
        }));
        let mut facts = Facts { room, request, fixed: ahead.fixed, force: ahead.force, ..Facts::at(now()) };
        if rules.policy.trigger.is_economic() {
            facts.economic = self.economic(rules, &facts, counted);
        }
        facts
    }

    /// Where cutting costs least, worked out anew when the list has grown by a part.
    pub(super) fn economic(&mut self, rules: &Rules, facts: &Facts, counted: Tokens) -> Option<Tokens> {
        let rounds = self.list.standing().rounds;
        if let Some((at, then, known)) = self.economic
            && then == rounds
            && counted < grown(at)
            && self.growth.calls() > 8
        {
            return known;
        }
        let prompt = if rules.local { 0 } else { PROMPT_OVERHEAD };
        let shape = self.list.shape(&rules.policy, facts, &self.growth, prompt, &rules.counter);
        let found = threshold(&rules.prices, &shape, facts.room);
        self.economic = Some((counted, rounds, found));
        found
    }

    /// What the first call of a conversation is decided by.
    pub(in crate::condenser) fn first_facts(&mut self, ahead: &Ahead<'_>, rules: &Rules) -> Facts {
        let counted = self.counted(ahead);
        self.count_call(counted);
        self.facts(ahead, rules, counted)
    }
}
