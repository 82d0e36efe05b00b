//! Defines the pieces of a wire message.
//!
//! A piece is the smallest unit that can be sent exactly as received: a chat message, an item of the Responses
//! API or a block of an Anthropic message. Each piece contains the message parts that were read from it.
//! `epitome_core` may remove parts of a message, such as its reasoning or one of several results. The pieces of
//! the remaining parts are then still sent byte for byte. Each format defines the pieces of its messages.

use std::borrow::Cow;

use epitome_core::message::{Content, MediaSource, Part, ToolCall};
use serde_json::Value;

use crate::answer::{kind, text};
use crate::fit::is_blank;
use crate::raw::{FLAGS_FIELD, RawFields};

/// A piece of a wire message.
#[derive(Debug, Clone)]
pub struct Piece<'a> {
    /// The piece's JSON text.
    pub text: Cow<'a, str>,
    /// The message parts that were read from the piece. Content of unknown types is not included.
    pub parts: Vec<Part>,
    /// The type of the call in this piece. A result has the type of its call. `None` for the common type, and
    /// if the piece contains neither a call nor a result.
    pub call_type: Option<String>,
    /// The ids of the calls in this piece whose arguments need not be a JSON object.
    pub custom_calls: Vec<String>,
    /// The provider's id of this piece, if the parts do not contain the id. A request must not contain an id
    /// twice.
    pub id: Option<String>,
    /// Whether providers accept the content of the piece. The parts of the piece are also checked separately.
    pub acceptable: bool,
}

impl<'a> Piece<'a> {
    /// Creates a piece without an id and with the common call type, whose content providers accept.
    pub fn new(text: impl Into<Cow<'a, str>>, parts: Vec<Part>) -> Self {
        Self {
            text: text.into(),
            parts,
            call_type: None,
            custom_calls: Vec::new(),
            id: None,
            acceptable: true,
        }
    }

    fn is_custom(&self, call: &ToolCall) -> bool {
        self.custom_calls.iter().any(|id| **id == *call.id)
    }
}

/// Returns whether a content piece is a blank text.
pub(crate) fn is_blank_text(piece: &Value) -> bool {
    matches!(kind(piece), "text" | "input_text" | "output_text") && is_blank(text(piece, "text"))
}

/// Returns whether providers reject this content piece of a message with this role. They reject a piece without
/// a type, a blank text, and media outside of a user message.
pub(crate) fn is_rejected(piece: &Value, role: &str) -> bool {
    let media = matches!(kind(piece), "image_url" | "input_audio" | "file" | "input_image" | "input_file");
    kind(piece).is_empty() || is_blank_text(piece) || (media && role != "user")
}

/// Returns whether the outgoing part `current` equals the received part. The arguments of custom calls are not
/// compared.
pub(crate) fn is_same(piece: &Piece<'_>, received: &Part, current: &Part) -> bool {
    match (received, current) {
        (Part::ToolCall(received), Part::ToolCall(current)) if piece.is_custom(received) => {
            received.id == current.id && received.name == current.name
        }
        _ => received == current,
    }
}

/// Returns whether a received part may be sent unchanged. `fitted` is the adjusted part that would be sent
/// instead; `None` if no part would be sent.
pub(crate) fn can_stay(piece: &Piece<'_>, received: &Part, fitted: Option<&Part>) -> bool {
    match (received, fitted) {
        (Part::Text { text }, None) => text.is_empty(),
        (Part::Media(received), Some(Part::Media(fitted))) => {
            !matches!(received.source, MediaSource::Base64(_)) || received.mime == fitted.mime
        }
        (Part::Thinking { id, .. }, Some(Part::Thinking { id: fitted, .. })) => id == fitted,
        (Part::ToolCall(received), Some(Part::ToolCall(fitted))) => {
            received.id == fitted.id && (piece.is_custom(received) || received == fitted)
        }
        (Part::ToolResult(received), Some(Part::ToolResult(fitted))) => {
            received.call == fitted.call && is_same_text(&received.content, &fitted.content)
        }
        (received, fitted) => Some(received) == fitted,
    }
}

/// Returns whether two contents are equal, or contain the same text in differently divided pieces.
fn is_same_text(received: &[Content], fitted: &[Content]) -> bool {
    if received == fitted {
        return true;
    }
    let words = |content: &[Content]| -> Option<Vec<String>> {
        let word = |piece: &Content| match piece {
            Content::Text { text } if !is_blank(text) => Some(text.clone()),
            _ => None,
        };
        content.iter().map(word).collect()
    };
    matches!((words(received), words(fitted)), (Some(received), Some(fitted)) if received.join("\n") == fitted.join("\n"))
}

/// Returns the fields of a received piece that its parts do not represent.
pub(crate) fn unknown_fields<'a>(text: &'a str, encoded: &Value) -> Vec<(String, &'a str)> {
    const REPRESENTED: &str = "type role content name tool_calls function_call tool_call_id refusal reasoning_content reasoning \
        id call_id arguments input output action summary encrypted_content text thinking signature data source \
        tool_use_id is_error";
    let represented = |key: &str| key == FLAGS_FIELD || REPRESENTED.split(' ').any(|name| name == key);
    let fields = RawFields::of(text);
    let value = |key: &str| fields.get(key).and_then(|text| serde_json::from_str::<Value>(text).ok());
    let same = |key: &str| encoded.get(key).cloned() == value(key);
    // An unknown field has a meaning only in an object with the same type and role as the received object.
    if !(same("type") && same("role")) {
        return Vec::new();
    }
    let thinks = encoded.get("reasoning_content").is_some() || encoded.get("reasoning").is_some();
    let stays = |key: &str| !represented(key) && (thinks || !key.starts_with("reasoning"));
    fields.0.into_iter().filter(|(key, _)| stays(key)).collect()
}
