//! What came of a wish for a summary, or for one less. A summary itself goes out as the engine has it: `Summary` serializes to
//! plain JSON, and `shapes.json` describes it.

use epitome::{Summarized, Summary};
use epitome_http::discreet::discreet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::http::openapi;

/// What came of a wish for a summary now.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Summarized)]
pub(crate) struct SummarizedOut {
    pub(crate) status: SummarizedStatus,
    /// The one that was written, or that stands where nothing is new.
    #[schema(value_type = Option<openapi::Summary>)]
    pub(crate) summary: Option<Summary>,
    /// Why it is not written yet, where that is known.
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SummarizedStatus {
    /// Nothing new was said, or all that is new is kept verbatim.
    NothingNew,
    Written,
    /// It will be written.
    Pending,
}

impl From<Summarized> for SummarizedOut {
    fn from(summarized: Summarized) -> Self {
        let (status, summary, reason) = match summarized {
            Summarized::NothingNew { summary } => (SummarizedStatus::NothingNew, summary, None),
            Summarized::Written { summary } => (SummarizedStatus::Written, Some(summary), None),
            Summarized::Pending { reason } => (SummarizedStatus::Pending, None, reason),
        };
        Self { status, summary, reason: reason.as_deref().map(discreet) }
    }
}

/// What an undo left.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Undone {
    /// The summary that was taken back.
    pub(crate) undone: i64,
    /// The one that stands again, where there was one before.
    #[schema(value_type = Option<openapi::Summary>)]
    pub(crate) stands: Option<Summary>,
}

/// Whether a slot is written anew.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Rebuilding {
    /// False where there is nothing to summarize.
    pub(crate) rebuilding: bool,
}

/// A summary wanted now.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = Summarize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SummarizeIn {
    /// Which slot; the first where none is named.
    pub(crate) slot: Option<String>,
    /// Whose messages; everybody's where nobody is named.
    pub(crate) scope: Option<String>,
    /// What to pay attention to most.
    #[schema(max_length = 4000)]
    pub(crate) focus: Option<String>,
}
