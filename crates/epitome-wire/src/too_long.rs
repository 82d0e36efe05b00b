//! Whether a request of somebody else's was refused because it is too long, and how long it may be.
//!
//! For who forwards requests: a list that is too long can be condensed and sent once more, anything else is the caller's
//! matter. What the signs are is known next door, in `error_text`.

use epitome_core::message::Tokens;
use serde_json::Value;

use crate::error_text::ErrorText;

/// More of an error is not read, in bytes.
const LARGEST_ERROR: usize = 64 << 10;

/// A request that its provider found too long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TooLong {
    /// How many tokens of input were sent, as the provider counts, where it says so.
    pub sent: Option<Tokens>,
    /// How many tokens of input it takes, where it says so. Where it told a limit for input and answer together, the room
    /// that was asked for the answer is taken off. A limit that is not below `sent` is left out: it was not the one that
    /// was passed.
    pub limit: Option<Tokens>,
}

impl TooLong {
    /// The same for the failure in a reply that began well: what is in
    /// [`Heard::failed`](crate::Heard::failed), or a body with an `error` and the status 200.
    ///
    /// ```
    /// use epitome_wire::TooLong;
    /// use serde_json::json;
    ///
    /// let failed = json!({"code": "context_length_exceeded", "message": "Your input exceeds the context window."});
    /// assert_eq!(TooLong::told(&failed), Some(TooLong::default()));
    /// assert_eq!(TooLong::told(&json!({"type": "overloaded_error"})), None);
    /// ```
    #[must_use]
    pub fn told(failed: &Value) -> Option<Self> {
        let told = ErrorText::of(failed);
        of(told.status().unwrap_or(400), &told)
    }
}

/// Whether an answer of this status, with this body or the beginning of it, says that the request was too long for the
/// model, or for whoever is in between: the same will not be taken again, and a shorter one may be.
///
/// Nothing of what it says is passed on but numbers. A body that is not JSON is looked at for the same words.
///
/// ```
/// use epitome_wire::{TooLong, too_long};
///
/// let body = br#"{"error": {"code": "context_length_exceeded", "message": "This model's maximum context length is 8192
///     tokens. However, you requested 9000 tokens (8000 in the messages, 1000 in the completion)."}}"#;
/// let found = too_long(400, body).unwrap_or_default();
/// assert_eq!((found.sent, found.limit), (Some(8_000), Some(7_192)));
///
/// assert_eq!(too_long(413, b"<html>Payload Too Large</html>"), Some(TooLong::default()));
/// assert_eq!(too_long(429, br#"{"error": {"code": "rate_limit_exceeded"}}"#), None);
/// ```
#[must_use]
pub fn too_long(status: u16, body: &[u8]) -> Option<TooLong> {
    if status == 200 {
        let body: Value = (body.len() <= LARGEST_ERROR).then(|| serde_json::from_slice(body).ok())??;
        return body.get("error").filter(|error| !error.is_null()).and_then(|_| TooLong::told(&body));
    }
    // Most answers are none of these, and are not read.
    if !matches!(status, 400 | 413 | 422 | 429 | 500) {
        return None;
    }
    of(status, &ErrorText::read_words(body.get(..LARGEST_ERROR).unwrap_or(body)))
}

fn of(status: u16, told: &ErrorText) -> Option<TooLong> {
    if !told.is_too_long(status) {
        return None;
    }
    let sizes = told.sizes();
    let less_output = |tokens: Tokens| {
        let left = tokens.saturating_sub(sizes.output.unwrap_or(0));
        (left > 0).then_some(left)
    };
    let sent = if sizes.is_input { sizes.sent } else { sizes.sent.and_then(less_output) };
    let limit = sizes.limit.and_then(less_output);
    Some(TooLong { sent, limit: limit.filter(|limit| sent.is_none_or(|sent| sent > *limit)) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(message: &str, sent: Option<Tokens>, limit: Option<Tokens>) {
        let expected = Some(TooLong { sent, limit });
        let body = json!({"error": {"message": message}});
        assert_eq!(too_long(400, body.to_string().as_bytes()), expected, "{message}");
        assert_eq!(TooLong::told(&body), expected, "{message}");
        assert_eq!(too_long(400, message.as_bytes()), expected, "as plain words: {message}");
    }

    #[test]
    fn providers_words_are_known_and_their_limit_is_told_for_the_input_alone() {
        // OpenAI, Anthropic.
        check(
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 131072 tokens \
             (130000 in the messages, 1072 in the functions). Please reduce the length of the messages.",
            Some(131_072),
            Some(128_000),
        );
        check(
            "This model's maximum context length is 4097 tokens, however you requested 4362 tokens (3338 in your \
             prompt; 1024 for the completion).",
            Some(3_338),
            Some(3_073),
        );
        check("Your input exceeds the context window of this model. Please adjust your input.", None, None);
        check("prompt is too long: 210000 tokens > 200000 maximum", Some(210_000), Some(200_000));
        check(
            "input length and `max_tokens` exceed context limit: 199000 + 4000 > 200000, decrease input length",
            Some(199_000),
            Some(196_000),
        );
        // vLLM, older and newer; SGLang; LM Studio; text-generation-inference.
        check(
            "'max_tokens' or 'max_completion_tokens' is too large: 4000. This model's maximum context length is 8192 \
             tokens and your request has 5000 input tokens (4000 > 8192 - 5000).",
            Some(5_000),
            Some(4_192),
        );
        check(
            "This model's maximum context length is 8192 tokens. However, you requested 4000 output tokens and your \
             prompt contains at least 5000 input tokens, for a total of at least 9000 tokens.",
            Some(5_000),
            Some(4_192),
        );
        check(
            "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of \
             5000 tokens: 4000 tokens from the input messages and 1000 tokens for the completion.",
            Some(4_000),
            Some(3_096),
        );
        check(
            "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
            Some(5_000),
            Some(4_096),
        );
        check(
            "Trying to keep the first 5000 tokens. However, the model is loaded with context length of only 4096 \
             tokens, and that is greater than the context length",
            Some(5_000),
            Some(4_096),
        );
        check(
            "`inputs` tokens + `max_new_tokens` must be <= 8193. Given: 8000 `inputs` tokens and 1000 `max_new_tokens`",
            Some(8_000),
            Some(7_193),
        );
        // Gemini, Mistral, xAI, Moonshot, Fireworks, Qwen, Copilot, OpenRouter.
        check(
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            Some(1_200_000),
            Some(1_048_576),
        );
        check(
            "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
            Some(40_000),
            Some(32_768),
        );
        check(
            "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
            Some(140_000),
            Some(131_072),
        );
        check(
            "Your request exceeded model token limit: 131072 (requested: 140000)",
            Some(140_000),
            Some(131_072),
        );
        check(
            "The prompt is too long: 140000, model maximum context length: 131071",
            Some(140_000),
            Some(131_071),
        );
        check("Range of input length should be [1, 98304]", None, Some(98_304));
        check("prompt token count of 140000 exceeds the limit of 128000", Some(140_000), Some(128_000));
        check(
            "This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens \
             (135000 of text input, 5000 in the output).",
            Some(135_000),
            Some(126_072),
        );
    }

    #[test]
    fn a_limit_that_was_not_passed_or_leaves_nothing_is_not_told() {
        check(
            "maximum context length is 8192 tokens; your messages resulted in 8000 tokens",
            Some(8_000),
            None,
        );
        check("maximum context length is 4096 tokens: you requested 9000 output tokens", None, None);
    }

    #[test]
    fn what_a_gateway_was_told_is_read_too() {
        let raw = r#"{"error":{"message":"prompt is too long: 9000 tokens > 8000 maximum"}}"#;
        let found = Some(TooLong { sent: Some(9_000), limit: Some(8_000) });
        for body in [
            json!({"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw}}}),
            json!({"detail": "prompt is too long: 9000 tokens > 8000 maximum"}),
            json!([{"error": {"message": "prompt is too long: 9000 tokens > 8000 maximum"}}]),
        ] {
            assert_eq!(too_long(400, body.to_string().as_bytes()), found, "{body}");
        }
        let many = json!({"error": {"code": "array_above_max_length", "message": "array too long"}});
        assert_eq!(too_long(400, many.to_string().as_bytes()), Some(TooLong::default()));
    }

    #[test]
    fn a_limit_in_bytes_is_too_long_and_says_nothing_of_tokens() {
        for body in [
            "",
            "<html><h1>413 Request Entity Too Large</h1><hr>nginx/1.25.3</html>",
            r#"{"error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}"#,
            r#"{"message": "Body of 12000000 bytes exceeds the limit of 10485760 bytes"}"#,
        ] {
            assert_eq!(too_long(413, body.as_bytes()), Some(TooLong::default()), "{body}");
        }
    }

    #[test]
    fn whatever_else_is_wrong_is_not_too_long() {
        let long = r#"{"error": {"message": "prompt is too long: 9000 tokens > 8000 maximum"}}"#;
        for status in [201, 301, 401, 402, 403, 404, 408, 429, 503, 529] {
            assert_eq!(too_long(status, long.as_bytes()), None, "{status}");
        }
        for message in [
            "max_tokens: 9000 > 8192, which is the maximum allowed number of output tokens for this model",
            "max_tokens is too large: 100000. This model supports at most 16384 completion tokens",
            "messages: roles must alternate between \"user\" and \"assistant\"",
        ] {
            let body = json!({"error": {"message": message}}).to_string();
            assert_eq!(too_long(400, body.as_bytes()), None, "{message}");
        }
        let limited =
            |message: &str| too_long(429, json!({"error": {"message": message}}).to_string().as_bytes());
        assert_eq!(
            limited("Rate limit, tokens per min (TPM): Limit 30000, Used 29000, Requested 4000."),
            None
        );
        let never = limited("Request too large on tokens per min (TPM): Limit 30000, Requested 44000.");
        assert_eq!(never, Some(TooLong { sent: Some(44_000), limit: Some(30_000) }));
    }

    #[test]
    fn a_reply_of_200_is_too_long_only_by_its_error() {
        let long = r#"{"error": {"message": "prompt is too long: 9000 tokens > 8000 maximum"}}"#;
        assert_eq!(too_long(200, long.as_bytes()).unwrap().limit, Some(8_000));
        let said = r#"{"error": null, "type": "message", "message": "The prompt is too long: 9 tokens > 8"}"#;
        assert_eq!(too_long(200, said.as_bytes()), None);
        assert_eq!(too_long(200, b"prompt is too long: 9000 tokens > 8000"), None);
    }

    #[test]
    fn no_more_is_read_than_its_beginning() {
        let begin = r#"{"error": {"message": "prompt is too long: 9000 tokens > 8000 maximum", "quoted": ""#;
        let mut body = begin.as_bytes().to_vec();
        body.resize(1 << 20, b'x');
        assert_eq!(too_long(400, &body).unwrap().limit, Some(8_000));
        let mut late = vec![b'x'; 1 << 20];
        late.extend_from_slice(b"prompt is too long: 9000 tokens > 8000 maximum");
        assert_eq!(too_long(400, &late), None);
        assert_eq!(too_long(400, &[0xff; 9_000]), None);
    }
}
