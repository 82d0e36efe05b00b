//! OpenAI's Responses, as a plain mapping: what is sent, and what is taken of what comes back.
//!
//! Spoken to those whose own requests are in this form: some models answer in no other.

use epitome_core::inspect::Finish;
use epitome_core::message::Tokens;
use serde_json::{Map, Value, json};

use super::stream::{Heard, Then};
use super::{Answer, Question};
use epitome_wire::Usage;

pub(super) fn body(question: &Question<'_>, most: Tokens) -> Value {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(question.model));
    if !question.system.is_empty() {
        body.insert("instructions".to_owned(), json!(question.system));
    }
    body.insert("input".to_owned(), json!(question.user));
    body.insert("max_output_tokens".to_owned(), json!(most));
    // What was said is nobody's to keep.
    body.insert("store".to_owned(), json!(false));
    body.insert("stream".to_owned(), json!(question.stream));
    Value::Object(body)
}

/// The answer of a whole body; `None` where it is no response that came to an end.
pub(super) fn answer(body: &Value) -> Option<Answer> {
    let mut heard = Heard::default();
    end(&mut heard, body)?;
    Some(heard.answer())
}

/// Takes one event of a stream.
pub(super) fn hear(heard: &mut Heard, event: &str) -> Then {
    let Ok(event) = serde_json::from_str::<Value>(event) else { return Then::Odd };
    let response = event.get("response").unwrap_or(&Value::Null);
    match kind(&event) {
        "response.output_text.delta" => {
            heard.text.push_str(event.get("delta").and_then(Value::as_str).unwrap_or(""));
        }
        // All of it is said again at the end.
        "response.completed" | "response.incomplete" => {
            return if end(heard, response).is_some() { Then::End } else { Then::Odd };
        }
        "response.failed" => return Then::Failed(response.clone()),
        "error" => return Then::Failed(event),
        "" => return Then::Odd,
        _ => {}
    }
    Then::GoOn
}

/// Takes a response that came to an end.
fn end(heard: &mut Heard, response: &Value) -> Option<()> {
    let failed = response.get("error").is_some_and(|error| !error.is_null());
    let finish = match response.get("status").and_then(Value::as_str)? {
        _ if failed => return None,
        "completed" => Finish::Complete,
        "incomplete" => match response.pointer("/incomplete_details/reason").and_then(Value::as_str) {
            Some("content_filter") => Finish::Filtered,
            _ => Finish::Length,
        },
        _ => return None,
    };
    (heard.text, heard.finish, heard.ended) = (String::new(), Some(finish), true);
    for item in response.get("output")?.as_array()? {
        heard.calls_tool |= kind(item).ends_with("_call");
        let said = item.get("content").and_then(Value::as_array).into_iter().flatten();
        for piece in said.filter(|_| kind(item) == "message") {
            match kind(piece) {
                "output_text" => heard.text.push_str(piece.get("text")?.as_str()?),
                "refusal" => heard.finish = Some(Finish::Filtered),
                _ => {}
            }
        }
    }
    if let Some(usage) = response.get("usage").filter(|usage| usage.is_object()) {
        heard.usage = Usage::responses(usage);
    }
    Some(())
}

fn kind(value: &Value) -> &str {
    value.get("type").and_then(Value::as_str).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Tally;

    fn response(status: &str, output: &Value) -> Value {
        json!({"status": status, "error": null, "output": output, "incomplete_details": null,
            "usage": {"input_tokens": 30, "input_tokens_details": {"cached_tokens": 10}, "output_tokens": 8}})
    }

    fn says(kind: &str, text: &str) -> Value {
        json!([{"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
            {"type": "message", "role": "assistant", "content": [{"type": kind, "text": text, "refusal": text}]}])
    }

    #[test]
    fn only_what_is_said_is_taken_and_the_reason_is_known() {
        let whole = |body: &Value| answer(body).map(|answer| (answer.text, answer.finish));
        let said = |text: &str, finish| Some((text.to_owned(), finish));
        let text = says("output_text", "Ann.");
        assert_eq!(whole(&response("completed", &text)), said("Ann.", Finish::Complete));
        assert_eq!(whole(&response("incomplete", &text)), said("Ann.", Finish::Length));
        let mut filtered = response("incomplete", &text);
        filtered["incomplete_details"] = json!({"reason": "content_filter"});
        assert_eq!(whole(&filtered), said("Ann.", Finish::Filtered));
        assert_eq!(whole(&response("completed", &says("refusal", "No."))), said("", Finish::Filtered));
        let called = json!([{"type": "function_call", "name": "f", "arguments": "{}"}, text[1]]);
        assert_eq!(whole(&response("completed", &called)), said("", Finish::Complete));
        assert_eq!(
            answer(&response("completed", &text)).unwrap().tally,
            Some(Tally { input: 30, cached: 10, output: 8 })
        );
    }

    #[test]
    fn what_failed_or_is_not_done_is_no_answer() {
        let text = says("output_text", "Ann.");
        for status in ["queued", "in_progress", "failed", "cancelled"] {
            assert!(answer(&response(status, &text)).is_none(), "{status}");
        }
        let mut failed = response("completed", &text);
        failed["error"] = json!({"code": "server_error"});
        assert!(answer(&failed).is_none() && answer(&json!({})).is_none());
        assert!(answer(&json!({"status": "completed", "output": "Ann."})).is_none());
    }

    #[test]
    fn a_stream_is_whole_only_with_its_end() {
        let mut heard = Heard::default();
        let mut tell = |event: Value| hear(&mut heard, &event.to_string());
        assert!(matches!(tell(json!({"type": "response.created", "response": {}})), Then::GoOn));
        assert!(matches!(tell(json!({"type": "response.output_text.delta", "delta": "An"})), Then::GoOn));
        assert!(matches!(tell(json!({"type": "error", "code": "server_error"})), Then::Failed(_)));
        assert!(matches!(
            tell(json!({"type": "response.failed", "response": {"error": {}}})),
            Then::Failed(_)
        ));
        assert!(matches!(tell(json!({"no": "type"})), Then::Odd));
        assert!(!heard.ended);
        let last = json!({"type": "response.completed", "response": response("completed", &says("output_text", "Ann."))});
        assert!(matches!(hear(&mut heard, &last.to_string()), Then::End));
        let answer = heard.answer();
        assert_eq!((answer.text.as_str(), answer.finish, answer.whole), ("Ann.", Finish::Complete, true));
    }
}
