//! Computes sizes, positions and missing messages once for a request and a session shape.
//!
//! `choose` and `lay_out` both look up values here. This module uses positions and sizes, never text.

use std::ops::Range;

use super::{PlaceholderCosts, Request, SessionShape};
use crate::cut::Cuts;
use crate::message::{Role, Seq, Span, Tokens};
use crate::outline::Outline;

/// The values that are computed once for a request. `lay_out` adds the methods that plan the context with them.
pub(super) struct Planner<'a> {
    pub(super) request: &'a Request,
    pub(super) session: &'a SessionShape<'a>,
    pub(super) costs: &'a PlaceholderCosts,
    pub(super) budget: Tokens,
    /// First position after the leading system messages.
    pub(super) low: usize,
    /// Position of the newest message that is neither a stray nor a system message at the head.
    pub(super) last_shown: Option<usize>,
    /// Position of the newest message that opens a turn.
    pub(super) last_opener: Option<usize>,
    /// For each position, the tokens of all messages from that position to the end. System messages at the head and
    /// pinned messages do not count here, because their tokens are reserved separately.
    pub(super) suffix: Vec<Tokens>,
    pub(super) leading: Tokens,
    pub(super) pinned: Tokens,
    /// All skipped messages. If one message of a batch is flagged `skip`, the whole batch is skipped.
    skipped: Vec<Seq>,
}

impl<'a> Planner<'a> {
    pub(super) fn new(
        request: &'a Request,
        session: &'a SessionShape<'a>,
        costs: &'a PlaceholderCosts,
        budget: Tokens,
    ) -> Self {
        let outlines = session.recent.outlines();
        let low = outlines.iter().take_while(|outline| outline.leading).count();
        let last_shown = outlines.iter().rposition(|outline| !outline.stray && !outline.leading);
        let mut suffix = vec![0; outlines.len() + 1];
        let mut pinned = session.pinned.iter().rev().peekable();
        // Number of calls without a result. Each of them gets a placeholder result, which costs tokens. The number is
        // exact at every position where no call is open. Calls of the last batch may stay open and cost nothing.
        let mut unanswered =
            if open_at_the_very_end(session.recent) { -i64::from(session.open_calls) } else { 0 };
        let (mut messages, mut cost): (Tokens, Tokens) = (0, 0);
        for (at, outline) in outlines.iter().enumerate().rev() {
            while pinned.next_if(|p| p.seq > outline.seq).is_some() {}
            let prepaid = pinned.peek().is_some_and(|p| p.seq == outline.seq);
            if !(prepaid || outline.leading || outline.stray) {
                messages = messages.saturating_add(outline.tokens);
                unanswered += session.recent.unanswered(outline);
            }
            let marks = u64::try_from(unanswered).unwrap_or(0).saturating_mul(costs.marked_result);
            // The cost at a position is never less than at a later position, so that positions can be found by binary
            // search.
            cost = cost.max(messages.saturating_add(marks));
            if let Some(slot) = suffix.get_mut(at) {
                *slot = cost;
            }
        }
        let sum =
            |outlines: &[&Outline]| outlines.iter().fold(0, |sum: Tokens, o| sum.saturating_add(o.tokens));
        let marks: i64 = session.pinned.iter().map(|outline| session.recent.unanswered(outline)).sum();
        let marks = u64::try_from(marks).unwrap_or(0).saturating_mul(costs.marked_result);
        Self {
            request,
            session,
            costs,
            budget,
            low,
            last_shown,
            last_opener: outlines.iter().rposition(|outline| outline.opens_turn),
            suffix,
            leading: sum(&session.leading),
            pinned: sum(&session.pinned).saturating_add(marks),
            skipped: session.recent.flagged(|outline| outline.skip).map(|outline| outline.seq).collect(),
        }
    }

    /// Returns the maximum size of a summary. With `fill` the share is larger: a summary rendered for this budget
    /// contains more per token than the messages that it replaces.
    pub(super) fn share(&self) -> Tokens {
        let share = if self.request.fill { self.request.filled } else { self.request.share };
        share.of(self.budget.saturating_sub(self.prepaid()))
    }

    /// Returns the maximum size of a summary if the newest message becomes an excerpt, which needs tokens too.
    pub(super) fn least_share(&self) -> Tokens {
        self.request.share.min(self.request.filled).of(self.budget.saturating_sub(self.prepaid()))
    }

    pub(super) fn prepaid(&self) -> Tokens {
        self.leading.saturating_add(self.pinned)
    }

    pub(super) fn outline(&self, index: usize) -> Option<&'a Outline> {
        self.session.recent.outlines().get(index)
    }

    pub(super) fn is_pinned(&self, seq: Seq) -> bool {
        self.session.pinned.binary_search_by_key(&seq, |outline| outline.seq).is_ok()
    }

    pub(super) fn end(&self) -> usize {
        self.session.recent.outlines().len()
    }

    /// Returns the message that opened the turn at `index`, unless that message is at `index` itself or is pinned. The
    /// result depends on `index` alone, so it stays the same while the log grows.
    pub(super) fn opener(&self, index: usize) -> Option<&'a Outline> {
        let outlines = self.session.recent.outlines();
        let shown = outlines.get(index..)?.iter().find(|outline| !outline.stray)?;
        let turn = (!shown.opens_turn).then_some(shown.turn)?;
        let first = outlines.get(outlines.partition_point(|outline| outline.turn < turn))?;
        let opener = if first.opens_turn { Some(first) } else { self.session.opener };
        opener.filter(|opener| opener.turn == turn && !self.is_pinned(opener.seq))
    }

    /// Returns the messages after `through` that are not in the session shape. Pinned messages and the message
    /// `carried` do not count, because they are shown.
    pub(super) fn not_loaded(&self, through: Seq, carried: Option<Seq>) -> Missing {
        let mut missing = Missing::default();
        let loaded = self.session.leading.last().map_or(0, |outline| outline.seq).max(through);
        if let Some(span) = Span::new(loaded.saturating_add(1), self.session.from.saturating_sub(1)) {
            let pinned = self.session.pinned.iter().map(|outline| outline.seq);
            let stays = pinned.chain(carried).filter(|seq| span.contains(*seq)).count() as u64;
            missing.count = span.len().saturating_sub(stays);
            missing.span = (missing.count > 0).then_some(span);
        }
        missing
    }

    /// Returns the messages at these positions that are not shown, without skipped messages and strays.
    pub(super) fn left_out(
        &self,
        indices: Range<usize>,
        shown: impl Fn(Seq) -> bool,
    ) -> impl Iterator<Item = Seq> {
        let outlines = self.session.recent.outlines().get(indices).unwrap_or_default();
        let skipped = |seq| self.skipped.binary_search(&seq).is_ok();
        outlines
            .iter()
            .filter(move |o| !o.stray && !skipped(o.seq) && !shown(o.seq))
            .map(|outline| outline.seq)
    }

    pub(super) fn strays(&self) -> u64 {
        self.session.recent.outlines().iter().filter(|outline| outline.stray).count() as u64
    }
}

/// The messages that are neither covered by the summary nor shown.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Missing {
    pub(super) count: u64,
    pub(super) span: Option<Span>,
}

impl Missing {
    pub(super) fn add(&mut self, seq: Seq) {
        self.count = self.count.saturating_add(1);
        let span = self.span.get_or_insert(Span { from: seq, through: seq });
        span.from = span.from.min(seq);
        span.through = span.through.max(seq);
    }
}

/// Returns whether the calls that are open now belong to the last reply, followed only by results. In that case the
/// agent is about to answer the calls, so no placeholder results are inserted.
fn open_at_the_very_end(recent: Cuts<'_>) -> bool {
    let outlines = recent.outlines();
    let batch = outlines.get(recent.newest()..).unwrap_or_default();
    let mut calling = batch.iter().filter(|outline| outline.calls > 0);
    let one_reply = calling.next().is_some_and(|outline| batch.first().is_some_and(|f| f.seq == outline.seq))
        && calling.next().is_none();
    one_reply && batch.iter().skip(1).all(|outline| outline.role == Role::Tool || outline.stray)
}
