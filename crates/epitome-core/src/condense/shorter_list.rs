//! Defines the result of the stages so far, and checks whether it saves enough tokens.

use super::divide::StageInput;
use super::draft::Draft;
use super::list::{List, ListState};
use super::{CondenseReport, Policy, RequestFacts, Unchanged};
use crate::message::{Seq, Tokens};
use crate::trigger::grouped;

impl List {
    /// Returns the state of the list after a step is accepted.
    pub(super) fn accepted(&self, state: ListState, facts: &RequestFacts) -> ListState {
        let length = self.len() as Seq;
        ListState {
            rounds: self.state.rounds.saturating_add(1),
            length,
            searched: if self.state.rounds == 0 { length } else { self.state.searched },
            at: facts.now,
            // The shorter list may need a different opening message, so this is decided again.
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

    /// Returns `facts.room`, converted to the local token count, if the request exceeds it; otherwise `None`.
    pub(super) fn over(&self, facts: &RequestFacts) -> Option<Tokens> {
        let room = facts.room.filter(|room| self.request(facts) > *room)?;
        Some(self.to_local_tokens(room, facts))
    }
}

/// A shorter list, made by the stages of a strategy and not yet accepted.
#[derive(Debug, Clone)]
pub struct ShorterList {
    pub(super) names: Vec<&'static str>,
    /// Description of what each stage did, for people.
    pub(super) notices: Vec<String>,
    pub(super) draft: Draft,
    /// Tokens of the request that are not in the list.
    pub(super) fixed: Tokens,
}

impl ShorterList {
    /// Records that one more stage produced this draft.
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

    /// Returns the state of the list after this result is accepted.
    pub fn state(&self) -> &ListState {
        &self.draft.state
    }

    /// Returns the tokens of the whole request after this result is accepted.
    pub(super) fn tokens(&self) -> Tokens {
        self.draft.view.tokens().saturating_add(self.fixed)
    }

    /// Replaces the list with this shorter list. Fails, without changing the list, if the list changed after the
    /// decision.
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
