//! What a run of requests costs, in tokens of plain input.
//!
//! Two prices are told: where all input costs the same, and where the beginning that a request shares with the one
//! before it is read from a cache. A cache read costs a tenth, a write a quarter more, and a summary's tokens five
//! times as much: what most providers ask, rounded. Beginnings are cached by whole messages, from 1,024 tokens on.
//!
//! ```
//! use epitome_lab::measure::cost::{Cost, Run, Sent};
//!
//! let (mut cost, mut run) = (Cost::default(), Run::default());
//! run.send(&mut cost, &[Sent { hash: 1, tokens: 2_000 }]);
//! run.send(&mut cost, &[Sent { hash: 1, tokens: 2_000 }, Sent { hash: 2, tokens: 100 }]);
//! assert_eq!((cost.calls, cost.plain, cost.peak), (2, 4_100, 2_100));
//! assert_eq!(cost.cached(), 2_500 + 200 + 125);
//! ```

use epitome::rules::message::Tokens;
use serde::{Deserialize, Serialize};

/// The price of a token that is read from a cache, of one that is written to it, and of one that is written by a
/// model, where plain input is 1.
pub const READ: f64 = 0.1;
/// See [`READ`].
pub const WRITE: f64 = 1.25;
/// See [`READ`].
pub const OUTPUT: u64 = 5;
/// A beginning smaller than this is not cached.
pub const FLOOR: Tokens = 1_024;

/// A message of a request: what it is known by, and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// The same for the same words only.
    pub hash: u64,
    /// Its tokens.
    pub tokens: Tokens,
}

/// What requests come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// How many there were.
    pub calls: u64,
    /// What they cost where all input costs the same.
    pub plain: Tokens,
    cached: f64,
    /// What was spent on summaries, in both cases.
    pub summarizer: Tokens,
    /// How many summaries a model was asked for.
    pub summaries: u64,
    /// The largest request.
    pub peak: Tokens,
}

impl Cost {
    /// What they cost where beginnings are cached.
    pub fn cached(&self) -> Tokens {
        // Whole tokens, and of sums that fit.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "no sum is negative")]
        let cached = self.cached.round() as Tokens;
        cached
    }

    /// A model wrote a summary.
    pub fn summarized(&mut self, input: Tokens, output: Tokens) {
        self.summaries = self.summaries.saturating_add(1);
        self.summarizer = self.summarizer.saturating_add(input).saturating_add(output.saturating_mul(OUTPUT));
    }

    /// Takes in what others cost.
    pub fn join(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.plain = self.plain.saturating_add(other.plain);
        self.cached += other.cached;
        self.summarizer = self.summarizer.saturating_add(other.summarizer);
        self.summaries = self.summaries.saturating_add(other.summaries);
        self.peak = self.peak.max(other.peak);
    }
}

/// The requests of one conversation, in order.
#[derive(Debug, Clone, Default)]
pub struct Run {
    before: Vec<Sent>,
}

impl Run {
    /// Whether this list goes on from the one before.
    pub fn goes_on(&self, list: &[Sent]) -> bool {
        list.starts_with(&self.before)
    }

    /// One more request with this list. Gives what it costs with a cache.
    pub fn send(&mut self, cost: &mut Cost, list: &[Sent]) -> f64 {
        let sum = |list: &[Sent]| list.iter().fold(0u64, |sum, sent| sum.saturating_add(sent.tokens));
        let same = self.before.iter().zip(list).take_while(|(before, now)| before == now).count();
        let total = sum(list);
        let shared =
            Some(sum(list.get(..same).unwrap_or_default())).filter(|shared| *shared >= FLOOR).unwrap_or(0);
        let cached = READ * shared as f64 + WRITE * (total - shared) as f64;
        cost.calls = cost.calls.saturating_add(1);
        cost.plain = cost.plain.saturating_add(total);
        cost.cached += cached;
        cost.peak = cost.peak.max(total);
        self.before.clear();
        self.before.extend_from_slice(list);
        cached
    }
}
