//! Parses the body of a provider's error, in all forms that were observed.
//!
//! Providers put arbitrary text into error messages, including the prompt. This module searches the start of
//! the message for typical phrases and numbers, and never forwards the text. The HTTP status and these phrases
//! together show the reason for the error. For a forwarded request, [`too_long`] decides whether the request
//! was too long. For Epitome's own requests, the code of the model call decides this.

use epitome_core::message::Tokens;
use serde_json::Value;

/// Maximum number of characters of a provider's message that are examined. The reason comes first in a message,
/// and quoted text comes after the reason.
const MAX_CHARS_READ: usize = 400;

/// Error codes for requests that are too long. `array_above_max_length` means that there are too many messages,
/// and `string_above_max_length` means that a single message is too long.
const TOO_LONG_CODES: &str = "context_length_exceeded|exceed_context_size_error|request_too_large|array_above_max_length|\
    string_above_max_length";

/// Phrases in errors for requests that are too long. These providers and servers use them: OpenAI, Anthropic,
/// Gemini, xAI, Moonshot, Zhipu, Qwen, Copilot, Cohere, SGLang, Ollama, LM Studio, text-generation-inference
/// and LiteLLM.
const TOO_LONG_PHRASES: &str = "prompt is too long|maximum context length|context limit|context window|context size|\
    input tokens exceed|too many input tokens|input is too long|reduce the length of the messages|\
    exceeds the maximum number of tokens|maximum prompt length|exceeded model token limit|prompt exceeds max length|\
    range of input length should be|prompt token count|too many tokens|\
    longer than the model's context length|exceeds the context length|exceeds context length|\
    greater than the context length|`inputs` tokens + `max_new_tokens`|contextwindowexceedederror";

/// Phrases that come directly before the number of input tokens that were sent.
const BEFORE_INPUT: &str = "resulted in|too long:|your request has|exceed context limit:|contains at least|prompt contains|\
    request contains|token count (|token count of|the input (|given:|keep the first";

/// Phrases that come directly before the number of tokens that were sent. This number may include the tokens
/// reserved for the answer.
const BEFORE_SENT: &str = "requested a total of|requested about|requested:|requested|request (";

/// Phrases that come directly before the maximum number of tokens.
const BEFORE_LIMIT: &str = ": limit|maximum context length is|maximum context length of|maximum context length:|\
    maximum prompt length is|configured limit of|the limit of|model token limit:|context size (|context window of|\
    context length of only|context length of|context length (|tokens allowed (|tokens allowed|must be <=|should be [1,|>";

/// Phrases that come directly after the number of tokens reserved for the answer.
const AFTER_OUTPUT: &str =
    "in the completion|for the completion|in the output|output tokens|`max_new_tokens`";

/// The content of an error body.
#[derive(Debug, Default)]
pub struct ErrorText {
    message: String,
    error_type: String,
    code: String,
    param: String,
    sent: Option<Tokens>,
    limit: Option<Tokens>,
}

/// The numbers of tokens in an error, as counted by the provider. `None` if the error does not contain the
/// number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ErrorSizes {
    /// The number of tokens that were sent. If `output` is set and `is_input` is false, the number includes the
    /// tokens reserved for the answer.
    pub sent: Option<Tokens>,
    /// The maximum number of tokens.
    pub limit: Option<Tokens>,
    /// The number of tokens reserved for the answer. `limit` includes these tokens. `sent` includes them if
    /// `is_input` is false.
    pub output: Option<Tokens>,
    /// Whether `sent` is the number of input tokens only.
    pub is_input: bool,
}

impl ErrorText {
    /// Parses the body of an error. The result is empty if the body is not JSON.
    pub fn read(body: &[u8]) -> Self {
        serde_json::from_slice(body).map_or_else(|_| Self::default(), |body| Self::of(&body))
    }

    /// Parses the body of an error. A body that is not JSON, or is truncated JSON, is examined as plain text.
    pub fn read_json_or_text(body: &[u8]) -> Self {
        match serde_json::from_slice(body) {
            Ok(body) => Self::of(&body),
            Err(_) => {
                // A character has at most four bytes in UTF-8.
                let begin = body.get(..body.len().min(4 * MAX_CHARS_READ)).unwrap_or_default();
                Self { message: lowercase_start(&String::from_utf8_lossy(begin)), ..Self::default() }
            }
        }
    }

    /// Parses an error in one of these forms: `{"error": {…}}`, `[{"error": {…}}]`, `{"error": "…"}`, or only
    /// the object that is in `error`.
    pub fn of(body: &Value) -> Self {
        let body = body.get(0).unwrap_or(body);
        let error = body.get("error").filter(|error| !error.is_null()).unwrap_or(body);
        let text = |key: &str| match error.get(key) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        };
        let mut message =
            lowercase_start(error.as_str().or_else(|| error.get("message")?.as_str()).unwrap_or(""));
        // Frameworks put the message in `detail`. Gateways put the upstream provider's answer in
        // `metadata.raw`.
        for more in [error.get("detail"), error.pointer("/metadata/raw")] {
            if let Some(more) = more.and_then(Value::as_str) {
                message.push('\n');
                message.push_str(&lowercase_start(more));
            }
        }
        // Servers that have not counted the tokens send 0.
        let tokens = |key: &str| error.get(key).and_then(Value::as_u64).filter(|tokens| *tokens > 0);
        let (sent, limit) = (tokens("n_prompt_tokens"), tokens("n_ctx"));
        Self { message, error_type: text("type"), code: text("code"), param: text("param"), sent, limit }
    }

    /// Returns whether the error's type or code equals this word.
    pub fn is(&self, word: &str) -> bool {
        self.error_type == word || self.code == word
    }

    /// Returns whether the error's message contains one of these words. The words must be in lower case.
    pub fn contains_any(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.message.contains(word))
    }

    /// Returns the HTTP status that the body contains as its error code. `None` if the code is not a status of
    /// an error. Used for answers whose own HTTP status is a success.
    pub fn status(&self) -> Option<u16> {
        self.code.parse().ok().filter(|status| (400..600).contains(status))
    }

    /// Returns whether the provider rejected the request because it does not support the field `name`.
    pub fn rejects_field(&self, name: &str) -> bool {
        let named =
            self.param == name || self.message.contains(&format!("'{name}'")) || self.message.contains(name);
        let words =
            ["unsupported", "not supported", "unrecognized", "unknown", "not permitted", "unexpected"];
        named
            && (self.is("unsupported_parameter") || self.is("unknown_parameter") || self.contains_any(&words))
    }

    /// Returns whether an answer with this status and this error means that the request is too long. If it is
    /// too long, retrying the unchanged request cannot succeed.
    pub fn is_too_long(&self, status: u16) -> bool {
        match status {
            // Gateways that limit the size of a request in bytes return this status without an error code.
            413 => true,
            400 | 422 | 500 => {
                TOO_LONG_CODES.split('|').any(|code| self.is(code))
                    || TOO_LONG_PHRASES.split('|').any(|phrase| self.contains_any(&[phrase]))
            }
            // This status means that the request is too long only if the request alone exceeds the whole rate
            // limit per minute or per day.
            429 => {
                let ErrorSizes { sent, limit, .. } = self.sizes();
                limit.is_some_and(|limit| sent > Some(limit)) && self.contains_any(&["tokens per ", "(tp"])
            }
            _ => false,
        }
    }

    /// Returns the numbers of tokens that the error contains.
    pub fn sizes(&self) -> ErrorSizes {
        // If the message does not mention tokens, its numbers are bytes.
        if self.sent.or(self.limit).is_none()
            && !self.contains_any(&["token", "context", "prompt", "input length"])
        {
            return ErrorSizes::default();
        }
        let after = |list: &str| list.split('|').find_map(|phrase| number_after(&self.message, phrase));
        let before = |list: &str| list.split('|').find_map(|phrase| number_before(&self.message, phrase));
        let input = self.sent.or_else(|| after(BEFORE_INPUT));
        let limit = self.limit.or_else(|| after(BEFORE_LIMIT)).or_else(|| before("maximum context length"));
        // In `199000 + 4000 > 200000`, 4000 is the number of tokens reserved for the answer.
        let plus = || number(self.message.split_once("context limit:")?.1.split_once('+')?.1.trim_start());
        let output = before(AFTER_OUTPUT).or_else(plus).or_else(|| after("tokens' is too large:"));
        ErrorSizes { sent: input.or_else(|| after(BEFORE_SENT)), limit, output, is_input: input.is_some() }
    }

    /// Formats the HTTP status and the provider's error code, such as `429, rate_limit_exceeded`.
    pub fn status_and_code(&self, status: u16) -> String {
        let is_code = |word: &&String| {
            (1..=40).contains(&word.len())
                && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        };
        match [&self.code, &self.error_type].into_iter().find(is_code) {
            Some(word) => format!("{status}, {word}"),
            None => status.to_string(),
        }
    }
}

/// Returns the first [`MAX_CHARS_READ`] characters of a text, in lower case.
fn lowercase_start(text: &str) -> String {
    text.chars().take(MAX_CHARS_READ).collect::<String>().to_lowercase()
}

/// Returns the number directly after these words.
fn number_after(text: &str, words: &str) -> Option<Tokens> {
    text.match_indices(words).find_map(|(at, _)| number(text.get(at + words.len()..)?.trim_start()))
}

/// Returns the number directly before these words, with or without the word `tokens` between them.
fn number_before(text: &str, words: &str) -> Option<Tokens> {
    text.match_indices(words).find_map(|(at, _)| {
        let before = text.get(..at)?.trim_end();
        let before = before.strip_suffix("tokens").unwrap_or(before).trim_end();
        number(before.rsplit(|c: char| !c.is_ascii_digit() && !matches!(c, ',' | '_' | '.')).next()?)
    })
}

/// Parses a number at the start of a text, such as `131072`, `131,072`, `131_072`, `131.072`, `128k`, `8 k` or
/// `1.5m`. `None` if there is no number or if the number is 0.
fn number(text: &str) -> Option<Tokens> {
    let digit = |c: char| c.is_ascii_digit();
    let end = text.find(|c: char| !digit(c) && !matches!(c, ',' | '_' | '.')).unwrap_or(text.len());
    let (number, rest) = text.split_at_checked(end)?;
    let number = number.trim_end_matches(|c| !digit(c)).replace([',', '_'], "");
    let (whole, part) = number.split_once('.').unwrap_or((&number, ""));
    let whole: Tokens = whole.parse().ok()?;
    let rest = rest.trim_start();
    let unit = rest.strip_prefix(['k', 'm']).filter(|after| !after.starts_with(char::is_alphanumeric));
    let thousand = if rest.starts_with('k') { 1_000 } else { 1_000_000 };
    let factor: Tokens = if unit.is_some() { thousand } else { 1 };
    if factor == 1 && part.split('.').all(|group| group.len() == 3) {
        return number.replace('.', "").parse().ok();
    }
    // The first three digits of a fraction are used. Without a unit, the fraction is ignored.
    let thousandths: Tokens = format!("{part:0<3}").get(..3)?.parse().ok()?;
    let part = if factor == 1 { 0 } else { factor / 1_000 * thousandths };
    Some(whole.saturating_mul(factor).saturating_add(part)).filter(|tokens| *tokens > 0)
}

/// Maximum size of an error body that is read, in bytes.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// The numbers of a request that was too long for its provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TooLong {
    /// The number of input tokens that were sent, as counted by the provider. `None` if the provider did not
    /// report it.
    pub sent: Option<Tokens>,
    /// The maximum number of input tokens. `None` if the provider did not report it. If the provider's limit is
    /// for input and answer together, the tokens reserved for the answer are subtracted. A limit that is not
    /// smaller than `sent` is omitted, because the request did not exceed that limit.
    pub limit: Option<Tokens>,
}

impl TooLong {
    /// Checks whether an error means that the request was too long. If it does, returns the numbers in the
    /// error, else `None`. Use this function for an error in a reply with a success status. The error is then
    /// [`ReplyOutcome::error`](crate::ReplyOutcome::error), or a body that contains `error` and has the status
    /// 200.
    ///
    /// ```
    /// use epitome_wire::TooLong;
    /// use serde_json::json;
    ///
    /// let error = json!({"code": "context_length_exceeded", "message": "Your input exceeds the context window."});
    /// assert_eq!(TooLong::from_error(&error), Some(TooLong::default()));
    /// assert_eq!(TooLong::from_error(&json!({"type": "overloaded_error"})), None);
    /// ```
    pub fn from_error(error: &Value) -> Option<Self> {
        let error = ErrorText::of(error);
        too_long_in(error.status().unwrap_or(400), &error)
    }
}

/// Checks whether an answer means that the request was too long for the model or for a gateway. If it does,
/// returns the numbers in the answer, else `None`. `body` may contain only the start of the answer's body. The
/// provider would reject the same request again, but may accept a shorter request.
///
/// The result contains only numbers from the body, and no text. A body that is not JSON is searched for the
/// same phrases.
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
pub fn too_long(status: u16, body: &[u8]) -> Option<TooLong> {
    if status == 200 {
        let body: Value = (body.len() <= MAX_ERROR_BYTES).then(|| serde_json::from_slice(body).ok())??;
        return body.get("error").filter(|error| !error.is_null()).and_then(|_| TooLong::from_error(&body));
    }
    // Answers with any other status are not parsed.
    if !matches!(status, 400 | 413 | 422 | 429 | 500) {
        return None;
    }
    too_long_in(status, &ErrorText::read_json_or_text(body.get(..MAX_ERROR_BYTES).unwrap_or(body)))
}

fn too_long_in(status: u16, error: &ErrorText) -> Option<TooLong> {
    if !error.is_too_long(status) {
        return None;
    }
    let sizes = error.sizes();
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
        assert_eq!(TooLong::from_error(&body), expected, "{message}");
        assert_eq!(too_long(400, message.as_bytes()), expected, "as plain text: {message}");
    }

    #[test]
    fn each_providers_phrases_are_recognised_and_the_limit_excludes_the_answer() {
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
    fn a_limit_that_was_not_exceeded_or_leaves_no_room_for_input_is_omitted() {
        check(
            "maximum context length is 8192 tokens; your messages resulted in 8000 tokens",
            Some(8_000),
            None,
        );
        check("maximum context length is 4096 tokens: you requested 9000 output tokens", None, None);
    }

    #[test]
    fn an_error_that_a_gateway_forwards_is_read_too() {
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
    fn a_limit_in_bytes_is_too_long_and_gives_no_token_counts() {
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
    fn other_errors_are_not_too_long() {
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
    fn a_reply_with_status_200_is_too_long_only_if_it_has_an_error() {
        let long = r#"{"error": {"message": "prompt is too long: 9000 tokens > 8000 maximum"}}"#;
        assert_eq!(too_long(200, long.as_bytes()).unwrap().limit, Some(8_000));
        let said = r#"{"error": null, "type": "message", "message": "The prompt is too long: 9 tokens > 8"}"#;
        assert_eq!(too_long(200, said.as_bytes()), None);
        assert_eq!(too_long(200, b"prompt is too long: 9000 tokens > 8000"), None);
    }

    #[test]
    fn only_the_start_of_a_body_is_read() {
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
