//! Which messages stay and which leave, from their shapes alone.

use std::collections::BTreeSet;

use super::list::{List, Standing};
use super::{Facts, Policy, Unchanged};
use crate::cut::{Cuts, Press, near};
use crate::economic::{Growth, Shape};
use crate::keep::Keep;
use crate::message::{Seq, Tokens};
use crate::outline::{Cut, Outline};
use crate::strategy::Strategy;
use crate::tokens::Counter;

/// A list as a stage finds it, as it stands or as the stage before left it, and what it is divided by.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    pub(super) list: &'a List,
    pub(super) policy: &'a Policy,
    pub(super) facts: &'a Facts,
    pub(super) front: &'a [Outline],
    pub(super) tail: &'a [Outline],
    pub(super) standing: &'a Standing,
}

/// A list divided: what stands then, and what is gone.
#[derive(Debug, Clone)]
pub(super) struct Divided {
    pub(super) standing: Standing,
    /// The places of the messages that leave, in order.
    pub(super) leave: Vec<Seq>,
    /// Those of them a summarizer must read.
    pub(super) read: Vec<Seq>,
    /// The tokens of what leaves.
    pub(super) tokens: Tokens,
}

impl<'a> Scene<'a> {
    fn shown(&self) -> impl Iterator<Item = &'a Outline> + use<'a> {
        self.front.iter().chain(self.tail)
    }

    /// The places of all batches in which some message is flagged.
    fn flagged(&self, flag: fn(&Outline) -> bool) -> BTreeSet<Seq> {
        let parts = [self.front, self.tail].into_iter();
        parts.flat_map(|part| self.list.cuts(part).flagged(flag)).map(|outline| outline.seq).collect()
    }

    /// How many of the tail's first messages always stay: standing orders and the protected head.
    pub(super) fn floor(&self) -> usize {
        self.head().saturating_sub(self.front.len())
    }

    /// The first place in the tail before which something would leave: a cut further up would be none.
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

    /// The same, counted over everything that is shown.
    fn head(&self) -> usize {
        let keep_first = if self.standing.summary.is_some() { 0 } else { self.policy.keep_first };
        let leading = self.shown().take_while(|outline| outline.leading).count();
        if keep_first == 0 {
            return leading;
        }
        let wanted = leading.saturating_add(keep_first);
        let legal = self.shown().skip(wanted).position(|outline| outline.cut == Cut::Legal);
        legal.map_or(self.shown().count(), |after| wanted.saturating_add(after))
    }

    /// Takes the protected head out of the tail, so that what is then done to the tail spares it.
    pub(super) fn with_head(&self) -> Standing {
        let mut standing = self.standing.clone();
        let head = self.tail.get(..self.floor()).unwrap_or_default();
        standing.kept.extend(head.iter().map(|outline| outline.seq));
        standing.from = head.last().map_or(standing.from, |outline| outline.seq);
        standing
    }

    /// Chooses where the kept part begins, and sorts what lies before it.
    pub(super) fn divide(&self, stage: &Strategy, press: Press) -> Result<Divided, Unchanged> {
        let cuts = self.list.cuts(self.tail);
        let floor = self.first_to_leave();
        let wanted = self.wanted(stage);
        let place = match press {
            Press::Gently if wanted <= floor => return Err(Unchanged::AllKept),
            Press::Gently => near(&cuts, floor, wanted, press).ok_or(Unchanged::NoLegalCut)?,
            Press::Hard => hard(&cuts, floor, wanted, self.fitting())?,
        };

        let stays = self.staying(place);
        let skipped = self.flagged(|outline| outline.skip);
        let mut divided = Divided {
            standing: Standing { kept: Vec::new(), ..self.standing.clone() },
            leave: Vec::new(),
            read: Vec::new(),
            tokens: 0,
        };
        let mut says = false;
        let gone = self.tail.get(..place).unwrap_or_default();
        for outline in self.front.iter().chain(gone) {
            if stays.contains(&outline.seq) {
                divided.standing.kept.push(outline.seq);
                continue;
            }
            divided.leave.push(outline.seq);
            divided.tokens = divided.tokens.saturating_add(outline.tokens);
            if !skipped.contains(&outline.seq) {
                divided.read.push(outline.seq);
                says |= !outline.stray;
            }
        }
        if !says {
            divided.read.clear();
        }
        divided.standing.from = gone.last().map_or(self.standing.from, |outline| outline.seq);
        divided.standing.stripped = cuts.at(place) == Cut::InLoop;
        Ok(divided)
    }

    /// The size of the smallest list that could be made: what always stays, and the newest batch.
    pub(super) fn least(&self) -> Tokens {
        let newest = self.list.cuts(self.tail).newest();
        let stays = self.staying(newest);
        let kept = self.tail.get(newest..).unwrap_or_default().iter();
        let older = self.front.iter().chain(self.tail.get(..newest).unwrap_or_default());
        let older = older.filter(|outline| stays.contains(&outline.seq));
        sum(kept.chain(older))
    }

    /// What cutting would leave behind, for [`crate::economic`]: what always stays, and what is kept.
    fn left_behind(&self) -> (Tokens, Tokens) {
        let stays = self.staying(self.tail.len());
        let head = sum(self.shown().filter(|outline| stays.contains(&outline.seq)));
        let place = self.policy.strategy.stages().map(|stage| self.wanted(stage)).max().unwrap_or(0);
        let kept = self.tail.get(place..).unwrap_or_default().iter();
        (head, sum(kept.filter(|outline| !stays.contains(&outline.seq))))
    }

    /// Where the strategy would like the kept part to begin.
    pub(super) fn wanted(&self, stage: &Strategy) -> usize {
        let wanted = stage.keep(self.policy.keep).place(self.tail, self.facts.room);
        if matches!(stage, Strategy::Amortized(_)) { wanted.min(self.half()) } else { wanted }
    }

    /// Where the newest half of what may leave begins.
    fn half(&self) -> usize {
        let may_leave = self.tail.iter().skip(self.floor());
        Keep::Tokens(sum(may_leave) / 2).place(self.tail, None)
    }

    /// Where the kept part must begin so that the request fits the room, summary included. Where the
    /// provider found it too long and nobody knows how much would fit, half of it goes.
    fn fitting(&self) -> usize {
        let Self { list, policy, facts, .. } = *self;
        let Some(room) = list.over(facts) else { return self.half() };
        let counted = list.counted(facts);
        // So far that it is worth it as well, else it fits and is refused all the same.
        let room = room.min(counted.saturating_sub(policy.worth.of_rounded_up(counted)));
        let stays = self.staying(self.tail.len());
        let front = self.shown().filter(|outline| stays.contains(&outline.seq));
        let taken = sum(front).saturating_add(facts.fixed).saturating_add(policy.limit.min(room / 4));
        Keep::Tokens(room.saturating_sub(taken)).place(self.tail, None)
    }

    /// What stays of the messages before the place in the tail: standing orders and the head, pinned
    /// batches, and the last user message.
    fn staying(&self, place: usize) -> BTreeSet<Seq> {
        let mut stays = self.flagged(|outline| outline.pinned);
        stays.extend(self.shown().take(self.head()).map(|outline| outline.seq));
        stays.extend(self.shown().filter(|outline| outline.leading).map(|outline| outline.seq));
        let asked = self.tail.iter().rposition(|outline| outline.opens_turn);
        let last_user = match asked {
            Some(at) if at >= place => None,
            Some(at) => self.tail.get(at),
            None => self.front.iter().rfind(|outline| outline.opens_turn),
        };
        stays.extend(last_user.map(|outline| outline.seq));
        stays
    }
}

impl List {
    pub(super) fn scene<'a>(&'a self, policy: &'a Policy, facts: &'a Facts) -> Scene<'a> {
        let Self { front, tail, standing, .. } = self;
        Scene { list: self, policy, facts, front, tail, standing }
    }

    /// What [`economic::threshold`](crate::economic::threshold) must know of the list. Costs the size of what would be
    /// sent, so ask when it has grown by a part. `growth` is the calls so far, `prompt` the summarizer's own.
    pub fn shape(
        &self,
        policy: &Policy,
        facts: &Facts,
        growth: &Growth,
        prompt: Tokens,
        counter: &Counter,
    ) -> Shape {
        let (head, keep) = self.scene(policy, facts).left_behind();
        let summary = self.summary().map_or(policy.limit, |prior| counter.text(&prior.text));
        let head = head.saturating_add(facts.fixed);
        Shape { head, summary, keep, prompt, growth: growth.mean(), calls: growth.calls() }
    }
}

/// The place to cut when something must go: a legal one if there is any, else one inside a thinking
/// loop, whose reasoning then leaves. Where even the wanted place keeps too much, the first one from
/// `least` on. The newest batch always stays, unless nothing was to be kept at all.
fn hard(cuts: &Cuts<'_>, floor: usize, wanted: usize, least: usize) -> Result<usize, Unchanged> {
    let end = cuts.newest().max(wanted).saturating_add(1);
    let least = least.min(end.saturating_sub(1));
    if wanted.max(least) <= floor {
        return Err(Unchanged::AllKept);
    }
    let fits =
        |allowed| (least > wanted).then(|| cuts.first_in(least.max(floor + 1)..end, allowed)).flatten();
    let near = |allowed| {
        let before = cuts.last_in(floor + 1..wanted + 1, allowed);
        before.or_else(|| cuts.first_in(wanted.max(floor) + 1..end, allowed))
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
