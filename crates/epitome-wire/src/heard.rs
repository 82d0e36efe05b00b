//! Observes a forwarded reply: the provider's token counts, and whether the reply is complete.
//!
//! The reply is not changed, delayed or stored. It is one document or a stream of events, depending on its
//! content type. A reply that is too large to be observed is still forwarded; its counts are then unknown.
//!
//! A stream consists mostly of text. Events without relevant fields are not parsed but recognised by the
//! strings in quotation marks.

use epitome_core::message::Tokens;
use serde_json::Value;

use crate::Dialect;
use crate::asking::{Hearing, Then, is_done};
use crate::events::Events;
use crate::usage::Tally;

/// Maximum size of a single-document reply that is read, in bytes.
const MOST_HELD: usize = 1 << 20;

/// A provider's token counts for one request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// All input tokens, including those read from and written to a cache.
    pub input: Tokens,
    /// Input tokens that were read from a cache.
    pub cached: Tokens,
    /// Input tokens that were written to a cache, if the provider reports them.
    pub written: Tokens,
    /// Output tokens.
    pub output: Tokens,
}

/// The result of observing a reply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Heard {
    /// The provider's token counts, if reported.
    pub counted: Option<Counted>,
    /// Whether the provider marked the reply as finished. An interrupted or failed reply is not complete.
    pub complete: bool,
    /// The failure in the reply, as the provider sent it. [`TooLong::told`](crate::TooLong::told) returns
    /// whether the request was too long. The text may quote message content.
    pub failed: Option<Value>,
}

/// Observes one reply.
///
/// ```
/// use epitome_wire::{Dialect, Listener};
///
/// let mut listener = Listener::new(Dialect::OPENAI, Some("text/event-stream"));
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
    hearing: Hearing,
    failed: Option<Value>,
}

#[derive(Debug)]
enum Form {
    Whole(Vec<u8>),
    Stream(Events),
    /// Nothing more of the reply is read.
    Deaf,
}

impl Listener {
    /// Creates a listener for a reply with this content type.
    pub fn new(dialect: Dialect, content_type: Option<&str>) -> Self {
        let kind = content_type.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
        let form = if kind.eq_ignore_ascii_case("text/event-stream") {
            Form::Stream(Events::default())
        } else {
            Form::Whole(Vec::new())
        };
        Self { dialect, form, hearing: Hearing::default(), failed: None }
    }

    /// Adds the next bytes.
    pub fn hear(&mut self, bytes: &[u8]) {
        let Self { dialect, form, hearing, failed } = self;
        match form {
            Form::Whole(before) if before.len().saturating_add(bytes.len()) > MOST_HELD => *form = Form::Deaf,
            Form::Whole(before) => before.extend_from_slice(bytes),
            Form::Stream(events) => events.each(bytes, |event| take(*dialect, event, hearing, failed)),
            Form::Deaf => {}
        }
    }

    /// Returns the result after the last bytes.
    pub fn end(self) -> Heard {
        let Self { dialect, form, mut hearing, mut failed } = self;
        match form {
            Form::Whole(bytes) => {
                if let Ok(reply) = serde_json::from_slice(&bytes)
                    && let Then::Failed(error) = hearing.document(dialect, &reply)
                {
                    failed = Some(error);
                }
            }
            Form::Stream(mut events) => {
                events.end(|event| take(dialect, event, &mut hearing, &mut failed));
            }
            Form::Deaf => {}
        }
        let written = hearing.usage.cache_write.unwrap_or(0);
        let counted = hearing.usage.tally();
        let counted =
            counted.map(|Tally { input, cached, output }| Counted { input, cached, written, output });
        Heard { counted, complete: hearing.is_whole() && failed.is_none(), failed }
    }
}

impl Hearing {
    /// Reads an answer in one document. It is complete, unless the provider is still working on it.
    pub fn document(&mut self, dialect: Dialect, body: &Value) -> Then {
        let then = dialect.0.take(self, body);
        self.ended = then != Then::GoOn;
        then
    }

    /// Reads the data of one event of a stream.
    pub fn event(&mut self, dialect: Dialect, data: &[u8]) -> Then {
        if is_done(data) {
            self.ended = true;
            return Then::End;
        }
        match serde_json::from_str(&String::from_utf8_lossy(data)) {
            Ok(event) => dialect.0.hear(self, &event),
            Err(_) => Then::Odd,
        }
    }
}

/// Reads one event of a stream.
fn take(dialect: Dialect, data: &[u8], hearing: &mut Hearing, failed: &mut Option<Value>) {
    if !is_done(data) && !may_matter(dialect, data) {
        return;
    }
    if let Then::Failed(error) = hearing.event(dialect, data) {
        *failed = Some(error);
    }
    // The text is not needed here.
    hearing.text.clear();
}

/// Returns whether an event may be relevant: whether a relevant word occurs between two quotation marks. It
/// may return true for an irrelevant event, but never false for a relevant one.
fn may_matter(dialect: Dialect, data: &[u8]) -> bool {
    let telling = dialect.0.about().telling;
    let mut pieces = data.split(|byte| *byte == b'"').peekable();
    while let Some(word) = pieces.next() {
        let Some((_, idle)) = telling.iter().find(|(telling, _)| telling.as_bytes() == word) else {
            continue;
        };
        let value = pieces.peek().and_then(|after| after.trim_ascii_start().strip_prefix(b":"));
        let is_idle = value.is_some_and(|value| value.trim_ascii_start().starts_with(idle.as_bytes()));
        if idle.is_empty() || !is_idle {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Checks the result for a reply in pieces of different sizes.
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
        check(Dialect::OPENAI, JSON, &chat.to_string(), true, Some([9, 4, 0, 2]));
        let responses = json!({"usage": {"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}}});
        check(Dialect::RESPONSES, JSON, &responses.to_string(), true, Some([9, 4, 0, 2]));
        let anthropic = json!({"usage": {"input_tokens": 1, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 3, "output_tokens": 2}});
        check(Dialect::ANTHROPIC, JSON, &anthropic.to_string(), true, Some([9, 5, 3, 2]));
        check(Dialect::OPENAI, JSON, "{\"usage\": {\"prompt", false, None);
        check(Dialect::OPENAI, JSON, "", false, None);
    }

    #[test]
    fn a_stream_is_complete_where_it_says_so_and_only_there() {
        let start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":7,\"output_tokens\":1}}}\n\n";
        let delta =
            "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":20}}\n\n";
        let stop = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
        check(Dialect::ANTHROPIC, STREAM, &format!("{start}{delta}{stop}"), true, Some([7, 0, 0, 20]));
        check(Dialect::ANTHROPIC, STREAM, &format!("{start}{delta}"), false, Some([7, 0, 0, 20]));
        let half = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":null}]}\n\n";
        check(Dialect::OPENAI, STREAM, half, false, None);
        let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\n";
        check(Dialect::OPENAI, STREAM, &format!("{half}{end}"), true, None);
        let done = "data: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":7,\"output_tokens\":2}}}\n\n";
        check(Dialect::RESPONSES, STREAM, done, true, Some([7, 0, 0, 2]));
        check(Dialect::RESPONSES, STREAM, &done.replace("completed", "created"), false, None);
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
        check(Dialect::RESPONSES, failed, "context_length_exceeded");
        check(
            Dialect::ANTHROPIC,
            "data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n",
            "overloaded",
        );
        check(Dialect::OPENAI, "data: {\"error\":{\"code\":\"server_error\"}}\n\n", "server_error");
    }

    #[test]
    fn a_document_that_is_too_large_is_not_held() {
        let mut listener = Listener::new(Dialect::OPENAI, Some(JSON));
        (0..=MOST_HELD >> 10).for_each(|_| listener.hear(&[b'x'; 1 << 10]));
        assert!(matches!(listener.form, Form::Deaf));
        assert_eq!(listener.end(), Heard::default());
    }

    #[test]
    fn words_are_not_parsed_and_what_tells_something_is() {
        let check = |dialect, data: &str, expected: bool| {
            assert_eq!(may_matter(dialect, data.as_bytes()), expected, "{data}");
        };
        let chat =
            |rest: &str| format!("{{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"Hi\"}},{rest}}}]}}");
        check(Dialect::OPENAI, &chat("\"finish_reason\": null"), false);
        check(Dialect::OPENAI, &chat("\"finish_reason\" : null}],\"usage\" :null,\"x\":[{"), false);
        check(Dialect::OPENAI, &chat("\"finish_reason\":\"stop\""), true);
        check(Dialect::OPENAI, &chat("\"finish_reason\":null}],\"usage\":{\"a\":[{}]},\"x\":[{"), true);
        check(Dialect::OPENAI, &chat("\"index\" : 1"), true);
        let quoted =
            r#"{"type":"content_block_delta","delta":{"text":"say \"message_stop\" or \"error\" "}}"#;
        check(Dialect::ANTHROPIC, quoted, false);
        check(Dialect::ANTHROPIC, r#"{ "type" : "message_stop" }"#, true);
        check(Dialect::RESPONSES, r#"{"type":"response.output_text.delta","delta":"error"}"#, true);
        check(Dialect::RESPONSES, r#"{"type":"response.output_text.delta","delta":"an error"}"#, false);
    }
}
