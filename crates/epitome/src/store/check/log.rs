//! Whether a log is whole, and its shapes are what its words give.

use epitome_core::message::{Seq, Tokens};
use epitome_core::outline::{Cut, Outline};
use epitome_core::track::Tracker;

use super::super::rows::{SessionRow, message};
use super::Faults;

/// A shape that is wrong makes those after it wrong. So many are told of a session.
const MOST_SHAPES: usize = 10;

/// A message as it is stored.
pub(crate) struct Stored<'a> {
    pub(crate) outline: Outline,
    /// Its words, as [`super::super::words`] writes them.
    pub(crate) body: &'a str,
    /// The message that opened its turn, as its row says.
    pub(crate) opener: Seq,
}

/// Walks along a session's log.
pub(crate) struct LogCheck<'a> {
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
    pub(crate) fn new(at: &'a str) -> Self {
        let tracker = Tracker::default();
        Self { at, tracker, total: 0, opener: 0, batch: (0, false), skipped: 0, wrong: 0, lost: false }
    }

    /// The next message in order of their places, or why it cannot be read. False when no more is wanted: what follows
    /// cannot be judged without it.
    pub(crate) fn message(
        &mut self,
        faults: &mut Faults,
        seq: Seq,
        stored: Result<Stored<'_>, String>,
    ) -> bool {
        let expected = self.tracker.head().saturating_add(1);
        if seq != expected {
            let at = format!("{} message {expected}", self.at);
            faults.add(at, format!("it is missing; {seq} comes next"));
            self.lost = true;
            return false;
        }
        let at = format!("{} message {seq}", self.at);
        if let Err(why) = stored.and_then(|stored| self.step(faults, &at, &stored)) {
            faults.unreadable(at, &why);
            self.lost = true;
        }
        self.lost |= self.wrong >= MOST_SHAPES;
        !self.lost
    }

    fn step(&mut self, faults: &mut Faults, at: &str, stored: &Stored<'_>) -> Result<(), String> {
        let outline = &stored.outline;
        let words =
            message(outline, stored.body).map_err(|_| "its words are not as words are written".to_owned())?;
        let before = std::mem::replace(&mut self.total, outline.before.saturating_add(outline.tokens));
        let given = Outline { before: outline.before, ..self.tracker.push_sized(&words, outline.tokens) };
        if outline.before != before {
            self.wrong += 1;
            faults.add(at, format!("its running total is {}, and should be {before}", outline.before));
        } else if let Some(what) = differs(outline, &given) {
            self.wrong += 1;
            faults.add(at, format!("its {what} is not what its words give"));
        }
        if given.opens_turn {
            self.opener = given.seq;
        }
        if stored.opener != self.opener {
            self.wrong += 1;
            let (said, found) = (stored.opener, self.opener);
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
    pub(crate) fn finish(mut self, faults: &mut Faults, session: &SessionRow) {
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
