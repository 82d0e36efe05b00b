//! Defines the types for a call of a model: the question, the answer, and an answer that is only partly read.
//!
//! Each [`Format`](crate::Format) defines how a question is written and how an event of the answer is read. The
//! code that uses these types sends the request and waits for the reply.

use std::collections::BTreeSet;

use epitome_core::inspect::Finish;
use epitome_core::message::Tokens;
use serde_json::Value;

use crate::usage::{PartialUsage, TokenUsage};

/// Maximum number of alternative answers (`choices`) to one request that are tracked.
const MAX_CHOICES: usize = 1_024;

/// The data of the event that marks the end of a stream. Some providers do not send this event.
const DONE: &[u8] = b"[DONE]";

/// Returns whether this event ends the stream.
pub(crate) fn is_done(data: &[u8]) -> bool {
    data.trim_ascii() == DONE
}

/// One question to a model.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The provider's name for the model.
    pub model: &'a str,
    /// The system prompt; may be empty.
    pub system: &'a str,
    /// The user message.
    pub user: &'a str,
    /// The tokens of the system prompt and the user message, as counted by the caller.
    pub tokens: Tokens,
    /// Maximum number of output tokens.
    pub max_output: Tokens,
    /// The name of the request field for `max_output`. It is one of the names in
    /// [`About::limit_names`](crate::format::About::limit_names).
    pub limit_field: &'static str,
    /// Whether the answer is streamed.
    pub stream: bool,
}

/// A model's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The text without the reasoning; empty if the model called a tool.
    pub text: String,
    /// Why the answer ended.
    pub finish: Finish,
    /// The provider's token counts, if it reported them.
    pub usage: Option<TokenUsage>,
    /// Whether the answer is complete.
    pub complete: bool,
}

/// An answer that is being read.
#[derive(Debug, Default)]
pub struct PartialAnswer {
    /// The text that was read so far.
    pub text: String,
    /// Why the answer ended. `None` if the provider has not reported it.
    pub finish: Option<Finish>,
    /// The token counts that were read so far.
    pub usage: PartialUsage,
    /// Whether the model called a tool instead of answering.
    pub calls_tool: bool,
    /// Whether the provider marked the end of the answer.
    pub ended: bool,
    /// The indexes of the alternative answers that have started. The first answer, with the index 0, is not
    /// included.
    started: BTreeSet<u64>,
    /// The indexes of the alternative answers that have ended. The first answer, with the index 0, is included.
    finished: BTreeSet<u64>,
}

/// What the caller must do after an event or a body was read.
#[derive(Debug, PartialEq)]
pub enum ReadStatus {
    /// Continue reading.
    Continue,
    /// Stop: the answer is complete.
    Done,
    /// Stop: the provider failed. Contains the error as the provider sent it.
    Failed(Value),
    /// The event is not part of an answer.
    Unexpected,
}

impl PartialAnswer {
    /// Records that an alternative answer has started, and whether it has ended.
    pub(crate) fn track_choice(&mut self, index: u64, ended: bool) {
        let room = self.started.len() < MAX_CHOICES;
        if index > 0 && room {
            self.started.insert(index);
        }
        if ended && room {
            self.finished.insert(index);
        }
    }

    /// Returns whether the answer was read completely. An answer is complete if the provider marked its end, or
    /// if the first answer and all alternative answers that have started have a stop reason. Some servers send
    /// no other end mark.
    pub fn is_complete(&self) -> bool {
        self.ended || (self.finished.contains(&0) && self.started.is_subset(&self.finished))
    }

    /// Returns the answer with the content that was read so far. The text is empty if the model called a tool.
    pub fn answer(self) -> Answer {
        let complete = self.is_complete();
        let text = if self.calls_tool { String::new() } else { self.text };
        Answer { text, finish: self.finish.unwrap_or_default(), usage: self.usage.total(), complete }
    }
}

/// Returns the `type` of an object. Most formats distinguish events and items by their `type`.
pub(crate) fn kind(value: &Value) -> &str {
    value.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// Returns whether a body contains an error instead of an answer.
pub(crate) fn has_failed(body: &Value) -> bool {
    body.get("error").is_some_and(|error| !error.is_null())
}

/// Returns the text of a field. The result is an empty string if the field is missing or is not text.
pub(crate) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}
