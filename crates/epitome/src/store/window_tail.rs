//! Decides from outlines which messages a window contains, and which of these messages are read with their text. All
//! databases use this code.

use std::collections::BTreeMap;

use epitome_core::message::{Seq, Tokens};
use epitome_core::outline::{Cut, Outline};
use epitome_core::slot::Scope;
use epitome_core::track::Tracker;

use super::query_types::Reach;
use super::rows::SummaryRow;

/// Returns what a cut before a message would separate. If `own` is set, only the messages of this message's author
/// count. Otherwise all messages of the session count.
pub(super) fn cut_before(own: bool, outline: &Outline) -> Cut {
    if own { outline.own_cut } else { outline.cut }
}

/// Returns what a cut after a session's last message would separate, and the number of tool calls that have no result
/// yet.
pub(super) fn cut_at_end(tracker: &Tracker, scope: &Scope) -> (Cut, u32) {
    let (end, open) = match scope {
        Scope::Session => (tracker.cut_at_end(), tracker.open_calls()),
        Scope::Author(author) => (tracker.own_cut_at_end(author), tracker.own_open_calls(author)),
    };
    (end, u32::try_from(open).unwrap_or(u32::MAX))
}

/// Returns the first message to read if the context shows no covered messages: the first message that at least one of
/// the summaries does not cover. Returns `None` if covered messages are read too, or if there is no summary.
pub(super) fn first_uncovered(reach: Reach, summaries: &[SummaryRow]) -> Option<Seq> {
    if reach.deep { None } else { summaries.iter().map(|row| row.through.saturating_add(1)).min() }
}

/// Returns the last message whose text is not needed: the last message that any of the summaries covers. Returns 0 if
/// the text of all messages is needed.
pub(super) fn last_covered(reach: Reach, summaries: &[SummaryRow]) -> Seq {
    if reach.deep { 0 } else { summaries.iter().map(|row| row.through).max().unwrap_or(0) }
}

/// Collects the newest messages, newest first, until they exceed the budget or reach `first_uncovered`. The result
/// always contains the newest message that can be shown, with its whole call batch. It always starts where the log may
/// be cut.
pub(super) struct TailBuilder<'a> {
    own: bool,
    tokens: Tokens,
    first_uncovered: Option<Seq>,
    pinned: &'a [Outline],
    outlines: Vec<Outline>,
    /// The newest message that was not added.
    newest_left_out: Option<Seq>,
    tokens_used: Tokens,
    has_visible: bool,
}

impl<'a> TailBuilder<'a> {
    pub(super) fn new(
        own: bool,
        tokens: Tokens,
        first_uncovered: Option<Seq>,
        pinned: &'a [Outline],
    ) -> Self {
        Self {
            own,
            tokens,
            first_uncovered,
            pinned,
            outlines: Vec::new(),
            newest_left_out: None,
            tokens_used: 0,
            has_visible: false,
        }
    }

    /// Adds the next older message. Returns false, and does not add the message, if the tail is already complete.
    pub(super) fn add(&mut self, outline: Outline) -> bool {
        if let Some(first) = self.outlines.last().filter(|_| self.has_visible) {
            let cut = cut_before(self.own, first);
            let enough = cut >= Cut::InLoop && self.tokens_used > self.tokens;
            // A summary's coverage ends at a legal cut. If only stray messages follow this cut, the tail starts at the
            // next earlier legal cut.
            let covered = cut == Cut::Legal && self.first_uncovered.is_some_and(|first| outline.seq < first);
            if enough || covered {
                self.newest_left_out = Some(outline.seq);
                return false;
            }
        }
        if !(outline.leading || outline.stray) {
            self.has_visible = true;
            if self.pinned.binary_search_by_key(&outline.seq, |pinned| pinned.seq).is_err() {
                self.tokens_used = self.tokens_used.saturating_add(outline.tokens);
            }
        }
        self.outlines.push(outline);
        true
    }

    /// Returns the collected messages, oldest first, and the message number from which on the tail is complete.
    pub(super) fn build(mut self) -> (Vec<Outline>, Seq) {
        self.outlines.reverse();
        (self.outlines, self.newest_left_out.map_or(1, |seq| seq.saturating_add(1)))
    }
}

/// Finds the newest message that can be shown, and returns the index at which its call batch starts.
fn newest_batch(own: bool, tail: &[Outline]) -> usize {
    let shown = tail.iter().rposition(|outline| !outline.stray && !outline.leading);
    let upto = tail.get(..=shown.unwrap_or(0)).unwrap_or_default();
    upto.iter().rposition(|outline| cut_before(own, outline) >= Cut::InLoop).unwrap_or(0)
}

/// Returns the messages whose text is likely to be shown. These are all messages in `outside_tail`, and some messages
/// of the tail: those after `last_covered`, the newest call batch, and the user message that opened the turn in which
/// the chosen messages start.
pub(super) fn messages_to_read<'a>(
    own: bool,
    outside_tail: impl Iterator<Item = &'a Outline>,
    tail: &'a [Outline],
    last_covered: Seq,
) -> BTreeMap<Seq, &'a Outline> {
    let mut shown: BTreeMap<Seq, &Outline> = outside_tail.map(|o| (o.seq, o)).collect();
    let begin = tail.partition_point(|o| o.seq <= last_covered).min(newest_batch(own, tail));
    let request = tail.get(..=begin).unwrap_or(tail).iter().rfind(|o| o.opens_turn);
    shown.extend(tail.iter().skip(begin).chain(request).map(|o| (o.seq, o)));
    shown
}
