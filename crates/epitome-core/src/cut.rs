//! Choosing where to cut.
//!
//! [`crate::track`] says of each place whether a cut there is legal; this module picks one. It
//! looks backwards from the place that was wanted, so that more is kept rather than less, and
//! forwards only when told that something must go. None legal means that nothing is condensed,
//! and the reason is named.
//!
//! A place is an index into a slice of outlines: place `i` lies just before `outlines[i]`, and the
//! last one after them all.

use std::ops::Range;

use crate::outline::{Cut, Outline};

/// A run of outlines, oldest first, and what is known of the cuts in it.
#[derive(Debug, Clone, Copy)]
pub struct Cuts<'a> {
    outlines: &'a [Outline],
    end: Cut,
    own: bool,
}

impl<'a> Cuts<'a> {
    /// Cuts of the whole log. `end` is what a cut after the last outline parts:
    /// [`crate::track::Tracker::cut_at_end`] at the head of a session, the next message's `cut`
    /// elsewhere.
    pub fn new(outlines: &'a [Outline], end: Cut) -> Self {
        Self { outlines, end, own: false }
    }

    /// Cuts among one author's messages; the outlines are that author's only.
    pub fn own(outlines: &'a [Outline], end: Cut) -> Self {
        Self { outlines, end, own: true }
    }

    /// Whether these are one author's messages only.
    pub fn is_own(&self) -> bool {
        self.own
    }

    /// The outlines cut.
    pub fn outlines(&self) -> &'a [Outline] {
        self.outlines
    }

    /// What a cut at this place parts.
    pub fn at(&self, place: usize) -> Cut {
        self.outlines.get(place).map_or(self.end, |outline| self.of(outline))
    }

    /// The last place in `places` that parts no more than `allowed`.
    pub fn last_in(&self, mut places: Range<usize>, allowed: Cut) -> Option<usize> {
        places.rfind(|place| self.at(*place) >= allowed)
    }

    /// The first place in `places` that parts no more than `allowed`.
    pub fn first_in(&self, mut places: Range<usize>, allowed: Cut) -> Option<usize> {
        places.find(|place| self.at(*place) >= allowed)
    }

    /// Where the call batch of the newest message begins: all that must stay with it.
    pub fn newest(&self) -> usize {
        self.last_in(0..self.outlines.len(), Cut::InLoop).unwrap_or(0)
    }

    /// How many calls a message leaves open more than it answers.
    pub fn unanswered(&self, outline: &Outline) -> i64 {
        let answers = if self.own { outline.own_answers } else { outline.answers };
        i64::from(outline.calls) - i64::from(answers)
    }

    /// All call batches in order; a message without calls is one of its own.
    pub fn batches(self) -> impl Iterator<Item = &'a [Outline]> {
        self.outlines.chunk_by(move |_, next| self.of(next) < Cut::InLoop)
    }

    /// The messages of all batches in which one is flagged.
    pub fn flagged(self, flag: fn(&Outline) -> bool) -> impl Iterator<Item = &'a Outline> {
        let any = self.outlines.iter().any(flag);
        let outlines = if any { self.outlines } else { Default::default() };
        Self { outlines, ..self }.batches().filter(move |batch| batch.iter().any(flag)).flatten()
    }

    /// What a cut just before a message parts.
    pub fn of(&self, outline: &Outline) -> Cut {
        if self.own { outline.own_cut } else { outline.cut }
    }
}

/// How hard to look for a cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Press {
    /// Keep at least what was asked for.
    Gently,
    /// Something must go: when no cut lies before the wanted place, take the first one after it.
    Hard,
}

/// The legal cut for a wanted place: the last one at or before it, else (hard) the first after it. Messages before `floor` are
/// not up for choice.
///
/// ```
/// use epitome_core::cut::{Cuts, Press, near};
/// use epitome_core::keep::Keep;
/// use epitome_core::outline::Cut;
/// use epitome_testkit::drawing::outlines;
///
/// let drawn = outlines("u | a(x) r(x) | a | u | a").unwrap();
/// let cuts = Cuts::new(&drawn, Cut::Legal);
/// // Four messages are wanted; that place is between a call and its result, so one more stays.
/// assert_eq!(near(&cuts, 0, Keep::Messages(4).place(&drawn, None), Press::Gently), Some(1));
/// assert_eq!(near(&cuts, 0, Keep::Messages(9).place(&drawn, None), Press::Hard), None);
/// ```
pub fn near(cuts: &Cuts<'_>, floor: usize, wanted: usize, press: Press) -> Option<usize> {
    if wanted <= floor {
        return None;
    }
    let end = cuts.outlines.len() + 1;
    cuts.last_in(floor + 1..wanted + 1, Cut::Legal)
        .or_else(|| (press == Press::Hard).then(|| cuts.first_in(wanted + 1..end, Cut::Legal))?)
}
