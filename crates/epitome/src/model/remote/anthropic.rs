//! Anthropic's messages, as a plain mapping: what is sent, and what is taken of what comes back.

use epitome_core::inspect::Finish;
use epitome_core::message::Tokens;
use serde_json::{Map, Value, json};

use super::stream::{Heard, Then};
use super::{Answer, Question};

/// The form of the wire that is spoken here.
pub(super) const VERSION: &str = "2023-06-01";

pub(super) fn body(question: &Question<'_>, most: Tokens) -> Value {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(question.model));
    body.insert("max_tokens".to_owned(), json!(most));
    if !question.system.is_empty() {
        body.insert("system".to_owned(), json!(question.system));
    }
    body.insert("messages".to_owned(), json!([{"role": "user", "content": question.user}]));
    body.insert("stream".to_owned(), json!(question.stream));
    Value::Object(body)
}

/// The answer of a whole body; `None` where it is no message.
pub(super) fn answer(body: &Value) -> Option<Answer> {
    let blocks = body.get("content")?.as_array()?;
    let mut heard = Heard { ended: true, ..Heard::default() };
    for block in blocks.iter().filter(|block| kind(block) == "text") {
        heard.text.push_str(block.get("text")?.as_str()?);
    }
    stop(&mut heard, body);
    if let Some(usage) = body.get("usage") {
        heard.usage.hear_anthropic(usage);
    }
    Some(heard.answer())
}

/// Takes one event of a stream.
pub(super) fn hear(heard: &mut Heard, event: &str) -> Then {
    let Ok(event) = serde_json::from_str::<Value>(event) else { return Then::Odd };
    match kind(&event) {
        "message_start" => {
            if let Some(usage) = event.pointer("/message/usage") {
                heard.usage.hear_anthropic(usage);
            }
        }
        "content_block_start" => {
            // Empty, as far as was seen; what would stand there belongs to the text.
            heard.text.push_str(event.pointer("/content_block/text").and_then(Value::as_str).unwrap_or(""));
        }
        "content_block_delta" => {
            let delta = event.get("delta").unwrap_or(&Value::Null);
            if kind(delta) == "text_delta" {
                heard.text.push_str(delta.get("text").and_then(Value::as_str).unwrap_or(""));
            }
        }
        "message_delta" => {
            stop(heard, event.get("delta").unwrap_or(&Value::Null));
            if let Some(usage) = event.get("usage") {
                heard.usage.hear_anthropic(usage);
            }
        }
        "message_stop" => {
            heard.ended = true;
            return Then::End;
        }
        "error" => return Then::Failed(event),
        "" => return Then::Odd,
        // Pings, ends of blocks, and what will be thought of later.
        _ => {}
    }
    Then::GoOn
}

/// Takes the reason it stopped for, where there is one.
fn stop(heard: &mut Heard, from: &Value) {
    if let Some(reason) = from.get("stop_reason").and_then(Value::as_str) {
        heard.calls_tool = reason == "tool_use";
        heard.finish = Some(match reason {
            "end_turn" | "stop_sequence" => Finish::Complete,
            // Neither came to its end, and a pause waits to be gone on with.
            "max_tokens" | "model_context_window_exceeded" | "pause_turn" => Finish::Length,
            "refusal" => Finish::Filtered,
            _ => Finish::Unknown,
        });
    }
}

fn kind(value: &Value) -> &str {
    value.get("type").and_then(Value::as_str).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Tally;

    fn whole(content: &Value, reason: &str) -> Option<(String, Finish)> {
        answer(&json!({"content": content, "stop_reason": reason})).map(|answer| (answer.text, answer.finish))
    }

    #[test]
    fn only_text_is_taken_and_the_reason_is_known() {
        let said = |text: &str, finish| Some((text.to_owned(), finish));
        let thought = json!([{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Ann."}]);
        assert_eq!(whole(&thought, "end_turn"), said("Ann.", Finish::Complete));
        let text = || json!([{"type": "text", "text": "Ann."}]);
        assert_eq!(whole(&text(), "max_tokens"), said("Ann.", Finish::Length));
        assert_eq!(whole(&text(), "refusal"), said("Ann.", Finish::Filtered));
        assert_eq!(whole(&text(), "tool_use"), said("", Finish::Unknown));
        assert_eq!(whole(&text(), "model_context_window_exceeded"), said("Ann.", Finish::Length));
        assert_eq!(whole(&text(), "pause_turn"), said("Ann.", Finish::Length));
        assert_eq!(whole(&text(), "weary"), said("Ann.", Finish::Unknown));
        assert_eq!(whole(&json!([]), "end_turn"), said("", Finish::Complete));
        assert_eq!(whole(&json!("Ann."), "end_turn"), None);
        assert_eq!(whole(&json!([{"type": "text", "text": 7}]), "end_turn"), None);
    }

    #[test]
    fn a_stream_is_whole_only_with_its_end() {
        let mut heard = Heard::default();
        let mut tell = |event: Value| hear(&mut heard, &event.to_string());
        tell(
            json!({"type": "message_start", "message": {"usage": {"input_tokens": 30, "output_tokens": 1}}}),
        );
        tell(json!({"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "Hm."}}));
        tell(json!({"type": "ping"}));
        tell(json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Ann."}}));
        tell(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
                "usage": {"output_tokens": 8}}));
        assert!(matches!(
            tell(json!({"type": "error", "error": {"type": "overloaded_error"}})),
            Then::Failed(_)
        ));
        assert!(matches!(tell(json!({"no": "type"})), Then::Odd));
        assert!(!heard.ended);
        assert!(matches!(hear(&mut heard, r#"{"type": "message_stop"}"#), Then::End));
        let answer = heard.answer();
        assert_eq!((answer.text.as_str(), answer.finish, answer.whole), ("Ann.", Finish::Complete, true));
        assert_eq!(answer.tally, Some(Tally { input: 30, cached: 0, output: 8 }));
    }
}
