//! Defines [`ShorterList`], the result of one or more stages of a strategy. Checks whether a result saves enough
//! tokens.

use super::divide::StageInput;
use super::draft::Draft;
use super::list::{List, ListState};
use super::{CondenseReport, Policy, RequestFacts, Unchanged};
use crate::message::{Seq, Tokens};
use crate::trigger::grouped;

impl List {
    /// Returns the state that the list has after `state` is accepted.
    pub(super) fn accepted(&self, state: ListState, facts: &RequestFacts) -> ListState {
        let length = self.len() as Seq;
        ListState {
            rounds: self.state.rounds.saturating_add(1),
            length,
            searched: if self.state.rounds == 0 { length } else { self.state.searched },
            at: facts.now,
            // The shorter list may start with a different message. Whether it needs a placeholder is therefore decided
            // again.
            note: None,
            ..state
        }
    }

    /// Returns whether the list was condensed after the state `accepted` was computed for it.
    pub(super) fn was_condensed_after(&self, accepted: &ListState) -> bool {
        accepted.rounds != self.state.rounds.saturating_add(1)
    }

    /// Checks that a request of `after` tokens saves enough compared with the current request. If the current request
    /// does not fit the model's window, any smaller request that fits is accepted.
    pub(super) fn worth(
        &self,
        policy: &Policy,
        facts: &RequestFacts,
        after: Tokens,
    ) -> Result<(), Unchanged> {
        let before = self.counted(facts);
        if after >= before {
            return Err(Unchanged::NotSmaller { before, after });
        }
        let (saves, needed) = (before - after, policy.worth.of_rounded_up(before));
        let fits = self.over(facts).is_some_and(|room| after <= room);
        if saves < needed && !fits { Err(Unchanged::NotWorth { saves, needed }) } else { Ok(()) }
    }

    /// Returns `facts.room` as a local token count if the request is larger than `facts.room`. Otherwise returns
    /// `None`.
    pub(super) fn over(&self, facts: &RequestFacts) -> Option<Tokens> {
        let room = facts.room.filter(|room| self.request(facts) > *room)?;
        Some(self.to_local_tokens(room, facts))
    }
}

/// A shorter list that the stages of a strategy produced. It is not yet accepted.
#[derive(Debug, Clone)]
pub struct ShorterList {
    pub(super) names: Vec<&'static str>,
    /// One text per stage, which describes for people what the stage changed.
    pub(super) notices: Vec<String>,
    pub(super) draft: Draft,
    /// Number of tokens of the request outside of the list.
    pub(super) fixed: Tokens,
}

impl ShorterList {
    /// Adds a stage to the result. `draft` is the list that the stage produced.
    pub(super) fn after(
        before: Option<Self>,
        stage: &'static str,
        draft: Draft,
        notice: String,
        fixed: Tokens,
    ) -> Self {
        let (mut names, mut all) =
            before.map_or_else(Default::default, |shorter| (shorter.names, shorter.notices));
        names.push(stage);
        all.push(notice);
        Self { names, notices: all, draft, fixed }
    }

    pub(super) fn stage_input<'a>(
        &'a self,
        list: &'a List,
        policy: &'a Policy,
        facts: &'a RequestFacts,
    ) -> StageInput<'a> {
        let Draft { front, tail, state, .. } = &self.draft;
        StageInput { list, policy, facts, front, tail, state }
    }

    /// Returns the state that the list has after this result is accepted.
    pub fn state(&self) -> &ListState {
        &self.draft.state
    }

    /// Returns the number of tokens that the whole request has after this result is accepted.
    pub(super) fn tokens(&self) -> Tokens {
        self.draft.view.tokens().saturating_add(self.fixed)
    }

    /// Replaces the list with this shorter list. If the list changed after the decision, this function returns an error
    /// and does not change the list.
    pub fn apply(self, list: &mut List) -> Result<CondenseReport, Unchanged> {
        let state = self.state();
        if state.length != list.len() as Seq || list.was_condensed_after(state) {
            return Err(Unchanged::Overtaken);
        }
        let tokens_before = list.tokens().saturating_add(self.fixed);
        let tokens_after = self.tokens();
        let notice = self.notices.join("; ");
        let report = CondenseReport {
            strategy: self.names.join(" + "),
            messages_before: list.shown_len() as u64,
            messages_after: self.draft.view.len() as u64,
            tokens_before,
            tokens_after,
            covers: self.covers(),
            notice: format!("{notice}: {} tokens are now {}", grouped(tokens_before), grouped(tokens_after)),
        };
        list.adopt(self.draft);
        Ok(report)
    }

    fn covers(&self) -> Option<[Seq; 2]> {
        let state = self.state();
        let whole = state.front.iter().zip(1..).take_while(|(seq, at)| **seq == *at).count() as Seq;
        let cut = (state.from > whole).then_some([whole + 1, state.from]);
        match (cut, self.draft.masked.run) {
            (Some([from, through]), Some([_, last])) => Some([from, through.max(last)]),
            (cut, masked) => cut.or(masked),
        }
    }
}
