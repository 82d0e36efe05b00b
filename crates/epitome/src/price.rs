//! Money, and the prices of models.

use std::fmt;
use std::iter::Sum;
use std::ops::Add;

use epitome_wire::{ReplyUsage, TokenUsage};
use serde::{Deserialize, Serialize};

const MILLION: i64 = 1_000_000;

/// An amount of money, in the currency of the prices.
///
/// The amount is stored in millionths, so that sums are exact. Overflow saturates instead of wrapping.
///
/// ```
/// use epitome::settings::Money;
///
/// let spent: Money = [Money::millionths(1_500_000), Money::millionths(20)].into_iter().sum();
/// assert_eq!(spent.to_string(), "1.50002");
/// assert_eq!(spent.to_millionths(), 1_500_020);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "f64", into = "f64")]
pub struct Money(i64);

impl Money {
    /// No money.
    pub const ZERO: Self = Self(0);

    /// Creates an amount from millionths.
    pub const fn millionths(millionths: i64) -> Self {
        Self(millionths)
    }

    /// Returns the amount in millionths, the unit that stores use.
    pub const fn to_millionths(self) -> i64 {
        self.0
    }

    /// Returns the amount as a float, accurate enough for display.
    pub fn get(self) -> f64 {
        self.0 as f64 / MILLION as f64
    }
}

impl From<f64> for Money {
    /// Rounds to the nearest millionth; NaN becomes 0.
    fn from(value: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "the cast saturates, and NaN becomes 0")]
        let millionths = (value * MILLION as f64).round() as i64;
        Self(millionths)
    }
}

impl From<Money> for f64 {
    fn from(money: Money) -> Self {
        money.get()
    }
}

impl Add for Money {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self(self.0.saturating_add(more.0))
    }
}

impl Sum for Money {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let (whole, part) =
            (self.0.unsigned_abs() / MILLION.unsigned_abs(), self.0.unsigned_abs() % MILLION.unsigned_abs());
        let part = format!("{part:06}");
        // Shows at least two decimals, because prices are usually written with two decimals.
        let bare = part.trim_end_matches('0');
        let places = bare.len().max(2);
        f.pad(&format!("{sign}{whole}.{part:.places$}"))
    }
}

/// The price of a model. Each field is the price of one million tokens of one kind.
///
/// ```
/// use epitome::model::TokenUsage;
/// use epitome::settings::{Money, Price};
///
/// let price = Price {
///     input: Money::from(2.5),
///     output: Money::from(10.0),
///     cache_read: Money::from(0.25),
///     cache_write: Money::from(2.5),
/// };
/// // 8,000 new input tokens, 2,000 input tokens from the cache, 1,000 output tokens.
/// let cost = price.cost(&TokenUsage { input: 10_000, cached: 2_000, output: 1_000 });
/// assert_eq!(cost.to_string(), "0.0305");
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Price {
    /// Price of tokens that the model reads.
    pub input: Money,
    /// Price of tokens that the model writes.
    pub output: Money,
    /// Price of tokens that are read from the provider's prompt cache. In the settings, the default is the price of
    /// `input`.
    pub cache_read: Money,
    /// Price of tokens that are written to the provider's prompt cache. In the settings, the default is the price of
    /// `input`.
    pub cache_write: Money,
}

impl Price {
    /// The price of a model that costs nothing.
    pub const FREE: Self =
        Self { input: Money::ZERO, output: Money::ZERO, cache_read: Money::ZERO, cache_write: Money::ZERO };

    /// Returns the cost of one call, rounded to the nearest millionth.
    pub fn cost(&self, usage: &TokenUsage) -> Money {
        let TokenUsage { input, cached, output } = *usage;
        self.request_cost(&ReplyUsage { input, cached, cache_written: 0, output })
    }

    /// Returns the cost of a request from its provider's token counts, including tokens written to the prompt cache.
    ///
    /// ```
    /// use epitome::dialect::ReplyUsage;
    /// use epitome::settings::{Money, Price};
    ///
    /// let [input, output, cache_read, cache_write] = [3.0, 15.0, 0.3, 3.75].map(Money::from);
    /// let price = Price { input, output, cache_read, cache_write };
    /// // 1,000 uncached input tokens, 8,000 read from the cache, 1,000 written to the cache, 100 output tokens.
    /// let usage = ReplyUsage { input: 10_000, cached: 8_000, cache_written: 1_000, output: 100 };
    /// assert_eq!(price.request_cost(&usage).to_string(), "0.01065");
    /// ```
    pub fn request_cost(&self, usage: &ReplyUsage) -> Money {
        // Some providers report more cached tokens than total input tokens.
        let cached = usage.cached.min(usage.input);
        let written = usage.cache_written.min(usage.input - cached);
        let parts = [
            (usage.input - cached - written, self.input),
            (cached, self.cache_read),
            (written, self.cache_write),
            (usage.output, self.output),
        ];
        // The parts are summed before rounding.
        let sum = parts.iter().fold(0u128, |sum, (tokens, price)| {
            let price = u128::from(u64::try_from(price.0).unwrap_or(0));
            sum.saturating_add(u128::from(*tokens).saturating_mul(price))
        });
        let million = u128::from(MILLION.unsigned_abs());
        Money(i64::try_from(sum.saturating_add(million / 2) / million).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_formatted_like_a_price() {
        let shown = |millionths| Money::millionths(millionths).to_string();
        assert_eq!(
            [0, 1, 10_000, 2_500_000, -1_234_567].map(shown).join(" "),
            "0.00 0.000001 0.01 2.50 -1.234567"
        );
        assert_eq!(shown(i64::MIN), "-9223372036854.775808");
    }

    #[test]
    fn extreme_numbers_do_not_panic() {
        assert_eq!(Money::from(f64::NAN), Money::ZERO);
        assert_eq!(Money::from(f64::INFINITY) + Money::millionths(1), Money::millionths(i64::MAX));
        let expensive = Price {
            input: Money::millionths(i64::MAX),
            output: Money::millionths(i64::MAX),
            cache_read: Money::millionths(-5),
            cache_write: Money::ZERO,
        };
        let all = TokenUsage { input: u64::MAX, cached: 0, output: u64::MAX };
        assert_eq!(expensive.cost(&all), Money::millionths(i64::MAX));
        let cached = TokenUsage { input: 10, cached: u64::MAX, output: 0 };
        assert_eq!(expensive.cost(&cached), Money::ZERO);
    }

    #[test]
    fn the_cost_of_cheap_tokens_is_summed_before_rounding() {
        let cheap = Price { input: Money::from(0.05), output: Money::from(0.4), ..Price::FREE };
        let cost = |input, output| cheap.cost(&TokenUsage { input, cached: 0, output }).to_millionths();
        assert_eq!((cost(1, 0), cost(10, 0), cost(10, 10), cost(1_000_000, 0)), (0, 1, 5, 50_000));
    }
}
