//! Checks requests in the three wire formats against the rules of the providers, independently of the code under
//! test.
//!
//! The module of each dialect has two functions. `spell` writes a list of messages in the simplest way and repairs
//! nothing. For example, a result without a call stays in the list, and a part that cannot be written becomes a
//! complaint. `complaints` checks the JSON of a request body, like a strict provider, and does not use
//! `epitome_core`. The body may come from any program.
//!
//! `spell` makes only the changes that every dialect must make, so that a missing change does not count as an error
//! of `epitome_core`. It limits the characters and lengths of ids and author names, and replaces media in tool
//! results with a placeholder if necessary. It merges adjacent messages, and moves reasoning to the start of a merged
//! reply.

pub mod anthropic;
pub mod chat;
pub mod responses;

use std::fmt::Display;

use epitome_core::message::{Content, Media, MediaSource, Message, Part, ToolResult};
use serde_json::{Map, Value, json};

/// Returns the list. All reasoning without a signature gets a signature.
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

/// Returns the complaint about a part that this wire format does not allow in the message.
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

/// Collects complaints. Each complaint contains a rule from the dialect's list of rules. So tests can check that
/// there is a planted fault for every rule.
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

/// Returns the objects of a list. An item that is not an object counts as an empty object. A value that is not a list
/// counts as an empty list.
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

/// Returns whether the name matches `^[a-zA-Z0-9_-]{1,longest}$`.
fn is_plain(name: &str, longest: usize) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=longest).contains(&name.len()) && name.chars().all(plain)
}

fn is_json_object(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|value| value.is_object())
}

/// Returns an id that contains only characters that all providers allow. A changed id ends with a hash of the
/// original id, so that two different ids do not become the same id.
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

/// Returns the URL of an image or a file. `None` if the media are stored at the provider.
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
