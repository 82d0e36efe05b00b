//! Measures which information of a conversation a condensed list still contains, and what the lists cost. The measures
//! do not call a model.
//!
//! A replay plays a recording. At some positions, the policy under test builds a context. The measures compare this
//! context with the names and answers that the recording needs later:
//!
//! | measure | question |
//! |---|---|
//! | FER | Of the names that the next tool calls use and that occurred earlier, what share does the context contain? |
//! | FEM | Of the same names, what share does the context contain together with what was said about the name? |
//! | FERfar | Like FER, but only for names that were last seen more than 2,000 tokens back |
//! | AR | For what share of the questions about the conversation does the context contain the answer? |
//! | ER | What share of the messages that prove an answer does the context contain? |
//!
//! [`found_names`] finds names by its own rules, and does not use [`epitome::rules::names`], because the code under
//! test must not measure itself. [`cost`] adds up the cost of a series of requests, with and without a prompt cache.
//!
//! ```
//! use epitome_lab::evaluation::{Recorded, Shown, found_names};
//! use epitome::rules::message::{Message, Part, Role};
//!
//! let call = Part::call("c1", "read", r#"{"path":"src/harbour/berths.rs"}"#);
//! let recorded = Recorded::new(0, &[
//!     Message::user("It breaks in src/harbour/berths.rs, line 40."),
//!     Message::new(Role::Assistant, [call]),
//! ]);
//! let needs = recorded.needs(1);
//! assert_eq!(needs[0].name, "src/harbour/berths.rs");
//!
//! let shown = Shown { summary: "Also mentioned: src/harbour/berths.rs".to_owned(), messages: Vec::new() };
//! assert!(shown.contains(&needs[0].name));
//! assert!(found_names("see README.md").contains("README.md"));
//! ```

use std::fmt::Write;

use epitome::rules::message::{Content, Message, Part, Role, ToolCall};
use serde_json::Value;

pub mod cost;
mod fidelity;
mod lines;
mod meaning;
mod names;
mod terms;

pub use fidelity::{FAR, Mean, Need, Question, Questions, Recorded, Shown};
pub use meaning::{ListedChars, SaidAbout};
pub use names::{contains_name, found_names};

/// Returns the text of a message that the measures read. The text has the author's name (if the message has an author),
/// the text parts, the name and argument values of each tool call, and the text of tool results. Reasoning and media
/// are left out.
pub fn text_of(message: &Message) -> String {
    let mut text = String::new();
    let mut append_line = |piece: &str| {
        if !(text.is_empty() || piece.is_empty()) {
            text.push('\n');
        }
        text.push_str(piece);
    };
    for part in &message.parts {
        match part {
            Part::Text { text } => append_line(text),
            Part::ToolCall(call) => append_line(&format!("{} {}", call.name, values_of(call))),
            Part::ToolResult(result) => {
                for content in &result.content {
                    if let Content::Text { text } = content {
                        append_line(text);
                    }
                }
            }
            Part::Thinking { .. } | Part::Media(_) => {}
        }
    }
    match &message.author {
        Some(author) if !author.is_empty() && message.role != Role::Tool && !message.role.is_system() => {
            format!("{author}: {text}")
        }
        _ => text,
    }
}

/// Returns the argument values of a tool call, separated by spaces. If the arguments are not a JSON object, returns
/// them unchanged.
pub fn values_of(call: &ToolCall) -> String {
    let Ok(Value::Object(values)) = serde_json::from_str(&call.arguments) else {
        return call.arguments.clone();
    };
    values.values().map(answer_text).collect::<Vec<_>>().join(" ")
}

/// Converts a JSON value to text. A string is returned without quotes; any other value is formatted as in Python.
fn answer_text(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::String(text) => out.push_str(text),
        other => python_repr(other, &mut out),
    }
    out
}

/// Formats a value as Python's `repr` does, because the published scores were computed with this format.
fn python_repr(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("None"),
        Value::Bool(true) => out.push_str("True"),
        Value::Bool(false) => out.push_str("False"),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) => python_float(float, out),
            None => {
                let _ = write!(out, "{number}");
            }
        },
        Value::String(text) => python_string(text, out),
        Value::Array(values) => {
            out.push('[');
            for (nth, value) in values.iter().enumerate() {
                out.push_str(if nth > 0 { ", " } else { "" });
                python_repr(value, out);
            }
            out.push(']');
        }
        Value::Object(values) => {
            out.push('{');
            for (nth, (key, value)) in values.iter().enumerate() {
                out.push_str(if nth > 0 { ", " } else { "" });
                python_string(key, out);
                out.push_str(": ");
                python_repr(value, out);
            }
            out.push('}');
        }
    }
}

/// Formats a number with the fewest digits that identify it, as Python does. A very large or very small number gets an
/// exponent.
fn python_float(float: f64, out: &mut String) {
    let plain = float == 0.0 || (1e-4..1e16).contains(&float.abs());
    if plain {
        let _ = write!(out, "{float:?}");
        return;
    }
    let python_repr = format!("{float:e}");
    let (digits, exponent) = python_repr.split_once('e').unwrap_or((&python_repr, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
    let _ = write!(out, "{digits}e{sign}{exponent:0>2}");
}

fn python_string(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if is_printable(c) => out.push(c),
            c => {
                let _ = match u32::from(c) {
                    code @ ..=0xff => write!(out, "\\x{code:02x}"),
                    code @ ..=0xffff => write!(out, "\\u{code:04x}"),
                    code => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
}

/// Returns whether Python prints a character unescaped. Python escapes control characters, and spaces other than the
/// ASCII space. For characters outside ASCII, Rust's `escape_debug` decides. The code puts a letter before the
/// character, because `escape_debug` escapes a combining mark only at the beginning of a text.
fn is_printable(c: char) -> bool {
    match c {
        ' '..='~' => true,
        c if c.is_ascii() => false,
        c => !format!("a{c}").escape_debug().any(|c| c == '\\'),
    }
}
