//! Interprets the error response of a provider.
//!
//! The inputs are the status, the parsed error text, and the time that the provider requests callers to wait. The
//! output is one of the four kinds of [`ModelError`]. Providers may put anything into an error message, including the
//! prompt and the key. Therefore the message is never passed on: `epitome-wire` only searches it for certain phrases
//! and numbers. Error codes are passed on if they look like codes.

use std::time::{Duration, SystemTime};

use epitome_core::message::Tokens;

use super::{FailureCause, Remote};
use crate::model::ModelError;
use epitome_wire::ErrorText;

/// Longest wait that a provider can request with one response.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 3_600);

/// The failure of a call.
#[derive(Debug)]
pub(super) struct CallError {
    /// The error, which decides what the worker does next.
    pub(super) error: ModelError,
    /// What must be fixed.
    pub(super) cause: FailureCause,
}

impl CallError {
    pub(super) fn no_answer(cause: FailureCause, reason: &str) -> Self {
        Self { error: ModelError::no_answer(reason), cause }
    }

    pub(super) fn refused(cause: FailureCause, reason: &str) -> Self {
        Self { error: ModelError::refused(reason), cause }
    }
}

impl Remote {
    /// Interprets a response with a status other than 200. `sent` is the size of the prompt in tokens, by the local
    /// count.
    pub(super) fn interpret(
        &self,
        status: u16,
        error_text: &ErrorText,
        retry_after: Option<Duration>,
        sent: Tokens,
    ) -> CallError {
        let (variable, setting) = (&self.key.variable, &self.key.setting);
        let (model, address) = (&self.settings.model, self.endpoint.url.as_str());
        let word = error_text.status_and_code(status);
        if (300..400).contains(&status) {
            let reason = format!("{address} redirects ({status}), which is not followed; is base_url right?");
            return CallError::refused(FailureCause::Address, &reason);
        }
        if error_text.is_too_long(status) {
            let sizes = error_text.sizes();
            let error = ModelError::TooLong { sent: sizes.sent.unwrap_or(sent), limit: sizes.limit };
            return CallError { error, cause: FailureCause::Other };
        }
        let no_credit = error_text.is("insufficient_quota") || error_text.is("billing_error");
        if status == 402
            || no_credit
            || (status == 400 && error_text.contains_any(&["credit balance is too low"]))
        {
            return CallError::refused(FailureCause::Key, &format!("no credit ({word})"));
        }
        if matches!(status, 429 | 503 | 529)
            || error_text.is("overloaded_error")
            || error_text.is("rate_limit_error")
        {
            return CallError { error: ModelError::Busy { retry_after }, cause: FailureCause::Other };
        }
        match status {
            401 | 403 if self.key.is_present() => CallError::refused(
                FailureCause::Key,
                &format!("the key in {variable} is not accepted ({status})"),
            ),
            401 | 403 => CallError::refused(
                FailureCause::Key,
                &format!(
                    "{address} requires a key ({status}); set {setting} to the variable that contains it"
                ),
            ),
            400 | 404
                if error_text.is("model_not_found")
                    || error_text.contains_any(&["not a valid model", "invalid model"]) =>
            {
                no_model(model, status)
            }
            404 if error_text.is("not_found_error") || error_text.contains_any(&["model"]) => {
                no_model(model, status)
            }
            404 | 405 => {
                let called =
                    self.dialect.format().about().endpoint.map_or("", |endpoint| endpoint.route_name);
                let reason = format!("no endpoint for {called} at {address} ({status}); is base_url right?");
                CallError::refused(FailureCause::Address, &reason)
            }
            408 | 425 => {
                CallError::no_answer(FailureCause::Other, &format!("the provider gave up waiting ({status})"))
            }
            400..500 => {
                CallError::refused(FailureCause::Other, &format!("the provider refused the request ({word})"))
            }
            500.. => CallError::no_answer(FailureCause::Other, &format!("the provider failed ({word})")),
            _ => CallError::no_answer(
                FailureCause::Other,
                &format!("unexpected status of the provider ({status})"),
            ),
        }
    }
}

fn no_model(model: &str, status: u16) -> CallError {
    CallError::refused(FailureCause::Model, &format!("the provider has no model `{model}` ({status})"))
}

/// Returns how long the provider requests callers to wait. `millis` is the value of the header `retry-after-ms`.
/// `after` is the value of the header `retry-after`: a number of seconds, or a date.
pub(super) fn retry_after(millis: Option<&str>, after: Option<&str>, now: SystemTime) -> Option<Duration> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| *number >= 0.0);
    let seconds =
        |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(MAX_RETRY_AFTER).min(MAX_RETRY_AFTER);
    if let Some(millis) = millis.and_then(number) {
        return Some(seconds(millis / 1_000.0));
    }
    let after = after?;
    if let Some(after) = number(after) {
        return Some(seconds(after));
    }
    let then = httpdate::parse_http_date(after).ok()?;
    // A date in the past means no wait.
    Some(then.duration_since(now).unwrap_or_default().min(MAX_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{ModelSettings, Provider};
    use secrecy::SecretString;
    use serde_json::{Value, json};
    use std::sync::LazyLock;
    use std::time::UNIX_EPOCH;

    fn remote(key: Option<&str>) -> Remote {
        let settings = ModelSettings::new(Provider::OPENAI, "gpt-5-mini");
        Remote::new("cheap", &settings, key.map(SecretString::from)).unwrap()
    }

    fn error(status: u16, error_text: &ErrorText) -> CallError {
        static REMOTE: LazyLock<Remote> = LazyLock::new(|| remote(Some("sk-0")));
        REMOTE.interpret(status, error_text, None, 4_000)
    }

    fn shown(status: u16, body: &Value) -> String {
        let error = error(status, &ErrorText::of(body));
        format!("{:?}: {}", error.cause, error.error)
    }

    fn check(status: u16, body: &Value, expected: &str) {
        assert_eq!(shown(status, body), expected);
    }

    #[test]
    fn each_status_names_what_to_fix() {
        let error = |kind: &str| json!({"error": {"type": kind, "message": "Words."}});
        check(
            401,
            &error("invalid_request_error"),
            "Key: the model refused: the key in OPENAI_API_KEY is not accepted (401)",
        );
        check(403, &json!(null), "Key: the model refused: the key in OPENAI_API_KEY is not accepted (403)");
        check(
            404,
            &json!({"error": {"code": "model_not_found"}}),
            "Model: the model refused: the provider has no model `gpt-5-mini` (404)",
        );
        check(
            404,
            &json!({"type": "error", "error": {"type": "not_found_error", "message": "model: x"}}),
            "Model: the model refused: the provider has no model `gpt-5-mini` (404)",
        );
        check(
            404,
            &json!(null),
            "Address: the model refused: no endpoint for chat completions at \
             https://api.openai.com/v1/chat/completions (404); is base_url right?",
        );
        check(
            400,
            &error("invalid_request_error"),
            "Other: the model refused: the provider refused the request (400, invalid_request_error)",
        );
        check(
            500,
            &error("server_error"),
            "Other: no answer from the model: the provider failed (500, server_error)",
        );
        check(502, &json!(null), "Other: no answer from the model: the provider failed (502)");
        check(529, &json!(null), "Other: the model is busy");
        check(503, &json!(null), "Other: the model is busy");
        check(200, &json!({"error": {"type": "overloaded_error"}}), "Other: the model is busy");
        check(
            429,
            &error("insufficient_quota"),
            "Key: the model refused: no credit (429, insufficient_quota)",
        );
        check(402, &json!(null), "Key: the model refused: no credit (402)");
        assert!(shown(307, &json!(null)).starts_with("Address: the model refused: https://api.openai.com/"));
    }

    #[test]
    fn without_a_key_the_error_names_the_setting() {
        let error = remote(None).interpret(401, &ErrorText::default(), None, 4_000);
        assert!(error.error.to_string().contains("models.cheap.key_env"), "{}", error.error);
    }

    fn too_long(body: &Value, sent: Tokens, limit: Option<Tokens>) {
        let error = error(400, &ErrorText::of(body));
        assert_eq!(error.error, ModelError::TooLong { sent, limit }, "{body}");
    }

    #[test]
    fn too_long_errors_are_recognised_in_every_format_with_their_numbers() {
        let says = |message: &str| json!({"error": {"message": message, "type": "invalid_request_error"}});
        too_long(
            &says(
                "This model's maximum context length is 128000 tokens. However, your messages resulted \
                 in 131,072 tokens.",
            ),
            131_072,
            Some(128_000),
        );
        too_long(
            &says(
                "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in \
                 280000 tokens.",
            ),
            280_000,
            Some(272_000),
        );
        too_long(&says("prompt is too long: 210000 tokens > 200000 maximum"), 210_000, Some(200_000));
        too_long(
            &says("input length and `max_tokens` exceed context limit: 199000 + 4000 > 200000, decrease"),
            199_000,
            Some(200_000),
        );
        too_long(
            &json!({"object": "error", "message": "This model's maximum context length is 4096 tokens. \
                However, you requested 5000 tokens (4000 in the messages, 1000 in the completion)."}),
            5_000,
            Some(4_096),
        );
        too_long(
            &json!({"error": {"code": 400, "message": "the request exceeds the available context size.",
                "type": "exceed_context_size_error", "n_prompt_tokens": 9000, "n_ctx": 8192}}),
            9_000,
            Some(8_192),
        );
        too_long(
            &says(
                "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it",
            ),
            5_000,
            Some(4_096),
        );
        too_long(&json!({"error": {"code": "context_length_exceeded"}}), 4_000, None);
        too_long(&says("maximum context length is 32k tokens"), 4_000, Some(32_000));
        too_long(&says("exceeds the available context size (8 K tokens)"), 4_000, Some(8_000));
        too_long(&says("prompt is too long: 1.25M tokens > 1_000_000."), 1_250_000, Some(1_000_000));
        too_long(&says("maximum context length is 4096."), 4_000, Some(4_096));
        too_long(&says("maximum context length is 32.768 tokens"), 4_000, Some(32_768));
        too_long(&says("maximum context length is 1.048.576 tokens"), 4_000, Some(1_048_576));
        too_long(&says("maximum context length is 32 kinds of tokens"), 4_000, Some(32));
        too_long(&says("maximum context length is 0 tokens"), 4_000, None);
        let none = json!({"error": {"type": "exceed_context_size_error", "n_ctx": 0, "n_prompt_tokens": 0}});
        too_long(&none, 4_000, None);
    }

    #[test]
    fn a_request_above_the_rate_limit_itself_is_too_long_and_any_other_waits() {
        let of = |status: u16, message: &str| {
            error(status, &ErrorText::of(&json!({"error": {"message": message}}))).error
        };
        let busy = ModelError::Busy { retry_after: None };
        let openai = "on tokens per min (TPM): Limit 30000, Requested 44,000. The input must be reduced.";
        let too_long = ModelError::TooLong { sent: 44_000, limit: Some(30_000) };
        assert_eq!(of(429, &format!("Request too large for gpt-4o in organization o {openai}")), too_long);
        assert_eq!(
            of(413, &format!("Request too large for model `m` {openai}")),
            too_long,
            "as Groq says it"
        );
        let used =
            "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 4000.";
        assert_eq!(of(429, used), busy);
        let requests = "Rate limit reached on requests per min (RPM): Limit 3, Requested 4.";
        assert_eq!(of(429, requests), busy, "requests are no tokens");
        assert_eq!(of(429, "You requested too much."), busy);
    }

    #[test]
    fn too_long_is_recognised_by_its_words_for_any_status() {
        let body = json!({"error": {"message": "prompt is too long: 9000 tokens > 8000 maximum"}});
        for status in [400, 413, 422, 500] {
            let error = error(status, &ErrorText::of(&body)).error;
            assert_eq!(error, ModelError::TooLong { sent: 9_000, limit: Some(8_000) }, "{status}");
        }
        assert_eq!(error(422, &ErrorText::default()).error.kind(), "refused");
    }

    #[test]
    fn a_providers_words_are_never_repeated() {
        let quoted = "My prompt says hunter22 and the key is sk-0123456789abcdef";
        for status in [200, 302, 400, 401, 404, 413, 422, 429, 500, 503] {
            for body in [
                json!({"error": {"message": quoted, "type": quoted, "code": quoted}}),
                json!({"error": quoted}),
                json!({"message": quoted, "code": "hunter22"}),
            ] {
                let shown = shown(status, &body);
                assert!(!shown.contains("hunter22") && !shown.contains("0123456789"), "{shown}");
            }
        }
    }

    #[test]
    fn a_rejected_parameter_name_is_recognised_in_several_wordings() {
        let error_text = |error: Value| ErrorText::of(&json!({"error": error}));
        let openai = error_text(
            json!({"message": "Unsupported parameter: 'max_tokens' is not supported with this model. \
            Use 'max_completion_tokens' instead.", "param": "max_tokens", "code": "unsupported_parameter"}),
        );
        assert!(openai.rejects_field("max_tokens"));
        let old =
            error_text(json!({"message": "Unrecognized request argument supplied: max_completion_tokens"}));
        assert!(old.rejects_field("max_completion_tokens") && !old.rejects_field("temperature"));
        assert!(!error_text(json!({"message": "max_tokens must be at least 1"})).rejects_field("max_tokens"));
    }

    #[test]
    fn retry_after_is_read_as_milliseconds_seconds_or_a_date() {
        let now = UNIX_EPOCH + Duration::from_secs(1_445_412_450);
        let check = |millis, after, expected: Option<u64>| {
            assert_eq!(
                retry_after(millis, after, now),
                expected.map(Duration::from_millis),
                "{millis:?} {after:?}"
            );
        };
        check(None, Some("20"), Some(20_000));
        check(None, Some(" 1.5 "), Some(1_500));
        check(Some("250"), Some("20"), Some(250));
        check(None, Some("Wed, 21 Oct 2015 07:28:00 GMT"), Some(30_000));
        check(None, Some("Wed, 21 Oct 2015 07:27:00 GMT"), Some(0));
        check(None, Some("Thu, 29 Feb 2024 00:00:00 GMT"), Some(24 * 3_600_000));
        check(None, Some("1e300"), Some(24 * 3_600_000));
        for odd in
            ["", "soon", "-5", "NaN", "Wed, 99 Oct 2015 07:28:00 GMT", "Wed, 21 Nix 2015 07:28:00 GMT", ","]
        {
            check(None, Some(odd), None);
        }
        check(None, None, None);
    }
}
