//! Which messages a window holds, and whose words: told from shapes, the same for every store.

use std::collections::BTreeMap;

use epitome_core::message::{Seq, Tokens};
use epitome_core::outline::{Cut, Outline};
use epitome_core::slot::Scope;
use epitome_core::track::Tracker;

use super::asked::Reach;
use super::rows::SummaryRow;

/// The cut before a message, in the whole session or among one author's own.
pub(super) fn cut(own: bool, outline: &Outline) -> Cut {
    if own { outline.own_cut } else { outline.cut }
}

/// What a cut after a session's last message parts, and how many calls are open there.
pub(super) fn at_end(tracker: &Tracker, scope: &Scope) -> (Cut, u32) {
    let (end, open) = match scope {
        Scope::Session => (tracker.cut_at_end(), tracker.open_calls()),
        Scope::Author(author) => (tracker.own_cut_at_end(author), tracker.own_open_calls(author)),
    };
    (end, u32::try_from(open).unwrap_or(u32::MAX))
}

/// No message before this one is looked at: a summary that stands covers it, and nothing that is covered may be shown.
pub(super) fn floor(reach: Reach, summaries: &[SummaryRow]) -> Option<Seq> {
    if reach.deep { None } else { summaries.iter().map(|row| row.through.saturating_add(1)).min() }
}

/// Up to this message words are not needed: the summary that reaches furthest covers it.
pub(super) fn covered(reach: Reach, summaries: &[SummaryRow]) -> Seq {
    if reach.deep { 0 } else { summaries.iter().map(|row| row.through).max().unwrap_or(0) }
}

/// Takes in the newest messages, newest first: until they are more than the budget or `floor` is reached, but always so
/// that the newest message that can be shown is there with its call batch, and that the first is a place to start at.
pub(super) struct Tail<'a> {
    own: bool,
    tokens: Tokens,
    floor: Option<Seq>,
    pinned: &'a [Outline],
    outlines: Vec<Outline>,
    before: Option<Seq>,
    spent: Tokens,
    shows: bool,
}

impl<'a> Tail<'a> {
    pub(super) fn new(own: bool, tokens: Tokens, floor: Option<Seq>, pinned: &'a [Outline]) -> Self {
        Self { own, tokens, floor, pinned, outlines: Vec::new(), before: None, spent: 0, shows: false }
    }

    /// Takes one more, the one before the last; false where there was enough.
    pub(super) fn take(&mut self, outline: Outline) -> bool {
        if let Some(first) = self.outlines.last().filter(|_| self.shows) {
            let cut = cut(self.own, first);
            let enough = cut >= Cut::InLoop && self.spent > self.tokens;
            // A summary ends at a legal cut. Where all after it are strays, the next one before will do.
            let covered = cut == Cut::Legal && self.floor.is_some_and(|floor| outline.seq < floor);
            if enough || covered {
                self.before = Some(outline.seq);
                return false;
            }
        }
        if !(outline.leading || outline.stray) {
            self.shows = true;
            if self.pinned.binary_search_by_key(&outline.seq, |pinned| pinned.seq).is_err() {
                self.spent = self.spent.saturating_add(outline.tokens);
            }
        }
        self.outlines.push(outline);
        true
    }

    /// Those that were taken, oldest first, and from which message on all are among them.
    pub(super) fn done(mut self) -> (Vec<Outline>, Seq) {
        self.outlines.reverse();
        (self.outlines, self.before.map_or(1, |seq| seq.saturating_add(1)))
    }
}

/// Where the batch of the newest message begins that can be shown.
fn newest_batch(own: bool, tail: &[Outline]) -> usize {
    let shown = tail.iter().rposition(|outline| !outline.stray && !outline.leading);
    let upto = tail.get(..=shown.unwrap_or(0)).unwrap_or_default();
    upto.iter().rposition(|outline| cut(own, outline) >= Cut::InLoop).unwrap_or(0)
}

/// The messages whose words are likely to be shown: those before the tail, and of the tail those that no summary covers,
/// the newest batch, and the request of the turn under way there.
pub(super) fn shown<'a>(
    own: bool,
    ahead: impl Iterator<Item = &'a Outline>,
    tail: &'a [Outline],
    covered: Seq,
) -> BTreeMap<Seq, &'a Outline> {
    let mut shown: BTreeMap<Seq, &Outline> = ahead.map(|o| (o.seq, o)).collect();
    let begin = tail.partition_point(|o| o.seq <= covered).min(newest_batch(own, tail));
    let request = tail.get(..=begin).unwrap_or(tail).iter().rfind(|o| o.opens_turn);
    shown.extend(tail.iter().skip(begin).chain(request).map(|o| (o.seq, o)));
    shown
}
