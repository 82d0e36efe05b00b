//! Defines one question to a model, and the state while its answer is read.
//!
//! Each format defines how a question is written and how an event is read ([`Format`](crate::Format)). The
//! caller does the sending and waiting.

use std::collections::BTreeSet;

use epitome_core::inspect::Finish;
use epitome_core::message::Tokens;
use serde_json::Value;

use crate::usage::{Tally, Usage};

/// Maximum number of alternative answers to one request that are tracked.
const MOST_CHOICES: usize = 1_024;

/// The data of the last event of a stream, at providers that send one.
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
    /// The tokens of both, as counted by the caller.
    pub tokens: Tokens,
    /// Maximum number of output tokens.
    pub most: Tokens,
    /// The name of the field for that maximum: one of those that the format's [`About`](crate::format::About)
    /// lists.
    pub limit: &'static str,
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
    pub tally: Option<Tally>,
    /// Whether the answer is complete.
    pub whole: bool,
}

/// The state of an answer that is being read.
#[derive(Debug, Default)]
pub struct Hearing {
    /// The text so far.
    pub text: String,
    /// Why the answer ended, if the provider said so.
    pub finish: Option<Finish>,
    /// The token counts so far.
    pub usage: Usage,
    /// Whether the model called a tool instead of answering.
    pub calls_tool: bool,
    /// Whether the provider marked the end of the answer.
    pub ended: bool,
    /// For several alternative answers: those other than the first that have begun, and all that have ended.
    begun: BTreeSet<u64>,
    finished: BTreeSet<u64>,
}

/// What to do after an event.
#[derive(Debug, PartialEq)]
pub enum Then {
    /// Continue reading.
    GoOn,
    /// Stop: the answer is complete.
    End,
    /// Stop: the provider failed. Contains the error as the provider sent it.
    Failed(Value),
    /// The event is not part of an answer.
    Odd,
}

impl Hearing {
    /// Records that an alternative answer has begun, and whether it has ended.
    pub(crate) fn follow(&mut self, index: u64, ended: bool) {
        let room = self.begun.len() < MOST_CHOICES;
        if index > 0 && room {
            self.begun.insert(index);
        }
        if ended && room {
            self.finished.insert(index);
        }
    }

    /// Returns whether the answer was read completely. Some servers end a chat stream with the last stop
    /// reason and send no further event.
    pub fn is_whole(&self) -> bool {
        self.ended || (self.finished.contains(&0) && self.begun.is_subset(&self.finished))
    }

    /// Returns the answer as far as it was read.
    pub fn answer(self) -> Answer {
        let whole = self.is_whole();
        let text = if self.calls_tool { String::new() } else { self.text };
        Answer { text, finish: self.finish.unwrap_or_default(), tally: self.usage.tally(), whole }
    }
}

/// Returns the `type` of an object, by which most formats distinguish events and items.
pub(crate) fn kind(value: &Value) -> &str {
    value.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// Returns whether a body contains an error instead of an answer.
pub(crate) fn has_failed(body: &Value) -> bool {
    body.get("error").is_some_and(|error| !error.is_null())
}

/// Returns the text of a field, or an empty string.
pub(crate) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}
