//! A failure that stands where a reply should, of chat completions: each server has its own place for it.

use serde_json::{Value, json};

/// The failure that stands in a body or an event: beside what was said, in its choice, or as the reason it ended
/// for. What was said until then is half of an answer, at most.
pub fn failure(body: &Value) -> Option<Value> {
    let told = |from: &Value| match from.get("error")? {
        Value::Object(error) => (!error.is_empty()).then(|| from.clone()),
        Value::String(error) => (!error.is_empty()).then(|| from.clone()),
        _ => None,
    };
    let choice = body.get("choices").and_then(|choices| choices.get(0)).unwrap_or(&Value::Null);
    let ended = || {
        let reason = choice.get("finish_reason")?.as_str()?.to_lowercase();
        fails(&reason).then(|| json!({"error": {"type": reason}}))
    };
    told(body).or_else(|| told(choice)).or_else(ended)
}

/// Whether an answer that ended for this has failed.
fn fails(reason: &str) -> bool {
    // `error` is OpenRouter's, `network_error` Zhipu's, `malformed_function_call` Gemini's, `abort` vLLM's; the
    // longest is DeepSeek's.
    let known =
        ["abort", "aborted", "cancelled", "canceled", "timeout", "failed", "insufficient_system_resource"];
    reason.contains("error") || reason.starts_with("malformed_") || known.contains(&reason)
}
