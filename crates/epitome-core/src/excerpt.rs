//! Shortens messages that are too large to be shown whole. Of each long text, only the head and the tail are shown.
//!
//! An excerpt has the same structure as the original message and is as valid as the original: calls stay calls, their
//! arguments stay JSON, and results stay with their calls. Only long texts are shortened, the longest first. Each
//! shortened text contains the number of characters that were left out. Reasoning and media are removed.

use std::borrow::Cow;

use serde_json::Value;

use crate::message::{Content, Message, Part, Tokens, ToolCall, ToolResult};
use crate::tokens::Counter;
use crate::view;

/// Maximum number of bytes per token that is assumed. If a text has more bytes per available token, it is treated as
/// too long without counting its tokens. Hardly any encoding puts more bytes into a token.
const MOST_BYTES: u64 = 16;

/// Maximum number of tokens per byte in any encoding, with the largest supported factor.
const MOST_TOKENS: u64 = 3;

/// Shortens the messages to at most `room` tokens by cutting each long text to the same length. Returns `None` if even
/// the messages without text are too large.
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
/// assert!(text.starts_with("begin") && text.ends_with("end") && text.contains("characters left out"));
/// ```
pub fn excerpt(messages: &[Message], room: Tokens, counter: &Counter) -> Option<Vec<Message>> {
    let size = |messages: &[Message]| {
        // Counts the messages as they are sent: the view repairs them and adds a result to every unanswered call.
        let repaired = view::repair_closed(messages.iter().cloned());
        counter.messages(&repaired)
    };
    let at = |cap: Tokens| -> Vec<Message> {
        messages.iter().map(|message| shrink(message, cap, counter)).collect()
    };
    let bare = at(0);
    let left = room.checked_sub(size(&bare))?;
    let mut cap = level(texts(messages).map(|text| rough(text, room, counter)).collect(), left);
    while cap > 0 {
        let short = at(cap);
        if size(&short) <= room {
            return Some(short);
        }
        cap = cap / 8 * 7;
    }
    Some(bare)
}

/// Returns every text that can be shortened.
fn texts(messages: &[Message]) -> impl Iterator<Item = &str> {
    messages.iter().flat_map(|message| &message.parts).flat_map(|part| {
        let (one, result) = match part {
            Part::Text { text } => (Some(text.as_str()), None),
            Part::ToolCall(call) => (Some(call.arguments.as_str()), None),
            Part::ToolResult(result) => (None, Some(result)),
            Part::Thinking { .. } | Part::Media(_) => (None, None),
        };
        one.into_iter().chain(result.into_iter().flat_map(ToolResult::texts))
    })
}

/// Returns the number of tokens of a text. If the text is too long to be shown whole, the number is an estimate.
fn rough(text: &str, room: Tokens, counter: &Counter) -> Tokens {
    let bytes = text.len() as u64;
    if bytes > room.saturating_mul(MOST_BYTES) { bytes / 4 } else { counter.text(text) }
}

/// Returns the size to which every longer text must be cut so that all texts together have `room` tokens.
fn level(mut sizes: Vec<Tokens>, room: Tokens) -> Tokens {
    sizes.sort_unstable();
    let mut left = room;
    for (at, size) in sizes.iter().enumerate() {
        let share = left / (sizes.len() - at) as u64;
        if *size > share {
            return share;
        }
        left -= size;
    }
    room
}

/// Shortens each text of a message to `cap` tokens, without copying a long text first.
fn shrink(message: &Message, cap: Tokens, counter: &Counter) -> Message {
    let parts = message.parts.iter().filter_map(|part| {
        Some(match part {
            Part::Text { text } => Part::text(clip(text, cap, counter)),
            Part::Thinking { .. } => return None,
            Part::ToolCall(call) => Part::ToolCall(ToolCall {
                id: call.id.clone(),
                item_id: call.item_id.clone(),
                name: call.name.clone(),
                arguments: clip_arguments(&call.arguments_as_object(), cap, counter),
            }),
            Part::ToolResult(result) => {
                let content = result.content.iter().map(|content| match content {
                    Content::Text { text } => clip(text, cap, counter).into_owned(),
                    Content::Media(media) => left_out(&media.mime),
                });
                let content = content.map(|text| Content::Text { text }).collect();
                Part::ToolResult(ToolResult { call: result.call.clone(), content, error: result.error })
            }
            Part::Media(media) => Part::text(left_out(&media.mime)),
        })
    });
    Message { parts: parts.collect(), ..view::bare(message) }
}

fn left_out(what: &str) -> String {
    format!("[{what} left out]")
}

/// Shortens the strings inside a JSON object, so that the result is still valid JSON.
fn clip_arguments(arguments: &str, cap: Tokens, counter: &Counter) -> String {
    if counter.text(arguments) <= cap {
        return arguments.to_owned();
    }
    let Ok(mut value) = serde_json::from_str::<Value>(arguments) else {
        // The JSON is nested too deeply for the parser, so its strings cannot be shortened one by one.
        return "{}".to_owned();
    };
    clip_leaves(&mut value, cap, counter);
    let short = value.to_string();
    // Arguments such as a list of a thousand numbers contain no text that can be shortened. In that case, all arguments
    // are shown as one shortened string.
    if counter.text(&short) > cap.saturating_mul(2).saturating_add(32) {
        return serde_json::json!({ "arguments": clip(arguments, cap, counter) }).to_string();
    }
    short
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

/// Shortens a text to about `cap` tokens. A third of them comes from the head of the text, and two thirds come from the
/// tail. The tail of a tool's output is usually its newest and most informative part. The result is never longer than
/// the text. The number of tokens that are counted depends on `cap`, not on the length of the text.
pub fn clip<'a>(text: &'a str, cap: Tokens, counter: &Counter) -> Cow<'a, str> {
    let bytes = text.len() as u64;
    let surely = bytes.saturating_mul(MOST_TOKENS) <= cap;
    if surely || (bytes <= cap.saturating_mul(MOST_BYTES) && counter.text(text) <= cap) {
        return Cow::Borrowed(text);
    }
    let mut keep = bytes.min(cap.saturating_mul(4));
    loop {
        let short = ends(text, usize::try_from(keep).unwrap_or(usize::MAX));
        let tokens = counter.text(&short);
        if keep == 0 || tokens <= cap {
            return if short.len() < text.len() { Cow::Owned(short) } else { Cow::Borrowed(text) };
        }
        // Scales `keep` by the measured size. In each round, `keep` becomes at least an eighth smaller, so the loop
        // ends.
        keep = (keep.saturating_mul(cap) / tokens).min(keep / 8 * 7);
    }
}

/// Returns about `keep` bytes of a text, taken from its two ends. A mark between the ends contains the number of
/// characters that were left out.
fn ends(text: &str, keep: usize) -> String {
    let head = text.get(..text.floor_char_boundary(keep / 3)).unwrap_or("");
    let from = text.ceil_char_boundary(text.len().saturating_sub(keep - keep / 3));
    let tail = text.get(from.max(head.len())..).unwrap_or("");
    let left = text.get(head.len()..text.len().saturating_sub(tail.len())).unwrap_or("").chars().count();
    if keep == 0 {
        return format!("[… {left} characters left out …]");
    }
    format!("{head}\n[… {left} characters left out …]\n{tail}")
}
