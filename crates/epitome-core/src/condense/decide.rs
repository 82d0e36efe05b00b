//! Decides whether and how a list is condensed.

use super::divide::StageInput;
use super::draft::Draft;
use super::list::{List, ListState};
use super::plan::CondensePlan;
use super::shorter_list::ShorterList;
use super::{Decision, Policy, RequestFacts, Unchanged, count};
use crate::cut::Press;
use crate::message::{Message, Tokens};
use crate::strategy::Strategy;
use crate::tokens::Counter;
use crate::trigger::Fraction;

impl List {
    /// Decides whether and how to condense the list. `messages` contains the messages that were passed to
    /// [`List::advance`]. The list does not change until the caller applies the decision.
    ///
    /// If the trigger is not met, the running time depends only on the size of the trigger expression. Otherwise the
    /// running time is proportional to the size of the list that would be sent.
    pub fn decide(
        &self,
        messages: &[Message],
        policy: &Policy,
        facts: &RequestFacts,
        counter: &Counter,
    ) -> Decision {
        let over = self.over(facts).is_some();
        let due = facts.force.is_some() || over || self.due(policy, facts, Fraction::ONE).is_now();
        if !due || self.is_empty() {
            return Decision::Unchanged(Unchanged::NotDue);
        }
        let decider = Decider { list: self, messages, policy, facts, counter, over };
        decider.run().unwrap_or_else(Decision::Unchanged)
    }
}

struct Decider<'a> {
    list: &'a List,
    messages: &'a [Message],
    policy: &'a Policy,
    facts: &'a RequestFacts,
    counter: &'a Counter,
    /// Whether the request exceeds the model's window minus its output reserve.
    over: bool,
}

impl Decider<'_> {
    fn run(&self) -> Result<Decision, Unchanged> {
        let Self { list, policy, facts, .. } = *self;
        if let Some(room) = facts.room.filter(|_| self.over) {
            let needs = list.stage_input(policy, facts).least().saturating_add(facts.fixed);
            let needs = list.to_provider_tokens(needs, facts);
            if needs > room {
                return Err(Unchanged::OverBudgetElsewhere { needs, room });
            }
        }
        let before = list.counted(facts);
        let mut so_far: Option<ShorterList> = None;
        let mut reason = Unchanged::Noop;
        for stage in policy.strategy.stages() {
            let tokens = so_far.as_ref().map_or(before, ShorterList::tokens);
            let is_enough = list.worth(policy, facts, tokens).is_ok() && !self.still_due(before - tokens);
            if so_far.is_some() && is_enough {
                break;
            }
            let input = match &so_far {
                Some(shorter) => shorter.stage_input(list, policy, facts),
                None => list.stage_input(policy, facts),
            };
            let staged = match stage {
                Strategy::Noop | Strategy::Pipeline(_) => Err(Unchanged::Noop),
                Strategy::Mask(_) => self.mask(stage, &input),
                Strategy::Recent(_) => self.recent(stage, &input),
                Strategy::Summarize(_) | Strategy::Amortized(_) => {
                    match self.summarize(stage, &input, so_far.as_ref()) {
                        Ok(plan) => return Ok(Decision::Summarize(Box::new(plan))),
                        Err(reason) => Err(reason),
                    }
                }
            };
            match staged {
                Ok((draft, notice)) => {
                    let after = draft.view.tokens().saturating_add(facts.fixed);
                    if after < tokens {
                        so_far = Some(ShorterList::after(so_far, stage.name(), draft, notice, facts.fixed));
                    } else {
                        reason = Unchanged::NotSmaller { before: tokens, after };
                    }
                }
                // `noop` always returns this error. It must not replace the reason that another stage returned.
                Err(Unchanged::Noop) => {}
                Err(why) => reason = why,
            }
        }
        let shorter = so_far.ok_or(reason)?;
        list.worth(policy, facts, shorter.tokens())?;
        Ok(Decision::Apply(Box::new(shorter)))
    }

    fn press(&self) -> Press {
        if self.over { Press::Hard } else { self.facts.force.unwrap_or(Press::Gently) }
    }

    /// Returns whether a request that is smaller by `saved` tokens would still need a condensation.
    fn still_due(&self, saved: Tokens) -> bool {
        let request = self.list.request(self.facts).saturating_sub(saved);
        let facts = RequestFacts { request: Some(request), ..*self.facts };
        // The provider rejected the request as too long, and the size that would fit is unknown.
        let blind = facts.force == Some(Press::Hard) && facts.room.is_none();
        let over = facts.room.is_some_and(|room| request > room);
        over || blind || self.list.due(self.policy, &facts, Fraction::ONE).is_now()
    }

    fn draft(&self, state: ListState) -> Draft {
        let state = self.list.accepted(state, self.facts);
        Draft::new(self.list, self.messages, state, self.counter)
    }

    fn mask(&self, stage: &Strategy, input: &StageInput<'_>) -> Result<(Draft, String), Unchanged> {
        let index = input.verbatim_start(stage);
        if index <= input.floor() {
            return Err(Unchanged::AllVerbatim);
        }
        let last = index.checked_sub(1).and_then(|last| input.tail.get(last));
        let masked = last.map_or(0, |outline| outline.seq).max(input.state.masked);
        let draft = self.draft(ListState { masked, ..input.with_head() });
        if draft.masked.fresh == 0 {
            return Err(Unchanged::NothingToMask);
        }
        let notice = format!("Left out {}", count(draft.masked.fresh, "old tool output"));
        Ok((draft, notice))
    }

    fn recent(&self, stage: &Strategy, input: &StageInput<'_>) -> Result<(Draft, String), Unchanged> {
        let divided = input.divide(stage, self.press())?;
        if divided.leave.is_empty() {
            return Err(Unchanged::AllVerbatim);
        }
        let notice = format!("Dropped {}", count(divided.leave.len() as u64, "older message"));
        Ok((self.draft(divided.state), notice))
    }

    fn summarize(
        &self,
        stage: &Strategy,
        input: &StageInput<'_>,
        earlier: Option<&ShorterList>,
    ) -> Result<CondensePlan, Unchanged> {
        let divided = input.divide(stage, self.press())?;
        if divided.read.is_empty() {
            return Err(Unchanged::NothingToSay);
        }
        let plan = CondensePlan::new(input, stage, divided, earlier);
        plan.sized(self.list, self.messages, self.counter)
    }
}
