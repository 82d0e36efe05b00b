//! A one-line notation for sessions.
//!
//! A drawing shows a whole session in one line. Tests, explanations and counterexamples use drawings.
//!
//! | drawing | meaning |
//! |---|---|
//! | `s` `d` `u` `a` `r` `p` | a message of the role system, developer, user, assistant, tool (a result) or peer |
//! | `a(x,y)` | the assistant calls `x` and `y` |
//! | `a(x=i)` | a call with two ids: `x`, and `i` as its item id |
//! | `r(x)` | the result of `x` |
//! | `u(x)` | a user message that contains the result of `x` and also text |
//! | `a*` | a reply with reasoning |
//! | `a-(x)` | a message without text: it contains only calls, results or reasoning |
//! | `u!` | a pinned message |
//! | `u~` | a skipped message |
//! | `a@bob` | a message by the author `bob` |
//! | `u:50` | a message of fifty words; the default is one word, and `:0` is a blank text |
//! | `u+30` | a message that was written thirty seconds after the previous message |
//! | <code>\|</code> | a legal cut; [`draw_cuts`] writes this mark, and [`messages`] ignores it |
//!
//! ```
//! use epitome_testkit::drawing::draw_cuts;
//! assert_eq!(draw_cuts("u a(x,y) r(y) r(x) u").unwrap(), "u | a(x,y) r(y) r(x) | u");
//! ```

use std::fmt::Write;
use std::iter::Peekable;
use std::str::Chars;

use epitome_core::context::{FitRequest, TextRenderer};
use epitome_core::message::{
    Author, CallId, Content, Message, Part, Role, Span, Timestamp, Tokens, ToolCall, ToolResult,
};
use epitome_core::outline::{Cut, Outline};
use epitome_core::tokens::{Counter, Overhead};
use epitome_core::track::Tracker;

/// Returns a counter that counts each word as one token and adds no overhead. So `u:50` has fifty tokens, and sums
/// are easy to check.
pub fn word_counter() -> Counter {
    let words = |text: &str| text.split_whitespace().count() as u64;
    Counter::custom("words", words).with_overhead(Overhead::none())
}

/// A [`TextRenderer`] that can neither shorten nor excerpt message texts.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoWords;

impl TextRenderer for NoWords {
    fn fit(&mut self, _: &FitRequest<'_>) -> Option<Tokens> {
        None
    }

    fn clip(&mut self, _: Span, _: Tokens) -> Option<Tokens> {
        None
    }
}

/// Returns the messages of a drawing, numbered from 1.
pub fn messages(drawing: &str) -> Result<Vec<Message>, DrawingError> {
    let mut now = Timestamp(0);
    let mut drawn = Vec::new();
    for word in drawing.split_whitespace().filter(|word| *word != "|") {
        let seq = drawn.len() as u64 + 1;
        let mut message = read(word, seq, &mut now).map_err(|expected| DrawingError {
            word: word.to_owned(),
            at: seq,
            expected,
        })?;
        message.seq = seq;
        drawn.push(message);
    }
    Ok(drawn)
}

/// Returns the outlines of a drawing, counted with [`word_counter`].
pub fn outlines(drawing: &str) -> Result<Vec<Outline>, DrawingError> {
    let counter = word_counter();
    let mut tracker = Tracker::default();
    Ok(messages(drawing)?.iter().map(|message| tracker.push(message, &counter)).collect())
}

/// Returns the drawing with a bar at each legal cut between two messages.
pub fn draw_cuts(drawing: &str) -> Result<String, DrawingError> {
    let messages = messages(drawing)?;
    let outlines = outlines(drawing)?;
    let mut out = String::new();
    for (message, outline) in messages.iter().zip(&outlines) {
        if outline.seq > 1 {
            out.push_str(if outline.cut == Cut::Legal { " | " } else { " " });
        }
        out.push_str(&draw_one(message));
    }
    Ok(out)
}

/// Returns messages as a drawing. The drawing contains the number of words of a message instead of its text.
pub fn draw(messages: &[Message]) -> String {
    let mut out = String::new();
    let mut before = Timestamp(0);
    for message in messages {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(&draw_one(message));
        let passed = message.at.0.saturating_sub(before.0) / 1_000;
        if passed != 0 {
            let _ = write!(out, "+{passed}");
        }
        before = message.at;
    }
    out
}

fn draw_one(message: &Message) -> String {
    let mut out = String::from(match message.role {
        Role::System => "s",
        Role::Developer => "d",
        Role::User => "u",
        Role::Assistant => "a",
        Role::Tool => "r",
        Role::Peer => "p",
    });
    let mut ids = Vec::new();
    let mut words = 0;
    let mut said = message.role == Role::Tool;
    for part in &message.parts {
        match part {
            Part::Text { text } => {
                said = true;
                words += text.split_whitespace().count();
            }
            Part::Thinking { .. } => out.push('*'),
            Part::ToolCall(ToolCall { id, item_id: Some(item), .. }) => ids.push(format!("{id}={item}")),
            Part::ToolCall(call) => ids.push(call.id.to_string()),
            Part::ToolResult(result) => {
                ids.push(result.call.to_string());
                for content in &result.content {
                    // The number in the drawing is the number of words in each result.
                    if let Content::Text { text } = content
                        && message.role == Role::Tool
                    {
                        words = words.max(text.split_whitespace().count());
                    }
                }
            }
            Part::Media(_) => said = true,
        }
    }
    if !said {
        out.push('-');
    }
    if !ids.is_empty() {
        let _ = write!(out, "({})", ids.join(","));
    }
    if message.pinned {
        out.push('!');
    }
    if message.skip {
        out.push('~');
    }
    if let Some(author) = &message.author {
        let _ = write!(out, "@{author}");
    }
    let counted = said && !message.parts.iter().any(|part| matches!(part, Part::Media(_)));
    if words > 1 || (words == 0 && counted && !message.parts.is_empty()) {
        let _ = write!(out, ":{words}");
    }
    out
}

/// Reads one message of a drawing. The error describes the expected text.
fn read(word: &str, seq: u64, now: &mut Timestamp) -> Result<Message, &'static str> {
    let mut chars = word.chars().peekable();
    let role = match chars.next() {
        Some('s') => Role::System,
        Some('d') => Role::Developer,
        Some('u') => Role::User,
        Some('a') => Role::Assistant,
        Some('r') => Role::Tool,
        Some('p') => Role::Peer,
        _ => return Err("one of s, d, u, a, r, p"),
    };
    let mut message = Message::new(role, []);
    let (mut thinking, mut silent, mut size) = (false, role == Role::Tool, 1);
    let mut ids: Vec<String> = Vec::new();
    while let Some(mark) = chars.next() {
        match mark {
            '*' => thinking = true,
            '-' => silent = true,
            '!' => message.pinned = true,
            '~' => message.skip = true,
            '@' => message.author = Some(Author::from(name(&mut chars))),
            ':' => size = number(&mut chars)?,
            '+' => *now = now.plus_seconds(number(&mut chars)? as u64),
            '(' => {
                let inside: String = chars.by_ref().take_while(|c| *c != ')').collect();
                ids = inside.split(',').map(|id| id.trim().to_owned()).collect();
            }
            _ => return Err("one of * - ! ~ @name :words +seconds (ids)"),
        }
    }
    message.at = *now;
    let text = (0..size).map(|_| format!("m{seq}")).collect::<Vec<_>>().join(" ");
    if thinking {
        message.parts.push(Part::thinking("hm"));
    }
    if role == Role::Assistant {
        if !silent {
            message.parts.push(Part::text(text));
        }
        for id in ids {
            let (id, item) = id.split_once('=').map_or((id.as_str(), None), |(id, item)| (id, Some(item)));
            message.parts.push(Part::ToolCall(ToolCall {
                id: CallId::from(id),
                item_id: item.map(CallId::from),
                name: "f".to_owned(),
                arguments: format!("{{\"m\":{seq}}}"),
            }));
        }
        return Ok(message);
    }
    for id in ids {
        let text = if role == Role::Tool { text.clone() } else { "done".to_owned() };
        message.parts.push(Part::ToolResult(ToolResult {
            call: CallId::from(id),
            content: vec![Content::Text { text }],
            error: false,
        }));
    }
    if !silent {
        message.parts.push(Part::text(text));
    }
    Ok(message)
}

fn name(chars: &mut Peekable<Chars<'_>>) -> String {
    let mut name = String::new();
    while let Some(c) = chars.next_if(|c| c.is_alphanumeric() || *c == '_') {
        name.push(c);
    }
    name
}

/// Reads a number up to 1,000,000. With this limit, an untrusted drawing cannot use too much memory.
fn number(chars: &mut Peekable<Chars<'_>>) -> Result<usize, &'static str> {
    let mut digits = String::new();
    while let Some(c) = chars.next_if(char::is_ascii_digit) {
        digits.push(c);
    }
    digits.parse().ok().filter(|n| *n <= 1_000_000).ok_or("a number up to 1000000")
}

/// A drawing with a syntax error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("drawing: `{word}` (message {at}): expected {expected}")]
pub struct DrawingError {
    /// The word that could not be read.
    pub word: String,
    /// The number of the message.
    pub at: u64,
    /// A description of the expected text.
    pub expected: &'static str,
}
