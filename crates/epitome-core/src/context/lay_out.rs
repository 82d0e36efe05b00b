//! Lays a context out: determines the messages that always stay, their cost, and the order of all entries.
//!
//! A [`Planner`] contains the values computed for a request and a session shape. [`super::choose`] chooses the
//! summary and the messages next to it. Both use positions and sizes, never text.

use super::choose::{Choice, Chooser, Newest};
use super::planner::{Missing, Planner};
use super::{
    ContextReport, Empty, Entry, Layout, Oversize, PlaceholderCosts, Request, SessionShape, Spent,
    TextRenderer,
};
use crate::message::{Role, Seq, Span, Tokens};
use crate::outline::{Cut, Outline};
use crate::setting::SettingError;

/// Decides what a context contains.
///
/// ```
/// use epitome_core::context::{lay_out, Candidate, PlaceholderCosts, Entry, Request, SessionShape};
/// use epitome_core::cut::Cuts;
/// use epitome_testkit::drawing::{NoWords, outlines, word_counter};
/// use epitome_core::outline::Cut;
///
/// let log = outlines("s u:10 a:10 u:10 a:10 u:10").unwrap();
/// let summaries = [Candidate { through: 3, tokens: 8, elastic: false }];
/// let session = SessionShape::whole(Cuts::new(&log, Cut::Legal), &summaries);
/// let request = Request { tokens: Some(50), ..Request::default() };
/// let costs = PlaceholderCosts::of(&word_counter());
/// let layout = lay_out(&request, &session, &costs, &mut NoWords).unwrap();
/// use Entry::{Message, Relocated, Summary};
/// assert_eq!(layout.entries, [Relocated(1), Summary, Message(4), Message(5), Message(6)]);
/// assert!(layout.report.exhaustive);
/// ```
pub fn lay_out(
    request: &Request,
    session: &SessionShape<'_>,
    costs: &PlaceholderCosts,
    renderer: &mut dyn TextRenderer,
) -> Result<Layout, SettingError> {
    let budget = request.budget()?;
    let planner = Planner::new(request, session, costs, budget);
    if planner.last_shown.is_none() && session.pinned.is_empty() {
        return Ok(planner.empty(Empty::NoMessages));
    }
    if planner.prepaid() > budget {
        return Ok(planner.empty(Empty::PinnedOverBudget));
    }
    // The placeholder at the start of a list counts towards the budget. Only the finished layout shows whether the
    // placeholder is needed, so a second attempt reserves its tokens.
    let fits = |layout: &Layout| layout.report.tokens.total() <= budget;
    Ok(match planner.attempt(0, renderer) {
        Err(why) => planner.empty(why),
        Ok(layout) if fits(&layout) => layout,
        Ok(_) => {
            let noted = planner.attempt(costs.note, renderer).ok().filter(fits);
            noted.unwrap_or_else(|| planner.empty(Empty::NoValidList))
        }
    })
}

impl Planner<'_> {
    /// Returns whether the message will be sent as a user message.
    fn is_user(&self, outline: &Outline) -> bool {
        let assistant = &self.request.assistant;
        let answers = outline.role == Role::Peer && assistant.is_some() && outline.author == *assistant;
        outline.opens_turn && !answers
    }

    fn empty(&self, why: Empty) -> Layout {
        let before = Span::new(1, self.session.from.saturating_sub(1));
        let mut missing = Missing { count: before.map_or(0, |span| span.len()), span: before };
        self.left_out(0..self.end(), |_| false).for_each(|seq| missing.add(seq));
        Layout {
            assistant: self.request.assistant.clone(),
            report: ContextReport {
                budget: self.budget,
                exhaustive: missing.count == 0,
                gap: missing.span,
                skipped: self.session.skipped,
                strays: self.strays(),
                cut: missing.count > 0,
                empty: Some(why),
                ..ContextReport::default()
            },
            ..Layout::default()
        }
    }

    /// Lays the context out with `reserve` tokens set aside for the placeholder.
    fn attempt(&self, reserve: Tokens, renderer: &mut dyn TextRenderer) -> Result<Layout, Empty> {
        let room = self.budget.saturating_sub(self.prepaid().saturating_add(reserve));
        let Some(last) = self.last_shown else {
            let nothing = Newest { index: self.end(), cost: 0, excerpt: None, allowed: Cut::Legal };
            let missing = self.not_loaded(0, None);
            let choice = Choice { start: self.end(), missing, ..Choice::default() };
            return Ok(self.compose(&nothing, &choice));
        };
        let newest = self.newest(last, room, renderer).ok_or(Empty::NewestOverBudget)?;
        let opener = self.opener(newest.index).map_or(0, |opener| opener.tokens);
        let carries = newest.cost.saturating_add(opener) <= room;
        let chooser = Chooser { planner: self, newest: &newest, carries, room };

        let candidates = if self.request.summary { self.session.summaries.len() } else { 0 };
        let summarized =
            (0..candidates).filter_map(|at| chooser.with_summary(at, renderer)).min_by_key(Choice::rank);
        // Uses a summary if one fits. Exception: without a summary all messages fit, but with it some do not.
        let best = match summarized {
            Some(choice) if choice.exhaustive() => choice,
            summarized => {
                let without = chooser.choice(None);
                summarized.filter(|_| !without.exhaustive()).unwrap_or(without)
            }
        };
        let best = if self.request.fill { chooser.fill(best, renderer) } else { best };
        Ok(self.compose(&newest, &best))
    }

    /// Returns the newest message with all messages that must stay with it, if they fit.
    fn newest(&self, last: usize, room: Tokens, renderer: &mut dyn TextRenderer) -> Option<Newest> {
        let cuts = self.session.recent;
        let cost = |index: usize| self.suffix.get(index).copied().unwrap_or(0);
        // With `clip` and `fill`, the summary's share is reserved first. If the newest message does not fit the
        // remaining tokens, it becomes an excerpt.
        let clips = self.request.oversize == Oversize::Clip;
        let digests = clips && self.request.fill && self.request.fit && self.request.summary;
        let share = if digests && last > self.low { self.least_share() } else { 0 };
        for allowed in [Cut::Legal, Cut::InLoop] {
            if let Some(index) = cuts.last_in(self.low..last + 1, allowed)
                && (cost(index) <= room.saturating_sub(share) || (index <= self.low && cost(index) <= room))
            {
                return Some(Newest { index, cost: cost(index), excerpt: None, allowed });
            }
        }
        if !clips {
            return None;
        }
        let index = cuts.last_in(self.low..last + 1, Cut::InLoop)?;
        let span = Span::new(self.outline(index)?.seq, self.outline(self.end().checked_sub(1)?)?.seq)?;
        // Reserves tokens for the summary and for the message that opened the turn. The excerpt gets the remaining
        // tokens.
        let opener = self.opener(index).map_or(0, |opener| opener.tokens);
        let mut room = if opener <= room / 2 { room - opener } else { room };
        if digests {
            room = room.saturating_sub(share);
        } else if self.request.summary {
            let largest = self.session.summaries.iter().map(|summary| summary.tokens).max().unwrap_or(0);
            room = room.saturating_sub(self.request.share.of(room).min(largest));
        }
        let cost = renderer.clip(span, room).filter(|cost| *cost <= room)?;
        Some(Newest { index, cost, excerpt: Some(span), allowed: Cut::Legal })
    }

    /// Puts the entries in order and fills in the report.
    fn compose(&self, newest: &Newest, choice: &Choice<'_>) -> Layout {
        let from = choice.start.max(self.low);
        let shown = self.session.recent.outlines().get(from..).unwrap_or_default();
        let moved = self.relocated(choice, shown);
        let opened = self.opens_with_user(&moved, choice, shown);

        let mut entries: Vec<Entry> = self.session.leading.iter().map(|o| Entry::Relocated(o.seq)).collect();
        entries.extend((!opened).then_some(Entry::Note));
        let (relocated, open) = self.list(moved.iter().copied(), Entry::Relocated);
        entries.extend(relocated);
        entries.extend((open > 0).then_some(Entry::Seam));
        entries.extend(choice.summary.map(|_| Entry::Summary));
        entries.extend(choice.edge.map(|(span, tokens)| Entry::Excerpt { span, tokens }));
        match newest.excerpt {
            Some(span) => entries.push(Entry::Excerpt { span, tokens: newest.cost }),
            None => entries.extend(self.list(shown.iter().filter(|o| !o.stray), Entry::Message).0),
        }

        // A pinned reply directly before a tool loop would look like the beginning of that loop.
        let after_reply = choice.summary.is_none()
            && choice.edge.is_none()
            && moved.last().is_some_and(|outline| !outline.opens_turn);
        let messages = match newest.excerpt {
            Some(_) => newest.cost,
            None => self.suffix.get(from).copied().unwrap_or(0),
        };
        let report = ContextReport {
            budget: self.budget,
            tokens: Spent {
                leading: self.leading,
                pinned: self.pinned.saturating_add(choice.carried.map_or(0, |opener| opener.tokens)),
                summary: choice.summary.map_or(0, |summary| summary.tokens),
                messages: messages.saturating_add(choice.edge.map_or(0, |(_, tokens)| tokens)),
                marks: if opened { 0 } else { self.costs.note },
            },
            covers: choice.summary.and_then(|summary| Span::new(1, summary.through)),
            exhaustive: choice.exhaustive(),
            gap: choice.missing.span,
            skipped: self.session.skipped,
            strays: self.strays(),
            cut: choice.cut,
            fitted: choice.summary.is_some_and(|summary| summary.fitted),
            digested: choice.summary.and_then(|summary| summary.digested),
            empty: None,
        };
        Layout {
            entries,
            summary: choice.summary,
            strip_reasoning: self.session.recent.at(from) == Cut::InLoop || after_reply,
            assistant: self.request.assistant.clone(),
            report,
        }
    }

    /// Returns the messages shown outside their position: pinned messages from before the first message shown, and the
    /// message that opened the turn.
    fn relocated<'b>(&'b self, choice: &Choice<'b>, shown: &[Outline]) -> Vec<&'b Outline> {
        let first = shown.first().map_or(Seq::MAX, |outline| outline.seq);
        let pinned = self.session.pinned.iter().copied().filter(|outline| outline.seq < first);
        let mut moved: Vec<&Outline> = pinned.chain(choice.carried).collect();
        moved.sort_by_key(|outline| outline.seq);
        moved
    }

    /// Returns whether the first message after the system messages is a user message.
    fn opens_with_user(&self, moved: &[&Outline], choice: &Choice<'_>, shown: &[Outline]) -> bool {
        let speaks = |outline: &&Outline| !outline.role.is_system() && !outline.stray;
        if let Some(first) = moved.iter().copied().find(speaks) {
            return self.is_user(first);
        }
        let mut at_the_edge = self.session.recent.outlines().iter().filter(speaks);
        let first = match choice.edge {
            _ if choice.summary.is_some() => return true,
            Some((span, _)) => at_the_edge.find(|outline| outline.seq >= span.from),
            None => shown.iter().find(speaks),
        };
        first.is_some_and(|outline| self.is_user(outline))
    }

    /// Builds entries from outlines. Adds a seam after open calls if the message that closed them is not in `outlines`.
    /// Also returns how many calls are open at the end.
    fn list<'b>(
        &self,
        outlines: impl Iterator<Item = &'b Outline>,
        entry: fn(Seq) -> Entry,
    ) -> (Vec<Entry>, i64) {
        let cuts = self.session.recent;
        let mut entries = Vec::new();
        let mut open = 0;
        for outline in outlines {
            if open > 0 && cuts.of(outline) != Cut::InCall {
                entries.push(Entry::Seam);
                open = 0;
            }
            entries.push(entry(outline.seq));
            open += cuts.unanswered(outline);
        }
        (entries, open)
    }
}
