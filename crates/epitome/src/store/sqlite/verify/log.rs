//! Whether a log is whole, and its shapes are what its words give.

use epitome_core::message::{Seq, Tokens};
use epitome_core::outline::{Cut, Outline};
use epitome_core::track::Tracker;
use rusqlite::Row;

use super::super::super::{SessionRow, message};
use super::super::error::{Outcome, nonsense};
use super::super::rows::{AFTER_OUTLINE, OUTLINE, outline, uint};
use super::Check;

/// A shape that is wrong makes those after it wrong. So many are told of a session.
const MOST_SHAPES: usize = 10;

/// What is worked out along a log.
#[derive(Default)]
struct Walk {
    tracker: Tracker,
    /// What the last message's row comes to, so that one wrong total is told once.
    total: Tokens,
    opener: Seq,
    /// How many messages the batch under way has, and whether one of them is skipped.
    batch: (u64, bool),
    skipped: u64,
    wrong: usize,
}

impl Walk {
    /// Counts the batch under way where it is skipped.
    fn end_batch(&mut self) {
        if self.batch.1 {
            self.skipped = self.skipped.saturating_add(self.batch.0);
        }
        self.batch = (0, false);
    }
}

impl Check<'_> {
    pub(super) fn log(&mut self, at: &str, session: &SessionRow) -> Outcome<()> {
        let sql = format!("SELECT {OUTLINE}, body, opener FROM messages WHERE session = ?1 ORDER BY seq");
        let db = self.db;
        let mut statement = db.prepare(&sql)?;
        let mut found = statement.query([session.id])?;
        let mut walk = Walk::default();
        while let Some(row) = found.next()? {
            let expected = walk.tracker.head().saturating_add(1);
            let seq = uint(row, 0)?;
            if seq != expected {
                self.fault(format!("{at} message {expected}"), format!("it is missing; {seq} comes next"));
                return Ok(());
            }
            let at = format!("{at} message {seq}");
            let step = self.message(&at, &mut walk, row);
            if self.note(&at, step).is_none() || walk.wrong >= MOST_SHAPES {
                // What follows cannot be judged without it.
                return Ok(());
            }
        }
        walk.end_batch();
        let head = walk.tracker.head();
        if head != session.tracker.head() {
            self.fault(at, format!("its head is {}, its last message {head}", session.tracker.head()));
        } else if walk.tracker != session.tracker {
            self.fault(at, "its tracker is not what its messages give");
        }
        if walk.opener != session.opener {
            let (said, found) = (session.opener, walk.opener);
            self.fault(at, format!("its turn was opened by message {found}, and it says {said}"));
        }
        if walk.skipped != session.skipped {
            let (said, found) = (session.skipped, walk.skipped);
            self.fault(at, format!("{found} messages are skipped, and it says {said}"));
        }
        Ok(())
    }

    fn message(&mut self, at: &str, walk: &mut Walk, row: &Row<'_>) -> Outcome<()> {
        let stored = outline(row)?;
        let body = row.get_ref(AFTER_OUTLINE)?.as_str().map_err(|_| nonsense("its words are no text"))?;
        let words = message(&stored, body).map_err(|_| nonsense("its words are not as words are written"))?;
        let before = std::mem::replace(&mut walk.total, stored.before.saturating_add(stored.tokens));
        let given = Outline { before: stored.before, ..walk.tracker.push_sized(&words, stored.tokens) };
        if stored.before != before {
            walk.wrong += 1;
            self.fault(at, format!("its running total is {}, and should be {before}", stored.before));
        } else if let Some(what) = differs(&stored, &given) {
            walk.wrong += 1;
            self.fault(at, format!("its {what} is not what its words give"));
        }
        if given.opens_turn {
            walk.opener = given.seq;
        }
        let opener = uint(row, AFTER_OUTLINE + 1)?;
        if opener != walk.opener {
            walk.wrong += 1;
            self.fault(at, format!("its turn was opened by message {}, and it says {opener}", walk.opener));
        }
        if given.cut >= Cut::InLoop {
            walk.end_batch();
        }
        walk.batch = (walk.batch.0.saturating_add(1), walk.batch.1 || stored.skip);
        Ok(())
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
