//! How large a request is, by our count and by the provider's, and what is decided by that.

use epitome_core::condense::{Facts, rescaled};
use epitome_core::economic::threshold;
use epitome_core::message::{Seq, Tokens};
use epitome_core::tokens::Factor;
use epitome_core::trigger::Fraction;

use super::{Ahead, Conversation, MOST_STRIKES, Rules, Told, grown};
use crate::condenser::known::Prints;
use crate::condenser::scribe::now;
use crate::summarizer::PROMPT_OVERHEAD;

/// What a message that was taken in leaves behind for it to be known again.
const PRINT: usize = 16;

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
        let request = ahead.request.or_else(|| self.as_provider(counted));
        let mut facts = Facts { room, request, fixed: ahead.fixed, force: ahead.force, ..Facts::at(now()) };
        if rules.policy.trigger.is_economic() {
            facts.economic = self.economic(rules, &facts, counted);
        }
        facts
    }

    /// The request that we count as so much, as the provider would count it, where anything is known of that.
    fn as_provider(&self, counted: Tokens) -> Option<Tokens> {
        let rounds = self.list.standing().rounds;
        match self.told {
            Some(told) if told.rounds == rounds && counted >= told.counted => {
                Some(told.reported.saturating_add(self.factor.apply(counted - told.counted)))
            }
            Some(told) if told.rounds == rounds => {
                Some(told.reported.saturating_sub(self.factor.apply(told.counted - counted)))
            }
            // Before it says anything of this list, what it said of others, or before a restart.
            _ if self.told.is_some() || self.factor != Factor::default() => Some(self.factor.apply(counted)),
            _ => None,
        }
    }

    /// The size of the request as it came, and of what is sent in its place, both as the provider would count them as far
    /// as that is known: it is taken to count the one as it counts the other.
    pub(in crate::condenser) fn full_and_sent(&self, fixed: Tokens) -> (Tokens, Tokens) {
        let counted = self.list.tokens().saturating_add(fixed);
        let sent = self.as_provider(counted).unwrap_or(counted);
        (rescaled(sent, self.list.untouched().saturating_add(fixed), counted), sent)
    }

    /// About how many bytes of memory it holds.
    pub(in crate::condenser) fn bytes(&self) -> usize {
        let prints = self.prints.len().saturating_add(self.handed.as_ref().map_or(0, Prints::len));
        let untold = self.untold.as_ref();
        let untold = untold.map_or(0, |untold| {
            let places = untold.places.capacity().saturating_mul(size_of::<Seq>());
            untold.prior.as_ref().map_or(0, String::len).saturating_add(places)
        });
        let others = [
            prints.saturating_mul(PRINT),
            untold,
            self.extracts.as_ref().map_or(0, |extracts| extracts.bytes()),
            self.preparing.as_ref().map_or(0, |preparing| preparing.bytes),
            size_of::<Self>(),
        ];
        others.into_iter().fold(self.list.bytes(), usize::saturating_add)
    }

    /// Where cutting costs least, worked out anew when the list has grown by a part.
    pub(super) fn economic(&mut self, rules: &Rules, facts: &Facts, counted: Tokens) -> Option<Tokens> {
        // All of it is reckoned in tokens of ours, and compared with the provider's.
        let room = facts.room.map(|room| self.list.as_ours(room, facts));
        self.economic_in_ours(rules, facts, room, counted).map(|ours| self.list.as_theirs(ours, facts))
    }

    fn economic_in_ours(
        &mut self,
        rules: &Rules,
        facts: &Facts,
        room: Option<Tokens>,
        counted: Tokens,
    ) -> Option<Tokens> {
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
        let found = threshold(&rules.prices, &shape, room);
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
