//! Checks that a session's log is complete, and that each message's outline matches the message's content.

use epitome_core::message::{Seq, Tokens};
use epitome_core::outline::{Cut, Outline};
use epitome_core::track::Tracker;

use super::super::decode::{AFTER_OUTLINE, RowRef, outline};
use super::super::op_error::{OpResult, damaged};
use super::super::rows::{SessionRow, restore_message};
use super::FaultList;

/// Maximum number of wrong outlines that are reported per session. One wrong outline makes later outlines wrong too, so
/// there may be many.
const MAX_WRONG_OUTLINES: usize = 10;

/// Checks the messages of a session in order.
pub(in crate::store) struct LogCheck<'a> {
    at: &'a str,
    tracker: Tracker,
    /// Sum of the tokens of all checked messages, computed from the stored row of the last checked message. So a wrong
    /// sum is reported only for the first message that contains it, not for every later message.
    total: Tokens,
    opener: Seq,
    /// Number of messages in the current call batch, and whether any of these messages is skipped. A call batch is a
    /// range of messages that must stay together, so that no call is separated from its result.
    batch: (u64, bool),
    skipped: u64,
    wrong_outlines: usize,
    /// Whether the check of this session's messages ended before the last message.
    stopped: bool,
}

impl<'a> LogCheck<'a> {
    /// Creates a check for a session. `at` is the session's name in faults.
    pub(in crate::store) fn new(at: &'a str) -> Self {
        let tracker = Tracker::default();
        Self {
            at,
            tracker,
            total: 0,
            opener: 0,
            batch: (0, false),
            skipped: 0,
            wrong_outlines: 0,
            stopped: false,
        }
    }

    /// Checks the next message. The row contains the message's outline, its content, and the number of the message that
    /// opened its turn. Returns false if the check stops here: later messages cannot be checked, or
    /// [`MAX_WRONG_OUTLINES`] outlines are wrong.
    pub(in crate::store) fn message(&mut self, faults: &mut FaultList, row: RowRef<'_>) -> OpResult<bool> {
        let (seq, expected) = (row.uint(0)?, self.tracker.head().saturating_add(1));
        if seq != expected {
            let at = format!("{} message {expected}", self.at);
            faults.add(at, format!("it is missing; the next stored message is message {seq}"));
            self.stopped = true;
            return Ok(false);
        }
        let at = format!("{} message {seq}", self.at);
        let result = self.check_message(faults, &at, row);
        self.stopped = faults.note(at, result)?.is_none() || self.wrong_outlines >= MAX_WRONG_OUTLINES;
        Ok(!self.stopped)
    }

    fn check_message(&mut self, faults: &mut FaultList, at: &str, row: RowRef<'_>) -> OpResult<()> {
        let (body, stored) = (row.text(AFTER_OUTLINE)?, row.uint(AFTER_OUTLINE + 1)?);
        let outline = outline(row)?;
        let content = restore_message(&outline, body)
            .map_err(|_| damaged("its content is stored in an invalid format"))?;
        let before = std::mem::replace(&mut self.total, outline.before.saturating_add(outline.tokens));
        let expected =
            Outline { before: outline.before, ..self.tracker.push_sized(&content, outline.tokens) };
        if outline.before != before {
            self.wrong_outlines += 1;
            faults.add(
                at,
                format!("its running total of tokens is {}, but should be {before}", outline.before),
            );
        } else if let Some(what) = first_difference(&outline, &expected) {
            self.wrong_outlines += 1;
            faults.add(at, format!("its stored {what} does not match its content"));
        }
        if expected.opens_turn {
            self.opener = expected.seq;
        }
        if stored != self.opener {
            self.wrong_outlines += 1;
            let actual = self.opener;
            faults.add(at, format!("message {actual} opened its turn, but message {stored} is stored"));
        }
        if expected.cut >= Cut::InLoop {
            self.end_batch();
        }
        self.batch = (self.batch.0.saturating_add(1), self.batch.1 || outline.skip);
        Ok(())
    }

    /// Ends the current call batch. If the batch is skipped, adds its messages to the number of skipped messages.
    fn end_batch(&mut self) {
        if self.batch.1 {
            self.skipped = self.skipped.saturating_add(self.batch.0);
        }
        self.batch = (0, false);
    }

    /// Compares the session's row with the checked messages. Called after the last message.
    pub(in crate::store) fn finish(mut self, faults: &mut FaultList, session: &SessionRow) {
        if self.stopped {
            return;
        }
        let head = self.tracker.head();
        let batch = (head.saturating_add(1).saturating_sub(self.batch.0), self.batch.1);
        self.end_batch();
        if head != session.tracker.head() {
            let stored = session.tracker.head();
            faults.add(self.at, format!("its stored head is {stored}, but its last message is {head}"));
        } else if self.tracker != session.tracker {
            faults.add(self.at, "its stored tracker does not match its messages");
        }
        if self.opener != session.opener {
            let (stored, actual) = (session.opener, self.opener);
            faults.add(
                self.at,
                format!("message {actual} opened its last turn, but message {stored} is stored"),
            );
        }
        if head > 0 && batch != (session.batch_from, session.batch_skipped) {
            let (from, stored) = (batch.0, session.batch_from);
            let what = if from == stored {
                "the stored skip flag of this batch is wrong".to_owned()
            } else {
                format!("message {stored} is stored")
            };
            faults.add(self.at, format!("its newest call batch begins with message {from}, but {what}"));
        }
        if self.skipped != session.skipped {
            let (stored, actual) = (session.skipped, self.skipped);
            faults.add(self.at, format!("{actual} messages are skipped, but the stored number is {stored}"));
        }
    }
}

/// Returns the name of the first difference between two outlines; `None` if they are equal.
fn first_difference(stored: &Outline, expected: &Outline) -> Option<&'static str> {
    if stored == expected {
        return None;
    }
    let parts = [
        ("author", stored.author == expected.author),
        ("turn", (stored.turn, stored.opens_turn) == (expected.turn, expected.opens_turn)),
        ("size", (stored.chars, stored.longest) == (expected.chars, expected.longest)),
        (
            "count of calls",
            (stored.calls, stored.open, stored.own_open)
                == (expected.calls, expected.open, expected.own_open),
        ),
        (
            "count of results",
            (stored.answers, stored.own_answers) == (expected.answers, expected.own_answers),
        ),
        ("cut", (stored.cut, stored.own_cut) == (expected.cut, expected.own_cut)),
    ];
    Some(parts.iter().find(|(_, same)| !same).map_or("outline", |(what, _)| what))
}
