//! Chooses a summary and the messages next to it, after the newest message is placed.
//!
//! For each summary that fits, it determines which messages fit next to that summary, and uses the best of these
//! choices. With `fill`, it also spends the remaining budget.

use super::planner::{Missing, Planner};
use super::{ChosenSummary, FitRequest, TextRenderer};
use crate::message::{Seq, Span, Tokens};
use crate::outline::{Cut, Outline};

/// Minimum size of an excerpt. A smaller excerpt contains nothing useful.
const SMALLEST_EXCERPT: Tokens = 64;

/// The newest message, which must be in the context before anything else is chosen.
pub(super) struct Newest {
    pub(super) index: usize,
    pub(super) cost: Tokens,
    /// The excerpted messages, if the newest message was too large and became an excerpt.
    pub(super) excerpt: Option<Span>,
    /// Where a list may start: at a legal cut or, if no such list fits, also inside a tool loop after the loop's
    /// reasoning. In a loop, the rest of the loop's reasoning is left out.
    pub(super) allowed: Cut,
}

/// A possible way to spend the budget: a summary, and the messages next to it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Choice<'a> {
    pub(super) summary: Option<ChosenSummary>,
    pub(super) start: usize,
    /// The message that opened the turn at `start`, if it is shown before the summary.
    pub(super) carried: Option<&'a Outline>,
    pub(super) cut: bool,
    /// Number of positions between the last message that the summary covers and the first message shown.
    pub(super) gap: Seq,
    /// Estimate of the summary's content: the size in tokens that an unshortened summary with the same content would
    /// have.
    pub(super) detail: Tokens,
    pub(super) missing: Missing,
    /// An excerpt of the batch just before the start.
    pub(super) edge: Option<(Span, Tokens)>,
}

impl Choice<'_> {
    pub(super) fn exhaustive(&self) -> bool {
        self.missing.count == 0
    }

    /// Returns the last message that the summary covers.
    fn through(&self) -> Seq {
        self.summary.map_or(0, |summary| summary.through)
    }

    /// Returns the sort key; the choice with the smallest key is best. A choice without missing messages is best. Among
    /// equal choices, a smaller gap is better, then more detail in the summary, then a newer summary.
    pub(super) fn rank(&self) -> impl Ord + use<> {
        use std::cmp::Reverse;
        let (through, fitted) = self.summary.map_or((0, false), |s| (s.through, s.fitted));
        let gap = if self.exhaustive() { 0 } else { self.gap };
        (!self.exhaustive(), gap, Reverse(self.detail), Reverse(through), fitted)
    }
}

/// Chooses the rest of a context after the newest message is placed.
pub(super) struct Chooser<'a> {
    pub(super) planner: &'a Planner<'a>,
    pub(super) newest: &'a Newest,
    /// Whether the message that opened the current turn fits.
    pub(super) carries: bool,
    /// Tokens available for the message that opened the turn, the summary and the other messages.
    pub(super) room: Tokens,
}

impl<'a> Chooser<'a> {
    /// Returns the message that opened the turn at `index`, if it fits.
    fn turn_opener(&self, index: usize) -> Option<&'a Outline> {
        self.planner.opener(index).filter(|_| self.carries)
    }

    /// Returns the message that opened the turn at `index`, if no user message would be visible without it. With
    /// `steady` it is always returned, because the visibility of a user message may change as the log grows.
    fn carried(&self, index: usize) -> Option<&'a Outline> {
        let visible = self.planner.last_opener.is_some_and(|last| last >= index);
        self.turn_opener(index).filter(|_| self.planner.request.steady || !visible)
    }

    fn messages(&self, index: usize) -> Tokens {
        match self.newest.excerpt {
            Some(_) => self.newest.cost,
            None => self.planner.suffix.get(index).copied().unwrap_or(0),
        }
    }

    /// Returns the tokens of a list that starts at `index`.
    fn cost(&self, index: usize) -> Tokens {
        self.messages(index).saturating_add(self.carried(index).map_or(0, |opener| opener.tokens))
    }

    fn summary_room(&self) -> Tokens {
        let left = self.room.saturating_sub(self.cost(self.newest.index));
        self.planner.share().min(left)
    }

    pub(super) fn with_summary(&self, at: usize, renderer: &mut dyn TextRenderer) -> Option<Choice<'a>> {
        let last = self.planner.session.recent.outlines().last()?.seq;
        // A summary that covers messages after the last outline belongs to a later state of the session, so it is not
        // used.
        let candidate =
            self.planner.session.summaries.get(at).filter(|summary| (1..=last).contains(&summary.through))?;
        let room = self.summary_room();
        let (tokens, fitted) = if candidate.tokens <= room {
            (candidate.tokens, false)
        } else if self.planner.request.fit {
            let request = FitRequest { summary: Some(at), gaps: &[], shown: None, room };
            (renderer.fit(&request).filter(|tokens| *tokens <= room)?, true)
        } else {
            return None;
        };
        let through = candidate.through;
        let chosen =
            ChosenSummary { candidate: Some(at), through, tokens, fitted, ..ChosenSummary::default() };
        // A shortened summary contains less than an unshortened summary of the same size, so only three quarters of its
        // size count.
        let half = fitted && !candidate.elastic;
        Some(Choice { detail: if half { tokens - tokens / 4 } else { tokens }, ..self.choice(Some(chosen)) })
    }

    /// Computes where the messages next to this summary start, and which messages are neither covered nor shown.
    pub(super) fn choice(&self, summary: Option<ChosenSummary>) -> Choice<'a> {
        let cuts = self.planner.session.recent;
        let newest = self.newest.index;
        let through = summary.map_or(0, |summary| summary.through);
        let after = cuts.outlines().partition_point(|outline| outline.seq <= through).max(self.planner.low);
        let preferred = cuts.first_in(after..newest, self.newest.allowed).unwrap_or(newest);
        let room = self.room.saturating_sub(summary.map_or(0, |summary| summary.tokens));
        // A list that is not cut must only grow at its end. So its first entries may depend on the start position but
        // not on later messages.
        let opener = self.turn_opener(preferred);
        let whole = self.messages(preferred).saturating_add(opener.map_or(0, |opener| opener.tokens));
        let all_loaded = self.planner.not_loaded(through, None).count == 0;
        let uncut = all_loaded && whole <= room;
        let (start, carried) = if self.newest.excerpt.is_some() {
            (newest, self.carried(newest))
        } else if uncut {
            (preferred, opener)
        } else {
            let fits = self.first_that_fits(preferred, room);
            let start = if self.planner.request.steady { self.step_up(fits) } else { fits };
            (start, self.carried(start))
        };
        let gap = self.planner.outline(start).map_or(0, |outline| outline.seq.saturating_sub(through));
        let missing = self.missing(through, start, carried);
        let cut = start > preferred || !all_loaded || self.newest.excerpt.is_some();
        Choice { summary, start, carried, cut, gap, missing, ..Choice::default() }
    }

    /// Returns the choice with its messages starting at `start`.
    fn starting(&self, start: usize, choice: Choice<'a>) -> Choice<'a> {
        let carried = self.carried(start);
        Choice { start, carried, missing: self.missing(choice.through(), start, carried), ..choice }
    }

    /// Returns the first allowed cut at or after `low` after which all messages fit.
    fn first_that_fits(&self, low: usize, room: Tokens) -> usize {
        // The cost of the messages alone never rises towards the end, so this bound is found by binary search.
        let costs = self.planner.suffix.get(low..self.newest.index).unwrap_or_default();
        let fits = low.saturating_add(costs.partition_point(|cost| *cost > room));
        self.first_start(fits, room)
    }

    /// Returns the first position at or after `from` at which a list may start and fits `room`.
    fn first_start(&self, from: usize, room: Tokens) -> usize {
        let (cuts, newest) = (self.planner.session.recent, self.newest.index);
        let may_start = |at: &usize| cuts.at(*at) >= self.newest.allowed && self.cost(*at) <= room;
        (from..newest).find(may_start).unwrap_or(newest)
    }

    /// Moves `start` forward to the position at which the tokens of the log reach the next multiple of a quarter of the
    /// budget. The start then stays the same until the log has grown by a quarter of the budget.
    fn step_up(&self, start: usize) -> usize {
        let step = (self.planner.budget / 4).max(1);
        let before = |index| self.planner.outline(index).map_or(Tokens::MAX, |outline| outline.before);
        let target = before(start).div_ceil(step).saturating_mul(step);
        let outlines = self.planner.session.recent.outlines();
        let stepped = outlines.partition_point(|outline| outline.before < target).max(start);
        self.first_start(stepped, self.cost(start))
    }

    /// Returns the messages between a summary's coverage and the first message shown.
    fn missing(&self, through: Seq, start: usize, carried: Option<&Outline>) -> Missing {
        let carried = carried.map(|opener| opener.seq);
        let mut missing = self.planner.not_loaded(through, carried);
        self.left_out(through, start, carried).for_each(|seq| missing.add(seq));
        missing
    }

    fn left_out(&self, through: Seq, start: usize, carried: Option<Seq>) -> impl Iterator<Item = Seq> {
        let outlines = self.planner.session.recent.outlines();
        let after = outlines.partition_point(|outline| outline.seq <= through).max(self.planner.low);
        let end = if self.newest.excerpt.is_some() { self.planner.end() } else { start };
        let planner = self.planner;
        planner.left_out(after..end, move |seq| carried == Some(seq) || planner.is_pinned(seq))
    }

    /// Returns the messages that a choice leaves out, as spans of consecutive messages.
    fn gaps(&self, choice: &Choice<'_>) -> Vec<Span> {
        let mut gaps: Vec<Span> = Vec::new();
        for seq in self.left_out(choice.through(), choice.start, choice.carried.map(|opener| opener.seq)) {
            match gaps.last_mut() {
                Some(gap) if seq.checked_sub(1) == Some(gap.through) => gap.through = seq,
                _ => gaps.extend(Span::new(seq, seq)),
            }
        }
        gaps
    }

    /// Spends the rest of the budget. Adds the best lines of missing messages to the summary, then older messages
    /// verbatim, then an excerpt of the batch just before the first message.
    pub(super) fn fill(&self, mut best: Choice<'a>, renderer: &mut dyn TextRenderer) -> Choice<'a> {
        if self.newest.excerpt.is_some() {
            let digests = self.planner.request.summary && self.planner.request.fit;
            return digests.then(|| self.digest(&best, renderer)).flatten().unwrap_or(best);
        }
        let all_loaded = self.planner.not_loaded(0, None).count == 0;
        let low = self.planner.low;
        if all_loaded && self.planner.session.recent.at(low) == Cut::Legal && self.cost(low) <= self.room {
            return Choice { start: low, ..Choice::default() };
        }
        let elastic = best.summary.and_then(|summary| self.planner.session.summaries.get(summary.candidate?));
        let elastic = elastic.is_some_and(|candidate| candidate.elastic) && self.planner.request.fit;
        if self.planner.request.summary && (best.missing.count > 0 || elastic) {
            best = self.digest(&best, renderer).unwrap_or(best);
        }
        let spent = best.summary.map_or(0, |summary| summary.tokens);
        let room = self.room.saturating_sub(spent);
        let earlier = self.first_that_fits(low, room);
        if earlier < best.start {
            best = self.starting(earlier, best);
        }
        let carried = best.carried.map_or(0, |opener| opener.tokens);
        let left = room.saturating_sub(self.messages(best.start).saturating_add(carried));
        Choice { edge: self.edge(&best, left, renderer), ..best }
    }

    /// Reserves the summary's whole share and fills the rest of the budget with messages. Then renders the summary
    /// again. It now includes the messages between its coverage and the first message shown, and leaves out the
    /// messages that are shown.
    fn digest(&self, best: &Choice<'a>, renderer: &mut dyn TextRenderer) -> Option<Choice<'a>> {
        let room = self.summary_room();
        let base = best.through();
        let candidate = best.summary.and_then(|summary| summary.candidate);
        let reserved = ChosenSummary {
            candidate,
            through: base,
            tokens: room,
            fitted: true,
            ..ChosenSummary::default()
        };
        let choice = self.choice(Some(reserved));
        let clipped = self.newest.excerpt.is_some();
        let start = match clipped {
            true => choice.start,
            false => self.first_that_fits(self.planner.low, self.room.saturating_sub(room)).min(choice.start),
        };
        let choice = self.starting(start, choice);
        let gap = choice.missing.span;
        if gap.is_some_and(|gap| gap.from < self.planner.session.from) {
            return None;
        }
        let gaps = self.gaps(&choice);
        // If the newest message is an excerpt, no message is shown verbatim, so the summary leaves out none.
        let shown = self.planner.outline(start).map(|outline| outline.seq).filter(|_| !clipped);
        let request = FitRequest { summary: candidate, gaps: &gaps, shown, room };
        let tokens = renderer.fit(&request).filter(|tokens| *tokens <= room)?;
        let through = gap.map_or(base, |gap| gap.through.max(base));
        let summary = Some(ChosenSummary { through, tokens, digested: gap, shown, ..reserved });
        Some(self.starting(start, Choice { summary, ..choice }))
    }

    /// Makes an excerpt of the batch just before the first message, if enough tokens are left.
    fn edge(
        &self,
        best: &Choice<'a>,
        left: Tokens,
        renderer: &mut dyn TextRenderer,
    ) -> Option<(Span, Tokens)> {
        let start = best.start;
        let cuts = self.planner.session.recent;
        let from = cuts.last_in(self.planner.low..start, Cut::InLoop)?;
        // An excerpt contains no reasoning, so it must not come before the rest of its tool loop.
        if cuts.at(from) != Cut::Legal || self.planner.outline(start)?.thinking {
            return None;
        }
        let outlines = cuts.outlines().get(from..start)?;
        let carried = best.carried.map(|opener| opener.seq);
        let apart = |outline: &Outline| {
            outline.stray || self.planner.is_pinned(outline.seq) || carried == Some(outline.seq)
        };
        if left < SMALLEST_EXCERPT || outlines.iter().any(apart) {
            return None;
        }
        let span = Span::new(outlines.first()?.seq, outlines.last()?.seq)?;
        let tokens = renderer.clip(span, left).filter(|tokens| *tokens <= left)?;
        Some((span, tokens))
    }
}
