//! Computes the request size at which condensing costs least.
//!
//! With prompt caching, cached tokens cost little, and new tokens cost more than the plain input price. A cut makes
//! every later request smaller. But all tokens after the cut count as new again. Cutting too often therefore costs more
//! than never cutting.
//!
//! After a cut, `B = H + S + K` tokens remain. `H` is the head, `S` is the summary, and `K` are the messages that stay.
//! Each call adds `g` tokens. The next cut comes `L` calls later, at the size `T = B + g·L`. `R` is the price of a
//! cached read, and `W` is the price of a cache write. Both prices are multiples of the plain input price. The average
//! cost of a call is then
//!
//! ```text
//! R·B + R·g·L/2   reading cached tokens
//! + X/L           the cost of a cut, divided by the calls until the next cut
//! + (W−R)·g       writing new tokens; this cost does not depend on the cuts
//!
//! X = (W−R)·(S+K) + summarizer input·(prompt+S) + summarizer output·S
//! ```
//!
//! A cut does not remove `H` from the cache. The summarizer reads each message once, so the total cost of this reading
//! does not depend on the number of cuts and is not part of `X`. The average cost is smallest at `L = √(2·X/(R·g))`.
//! The request size at this point is
//!
//! ```text
//! T* = H + S + K + √(2·X·g/R)
//! ```
//!
//! This module does not check whether a cut saves enough tokens. [`crate::condense::Policy::worth`] sets that minimum.

use serde::{Deserialize, Serialize};

use crate::message::Tokens;
use crate::trigger::Fraction;

/// Largest result of [`threshold`], as a share of the model's window minus its output reserve.
pub const LIMIT: Fraction = Fraction::percent(75);

/// Number of the first call at which [`threshold`] uses the mean growth. Before this call, the mean is not reliable.
pub const FIRST_CALL: u64 = 3;

/// Token prices, as multiples of the plain input price.
///
/// ```
/// use epitome_core::economic::Prices;
///
/// // A local summarizer is free.
/// assert_eq!(Prices::default(), Prices::new(0.1, 1.25)?.with_summarizer(0.0, 0.0)?);
/// # Ok::<(), epitome_core::economic::PriceError>(())
/// ```
///
/// Invariant: all prices are finite and not negative, and a cache write is not cheaper than a cached read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prices {
    cache_read: f64,
    cache_write: f64,
    summarizer_input: f64,
    summarizer_output: f64,
}

impl Default for Prices {
    /// Returns these prices: a cached read costs 0.1, a cache write costs 1.25, and the summarizer costs nothing.
    fn default() -> Self {
        Self { cache_read: 0.1, cache_write: 1.25, summarizer_input: 0.0, summarizer_output: 0.0 }
    }
}

impl Prices {
    /// Creates prices from the cache prices of the model. The summarizer costs nothing by default.
    pub fn new(cache_read: f64, cache_write: f64) -> Result<Self, PriceError> {
        let cache_read = checked("cache_read", cache_read)?;
        let cache_write = checked("cache_write", cache_write)?;
        if cache_write < cache_read {
            return Err(PriceError::WriteBelowRead { cache_read, cache_write });
        }
        Ok(Self { cache_read, cache_write, ..Self::default() })
    }

    /// Sets the prices of the summarizer, as multiples of the input price of the conversation's model.
    pub fn with_summarizer(self, input: f64, output: f64) -> Result<Self, PriceError> {
        Ok(Self {
            summarizer_input: checked("summarizer_input", input)?,
            summarizer_output: checked("summarizer_output", output)?,
            ..self
        })
    }
}

fn checked(field: &'static str, price: f64) -> Result<f64, PriceError> {
    if price.is_finite() && price >= 0.0 { Ok(price) } else { Err(PriceError::Value { field, price }) }
}

/// The reason why prices were rejected. The caller must correct the setting.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PriceError {
    /// The value is negative or not a finite number.
    #[error("{field}: {price} is not a price; set a finite number, 0 or more")]
    Value {
        /// Name of the price.
        field: &'static str,
        /// The rejected value.
        price: f64,
    },
    /// A cache write is cheaper than a cached read. The two prices were probably swapped.
    #[error("cache_write: {cache_write} is too small; set at least cache_read ({cache_read})")]
    WriteBelowRead {
        /// Price of a cached read.
        cache_read: f64,
        /// Price of a cache write.
        cache_write: f64,
    },
}

/// The properties of a conversation that [`threshold`] uses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CostInputs {
    /// `H` in the formula: the number of tokens that are never condensed (system prompt, tools, pinned messages).
    pub head: Tokens,
    /// `S` in the formula: the number of tokens of the current summary. Before the first cut, this is the largest
    /// allowed size.
    pub summary: Tokens,
    /// `K` in the formula: the number of tokens of the messages that stay verbatim after the summary.
    pub keep: Tokens,
    /// Number of tokens of the summarizer's own prompt.
    pub prompt: Tokens,
    /// `g` in the formula: the average number of tokens that a call adds; see [`Growth`].
    pub growth: f64,
    /// Number of calls so far, including the current one.
    pub calls: u64,
}

/// The mean number of tokens that a call adds, updated in O(1) per call.
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
    /// Counts one more call. `added` is the number of tokens by which this request is larger than the previous request.
    /// For the first call, `added` is the number of tokens after the head.
    pub fn add(&mut self, added: Tokens) {
        self.calls = self.calls.saturating_add(1);
        self.tokens = self.tokens.saturating_add(added);
    }

    /// Returns the growth of a conversation in which `calls` calls added `tokens` tokens in total.
    pub fn of(calls: u64, tokens: Tokens) -> Self {
        Self { calls, tokens }
    }

    /// Returns the number of counted calls.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Returns the mean number of tokens that a call added; 0 before the first call.
    pub fn mean(&self) -> f64 {
        if self.calls == 0 { 0.0 } else { self.tokens as f64 / self.calls as f64 }
    }
}

/// Returns `T*`, the request size at which condensing costs least, rounded up. The [module documentation](self)
/// contains the formula.
///
/// `room` is the model's window minus its output reserve, in tokens; `None` if unknown. The result is at most 75 % of
/// `room`. In each of these cases, the result is exactly this limit, or `None` if `room` is unknown:
///
/// - It is the first or the second call, so the growth is not reliable yet.
/// - `growth` is negative or NaN.
/// - Cached reads cost nothing.
///
/// ```
/// use epitome_core::economic::{Prices, CostInputs, threshold};
///
/// let inputs = CostInputs { head: 5_000, summary: 1_000, keep: 2_000, prompt: 400, growth: 800.0, calls: 9 };
/// // X = 1.15 * 3,000 = 3,450, and the root of 2 * 3,450 * 800 / 0.1 is 7,429.7.
/// assert_eq!(threshold(&Prices::default(), &inputs, Some(120_000)), Some(15_430));
/// assert_eq!(threshold(&Prices::default(), &inputs, Some(10_000)), Some(7_500));
/// assert_eq!(threshold(&Prices::default(), &CostInputs { calls: 2, ..inputs }, Some(120_000)), Some(90_000));
/// ```
pub fn threshold(prices: &Prices, inputs: &CostInputs, room: Option<Tokens>) -> Option<Tokens> {
    let limit = room.map(|room| LIMIT.of_rounded_up(room));
    let guess = inputs.calls < FIRST_CALL || inputs.growth.is_nan() || inputs.growth < 0.0;
    if guess || prices.cache_read == 0.0 {
        return limit;
    }
    let [summary, keep, prompt] = [inputs.summary, inputs.keep, inputs.prompt].map(|tokens| tokens as f64);
    let cut = (prices.cache_write - prices.cache_read) * (summary + keep)
        + prices.summarizer_input * (prompt + summary)
        + prices.summarizer_output * summary;
    let worth_waiting_for = (2.0 * cut * inputs.growth / prices.cache_read).sqrt();
    let base = inputs.head.saturating_add(inputs.summary).saturating_add(inputs.keep);
    let best = base.saturating_add(rounded_up(worth_waiting_for));
    Some(limit.map_or(best, |limit| best.min(limit)))
}

/// Rounds up. A number that is too large for [`Tokens`] becomes the maximum. NaN becomes zero; here, NaN only results
/// from zero times infinity.
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

    const INPUTS: CostInputs =
        CostInputs { head: 5_000, summary: 1_000, keep: 2_000, prompt: 400, growth: 800.0, calls: 9 };

    /// The threshold minus the tokens that a cut leaves.
    fn above(prices: &Prices, inputs: &CostInputs) -> u64 {
        threshold(prices, inputs, None).unwrap() - inputs.head - inputs.summary - inputs.keep
    }

    #[test]
    fn an_invalid_price_is_refused_by_name() {
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
            "cache_read: -0.5 is not a price; set a finite number, 0 or more"
        );
    }

    #[test]
    fn a_write_cheaper_than_a_read_is_refused_by_name() {
        assert_eq!(
            Prices::new(1.25, 0.1).unwrap_err().to_string(),
            "cache_write: 0.1 is too small; set at least cache_read (1.25)"
        );
        assert!(Prices::new(1.0, 1.0).is_ok());
    }

    #[test]
    fn only_the_limit_applies_before_the_third_call() {
        for calls in 0..5 {
            let inputs = CostInputs { calls, ..INPUTS };
            let limit = (calls < 3).then_some(750_000);
            assert_eq!(
                threshold(&Prices::default(), &inputs, Some(1_000_000)).filter(|t| *t == 750_000),
                limit
            );
            assert_eq!(threshold(&Prices::default(), &inputs, None).is_some(), calls >= 3);
        }
    }

    #[test]
    fn free_reads_leave_only_the_room() {
        let prices = Prices::new(0.0, 1.25).unwrap();
        assert_eq!(threshold(&prices, &INPUTS, Some(100_000)), Some(75_000));
        assert_eq!(threshold(&prices, &INPUTS, None), None);
    }

    #[test]
    fn it_is_never_above_three_quarters_of_the_room() {
        assert_eq!(threshold(&Prices::default(), &INPUTS, None), Some(15_430));
        assert_eq!(threshold(&Prices::default(), &INPUTS, Some(20_576)), Some(15_430));
        // Rounded as `window(0.75)` is, so that both are due at the same size.
        assert_eq!(threshold(&Prices::default(), &INPUTS, Some(20_001)), Some(15_001));
    }

    #[test]
    fn four_times_the_growth_doubles_the_wait() {
        let fast = CostInputs { growth: INPUTS.growth * 4.0, ..INPUTS };
        let (once, twice) = (above(&Prices::default(), &INPUTS), above(&Prices::default(), &fast));
        assert!(twice.abs_diff(once * 2) <= 2, "{once} {twice}");
    }

    #[test]
    fn four_times_the_cost_of_a_cut_doubles_the_wait() {
        let expensive = CostInputs { summary: INPUTS.summary * 4, keep: INPUTS.keep * 4, ..INPUTS };
        let (once, twice) = (above(&Prices::default(), &INPUTS), above(&Prices::default(), &expensive));
        assert!(twice.abs_diff(once * 2) <= 2, "{once} {twice}");
    }

    #[test]
    fn a_summarizer_that_costs_makes_cuts_rarer() {
        let paid = Prices::default().with_summarizer(1.0, 5.0).unwrap();
        // X = 1.15 * 3,000 + 1,400 + 5,000.
        let root = (2.0 * 9_850.0 * 800.0 / 0.1_f64).sqrt();
        assert_eq!(above(&paid, &INPUTS), rounded_up(root));
        assert!(above(&paid, &INPUTS) > above(&Prices::default(), &INPUTS));
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

    /// Number of tokens that stay after a cut, from K and the tokens that the current call adds.
    type Remaining = fn(u64, u64) -> u64;

    /// K contains older messages, and the new tokens follow it. The formula assumes this.
    const NEW_AFTER: Remaining = |keep, new| keep + new;

    /// The new tokens are part of K, which grows to contain them. Then a cut costs (W−R)·g less than X, because those
    /// tokens would have been written anyway.
    const NEW_WITHIN: Remaining = |keep, new| keep.max(new);

    /// The cost of a session that is cut whenever a request reaches the threshold returned by `when`.
    ///
    /// Computed call by call as a provider bills it, without the formula's averages: tokens of the previous request are
    /// read, the rest is written; after a cut only the head is read.
    fn spend(
        prices: &Prices,
        inputs: &CostInputs,
        kept: Remaining,
        added: &[u64],
        when: impl Fn(&Growth) -> Option<u64>,
    ) -> f64 {
        let mut growth = Growth::default();
        let (mut cached, mut size, mut total) = (0, inputs.head, 0.0);
        for &new in added {
            growth.add(new);
            size += new;
            if when(&growth).is_some_and(|threshold| size >= threshold) {
                let kept = kept(inputs.keep, new);
                let read = inputs.prompt + size.saturating_sub(inputs.head + kept);
                total +=
                    prices.summarizer_input * read as f64 + prices.summarizer_output * inputs.summary as f64;
                size = inputs.head + inputs.summary + kept;
                cached = inputs.head;
            }
            total += prices.cache_read * cached as f64 + prices.cache_write * (size - cached) as f64;
            cached = size;
        }
        total
    }

    /// The cost with the threshold divided by the cost with the best fixed threshold.
    fn regret(prices: &Prices, inputs: &CostInputs, kept: Remaining, added: &[u64]) -> f64 {
        let ours = spend(prices, inputs, kept, added, |growth| {
            threshold(prices, &CostInputs { growth: growth.mean(), calls: growth.calls(), ..*inputs }, None)
        });
        let base = inputs.head + inputs.summary + inputs.keep;
        let mean = added.iter().sum::<u64>() / added.len() as u64;
        let best = (1..200)
            .map(|step| spend(prices, inputs, kept, added, |_| Some(base + step * mean / 2)))
            .fold(f64::INFINITY, f64::min);
        ours / best
    }

    #[test]
    fn no_fixed_threshold_is_much_cheaper_on_a_steady_session() {
        let prices = Prices::default();
        for growth in [100, 400, 800, 1_500] {
            for (head, summary, keep) in [(0, 500, 500), (5_000, 1_000, 2_000), (20_000, 2_000, 6_000)] {
                let inputs = CostInputs { head, summary, keep, ..INPUTS };
                for (kept, most) in [(NEW_AFTER, 1.01), (NEW_WITHIN, 1.02)] {
                    let regret = regret(&prices, &inputs, kept, &[growth; 2_000]);
                    assert!(regret < most, "{growth} {inputs:?}: {regret}");
                }
            }
        }
    }

    #[test]
    fn no_fixed_threshold_is_much_cheaper_with_a_summarizer_that_costs() {
        for (input, output) in [(0.1, 0.5), (1.0, 5.0)] {
            let prices = Prices::default().with_summarizer(input, output).unwrap();
            for growth in [200, 800] {
                for kept in [NEW_AFTER, NEW_WITHIN] {
                    let regret = regret(&prices, &INPUTS, kept, &[growth; 2_000]);
                    assert!(regret < 1.01, "{input} {growth}: {regret}");
                }
            }
        }
    }

    #[test]
    fn no_fixed_threshold_is_much_cheaper_on_an_uneven_session() {
        // Mostly small steps and sometimes a large tool result, from a fixed small random number generator.
        let mut state = 7_u64;
        let added: Vec<u64> = (0..2_000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let draw = state >> 33;
                let most = if draw.is_multiple_of(10) { 6_000 } else { 700 };
                (draw / 10) % most
            })
            .collect();
        for kept in [NEW_AFTER, NEW_WITHIN] {
            let regret = regret(&Prices::default(), &INPUTS, kept, &added);
            assert!(regret < 1.02, "{regret}");
        }
    }

    #[test]
    fn cutting_far_from_the_threshold_costs_more_on_either_side() {
        let added = [800; 2_000];
        let prices = Prices::default();
        let best = threshold(&prices, &INPUTS, None).unwrap();
        let base = INPUTS.head + INPUTS.summary + INPUTS.keep;
        let cost = |threshold: u64| spend(&prices, &INPUTS, NEW_AFTER, &added, |_| Some(threshold));
        assert!(cost(base + (best - base) / 4) > 1.1 * cost(best));
        assert!(cost(base + (best - base) * 4) > 1.1 * cost(best));
    }

    proptest! {
        #![proptest_config(epitome_testkit::budget::config(256))]

        #[test]
        fn no_numbers_panic(
            prices in any::<[f64; 4]>(),
            tokens in any::<[u64; 4]>(),
            growth in any::<f64>(),
            calls in any::<u64>(),
            room in any::<Option<u64>>(),
        ) {
            let [read, write, input, output] = prices;
            let prices = Prices::new(read, write).and_then(|prices| prices.with_summarizer(input, output));
            let [head, summary, keep, prompt] = tokens;
            let inputs = CostInputs { head, summary, keep, prompt, growth, calls };
            for prices in [prices.unwrap_or_default(), Prices::new(f64::MIN_POSITIVE, f64::MAX).unwrap()] {
                let best = threshold(&prices, &inputs, room);
                if let (Some(best), Some(room)) = (best, room) {
                    prop_assert!(best <= LIMIT.of_rounded_up(room));
                }
                prop_assert!(best.is_none() || calls >= FIRST_CALL);
            }
        }

        #[test]
        fn it_exceeds_the_size_after_a_cut_and_rises_with_growth(
            tokens in prop::array::uniform4(0..100_000_u64), growth in 0.0..10_000.0_f64,
        ) {
            let [head, summary, keep, prompt] = tokens;
            let inputs = CostInputs { head, summary, keep, prompt, growth, calls: 3 };
            let prices = Prices::default();
            let best = threshold(&prices, &inputs, None).unwrap();
            prop_assert!(best >= head + summary + keep);
            let faster = CostInputs { growth: growth * 2.0, ..inputs };
            prop_assert!(threshold(&prices, &faster, None).unwrap() >= best);
        }
    }
}
