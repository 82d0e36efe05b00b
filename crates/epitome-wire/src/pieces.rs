//! What a message was made of on the wire, piece by piece.
//!
//! A piece is what goes out as it came or not at all: a chat message, an item of Responses, a block of Anthropic's.
//! Each knows which parts were read of it, so that a message of which the core took something away (its reasoning,
//! one of several results) still goes out in its own letters for the rest. Which pieces a message has, is its format's
//! matter.

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
    /// What was read of it; nothing of what is unknown.
    pub parts: Vec<Part>,
    /// What kind of call or answer it is, where it is not the common one: the answer to a call must be of its kind.
    pub form: Option<String>,
    /// Calls whose arguments are no object, and need not be.
    pub custom: Vec<String>,
    /// What the provider calls it, where the parts do not say so; nothing may be called so twice.
    pub id: Option<String>,
    /// Whether it holds, besides its parts, nothing that a provider is known to refuse.
    pub sound: bool,
}

impl<'a> Piece<'a> {
    /// A piece of the common kind, with nothing in it that is refused.
    pub fn new(text: impl Into<Cow<'a, str>>, parts: Vec<Part>) -> Self {
        Self { text: text.into(), parts, form: None, custom: Vec::new(), id: None, sound: true }
    }

    fn is_custom(&self, call: &ToolCall) -> bool {
        self.custom.iter().any(|id| **id == *call.id)
    }
}

/// Whether a piece of content is a text of no letters.
pub(crate) fn is_blank_text(piece: &Value) -> bool {
    matches!(kind(piece), "text" | "input_text" | "output_text") && is_blank(text(piece, "text"))
}

/// Whether a piece of content is known and refused: nothing said, or media from anybody but the user.
pub(crate) fn is_refused(piece: &Value, role: &str) -> bool {
    let media = matches!(kind(piece), "image_url" | "input_audio" | "file" | "input_image" | "input_file");
    kind(piece).is_empty() || is_blank_text(piece) || (media && role != "user")
}

/// Whether this is the part that came, as far as it can be told apart.
pub(crate) fn is_same(piece: &Piece<'_>, came: &Part, shown: &Part) -> bool {
    match (came, shown) {
        (Part::ToolCall(came), Part::ToolCall(shown)) if piece.is_custom(came) => {
            came.id == shown.id && came.name == shown.name
        }
        _ => came == shown,
    }
}

/// Whether a part that came may go out as it is, where `fitted` is what else would be sent for it.
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

/// Words in several pieces are as good as in one.
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

/// The fields of a piece that we have no name for, as they came.
pub(crate) fn others<'a>(text: &'a str, spelled: &Value) -> Vec<(String, &'a str)> {
    const KNOWN: &str = "type role content name tool_calls function_call tool_call_id refusal reasoning_content reasoning \
        id call_id arguments input output action summary encrypted_content text thinking signature data source \
        tool_use_id is_error";
    let known = |key: &str| key == FLAGS || KNOWN.split(' ').any(|known| known == key);
    let members = Members::of(text);
    let kind = |key: &str| members.get(key).and_then(|text| serde_json::from_str::<Value>(text).ok());
    let same = |key: &str| spelled.get(key).cloned() == kind(key);
    // A field belongs to the kind of thing it came with.
    if !(same("type") && same("role")) {
        return Vec::new();
    }
    let thinks = spelled.get("reasoning_content").is_some() || spelled.get("reasoning").is_some();
    let stays = |key: &str| !known(key) && (thinks || !key.starts_with("reasoning"));
    members.0.into_iter().filter(|(key, _)| stays(key)).collect()
}
