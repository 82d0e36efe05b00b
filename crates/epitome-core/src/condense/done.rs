//! The result of the stages so far, and the test whether it is worth accepting.

use super::divide::Scene;
use super::draft::Draft;
use super::list::{List, Standing};
use super::{Facts, Policy, Report, Unchanged};
use crate::message::{Seq, Tokens};
use crate::trigger::grouped;

impl List {
    /// Returns the state of the list after a step is accepted.
    pub(super) fn accepted(&self, standing: Standing, facts: &Facts) -> Standing {
        let seen = self.len() as Seq;
        Standing {
            rounds: self.standing.rounds.saturating_add(1),
            seen,
            looked: if self.standing.rounds == 0 { seen } else { self.standing.looked },
            at: facts.now,
            // A new list may need a different opening, so this is decided again.
            note: None,
            ..standing
        }
    }

    /// Returns whether the list was condensed after this state was computed for it.
    pub(super) fn has_overtaken(&self, accepted: &Standing) -> bool {
        accepted.rounds != self.standing.rounds.saturating_add(1)
    }

    /// Checks that replacing this list with a request of `after` tokens is worth it. If the current request does not
    /// fit, any request that fits is worth it.
    pub(super) fn worth(&self, policy: &Policy, facts: &Facts, after: Tokens) -> Result<(), Unchanged> {
        let before = self.counted(facts);
        if after >= before {
            return Err(Unchanged::NotSmaller { before, after });
        }
        let (saves, needed) = (before - after, policy.worth.of_rounded_up(before));
        let fits = self.over(facts).is_some_and(|room| after <= room);
        if saves < needed && !fits { Err(Unchanged::NotWorth { saves, needed }) } else { Ok(()) }
    }

    /// Returns `room` converted to the local token count if the request exceeds it, otherwise `None`.
    pub(super) fn over(&self, facts: &Facts) -> Option<Tokens> {
        let room = facts.room.filter(|room| self.request(facts) > *room)?;
        Some(self.as_ours(room, facts))
    }
}

/// A shorter list, made by the stages of a strategy and not yet accepted.
#[derive(Debug, Clone)]
pub struct Done {
    pub(super) names: Vec<&'static str>,
    /// What each stage did, for people.
    pub(super) told: Vec<String>,
    pub(super) draft: Draft,
    /// Tokens of the request outside the list.
    pub(super) fixed: Tokens,
}

impl Done {
    /// Records that one more stage produced this draft.
    pub(super) fn after(
        before: Option<Self>,
        stage: &'static str,
        draft: Draft,
        told: String,
        fixed: Tokens,
    ) -> Self {
        let (mut names, mut all) = before.map_or_else(Default::default, |done| (done.names, done.told));
        names.push(stage);
        all.push(told);
        Self { names, told: all, draft, fixed }
    }

    pub(super) fn scene<'a>(&'a self, list: &'a List, policy: &'a Policy, facts: &'a Facts) -> Scene<'a> {
        let Draft { front, tail, standing, .. } = &self.draft;
        Scene { list, policy, facts, front, tail, standing }
    }

    /// Returns the state of the list after this result is accepted.
    pub fn standing(&self) -> &Standing {
        &self.draft.standing
    }

    /// Returns the tokens of the whole request after this result is accepted.
    pub(super) fn tokens(&self) -> Tokens {
        self.draft.sheet.tokens().saturating_add(self.fixed)
    }

    /// Accepts the result. Fails, without changing the list, if the list changed after the decision.
    pub fn apply(self, list: &mut List) -> Result<Report, Unchanged> {
        let standing = self.standing();
        if standing.seen != list.len() as Seq || list.has_overtaken(standing) {
            return Err(Unchanged::Overtaken);
        }
        let tokens_before = list.tokens().saturating_add(self.fixed);
        let tokens_after = self.tokens();
        let told = self.told.join("; ");
        let report = Report {
            strategy: self.names.join(" + "),
            messages_before: list.shown_len() as u64,
            messages_after: self.draft.sheet.len() as u64,
            tokens_before,
            tokens_after,
            covers: self.covers(),
            notice: format!("{told}: {} tokens are now {}", grouped(tokens_before), grouped(tokens_after)),
        };
        list.adopt(self.draft);
        Ok(report)
    }

    fn covers(&self) -> Option<[Seq; 2]> {
        let standing = self.standing();
        let whole = standing.kept.iter().zip(1..).take_while(|(seq, at)| **seq == *at).count() as Seq;
        let cut = (standing.from > whole).then_some([whole + 1, standing.from]);
        match (cut, self.draft.masked.run) {
            (Some([from, through]), Some([_, last])) => Some([from, through.max(last)]),
            (cut, masked) => cut.or(masked),
        }
    }
}
