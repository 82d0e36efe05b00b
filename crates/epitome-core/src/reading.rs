//! Extracts the texts of a message. Summaries and lists of names are made from these texts.
//!
//! The ledger and the local summarizer read the same texts. Reasoning and media are left out. Of a long text, only the
//! head and the tail are read. Of a call's arguments, only the values are read. Secrets are redacted.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::Value;

use crate::message::{Message, Part, Role};
use crate::pattern::pattern;
use crate::redact::redact;

/// The origin of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Voice<'a> {
    /// The user, a peer, or a system message in the middle of the session.
    User,
    Assistant,
    /// A tool. `call` is the id of the call that the tool answers; empty for text outside of a result.
    Tool {
        call: &'a str,
    },
    /// The assistant, in a call of this tool. The text is one value of the call's arguments. `key` is `command` if the
    /// value is a command, otherwise it is empty. `nth` is the number of the call within the message, from 1.
    Call {
        tool: &'a str,
        key: &'a str,
        nth: usize,
    },
}

/// Calls `found` with each text of a message. Secrets in the texts are redacted.
pub(crate) fn each_text<'a>(message: &'a Message, mut found: impl FnMut(Voice<'a>, &str)) {
    let voice = match message.role {
        Role::Assistant => Voice::Assistant,
        // In a tool message, text outside of a result also comes from the tool.
        Role::Tool => Voice::Tool { call: "" },
        Role::System | Role::Developer | Role::User | Role::Peer => Voice::User,
    };
    let mut nth = 0;
    for part in &message.parts {
        match part {
            Part::Text { text } => found(voice, &safe(text)),
            Part::ToolResult(result) => {
                result.texts().for_each(|text| found(Voice::Tool { call: &result.call }, &safe(text)));
            }
            Part::ToolCall(call) => {
                nth += 1;
                let say = |key: &str, text: &str| {
                    // `key` does not live long enough to be passed to `found`. Callers only need to distinguish
                    // commands from other values.
                    let key = if RUNS.contains(&key) { "command" } else { "" };
                    // The value is searched for secrets again, now without its key.
                    found(Voice::Call { tool: &call.name, key, nth }, &safe(text));
                };
                arguments(&call.arguments, say);
            }
            Part::Thinking { .. } | Part::Media(_) => {}
        }
    }
}

/// Names of arguments whose values are commands.
const RUNS: [&str; 6] = ["command", "cmd", "script", "bash", "shell", "commands"];

/// Calls `say` with each value of a call's arguments, in order. If the arguments are not JSON, or are too long to be
/// parsed, calls `say` once with the whole text.
fn arguments(text: &str, mut say: impl FnMut(&str, &str)) {
    // A password is recognised by its key, so redaction runs before the values are separated.
    let text = cleaned(text);
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

/// Number of bytes that are read at each end of a long text. No summary contains more of a text.
const END: usize = 8 << 10;

/// Number of bytes beyond `END` that are redacted but not returned. They are needed because secrets are recognised by
/// the text around them.
const AROUND: usize = 1 << 10;

/// Returns the part of a text that is read, with secrets redacted. Of a long text, this part is the head and the tail.
fn safe(text: &str) -> Cow<'_, str> {
    if text.len() <= 2 * END {
        return cleaned(text);
    }
    let head = cleaned(text.get(..text.floor_char_boundary(END + AROUND)).unwrap_or_default());
    let tail = cleaned(text.get(text.ceil_char_boundary(text.len() - END - AROUND)..).unwrap_or_default());
    // Cuts at whitespace if there is any nearby, so that no word is divided.
    let edge = head.floor_char_boundary(head.len().saturating_sub(AROUND));
    let near = head.floor_char_boundary(edge.saturating_sub(AROUND));
    let gap = head.get(near..edge).and_then(|near| near.rfind(char::is_whitespace));
    let head = head.get(..gap.map_or(edge, |gap| near + gap)).unwrap_or_default();
    let edge = tail.ceil_char_boundary(AROUND.min(tail.len()));
    let near = tail.ceil_char_boundary((edge + AROUND).min(tail.len()));
    let gap = tail.get(edge..near).and_then(|near| near.find(char::is_whitespace));
    let tail = tail.get(gap.map_or(edge, |gap| edge + gap)..).unwrap_or_default();
    Cow::Owned(format!("{head}\n{}", tail.trim_start()))
}

/// Returns the text without secrets and without terminal control sequences.
pub(crate) fn cleaned(text: &str) -> Cow<'_, str> {
    match printed(text) {
        Cow::Borrowed(text) => redact(text),
        Cow::Owned(text) => Cow::Owned(redact(&text).into_owned()),
    }
}

/// Terminal control sequences: `ESC [ 31 m`, a one-line title (`ESC ] title BEL`), carriage returns, and
/// other control characters.
static FOR_TERMINALS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?x) \x1b (?: \[ [\ -?]* [@-~]? | \] [^\x00-\x1f\x7f-\u{9f}]* \x07? )? | \r\n?
            | [\x00-\x08\x0b\x0c\x0e-\x1f\x7f]",
    )
});

/// Removes colours, cursor movements and bells. A carriage return becomes a line break.
fn printed(text: &str) -> Cow<'_, str> {
    // Most texts contain no control characters. This check of the bytes is several times faster than the regular
    // expression.
    if !text.bytes().any(|byte| byte.is_ascii_control() && !matches!(byte, b'\n' | b'\t')) {
        return Cow::Borrowed(text);
    }
    FOR_TERMINALS.replace_all(text, |found: &Captures<'_>| match found.get_match().as_str().as_bytes() {
        [b'\x1b', ..] => "",
        [b'\r', ..] => "\n",
        _ => " ",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_at_the_edge_of_the_read_part_is_redacted() {
        for pad in 0..60 {
            let words = format!(
                "{} my password: hunter22x9 {}{}",
                "filler word ".repeat(1_500),
                "z ".repeat((END - 30) / 2),
                "y".repeat(pad)
            );
            let dense = format!(
                "{}{},\"key\":\"sk-abcdefgh1234567890ABCDEFGH\",{}",
                "{\"a\":1,".repeat(1_160),
                "y".repeat(pad),
                "\"b\":2,".repeat(3_000)
            );
            let (words, dense) = (safe(&words), safe(&dense));
            assert!(!words.contains("hunter22x9") && !dense.contains("sk-abc"), "{pad}");
            assert!(words.len() > END && dense.len() > END, "{pad}");
        }
    }

    #[test]
    fn a_long_text_without_spaces_is_read_from_both_its_ends() {
        let text = format!("{{ \"first\":1,{}\"last\":2}}\n", "\"b\":2,".repeat(5_000));
        let read = safe(&text);
        assert!(read.contains("first") && read.contains("last") && read.len() > END, "{}", read.len());
    }

    #[test]
    fn terminal_control_sequences_are_removed() {
        let text = "\u{1b}[1;31merror\u{1b}[0m: no\u{7}\u{1b}]0;title\u{7} file\r10%\r90%\r\nend\u{1b}";
        assert_eq!(printed(text), "error: no  file\n10%\n90%\nend");
        assert!(matches!(printed("a\n\tb"), Cow::Borrowed(_)));
        let hidden = cleaned("\u{1b}[32mpassword\u{1b}[0m: hunter22x9");
        assert_eq!(hidden, "password: [redacted:password]");
    }
}
