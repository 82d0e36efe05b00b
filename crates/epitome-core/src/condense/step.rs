//! One step on a list: what to do with it now.

use super::divide::Scene;
use super::draft::Draft;
use super::list::{List, Standing};
use super::plan::Plan;
use super::stages::{Stages, accepted, next_round};
use super::{Count, Decision, Facts, Policy, Report, Unchanged};
use crate::cut::Press;
use crate::message::{Message, Seq, Tokens};
use crate::strategy::Strategy;
use crate::tokens::Counter;
use crate::trigger::Fraction;

/// A shorter list that needs no model, not yet accepted.
#[derive(Debug, Clone)]
pub struct Done {
    draft: Draft,
    report: Report,
}

impl Done {
    /// What would stand then.
    #[must_use]
    pub fn standing(&self) -> &Standing {
        &self.draft.standing
    }

    /// Accepts it. Refused, and the list as it was, when that has changed since it was decided.
    pub fn apply(self, list: &mut List) -> Result<Report, Unchanged> {
        if self.draft.standing.seen != list.len() as Seq || self.draft.standing.rounds != next_round(list) {
            return Err(Unchanged::Overtaken);
        }
        list.adopt(self.draft);
        Ok(self.report)
    }
}

impl List {
    /// Decides what to do with the list. `messages` are those it has taken in; nothing changes until
    /// a result is accepted.
    ///
    /// Where nothing is due this costs the size of the trigger, and otherwise the size of what would
    /// be sent.
    #[must_use]
    pub fn decide(
        &self,
        messages: &[Message],
        policy: &Policy,
        facts: &Facts,
        counter: &Counter,
    ) -> Decision {
        let over = facts.room.is_some_and(|room| self.request(facts) > room);
        let due = facts.force.is_some() || over || self.due(policy, facts, Fraction::ONE).is_now();
        if !due || self.is_empty() {
            return Decision::Unchanged(Unchanged::NotDue);
        }
        let step = Step { list: self, messages, policy, facts, counter, over };
        step.run().unwrap_or_else(Decision::Unchanged)
    }

    pub(super) fn scene(&self) -> Scene<'_> {
        Scene { front: &self.front, tail: &self.tail, standing: &self.standing }
    }
}

struct Step<'a> {
    list: &'a List,
    messages: &'a [Message],
    policy: &'a Policy,
    facts: &'a Facts,
    counter: &'a Counter,
    /// Whether the request is larger than the room.
    over: bool,
}

impl Step<'_> {
    fn run(&self) -> Result<Decision, Unchanged> {
        if let (true, Some(room)) = (self.over, self.facts.room) {
            let needs = self.list.scene().least(self.list, self.policy).saturating_add(self.facts.fixed);
            let needs = self.list.as_theirs(needs, self.facts);
            if needs > room {
                return Err(Unchanged::OverBudgetElsewhere { needs, room });
            }
        }
        let before = self.list.tokens().saturating_add(self.facts.fixed);
        let mut so_far: Option<Stages> = None;
        let mut reason = Unchanged::Noop;
        for stage in self.policy.strategy.stages() {
            let tokens = so_far.as_ref().map_or(before, |done| self.size(&done.draft));
            let enough = self.list.worth(self.policy, self.facts, before, tokens).is_ok()
                && !self.still_due(before, tokens);
            if so_far.is_some() && enough {
                break;
            }
            let scene = so_far.as_ref().map_or(self.list.scene(), Stages::scene);
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
                Ok((draft, note)) if self.size(&draft) < tokens => {
                    so_far = Some(Stages::after(so_far, stage.name(), draft, note));
                }
                Ok((draft, _)) => {
                    reason = Unchanged::NotSmaller { before: tokens, after: self.size(&draft) };
                }
                // What a stage that does nothing says is no news.
                Err(Unchanged::Noop) => {}
                Err(told) => reason = told,
            }
        }
        let stages = so_far.ok_or(reason)?;
        let tokens = self.size(&stages.draft);
        self.list.worth(self.policy, self.facts, before, tokens)?;
        let report = stages.report(self.list, self.facts.fixed);
        Ok(Decision::Done(Box::new(Done { draft: stages.draft, report })))
    }

    fn press(&self) -> Press {
        if self.over { Press::Hard } else { self.facts.force.unwrap_or(Press::Gently) }
    }

    /// Whether the list, made this much smaller, would be due again.
    fn still_due(&self, before: Tokens, after: Tokens) -> bool {
        let saved = before.saturating_sub(after);
        let request = self.list.request(self.facts).saturating_sub(saved);
        let over = self.facts.room.is_some_and(|room| request > room);
        // The provider found it too long, and nobody knows how much would fit.
        let blind = self.facts.force == Some(Press::Hard) && self.facts.room.is_none();
        over || blind || self.list.due_at(self.policy, self.facts, Fraction::ONE, request).is_now()
    }

    fn size(&self, draft: &Draft) -> Tokens {
        draft.sheet.tokens().saturating_add(self.facts.fixed)
    }

    fn draft(&self, standing: Standing) -> Draft {
        Draft::new(self.list, self.messages, accepted(self.list, standing, self.facts), self.counter)
    }

    fn mask(&self, stage: &Strategy, scene: &Scene<'_>) -> Result<(Draft, String), Unchanged> {
        let place = stage.keep(self.policy.keep).place(scene.tail, self.facts.room);
        if place <= scene.floor(self.policy) {
            return Err(Unchanged::AllKept);
        }
        let last = place.checked_sub(1).and_then(|last| scene.tail.get(last));
        let masked = last.map_or(0, |outline| outline.seq).max(scene.standing.masked);
        let draft = self.draft(Standing { masked, ..scene.with_head(self.policy) });
        if draft.masked.fresh == 0 {
            return Err(Unchanged::NothingToMask);
        }
        let told = format!("Left out {}", Count(draft.masked.fresh, "old tool output"));
        Ok((draft, told))
    }

    fn recent(&self, stage: &Strategy, scene: &Scene<'_>) -> Result<(Draft, String), Unchanged> {
        let divided = scene.divide(self.list, self.policy, stage, self.facts, self.press())?;
        if divided.leave.is_empty() {
            return Err(Unchanged::AllKept);
        }
        let told = format!("Dropped {}", Count(divided.leave.len() as u64, "older message"));
        Ok((self.draft(divided.standing), told))
    }

    fn summarize(
        &self,
        stage: &Strategy,
        scene: &Scene<'_>,
        earlier: Option<&Stages>,
    ) -> Result<Plan, Unchanged> {
        let divided = scene.divide(self.list, self.policy, stage, self.facts, self.press())?;
        if divided.read.is_empty() {
            return Err(Unchanged::NothingToSay);
        }
        let plan = Plan::new(self.list, self.policy, self.facts, stage, divided, earlier);
        plan.sized(self.list, self.messages, self.counter)
    }
}
