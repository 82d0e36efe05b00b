//! Checks stored data for consistency. The checks are the same for every database.
//!
//! [`super::verify`] reads the rows and passes them to the checks: a session's messages in order, then its summaries,
//! then its slots. The checks compute derived values again and compare them with the stored values. Message text does
//! not stay in memory. Only one session's summaries are in memory at a time, without their text.
//!
//! Pending work is not a fault. For example, a slot may be due.

use serde::Serialize;

use super::op_error::OpResult;

mod log;
mod summaries;

pub(super) use log::LogCheck;
pub(super) use summaries::SummaryCheck;

/// An inconsistency in stored data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoreFault {
    /// Where the fault is, such as `session "a" message 7` or `file`.
    pub at: String,
    /// What is wrong.
    pub what: String,
}

/// Maximum number of faults that a check reports. A longer list would not help the operator: if there are more faults
/// than this, the operator restores a backup.
const MAX_FAULTS: usize = 1_000;

/// The faults found so far.
#[derive(Default)]
pub(super) struct FaultList(pub(super) Vec<StoreFault>);

impl FaultList {
    pub(super) fn add(&mut self, at: impl Into<String>, what: impl Into<String>) {
        if !self.is_full() {
            self.0.push(StoreFault { at: at.into(), what: what.into() });
        }
    }

    /// Returns the value in `read`. If `read` is an error that reports unreadable stored data, adds a fault at the
    /// place `at` and returns `None`, so that the check continues. Any other error is returned, and ends the check.
    pub(super) fn note<T>(&mut self, at: impl Into<String>, read: OpResult<T>) -> OpResult<Option<T>> {
        match read {
            Ok(value) => Ok(Some(value)),
            Err(error) => {
                let why = error.damage_reason()?;
                self.add(at, format!("cannot be read: {why}"));
                Ok(None)
            }
        }
    }

    /// Adds a fault if a settings document is neither empty nor a JSON object.
    pub(super) fn settings(&mut self, at: &str, document: &str) {
        let read = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(document);
        if !document.is_empty() && read.is_err() {
            self.add(at, "its settings are not a JSON object");
        }
    }

    /// Whether the list of faults is full, so that the caller can stop reading.
    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= MAX_FAULTS
    }
}

/// Formats a session's name for [`StoreFault::at`].
pub(super) fn session_at(workspace: &str, session: &str) -> String {
    format!("session \"{workspace}/{session}\"")
}

/// Formats a workspace's name for [`StoreFault::at`].
pub(super) fn workspace_at(workspace: &str) -> String {
    format!("workspace \"{workspace}\"")
}
