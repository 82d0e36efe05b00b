//! Asking a model in chat completions, and listening to its answers.
//!
//! Most servers speak it, so these are what a [`Format`](crate::Format) does by default. How its messages are read and spelled
//! is in `openai`.

use epitome_core::inspect::Finish;
use epitome_core::message::MediaSource;
use serde_json::{Value, json};

use crate::asking::{Answer, Hearing, Question, Then, text};
use crate::field::given;
use crate::fit::Wants;
use crate::media;
use crate::usage::{Usage, tokens};

/// What the provider takes: no reasoning, and results in words.
pub(crate) const WANTS: Wants = Wants {
    // Longer ids are refused by the provider: "Expected a string with maximum length 40".
    longest_id: 40,
    carried: |media| match &media.source {
        MediaSource::Base64(_) if media.mime.starts_with("audio/") => {
            matches!(media.mime.as_str(), "audio/wav" | "audio/x-wav" | "audio/mpeg")
        }
        MediaSource::Base64(_) => media::is_seen(media),
        MediaSource::Url(_) => media::is_picture(media) && media::is_seen(media),
        // A file of Anthropic's begins so, and is not known here.
        MediaSource::File(id) => !media::is_picture(media) && !id.starts_with("file_"),
    },
    media_in_results: false,
    media_came_in_results: false,
    reasoning: |_, _| false,
    // Who sends reasoning here has a server that wants it back.
    reasoning_goes_back: true,
    item_ids: false,
};

pub(crate) fn ask(question: &Question<'_>) -> Value {
    let mut messages = Vec::new();
    if !question.system.is_empty() {
        messages.push(json!({"role": "system", "content": question.system}));
    }
    messages.push(json!({"role": "user", "content": question.user}));
    given(json!({
        "model": question.model,
        "messages": messages,
        (question.limit): question.most,
        "stream": question.stream,
        "stream_options": question.stream.then(|| json!({"include_usage": true})),
    }))
}

pub(crate) fn answer(body: &Value) -> Option<Answer> {
    let choice = body.get("choices")?.get(0)?;
    let message = choice.get("message").filter(|message| message.is_object())?;
    let mut hearing = Hearing::whole();
    count(body, &mut hearing.usage);
    say(&mut hearing, message)?;
    stop(&mut hearing, choice);
    Some(hearing.answer())
}

pub(crate) fn hear(hearing: &mut Hearing, event: &Value) -> Then {
    if let Some(error) = failure(event) {
        return Then::Failed(error);
    }
    count(event, &mut hearing.usage);
    let choices = event.get("choices").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for choice in choices {
        let index = choice.get("index").and_then(Value::as_u64).unwrap_or(0);
        // Some servers have an empty reason where others have none.
        hearing.follow(index, !text(choice, "finish_reason").is_empty());
    }
    // The last event brings the usage only; a gateway's own may bring nothing we know.
    let Some(choice) = choices.first() else { return Then::GoOn };
    if choice.get("delta").is_some_and(|delta| say(hearing, delta).is_none()) {
        return Then::Odd;
    }
    // Nothing is said after the reason, but the usage and the end mark still come.
    stop(hearing, choice);
    Then::GoOn
}

/// Takes the text of a message or of a piece of one; `None` where there should be text and is none.
fn say(hearing: &mut Hearing, message: &Value) -> Option<()> {
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

/// Takes the reason it stopped for, where there is one. A refusal stays one whatever is given as the reason.
fn stop(hearing: &mut Hearing, choice: &Value) {
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

/// `prompt_tokens` holds what was read from a cache, and what was put into one.
pub(crate) fn count(reply: &Value, sums: &mut Usage) {
    let Some(usage) = reply.get("usage") else { return };
    // DeepSeek and Moonshot have their own places; OpenRouter and LiteLLM pass on what Anthropic tells.
    let read = ["/prompt_tokens_details/cached_tokens", "/prompt_cache_hit_tokens", "/cached_tokens"];
    let write = ["/prompt_tokens_details/cache_write_tokens", "/cache_creation_input_tokens"];
    let first = |places: &[&str]| places.iter().find_map(|place| tokens(usage.pointer(place)));
    let output = tokens(usage.get("completion_tokens"));
    sums.replace(Usage::parted(tokens(usage.get("prompt_tokens")), first(&read), first(&write), output));
}

/// These stand in every event, mostly with nothing.
pub(crate) fn may_matter(word: &[u8], after: &[u8]) -> bool {
    let is = |value: &[u8]| {
        let given = after.trim_ascii_start().strip_prefix(b":");
        given.is_some_and(|given| given.trim_ascii_start().starts_with(value))
    };
    match word {
        b"usage" | b"finish_reason" | b"error" => !is(b"null"),
        b"index" => !is(b"0"),
        _ => false,
    }
}

/// The failure that stands in a body or an event: beside what was said, in its choice, or as the reason it ended
/// for. What was said until then is half of an answer, at most.
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

/// Whether an answer that ended for this has failed.
fn fails(reason: &str) -> bool {
    // `error` is OpenRouter's, `network_error` Zhipu's, `malformed_function_call` Gemini's, `abort` vLLM's; the
    // longest is DeepSeek's.
    let known =
        ["abort", "aborted", "cancelled", "canceled", "timeout", "failed", "insufficient_system_resource"];
    reason.contains("error") || reason.starts_with("malformed_") || known.contains(&reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dialect, Tally};

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
