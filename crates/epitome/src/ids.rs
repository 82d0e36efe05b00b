//! Ids that a store assigns, and the state of a summary: types that stores, events and rows share.

use serde::{Deserialize, Serialize};

/// A session's id in its store. The store never uses an id for two sessions.
pub type SessionId = i64;

/// A summary's id in its session: 1, 2, 3 … A later summary of the session has a larger id, and no id is used twice.
/// Summaries of two sessions may have the same id.
pub type SummaryId = i64;

/// Whether a summary is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SummaryState {
    /// The current summary of its slot.
    #[serde(rename = "standing")]
    Current,
    /// Replaced by a later summary.
    Superseded,
    /// Undone. It is never shown again, and no summary is built on it.
    Undone,
}
