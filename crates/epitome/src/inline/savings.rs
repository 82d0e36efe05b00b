//! Computes the cost of an answered request, and the cost of the same request with its other message list. A request
//! has two lists: the original list and the condensed list. One of them was sent. The other list is the list that was
//! not sent.
//!
//! The inputs are the provider's token counts and the local token counts of both lists. The output is a [`ProxyUsage`].
//! The cost of the sent list is exact. The cost of the other list is an estimate: its local token count is multiplied
//! by the provider's count of the sent list, and divided by the local count of the sent list.
//!
//! With a prompt cache, the provider would not have billed the other list in full. If earlier replies show that the
//! provider caches prompts, the estimate assumes that the cache contains the other list as it was on the previous turn,
//! and that only the remaining tokens are new. The turn that condenses a list may therefore cost more than it saves.
//! The reported saving is then negative. If the real saving is uncertain, for example because the cache may have
//! expired, the smaller estimate is reported.

use epitome_core::message::Tokens;

use crate::dialect::ReplyUsage;
use crate::settings::Price;
use crate::store::ProxyUsage;

/// Maximum length of a model name, in characters. Longer names are cut, because clients can send any text as a name.
const MAX_NAME_CHARS: usize = 128;

/// The facts about an answered request from which its cost and saving are computed.
///
/// ```
/// use epitome::dialect::ReplyUsage;
/// use epitome::inline::AnsweredRequest;
/// use epitome::settings::{Money, Price};
///
/// let answered = AnsweredRequest {
///     model: "claude-sonnet-4-5",
///     complete: true,
///     // The provider counts 10 % more tokens than the local counter.
///     usage: Some(ReplyUsage { input: 11_000, cached: 0, cache_written: 0, output: 500 }),
///     full: 50_000,
///     sent: 10_000,
///     price: Some(Price { input: Money::from(3.0), output: Money::from(15.0), ..Price::FREE }),
///     ..AnsweredRequest::default()
/// };
/// let usage = answered.proxy_usage();
/// assert_eq!((usage.input, usage.saved), (11_000, 44_000));
/// assert_eq!((usage.cost, usage.saved_cost), (40_500, 132_000)); // millionths
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct AnsweredRequest<'a> {
    /// The requested model.
    pub model: &'a str,
    /// Whether the request was sent in shadow mode: the original list was sent, and the cost of the condensed list is
    /// estimated.
    pub shadow: bool,
    /// Whether the request was sent again with a shorter list, because the provider rejected it as too long.
    pub retried: bool,
    /// Whether the answer was complete.
    pub complete: bool,
    /// The provider's token counts of the request and its answer. `None` if the provider reported none.
    pub usage: Option<ReplyUsage>,
    /// Size in tokens of the whole request with the original list, by the local count.
    pub full: Tokens,
    /// Size in tokens of the whole request with the condensed list, by the local count. In shadow mode, this request is
    /// not sent.
    pub sent: Tokens,
    /// Number of tokens that the provider would have read from its cache if the list that was *not* sent had been sent.
    /// The number is in local tokens. This is the size of that list on the previous turn, or 0 if this turn would have
    /// condensed the list. `None` if no earlier reply of this conversation reported cached tokens.
    pub other_cached: Option<Tokens>,
    /// The model's price; `None` if unknown.
    pub price: Option<Price>,
}

impl AnsweredRequest<'_> {
    /// Returns the numbers that the request adds to the usage of its workspace.
    pub fn proxy_usage(&self) -> ProxyUsage {
        let mut sums = ProxyUsage {
            model: self.model.chars().take(MAX_NAME_CHARS).collect(),
            shadow: self.shadow,
            requests: 1,
            shorter: u64::from(self.sent < self.full),
            retried: u64::from(self.retried),
            cut_off: u64::from(!self.complete),
            uncounted: u64::from(self.usage.is_none()),
            ..ProxyUsage::default()
        };
        let Some(usage) = self.usage else { return sums };
        sums.input = usage.input;
        sums.cached = usage.cached;
        sums.output = usage.output;
        sums.saved = self.saved(&usage);
        if let Some(price) = self.price {
            sums.cost = price.request_cost(&usage).to_millionths();
            sums.saved_cost = self.saved_cost(&usage, &price);
        }
        sums
    }

    /// Returns the difference between the sizes of the two lists, in the provider's tokens.
    fn saved(&self, usage: &ReplyUsage) -> Tokens {
        self.scaled(self.full.saturating_sub(self.sent), usage)
    }

    /// Converts a local token count to the provider's tokens.
    fn scaled(&self, tokens: Tokens, usage: &ReplyUsage) -> Tokens {
        let ours = if self.shadow { self.full } else { self.sent }.max(1);
        let scaled = u128::from(tokens).saturating_mul(u128::from(usage.input)) / u128::from(ours);
        Tokens::try_from(scaled).unwrap_or(Tokens::MAX)
    }

    /// Returns how much more the original list costs than the condensed list, in millionths of the currency unit.
    fn saved_cost(&self, usage: &ReplyUsage, price: &Price) -> i64 {
        let saved = self.saved(usage);
        // Equal lists cost the same, with or without a cache.
        if saved == 0 {
            return 0;
        }
        let Some(cached) = self.other_cached else {
            // No earlier reply shows that the provider caches prompts. The difference is therefore priced like the
            // cheapest kind of input token in this reply.
            let part = ReplyUsage { input: saved, ..ReplyUsage::default() };
            let part = match usage {
                ReplyUsage { cached: 1.., .. } => ReplyUsage { cached: saved, ..part },
                ReplyUsage { cache_written: 1.., .. } => ReplyUsage { cache_written: saved, ..part },
                _ => part,
            };
            return price.request_cost(&part).to_millionths();
        };
        let input =
            if self.shadow { usage.input.saturating_sub(saved) } else { usage.input.saturating_add(saved) };
        let cached = self.scaled(cached, usage).min(input);
        // A provider that reports no cache writes bills no extra price for them.
        let written = if usage.cache_written > 0 { input - cached } else { 0 };
        let other = price.request_cost(&ReplyUsage { input, cached, cache_written: written, output: 0 });
        let own = price.request_cost(&ReplyUsage { output: 0, ..*usage });
        let (full, condensed) = if self.shadow { (own, other) } else { (other, own) };
        full.to_millionths().saturating_sub(condensed.to_millionths())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Money;

    /// Prices per million tokens: 3.00 input, 15.00 output, 0.30 cache read, 3.75 cache write. One token costs 3, 15,
    /// 0.3 or 3.75 millionths.
    fn price() -> Option<Price> {
        let [input, output, cache_read, cache_write] = [3.0, 15.0, 0.3, 3.75].map(Money::from);
        Some(Price { input, output, cache_read, cache_write })
    }

    fn counted(input: Tokens, cached: Tokens, written: Tokens) -> Option<ReplyUsage> {
        Some(ReplyUsage { input, cached, cache_written: written, output: 100 })
    }

    fn answered(full: Tokens, sent: Tokens, usage: Option<ReplyUsage>) -> AnsweredRequest<'static> {
        AnsweredRequest {
            model: "m",
            complete: true,
            usage,
            full,
            sent,
            price: price(),
            ..AnsweredRequest::default()
        }
    }

    /// Checks the saved tokens, and the saved cost in millionths.
    fn check(answered: AnsweredRequest<'_>, saved: Tokens, saved_cost: i64) {
        let usage = answered.proxy_usage();
        assert_eq!((usage.saved, usage.saved_cost), (saved, saved_cost), "{answered:?}");
    }

    #[test]
    fn without_a_cache_savings_have_the_full_price() {
        // 9,000 local tokens are 9,900 of the provider's, at 3 millionths.
        check(answered(10_000, 1_000, counted(1_100, 0, 0)), 9_900, 29_700);
        check(answered(1_000, 1_000, counted(1_100, 0, 0)), 0, 0);
        // In shadow mode, 10,000 local tokens are 11,000 of the provider's, and 9,000 local ones would have been left
        // out.
        check(
            AnsweredRequest { shadow: true, ..answered(10_000, 1_000, counted(11_000, 0, 0)) },
            9_900,
            29_700,
        );
    }

    #[test]
    fn with_a_cache_the_previous_list_would_have_been_read_from_it() {
        // The turn that condenses: 100,000 read and 1,000 written (33,750) against 20,000 written (75,000).
        let swap = answered(101_000, 20_000, counted(20_000, 0, 20_000));
        check(AnsweredRequest { other_cached: Some(100_000), ..swap }, 81_000, 33_750 - 75_000);
        // The turn after: 101,000 read and 1,000 written (34,050) against 20,000 read and 1,000 written (9,750).
        let next = answered(102_000, 21_000, counted(21_000, 20_000, 1_000));
        check(AnsweredRequest { other_cached: Some(101_000), ..next }, 81_000, 34_050 - 9_750);
        // Without reported cache writes, new tokens have the plain price: 30,300 and 3,000 against 6,000 and 3,000.
        let next = answered(102_000, 21_000, counted(21_000, 20_000, 0));
        check(AnsweredRequest { other_cached: Some(101_000), ..next }, 81_000, 33_300 - 9_000);
        // The provider counts twice as many tokens, so all numbers double.
        let twice = answered(102_000, 21_000, counted(42_000, 40_000, 2_000));
        check(AnsweredRequest { other_cached: Some(101_000), ..twice }, 162_000, 2 * (34_050 - 9_750));
    }

    #[test]
    fn for_a_new_conversation_the_smaller_estimate_is_reported() {
        check(answered(102_000, 21_000, counted(21_000, 20_000, 1_000)), 81_000, 24_300);
        check(answered(102_000, 21_000, counted(21_000, 0, 21_000)), 81_000, 303_750);
    }

    #[test]
    fn in_shadow_mode_the_condensed_list_is_estimated() {
        // 101,000 read and 1,000 written (34,050) were paid; 20,000 read and 1,000 written (9,750) would have been.
        let next =
            AnsweredRequest { shadow: true, ..answered(102_000, 21_000, counted(102_000, 101_000, 1_000)) };
        check(AnsweredRequest { other_cached: Some(20_000), ..next }, 81_000, 34_050 - 9_750);
        // On the turn that condenses, all 21,000 would have been written (78,750).
        check(AnsweredRequest { other_cached: Some(0), ..next }, 81_000, 34_050 - 78_750);
    }

    #[test]
    fn an_unchanged_list_saves_nothing_even_with_a_cold_cache() {
        check(
            AnsweredRequest {
                other_cached: Some(90_000),
                ..answered(100_000, 100_000, counted(100_000, 0, 100_000))
            },
            0,
            0,
        );
    }

    #[test]
    fn missing_counts_and_prices_add_nothing_to_the_sums() {
        let full = answered(10_000, 1_000, None);
        let usage = AnsweredRequest { retried: true, complete: false, ..full }.proxy_usage();
        let expected = ProxyUsage {
            model: "m".to_owned(),
            requests: 1,
            shorter: 1,
            retried: 1,
            cut_off: 1,
            uncounted: 1,
            ..ProxyUsage::default()
        };
        assert_eq!(usage, expected);
        let unpriced =
            AnsweredRequest { price: None, ..answered(10_000, 1_000, counted(1_100, 600, 0)) }.proxy_usage();
        assert_eq!(
            (unpriced.input, unpriced.cached, unpriced.output, unpriced.saved),
            (1_100, 600, 100, 9_900)
        );
        assert_eq!((unpriced.cost, unpriced.saved_cost, unpriced.uncounted, unpriced.cut_off), (0, 0, 0, 0));
        let long = "x".repeat(10_000);
        assert_eq!(AnsweredRequest { model: &long, ..full }.proxy_usage().model.len(), MAX_NAME_CHARS);
    }

    #[test]
    fn extreme_numbers_do_not_panic() {
        let odd = [0, 1, u64::MAX];
        let expensive = [Money::millionths(i64::MAX), Money::ZERO, Money::millionths(-5)];
        for full in odd {
            for sent in odd {
                for input in odd {
                    for cached in odd {
                        for other_cached in [None, Some(0), Some(u64::MAX)] {
                            for (price, shadow) in expensive.into_iter().zip([true, false, true]) {
                                let price = Price {
                                    input: price,
                                    output: price,
                                    cache_read: price,
                                    cache_write: price,
                                };
                                let usage =
                                    Some(ReplyUsage { input, cached, cache_written: cached, output: input });
                                let answered = AnsweredRequest {
                                    other_cached,
                                    shadow,
                                    price: Some(price),
                                    ..answered(full, sent, usage)
                                };
                                let usage = answered.proxy_usage();
                                assert!(usage.cost >= 0 && (sent < full || usage.saved == 0), "{answered:?}");
                            }
                        }
                    }
                }
            }
        }
    }
}
