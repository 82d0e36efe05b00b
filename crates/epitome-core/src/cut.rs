//! Chooses where to cut a log.
//!
//! [`crate::track`] determines for each position whether a cut there is legal. This module chooses one of the legal
//! cuts. It searches backwards from the requested position, so that at least the requested messages stay. It searches
//! forwards only if the caller must remove at least one message. If no cut is legal, nothing is condensed and the
//! caller reports the reason.
//!
//! A cut is an index into a slice of outlines. The cut `i` lies directly before `outlines[i]`. The cut `outlines.len()`
//! lies after the last outline.

use std::ops::Range;

use crate::outline::{Cut, Outline};

/// A sequence of outlines, oldest first, with the possible cuts between them.
#[derive(Debug, Clone, Copy)]
pub struct Cuts<'a> {
    outlines: &'a [Outline],
    end: Cut,
    own: bool,
}

impl<'a> Cuts<'a> {
    /// Creates the cuts of the whole log. `end` is the kind of the cut after the last outline. At the end of a session,
    /// pass [`crate::track::Tracker::cut_at_end`]. Otherwise, pass [`Outline::cut`] of the next message.
    pub fn new(outlines: &'a [Outline], end: Cut) -> Self {
        Self { outlines, end, own: false }
    }

    /// Creates the cuts among the messages of one author. `outlines` must contain only messages of that author.
    pub fn own(outlines: &'a [Outline], end: Cut) -> Self {
        Self { outlines, end, own: true }
    }

    /// Returns whether the outlines are the messages of one author only.
    pub fn is_own(&self) -> bool {
        self.own
    }

    /// Returns the outlines.
    pub fn outlines(&self) -> &'a [Outline] {
        self.outlines
    }

    /// Returns what a cut at `index` would separate.
    pub fn at(&self, index: usize) -> Cut {
        self.outlines.get(index).map_or(self.end, |outline| self.of(outline))
    }

    /// Returns the last index in `indices` where the cut is at least as good as `allowed`. [`Cut::Legal`] is the best
    /// kind of cut, and [`Cut::InCall`] is the worst.
    pub fn last_in(&self, mut indices: Range<usize>, allowed: Cut) -> Option<usize> {
        indices.rfind(|index| self.at(*index) >= allowed)
    }

    /// Returns the first index in `indices` where the cut is at least as good as `allowed`. [`Cut::Legal`] is the best
    /// kind of cut, and [`Cut::InCall`] is the worst.
    pub fn first_in(&self, mut indices: Range<usize>, allowed: Cut) -> Option<usize> {
        indices.find(|index| self.at(*index) >= allowed)
    }

    /// Returns the index of the first message in the batch of the newest message. The whole batch must stay together.
    pub fn newest(&self) -> usize {
        self.last_in(0..self.outlines.len(), Cut::InLoop).unwrap_or(0)
    }

    /// Returns the number of calls that a message opens, minus the number of calls that the message answers.
    pub fn unanswered(&self, outline: &Outline) -> i64 {
        let answers = if self.own { outline.own_answers } else { outline.answers };
        i64::from(outline.calls) - i64::from(answers)
    }

    /// Returns all batches in order. A batch consists of calls and their results. A message without calls is a batch of
    /// its own.
    pub fn batches(self) -> impl Iterator<Item = &'a [Outline]> {
        self.outlines.chunk_by(move |_, next| self.of(next) < Cut::InLoop)
    }

    /// Returns the messages of the flagged batches. A batch is flagged if `flag` is true for at least one of its
    /// messages.
    pub fn flagged(self, flag: fn(&Outline) -> bool) -> impl Iterator<Item = &'a Outline> {
        let any = self.outlines.iter().any(flag);
        let outlines = if any { self.outlines } else { Default::default() };
        Self { outlines, ..self }.batches().filter(move |batch| batch.iter().any(flag)).flatten()
    }

    /// Returns what a cut just before this message would separate.
    pub fn of(&self, outline: &Outline) -> Cut {
        if self.own { outline.own_cut } else { outline.cut }
    }
}

/// Whether the search for a cut may use positions after the requested position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Press {
    /// All requested messages must stay. Only cuts at or before the requested position are used.
    Gently,
    /// At least one message must be removed. If no allowed cut lies at or before the requested position, the first
    /// allowed cut after that position is used.
    Hard,
}

/// Returns the last legal cut at or before `target`. If there is no such cut and `press` is [`Press::Hard`], returns
/// the first legal cut after `target`. The result is always after `floor`; `None` if there is no legal cut.
///
/// ```
/// use epitome_core::cut::{Cuts, Press, legal_cut};
/// use epitome_core::keep::Keep;
/// use epitome_core::outline::Cut;
/// use epitome_testkit::drawing::outlines;
///
/// let drawn = outlines("u | a(x) r(x) | a | u | a").unwrap();
/// let cuts = Cuts::new(&drawn, Cut::Legal);
/// // Four messages should stay. The cut before them would separate a call from its result, so one more message stays.
/// assert_eq!(legal_cut(&cuts, 0, Keep::Messages(4).start(&drawn, None), Press::Gently), Some(1));
/// assert_eq!(legal_cut(&cuts, 0, Keep::Messages(9).start(&drawn, None), Press::Hard), None);
/// ```
pub fn legal_cut(cuts: &Cuts<'_>, floor: usize, target: usize, press: Press) -> Option<usize> {
    if target <= floor {
        return None;
    }
    let end = cuts.outlines.len() + 1;
    cuts.last_in(floor + 1..target + 1, Cut::Legal)
        .or_else(|| (press == Press::Hard).then(|| cuts.first_in(target + 1..end, Cut::Legal))?)
}
