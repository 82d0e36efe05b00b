//! When cutting costs least.
//!
//! With prompt caching a request pays little for what the provider has seen before and more than
//! the plain price for what is new. Cutting makes every later request smaller, but what stands
//! after the cut is new once more: who cuts too often pays more than who never cuts.
//!
//! Let a cut leave `B = H + S + K` tokens (head, summary, kept messages), let each call add `g`,
//! and let the next cut come `L` calls later, at the size `T = B + g·L`. In units of the plain
//! input price, with `R` for a cached read and `W` for a cache write, a call then costs on average
//!
//! ```text
//! R·B + R·g·L/2   reading what is there
//! + X/L           a cut, spread over the calls until the next
//! + (W−R)·g       writing what is new, whenever one cuts
//!
//! X = (W−R)·(S+K) + summarizer input·(prompt+S) + summarizer output·S
//! ```
//!
//! `H` stays cached through a cut. The messages the summarizer reads cost the same in the end
//! however they are divided, so they are not in `X`. The sum is least where `L = √(2·X/(R·g))`, so
//!
//! ```text
//! T* = H + S + K + √(2·X·g/R)
//! ```
//!
//! Whether a cut is worth its trouble at all, the minimum worth, is not judged here.

use serde::{Deserialize, Serialize};

use crate::message::Tokens;
use crate::trigger::Fraction;

/// The share of the model's room that [`threshold`] never goes beyond.
pub const LIMIT: Fraction = Fraction::percent(75);

/// From which call on [`Growth`] is taken for a rule.
pub const FIRST_CALL: u64 = 3;

/// What tokens cost, in units of the plain input price.
///
/// ```
/// use epitome_core::economic::Prices;
///
/// // A summarizer that runs here is free.
/// assert_eq!(Prices::default(), Prices::new(0.1, 1.25)?.with_summarizer(0.0, 0.0)?);
/// # Ok::<(), epitome_core::economic::PriceError>(())
/// ```
///
/// Invariant: all finite, none negative, a cache write no cheaper than a cached read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prices {
    cache_read: f64,
    cache_write: f64,
    summarizer_input: f64,
    summarizer_output: f64,
}

impl Default for Prices {
    /// A cached read at a tenth, a cache write at five quarters, a summarizer that costs nothing.
    fn default() -> Self {
        Self { cache_read: 0.1, cache_write: 1.25, summarizer_input: 0.0, summarizer_output: 0.0 }
    }
}

impl Prices {
    /// The prices of the model's cache; the summarizer costs nothing until told otherwise.
    pub fn new(cache_read: f64, cache_write: f64) -> Result<Self, PriceError> {
        let cache_read = checked("cache_read", cache_read)?;
        let cache_write = checked("cache_write", cache_write)?;
        if cache_write < cache_read {
            return Err(PriceError::WriteBelowRead { cache_read, cache_write });
        }
        Ok(Self { cache_read, cache_write, ..Self::default() })
    }

    /// The same with a summarizer at these prices, also in units of the model's input price.
    pub fn with_summarizer(self, input: f64, output: f64) -> Result<Self, PriceError> {
        Ok(Self {
            summarizer_input: checked("summarizer_input", input)?,
            summarizer_output: checked("summarizer_output", output)?,
            ..self
        })
    }
}

fn checked(field: &'static str, given: f64) -> Result<f64, PriceError> {
    if given.is_finite() && given >= 0.0 { Ok(given) } else { Err(PriceError::Value { field, given }) }
}

/// Why prices were refused. All of these mean: mend the setting.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PriceError {
    /// Not a price.
    #[error("{field}: {given} given; allowed is a finite number, 0 or more")]
    Value {
        /// Which price.
        field: &'static str,
        /// What was given.
        given: f64,
    },
    /// A cache in which writing is cheaper than reading: the two were probably exchanged.
    #[error("cache_write: {cache_write} given; allowed is cache_read, {cache_read}, or more")]
    WriteBelowRead {
        /// The price of a read.
        cache_read: f64,
        /// The price of a write.
        cache_write: f64,
    },
}

/// What a conversation looks like to [`threshold`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// What is never condensed, H: system prompt, tools, pinned messages.
    pub head: Tokens,
    /// The summary, S: the one that stands, or before the first cut the largest there may be.
    pub summary: Tokens,
    /// What is kept word for word after it, K.
    pub keep: Tokens,
    /// The summarizer's own prompt.
    pub prompt: Tokens,
    /// The tokens a call adds on average, g; see [`Growth`].
    pub growth: f64,
    /// Calls so far, the one under way included.
    pub calls: u64,
}

/// The mean number of tokens a call adds, kept up to date in O(1) a call.
///
/// ```
/// use epitome_core::economic::Growth;
///
/// let mut growth = Growth::default();
/// for added in [900, 300, 300] {
///     growth.add(added);
/// }
/// assert_eq!((growth.calls(), growth.mean()), (3, 500.0));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Growth {
    calls: u64,
    tokens: Tokens,
}

impl Growth {
    /// Counts one more call, by what it added to the request before it, or to the head if it is
    /// the first.
    pub fn add(&mut self, added: Tokens) {
        self.calls = self.calls.saturating_add(1);
        self.tokens = self.tokens.saturating_add(added);
    }

    /// Of a conversation that was not followed: so many calls, which added so many tokens in all.
    pub fn of(calls: u64, tokens: Tokens) -> Self {
        Self { calls, tokens }
    }

    /// Calls counted.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// The mean; 0 before the first call.
    pub fn mean(&self) -> f64 {
        if self.calls == 0 { 0.0 } else { self.tokens as f64 / self.calls as f64 }
    }
}

/// The size of a request at which cutting costs least, `T*`, rounded up. See the [module](self)
/// for the formula.
///
/// `window(0.75)` is always the limit above it. That limit alone stands before the third call, while
/// growth is a guess, where `growth` is not a number from 0 on, and where reads cost nothing; none
/// then if `room` is not known. `room` is the model's window less its output reserve.
///
/// ```
/// use epitome_core::economic::{Prices, Shape, threshold};
///
/// let shape = Shape { head: 5_000, summary: 1_000, keep: 2_000, prompt: 400, growth: 800.0, calls: 9 };
/// // X = 1.15 * 3,000 = 3,450, and the root of 2 * 3,450 * 800 / 0.1 is 7,429.7.
/// assert_eq!(threshold(&Prices::default(), &shape, Some(120_000)), Some(15_430));
/// assert_eq!(threshold(&Prices::default(), &shape, Some(10_000)), Some(7_500));
/// assert_eq!(threshold(&Prices::default(), &Shape { calls: 2, ..shape }, Some(120_000)), Some(90_000));
/// ```
pub fn threshold(prices: &Prices, shape: &Shape, room: Option<Tokens>) -> Option<Tokens> {
    let limit = room.map(|room| LIMIT.of_rounded_up(room));
    let guess = shape.calls < FIRST_CALL || shape.growth.is_nan() || shape.growth < 0.0;
    if guess || prices.cache_read == 0.0 {
        return limit;
    }
    let [summary, keep, prompt] = [shape.summary, shape.keep, shape.prompt].map(|tokens| tokens as f64);
    let cut = (prices.cache_write - prices.cache_read) * (summary + keep)
        + prices.summarizer_input * (prompt + summary)
        + prices.summarizer_output * summary;
    let worth_waiting_for = (2.0 * cut * shape.growth / prices.cache_read).sqrt();
    let base = shape.head.saturating_add(shape.summary).saturating_add(shape.keep);
    let best = base.saturating_add(rounded_up(worth_waiting_for));
    Some(limit.map_or(best, |limit| best.min(limit)))
}

/// Nothing below is lost: what is too large for a number of tokens becomes the largest, and NaN,
/// which only nothing times infinity gives here, becomes nothing.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from float to integer saturates and takes NaN to 0"
)]
fn rounded_up(tokens: f64) -> Tokens {
    tokens.ceil() as Tokens
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SHAPE: Shape =
        Shape { head: 5_000, summary: 1_000, keep: 2_000, prompt: 400, growth: 800.0, calls: 9 };

    /// How far above its base the threshold is.
    fn above(prices: &Prices, shape: &Shape) -> u64 {
        threshold(prices, shape, None).unwrap() - shape.head - shape.summary - shape.keep
    }

    #[test]
    fn a_price_that_is_none_is_refused_by_name() {
        for bad in [f64::NAN, f64::INFINITY, -0.1] {
            let refused = |result: Result<Prices, PriceError>| match result {
                Err(PriceError::Value { field, .. }) => field,
                other => panic!("{other:?}"),
            };
            assert_eq!(refused(Prices::new(bad, 1.0)), "cache_read");
            assert_eq!(refused(Prices::new(0.1, bad)), "cache_write");
            assert_eq!(refused(Prices::default().with_summarizer(bad, 1.0)), "summarizer_input");
            assert_eq!(refused(Prices::default().with_summarizer(1.0, bad)), "summarizer_output");
        }
        assert_eq!(
            Prices::new(-0.5, 1.0).unwrap_err().to_string(),
            "cache_read: -0.5 given; allowed is a finite number, 0 or more"
        );
    }

    #[test]
    fn a_write_cheaper_than_a_read_is_refused_by_name() {
        assert_eq!(
            Prices::new(1.25, 0.1).unwrap_err().to_string(),
            "cache_write: 0.1 given; allowed is cache_read, 1.25, or more"
        );
        assert!(Prices::new(1.0, 1.0).is_ok());
    }

    #[test]
    fn only_the_limit_stands_before_the_third_call() {
        for calls in 0..5 {
            let shape = Shape { calls, ..SHAPE };
            let limit = (calls < 3).then_some(750_000);
            assert_eq!(
                threshold(&Prices::default(), &shape, Some(1_000_000)).filter(|t| *t == 750_000),
                limit
            );
            assert_eq!(threshold(&Prices::default(), &shape, None).is_some(), calls >= 3);
        }
    }

    #[test]
    fn free_reads_leave_only_the_room() {
        let prices = Prices::new(0.0, 1.25).unwrap();
        assert_eq!(threshold(&prices, &SHAPE, Some(100_000)), Some(75_000));
        assert_eq!(threshold(&prices, &SHAPE, None), None);
    }

    #[test]
    fn it_is_never_above_three_quarters_of_the_room() {
        assert_eq!(threshold(&Prices::default(), &SHAPE, None), Some(15_430));
        assert_eq!(threshold(&Prices::default(), &SHAPE, Some(20_576)), Some(15_430));
        // Rounded as `window(0.75)` is, so that both are due at the same size.
        assert_eq!(threshold(&Prices::default(), &SHAPE, Some(20_001)), Some(15_001));
    }

    #[test]
    fn four_times_the_growth_doubles_the_wait() {
        let fast = Shape { growth: SHAPE.growth * 4.0, ..SHAPE };
        let (once, twice) = (above(&Prices::default(), &SHAPE), above(&Prices::default(), &fast));
        assert!(twice.abs_diff(once * 2) <= 2, "{once} {twice}");
    }

    #[test]
    fn four_times_the_cost_of_a_cut_doubles_the_wait() {
        let dear = Shape { summary: SHAPE.summary * 4, keep: SHAPE.keep * 4, ..SHAPE };
        let (once, twice) = (above(&Prices::default(), &SHAPE), above(&Prices::default(), &dear));
        assert!(twice.abs_diff(once * 2) <= 2, "{once} {twice}");
    }

    #[test]
    fn a_summarizer_that_costs_makes_cuts_rarer() {
        let paid = Prices::default().with_summarizer(1.0, 5.0).unwrap();
        // X = 1.15 * 3,000 + 1,400 + 5,000.
        let root = (2.0 * 9_850.0 * 800.0 / 0.1_f64).sqrt();
        assert_eq!(above(&paid, &SHAPE), rounded_up(root));
        assert!(above(&paid, &SHAPE) > above(&Prices::default(), &SHAPE));
    }

    #[test]
    fn growth_is_a_mean_that_does_not_wrap() {
        let mut growth = Growth::default();
        assert_eq!(growth.mean(), 0.0);
        growth.add(u64::MAX);
        growth.add(u64::MAX);
        assert_eq!(growth.calls(), 2);
        assert!(growth.mean().is_finite());
    }

    /// How many tokens a cut keeps, from K and what the call under way adds.
    type Kept = fn(u64, u64) -> u64;

    /// K is older; what is new stands after it. This is what the formula assumes.
    const NEW_BESIDE: Kept = |keep, new| keep + new;

    /// What is new is part of K, which grows to hold it. Then a cut costs (W−R)·g less than X says,
    /// because that much would have been written anyway.
    const NEW_WITHIN: Kept = |keep, new| keep.max(new);

    /// What a session costs that is cut when a request reaches what `when` says.
    ///
    /// Counted call by call as a provider bills it, without the formula's averages: what the last
    /// request held is read, the rest is written; after a cut only the head is read.
    fn spend(
        prices: &Prices,
        shape: &Shape,
        kept: Kept,
        added: &[u64],
        when: impl Fn(&Growth) -> Option<u64>,
    ) -> f64 {
        let mut growth = Growth::default();
        let (mut cached, mut size, mut total) = (0, shape.head, 0.0);
        for &new in added {
            growth.add(new);
            size += new;
            if when(&growth).is_some_and(|threshold| size >= threshold) {
                let kept = kept(shape.keep, new);
                let read = shape.prompt + size.saturating_sub(shape.head + kept);
                total +=
                    prices.summarizer_input * read as f64 + prices.summarizer_output * shape.summary as f64;
                size = shape.head + shape.summary + kept;
                cached = shape.head;
            }
            total += prices.cache_read * cached as f64 + prices.cache_write * (size - cached) as f64;
            cached = size;
        }
        total
    }

    /// The spend with the threshold over the spend with the best of all fixed ones.
    fn regret(prices: &Prices, shape: &Shape, kept: Kept, added: &[u64]) -> f64 {
        let ours = spend(prices, shape, kept, added, |growth| {
            threshold(prices, &Shape { growth: growth.mean(), calls: growth.calls(), ..*shape }, None)
        });
        let base = shape.head + shape.summary + shape.keep;
        let mean = added.iter().sum::<u64>() / added.len() as u64;
        let best = (1..200)
            .map(|step| spend(prices, shape, kept, added, |_| Some(base + step * mean / 2)))
            .fold(f64::INFINITY, f64::min);
        ours / best
    }

    #[test]
    fn no_fixed_threshold_is_much_cheaper_on_a_steady_session() {
        let prices = Prices::default();
        for growth in [100, 400, 800, 1_500] {
            for (head, summary, keep) in [(0, 500, 500), (5_000, 1_000, 2_000), (20_000, 2_000, 6_000)] {
                let shape = Shape { head, summary, keep, ..SHAPE };
                for (kept, most) in [(NEW_BESIDE, 1.01), (NEW_WITHIN, 1.02)] {
                    let regret = regret(&prices, &shape, kept, &[growth; 2_000]);
                    assert!(regret < most, "{growth} {shape:?}: {regret}");
                }
            }
        }
    }

    #[test]
    fn no_fixed_threshold_is_much_cheaper_with_a_summarizer_that_costs() {
        for (input, output) in [(0.1, 0.5), (1.0, 5.0)] {
            let prices = Prices::default().with_summarizer(input, output).unwrap();
            for growth in [200, 800] {
                for kept in [NEW_BESIDE, NEW_WITHIN] {
                    let regret = regret(&prices, &SHAPE, kept, &[growth; 2_000]);
                    assert!(regret < 1.01, "{input} {growth}: {regret}");
                }
            }
        }
    }

    #[test]
    fn no_fixed_threshold_is_much_cheaper_on_an_uneven_session() {
        // Mostly small steps and now and then a large tool result, from a fixed small generator.
        let mut state = 7_u64;
        let added: Vec<u64> = (0..2_000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let draw = state >> 33;
                let most = if draw.is_multiple_of(10) { 6_000 } else { 700 };
                (draw / 10) % most
            })
            .collect();
        for kept in [NEW_BESIDE, NEW_WITHIN] {
            let regret = regret(&Prices::default(), &SHAPE, kept, &added);
            assert!(regret < 1.02, "{regret}");
        }
    }

    #[test]
    fn cutting_far_from_the_threshold_costs_more_on_either_side() {
        let added = [800; 2_000];
        let prices = Prices::default();
        let best = threshold(&prices, &SHAPE, None).unwrap();
        let base = SHAPE.head + SHAPE.summary + SHAPE.keep;
        let cost = |threshold: u64| spend(&prices, &SHAPE, NEW_BESIDE, &added, |_| Some(threshold));
        assert!(cost(base + (best - base) / 4) > 1.1 * cost(best));
        assert!(cost(base + (best - base) * 4) > 1.1 * cost(best));
    }

    proptest! {
        #![proptest_config(epitome_testkit::budget::config(256))]

        #[test]
        fn no_numbers_bring_it_down(
            prices in any::<[f64; 4]>(),
            tokens in any::<[u64; 4]>(),
            growth in any::<f64>(),
            calls in any::<u64>(),
            room in any::<Option<u64>>(),
        ) {
            let [read, write, input, output] = prices;
            let prices = Prices::new(read, write).and_then(|prices| prices.with_summarizer(input, output));
            let [head, summary, keep, prompt] = tokens;
            let shape = Shape { head, summary, keep, prompt, growth, calls };
            for prices in [prices.unwrap_or_default(), Prices::new(f64::MIN_POSITIVE, f64::MAX).unwrap()] {
                let best = threshold(&prices, &shape, room);
                if let (Some(best), Some(room)) = (best, room) {
                    prop_assert!(best <= LIMIT.of_rounded_up(room));
                }
                prop_assert!(best.is_none() || calls >= FIRST_CALL);
            }
        }

        #[test]
        fn it_is_above_what_a_cut_leaves_and_grows_with_growth(
            tokens in prop::array::uniform4(0..100_000_u64), growth in 0.0..10_000.0_f64,
        ) {
            let [head, summary, keep, prompt] = tokens;
            let shape = Shape { head, summary, keep, prompt, growth, calls: 3 };
            let prices = Prices::default();
            let best = threshold(&prices, &shape, None).unwrap();
            prop_assert!(best >= head + summary + keep);
            let faster = Shape { growth: growth * 2.0, ..shape };
            prop_assert!(threshold(&prices, &faster, None).unwrap() >= best);
        }
    }
}
