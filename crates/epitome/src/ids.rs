//! Numbers that a store gives, and whether a summary stands: what stores, events and rows all name.

use serde::{Deserialize, Serialize};

/// A session's number in its store. Never given twice.
pub type SessionId = i64;

/// A summary's number in its session: 1, 2, 3 … Never given twice there; a later one is larger. It tells nothing of
/// other sessions, and means nothing in them.
pub type SummaryId = i64;

/// Whether a summary stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SummaryState {
    /// It is its slot's.
    Standing,
    /// A later one stands for it.
    Superseded,
    /// It was taken back. It is never shown again, nor built upon.
    Undone,
}
