//! Reading a message for what is worth remembering.
//!
//! The ledger and the local summarizer read the same texts in the same way: reasoning and media not,
//! long texts by their ends, arguments as the values they hold, and secrets never.

use std::borrow::Cow;

use serde_json::Value;

use crate::message::{Content, Message, Part, Role};
use crate::redact::redact;

/// Who says a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Voice<'a> {
    /// The user, a peer, or an instruction in mid-session.
    User,
    Assistant,
    /// A tool, in answer to the call of this id.
    Tool {
        call: &'a str,
    },
    /// The assistant calls this tool, in the message's call of this number; the text is one value of its
    /// arguments.
    Call {
        tool: &'a str,
        key: &'a str,
        nth: usize,
    },
}

/// Calls `found` with each text of a message, secrets taken out.
pub(crate) fn each_text<'a>(message: &'a Message, mut found: impl FnMut(Voice<'a>, &str)) {
    let voice = if message.role == Role::Assistant { Voice::Assistant } else { Voice::User };
    let mut nth = 0;
    for part in &message.parts {
        match part {
            Part::Text { text } => found(voice, &safe(text)),
            Part::ToolResult(result) => {
                for content in &result.content {
                    if let Content::Text { text } = content {
                        found(Voice::Tool { call: &result.call }, &safe(text));
                    }
                }
            }
            Part::ToolCall(call) => {
                nth += 1;
                let say = |key: &str, text: &str| {
                    // The key lives only as long as the parsed arguments; what matters of it is told.
                    let key = if RUNS.contains(&key) { "command" } else { "" };
                    // A secret is told by its key as well.
                    found(Voice::Call { tool: &call.name, key, nth }, &safe(text));
                };
                arguments(&call.arguments, say);
            }
            Part::Thinking { .. } | Part::Media(_) => {}
        }
    }
}

/// Arguments under these names are commands.
const RUNS: [&str; 6] = ["command", "cmd", "script", "bash", "shell", "commands"];

/// The values in a call's arguments, in order; all of it as one where it is not JSON.
fn arguments(text: &str, mut say: impl FnMut(&str, &str)) {
    // A password is one by its name, which a bare value does not show.
    let text = redact(text);
    let text = text.as_ref();
    if text.len() > 2 * END {
        return say("", text);
    }
    match serde_json::from_str::<Value>(text) {
        Ok(value) => leaves("", &value, &mut say),
        Err(_) => say("", text),
    }
}

fn leaves(key: &str, value: &Value, say: &mut impl FnMut(&str, &str)) {
    match value {
        Value::String(text) => say(key, text),
        Value::Number(number) => say(key, &number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| leaves(key, item, say)),
        Value::Object(fields) => fields.iter().for_each(|(key, value)| leaves(key, value, say)),
        Value::Bool(_) | Value::Null => {}
    }
}

/// The bytes read of either end of a long text: what a summary could hold of it, and more.
const END: usize = 8 << 10;

/// A text as it may be read: its ends where it is long, without secrets.
fn safe(text: &str) -> Cow<'_, str> {
    if text.len() <= 2 * END {
        return redact(text);
    }
    // Not in the middle of a word: half a key would not be known for one.
    let head = text.get(..text.floor_char_boundary(END)).unwrap_or_default();
    let head = head.rsplit_once(char::is_whitespace).map_or(head, |(whole, _)| whole);
    let tail = text.get(text.ceil_char_boundary(text.len() - END)..).unwrap_or_default();
    let tail = tail.split_once(char::is_whitespace).map_or(tail, |(_, whole)| whole);
    Cow::Owned(format!("{}\n{}", redact(head), redact(tail)))
}
