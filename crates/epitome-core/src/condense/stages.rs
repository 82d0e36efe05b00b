//! What the stages of a strategy have made of a list so far, and whether that is worth accepting.

use super::divide::Scene;
use super::draft::Draft;
use super::list::{List, Standing};
use super::{Facts, Policy, Report, Unchanged};
use crate::message::{Seq, Tokens};
use crate::trigger::Grouped;

/// What accepting something makes of the list's rounds.
pub(super) fn next_round(list: &List) -> u64 {
    list.standing.rounds.saturating_add(1)
}

/// What stands once a step is accepted.
pub(super) fn accepted(list: &List, standing: Standing, facts: &Facts) -> Standing {
    let seen = list.len() as Seq;
    let looked = if list.standing.rounds == 0 { seen } else { list.standing.looked };
    Standing {
        rounds: next_round(list),
        seen,
        looked,
        at: facts.now,
        // A new list has a new beginning.
        note: None,
        ..standing
    }
}

impl List {
    /// Whether a list of `after` tokens is worth putting in the place of this one of `before`. Where this one does not fit,
    /// one that does is.
    pub(super) fn worth(
        &self,
        policy: &Policy,
        facts: &Facts,
        before: Tokens,
        after: Tokens,
    ) -> Result<(), Unchanged> {
        if after >= before {
            return Err(Unchanged::NotSmaller { before, after });
        }
        let (saves, needed) = (before - after, policy.worth.of_rounded_up(before));
        let fits = self.over(facts).is_some_and(|room| after <= room);
        if saves < needed && !fits { Err(Unchanged::NotWorth { saves, needed }) } else { Ok(()) }
    }

    /// What would fit, as it is counted here, where the request does not.
    pub(super) fn over(&self, facts: &Facts) -> Option<Tokens> {
        let room = facts.room.filter(|room| self.request(facts) > *room)?;
        Some(self.as_ours(room, facts))
    }
}

/// What the stages so far have made of a list.
#[derive(Debug, Clone)]
pub(super) struct Stages {
    pub(super) names: Vec<&'static str>,
    /// What was done, for people.
    pub(super) told: Vec<String>,
    pub(super) draft: Draft,
}

impl Stages {
    pub(super) fn after(before: Option<Self>, stage: &'static str, draft: Draft, note: String) -> Self {
        let (mut names, mut told) = before.map_or_else(Default::default, |done| (done.names, done.told));
        names.push(stage);
        told.push(note);
        Self { names, told, draft }
    }

    pub(super) fn scene(&self) -> Scene<'_> {
        Scene { front: &self.draft.front, tail: &self.draft.tail, standing: &self.draft.standing }
    }

    /// What accepting the draft does to the list.
    pub(super) fn report(&self, list: &List, fixed: Tokens) -> Report {
        let tokens_before = list.tokens().saturating_add(fixed);
        let tokens_after = self.draft.sheet.tokens().saturating_add(fixed);
        let told = self.told.join("; ");
        Report {
            strategy: self.names.join(" + "),
            messages_before: list.shown_len() as u64,
            messages_after: self.draft.sheet.len() as u64,
            tokens_before,
            tokens_after,
            covers: self.covers(),
            notice: format!("{told}: {} tokens are now {}", Grouped(tokens_before), Grouped(tokens_after)),
        }
    }

    fn covers(&self) -> Option<[Seq; 2]> {
        let standing = &self.draft.standing;
        let whole = standing.kept.iter().zip(1..).take_while(|(seq, at)| **seq == *at).count() as Seq;
        let cut = (standing.from > whole).then_some([whole + 1, standing.from]);
        let masked = self.draft.masked.run.map(|(first, last)| [first, last]);
        match (cut, masked) {
            (Some([from, through]), Some([_, last])) => Some([from, through.max(last)]),
            (cut, masked) => cut.or(masked),
        }
    }
}
