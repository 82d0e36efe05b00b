//! What kind of context is asked for.

use epitome_core::context::Oversize;
use epitome_core::message::{Author, Seq, Tokens};
use epitome_core::trigger::Fraction;

/// What kind of context is asked for.
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
    /// The budget. Without one it is the `context.max_tokens` of the settings.
    pub tokens: Option<Tokens>,
    /// Whether a summary may be in it.
    pub summary: bool,
    /// Only this author's messages and summaries.
    pub scope: Option<Author>,
    /// As if the log ended with this message.
    pub as_of: Option<Seq>,
    /// Whose messages are the assistant's, among peers whose side was never told.
    pub assistant: Option<Author>,
    /// What happens when the newest message alone is over the budget.
    pub oversize: Oversize,
    /// Whether a summary too large for its share may be shortened on the spot.
    pub fit: bool,
    /// Whether what is left of the budget is spent on older messages.
    pub fill: bool,
    /// Whether a cut context's start moves in steps, for prompt caches.
    pub steady: bool,
    /// How much of it a summary may take. Unless given it is the `context.summary_share` of the settings, and with `fill`
    /// half as much again.
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
    /// Whether the same messages are read for both, as far as can be told beforehand.
    pub(crate) fn reads_like(&self, other: &Self) -> bool {
        let reads = |asked: &Self| (asked.tokens, asked.summary, asked.fill, asked.as_of);
        reads(self) == reads(other) && self.scope == other.scope
    }
}

impl From<Tokens> for ContextRequest {
    fn from(tokens: Tokens) -> Self {
        Self { tokens: Some(tokens), ..Self::default() }
    }
}
