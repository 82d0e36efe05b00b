//! Measures what survives when a conversation is condensed, and what it costs, without calling a model.
//!
//! A replay plays a recording, and at some positions the policy under test builds a context. The measures compare the
//! context with what later turns of the same recording need:
//!
//! | measure | question |
//! |---|---|
//! | FER | which share of the names that the next tool call uses, and that were seen before, does the context contain? |
//! | FERfar | the same for names that were last seen more than 2,000 tokens back |
//! | AR | for which share of the questions about the conversation does the context contain the answer? |
//! | ER | which share of the messages that prove an answer does the context contain? |
//!
//! Names are found by separate rules ([`found_names`]), independent of [`epitome::rules::names`]: the code under test must
//! not provide its own measure. [`cost`] adds up the cost of a run of requests, with and without a prompt cache.
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
mod names;
mod terms;

pub use fidelity::{FAR, Mean, Need, Question, Questions, Recorded, Shown};
pub use names::{contains_name, found_names};

/// Returns a message's text as the measures read it: the author, if any, the text, and for each tool call the tool's name
/// and the argument values. Reasoning and media are left out.
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

/// Returns the argument values of a tool call, separated by spaces. Arguments that are not a JSON object are returned
/// unchanged.
pub fn values_of(call: &ToolCall) -> String {
    let Ok(Value::Object(values)) = serde_json::from_str(&call.arguments) else {
        return call.arguments.clone();
    };
    values.values().map(answer_text).collect::<Vec<_>>().join(" ")
}

/// Returns a string's content, and any other value as Python prints it.
fn answer_text(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::String(text) => out.push_str(text),
        other => python_repr(other, &mut out),
    }
    out
}

/// Prints a value as Python does, because the published scores were computed with this format.
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

/// Prints the shortest digits that identify this number, with an exponent if it is very large or very small.
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

/// Returns whether a character is printable: neither a control character nor a space other than the ASCII one. Rust's
/// `escape_debug` decides, applied after another letter so that combining marks count as printable.
fn is_printable(c: char) -> bool {
    match c {
        ' '..='~' => true,
        c if c.is_ascii() => false,
        c => !format!("a{c}").escape_debug().any(|c| c == '\\'),
    }
}
