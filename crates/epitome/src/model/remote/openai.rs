//! OpenAI's chat completions, as a plain mapping: what is sent, and what is taken of what comes back.

use epitome_core::inspect::Finish;
use epitome_core::message::Tokens;
use serde_json::{Map, Value, json};

use super::stream::{Heard, Then};
use super::{Answer, Question};
use epitome_wire::{Usage, failure};

/// What ends a stream.
const DONE: &str = "[DONE]";

/// The two names of one setting; no server takes both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LimitName {
    MaxTokens,
    MaxCompletionTokens,
}

impl LimitName {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
        }
    }
}

pub(super) fn body(question: &Question<'_>, most: Tokens, limit: LimitName) -> Value {
    let mut messages = Vec::new();
    if !question.system.is_empty() {
        messages.push(json!({"role": "system", "content": question.system}));
    }
    messages.push(json!({"role": "user", "content": question.user}));
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(question.model));
    body.insert("messages".to_owned(), Value::Array(messages));
    body.insert(limit.name().to_owned(), json!(most));
    body.insert("stream".to_owned(), json!(question.stream));
    if question.stream {
        body.insert("stream_options".to_owned(), json!({"include_usage": true}));
    }
    Value::Object(body)
}

/// The answer of a whole body; `None` where it is no chat completion.
pub(super) fn answer(body: &Value) -> Option<Answer> {
    let choice = body.get("choices")?.get(0)?;
    let message = choice.get("message").filter(|message| message.is_object())?;
    let mut heard = Heard { ended: true, ..Heard::default() };
    heard.usage = body.get("usage").map(Usage::openai).unwrap_or_default();
    heard.say(message)?;
    heard.stop(choice);
    Some(heard.answer())
}

/// Takes one event of a stream.
pub(super) fn hear(heard: &mut Heard, event: &str) -> Then {
    if event.trim() == DONE {
        heard.ended = true;
        return Then::End;
    }
    let Ok(event) = serde_json::from_str::<Value>(event) else { return Then::Odd };
    if let Some(told) = failure(&event) {
        return Then::Failed(told);
    }
    if let Some(usage) = event.get("usage").filter(|usage| usage.is_object()) {
        heard.usage = Usage::openai(usage);
    }
    // The last one brings the usage only; a proxy's own may bring nothing we know.
    let Some(choice) = event.get("choices").and_then(|choices| choices.get(0)) else { return Then::GoOn };
    if let Some(delta) = choice.get("delta")
        && heard.say(delta).is_none()
    {
        return Then::Odd;
    }
    // Nothing is said after the reason, but the usage and the end mark still come.
    heard.ended |= heard.stop(choice);
    Then::GoOn
}

impl Heard {
    /// Takes the text of a message or of a piece of one; `None` where there should be text and is none.
    fn say(&mut self, message: &Value) -> Option<()> {
        match message.get("content") {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) => self.text.push_str(text),
            Some(Value::Array(parts)) => {
                let texts = parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str));
                texts.for_each(|text| self.text.push_str(text));
            }
            Some(_) => return None,
        }
        if message.get("refusal").and_then(Value::as_str).is_some_and(|words| !words.is_empty()) {
            self.finish = Some(Finish::Filtered);
        }
        Some(())
    }

    /// Takes the reason it stopped for, where there is one. A refusal stays one whatever is given as the
    /// reason.
    fn stop(&mut self, choice: &Value) -> bool {
        let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) else { return false };
        if self.finish != Some(Finish::Filtered) {
            self.finish = Some(finish(reason));
        }
        self.calls_tool = matches!(reason, "tool_calls" | "function_call");
        true
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Tally;

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
            matches!(hear(&mut Heard::default(), &inside), Then::Failed(told) if told["error"]["code"] == 502)
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
        let mut heard = Heard::default();
        for text in ["An", "n."] {
            let event = json!({"choices": [{"delta": {"content": text}}]}).to_string();
            assert!(matches!(hear(&mut heard, &event), Then::GoOn));
        }
        assert!(!heard.ended);
        let last = json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}).to_string();
        assert!(matches!(hear(&mut heard, &last), Then::GoOn));
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}).to_string();
        assert!(matches!(hear(&mut heard, &usage), Then::GoOn));
        assert!(matches!(hear(&mut heard, DONE), Then::End));
        let answer = heard.answer();
        assert_eq!((answer.text.as_str(), answer.finish, answer.whole), ("Ann.", Finish::Complete, true));
        assert_eq!(answer.tally, Some(Tally { input: 9, cached: 0, output: 2 }));
        let failed = json!({"error": {"type": "server_error"}}).to_string();
        assert!(matches!(hear(&mut Heard::default(), &failed), Then::Failed(_)));
        assert!(matches!(hear(&mut Heard::default(), "<html>"), Then::Odd));
    }
}
