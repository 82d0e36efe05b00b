//! Whether what is stored makes sense, whichever store holds it.
//!
//! A store reads, and feeds what it read: sessions, their messages in order, their summaries, their slots. Everything is
//! worked out anew and held against what is there. Nothing here reads by itself, and no words are held on to, only one
//! session's summaries without theirs; how many are in memory at a time is up to the store, which reads a bounded piece.
//!
//! It has no opinion on what is due: work that waits is no fault.

use epitome_core::message::{Seq, Tokens};
use serde::Serialize;

use super::rows::SessionRow;

mod log;
mod summaries;

pub(crate) use log::{LogCheck, Stored};
pub(crate) use summaries::{SlotColumns, SummaryCheck};

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Where: `session "a" message 7`, `file`.
    pub at: String,
    /// What is wrong.
    pub what: String,
}

/// A store with more faults than this needs a backup, not a longer list.
const MOST_FAULTS: usize = 1_000;

/// What is wrong, as far as was looked.
#[derive(Default)]
pub(crate) struct Faults(Vec<Fault>);

impl Faults {
    pub(crate) fn add(&mut self, at: impl Into<String>, what: impl Into<String>) {
        if !self.is_full() {
            self.0.push(Fault { at: at.into(), what: what.into() });
        }
    }

    /// What cannot be read is a fault like others, and no reason to look no further.
    pub(crate) fn unreadable(&mut self, at: impl Into<String>, why: &str) {
        self.add(at, format!("cannot be read: {why}"));
    }

    /// A document of settings, of whatever is called so; nothing where none were set.
    pub(crate) fn settings(&mut self, at: &str, document: &str) {
        let read = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(document);
        if !document.is_empty() && read.is_err() {
            self.add(at, "its settings are no JSON object");
        }
    }

    /// Whether no more are taken, so that whoever reads may stop.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= MOST_FAULTS
    }

    pub(crate) fn list(self) -> Vec<Fault> {
        self.0
    }
}

/// A session, for people.
pub(crate) fn session_at(workspace: &str, session: &str) -> String {
    format!("session \"{workspace}/{session}\"")
}

/// A workspace, for people.
pub(crate) fn workspace_at(workspace: &str) -> String {
    format!("workspace \"{workspace}\"")
}

/// An event, for people.
pub(crate) fn event_at(workspace: &str, id: i64) -> String {
    format!("event {id} of workspace \"{workspace}\"")
}

/// Columns of a session that only repeat what its tracker says.
pub(crate) struct SessionColumns {
    pub(crate) head: Seq,
    pub(crate) turns: u64,
    pub(crate) tokens: Tokens,
    /// Up to which message words are found by the index.
    pub(crate) indexed: Seq,
}

impl SessionColumns {
    /// Whether they are what they should be. False where the index reaches beyond the log, so that there is no use in
    /// counting what is in it.
    pub(crate) fn check(&self, faults: &mut Faults, at: &str, session: &SessionRow) -> bool {
        let tracker = &session.tracker;
        faults.settings(at, &session.settings);
        if session.encoding.is_empty() {
            faults.add(at, "it does not say how its tokens are counted");
        }
        if (self.head, self.turns, self.tokens) != (tracker.head(), tracker.turns(), tracker.tokens()) {
            faults.add(at, "head, turns or tokens are not what its tracker says");
        }
        let (indexed, head) = (self.indexed, tracker.head());
        if indexed > head {
            faults.add(at, format!("the index reaches to message {indexed}, the log to {head}"));
        }
        indexed <= head
    }

    /// Whether the index holds as many messages as it says.
    pub(crate) fn check_index(&self, faults: &mut Faults, at: &str, known: u64) {
        if known != self.indexed {
            faults.add(at, format!("the index holds {known} of {} messages", self.indexed));
        }
    }
}
