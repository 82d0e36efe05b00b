//! Defines what chat completions accept and how their answers are read. These are the defaults of a
//! [`Format`](crate::Format), since most servers use this format. `openai` reads and writes their messages.

use epitome_core::inspect::Finish;
use epitome_core::message::MediaSource;
use serde_json::{Value, json};

use crate::asking::{Hearing, text};
use crate::fit::Wants;
use crate::media;

/// What the provider accepts: no reasoning, and results in text only.
pub(crate) const WANTS: Wants = Wants {
    // The provider rejects longer ids: "Expected a string with maximum length 40".
    longest_id: 40,
    carried: |media| match &media.source {
        MediaSource::Base64(_) if media.mime.starts_with("audio/") => {
            matches!(media.mime.as_str(), "audio/wav" | "audio/x-wav" | "audio/mpeg")
        }
        MediaSource::Base64(_) => media::is_seen(media),
        MediaSource::Url(_) => media::is_picture(media) && media::is_seen(media),
        // Anthropic's file ids begin with this prefix; OpenAI does not recognise them.
        MediaSource::File(id) => !media::is_picture(media) && !id.starts_with("file_"),
    },
    media_in_results: false,
    media_came_in_results: false,
    reasoning: |_, _| false,
    // A client that sends reasoning uses a server that requires it back.
    reasoning_goes_back: true,
    item_ids: false,
};

/// Appends the text of a message or of a piece of one. `None` if the content is not text.
pub(crate) fn say(hearing: &mut Hearing, message: &Value) -> Option<()> {
    match message.get("content") {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => hearing.text.push_str(text),
        Some(Value::Array(parts)) => parts.iter().for_each(|part| hearing.text.push_str(text(part, "text"))),
        Some(_) => return None,
    }
    if !text(message, "refusal").is_empty() {
        hearing.finish = Some(Finish::Filtered);
    }
    Some(())
}

/// Stores the stop reason, if there is one. A refusal stays a refusal regardless of the reason.
pub(crate) fn stop(hearing: &mut Hearing, choice: &Value) {
    let reason = text(choice, "finish_reason");
    if reason.is_empty() {
        return;
    }
    if hearing.finish != Some(Finish::Filtered) {
        hearing.finish = Some(finish(reason));
    }
    hearing.calls_tool = matches!(reason, "tool_calls" | "function_call");
}

fn finish(reason: &str) -> Finish {
    match reason.to_lowercase().as_str() {
        "stop" | "eos" | "end_turn" => Finish::Complete,
        "length" | "max_tokens" | "model_length" => Finish::Length,
        "content_filter" | "refusal" | "safety" | "sensitive" | "recitation" | "blocklist"
        | "prohibited_content" | "spii" => Finish::Filtered,
        _ => Finish::Unknown,
    }
}

/// Returns the failure in a body or an event: at the top level, in its choice, or as the stop reason. The
/// text up to then is at most part of an answer.
pub(crate) fn failure(body: &Value) -> Option<Value> {
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

/// Returns whether this stop reason means a failure.
fn fails(reason: &str) -> bool {
    // `error` is from OpenRouter, `network_error` from Zhipu, `malformed_function_call` from Gemini, `abort`
    // from vLLM; the longest is from DeepSeek.
    let known =
        ["abort", "aborted", "cancelled", "canceled", "timeout", "failed", "insufficient_system_resource"];
    reason.contains("error") || reason.starts_with("malformed_") || known.contains(&reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Answer, Dialect, Tally, Then};

    fn answer(body: &Value) -> Option<Answer> {
        let mut hearing = Hearing::default();
        (hearing.document(Dialect::OPENAI, body) == Then::End).then(|| hearing.answer())
    }

    fn hear(hearing: &mut Hearing, event: &str) -> Then {
        hearing.event(Dialect::OPENAI, event.as_bytes())
    }

    fn whole(message: &Value, reason: &str) -> Option<(String, Finish)> {
        let body = json!({"choices": [{"message": message, "finish_reason": reason}]});
        answer(&body).map(|answer| (answer.text, answer.finish))
    }

    #[test]
    fn the_text_is_taken_whatever_form_it_has_and_reasoning_is_not() {
        let said = |text: &str, finish| Some((text.to_owned(), finish));
        let plain = json!({"role": "assistant", "content": "Ann.", "reasoning_content": "Hm."});
        assert_eq!(whole(&plain, "stop"), said("Ann.", Finish::Complete));
        let parts = json!({"content": [{"type": "text", "text": "An"}, {"type": "text", "text": "n."}]});
        assert_eq!(whole(&parts, "length"), said("Ann.", Finish::Length));
        let refusal = json!({"content": null, "refusal": "I can't."});
        assert_eq!(whole(&refusal, "content_filter"), said("", Finish::Filtered));
        let calls = json!({"content": "I'll look.", "tool_calls": [{"id": "x"}]});
        assert_eq!(whole(&calls, "tool_calls"), said("", Finish::Unknown));
        assert_eq!(whole(&json!({"content": "x"}), "weary"), said("x", Finish::Unknown));
        let untold = json!({"choices": [{"message": {"content": "x"}, "finish_reason": null}]});
        assert_eq!(answer(&untold).unwrap().finish, Finish::Unknown);
    }

    #[test]
    fn a_refusal_stays_one_though_the_reason_is_stop() {
        let (_, finish) = whole(&json!({"content": null, "refusal": "I can't."}), "stop").unwrap();
        assert_eq!(finish, Finish::Filtered);
    }

    #[test]
    fn what_failed_is_told_wherever_it_stands() {
        let body = |reason: &str, more: Value| {
            let mut body = json!({"choices": [{"message": {"content": "Ann."}, "finish_reason": reason}]});
            let fields = more.as_object().unwrap().clone();
            body.as_object_mut().unwrap().extend(fields);
            body
        };
        for reason in ["error", "network_error", "ERROR", "abort", "insufficient_system_resource"] {
            let told = failure(&body(reason, json!({}))).unwrap();
            assert_eq!(told, json!({"error": {"type": reason.to_lowercase()}}));
        }
        for reason in ["stop", "length", "tool_calls", "content_filter", "weary"] {
            for more in [json!({}), json!({"error": null}), json!({"error": {}}), json!({"error": ""})] {
                assert_eq!(failure(&body(reason, more)), None, "{reason}");
            }
        }
        let told = failure(&body("stop", json!({"error": {"code": 429}}))).unwrap();
        assert_eq!(told["error"]["code"], 429);
        let inside = json!({"choices": [{"delta": {}, "error": {"code": 502}}]}).to_string();
        assert!(
            matches!(hear(&mut Hearing::default(), &inside), Then::Failed(told) if told["error"]["code"] == 502)
        );
    }

    #[test]
    fn what_is_no_chat_completion_is_none() {
        for body in [json!({}), json!([]), json!({"choices": []}), json!({"choices": [{"text": "old"}]})] {
            assert!(answer(&body).is_none(), "{body}");
        }
        assert_eq!(whole(&json!({"content": 7}), "stop"), None);
    }

    #[test]
    fn a_stream_is_put_together_and_is_whole_only_with_its_end() {
        let mut heard = Hearing::default();
        for text in ["An", "n."] {
            let event = json!({"choices": [{"delta": {"content": text}}]}).to_string();
            assert!(matches!(hear(&mut heard, &event), Then::GoOn));
        }
        assert!(!heard.is_whole());
        let last = json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}).to_string();
        assert!(matches!(hear(&mut heard, &last), Then::GoOn));
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}).to_string();
        assert!(matches!(hear(&mut heard, &usage), Then::GoOn));
        assert!(matches!(hear(&mut heard, "[DONE]"), Then::End));
        let answer = heard.answer();
        assert_eq!((answer.text.as_str(), answer.finish, answer.whole), ("Ann.", Finish::Complete, true));
        assert_eq!(answer.tally, Some(Tally { input: 9, cached: 0, output: 2 }));
        let failed = json!({"error": {"type": "server_error"}}).to_string();
        assert!(matches!(hear(&mut Hearing::default(), &failed), Then::Failed(_)));
        assert!(matches!(hear(&mut Hearing::default(), "<html>"), Then::Odd));
    }
}
