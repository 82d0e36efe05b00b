//! Describes the context that a caller requests.

use epitome_core::context::Oversize;
use epitome_core::message::{Author, Seq, Tokens};
use epitome_core::trigger::Fraction;

/// Options of a context request.
///
/// ```
/// use epitome::ContextRequest;
///
/// let plain: ContextRequest = 4_000.into();
/// let filled = ContextRequest { fill: true, ..ContextRequest::from(4_000) };
/// assert!(plain.summary && filled.fill && filled.tokens == Some(4_000));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextRequest {
    /// The token budget. By default `context.max_tokens` of the settings.
    pub tokens: Option<Tokens>,
    /// Whether the context may contain a summary.
    pub summary: bool,
    /// Limits the context to the messages and summaries of this author; `None` for all messages.
    pub scope: Option<Author>,
    /// Builds the context as if the log ended with this message; `None` for the whole log.
    pub as_of: Option<Seq>,
    /// The author for whose model the context is made: this author's messages with the role `peer` get the role
    /// `assistant`.
    pub assistant: Option<Author>,
    /// What happens if the newest message alone exceeds the budget.
    pub oversize: Oversize,
    /// Whether a summary that is larger than `share` may be shortened for this request.
    pub fit: bool,
    /// Whether the rest of the budget is used for older messages, in addition to the summary.
    pub fill: bool,
    /// Whether the start of a shortened context moves in steps, so that prompt caches stay valid for several requests.
    pub steady: bool,
    /// The share of the budget that the summary may use. By default `context.summary_share` of the settings; with
    /// `fill`, one and a half times `context.summary_share`.
    pub share: Option<Fraction>,
}

impl Default for ContextRequest {
    fn default() -> Self {
        Self {
            tokens: None,
            summary: true,
            scope: None,
            as_of: None,
            assistant: None,
            oversize: Oversize::Empty,
            fit: true,
            fill: false,
            steady: false,
            share: None,
        }
    }
}

impl ContextRequest {
    /// Returns whether contexts for both requests are probably built from the same stored messages.
    pub(crate) fn reads_same_messages(&self, other: &Self) -> bool {
        let reads = |request: &Self| (request.tokens, request.summary, request.fill, request.as_of);
        reads(self) == reads(other) && self.scope == other.scope
    }
}

impl From<Tokens> for ContextRequest {
    fn from(tokens: Tokens) -> Self {
        Self { tokens: Some(tokens), ..Self::default() }
    }
}
