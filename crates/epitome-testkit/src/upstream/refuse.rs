//! Decides whether a request is rejected, and writes the rejection in the same words as the provider.
//!
//! The rules of [`crate::judges`], which are independent of the code under test, apply first. Whole requests have a
//! few more rules:
//!
//! - no unknown field
//! - no call without its result
//! - for Anthropic, no assistant message at the end
//! - for Anthropic, no more than four cache markers

use epitome::dialect::Dialect;
use serde_json::{Value, json};

use crate::judges;

/// The reason why a request was rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The request is invalid.
    Shape(String),
    /// The input is larger than the provider accepts. `input` is its size in tokens. `window` is the limit in the
    /// error, in tokens; `None` if the error contains no limit.
    TooLong { input: u64, window: Option<u64> },
}

const CHAT: &[&str] = &[
    "model",
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "n",
    "stop",
    "seed",
    "user",
    "metadata",
    "reasoning_effort",
    "response_format",
    "stream",
    "stream_options",
    "store",
];
const RESPONSES: &[&str] = &[
    "model",
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "max_output_tokens",
    "temperature",
    "top_p",
    "metadata",
    "reasoning",
    "text",
    "include",
    "truncation",
    "previous_response_id",
    "conversation",
    "context_management",
    "stream",
    "stream_options",
    "store",
];
const ANTHROPIC: &[&str] = &[
    "model",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "max_tokens",
    "temperature",
    "top_p",
    "stop_sequences",
    "metadata",
    "thinking",
    "context_management",
    "stream",
];

/// Maximum number of cache markers in one request to Anthropic.
const MAX_MARKS: usize = 4;

/// Returns the first error in a request. The size of the request is not checked. `None` if there is no error.
pub fn shape(dialect: Dialect, body: &Value) -> Option<String> {
    let Some(fields) = body.as_object() else { return Some("the body is no JSON object".to_owned()) };
    let allowed = match dialect.name() {
        "responses" => RESPONSES,
        "anthropic" => ANTHROPIC,
        _ => CHAT,
    };
    if let Some(own) = fields.keys().find(|key| !allowed.contains(&key.as_str())) {
        return Some(format!("unknown field: {own}"));
    }
    if body["model"].as_str().is_none_or(str::is_empty) {
        return Some("model: required".to_owned());
    }
    // At the end of a list, a call may have no result yet. At the end of a request, every call must have its result.
    // So the checks are also made with one more message at the end, because they then report each call without a
    // result.
    let mut closed = body.clone();
    let mut errors = match dialect.name() {
        "anthropic" => {
            if !body["max_tokens"].is_u64() {
                return Some("max_tokens: required".to_owned());
            }
            let marked = marks(body);
            if marked > MAX_MARKS {
                return Some(format!(
                    "A maximum of {MAX_MARKS} blocks with cache_control may be provided. Found {marked}."
                ));
            }
            let mut errors = judges::anthropic::complaints(body);
            errors.extend(judges::anthropic::late_thinking(body));
            let last = body["messages"].as_array().and_then(|all| all.last());
            if last.is_some_and(|last| last["role"] == "assistant") {
                errors.push("the conversation must end with a user message".to_owned());
            }
            errors
        }
        "responses" => {
            // The provider stores the earlier items, so pairs of calls and results cannot be checked here.
            if body["input"].is_string()
                || ["previous_response_id", "conversation"].iter().any(|at| !body[at].is_null())
            {
                return None;
            }
            if let Some(input) = closed["input"].as_array_mut() {
                let text = json!([{ "type": "input_text", "text": "." }]);
                input.push(json!({ "type": "message", "role": "user", "content": text }));
            }
            [judges::responses::complaints(body), judges::responses::complaints(&closed)].concat()
        }
        _ => {
            if let Some(messages) = closed["messages"].as_array_mut() {
                messages.push(json!({ "role": "user", "content": "." }));
            }
            [judges::chat::complaints(body), judges::chat::complaints(&closed)].concat()
        }
    };
    if errors.is_empty() { None } else { Some(errors.swap_remove(0)) }
}

/// Returns the number of cache markers in a value, at any depth.
fn marks(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(marks).sum(),
        Value::Object(fields) => {
            let own = fields.get("cache_control").is_some_and(|mark| !mark.is_null());
            usize::from(own) + fields.values().map(marks).sum::<usize>()
        }
        _ => 0,
    }
}

impl Refusal {
    /// Returns the rejection in the provider's format.
    pub fn error_body(&self, dialect: Dialect) -> Value {
        let too_long = matches!(self, Self::TooLong { .. });
        let message = match (self, dialect.name()) {
            (Self::Shape(what), _) => what.clone(),
            (Self::TooLong { input, window: Some(window) }, "anthropic") => {
                format!("prompt is too long: {input} tokens > {window} maximum")
            }
            (Self::TooLong { .. }, "anthropic") => "prompt is too long".to_owned(),
            (Self::TooLong { input, window: Some(window) }, _) => format!(
                "This model's maximum context length is {window} tokens. However, your messages resulted in {input} \
                 tokens. Please reduce the length of the messages."
            ),
            (Self::TooLong { .. }, _) => {
                "Your input exceeds the context window of this model. Please adjust your \
                input and try again."
                    .to_owned()
            }
        };
        if dialect == Dialect::ANTHROPIC {
            let error = json!({ "type": "invalid_request_error", "message": message });
            return json!({ "type": "error", "error": error, "request_id": "req_1" });
        }
        let param = if dialect == Dialect::RESPONSES { "input" } else { "messages" };
        let code = if too_long { json!("context_length_exceeded") } else { Value::Null };
        json!({ "error": { "message": message, "type": "invalid_request_error", "param": param, "code": code } })
    }
}
