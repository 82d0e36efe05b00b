//! Checks what the three wire formats reject, independently of the code under test.
//!
//! Each dialect has two halves. `spell` writes a list of messages in the simplest way and fixes nothing: an orphan
//! stays an orphan, and a part that cannot be written becomes a complaint. `complaints` reads only JSON, like a strict
//! provider, and does not use the core; it accepts any request body.
//!
//! `spell` does what every dialect must do, so that it does not count as an error of the core: characters and lengths
//! of ids, author names, a placeholder for media in tool results, merging adjacent messages, moving reasoning to the
//! front of a merged reply.

pub mod anthropic;
pub mod chat;
pub mod responses;

use std::fmt::Display;

use epitome_core::message::{Content, Media, MediaSource, Message, Part, ToolResult};
use serde_json::{Map, Value, json};

/// Returns the list with a signature on all reasoning that has none.
pub fn signed(list: &[Message]) -> Vec<Message> {
    let mut list = list.to_vec();
    for part in list.iter_mut().flat_map(|message| &mut message.parts) {
        if let Part::Thinking { signature, .. } = part {
            signature.get_or_insert_with(|| "c2lnbmVk".to_owned());
        }
    }
    list
}

/// A list in a dialect's wire format.
pub struct Spelled {
    pub body: Value,
    /// The parts that cannot be written in this dialect.
    pub unspelled: Vec<String>,
}

/// Returns the complaint about a part that its message cannot contain in this wire format.
fn unspelled(message: &Message, part: &Part) -> String {
    let kind = match part {
        Part::Text { .. } => "text",
        Part::Thinking { .. } => "thinking",
        Part::ToolCall(_) => "a tool call",
        Part::ToolResult(_) => "a tool result",
        Part::Media(_) => "media",
    };
    format!("message {}: cannot be spelled: {kind} from {}", message.seq, message.role)
}

/// Collects complaints. Each starts with a rule from the dialect's list, so that tests can check that every rule has a
/// planted fault.
struct Complaints {
    rules: &'static [&'static str],
    out: Vec<String>,
}

impl Complaints {
    fn new(rules: &'static [&'static str]) -> Self {
        Self { rules, out: Vec::new() }
    }

    fn add(&mut self, place: impl Display, rule: &str, what: impl Display) {
        assert!(self.rules.contains(&rule), "a rule that is not listed: {rule}");
        self.out.push(format!("{place}: {rule}: {what}"));
    }

    /// Complains about fields of an object that are not allowed.
    fn fields(&mut self, place: impl Display, object: &Map<String, Value>, allowed: &[&str]) {
        for own in object.keys().filter(|key| !allowed.contains(&key.as_str())) {
            self.add(&place, "unknown field", own);
        }
    }
}

/// Returns the objects of a list; anything else counts as an empty object or list.
fn objects(value: &Value) -> Vec<Map<String, Value>> {
    let items = value.as_array().map_or(&[][..], Vec::as_slice);
    items.iter().map(|item| item.as_object().cloned().unwrap_or_default()).collect()
}

fn str_of<'a>(object: &'a Map<String, Value>, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or("")
}

fn is_blank(text: &str) -> bool {
    text.chars().all(char::is_whitespace)
}

/// `^[a-zA-Z0-9_-]{1,longest}$`
fn is_plain(name: &str, longest: usize) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=longest).contains(&name.len()) && name.chars().all(plain)
}

fn is_json_object(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|value| value.is_object())
}

/// Returns an id with only characters that are allowed everywhere. A changed id ends with a hash of the original, so
/// that two ids do not become the same.
fn safe_id(id: &str, longest: usize) -> String {
    if is_plain(id, longest) {
        return id.to_owned();
    }
    let hash = id
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let start: String = id.chars().map(plain).take(longest - 17).collect();
    format!("{start}_{hash:016x}")
}

/// Returns the URL of an image or a file.
fn address(media: &Media) -> Option<String> {
    match &media.source {
        MediaSource::Base64(bytes) => Some(format!("data:{};base64,{bytes}", media.mime)),
        MediaSource::Url(url) => Some(url.clone()),
        MediaSource::File(_) => None,
    }
}

fn is_picture(media: &Media) -> bool {
    media.mime.starts_with("image/")
}

/// Returns a tool result as text, for formats that allow only text. Media become placeholders.
fn answer_in_words(result: &ToolResult) -> String {
    let pieces = result.content.iter().map(|content| match content {
        Content::Text { text } => text.clone(),
        Content::Media(media) => format!("[{}]", media.mime),
    });
    pieces.collect::<Vec<_>>().join("\n")
}

/// Parses arguments as JSON. Invalid JSON stays a string, which leads to a complaint.
fn value_of(arguments: &str) -> Value {
    serde_json::from_str(arguments).unwrap_or_else(|_| json!(arguments))
}

#[test]
fn ids_are_spelled_safely_and_stay_apart() {
    assert_eq!(safe_id("call_1", 40), "call_1");
    let odd = ["call|1", "call 1", "call_1", "", "ü", &"x".repeat(80), &"x".repeat(81)];
    let spelled: std::collections::HashSet<String> = odd.iter().map(|id| safe_id(id, 40)).collect();
    assert!(spelled.len() == odd.len() && spelled.iter().all(|id| is_plain(id, 40)), "{spelled:?}");
}
