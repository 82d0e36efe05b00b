//! Computes the cost of a series of requests. The unit is the price of one input token without a prompt cache, which is
//! called a *plain* input token.
//!
//! There are two prices. Without a prompt cache, every input token has the plain price. With a prompt cache, the
//! messages at the beginning that are the same as in the previous request are read from the cache, and all other tokens
//! are written to the cache. A token that is read from the cache costs a tenth of the plain price. A token that is
//! written to the cache costs a quarter more than the plain price. A beginning of fewer than 1,024 tokens is not read
//! from the cache. With both prices, an output token of a summary costs five times the plain price. These are the
//! rounded prices of most providers.
//!
//! ```
//! use epitome_lab::evaluation::cost::{Cost, PromptCache, SentMessage};
//!
//! let (mut cost, mut run) = (Cost::default(), PromptCache::default());
//! run.send(&mut cost, &[SentMessage { hash: 1, tokens: 2_000 }]);
//! run.send(&mut cost, &[SentMessage { hash: 1, tokens: 2_000 }, SentMessage { hash: 2, tokens: 100 }]);
//! assert_eq!((cost.calls, cost.plain, cost.peak), (2, 4_100, 2_100));
//! assert_eq!(cost.cached(), 2_500 + 200 + 125);
//! ```

use epitome::rules::message::Tokens;
use serde::{Deserialize, Serialize};

/// Price of an input token that is read from the cache, relative to a plain input token.
pub const CACHE_READ_PRICE: f64 = 0.1;
/// Price of an input token that is written to the cache, relative to a plain input token.
pub const CACHE_WRITE_PRICE: f64 = 1.25;
/// Price of an output token, relative to a plain input token.
pub const OUTPUT_PRICE: u64 = 5;
/// Minimum size of a beginning that is read from the cache, in tokens.
pub const MIN_CACHED_TOKENS: Tokens = 1_024;

/// A message of a request: its fingerprint and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentMessage {
    /// Fingerprint of the content.
    pub hash: u64,
    /// The message's tokens.
    pub tokens: Tokens,
}

/// Total cost of several requests, in plain input tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Number of requests.
    pub calls: u64,
    /// Cost without a prompt cache, without summaries.
    pub plain: Tokens,
    /// Cost with a prompt cache, without summaries.
    cached: f64,
    /// Cost of the summaries that a model wrote. This cost is the same with and without a prompt cache.
    pub summarizer: Tokens,
    /// Number of summaries that a model wrote.
    pub summaries: u64,
    /// Size of the largest request, in tokens.
    pub peak: Tokens,
}

impl Cost {
    /// Returns the cost with a prompt cache, without summaries.
    pub fn cached(&self) -> Tokens {
        // Sums of tokens are far below the largest integer.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "no sum is negative")]
        let cached = self.cached.round() as Tokens;
        cached
    }

    /// Adds the cost of a summary that a model wrote from `input` tokens with `output` tokens.
    pub fn summarized(&mut self, input: Tokens, output: Tokens) {
        self.summaries = self.summaries.saturating_add(1);
        self.summarizer =
            self.summarizer.saturating_add(input).saturating_add(output.saturating_mul(OUTPUT_PRICE));
    }

    /// Adds the total cost of other requests.
    pub fn join(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.plain = self.plain.saturating_add(other.plain);
        self.cached += other.cached;
        self.summarizer = self.summarizer.saturating_add(other.summarizer);
        self.summaries = self.summaries.saturating_add(other.summaries);
        self.peak = self.peak.max(other.peak);
    }
}

/// Simulates the provider's prompt cache for one conversation. The cache contains the list of the previous request.
#[derive(Debug, Clone, Default)]
pub struct PromptCache {
    before: Vec<SentMessage>,
}

impl PromptCache {
    /// Returns whether this list begins with the whole previous list.
    pub fn continues(&self, list: &[SentMessage]) -> bool {
        list.starts_with(&self.before)
    }

    /// Adds a request with this list to `cost`. Returns the cost of this request with a prompt cache.
    pub fn send(&mut self, cost: &mut Cost, list: &[SentMessage]) -> f64 {
        let sum = |list: &[SentMessage]| list.iter().fold(0u64, |sum, sent| sum.saturating_add(sent.tokens));
        let same = self.before.iter().zip(list).take_while(|(before, now)| before == now).count();
        let total = sum(list);
        let shared = Some(sum(list.get(..same).unwrap_or_default()))
            .filter(|shared| *shared >= MIN_CACHED_TOKENS)
            .unwrap_or(0);
        let cached = CACHE_READ_PRICE * shared as f64 + CACHE_WRITE_PRICE * (total - shared) as f64;
        cost.calls = cost.calls.saturating_add(1);
        cost.plain = cost.plain.saturating_add(total);
        cost.cached += cached;
        cost.peak = cost.peak.max(total);
        self.before.clear();
        self.before.extend_from_slice(list);
        cached
    }
}
