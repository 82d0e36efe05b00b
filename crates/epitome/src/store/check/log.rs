//! Checks that a session's log is complete and that its outlines match the messages' content.

use epitome_core::message::{Seq, Tokens};
use epitome_core::outline::{Cut, Outline};
use epitome_core::track::Tracker;

use super::super::decode::{AFTER_OUTLINE, Found, outline};
use super::super::rows::{SessionRow, message};
use super::super::trouble::{Outcome, nonsense};
use super::Faults;

/// Maximum number of wrong outlines reported per session: one wrong outline makes later ones wrong too.
const MOST_SHAPES: usize = 10;

/// Checks the messages of a session in order.
pub(in crate::store) struct LogCheck<'a> {
    at: &'a str,
    tracker: Tracker,
    /// The running total after the last message, from its stored row, so that one wrong total is reported only once.
    total: Tokens,
    opener: Seq,
    /// Number of messages in the current call batch, and whether one of them is skipped.
    batch: (u64, bool),
    skipped: u64,
    wrong: usize,
    /// Whether the check stopped because later messages cannot be checked.
    lost: bool,
}

impl<'a> LogCheck<'a> {
    /// Creates a check for the session that `at` names.
    pub(in crate::store) fn new(at: &'a str) -> Self {
        let tracker = Tracker::default();
        Self { at, tracker, total: 0, opener: 0, batch: (0, false), skipped: 0, wrong: 0, lost: false }
    }

    /// Checks the next message, from a row of its outline, its content, and the message that opened its turn. Returns false
    /// if the check stops, because later messages cannot be checked without this one.
    pub(in crate::store) fn message(&mut self, faults: &mut Faults, row: Found<'_>) -> Outcome<bool> {
        let (seq, expected) = (row.uint(0)?, self.tracker.head().saturating_add(1));
        if seq != expected {
            let at = format!("{} message {expected}", self.at);
            faults.add(at, format!("it is missing; the next stored message is {seq}"));
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
            message(&outline, body).map_err(|_| nonsense("its content is stored in an invalid format"))?;
        let before = std::mem::replace(&mut self.total, outline.before.saturating_add(outline.tokens));
        let given = Outline { before: outline.before, ..self.tracker.push_sized(&words, outline.tokens) };
        if outline.before != before {
            self.wrong += 1;
            faults.add(at, format!("its running total is {}, but should be {before}", outline.before));
        } else if let Some(what) = differs(&outline, &given) {
            self.wrong += 1;
            faults.add(at, format!("its stored {what} does not match its content"));
        }
        if given.opens_turn {
            self.opener = given.seq;
        }
        if said != self.opener {
            self.wrong += 1;
            let found = self.opener;
            faults.add(at, format!("its turn was opened by message {found}, but {said} is stored"));
        }
        if given.cut >= Cut::InLoop {
            self.end_batch();
        }
        self.batch = (self.batch.0.saturating_add(1), self.batch.1 || outline.skip);
        Ok(())
    }

    /// Ends the current call batch, and counts its messages if it is skipped.
    fn end_batch(&mut self) {
        if self.batch.1 {
            self.skipped = self.skipped.saturating_add(self.batch.0);
        }
        self.batch = (0, false);
    }

    /// Compares the session's row with its messages, after the last message.
    pub(in crate::store) fn finish(mut self, faults: &mut Faults, session: &SessionRow) {
        if self.lost {
            return;
        }
        let head = self.tracker.head();
        let batch = (head.saturating_add(1).saturating_sub(self.batch.0), self.batch.1);
        self.end_batch();
        if head != session.tracker.head() {
            let said = session.tracker.head();
            faults.add(self.at, format!("its stored head is {said}, but its last message is {head}"));
        } else if self.tracker != session.tracker {
            faults.add(self.at, "its stored tracker does not match its messages");
        }
        if self.opener != session.opener {
            let (said, found) = (session.opener, self.opener);
            faults.add(self.at, format!("its turn was opened by message {found}, but {said} is stored"));
        }
        if head > 0 && batch != (session.batch_from, session.batch_skipped) {
            let (from, said) = (batch.0, session.batch_from);
            let what = if from == said {
                "its stored skip flag is wrong".to_owned()
            } else {
                format!("{said} is stored")
            };
            faults.add(self.at, format!("its newest call batch begins with message {from}, but {what}"));
        }
        if self.skipped != session.skipped {
            let (said, found) = (session.skipped, self.skipped);
            faults.add(self.at, format!("{found} messages are skipped, but {said} is stored"));
        }
    }
}

/// Returns the first part in which two outlines differ.
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
        ("count of results", (stored.answers, stored.own_answers) == (given.answers, given.own_answers)),
        ("cut", (stored.cut, stored.own_cut) == (given.cut, given.own_cut)),
    ];
    Some(parts.iter().find(|(_, same)| !same).map_or("outline", |(what, _)| what))
}
