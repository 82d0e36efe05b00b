//! Reads the token counts of a reply while the reply is forwarded, and detects whether the reply is complete.
//!
//! The listener does not change, delay or store the reply. The content type shows whether the reply is one JSON
//! document or a stream of events. A document that is too large to be read is still forwarded, but its token
//! counts are unknown.
//!
//! Most events of a stream contain only text. An event is parsed only if it contains a quoted word that shows
//! that the event may contain token counts, a stop reason or an error.

use epitome_core::message::Tokens;
use serde_json::Value;

use crate::Dialect;
use crate::answer::{PartialAnswer, ReadStatus, is_done};
use crate::sse::SseParser;
use crate::usage::TokenUsage;

/// Maximum size of a single-document reply that is read, in bytes.
const MAX_DOCUMENT_BYTES: usize = 1 << 20;

/// A provider's token counts for one request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplyUsage {
    /// All input tokens, including those read from and written to a cache.
    pub input: Tokens,
    /// Input tokens that were read from a cache.
    pub cached: Tokens,
    /// Input tokens that were written to a cache, if the provider reports them.
    pub cache_written: Tokens,
    /// Output tokens.
    pub output: Tokens,
}

/// The information that was read from a reply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplyOutcome {
    /// The provider's token counts, if reported.
    pub usage: Option<ReplyUsage>,
    /// Whether the provider marked the reply as finished. An interrupted or failed reply is not complete.
    pub complete: bool,
    /// The error in the reply, as the provider sent it. [`TooLong::from_error`](crate::TooLong::from_error)
    /// detects whether the request was too long. The error may contain message content.
    pub error: Option<Value>,
}

/// Reads the token counts of one reply, while it is forwarded.
///
/// ```
/// use epitome_wire::{Dialect, UsageListener};
///
/// let mut listener = UsageListener::new(Dialect::OPENAI, Some("text/event-stream"));
/// listener.push(b"data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":null}]}\n\n");
/// listener.push(b"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: {\"choices\":[],");
/// listener.push(b"\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n");
/// let outcome = listener.finish();
/// assert!(outcome.complete);
/// assert_eq!(outcome.usage.map(|usage| (usage.input, usage.output)), Some((12, 3)));
/// ```
#[derive(Debug)]
pub struct UsageListener {
    dialect: Dialect,
    form: ReplyForm,
    partial: PartialAnswer,
    error: Option<Value>,
}

#[derive(Debug)]
enum ReplyForm {
    /// One JSON document. Contains the bytes that were received so far.
    Document(Vec<u8>),
    Stream(SseParser),
    /// A document that is too large to be read.
    Ignored,
}

impl UsageListener {
    /// Creates a listener for a reply with this content type; `None` if the reply has no content type.
    pub fn new(dialect: Dialect, content_type: Option<&str>) -> Self {
        let kind = content_type.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
        let form = if kind.eq_ignore_ascii_case("text/event-stream") {
            ReplyForm::Stream(SseParser::default())
        } else {
            ReplyForm::Document(Vec::new())
        };
        Self { dialect, form, partial: PartialAnswer::default(), error: None }
    }

    /// Adds the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let Self { dialect, form, partial, error } = self;
        match form {
            ReplyForm::Document(before) if before.len().saturating_add(bytes.len()) > MAX_DOCUMENT_BYTES => {
                *form = ReplyForm::Ignored;
            }
            ReplyForm::Document(before) => before.extend_from_slice(bytes),
            ReplyForm::Stream(events) => {
                events.push(bytes, |event| read_event(*dialect, event, partial, error));
            }
            ReplyForm::Ignored => {}
        }
    }

    /// Returns the result. Call it after the last bytes.
    pub fn finish(self) -> ReplyOutcome {
        let Self { dialect, form, mut partial, mut error } = self;
        match form {
            ReplyForm::Document(bytes) => {
                if let Ok(reply) = serde_json::from_slice(&bytes)
                    && let ReadStatus::Failed(sent) = partial.read_body(dialect, &reply)
                {
                    error = Some(sent);
                }
            }
            ReplyForm::Stream(mut events) => {
                events.finish(|event| read_event(dialect, event, &mut partial, &mut error));
            }
            ReplyForm::Ignored => {}
        }
        let cache_written = partial.usage.cache_write.unwrap_or(0);
        let usage = partial.usage.total().map(|TokenUsage { input, cached, output }| ReplyUsage {
            input,
            cached,
            cache_written,
            output,
        });
        ReplyOutcome { usage, complete: partial.is_complete() && error.is_none(), error }
    }
}

impl PartialAnswer {
    /// Reads an answer that is one JSON document. The answer is complete, unless the provider is still working
    /// on it.
    pub fn read_body(&mut self, dialect: Dialect, body: &Value) -> ReadStatus {
        let status = dialect.0.read_body(self, body);
        self.ended = status != ReadStatus::Continue;
        status
    }

    /// Reads the data of one event of a stream.
    pub fn read_event(&mut self, dialect: Dialect, data: &[u8]) -> ReadStatus {
        if is_done(data) {
            self.ended = true;
            return ReadStatus::Done;
        }
        match serde_json::from_str(&String::from_utf8_lossy(data)) {
            Ok(event) => dialect.0.read_event(self, &event),
            Err(_) => ReadStatus::Unexpected,
        }
    }
}

/// Reads one event of a stream. Irrelevant events are not parsed.
fn read_event(dialect: Dialect, data: &[u8], partial: &mut PartialAnswer, error: &mut Option<Value>) {
    if !is_done(data) && !may_be_relevant(dialect, data) {
        return;
    }
    if let ReadStatus::Failed(sent) = partial.read_event(dialect, data) {
        *error = Some(sent);
    }
    // The listener does not need the text.
    partial.text.clear();
}

/// Returns whether an event may be relevant, because a relevant word occurs in quotation marks. The result may
/// be true for an irrelevant event, but is never false for a relevant event.
fn may_be_relevant(dialect: Dialect, data: &[u8]) -> bool {
    let relevant = dialect.0.about().relevant_words;
    let mut pieces = data.split(|byte| *byte == b'"').peekable();
    while let Some(word) = pieces.next() {
        let Some((_, idle)) = relevant.iter().find(|(relevant, _)| relevant.as_bytes() == word) else {
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
    fn check(dialect: Dialect, kind: &str, reply: &str, complete: bool, usage: Option<[Tokens; 4]>) {
        for size in [1, 3, 17, 10_000] {
            let mut listener = UsageListener::new(dialect, Some(kind));
            reply.as_bytes().chunks(size).for_each(|piece| listener.push(piece));
            let outcome = listener.finish();
            let sums =
                outcome.usage.map(|usage| [usage.input, usage.cached, usage.cache_written, usage.output]);
            assert_eq!((outcome.complete, sums), (complete, usage), "{reply}");
        }
    }

    const STREAM: &str = "text/event-stream; charset=utf-8";
    const JSON: &str = "application/json";

    #[test]
    fn document_replies_contain_token_counts() {
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
    fn a_stream_is_complete_only_if_it_is_marked_as_finished() {
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
    fn the_error_in_a_stream_is_returned() {
        let check = |dialect, stream: &str, code: &str| {
            let mut listener = UsageListener::new(dialect, Some(STREAM));
            listener.push(stream.as_bytes());
            let outcome = listener.finish();
            assert!(!outcome.complete && outcome.error.unwrap().to_string().contains(code), "{stream}");
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
    fn a_document_that_is_too_large_is_ignored() {
        let mut listener = UsageListener::new(Dialect::OPENAI, Some(JSON));
        (0..=MAX_DOCUMENT_BYTES >> 10).for_each(|_| listener.push(&[b'x'; 1 << 10]));
        assert!(matches!(listener.form, ReplyForm::Ignored));
        assert_eq!(listener.finish(), ReplyOutcome::default());
    }

    #[test]
    fn only_relevant_events_are_parsed() {
        let check = |dialect, data: &str, expected: bool| {
            assert_eq!(may_be_relevant(dialect, data.as_bytes()), expected, "{data}");
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
