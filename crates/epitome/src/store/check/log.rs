//! Whether a log is whole, and its shapes are what its words give.

use epitome_core::message::{Seq, Tokens};
use epitome_core::outline::{Cut, Outline};
use epitome_core::track::Tracker;

use super::super::decode::{AFTER_OUTLINE, Found, outline};
use super::super::rows::{SessionRow, message};
use super::super::trouble::{Outcome, nonsense};
use super::Faults;

/// A shape that is wrong makes those after it wrong. So many are told of a session.
const MOST_SHAPES: usize = 10;

/// Walks along a session's log.
pub(in crate::store) struct LogCheck<'a> {
    at: &'a str,
    tracker: Tracker,
    /// What the last message's row comes to, so that one wrong total is told once.
    total: Tokens,
    opener: Seq,
    /// How many messages the batch under way has, and whether one of them is skipped.
    batch: (u64, bool),
    skipped: u64,
    wrong: usize,
    /// What follows cannot be judged.
    lost: bool,
}

impl<'a> LogCheck<'a> {
    /// Of the session that is called so.
    pub(in crate::store) fn new(at: &'a str) -> Self {
        let tracker = Tracker::default();
        Self { at, tracker, total: 0, opener: 0, batch: (0, false), skipped: 0, wrong: 0, lost: false }
    }

    /// The next message in order of their places: a row of its shape, its words, and who opened its turn. False when no more
    /// is wanted: what follows cannot be judged without it.
    pub(in crate::store) fn message(&mut self, faults: &mut Faults, row: Found<'_>) -> Outcome<bool> {
        let (seq, expected) = (row.uint(0)?, self.tracker.head().saturating_add(1));
        if seq != expected {
            let at = format!("{} message {expected}", self.at);
            faults.add(at, format!("it is missing; {seq} comes next"));
            self.lost = true;
            return Ok(false);
        }
        let at = format!("{} message {seq}", self.at);
        let step = self.step(faults, &at, row);
        self.lost = faults.note(at, step)?.is_none() || self.wrong >= MOST_SHAPES;
        Ok(!self.lost)
    }

    fn step(&mut self, faults: &mut Faults, at: &str, row: Found<'_>) -> Outcome<()> {
        let (body, said) = (row.text(AFTER_OUTLINE)?, row.uint(AFTER_OUTLINE + 1)?);
        let outline = outline(row)?;
        let words =
            message(&outline, body).map_err(|_| nonsense("its words are not as words are written"))?;
        let before = std::mem::replace(&mut self.total, outline.before.saturating_add(outline.tokens));
        let given = Outline { before: outline.before, ..self.tracker.push_sized(&words, outline.tokens) };
        if outline.before != before {
            self.wrong += 1;
            faults.add(at, format!("its running total is {}, and should be {before}", outline.before));
        } else if let Some(what) = differs(&outline, &given) {
            self.wrong += 1;
            faults.add(at, format!("its {what} is not what its words give"));
        }
        if given.opens_turn {
            self.opener = given.seq;
        }
        if said != self.opener {
            self.wrong += 1;
            let found = self.opener;
            faults.add(at, format!("its turn was opened by message {found}, and it says {said}"));
        }
        if given.cut >= Cut::InLoop {
            self.end_batch();
        }
        self.batch = (self.batch.0.saturating_add(1), self.batch.1 || outline.skip);
        Ok(())
    }

    /// Counts the batch under way where it is skipped.
    fn end_batch(&mut self) {
        if self.batch.1 {
            self.skipped = self.skipped.saturating_add(self.batch.0);
        }
        self.batch = (0, false);
    }

    /// No message follows: holds the session's row against them.
    pub(in crate::store) fn finish(mut self, faults: &mut Faults, session: &SessionRow) {
        if self.lost {
            return;
        }
        let head = self.tracker.head();
        let batch = (head.saturating_add(1).saturating_sub(self.batch.0), self.batch.1);
        self.end_batch();
        if head != session.tracker.head() {
            let said = session.tracker.head();
            faults.add(self.at, format!("its head is {said}, its last message {head}"));
        } else if self.tracker != session.tracker {
            faults.add(self.at, "its tracker is not what its messages give");
        }
        if self.opener != session.opener {
            let (said, found) = (session.opener, self.opener);
            faults.add(self.at, format!("its turn was opened by message {found}, and it says {said}"));
        }
        if head > 0 && batch != (session.batch_from, session.batch_skipped) {
            let (from, said) = (batch.0, session.batch_from);
            let what = if from == said {
                "whether it is skipped is told wrongly".to_owned()
            } else {
                format!("it says {said}")
            };
            faults.add(self.at, format!("its newest batch begins with message {from}, and {what}"));
        }
        if self.skipped != session.skipped {
            let (said, found) = (session.skipped, self.skipped);
            faults.add(self.at, format!("{found} messages are skipped, and it says {said}"));
        }
    }
}

/// What of a shape is wrong.
fn differs(stored: &Outline, given: &Outline) -> Option<&'static str> {
    if stored == given {
        return None;
    }
    let parts = [
        ("author", stored.author == given.author),
        ("turn", (stored.turn, stored.opens_turn) == (given.turn, given.opens_turn)),
        ("size", (stored.chars, stored.longest) == (given.chars, given.longest)),
        (
            "count of calls",
            (stored.calls, stored.open, stored.own_open) == (given.calls, given.open, given.own_open),
        ),
        ("count of answers", (stored.answers, stored.own_answers) == (given.answers, given.own_answers)),
        ("cut", (stored.cut, stored.own_cut) == (given.cut, given.own_cut)),
    ];
    Some(parts.iter().find(|(_, same)| !same).map_or("shape", |(what, _)| what))
}
