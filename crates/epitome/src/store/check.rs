//! Whether what is stored makes sense, whichever store holds it.
//!
//! [`super::verify`] hands over the rows it reads: a session's messages in order, its summaries, its slots. Everything is
//! computed again and compared with what is there. No words stay in memory, only one session's summaries without theirs.
//!
//! It has no opinion on what is due: work that waits is no fault.

use serde::Serialize;

use super::trouble::Outcome;

mod log;
mod summaries;

pub(super) use log::LogCheck;
pub(super) use summaries::SummaryCheck;

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
pub(super) struct Faults(pub(super) Vec<Fault>);

impl Faults {
    pub(super) fn add(&mut self, at: impl Into<String>, what: impl Into<String>) {
        if !self.is_full() {
            self.0.push(Fault { at: at.into(), what: what.into() });
        }
    }

    /// What was read. What cannot be read is a fault like others, and no reason to look no further; an error that has nothing
    /// to do with what is stored ends the look.
    pub(super) fn note<T>(&mut self, at: impl Into<String>, read: Outcome<T>) -> Outcome<Option<T>> {
        match read {
            Ok(value) => Ok(Some(value)),
            Err(trouble) => {
                let why = trouble.unreadable()?;
                self.add(at, format!("cannot be read: {why}"));
                Ok(None)
            }
        }
    }

    /// A document of settings, of whatever is called so; nothing where none were set.
    pub(super) fn settings(&mut self, at: &str, document: &str) {
        let read = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(document);
        if !document.is_empty() && read.is_err() {
            self.add(at, "its settings are no JSON object");
        }
    }

    /// Whether no more are taken, so that whoever reads may stop.
    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= MOST_FAULTS
    }
}

/// A session, for people.
pub(super) fn session_at(workspace: &str, session: &str) -> String {
    format!("session \"{workspace}/{session}\"")
}

/// A workspace, for people.
pub(super) fn workspace_at(workspace: &str) -> String {
    format!("workspace \"{workspace}\"")
}
