//! Listening to a reply that passes by: what the provider counted, and whether the reply came to its end.
//!
//! Nothing of it is changed, kept back or remembered. A reply is one document, or a stream of events; which of the two is told
//! by its content type. What is too large to be listened to passes all the same, and nothing is known of it.
//!
//! A stream is mostly words. Events that cannot tell anything are not parsed, but passed over by their quotation marks.

use std::collections::BTreeSet;

use epitome_core::message::Tokens;
use serde_json::Value;

use super::Dialect;
use super::events::Events;
use super::failure::failure;
use super::usage::Usage;

/// So much of a reply that is one document is held until it can be read, in bytes.
const MOST_HELD: usize = 1 << 20;

/// Of more answers to one request none is followed to its end.
const MOST_CHOICES: usize = 1_024;

/// What a provider counted for one request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// All that went in, what was read from a cache or put into one included.
    pub input: Tokens,
    /// How much of it was read from a cache.
    pub cached: Tokens,
    /// How much of it was put into a cache, where the provider says so.
    pub written: Tokens,
    /// What came out.
    pub output: Tokens,
}

/// What was heard of a reply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Heard {
    /// What the provider counted, where it said so.
    pub counted: Option<Counted>,
    /// Whether the provider said that this was all. A reply that broke off is not complete, nor one that failed.
    pub complete: bool,
    /// The failure in it, as the provider tells it. [`TooLong::told`](crate::TooLong::told) knows whether it is for
    /// the request's length. It may quote what was said.
    pub failed: Option<Value>,
}

/// Listens to one reply.
///
/// ```
/// use epitome_wire::{Dialect, Listener};
///
/// let mut listener = Listener::new(Dialect::OpenAi, Some("text/event-stream"));
/// listener.hear(b"data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":null}]}\n\n");
/// listener.hear(b"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: {\"choices\":[],");
/// listener.hear(b"\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n");
/// let heard = listener.end();
/// assert!(heard.complete);
/// assert_eq!(heard.counted.map(|counted| (counted.input, counted.output)), Some((12, 3)));
/// ```
#[derive(Debug)]
pub struct Listener {
    dialect: Dialect,
    form: Form,
    told: Told,
}

#[derive(Debug)]
enum Form {
    Whole(Vec<u8>),
    Stream(Events),
    /// Nothing more is read of it.
    Deaf,
}

/// What was told so far.
#[derive(Debug, Default)]
struct Told {
    usage: Usage,
    /// It was said that this is all.
    ended: bool,
    failed: Option<Value>,
    /// The answers of chat that were begun, besides the first, and those that came to their end.
    begun: BTreeSet<u64>,
    finished: BTreeSet<u64>,
}

impl Listener {
    /// For a reply of this content type.
    #[must_use]
    pub fn new(dialect: Dialect, content_type: Option<&str>) -> Self {
        let kind = content_type.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
        let form = if kind.eq_ignore_ascii_case("text/event-stream") {
            Form::Stream(Events::default())
        } else {
            Form::Whole(Vec::new())
        };
        Self { dialect, form, told: Told::default() }
    }

    /// Takes the next piece.
    pub fn hear(&mut self, bytes: &[u8]) {
        let Self { dialect, form, told } = self;
        match form {
            Form::Whole(before) if before.len().saturating_add(bytes.len()) > MOST_HELD => *form = Form::Deaf,
            Form::Whole(before) => before.extend_from_slice(bytes),
            Form::Stream(events) => events.each(bytes, |event| told.event(*dialect, event)),
            Form::Deaf => {}
        }
    }

    /// What was heard of it, once nothing more comes.
    #[must_use]
    pub fn end(self) -> Heard {
        let Self { dialect, form, mut told } = self;
        match form {
            Form::Whole(bytes) => {
                if let Ok(reply) = serde_json::from_slice::<Value>(&bytes) {
                    told.whole(dialect, &reply);
                }
            }
            Form::Stream(mut events) => {
                if let Some(last) = events.end() {
                    told.event(dialect, last.as_bytes());
                }
            }
            Form::Deaf => {}
        }
        told.heard()
    }
}

impl Told {
    fn heard(self) -> Heard {
        // Some servers end a stream of chat with its last reason, and without another word.
        let all_finished = self.finished.contains(&0) && self.begun.is_subset(&self.finished);
        let complete = (self.ended || all_finished) && self.failed.is_none();
        let written = self.usage.cache_write.unwrap_or(0);
        let counted = self.usage.tally().map(|tally| Counted {
            input: tally.input,
            cached: tally.cached,
            written,
            output: tally.output,
        });
        Heard { counted, complete, failed: self.failed }
    }

    /// A reply that is one document.
    fn whole(&mut self, dialect: Dialect, reply: &Value) {
        self.count(dialect, reply);
        let error = || reply.get("error").filter(|error| !error.is_null());
        self.failed = match dialect {
            Dialect::OpenAi | Dialect::Ours => failure(reply),
            Dialect::Responses | Dialect::Anthropic => error().map(|_| reply.clone()),
        };
        // One that is worked on in the background is answered before it is done.
        let status = reply.get("status").and_then(Value::as_str).filter(|_| dialect == Dialect::Responses);
        self.ended = status.is_none_or(|status| matches!(status, "completed" | "incomplete"));
    }

    /// One event of a stream.
    fn event(&mut self, dialect: Dialect, data: &[u8]) {
        if data.trim_ascii() == b"[DONE]" {
            self.ended = true;
            return;
        }
        if !may_tell(dialect, data) {
            return;
        }
        let Ok(event) = serde_json::from_str::<Value>(&String::from_utf8_lossy(data)) else { return };
        let kind = event.get("type").and_then(Value::as_str).unwrap_or_default();
        match dialect {
            Dialect::Responses => {
                let response = event.get("response").unwrap_or(&Value::Null);
                match kind {
                    "response.completed" | "response.incomplete" => {
                        self.ended = true;
                        self.count(dialect, response);
                    }
                    "response.failed" => {
                        self.count(dialect, response);
                        self.failed = Some(response.get("error").cloned().unwrap_or_default());
                    }
                    "error" => self.failed = Some(event),
                    _ => {}
                }
            }
            Dialect::Anthropic => match kind {
                "message_start" => self.count(dialect, event.get("message").unwrap_or(&Value::Null)),
                "message_delta" => self.count(dialect, &event),
                "message_stop" => self.ended = true,
                "error" => self.failed = Some(event),
                _ => {}
            },
            Dialect::OpenAi | Dialect::Ours => {
                self.failed = failure(&event).or(self.failed.take());
                self.count(dialect, &event);
                for choice in event.get("choices").and_then(Value::as_array).into_iter().flatten() {
                    self.follow(choice);
                }
            }
        }
    }

    /// A piece of one of the answers of chat.
    fn follow(&mut self, choice: &Value) {
        let index = choice.get("index").and_then(Value::as_u64).unwrap_or(0);
        let room = self.begun.len() < MOST_CHOICES;
        if index > 0 && room {
            self.begun.insert(index);
        }
        // Some servers have an empty reason where others have none.
        let reason = choice.get("finish_reason").and_then(Value::as_str).unwrap_or_default();
        if !reason.is_empty() && room {
            self.finished.insert(index);
        }
    }

    /// Takes over what a reply, or a piece of one, says was counted.
    fn count(&mut self, dialect: Dialect, reply: &Value) {
        let Some(usage) = reply.get("usage").filter(|usage| usage.is_object()) else { return };
        let counted = match dialect {
            Dialect::Anthropic => return self.usage.hear_anthropic(usage),
            Dialect::Responses => Usage::responses(usage),
            Dialect::OpenAi | Dialect::Ours => Usage::openai(usage),
        };
        if counted.input.is_some() {
            self.usage = counted;
        }
    }
}

/// Whether an event may say what is listened for: whether a word that would say so stands between two quotation marks. It may
/// say yes to what tells nothing, and never no to what does.
fn may_tell(dialect: Dialect, data: &[u8]) -> bool {
    let mut pieces = data.split(|byte| *byte == b'"').peekable();
    while let Some(word) = pieces.next() {
        let mut is = |value: &[u8]| pieces.peek().is_some_and(|next| is_value(next, value));
        let tells = match (dialect, word) {
            (Dialect::Responses, b"response.completed" | b"response.incomplete" | b"response.failed") => true,
            (Dialect::Anthropic, b"message_start" | b"message_delta" | b"message_stop") => true,
            (Dialect::Responses | Dialect::Anthropic, b"error") => true,
            // These stand in every event of chat, mostly with nothing.
            (Dialect::OpenAi | Dialect::Ours, b"usage" | b"finish_reason" | b"error") => !is(b"null"),
            (Dialect::OpenAi | Dialect::Ours, b"index") => !is(b"0"),
            _ => false,
        };
        if tells {
            return true;
        }
    }
    false
}

/// Whether what follows a name gives it this value.
fn is_value(text: &[u8], value: &[u8]) -> bool {
    text.trim_ascii_start().strip_prefix(b":").is_some_and(|rest| rest.trim_ascii_start().starts_with(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// However the reply is cut into pieces, this is heard.
    fn check(dialect: Dialect, kind: &str, reply: &str, complete: bool, counted: Option<[Tokens; 4]>) {
        for size in [1, 3, 17, 10_000] {
            let mut listener = Listener::new(dialect, Some(kind));
            reply.as_bytes().chunks(size).for_each(|piece| listener.hear(piece));
            let heard = listener.end();
            let sums = heard.counted.map(|c| [c.input, c.cached, c.written, c.output]);
            assert_eq!((heard.complete, sums), (complete, counted), "{reply}");
        }
    }

    const STREAM: &str = "text/event-stream; charset=utf-8";
    const JSON: &str = "application/json";

    #[test]
    fn whole_replies_tell_what_was_counted() {
        let chat = json!({"usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}});
        check(Dialect::OpenAi, JSON, &chat.to_string(), true, Some([9, 4, 0, 2]));
        let responses = json!({"usage": {"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}}});
        check(Dialect::Responses, JSON, &responses.to_string(), true, Some([9, 4, 0, 2]));
        let anthropic = json!({"usage": {"input_tokens": 1, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 3, "output_tokens": 2}});
        check(Dialect::Anthropic, JSON, &anthropic.to_string(), true, Some([9, 5, 3, 2]));
        check(Dialect::OpenAi, JSON, "{\"usage\": {\"prompt", false, None);
        check(Dialect::OpenAi, JSON, "", false, None);
    }

    #[test]
    fn a_stream_is_complete_where_it_says_so_and_only_there() {
        let start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":7,\"output_tokens\":1}}}\n\n";
        let delta =
            "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":20}}\n\n";
        let stop = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
        check(Dialect::Anthropic, STREAM, &format!("{start}{delta}{stop}"), true, Some([7, 0, 0, 20]));
        check(Dialect::Anthropic, STREAM, &format!("{start}{delta}"), false, Some([7, 0, 0, 20]));
        let half = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":null}]}\n\n";
        check(Dialect::OpenAi, STREAM, half, false, None);
        let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\n";
        check(Dialect::OpenAi, STREAM, &format!("{half}{end}"), true, None);
        let done = "data: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":7,\"output_tokens\":2}}}\n\n";
        check(Dialect::Responses, STREAM, done, true, Some([7, 0, 0, 2]));
        check(Dialect::Responses, STREAM, &done.replace("completed", "created"), false, None);
    }

    #[test]
    fn what_a_stream_failed_with_is_heard() {
        let check = |dialect, stream: &str, code: &str| {
            let mut listener = Listener::new(dialect, Some(STREAM));
            listener.hear(stream.as_bytes());
            let heard = listener.end();
            assert!(!heard.complete && heard.failed.unwrap().to_string().contains(code), "{stream}");
        };
        let failed = "data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"context_length_exceeded\"}}}\n\n";
        check(Dialect::Responses, failed, "context_length_exceeded");
        check(
            Dialect::Anthropic,
            "data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n",
            "overloaded",
        );
        check(Dialect::OpenAi, "data: {\"error\":{\"code\":\"server_error\"}}\n\n", "server_error");
    }

    #[test]
    fn a_document_that_is_too_large_is_not_held() {
        let mut listener = Listener::new(Dialect::OpenAi, Some(JSON));
        (0..=MOST_HELD >> 10).for_each(|_| listener.hear(&[b'x'; 1 << 10]));
        assert!(matches!(listener.form, Form::Deaf));
        assert_eq!(listener.end(), Heard::default());
    }

    #[test]
    fn words_are_not_parsed_and_what_tells_something_is() {
        let check = |dialect, data: &str, expected: bool| {
            assert_eq!(may_tell(dialect, data.as_bytes()), expected, "{data}");
        };
        let chat =
            |rest: &str| format!("{{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"Hi\"}},{rest}}}]}}");
        check(Dialect::OpenAi, &chat("\"finish_reason\": null"), false);
        check(Dialect::OpenAi, &chat("\"finish_reason\" : null}],\"usage\" :null,\"x\":[{"), false);
        check(Dialect::OpenAi, &chat("\"finish_reason\":\"stop\""), true);
        check(Dialect::OpenAi, &chat("\"finish_reason\":null}],\"usage\":{\"a\":[{}]},\"x\":[{"), true);
        check(Dialect::OpenAi, &chat("\"index\" : 1"), true);
        let quoted =
            r#"{"type":"content_block_delta","delta":{"text":"say \"message_stop\" or \"error\" "}}"#;
        check(Dialect::Anthropic, quoted, false);
        check(Dialect::Anthropic, r#"{ "type" : "message_stop" }"#, true);
        check(Dialect::Responses, r#"{"type":"response.output_text.delta","delta":"error"}"#, true);
        check(Dialect::Responses, r#"{"type":"response.output_text.delta","delta":"an error"}"#, false);
    }
}
