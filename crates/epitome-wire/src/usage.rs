//! Reads a provider's token counts.

use epitome_core::message::Tokens;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A provider's token counts for one call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tally {
    /// The whole prompt, including tokens read from a cache.
    pub input: Tokens,
    /// The part of `input` that was read from a cache.
    pub cached: Tokens,
    /// The output tokens, including reasoning.
    pub output: Tokens,
}

/// Maximum plausible token count of a call. A larger number is an error, and so would be its cost.
const MOST: Tokens = 1_000_000_000;

/// Token counts as they arrive, possibly in several events.
#[derive(Debug, Default, Clone, Copy)]
pub struct Usage {
    /// Input tokens that are not included in the two fields below.
    pub input: Option<Tokens>,
    /// Input tokens read from a cache, not included in `input`.
    pub cache_read: Option<Tokens>,
    /// Input tokens written to a cache, not included in `input`.
    pub cache_write: Option<Tokens>,
    /// Output tokens.
    pub output: Option<Tokens>,
}

impl Usage {
    /// Returns the sums; `None` if they are not plausible.
    pub fn tally(&self) -> Option<Tally> {
        let sensible = |tokens: Option<Tokens>| tokens.unwrap_or(0) <= MOST;
        if ![self.input, self.cache_read, self.cache_write, self.output].into_iter().all(sensible) {
            return None;
        }
        let cached = self.cache_read.unwrap_or(0);
        let input = self.input? + cached + self.cache_write.unwrap_or(0);
        // Some servers send the fields with zeros.
        (input > 0).then_some(Tally { input, cached, output: self.output.unwrap_or(0) })
    }

    /// Replaces the counts by complete new ones, if those contain an input count.
    pub(crate) fn replace(&mut self, other: Self) {
        if other.input.is_some() {
            *self = other;
        }
    }

    /// Splits a total input count into uncached, read and written tokens. Some providers report cached counts
    /// larger than the total; these are limited to it.
    pub(crate) fn parted(
        all: Option<Tokens>,
        read: Option<Tokens>,
        write: Option<Tokens>,
        output: Option<Tokens>,
    ) -> Self {
        let cache_read = read.map(|read| read.min(all.unwrap_or(0)));
        let rest = all.map(|all| all - cache_read.unwrap_or(0));
        let cache_write = write.map(|write| write.min(rest.unwrap_or(0)));
        Self { input: rest.map(|rest| rest - cache_write.unwrap_or(0)), cache_read, cache_write, output }
    }
}

/// Reads a count. A value that is not a count becomes the maximum, which is rejected as implausible.
pub(crate) fn tokens(value: Option<&Value>) -> Option<Tokens> {
    let value = value.filter(|value| !value.is_null())?;
    Some(value.as_u64().unwrap_or(Tokens::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;
    use serde_json::json;

    fn counted(dialect: Dialect, said: &[Value]) -> Usage {
        let mut usage = Usage::default();
        said.iter().for_each(|said| dialect.format().count(&json!({ "usage": said }), &mut usage));
        usage
    }

    fn openai(said: &Value) -> Usage {
        counted(Dialect::OPENAI, std::slice::from_ref(said))
    }

    fn tally(input: Tokens, cached: Tokens, output: Tokens) -> Option<Tally> {
        Some(Tally { input, cached, output })
    }

    #[test]
    fn what_openai_counts_holds_the_cache_and_what_anthropic_counts_does_not() {
        let usage = json!({"prompt_tokens": 100, "completion_tokens": 20,
            "prompt_tokens_details": {"cached_tokens": 60}});
        assert_eq!(openai(&usage).tally(), tally(100, 60, 20));
        let mut said = vec![
            json!({"input_tokens": 40, "cache_read_input_tokens": 60,
                "cache_creation_input_tokens": 5, "output_tokens": 1}),
            json!({"output_tokens": 20}),
        ];
        assert_eq!(counted(Dialect::ANTHROPIC, &said).tally(), tally(105, 60, 20));
        said.push(json!({"input_tokens": 0, "output_tokens": 21}));
        assert_eq!(counted(Dialect::ANTHROPIC, &said).tally(), tally(105, 60, 21));
    }

    #[test]
    fn other_servers_places_for_what_was_cached_are_known() {
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
            let heard = openai(&usage);
            assert_eq!((heard.tally(), heard.cache_write), (tally(100, read, 0), write), "{usage}");
        }
    }

    #[test]
    fn absent_and_absurd_numbers_count_for_nothing() {
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
            assert_eq!(openai(&usage).tally(), None, "{usage}");
        }
        let more_cached = json!({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 99}});
        assert_eq!(openai(&more_cached).tally(), tally(10, 10, 0));
        let absurd = json!({"input_tokens": u64::MAX, "cache_read_input_tokens": u64::MAX});
        assert_eq!(counted(Dialect::ANTHROPIC, &[absurd]).tally(), None);
    }
}
