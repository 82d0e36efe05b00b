//! One step on a list: decides what to do with the list now.

use super::divide::Scene;
use super::done::Done;
use super::draft::Draft;
use super::list::{List, Standing};
use super::plan::Plan;
use super::{Decision, Facts, Policy, Unchanged, count};
use crate::cut::Press;
use crate::message::{Message, Tokens};
use crate::strategy::Strategy;
use crate::tokens::Counter;
use crate::trigger::Fraction;

impl List {
    /// Decides what to do with the list. `messages` are the messages that the list has taken in. Nothing changes until
    /// the result is accepted.
    ///
    /// If nothing is due, the cost depends only on the size of the trigger expression; otherwise it is proportional to
    /// the size of the list that would be sent.
    pub fn decide(
        &self,
        messages: &[Message],
        policy: &Policy,
        facts: &Facts,
        counter: &Counter,
    ) -> Decision {
        let over = self.over(facts).is_some();
        let due = facts.force.is_some() || over || self.due(policy, facts, Fraction::ONE).is_now();
        if !due || self.is_empty() {
            return Decision::Unchanged(Unchanged::NotDue);
        }
        let step = Step { list: self, messages, policy, facts, counter, over };
        step.run().unwrap_or_else(Decision::Unchanged)
    }
}

struct Step<'a> {
    list: &'a List,
    messages: &'a [Message],
    policy: &'a Policy,
    facts: &'a Facts,
    counter: &'a Counter,
    /// Whether the request exceeds the model's window minus its output reserve.
    over: bool,
}

impl Step<'_> {
    fn run(&self) -> Result<Decision, Unchanged> {
        let Self { list, policy, facts, .. } = *self;
        if let Some(room) = facts.room.filter(|_| self.over) {
            let needs = list.scene(policy, facts).least().saturating_add(facts.fixed);
            let needs = list.as_theirs(needs, facts);
            if needs > room {
                return Err(Unchanged::OverBudgetElsewhere { needs, room });
            }
        }
        let before = list.counted(facts);
        let mut so_far: Option<Done> = None;
        let mut reason = Unchanged::Noop;
        for stage in policy.strategy.stages() {
            let tokens = so_far.as_ref().map_or(before, Done::tokens);
            let enough = list.worth(policy, facts, tokens).is_ok() && !self.still_due(before - tokens);
            if so_far.is_some() && enough {
                break;
            }
            let scene = match &so_far {
                Some(done) => done.scene(list, policy, facts),
                None => list.scene(policy, facts),
            };
            let staged = match stage {
                Strategy::Noop | Strategy::Pipeline(_) => Err(Unchanged::Noop),
                Strategy::Mask(_) => self.mask(stage, &scene),
                Strategy::Recent(_) => self.recent(stage, &scene),
                Strategy::Summarize(_) | Strategy::Amortized(_) => {
                    match self.summarize(stage, &scene, so_far.as_ref()) {
                        Ok(plan) => return Ok(Decision::Ask(Box::new(plan))),
                        Err(reason) => Err(reason),
                    }
                }
            };
            match staged {
                Ok((draft, told)) => {
                    let after = draft.sheet.tokens().saturating_add(facts.fixed);
                    if after < tokens {
                        so_far = Some(Done::after(so_far, stage.name(), draft, told, facts.fixed));
                    } else {
                        reason = Unchanged::NotSmaller { before: tokens, after };
                    }
                }
                // A stage that does nothing by design must not hide the reason of another stage.
                Err(Unchanged::Noop) => {}
                Err(told) => reason = told,
            }
        }
        let done = so_far.ok_or(reason)?;
        list.worth(policy, facts, done.tokens())?;
        Ok(Decision::Done(Box::new(done)))
    }

    fn press(&self) -> Press {
        if self.over { Press::Hard } else { self.facts.force.unwrap_or(Press::Gently) }
    }

    /// Returns whether the list would still be due after saving this many tokens.
    fn still_due(&self, saved: Tokens) -> bool {
        let request = self.list.request(self.facts).saturating_sub(saved);
        let facts = Facts { request: Some(request), ..*self.facts };
        // The provider rejected the request as too long, and the size that would fit is unknown.
        let blind = facts.force == Some(Press::Hard) && facts.room.is_none();
        let over = facts.room.is_some_and(|room| request > room);
        over || blind || self.list.due(self.policy, &facts, Fraction::ONE).is_now()
    }

    fn draft(&self, standing: Standing) -> Draft {
        let standing = self.list.accepted(standing, self.facts);
        Draft::new(self.list, self.messages, standing, self.counter)
    }

    fn mask(&self, stage: &Strategy, scene: &Scene<'_>) -> Result<(Draft, String), Unchanged> {
        let place = scene.wanted(stage);
        if place <= scene.floor() {
            return Err(Unchanged::AllKept);
        }
        let last = place.checked_sub(1).and_then(|last| scene.tail.get(last));
        let masked = last.map_or(0, |outline| outline.seq).max(scene.standing.masked);
        let draft = self.draft(Standing { masked, ..scene.with_head() });
        if draft.masked.fresh == 0 {
            return Err(Unchanged::NothingToMask);
        }
        let told = format!("Left out {}", count(draft.masked.fresh, "old tool output"));
        Ok((draft, told))
    }

    fn recent(&self, stage: &Strategy, scene: &Scene<'_>) -> Result<(Draft, String), Unchanged> {
        let divided = scene.divide(stage, self.press())?;
        if divided.leave.is_empty() {
            return Err(Unchanged::AllKept);
        }
        let told = format!("Dropped {}", count(divided.leave.len() as u64, "older message"));
        Ok((self.draft(divided.standing), told))
    }

    fn summarize(
        &self,
        stage: &Strategy,
        scene: &Scene<'_>,
        earlier: Option<&Done>,
    ) -> Result<Plan, Unchanged> {
        let divided = scene.divide(stage, self.press())?;
        if divided.read.is_empty() {
            return Err(Unchanged::NothingToSay);
        }
        let plan = Plan::new(scene, stage, divided, earlier);
        plan.sized(self.list, self.messages, self.counter)
    }
}
