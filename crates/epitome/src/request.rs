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
    /// The token budget; `None` for the setting `context.max_tokens`.
    pub tokens: Option<Tokens>,
    /// Whether the context may contain a summary.
    pub summary: bool,
    /// Limits the context to the messages and summaries of this author; `None` for all messages.
    pub scope: Option<Author>,
    /// Builds the context as if the log ended with this message; `None` for the whole log.
    pub as_of: Option<Seq>,
    /// The author whose model receives the context. In the context, messages of this author with the role `peer` get
    /// the role `assistant`.
    pub assistant: Option<Author>,
    /// What happens if the newest message alone exceeds the budget.
    pub oversize: Oversize,
    /// Whether a summary that is larger than `share` may be shortened for this request.
    pub fit: bool,
    /// Whether the rest of the budget is used for older messages, in addition to the summary.
    pub fill: bool,
    /// Whether the first message of a context that the budget cuts changes only after the log has grown by about a
    /// quarter of the budget. Until then, prompt caches stay valid.
    pub steady: bool,
    /// The largest share of the budget that the summary may use; `None` for the setting `context.summary_share`, or for
    /// one and a half times this setting if `fill` is true.
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
