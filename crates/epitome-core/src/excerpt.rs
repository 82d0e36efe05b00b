//! Marked excerpts: a message too large to be shown whole, by its head and its tail.
//!
//! An excerpt keeps the shape of what it stands for, so that it is as valid as the original: calls
//! stay calls, their arguments stay JSON, results stay with their calls. Only long texts shrink,
//! the longest first, and each says how much is left out. Reasoning and media leave.

use std::borrow::Cow;

use serde_json::Value;

use crate::message::{Content, Message, Part, Tokens};
use crate::tokens::Counter;
use crate::view;

/// The messages in at most `room` tokens, each long text cut to the same length; `None` when even
/// the bare shape is too large.
///
/// ```
/// use epitome_core::excerpt::excerpt;
/// use epitome_core::message::{Message, Part};
/// use epitome_core::tokens::{Counter, Encoding};
///
/// let counter = Counter::new(Encoding::O200k);
/// let long = Message::user(format!("begin {} end", "and so on ".repeat(500)));
/// let short = excerpt(&[long], 100, &counter).unwrap();
/// assert!(counter.message(&short[0]) <= 100);
/// let [Part::Text { text }] = short[0].parts.as_slice() else { panic!() };
/// assert!(text.starts_with("begin") && text.ends_with("end") && text.contains("tokens left out"));
/// ```
#[must_use]
pub fn excerpt(messages: &[Message], room: Tokens, counter: &Counter) -> Option<Vec<Message>> {
    let size = |messages: &[Message]| {
        // As it will be handed out: mended, with a result for every call.
        let mended = view::mend_closed(messages.iter().cloned());
        mended.iter().fold(0, |sum: Tokens, message| sum.saturating_add(counter.message(message)))
    };
    let at = |cap: Tokens| -> Vec<Message> {
        messages.iter().map(|message| shrink(message, cap, counter)).collect()
    };
    let mut best = at(0);
    if size(&best) > room {
        return None;
    }
    let (mut fits, mut over) = (0, room.saturating_add(1));
    while over - fits > 1 {
        let middle = fits + (over - fits) / 2;
        let candidate = at(middle);
        if size(&candidate) <= room {
            (fits, best) = (middle, candidate);
        } else {
            over = middle;
        }
    }
    Some(best)
}

fn shrink(message: &Message, cap: Tokens, counter: &Counter) -> Message {
    let mut out = message.clone();
    out.parts = Vec::with_capacity(message.parts.len());
    for part in &message.parts {
        out.parts.push(match part {
            Part::Text { text } => Part::text(clip(text, cap, counter)),
            Part::Thinking { .. } => continue,
            Part::ToolCall(call) => {
                let mut call = call.clone();
                call.arguments = clip_arguments(&call.arguments_as_object(), cap, counter);
                Part::ToolCall(call)
            }
            Part::ToolResult(result) => {
                let mut result = result.clone();
                for content in &mut result.content {
                    let text = match content {
                        Content::Text { text } => clip(text, cap, counter).into_owned(),
                        Content::Media(media) => left_out(&media.mime),
                    };
                    *content = Content::Text { text };
                }
                Part::ToolResult(result)
            }
            Part::Media(media) => Part::text(left_out(&media.mime)),
        });
    }
    out
}

fn left_out(what: &str) -> String {
    format!("[{what} left out]")
}

/// Shrinks the string leaves of a JSON object, so that it still parses.
fn clip_arguments(arguments: &str, cap: Tokens, counter: &Counter) -> String {
    if counter.text(arguments) <= cap {
        return arguments.to_owned();
    }
    let Ok(mut value) = serde_json::from_str::<Value>(arguments) else {
        // Too deep to be read by us, so it cannot be shrunk leaf by leaf.
        return "{}".to_owned();
    };
    clip_leaves(&mut value, cap, counter);
    value.to_string()
}

fn clip_leaves(value: &mut Value, cap: Tokens, counter: &Counter) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(short) = clip(text, cap, counter) {
                *text = short;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| clip_leaves(item, cap, counter)),
        Value::Object(fields) => fields.values_mut().for_each(|item| clip_leaves(item, cap, counter)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A text in about `cap` tokens: a third from its head, two thirds from its tail, where the newest
/// and most telling part of a tool's output stands. Never longer than the text itself.
#[must_use]
pub fn clip<'a>(text: &'a str, cap: Tokens, counter: &Counter) -> Cow<'a, str> {
    // No encoding makes more tokens than bytes, so short texts need not be counted.
    if text.len() as u64 <= cap {
        return Cow::Borrowed(text);
    }
    let tokens = counter.text(text);
    if tokens <= cap {
        return Cow::Borrowed(text);
    }
    let chars = text.chars().count() as u64;
    let mut keep = chars.saturating_mul(cap) / tokens.max(1);
    loop {
        let short = halves(text, chars, keep, tokens);
        if keep == 0 || counter.text(&short) <= cap {
            return if short.len() < text.len() { Cow::Owned(short) } else { Cow::Borrowed(text) };
        }
        keep = keep.saturating_mul(7) / 8;
    }
}

fn halves(text: &str, chars: u64, keep: u64, tokens: Tokens) -> String {
    let head = usize::try_from(keep / 3).unwrap_or(usize::MAX);
    let tail_from = usize::try_from(chars.saturating_sub(keep - keep / 3)).unwrap_or(usize::MAX);
    let offset = |nth: usize| text.char_indices().nth(nth).map_or(text.len(), |(at, _)| at);
    let (head, tail) = (text.get(..offset(head)).unwrap_or(""), text.get(offset(tail_from)..).unwrap_or(""));
    let left = tokens.saturating_mul(chars.saturating_sub(keep)) / chars.max(1);
    if keep == 0 {
        return format!("[… {left} tokens left out …]");
    }
    format!("{head}\n[… {left} tokens left out …]\n{tail}")
}
