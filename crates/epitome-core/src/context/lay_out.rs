//! The choosing itself: the order in which room is given away.
//!
//! A [`Desk`] holds what a request and a scene come to; a [`Ground`] what is left to decide once the
//! newest message is in. Both know places and sizes, never words.

use std::ops::Range;

use super::{
    ChosenSummary, ContextError, Costs, Empty, Entry, Layout, Oversize, Report, Request, Scene, Spent, Words,
};
use crate::cut::Cuts;
use crate::message::{Role, Seq, Span, Tokens};
use crate::outline::{Cut, Outline};

/// A smaller excerpt says nothing.
const SMALLEST_EXCERPT: Tokens = 64;

/// Decides what a context holds.
///
/// ```
/// use epitome_core::context::{lay_out, Candidate, Costs, Entry, NoWords, Request, Scene};
/// use epitome_core::cut::Cuts;
/// use epitome_core::drawing::{outlines, word_counter};
/// use epitome_core::outline::Cut;
///
/// let log = outlines("s u:10 a:10 u:10 a:10 u:10").unwrap();
/// let summaries = [Candidate { through: 3, tokens: 8 }];
/// let scene = Scene::whole(Cuts::new(&log, Cut::Legal), &summaries);
/// let request = Request { tokens: Some(50), ..Request::default() };
/// let costs = Costs::of(&word_counter());
/// let layout = lay_out(&request, &scene, &costs, &mut NoWords).unwrap();
/// use Entry::{Kept, Message, Summary};
/// assert_eq!(layout.entries, [Kept(1), Summary, Message(4), Message(5), Message(6)]);
/// assert!(layout.report.exhaustive);
/// ```
pub fn lay_out(
    request: &Request,
    scene: &Scene<'_>,
    costs: &Costs,
    words: &mut dyn Words,
) -> Result<Layout, ContextError> {
    let budget = request.budget()?;
    let desk = Desk::new(request, scene, costs, budget);
    if desk.last_shown.is_none() && scene.pinned.is_empty() {
        return Ok(desk.empty(Empty::NoMessages));
    }
    if desk.prepaid() > budget {
        return Ok(desk.empty(Empty::PinnedOverBudget));
    }
    // A list that must be opened by a note of ours pays for it; whether it must be is known only
    // once it is laid out.
    let first = desk.attempt(0, words);
    match first {
        Err(why) => Ok(desk.empty(why)),
        Ok(layout) if layout.report.tokens.total() <= budget => Ok(layout),
        Ok(_) => Ok(match desk.attempt(costs.note, words) {
            Ok(layout) if layout.report.tokens.total() <= budget => layout,
            _ => desk.empty(Empty::NoValidList),
        }),
    }
}

/// Everything worked out once for a request.
struct Desk<'a> {
    request: &'a Request,
    scene: &'a Scene<'a>,
    costs: &'a Costs,
    budget: Tokens,
    /// The first place that is not a standing order.
    low: usize,
    /// The newest message that can be shown at all.
    last_shown: Option<usize>,
    /// The newest message that opens a turn.
    last_opener: Option<usize>,
    /// For each place, what the messages from there to the end cost beyond what is prepaid.
    suffix: Vec<Tokens>,
    leading: Tokens,
    pinned: Tokens,
}

/// What must be in before anything else is thought of.
struct Newest {
    place: usize,
    cost: Tokens,
    /// It was too large and became an excerpt.
    excerpt: Option<Span>,
    /// Where a list may start: at a legal cut, or where no such list fits, also past a loop's
    /// reasoning, which then leaves.
    allowed: Cut,
}

/// A way to spend the budget.
#[derive(Debug, Clone, Copy)]
struct Choice<'a> {
    summary: Option<ChosenSummary>,
    start: usize,
    /// The message that opened the turn under way at the start, shown before the summary.
    carried: Option<&'a Outline>,
    cut: bool,
    /// How far the first message is from the summary's coverage.
    gap: Seq,
    missing: Missing,
}

impl Choice<'_> {
    fn exhaustive(&self) -> bool {
        self.missing.count == 0
    }

    /// Smaller is better: nothing missing, then the smaller gap, then more detail, then newer.
    fn rank(&self) -> impl Ord + use<> {
        use std::cmp::Reverse;
        let (tokens, through, fitted) =
            self.summary.map_or((0, 0, false), |s| (s.tokens, s.through, s.fitted));
        let gap = if self.exhaustive() { 0 } else { self.gap };
        // Half a summary tells less than a whole one of its size: it must be clearly larger.
        let detail = if fitted { tokens - tokens / 4 } else { tokens };
        (!self.exhaustive(), gap, Reverse(detail), Reverse(through), fitted)
    }
}

/// The messages neither covered nor shown.
#[derive(Debug, Clone, Copy, Default)]
struct Missing {
    count: u64,
    span: Option<Span>,
}

impl Missing {
    fn add(&mut self, seq: Seq) {
        self.count = self.count.saturating_add(1);
        let span = self.span.get_or_insert(Span { from: seq, through: seq });
        span.from = span.from.min(seq);
        span.through = span.through.max(seq);
    }
}

impl<'a> Desk<'a> {
    fn new(request: &'a Request, scene: &'a Scene<'a>, costs: &'a Costs, budget: Tokens) -> Self {
        let outlines = scene.recent.outlines();
        let low = outlines.iter().take_while(|outline| outline.leading).count();
        let last_shown = outlines.iter().rposition(|outline| !outline.stray && !outline.leading);
        let mut suffix = vec![0; outlines.len() + 1];
        let mut pinned = scene.pinned.iter().rev().peekable();
        // What calls without a result will cost once they are given one. Exact at every place
        // where no call is open; the very last batch may stay open for nothing.
        let mut unanswered =
            if open_at_the_very_end(scene.recent) { -i64::from(scene.open_calls) } else { 0 };
        let (mut words, mut cost): (Tokens, Tokens) = (0, 0);
        for (at, outline) in outlines.iter().enumerate().rev() {
            while pinned.next_if(|p| p.seq > outline.seq).is_some() {}
            let prepaid = pinned.peek().is_some_and(|p| p.seq == outline.seq);
            if !(prepaid || outline.leading || outline.stray) {
                words = words.saturating_add(outline.tokens);
                unanswered += i64::from(outline.calls) - i64::from(outline.answers);
            }
            let marks = u64::try_from(unanswered).unwrap_or(0).saturating_mul(costs.marked_result);
            // Never less than what comes after it, so that places can be found by halving.
            cost = cost.max(words.saturating_add(marks));
            if let Some(slot) = suffix.get_mut(at) {
                *slot = cost;
            }
        }
        let sum =
            |outlines: &[&Outline]| outlines.iter().fold(0, |sum: Tokens, o| sum.saturating_add(o.tokens));
        let marks: i64 = scene.pinned.iter().map(|o| i64::from(o.calls) - i64::from(o.answers)).sum();
        let marks = u64::try_from(marks).unwrap_or(0).saturating_mul(costs.marked_result);
        Self {
            request,
            scene,
            costs,
            budget,
            low,
            last_shown,
            last_opener: outlines.iter().rposition(|outline| outline.opens_turn),
            suffix,
            leading: sum(&scene.leading),
            pinned: sum(&scene.pinned).saturating_add(marks),
        }
    }

    fn prepaid(&self) -> Tokens {
        self.leading.saturating_add(self.pinned)
    }

    fn outline(&self, place: usize) -> Option<&'a Outline> {
        self.scene.recent.outlines().get(place)
    }

    /// Whether it will be shown as a user's message.
    fn is_user(&self, outline: &Outline) -> bool {
        let assistant = &self.request.assistant;
        let answers = outline.role == Role::Peer && assistant.is_some() && outline.author == *assistant;
        outline.opens_turn && !answers
    }

    fn is_pinned(&self, seq: Seq) -> bool {
        self.scene.pinned.binary_search_by_key(&seq, |outline| outline.seq).is_ok()
    }

    fn empty(&self, why: Empty) -> Layout {
        let before = Span::new(1, self.scene.from.saturating_sub(1));
        let mut missing = Missing { count: before.map_or(0, |span| span.len()), span: before };
        self.left_out(0..self.end(), |_| false).for_each(|seq| missing.add(seq));
        Layout {
            entries: Vec::new(),
            summary: None,
            strip_reasoning: false,
            assistant: self.request.assistant.clone(),
            report: Report {
                budget: self.budget,
                exhaustive: missing.count == 0,
                gap: missing.span,
                skipped: self.scene.skipped,
                strays: self.scene.recent.outlines().iter().filter(|outline| outline.stray).count() as u64,
                cut: missing.count > 0,
                empty: Some(why),
                ..Report::default()
            },
        }
    }

    /// Lays the context out with `reserve` tokens set aside for a note of ours.
    fn attempt(&self, reserve: Tokens, words: &mut dyn Words) -> Result<Layout, Empty> {
        let room = self.budget.saturating_sub(self.prepaid().saturating_add(reserve));
        let Some(last) = self.last_shown else {
            let nothing = Newest { place: self.end(), cost: 0, excerpt: None, allowed: Cut::Legal };
            let choice = Choice {
                summary: None,
                start: self.end(),
                carried: None,
                cut: false,
                gap: 0,
                missing: self.unknown(0, None),
            };
            return Ok(self.compose(&nothing, &choice, None));
        };
        let newest = self.newest(last, room, words).ok_or(Empty::NewestOverBudget)?;
        let opener = self.opener(newest.place).map_or(0, |opener| opener.tokens);
        let carries = newest.cost.saturating_add(opener) <= room;
        let ground = Ground { desk: self, newest: &newest, carries, room };

        let candidates = if self.request.summary { self.scene.summaries.len() } else { 0 };
        let summarized =
            (0..candidates).filter_map(|at| ground.with_summary(at, words)).min_by_key(Choice::rank);
        // A summary that fits is always there, but for the odd one that would cost more than it tells.
        let mut best = match summarized {
            Some(choice) if choice.exhaustive() => choice,
            summarized => {
                let without = ground.choice(None);
                summarized.filter(|_| !without.exhaustive()).unwrap_or(without)
            }
        };
        let mut excerpt = None;
        if self.request.fill && newest.excerpt.is_none() {
            (best, excerpt) = ground.fill(best, words);
        }
        Ok(self.compose(&newest, &best, excerpt))
    }

    fn end(&self) -> usize {
        self.scene.recent.outlines().len()
    }

    /// The newest message with all that must stay with it, if there is room for it.
    fn newest(&self, last: usize, room: Tokens, words: &mut dyn Words) -> Option<Newest> {
        let cuts = self.scene.recent;
        let cost = |place: usize| self.suffix.get(place).copied().unwrap_or(0);
        for allowed in [Cut::Legal, Cut::InLoop] {
            if let Some(place) = cuts.last_in(self.low..last + 1, allowed)
                && cost(place) <= room
            {
                return Some(Newest { place, cost: cost(place), excerpt: None, allowed });
            }
        }
        if self.request.oversize != Oversize::Clip {
            return None;
        }
        let place = cuts.last_in(self.low..last + 1, Cut::InLoop)?;
        let span = Span::new(self.outline(place)?.seq, self.outline(self.end().checked_sub(1)?)?.seq)?;
        // What else should be seen beside an excerpt gets its room first.
        let opener = self.opener(place).map_or(0, |opener| opener.tokens);
        let mut room = if opener <= room / 2 { room - opener } else { room };
        if self.request.summary {
            let largest = self.scene.summaries.iter().map(|summary| summary.tokens).max().unwrap_or(0);
            room = room.saturating_sub(self.request.share.of(room).min(largest));
        }
        let cost = words.clip(span, room).filter(|cost| *cost <= room)?;
        Some(Newest { place, cost, excerpt: Some(span), allowed: Cut::Legal })
    }

    /// The message that opened the turn under way at a place, unless it stands there or stays
    /// anyway. It depends on the place alone, so it stays the same while the log grows.
    fn opener(&self, place: usize) -> Option<&'a Outline> {
        let outlines = self.scene.recent.outlines();
        let shown = outlines.get(place..)?.iter().find(|outline| !outline.stray)?;
        let turn = (!shown.opens_turn).then_some(shown.turn)?;
        let first = outlines.get(outlines.partition_point(|outline| outline.turn < turn))?;
        let opener = if first.opens_turn { Some(first) } else { self.scene.opener };
        opener.filter(|opener| opener.turn == turn && !self.is_pinned(opener.seq))
    }

    /// The messages after `through` that were not even handed in, but for those that stay.
    fn unknown(&self, through: Seq, carried: Option<Seq>) -> Missing {
        let mut missing = Missing::default();
        let known = self.scene.leading.last().map_or(0, |outline| outline.seq).max(through);
        if let Some(span) = Span::new(known.saturating_add(1), self.scene.from.saturating_sub(1)) {
            let pinned = self.scene.pinned.iter().map(|outline| outline.seq);
            let stays = pinned.chain(carried).filter(|seq| span.contains(*seq)).count() as u64;
            missing.count = span.len().saturating_sub(stays);
            missing.span = (missing.count > 0).then_some(span);
        }
        missing
    }

    /// The messages in these places that should be shown and are not.
    fn left_out(&self, places: Range<usize>, shown: impl Fn(Seq) -> bool) -> impl Iterator<Item = Seq> {
        let cuts = self.scene.recent;
        let mut at = places.start;
        let batches = std::iter::from_fn(move || {
            let batch = (at < places.end).then(|| cuts.batch(at))?;
            let whole = cuts.outlines().get(batch.clone()).unwrap_or_default();
            let asked = cuts.outlines().get(at..batch.end.min(places.end)).unwrap_or_default();
            at = batch.end.max(at + 1);
            // `skip` holds for a whole batch.
            Some(if whole.iter().any(|outline| outline.skip) { Default::default() } else { asked })
        });
        batches.flatten().filter(move |o| !o.stray && !shown(o.seq)).map(|outline| outline.seq)
    }

    /// Puts everything in order and sums it up.
    fn compose(&self, newest: &Newest, choice: &Choice<'_>, edge: Option<(Span, Tokens)>) -> Layout {
        let outlines = self.scene.recent.outlines();
        let shown = outlines.get(choice.start..).unwrap_or_default();
        let first_shown = shown.first().map_or(Seq::MAX, |outline| outline.seq);

        let mut entries: Vec<Entry> =
            self.scene.leading.iter().map(|outline| Entry::Kept(outline.seq)).collect();
        let head = entries.len();
        let mut apart: Vec<&Outline> =
            self.scene.pinned.iter().copied().filter(|outline| outline.seq < first_shown).collect();
        apart.extend(choice.carried);
        apart.sort_by_key(|outline| outline.seq);
        let mut open = 0;
        for outline in &apart {
            // A batch that was cut out of its place must not take the next one's results.
            let cut = if self.scene.recent.is_own() { outline.own_cut } else { outline.cut };
            if open > 0 && cut != Cut::InCall {
                entries.push(Entry::Seam);
                open = 0;
            }
            entries.push(Entry::Kept(outline.seq));
            open += i64::from(outline.calls) - i64::from(outline.answers);
        }
        if open > 0 {
            entries.push(Entry::Seam);
        }
        let starts_apart = apart.iter().find(|outline| !outline.role.is_system());
        entries.extend(choice.summary.map(|_| Entry::Summary));
        entries.extend(edge.map(|(span, tokens)| Entry::Excerpt { span, tokens }));
        let from = choice.start.max(self.low);
        let shown = outlines.get(from..).unwrap_or_default();
        match newest.excerpt {
            Some(span) => entries.push(Entry::Excerpt { span, tokens: newest.cost }),
            None => {
                let mut turn = None;
                for outline in shown.iter().filter(|outline| !outline.stray) {
                    // Who ended the turn before is not in sight among one author's messages.
                    let other_turn = turn.replace(outline.turn).is_some_and(|turn| turn != outline.turn);
                    if self.scene.recent.is_own() && other_turn && outline.own_cut != Cut::InCall {
                        entries.push(Entry::Seam);
                    }
                    entries.push(Entry::Message(outline.seq));
                }
            }
        }

        let first_recent = || {
            let first = match edge {
                Some((span, _)) => outlines.iter().find(|o| o.seq >= span.from && !o.stray),
                None => shown.iter().find(|o| !o.role.is_system() && !o.stray),
            };
            first.is_some_and(|outline| self.is_user(outline))
        };
        let starts_with_user = match (starts_apart, choice.summary) {
            (Some(outline), _) => self.is_user(outline),
            (None, Some(_)) => true,
            (None, None) => first_recent(),
        };
        if !starts_with_user {
            entries.insert(head, Entry::Note);
        }

        // A pinned reply right before a tool loop would read as the loop's beginning.
        let after_reply = choice.summary.is_none()
            && edge.is_none()
            && apart.last().is_some_and(|outline| !outline.opens_turn);
        let messages = match newest.excerpt {
            Some(_) => newest.cost,
            None => self.suffix.get(from).copied().unwrap_or(0),
        };
        let report = Report {
            budget: self.budget,
            tokens: Spent {
                leading: self.leading,
                pinned: self.pinned.saturating_add(choice.carried.map_or(0, |opener| opener.tokens)),
                summary: choice.summary.map_or(0, |summary| summary.tokens),
                messages: messages.saturating_add(edge.map_or(0, |(_, tokens)| tokens)),
                marks: if starts_with_user { 0 } else { self.costs.note },
            },
            covers: choice.summary.and_then(|summary| Span::new(1, summary.through)),
            exhaustive: choice.missing.count == 0,
            gap: choice.missing.span,
            skipped: self.scene.skipped,
            strays: outlines.iter().filter(|outline| outline.stray).count() as u64,
            cut: choice.cut,
            fitted: choice.summary.is_some_and(|summary| summary.fitted),
            digested: choice.summary.and_then(|summary| summary.digested),
            empty: None,
        };
        Layout {
            entries,
            summary: choice.summary,
            strip_reasoning: self.scene.recent.at(from) == Cut::InLoop || after_reply,
            assistant: self.request.assistant.clone(),
            report,
        }
    }
}

/// What is left to decide once the newest message is in.
struct Ground<'a> {
    desk: &'a Desk<'a>,
    newest: &'a Newest,
    /// Whether there is room for the message that opened the turn under way.
    carries: bool,
    /// For that message, the summary and the messages.
    room: Tokens,
}

impl<'a> Ground<'a> {
    /// The message that opened the turn under way at a place.
    fn under_way(&self, place: usize) -> Option<&'a Outline> {
        self.desk.opener(place).filter(|_| self.carries)
    }

    /// The same where no user message would be in sight without it. A start that is to hold still
    /// takes it always: whether a user message is in sight changes as the log grows.
    fn carried(&self, place: usize) -> Option<&'a Outline> {
        let in_sight = self.desk.last_opener.is_some_and(|last| last >= place);
        self.under_way(place).filter(|_| self.desk.request.steady || !in_sight)
    }

    fn messages(&self, place: usize) -> Tokens {
        match self.newest.excerpt {
            Some(_) => self.newest.cost,
            None => self.desk.suffix.get(place).copied().unwrap_or(0),
        }
    }

    /// What a list that starts at `place` takes of the room.
    fn cost(&self, place: usize) -> Tokens {
        self.messages(place).saturating_add(self.carried(place).map_or(0, |opener| opener.tokens))
    }

    fn summary_room(&self) -> Tokens {
        let left = self.room.saturating_sub(self.cost(self.newest.place));
        self.desk.request.share.of(self.desk.budget).min(left)
    }

    fn with_summary(&self, at: usize, words: &mut dyn Words) -> Option<Choice<'a>> {
        let last = self.desk.scene.recent.outlines().last()?.seq;
        // One that reaches further than the messages at hand belongs to a later moment.
        let candidate =
            self.desk.scene.summaries.get(at).filter(|summary| (1..=last).contains(&summary.through))?;
        let room = self.summary_room();
        let (tokens, fitted) = if candidate.tokens <= room {
            (candidate.tokens, false)
        } else if self.desk.request.fit {
            (words.fit(Some(at), &[], room).filter(|tokens| *tokens <= room)?, true)
        } else {
            return None;
        };
        let (candidate, through) = (Some(at), candidate.through);
        Some(self.choice(Some(ChosenSummary { candidate, through, tokens, fitted, digested: None })))
    }

    /// Where the messages start beside this summary, and what is missing then.
    fn choice(&self, summary: Option<ChosenSummary>) -> Choice<'a> {
        let cuts = self.desk.scene.recent;
        let newest = self.newest.place;
        let through = summary.map_or(0, |summary| summary.through);
        let after = cuts.outlines().partition_point(|outline| outline.seq <= through).max(self.desk.low);
        let wanted = cuts.first_in(after..newest, self.newest.allowed).unwrap_or(newest);
        let room = self.room.saturating_sub(summary.map_or(0, |summary| summary.tokens));
        // Uncut, the list must only grow at its end: its head may depend on the start alone.
        let opener = self.under_way(wanted);
        let whole = self.messages(wanted).saturating_add(opener.map_or(0, |opener| opener.tokens));
        let all_known = self.desk.unknown(through, None).count == 0;
        let uncut = all_known && whole <= room;
        let (start, carried) = if self.newest.excerpt.is_some() {
            (newest, self.carried(newest))
        } else if uncut {
            (wanted, opener)
        } else {
            let fits = self.first_that_fits(wanted, room);
            let start = if self.desk.request.steady { self.step_up(fits) } else { fits };
            (start, self.carried(start))
        };
        let gap = self.desk.outline(start).map_or(0, |outline| outline.seq.saturating_sub(through));
        let missing = self.missing(through, start, carried);
        let cut = start > wanted || !all_known || self.newest.excerpt.is_some();
        Choice { summary, start, carried, cut, gap, missing }
    }

    /// The first legal cut from `low` on after which the messages fit.
    fn first_that_fits(&self, low: usize, room: Tokens) -> usize {
        let newest = self.newest.place;
        // Messages alone only cost less towards the end, so that bound is found by halving.
        let past = |place: usize| self.desk.suffix.get(place).is_some_and(|cost| *cost > room);
        let (mut below, mut fits) = (low, newest);
        while below < fits {
            let middle = below + (fits - below) / 2;
            if past(middle) {
                below = middle + 1;
            } else {
                fits = middle;
            }
        }
        self.first_start(fits, room)
    }

    /// The first place from `from` on at which a list may start that fits the room.
    fn first_start(&self, from: usize, room: Tokens) -> usize {
        let (cuts, newest) = (self.desk.scene.recent, self.newest.place);
        let may_start = |at: &usize| cuts.at(*at) >= self.newest.allowed && self.cost(*at) <= room;
        (from..newest).find(may_start).unwrap_or(newest)
    }

    /// Moves a start on to the next step of a quarter of the budget, measured along the log: it
    /// stays there while the log grows by that much.
    fn step_up(&self, start: usize) -> usize {
        let step = (self.desk.budget / 4).max(1);
        let before = |place| self.desk.outline(place).map_or(Tokens::MAX, |outline| outline.before);
        let target = before(start).div_ceil(step).saturating_mul(step);
        let outlines = self.desk.scene.recent.outlines();
        let stepped = outlines.partition_point(|outline| outline.before < target).max(start);
        self.first_start(stepped, self.cost(start))
    }

    /// What lies between a summary's coverage and the first message shown.
    fn missing(&self, through: Seq, start: usize, carried: Option<&Outline>) -> Missing {
        let carried = carried.map(|opener| opener.seq);
        let mut missing = self.desk.unknown(through, carried);
        self.left_out(through, start, carried).for_each(|seq| missing.add(seq));
        missing
    }

    fn left_out(&self, through: Seq, start: usize, carried: Option<Seq>) -> impl Iterator<Item = Seq> {
        let outlines = self.desk.scene.recent.outlines();
        let after = outlines.partition_point(|outline| outline.seq <= through).max(self.desk.low);
        let end = if self.newest.excerpt.is_some() { self.desk.end() } else { start };
        let desk = self.desk;
        desk.left_out(after..end, move |seq| carried == Some(seq) || desk.is_pinned(seq))
    }

    /// The same as runs of messages.
    fn gaps(&self, choice: &Choice<'_>) -> Vec<Span> {
        let through = choice.summary.map_or(0, |summary| summary.through);
        let mut gaps: Vec<Span> = Vec::new();
        for seq in self.left_out(through, choice.start, choice.carried.map(|opener| opener.seq)) {
            match gaps.last_mut() {
                Some(gap) if seq.checked_sub(1) == Some(gap.through) => gap.through = seq,
                _ => gaps.extend(Span::new(seq, seq)),
            }
        }
        gaps
    }

    /// Spends what is left: a gap is digested, older messages come back word for word, and the
    /// batch at the edge may come as an excerpt.
    fn fill(&self, mut best: Choice<'a>, words: &mut dyn Words) -> (Choice<'a>, Option<(Span, Tokens)>) {
        let all_known = self.desk.unknown(0, None).count == 0;
        let low = self.desk.low;
        if all_known && self.desk.scene.recent.at(low) == Cut::Legal && self.cost(low) <= self.room {
            let (summary, carried, missing) = (None, None, Missing::default());
            return (Choice { summary, start: low, carried, cut: false, gap: 0, missing }, None);
        }
        if self.desk.request.summary && best.missing.count > 0 {
            best = self.digest(&best, words).unwrap_or(best);
        }
        let spent = best.summary.map_or(0, |summary| summary.tokens);
        let room = self.room.saturating_sub(spent);
        let earlier = self.first_that_fits(low, room);
        if earlier < best.start {
            best.start = earlier;
            best.carried = self.carried(earlier);
            let through = best.summary.map_or(0, |summary| summary.through);
            best.missing = self.missing(through, earlier, best.carried);
        }
        let carried = best.carried.map_or(0, |opener| opener.tokens);
        let left = room.saturating_sub(self.messages(best.start).saturating_add(carried));
        (best, self.edge(&best, left, words))
    }

    /// Sets the summary's whole share aside, and shortens the summary and what lies between it and
    /// the messages into it.
    fn digest(&self, best: &Choice<'a>, words: &mut dyn Words) -> Option<Choice<'a>> {
        let room = self.summary_room();
        let base = best.summary.map_or(0, |summary| summary.through);
        let candidate = best.summary.and_then(|summary| summary.candidate);
        let reserved = ChosenSummary { candidate, through: base, tokens: room, fitted: true, digested: None };
        let mut choice = self.choice(Some(reserved));
        let gap = choice.missing.span.filter(|gap| gap.from >= self.desk.scene.from)?;
        let gaps = self.gaps(&choice);
        let tokens = words.fit(candidate, &gaps, room).filter(|tokens| *tokens <= room)?;
        let through = gap.through.max(base);
        choice.summary = Some(ChosenSummary { through, tokens, digested: Some(gap), ..reserved });
        choice.missing = self.missing(through, choice.start, choice.carried);
        Some(choice)
    }

    /// An excerpt of the batch just before the messages, if what is left is worth it.
    fn edge(&self, best: &Choice<'a>, left: Tokens, words: &mut dyn Words) -> Option<(Span, Tokens)> {
        let start = best.start;
        let cuts = self.desk.scene.recent;
        let from = cuts.last_in(self.desk.low..start, Cut::InLoop)?;
        // An excerpt brings no reasoning, so it must not stand before the rest of its loop.
        if cuts.at(from) != Cut::Legal || self.desk.outline(start)?.thinking {
            return None;
        }
        let outlines = cuts.outlines().get(from..start)?;
        let carried = best.carried.map(|opener| opener.seq);
        let apart = |outline: &Outline| {
            outline.stray || self.desk.is_pinned(outline.seq) || carried == Some(outline.seq)
        };
        if left < SMALLEST_EXCERPT || outlines.iter().any(apart) {
            return None;
        }
        let span = Span::new(outlines.first()?.seq, outlines.last()?.seq)?;
        let tokens = words.clip(span, left).filter(|tokens| *tokens <= left)?;
        Some((span, tokens))
    }
}

/// Whether the calls that are open now belong to the last reply, with nothing but results after
/// it: the agent is about to answer them, and no marked result is put in.
fn open_at_the_very_end(recent: Cuts<'_>) -> bool {
    let outlines = recent.outlines();
    let from = recent.last_in(0..outlines.len(), Cut::InLoop).unwrap_or(0);
    let batch = outlines.get(from..).unwrap_or_default();
    let mut calling = batch.iter().filter(|outline| outline.calls > 0);
    let one_reply = calling.next().is_some_and(|outline| batch.first().is_some_and(|f| f.seq == outline.seq))
        && calling.next().is_none();
    one_reply && batch.iter().skip(1).all(|outline| outline.role == Role::Tool || outline.stray)
}
