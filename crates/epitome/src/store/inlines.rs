//! Where it is kept what was done to lists that pass through, and what that came to.

use epitome_core::message::Tokens;
use serde::Serialize;

/// A list up to one of its messages, as a number that two different ones hardly share.
pub type ListHash = [u8; 16];

/// What was done to a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InlineRow {
    /// The hash of its first message.
    pub root: ListHash,
    /// How many messages it had then.
    pub length: u64,
    /// The hash of those.
    pub hash: ListHash,
    /// What must be kept of it, a document.
    pub kept: String,
}

/// What passed through, of one model in one hour.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Passed {
    /// The model that was asked.
    pub model: String,
    /// Whether nothing was changed, and this is what would have been.
    pub shadow: bool,
    /// How many requests were answered.
    pub requests: u64,
    /// How many of them were shorter than they came.
    pub shorter: u64,
    /// How many were sent again because the provider found them too long.
    pub retried: u64,
    /// How many answers broke off.
    pub cut_off: u64,
    /// Of how many the provider did not tell what it counted. They are in none of the sums below.
    pub uncounted: u64,
    /// What went in, by the provider's count, cached tokens included.
    pub input: Tokens,
    /// How much of that the provider had in its cache.
    pub cached: Tokens,
    /// What came out.
    pub output: Tokens,
    /// How many tokens more would have gone in.
    pub saved: Tokens,
    /// What it cost, in millionths, where the price is known.
    pub cost: i64,
    /// How much more it would have cost; less than nothing where condensing cost more than it saved.
    pub saved_cost: i64,
}

impl Passed {
    /// Adds another one's figures to this one.
    pub fn add(&mut self, more: &Self) {
        let counts = [
            (&mut self.requests, more.requests),
            (&mut self.shorter, more.shorter),
            (&mut self.retried, more.retried),
            (&mut self.cut_off, more.cut_off),
            (&mut self.uncounted, more.uncounted),
            (&mut self.input, more.input),
            (&mut self.cached, more.cached),
            (&mut self.output, more.output),
            (&mut self.saved, more.saved),
        ];
        counts.into_iter().for_each(|(sum, more)| *sum = sum.saturating_add(more));
        self.cost = self.cost.saturating_add(more.cost);
        self.saved_cost = self.saved_cost.saturating_add(more.saved_cost);
    }
}
