//! What survives when a conversation is condensed, and what it costs: measured, without a model.
//!
//! A recording is played, and at some places in it a context is made, by whatever means. What is measured is
//! what a later turn of the same recording turns out to need:
//!
//! | measure | question |
//! |---|---|
//! | FER | which names that the next tool call uses, and that were seen before, does the context still hold? |
//! | FERfar | the same for names that were last seen more than 2,000 tokens back |
//! | AR | of which questions about the conversation does the context hold the answer? |
//! | ER | how much of the messages that prove an answer is still told? |
//!
//! The names are found by rules of their own ([`found_names`]), written apart from those of [`epitome::rules::names`]: what
//! is measured must not be measured with its own ruler. [`cost`] adds up what a run of requests costs, with and
//! without a prompt cache.
//!
//! ```
//! use epitome_lab::measure::{Recorded, Shown, found_names};
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
//! let shown = Shown { summary: "References: src/harbour/berths.rs".to_owned(), messages: Vec::new() };
//! assert!(shown.holds(&needs[0].name));
//! assert!(found_names("see README.md").contains("README.md"));
//! ```

use std::fmt::Write;

use epitome::rules::message::{Content, Message, Part, Role, ToolCall};
use serde_json::Value;

pub mod cost;
mod fidelity;
mod found;
mod terms;

pub use fidelity::{FAR, Mean, Need, Question, Questions, Recorded, Shown};
pub use found::{found_names, holds_name};

/// What a message says, as measures read it: the author of what people say, the words, and of each call the tool
/// and the values it is called with. Reasoning and media say nothing.
pub fn text_of(message: &Message) -> String {
    let mut text = String::new();
    let mut apart = |piece: &str| {
        if !(text.is_empty() || piece.is_empty()) {
            text.push('\n');
        }
        text.push_str(piece);
    };
    for part in &message.parts {
        match part {
            Part::Text { text } => apart(text),
            Part::ToolCall(call) => apart(&format!("{} {}", call.name, values_of(call))),
            Part::ToolResult(result) => {
                for content in &result.content {
                    if let Content::Text { text } = content {
                        apart(text);
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

/// The values a tool is called with, one after the other; what is no object, as it was written.
pub fn values_of(call: &ToolCall) -> String {
    let Ok(Value::Object(values)) = serde_json::from_str(&call.arguments) else {
        return call.arguments.clone();
    };
    values.values().map(spoken).collect::<Vec<_>>().join(" ")
}

/// What a value says: a text its words, anything else as it is printed.
fn spoken(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::String(text) => out.push_str(text),
        other => told(other, &mut out),
    }
    out
}

/// A value as Python prints it: published scores are taken so.
fn told(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("None"),
        Value::Bool(true) => out.push_str("True"),
        Value::Bool(false) => out.push_str("False"),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) => told_float(float, out),
            None => {
                let _ = write!(out, "{number}");
            }
        },
        Value::String(text) => quoted(text, out),
        Value::Array(values) => {
            out.push('[');
            for (nth, value) in values.iter().enumerate() {
                out.push_str(if nth > 0 { ", " } else { "" });
                told(value, out);
            }
            out.push(']');
        }
        Value::Object(values) => {
            out.push('{');
            for (nth, (key, value)) in values.iter().enumerate() {
                out.push_str(if nth > 0 { ", " } else { "" });
                quoted(key, out);
                out.push_str(": ");
                told(value, out);
            }
            out.push('}');
        }
    }
}

/// The shortest digits that mean this number, with an exponent where it is very large or very small.
fn told_float(float: f64, out: &mut String) {
    let plain = float == 0.0 || (1e-4..1e16).contains(&float.abs());
    if plain {
        let _ = write!(out, "{float:?}");
        return;
    }
    let told = format!("{float:e}");
    let (digits, exponent) = told.split_once('e').unwrap_or((&told, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
    let _ = write!(out, "{digits}e{sign}{exponent:0>2}");
}

fn quoted(text: &str, out: &mut String) {
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
            c if is_seen(c) => out.push(c),
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

/// Whether one sees it: neither a control nor a space other than the usual one. The language knows, and tells by how it
/// writes a letter inside a text.
fn is_seen(c: char) -> bool {
    match c {
        ' '..='~' => true,
        c if c.is_ascii() => false,
        c => !format!("a{c}").escape_debug().any(|c| c == '\\'),
    }
}
