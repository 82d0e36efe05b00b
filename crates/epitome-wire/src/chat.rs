//! Defines what chat completions accept and how their answers are read. Most servers use this format, so its
//! rules are the defaults of [`Format`](crate::Format). The module `openai` reads and writes the messages of
//! this format.

use epitome_core::inspect::Finish;
use epitome_core::message::MediaSource;
use serde_json::{Value, json};

use crate::answer::{PartialAnswer, text};
use crate::fit::FormatLimits;
use crate::media;

/// What chat completions accept. Messages must not contain reasoning, and tool results must be text.
pub(crate) const LIMITS: FormatLimits = FormatLimits {
    // The provider rejects longer ids: "Expected a string with maximum length 40".
    max_id_length: 40,
    accepts_media: |media| match &media.source {
        MediaSource::Base64(_) if media.mime.starts_with("audio/") => {
            matches!(media.mime.as_str(), "audio/wav" | "audio/x-wav" | "audio/mpeg")
        }
        MediaSource::Base64(_) => media::is_accepted_by_openai(media),
        MediaSource::Url(_) => media::is_image(media) && media::is_accepted_by_openai(media),
        // Anthropic's file ids begin with this prefix. OpenAI does not recognise these ids.
        MediaSource::File(id) => !media::is_image(media) && !id.starts_with("file_"),
    },
    media_in_results: false,
    received_media_in_results: false,
    accepts_reasoning: |_, _| false,
    // If a client sends reasoning, its server requires that requests contain this reasoning.
    forwards_reasoning: true,
    has_item_ids: false,
};

/// Appends the text of a message, or of a delta of a stream. `None` if the content has an unexpected type.
pub(crate) fn append_text(partial: &mut PartialAnswer, message: &Value) -> Option<()> {
    match message.get("content") {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => partial.text.push_str(text),
        Some(Value::Array(parts)) => parts.iter().for_each(|part| partial.text.push_str(text(part, "text"))),
        Some(_) => return None,
    }
    if !text(message, "refusal").is_empty() {
        partial.finish = Some(Finish::Filtered);
    }
    Some(())
}

/// Stores the stop reason, if there is one. An answer that is already marked as filtered stays filtered,
/// whatever the stop reason is.
pub(crate) fn set_finish(partial: &mut PartialAnswer, choice: &Value) {
    let reason = text(choice, "finish_reason");
    if reason.is_empty() {
        return;
    }
    if partial.finish != Some(Finish::Filtered) {
        partial.finish = Some(finish_of(reason));
    }
    partial.calls_tool = matches!(reason, "tool_calls" | "function_call");
}

fn finish_of(reason: &str) -> Finish {
    match reason.to_lowercase().as_str() {
        "stop" | "eos" | "end_turn" => Finish::Complete,
        "length" | "max_tokens" | "model_length" => Finish::Length,
        "content_filter" | "refusal" | "safety" | "sensitive" | "recitation" | "blocklist"
        | "prohibited_content" | "spii" => Finish::Filtered,
        _ => Finish::Unknown,
    }
}

/// Returns the error in a body or an event. The error may be at the top level, in the first choice, or in the
/// stop reason of the first choice. `None` if there is no error.
pub(crate) fn failure(body: &Value) -> Option<Value> {
    let with_error = |object: &Value| match object.get("error")? {
        Value::Object(error) => (!error.is_empty()).then(|| object.clone()),
        Value::String(error) => (!error.is_empty()).then(|| object.clone()),
        _ => None,
    };
    let choice = body.get("choices").and_then(|choices| choices.get(0)).unwrap_or(&Value::Null);
    let failed_stop = || {
        let reason = choice.get("finish_reason")?.as_str()?.to_lowercase();
        is_failure(&reason).then(|| json!({"error": {"type": reason}}))
    };
    with_error(body).or_else(|| with_error(choice)).or_else(failed_stop)
}

/// Returns whether this stop reason means a failure.
fn is_failure(reason: &str) -> bool {
    // OpenRouter sends `error`. Zhipu sends `network_error`. Gemini sends `malformed_function_call`. vLLM sends
    // `abort`. DeepSeek sends `insufficient_system_resource`.
    let failures =
        ["abort", "aborted", "cancelled", "canceled", "timeout", "failed", "insufficient_system_resource"];
    reason.contains("error") || reason.starts_with("malformed_") || failures.contains(&reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Answer, Dialect, ReadStatus, TokenUsage};

    fn answer(body: &Value) -> Option<Answer> {
        let mut partial = PartialAnswer::default();
        (partial.read_body(Dialect::OPENAI, body) == ReadStatus::Done).then(|| partial.answer())
    }

    fn read_event(partial: &mut PartialAnswer, event: &str) -> ReadStatus {
        partial.read_event(Dialect::OPENAI, event.as_bytes())
    }

    fn read_whole(message: &Value, reason: &str) -> Option<(String, Finish)> {
        let body = json!({"choices": [{"message": message, "finish_reason": reason}]});
        answer(&body).map(|answer| (answer.text, answer.finish))
    }

    #[test]
    fn text_is_read_in_every_form_and_reasoning_is_not() {
        let said = |text: &str, finish| Some((text.to_owned(), finish));
        let plain = json!({"role": "assistant", "content": "Ann.", "reasoning_content": "Hm."});
        assert_eq!(read_whole(&plain, "stop"), said("Ann.", Finish::Complete));
        let parts = json!({"content": [{"type": "text", "text": "An"}, {"type": "text", "text": "n."}]});
        assert_eq!(read_whole(&parts, "length"), said("Ann.", Finish::Length));
        let refusal = json!({"content": null, "refusal": "I can't."});
        assert_eq!(read_whole(&refusal, "content_filter"), said("", Finish::Filtered));
        let calls = json!({"content": "I'll look.", "tool_calls": [{"id": "x"}]});
        assert_eq!(read_whole(&calls, "tool_calls"), said("", Finish::Unknown));
        assert_eq!(read_whole(&json!({"content": "x"}), "weary"), said("x", Finish::Unknown));
        let without_reason = json!({"choices": [{"message": {"content": "x"}, "finish_reason": null}]});
        assert_eq!(answer(&without_reason).unwrap().finish, Finish::Unknown);
    }

    #[test]
    fn a_refusal_stays_a_refusal_if_the_reason_is_stop() {
        let (_, finish) = read_whole(&json!({"content": null, "refusal": "I can't."}), "stop").unwrap();
        assert_eq!(finish, Finish::Filtered);
    }

    #[test]
    fn an_error_is_returned_from_every_position() {
        let body = |reason: &str, more: Value| {
            let mut body = json!({"choices": [{"message": {"content": "Ann."}, "finish_reason": reason}]});
            let fields = more.as_object().unwrap().clone();
            body.as_object_mut().unwrap().extend(fields);
            body
        };
        for reason in ["error", "network_error", "ERROR", "abort", "insufficient_system_resource"] {
            let error = failure(&body(reason, json!({}))).unwrap();
            assert_eq!(error, json!({"error": {"type": reason.to_lowercase()}}));
        }
        for reason in ["stop", "length", "tool_calls", "content_filter", "weary"] {
            for more in [json!({}), json!({"error": null}), json!({"error": {}}), json!({"error": ""})] {
                assert_eq!(failure(&body(reason, more)), None, "{reason}");
            }
        }
        let error = failure(&body("stop", json!({"error": {"code": 429}}))).unwrap();
        assert_eq!(error["error"]["code"], 429);
        let inside = json!({"choices": [{"delta": {}, "error": {"code": 502}}]}).to_string();
        assert!(
            matches!(read_event(&mut PartialAnswer::default(), &inside), ReadStatus::Failed(error) if error["error"]["code"] == 502)
        );
    }

    #[test]
    fn a_body_that_is_no_chat_completion_gives_no_answer() {
        for body in [json!({}), json!([]), json!({"choices": []}), json!({"choices": [{"text": "old"}]})] {
            assert!(answer(&body).is_none(), "{body}");
        }
        assert_eq!(read_whole(&json!({"content": 7}), "stop"), None);
    }

    #[test]
    fn a_stream_is_assembled_and_complete_only_with_its_end() {
        let mut partial = PartialAnswer::default();
        for text in ["An", "n."] {
            let event = json!({"choices": [{"delta": {"content": text}}]}).to_string();
            assert!(matches!(read_event(&mut partial, &event), ReadStatus::Continue));
        }
        assert!(!partial.is_complete());
        let last = json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}).to_string();
        assert!(matches!(read_event(&mut partial, &last), ReadStatus::Continue));
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}).to_string();
        assert!(matches!(read_event(&mut partial, &usage), ReadStatus::Continue));
        assert!(matches!(read_event(&mut partial, "[DONE]"), ReadStatus::Done));
        let answer = partial.answer();
        assert_eq!((answer.text.as_str(), answer.finish, answer.complete), ("Ann.", Finish::Complete, true));
        assert_eq!(answer.usage, Some(TokenUsage { input: 9, cached: 0, output: 2 }));
        let failed = json!({"error": {"type": "server_error"}}).to_string();
        assert!(matches!(read_event(&mut PartialAnswer::default(), &failed), ReadStatus::Failed(_)));
        assert!(matches!(read_event(&mut PartialAnswer::default(), "<html>"), ReadStatus::Unexpected));
    }
}
