//! Decides which messages stay in the list and which messages leave the list. This module reads only the outlines of
//! messages, never their text.

use std::collections::BTreeSet;

use super::list::{List, ListState};
use super::{Policy, RequestFacts, Unchanged};
use crate::cut::{Cuts, Press, legal_cut};
use crate::economic::{CostInputs, Growth};
use crate::keep::Keep;
use crate::message::{Seq, Tokens};
use crate::outline::{Cut, Outline};
use crate::strategy::Strategy;
use crate::tokens::Counter;

/// The input of one stage of a strategy: the policy, the facts and a list. The first stage reads the current list. Each
/// later stage reads the list that the stage before it produced.
#[derive(Clone, Copy)]
pub(super) struct StageInput<'a> {
    pub(super) list: &'a List,
    pub(super) policy: &'a Policy,
    pub(super) facts: &'a RequestFacts,
    pub(super) front: &'a [Outline],
    pub(super) tail: &'a [Outline],
    pub(super) state: &'a ListState,
}

/// The result of dividing a list: the new state, and the messages that leave the list.
#[derive(Debug, Clone)]
pub(super) struct Divided {
    pub(super) state: ListState,
    /// Positions of the messages that leave the list, in order.
    pub(super) leave: Vec<Seq>,
    /// Positions of the messages that leave the list and that a summarizer must read.
    pub(super) read: Vec<Seq>,
    /// Tokens of the messages that leave the list.
    pub(super) tokens: Tokens,
}

impl<'a> StageInput<'a> {
    fn shown(&self) -> impl Iterator<Item = &'a Outline> + use<'a> {
        self.front.iter().chain(self.tail)
    }

    /// Returns the positions of all messages of the flagged batches. A batch is flagged if `flag` is true for at least
    /// one of its messages.
    fn flagged(&self, flag: fn(&Outline) -> bool) -> BTreeSet<Seq> {
        let parts = [self.front, self.tail].into_iter();
        parts.flat_map(|part| self.list.cuts(part).flagged(flag)).map(|outline| outline.seq).collect()
    }

    /// Returns the number of messages at the start of `tail` that always stay: the leading system messages and the next
    /// `keep_first` messages.
    pub(super) fn floor(&self) -> usize {
        self.head().saturating_sub(self.front.len())
    }

    /// Returns an index in `tail`. A cut must lie after this index to remove at least one message.
    fn first_to_leave(&self) -> usize {
        let floor = self.floor();
        let stays = self.staying(self.tail.len());
        let leaves = |outline: &Outline| !stays.contains(&outline.seq);
        if self.front.iter().any(leaves) {
            return floor;
        }
        let found = self.tail.iter().skip(floor).position(leaves);
        found.map_or(self.tail.len(), |after| floor.saturating_add(after))
    }

    /// Returns the number of messages at the start of the shown list that always stay. These are the leading system
    /// messages and the next `keep_first` messages. The number is increased until it ends at a legal cut.
    fn head(&self) -> usize {
        let keep_first = if self.state.summary.is_some() { 0 } else { self.policy.keep_first };
        let leading = self.shown().take_while(|outline| outline.leading).count();
        if keep_first == 0 {
            return leading;
        }
        let least = leading.saturating_add(keep_first);
        let legal = self.shown().skip(least).position(|outline| outline.cut == Cut::Legal);
        legal.map_or(self.shown().count(), |after| least.saturating_add(after))
    }

    /// Returns the state after the messages that always stay at the start of `tail` are moved to `front`. Later changes
    /// of `tail` then do not affect these messages.
    pub(super) fn with_head(&self) -> ListState {
        let mut state = self.state.clone();
        let head = self.tail.get(..self.floor()).unwrap_or_default();
        state.front.extend(head.iter().map(|outline| outline.seq));
        state.from = head.last().map_or(state.from, |outline| outline.seq);
        state
    }

    /// Chooses where the verbatim part begins. The messages before that position are then divided: some of them stay in
    /// the front, and the others leave the list.
    pub(super) fn divide(&self, stage: &Strategy, press: Press) -> Result<Divided, Unchanged> {
        let cuts = self.list.cuts(self.tail);
        let floor = self.first_to_leave();
        let target = self.verbatim_start(stage);
        let index = match press {
            Press::Gently if target <= floor => return Err(Unchanged::AllVerbatim),
            Press::Gently => legal_cut(&cuts, floor, target, press).ok_or(Unchanged::NoLegalCut)?,
            Press::Hard => hard_cut(&cuts, floor, target, self.start_that_fits())?,
        };

        let stays = self.staying(index);
        let skipped = self.flagged(|outline| outline.skip);
        let mut divided = Divided {
            state: ListState { front: Vec::new(), ..self.state.clone() },
            leave: Vec::new(),
            read: Vec::new(),
            tokens: 0,
        };
        let mut any_content = false;
        let before_cut = self.tail.get(..index).unwrap_or_default();
        for outline in self.front.iter().chain(before_cut) {
            if stays.contains(&outline.seq) {
                divided.state.front.push(outline.seq);
                continue;
            }
            divided.leave.push(outline.seq);
            divided.tokens = divided.tokens.saturating_add(outline.tokens);
            if !skipped.contains(&outline.seq) {
                divided.read.push(outline.seq);
                any_content |= !outline.stray;
            }
        }
        if !any_content {
            divided.read.clear();
        }
        divided.state.from = before_cut.last().map_or(self.state.from, |outline| outline.seq);
        divided.state.stripped = cuts.at(index) == Cut::InLoop;
        Ok(divided)
    }

    /// Returns the tokens of the smallest possible list: the messages that always stay, and the newest batch.
    pub(super) fn least(&self) -> Tokens {
        let newest = self.list.cuts(self.tail).newest();
        let stays = self.staying(newest);
        let newest_batch = self.tail.get(newest..).unwrap_or_default().iter();
        let older = self.front.iter().chain(self.tail.get(..newest).unwrap_or_default());
        let older = older.filter(|outline| stays.contains(&outline.seq));
        sum(newest_batch.chain(older))
    }

    /// Returns two token counts for [`crate::economic`]. The first is the size of the messages that always stay. The
    /// second is the size of the other messages in the verbatim part.
    fn left_behind(&self) -> (Tokens, Tokens) {
        let stays = self.staying(self.tail.len());
        let head = sum(self.shown().filter(|outline| stays.contains(&outline.seq)));
        let index = self.policy.strategy.stages().map(|stage| self.verbatim_start(stage)).max().unwrap_or(0);
        let verbatim = self.tail.get(index..).unwrap_or_default().iter();
        (head, sum(verbatim.filter(|outline| !stays.contains(&outline.seq))))
    }

    /// Returns the index in `tail` where the verbatim part should begin according to the strategy. A cut at this index
    /// may be illegal.
    pub(super) fn verbatim_start(&self, stage: &Strategy) -> usize {
        let start = stage.keep(self.policy.keep).start(self.tail, self.facts.room);
        if matches!(stage, Strategy::Amortized(_)) { start.min(self.half()) } else { start }
    }

    /// Returns the index in `tail` where the newer half of the removable messages begins. The halves are measured in
    /// tokens.
    fn half(&self) -> usize {
        let may_leave = self.tail.iter().skip(self.floor());
        Keep::Tokens(sum(may_leave) / 2).start(self.tail, None)
    }

    /// Returns the index in `tail` where the verbatim part must begin so that the request fits `facts.room`. The
    /// request includes the summary. If `facts.room` is unknown, or if the current request already fits, the newer half
    /// of the removable messages stays.
    fn start_that_fits(&self) -> usize {
        let Self { list, policy, facts, .. } = *self;
        let Some(room) = list.over(facts) else { return self.half() };
        let counted = list.counted(facts);
        // The new request should fit, and it should also save at least the share `policy.worth`.
        let room = room.min(counted.saturating_sub(policy.worth.of_rounded_up(counted)));
        let stays = self.staying(self.tail.len());
        let front = self.shown().filter(|outline| stays.contains(&outline.seq));
        let taken = sum(front).saturating_add(facts.fixed).saturating_add(policy.limit.min(room / 4));
        Keep::Tokens(room.saturating_sub(taken)).start(self.tail, None)
    }

    /// Returns the positions of the messages that stay even if `tail` is cut at `index`. These are the leading system
    /// messages, the next `keep_first` messages, the pinned batches and the last user message. The last user message is
    /// left out if it lies at `index` or later, because the verbatim part contains it.
    fn staying(&self, index: usize) -> BTreeSet<Seq> {
        let mut stays = self.flagged(|outline| outline.pinned);
        stays.extend(self.shown().take(self.head()).map(|outline| outline.seq));
        stays.extend(self.shown().filter(|outline| outline.leading).map(|outline| outline.seq));
        let in_tail = self.tail.iter().rposition(|outline| outline.opens_turn);
        let last_user = match in_tail {
            Some(at) if at >= index => None,
            Some(at) => self.tail.get(at),
            None => self.front.iter().rfind(|outline| outline.opens_turn),
        };
        stays.extend(last_user.map(|outline| outline.seq));
        stays
    }
}

impl List {
    pub(super) fn stage_input<'a>(&'a self, policy: &'a Policy, facts: &'a RequestFacts) -> StageInput<'a> {
        let Self { front, tail, state, .. } = self;
        StageInput { list: self, policy, facts, front, tail, state }
    }

    /// Returns the input of [`economic::threshold`](crate::economic::threshold). `growth` describes the calls so far.
    /// `prompt` is the size of the summarizer's own prompt, in tokens. The running time is proportional to the size of
    /// the list, so call this only after the list has grown considerably.
    pub fn cost_inputs(
        &self,
        policy: &Policy,
        facts: &RequestFacts,
        growth: &Growth,
        prompt: Tokens,
        counter: &Counter,
    ) -> CostInputs {
        let (head, keep) = self.stage_input(policy, facts).left_behind();
        let summary = self.summary().map_or(policy.limit, |prior| counter.text(&prior.text));
        let head = head.saturating_add(facts.fixed);
        CostInputs { head, summary, keep, prompt, growth: growth.mean(), calls: growth.calls() }
    }
}

/// Returns the index at which to cut if at least one message must be removed.
///
/// 1. If `least` is larger than `target`, the messages after `target` do not fit the window. In this case, the first
///    cut at or after `least` is chosen.
/// 2. If step 1 finds no cut, the last cut at or before `target` is chosen.
/// 3. If step 2 finds no cut either, the first cut after `target` is chosen.
///
/// A legal cut is preferred to a cut inside a tool loop, because a cut inside a loop also removes the loop's reasoning.
/// The newest batch stays. The only exception is a strategy that keeps no message: then `target` lies after the newest
/// batch.
fn hard_cut(cuts: &Cuts<'_>, floor: usize, target: usize, least: usize) -> Result<usize, Unchanged> {
    let end = cuts.newest().max(target).saturating_add(1);
    let least = least.min(end.saturating_sub(1));
    if target.max(least) <= floor {
        return Err(Unchanged::AllVerbatim);
    }
    let fits =
        |allowed| (least > target).then(|| cuts.first_in(least.max(floor + 1)..end, allowed)).flatten();
    let near = |allowed| {
        let before = cuts.last_in(floor + 1..target + 1, allowed);
        before.or_else(|| cuts.first_in(target.max(floor) + 1..end, allowed))
    };
    fits(Cut::Legal)
        .or_else(|| fits(Cut::InLoop))
        .or_else(|| near(Cut::Legal))
        .or_else(|| near(Cut::InLoop))
        .ok_or(Unchanged::NoLegalCut)
}

fn sum<'a>(outlines: impl Iterator<Item = &'a Outline>) -> Tokens {
    outlines.fold(0, |sum, outline| sum.saturating_add(outline.tokens))
}
