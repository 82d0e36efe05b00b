//! Reads a provider's token counts.

use epitome_core::message::Tokens;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A provider's token counts for one call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TokenUsage {
    /// The whole prompt, including tokens read from a cache.
    pub input: Tokens,
    /// The tokens of `input` that were read from a cache.
    pub cached: Tokens,
    /// The output tokens, including reasoning.
    pub output: Tokens,
}

/// Maximum plausible token count of a call. A larger count is an error of the provider, and would make the
/// calculated cost wrong.
const MAX_PLAUSIBLE: Tokens = 1_000_000_000;

/// The token counts of one answer, which may arrive in several events. A count is `None` until it arrives.
#[derive(Debug, Default, Clone, Copy)]
pub struct PartialUsage {
    /// Input tokens that were neither read from a cache nor written to a cache.
    pub input: Option<Tokens>,
    /// Input tokens read from a cache, not included in `input`.
    pub cache_read: Option<Tokens>,
    /// Input tokens written to a cache, not included in `input`.
    pub cache_write: Option<Tokens>,
    /// Output tokens.
    pub output: Option<Tokens>,
}

impl PartialUsage {
    /// Returns the total counts. `None` if the input count is missing, if all input counts are 0, or if a count
    /// is not plausible.
    pub fn total(&self) -> Option<TokenUsage> {
        let plausible = |tokens: Option<Tokens>| tokens.unwrap_or(0) <= MAX_PLAUSIBLE;
        if ![self.input, self.cache_read, self.cache_write, self.output].into_iter().all(plausible) {
            return None;
        }
        let cached = self.cache_read.unwrap_or(0);
        let input = self.input? + cached + self.cache_write.unwrap_or(0);
        // Some servers do not count tokens and send zeros in these fields.
        (input > 0).then_some(TokenUsage { input, cached, output: self.output.unwrap_or(0) })
    }

    /// Replaces all counts with `other`, if `other` contains an input count.
    pub(crate) fn replace(&mut self, other: Self) {
        if other.input.is_some() {
            *self = other;
        }
    }

    /// Creates counts from `total`, the number of all input tokens. The total includes `read` tokens that were
    /// read from a cache and `write` tokens that were written to a cache. Some providers report larger cache
    /// counts than the total. These counts are reduced so that their sum is not larger than the total.
    pub(crate) fn from_total(
        total: Option<Tokens>,
        read: Option<Tokens>,
        write: Option<Tokens>,
        output: Option<Tokens>,
    ) -> Self {
        let cache_read = read.map(|read| read.min(total.unwrap_or(0)));
        let rest = total.map(|total| total - cache_read.unwrap_or(0));
        let cache_write = write.map(|write| write.min(rest.unwrap_or(0)));
        Self { input: rest.map(|rest| rest - cache_write.unwrap_or(0)), cache_read, cache_write, output }
    }
}

/// Reads a token count. `None` if the value is missing or null. A value that is not a count becomes the largest
/// number, which [`PartialUsage::total`] rejects as implausible.
pub(crate) fn tokens(value: Option<&Value>) -> Option<Tokens> {
    let value = value.filter(|value| !value.is_null())?;
    Some(value.as_u64().unwrap_or(Tokens::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;
    use serde_json::json;

    fn counted(dialect: Dialect, said: &[Value]) -> PartialUsage {
        let mut usage = PartialUsage::default();
        said.iter().for_each(|said| dialect.format().read_usage(&json!({ "usage": said }), &mut usage));
        usage
    }

    fn openai(said: &Value) -> PartialUsage {
        counted(Dialect::OPENAI, std::slice::from_ref(said))
    }

    fn total(input: Tokens, cached: Tokens, output: Tokens) -> Option<TokenUsage> {
        Some(TokenUsage { input, cached, output })
    }

    #[test]
    fn openai_includes_cached_tokens_in_the_input_and_anthropic_does_not() {
        let usage = json!({"prompt_tokens": 100, "completion_tokens": 20,
            "prompt_tokens_details": {"cached_tokens": 60}});
        assert_eq!(openai(&usage).total(), total(100, 60, 20));
        let mut said = vec![
            json!({"input_tokens": 40, "cache_read_input_tokens": 60,
                "cache_creation_input_tokens": 5, "output_tokens": 1}),
            json!({"output_tokens": 20}),
        ];
        assert_eq!(counted(Dialect::ANTHROPIC, &said).total(), total(105, 60, 20));
        said.push(json!({"input_tokens": 0, "output_tokens": 21}));
        assert_eq!(counted(Dialect::ANTHROPIC, &said).total(), total(105, 60, 21));
    }

    #[test]
    fn cached_counts_of_other_servers_are_read() {
        for (usage, read, write) in [
            (
                json!({"prompt_tokens": 100, "prompt_cache_hit_tokens": 60, "prompt_cache_miss_tokens": 40}),
                60,
                None,
            ),
            (json!({"prompt_tokens": 100, "cached_tokens": 60}), 60, None),
            (
                json!({"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30}}),
                60,
                Some(30),
            ),
            (
                json!({"prompt_tokens": 100, "cache_creation_input_tokens": 99,
                    "prompt_tokens_details": {"cached_tokens": 60}}),
                60,
                Some(40),
            ),
        ] {
            let counted = openai(&usage);
            assert_eq!((counted.total(), counted.cache_write), (total(100, read, 0), write), "{usage}");
        }
    }

    #[test]
    fn missing_and_implausible_counts_give_no_usage() {
        for usage in [
            json!(null),
            json!({}),
            json!({"prompt_tokens": null, "completion_tokens": 4}),
            json!({"prompt_tokens": -4, "completion_tokens": 4}),
            json!({"prompt_tokens": "many", "completion_tokens": 4}),
            json!({"prompt_tokens": 0, "completion_tokens": 0}),
            json!({"prompt_tokens": 10, "completion_tokens": 9_000_000_000u64}),
            json!({"prompt_tokens": u64::MAX, "completion_tokens": u64::MAX}),
        ] {
            assert_eq!(openai(&usage).total(), None, "{usage}");
        }
        let more_cached = json!({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 99}});
        assert_eq!(openai(&more_cached).total(), total(10, 10, 0));
        let absurd = json!({"input_tokens": u64::MAX, "cache_read_input_tokens": u64::MAX});
        assert_eq!(counted(Dialect::ANTHROPIC, &[absurd]).total(), None);
    }
}
