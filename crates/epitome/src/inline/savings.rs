//! What a request that was answered came to, and what it would have come to otherwise.
//!
//! Pure: the provider's counters and our sizes of two lists go in, a [`Passed`] to be added up comes out. Of the two lists one was
//! sent, and what it cost is known. The other is reckoned: as many tokens as the provider would have counted for it, where it
//! counts as it did for the one that was sent.
//!
//! With a cache the other list would not have been paid in full. What it had been the last time would have been read from the
//! cache, if replies show that there is one; the rest would have been new. So the turn on which a list is condensed may cost more
//! than it saves, and is told so. Where the truth is not known (a cache that had gone cold), the smaller saving is told.

use epitome_core::message::Tokens;

use crate::dialect::Counted;
use crate::settings::Price;
use crate::store::Passed;

/// Longer names of models are cut, in characters: they are whatever a client sent.
const LONGEST_NAME: usize = 128;

/// A request that was answered.
///
/// ```
/// use epitome::dialect::Counted;
/// use epitome::inline::Answered;
/// use epitome::settings::{Money, Price};
///
/// let answered = Answered {
///     model: "claude-sonnet-4-5",
///     complete: true,
///     // The provider counts a tenth more than we do.
///     counted: Some(Counted { input: 11_000, cached: 0, written: 0, output: 500 }),
///     full: 50_000,
///     sent: 10_000,
///     price: Some(Price { input: Money::from(3.0), output: Money::from(15.0), ..Price::FREE }),
///     ..Answered::default()
/// };
/// let passed = answered.passed();
/// assert_eq!((passed.input, passed.saved), (11_000, 44_000));
/// assert_eq!((passed.cost, passed.saved_cost), (40_500, 132_000)); // millionths
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Answered<'a> {
    /// The model that was asked for.
    pub model: &'a str,
    /// Whether the list went out as it came, and only what would have been is reckoned.
    pub shadow: bool,
    /// Whether it was sent a second time, shorter, because the provider found it too long.
    pub retried: bool,
    /// Whether the answer came to its end.
    pub complete: bool,
    /// What the provider counted for the list that was sent, where it told.
    pub counted: Option<Counted>,
    /// The size of the whole request with the list as it came, by our count.
    pub full: Tokens,
    /// The same with the condensed list, whether it was sent or only would have been.
    pub sent: Tokens,
    /// How much of the list that was *not* sent would have been in the provider's cache, by our count: its size the last time,
    /// or nothing where it would have been condensed anew. `None` where no earlier reply of this conversation showed cached
    /// tokens.
    pub before: Option<Tokens>,
    /// What the model costs, where that is known.
    pub price: Option<Price>,
}

impl Answered<'_> {
    /// What it adds to the sums.
    pub fn passed(&self) -> Passed {
        let mut passed = Passed {
            model: self.model.chars().take(LONGEST_NAME).collect(),
            shadow: self.shadow,
            requests: 1,
            shorter: u64::from(self.sent < self.full),
            retried: u64::from(self.retried),
            cut_off: u64::from(!self.complete),
            uncounted: u64::from(self.counted.is_none()),
            ..Passed::default()
        };
        let Some(counted) = self.counted else { return passed };
        passed.input = counted.input;
        passed.cached = counted.cached;
        passed.output = counted.output;
        passed.saved = self.saved(&counted);
        if let Some(price) = self.price {
            passed.cost = price.counted(&counted).to_millionths();
            passed.saved_cost = self.saved_cost(&counted, &price);
        }
        passed
    }

    /// How many tokens the two lists are apart, as the provider counts.
    fn saved(&self, counted: &Counted) -> Tokens {
        self.scaled(self.full.saturating_sub(self.sent), counted)
    }

    /// A number of our tokens as the provider would have counted them.
    fn scaled(&self, tokens: Tokens, counted: &Counted) -> Tokens {
        let ours = if self.shadow { self.full } else { self.sent }.max(1);
        let scaled = u128::from(tokens).saturating_mul(u128::from(counted.input)) / u128::from(ours);
        Tokens::try_from(scaled).unwrap_or(Tokens::MAX)
    }

    /// How much more the full list costs than the condensed one, in millionths.
    fn saved_cost(&self, counted: &Counted, price: &Price) -> i64 {
        let saved = self.saved(counted);
        // The same list costs the same, whatever the cache did.
        if saved == 0 {
            return 0;
        }
        let Some(before) = self.before else {
            // Nothing is known but this reply: what is apart is taken to be as the cheapest of it.
            let part = Counted { input: saved, ..Counted::default() };
            let part = match counted {
                Counted { cached: 1.., .. } => Counted { cached: saved, ..part },
                Counted { written: 1.., .. } => Counted { written: saved, ..part },
                _ => part,
            };
            return price.counted(&part).to_millionths();
        };
        let input = if self.shadow {
            counted.input.saturating_sub(saved)
        } else {
            counted.input.saturating_add(saved)
        };
        let cached = self.scaled(before, counted).min(input);
        // Who tells of no writes is paid none.
        let written = if counted.written > 0 { input - cached } else { 0 };
        let other = price.counted(&Counted { input, cached, written, output: 0 });
        let own = price.counted(&Counted { output: 0, ..*counted });
        let (full, condensed) = if self.shadow { (own, other) } else { (other, own) };
        full.to_millionths().saturating_sub(condensed.to_millionths())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Money;

    /// For a million tokens: 3.00 in, 15.00 out, 0.30 from the cache, 3.75 into it. A token costs 3, 15, 0.3, 3.75 millionths.
    fn price() -> Option<Price> {
        let [input, output, cache_read, cache_write] = [3.0, 15.0, 0.3, 3.75].map(Money::from);
        Some(Price { input, output, cache_read, cache_write })
    }

    fn counted(input: Tokens, cached: Tokens, written: Tokens) -> Option<Counted> {
        Some(Counted { input, cached, written, output: 100 })
    }

    fn answered(full: Tokens, sent: Tokens, counted: Option<Counted>) -> Answered<'static> {
        Answered { model: "m", complete: true, counted, full, sent, price: price(), ..Answered::default() }
    }

    /// Tokens saved, and millionths.
    fn check(answered: Answered<'_>, saved: Tokens, saved_cost: i64) {
        let passed = answered.passed();
        assert_eq!((passed.saved, passed.saved_cost), (saved, saved_cost), "{answered:?}");
    }

    #[test]
    fn without_a_cache_what_is_saved_is_saved_at_the_full_price() {
        // 9,000 of ours are 9,900 of theirs, at 3.
        check(answered(10_000, 1_000, counted(1_100, 0, 0)), 9_900, 29_700);
        check(answered(1_000, 1_000, counted(1_100, 0, 0)), 0, 0);
        // In the shadow 10,000 of ours are 11,000 of theirs, and 9,000 of them would have been left out.
        check(Answered { shadow: true, ..answered(10_000, 1_000, counted(11_000, 0, 0)) }, 9_900, 29_700);
    }

    #[test]
    fn with_a_cache_the_list_before_would_have_been_read_from_it() {
        // The turn of a swap: 100,000 read and 1,000 written (33,750) against 20,000 written (75,000).
        let swap = answered(101_000, 20_000, counted(20_000, 0, 20_000));
        check(Answered { before: Some(100_000), ..swap }, 81_000, 33_750 - 75_000);
        // The turn after: 101,000 read and 1,000 written (34,050) against 20,000 read and 1,000 written (9,750).
        let next = answered(102_000, 21_000, counted(21_000, 20_000, 1_000));
        check(Answered { before: Some(101_000), ..next }, 81_000, 34_050 - 9_750);
        // Where nobody tells of writes, what is new is plain: 30,300 and 3,000 against 6,000 and 3,000.
        let next = answered(102_000, 21_000, counted(21_000, 20_000, 0));
        check(Answered { before: Some(101_000), ..next }, 81_000, 33_300 - 9_000);
        // Their count is twice ours: all of it is.
        let twice = answered(102_000, 21_000, counted(42_000, 40_000, 2_000));
        check(Answered { before: Some(101_000), ..twice }, 162_000, 2 * (34_050 - 9_750));
    }

    #[test]
    fn of_a_conversation_that_is_new_to_us_the_smaller_saving_is_told() {
        check(answered(102_000, 21_000, counted(21_000, 20_000, 1_000)), 81_000, 24_300);
        check(answered(102_000, 21_000, counted(21_000, 0, 21_000)), 81_000, 303_750);
    }

    #[test]
    fn in_the_shadow_it_is_reckoned_the_other_way() {
        // 101,000 read and 1,000 written (34,050) were paid; 20,000 read and 1,000 written (9,750) would have been.
        let next = Answered { shadow: true, ..answered(102_000, 21_000, counted(102_000, 101_000, 1_000)) };
        check(Answered { before: Some(20_000), ..next }, 81_000, 34_050 - 9_750);
        // On the turn of the swap all 21,000 would have been written (78,750).
        check(Answered { before: Some(0), ..next }, 81_000, 34_050 - 78_750);
    }

    #[test]
    fn a_list_that_went_out_as_it_came_saves_nothing_though_the_cache_was_cold() {
        check(
            Answered { before: Some(90_000), ..answered(100_000, 100_000, counted(100_000, 0, 100_000)) },
            0,
            0,
        );
    }

    #[test]
    fn what_happened_is_counted_and_what_is_not_known_is_not() {
        let full = answered(10_000, 1_000, None);
        let passed = Answered { retried: true, complete: false, ..full }.passed();
        let expected = Passed {
            model: "m".to_owned(),
            requests: 1,
            shorter: 1,
            retried: 1,
            cut_off: 1,
            uncounted: 1,
            ..Passed::default()
        };
        assert_eq!(passed, expected);
        let unpriced = Answered { price: None, ..answered(10_000, 1_000, counted(1_100, 600, 0)) }.passed();
        assert_eq!(
            (unpriced.input, unpriced.cached, unpriced.output, unpriced.saved),
            (1_100, 600, 100, 9_900)
        );
        assert_eq!((unpriced.cost, unpriced.saved_cost, unpriced.uncounted, unpriced.cut_off), (0, 0, 0, 0));
        let long = "x".repeat(10_000);
        assert_eq!(Answered { model: &long, ..full }.passed().model.len(), LONGEST_NAME);
    }

    #[test]
    fn no_number_brings_it_to_fall() {
        let odd = [0, 1, u64::MAX];
        let dear = [Money::millionths(i64::MAX), Money::ZERO, Money::millionths(-5)];
        for full in odd {
            for sent in odd {
                for input in odd {
                    for cached in odd {
                        for before in [None, Some(0), Some(u64::MAX)] {
                            for (price, shadow) in dear.into_iter().zip([true, false, true]) {
                                let price = Price {
                                    input: price,
                                    output: price,
                                    cache_read: price,
                                    cache_write: price,
                                };
                                let counted = Some(Counted { input, cached, written: cached, output: input });
                                let answered = Answered {
                                    before,
                                    shadow,
                                    price: Some(price),
                                    ..answered(full, sent, counted)
                                };
                                let passed = answered.passed();
                                assert!(
                                    passed.cost >= 0 && (sent < full || passed.saved == 0),
                                    "{answered:?}"
                                );
                            }
                        }
                    }
                }
            }
        }
    }
}
