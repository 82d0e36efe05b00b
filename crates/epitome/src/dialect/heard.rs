//! Listening to a reply that passes by: what the provider counted, and whether the reply came to its end.
//!
//! Nothing of it is changed, kept back or remembered. A reply is one document, or a stream of events; which of the two is told
//! by its content type. What is too large to be listened to passes all the same, and nothing is known of it.

use epitome_core::message::Tokens;
use serde_json::Value;

use super::Dialect;
use super::events::Events;
use super::usage::Usage;

/// So much of a reply that is one document, or of one event, is held until it can be read, in bytes.
const MOST_HELD: usize = 4 << 20;

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
    /// Whether the provider said that this was all. A reply that broke off is none.
    pub complete: bool,
    /// The failure it ended with, as the provider tells it, where a stream ended so.
    pub failed: Option<Value>,
}

/// Listens to one reply.
///
/// ```
/// use epitome::dialect::{Dialect, Listener};
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
    usage: Usage,
    heard: Heard,
}

#[derive(Debug)]
enum Form {
    Whole(Vec<u8>),
    Stream(Events),
    /// Nothing more is read of it.
    Deaf,
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
        Self { dialect, form, usage: Usage::default(), heard: Heard::default() }
    }

    /// Takes the next piece.
    pub fn hear(&mut self, bytes: &[u8]) {
        let large = match &mut self.form {
            Form::Whole(before) => {
                let large = before.len().saturating_add(bytes.len()) > MOST_HELD;
                if !large {
                    before.extend_from_slice(bytes);
                }
                large
            }
            Form::Stream(events) => {
                let ended = events.feed(bytes);
                let large = events.held() > MOST_HELD;
                ended.iter().for_each(|event| self.event(event));
                large
            }
            Form::Deaf => false,
        };
        if large {
            self.form = Form::Deaf;
        }
    }

    /// What was heard of it, once nothing more comes.
    #[must_use]
    pub fn end(mut self) -> Heard {
        match std::mem::replace(&mut self.form, Form::Deaf) {
            Form::Whole(bytes) => {
                if let Ok(reply) = serde_json::from_slice::<Value>(&bytes) {
                    self.heard.complete = true;
                    self.count(&reply);
                }
            }
            Form::Stream(mut events) => {
                if let Some(last) = events.end() {
                    self.event(&last);
                }
            }
            Form::Deaf => {}
        }
        let Usage { cache_write, .. } = self.usage;
        self.heard.counted = self.usage.tally().map(|tally| Counted {
            input: tally.input,
            cached: tally.cached,
            written: cache_write.unwrap_or(0),
            output: tally.output,
        });
        self.heard
    }

    fn event(&mut self, data: &str) {
        if data.trim() == "[DONE]" {
            self.heard.complete = true;
            return;
        }
        let Ok(event) = serde_json::from_str::<Value>(data) else { return };
        let kind = event.get("type").and_then(Value::as_str).unwrap_or_default();
        match self.dialect {
            Dialect::Responses => match kind {
                "response.completed" | "response.incomplete" => {
                    self.heard.complete = true;
                    self.count(event.get("response").unwrap_or(&Value::Null));
                }
                "response.failed" => {
                    self.count(event.get("response").unwrap_or(&Value::Null));
                    self.heard.failed = event.pointer("/response/error").cloned();
                }
                "error" => self.heard.failed = Some(event),
                _ => {}
            },
            Dialect::Anthropic => match kind {
                "message_start" => self.count(event.get("message").unwrap_or(&Value::Null)),
                "message_delta" => self.count(&event),
                "message_stop" => self.heard.complete = true,
                "error" => self.heard.failed = event.get("error").cloned(),
                _ => {}
            },
            Dialect::OpenAi | Dialect::Ours => {
                if let Some(error) = event.get("error").filter(|error| !error.is_null()) {
                    self.heard.failed = Some(error.clone());
                }
                // Some servers end their stream here, without another word.
                let choices = event.get("choices").and_then(Value::as_array).into_iter().flatten();
                let mut ends = choices.filter_map(|choice| choice.get("finish_reason"));
                self.heard.complete |= ends.any(|reason| !reason.is_null());
                self.count(&event);
            }
        }
    }

    /// Takes over what a reply, or a piece of one, says was counted.
    fn count(&mut self, reply: &Value) {
        let Some(usage) = reply.get("usage").filter(|usage| usage.is_object()) else { return };
        match self.dialect {
            Dialect::Anthropic => self.usage.hear_anthropic(usage),
            Dialect::Responses => self.usage = Usage::responses(usage),
            Dialect::OpenAi | Dialect::Ours => self.usage = Usage::openai(usage),
        }
    }
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
    fn what_is_too_large_to_be_listened_to_is_not_held() {
        let mut listener = Listener::new(Dialect::OpenAi, Some(STREAM));
        (0..=MOST_HELD >> 10).for_each(|_| listener.hear(&[b'x'; 1 << 10]));
        assert!(matches!(listener.form, Form::Deaf));
        assert_eq!(listener.end(), Heard::default());
    }
}
