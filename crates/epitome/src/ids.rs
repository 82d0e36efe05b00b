//! Ids that a store assigns, and the state of a summary: types that stores, events and rows share.

use serde::{Deserialize, Serialize};

/// A session's id in its store. Never used twice.
pub type SessionId = i64;

/// A summary's id in its session: 1, 2, 3 … Never used twice in that session; a later summary has a larger id. Ids of
/// different sessions are unrelated.
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
