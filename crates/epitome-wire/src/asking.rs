//! Asking a model one question, and what is gathered of its answer.
//!
//! How a question is spelled and what an event says is each format's own matter ([`Format`](crate::Format)). Sending and
//! waiting are the caller's.

use std::collections::BTreeSet;

use epitome_core::inspect::Finish;
use epitome_core::message::Tokens;
use serde_json::Value;

use crate::usage::{Tally, Usage};

/// The most answers to one request that are followed to their end.
const MOST_CHOICES: usize = 1_024;

/// The data of the event that ends a stream, for providers that send one.
const DONE: &[u8] = b"[DONE]";

/// Whether this event says that the stream has ended.
pub(crate) fn is_done(data: &[u8]) -> bool {
    data.trim_ascii() == DONE
}

/// One question to a model.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// What the provider calls the model.
    pub model: &'a str,
    /// The system prompt; may be empty.
    pub system: &'a str,
    /// What the user says.
    pub user: &'a str,
    /// The size of both in tokens, as the caller counts.
    pub tokens: Tokens,
    /// How many tokens may be written.
    pub most: Tokens,
    /// The name of the field that says so: one of those that the format's facts list.
    pub limit: &'static str,
    /// Whether the answer is streamed.
    pub stream: bool,
}

/// A model's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// What it said, without its reasoning; nothing where it asked for a tool.
    pub text: String,
    /// Why it ended.
    pub finish: Finish,
    /// What the provider counted, where it says so.
    pub tally: Option<Tally>,
    /// Whether it came to its end.
    pub whole: bool,
}

/// What was gathered of an answer so far.
#[derive(Debug, Default)]
pub struct Hearing {
    /// What was said.
    pub text: String,
    /// Why it ended, where that was said.
    pub finish: Option<Finish>,
    /// What was counted.
    pub usage: Usage,
    /// Whether it asked for a tool instead of answering.
    pub calls_tool: bool,
    /// Whether it was said that this is all.
    pub ended: bool,
    /// Of several answers to one request, those besides the first that were begun, and all that came to their end.
    begun: BTreeSet<u64>,
    finished: BTreeSet<u64>,
}

/// What to do after an event.
#[derive(Debug, PartialEq)]
pub enum Then {
    /// Listen on.
    GoOn,
    /// Stop: the answer is complete.
    End,
    /// Stop: the provider failed. Contains the error as the provider has it.
    Failed(Value),
    /// This is no event of an answer.
    Odd,
}

impl Hearing {
    /// Notes that one of several answers has begun, and whether it has ended.
    pub(crate) fn follow(&mut self, index: u64, ended: bool) {
        let room = self.begun.len() < MOST_CHOICES;
        if index > 0 && room {
            self.begun.insert(index);
        }
        if ended && room {
            self.finished.insert(index);
        }
    }

    /// Whether all of it was heard. Some servers end a stream of chat with its last reason, and without another event.
    pub fn is_whole(&self) -> bool {
        self.ended || (self.finished.contains(&0) && self.begun.is_subset(&self.finished))
    }

    /// The answer, as far as it was heard.
    pub fn answer(self) -> Answer {
        let whole = self.is_whole();
        let text = if self.calls_tool { String::new() } else { self.text };
        Answer { text, finish: self.finish.unwrap_or_default(), tally: self.usage.tally(), whole }
    }
}

/// The `type` of an object, which most formats tell their events and items apart by.
pub(crate) fn kind(value: &Value) -> &str {
    value.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// Whether a body says what went wrong instead of answering.
pub(crate) fn has_failed(body: &Value) -> bool {
    body.get("error").is_some_and(|error| !error.is_null())
}

/// The text of a field; nothing where there is none.
pub(crate) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}
