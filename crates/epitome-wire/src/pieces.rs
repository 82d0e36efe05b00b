//! Defines the pieces of a wire message.
//!
//! A piece is sent exactly as received or not at all: a chat message, an item of Responses, a block of
//! Anthropic's. It records which parts were read from it. So if the core removes part of a message (its
//! reasoning, one of several results), the rest is still sent byte for byte. Each format defines the pieces
//! of its messages.

use std::borrow::Cow;

use epitome_core::message::{Content, MediaSource, Part, ToolCall};
use serde_json::Value;

use crate::asking::{kind, text};
use crate::fit::is_blank;
use crate::raw::{FLAGS, Members};

/// A piece of a wire message.
#[derive(Debug, Clone)]
pub struct Piece<'a> {
    /// Its JSON text.
    pub text: Cow<'a, str>,
    /// The parts read from it, without unknown content.
    pub parts: Vec<Part>,
    /// The type of the call or result, if it is not the common one. A result must have the type of its call.
    pub form: Option<String>,
    /// Ids of calls whose arguments need not be an object.
    pub custom: Vec<String>,
    /// The provider's id, if the parts do not contain it. Ids must be unique.
    pub id: Option<String>,
    /// Whether the piece, apart from its parts, contains nothing that providers reject.
    pub sound: bool,
}

impl<'a> Piece<'a> {
    /// Creates a piece of the common type without anything that providers reject.
    pub fn new(text: impl Into<Cow<'a, str>>, parts: Vec<Part>) -> Self {
        Self { text: text.into(), parts, form: None, custom: Vec::new(), id: None, sound: true }
    }

    fn is_custom(&self, call: &ToolCall) -> bool {
        self.custom.iter().any(|id| **id == *call.id)
    }
}

/// Returns whether a content piece is a blank text.
pub(crate) fn is_blank_text(piece: &Value) -> bool {
    matches!(kind(piece), "text" | "input_text" | "output_text") && is_blank(text(piece, "text"))
}

/// Returns whether a content piece is rejected: it is empty, or a medium outside of a user message.
pub(crate) fn is_refused(piece: &Value, role: &str) -> bool {
    let media = matches!(kind(piece), "image_url" | "input_audio" | "file" | "input_image" | "input_file");
    kind(piece).is_empty() || is_blank_text(piece) || (media && role != "user")
}

/// Returns whether `shown` is the part that was received, as far as they can be distinguished.
pub(crate) fn is_same(piece: &Piece<'_>, came: &Part, shown: &Part) -> bool {
    match (came, shown) {
        (Part::ToolCall(came), Part::ToolCall(shown)) if piece.is_custom(came) => {
            came.id == shown.id && came.name == shown.name
        }
        _ => came == shown,
    }
}

/// Returns whether a received part may be sent unchanged. `fitted` is what would be sent otherwise.
pub(crate) fn is_taken(piece: &Piece<'_>, came: &Part, fitted: Option<&Part>) -> bool {
    match (came, fitted) {
        (Part::Text { text }, None) => text.is_empty(),
        (Part::Media(came), Some(Part::Media(fitted))) => {
            !matches!(came.source, MediaSource::Base64(_)) || came.mime == fitted.mime
        }
        (Part::Thinking { id, .. }, Some(Part::Thinking { id: fitted, .. })) => id == fitted,
        (Part::ToolCall(came), Some(Part::ToolCall(fitted))) => {
            came.id == fitted.id && (piece.is_custom(came) || came == fitted)
        }
        (Part::ToolResult(came), Some(Part::ToolResult(fitted))) => {
            came.call == fitted.call && said_alike(&came.content, &fitted.content)
        }
        (came, fitted) => Some(came) == fitted,
    }
}

/// Returns whether two contents are equal, or have the same text in different pieces.
fn said_alike(came: &[Content], fitted: &[Content]) -> bool {
    if came == fitted {
        return true;
    }
    let words = |content: &[Content]| -> Option<Vec<String>> {
        let word = |piece: &Content| match piece {
            Content::Text { text } if !is_blank(text) => Some(text.clone()),
            _ => None,
        };
        content.iter().map(word).collect()
    };
    matches!((words(came), words(fitted)), (Some(came), Some(fitted)) if came.join("\n") == fitted.join("\n"))
}

/// Returns the unknown fields of a piece, as received.
pub(crate) fn others<'a>(text: &'a str, spelled: &Value) -> Vec<(String, &'a str)> {
    const KNOWN: &str = "type role content name tool_calls function_call tool_call_id refusal reasoning_content reasoning \
        id call_id arguments input output action summary encrypted_content text thinking signature data source \
        tool_use_id is_error";
    let known = |key: &str| key == FLAGS || KNOWN.split(' ').any(|known| known == key);
    let members = Members::of(text);
    let kind = |key: &str| members.get(key).and_then(|text| serde_json::from_str::<Value>(text).ok());
    let same = |key: &str| spelled.get(key).cloned() == kind(key);
    // A field is only meaningful in an object of the type it was received with.
    if !(same("type") && same("role")) {
        return Vec::new();
    }
    let thinks = spelled.get("reasoning_content").is_some() || spelled.get("reasoning").is_some();
    let stays = |key: &str| !known(key) && (thinks || !key.starts_with("reasoning"));
    members.0.into_iter().filter(|(key, _)| stays(key)).collect()
}
