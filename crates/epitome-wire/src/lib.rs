//! Maps messages to and from providers' formats. Used by model calls, import, contexts, condensing and the
//! proxy.
//!
//! There are two ways to write a message. [`Dialect::restore`] returns it as it was received, value for
//! value: fields that the core's message type cannot represent are stored next to it
//! ([`Message::wire`](epitome_core::message::Message::wire)). [`Dialect::write`] builds a request from a list
//! that the core's view ([`epitome_core::view`]) has made valid. It writes only what this provider accepts,
//! deterministically, and sends no fields of Epitome. To shorten the list in a complete request, use a
//! [`Body`]: it restores each unchanged message and writes the others.
//!
//! ```
//! use epitome_wire::Dialect;
//! use serde_json::json;
//!
//! let request = json!({ "system": "Be brief.", "messages": [
//!     { "role": "user", "content": "Which day?", "x-note": 7 },
//!     { "role": "assistant", "content": [{ "type": "tool_use", "id": "t1", "name": "today", "input": {} }] },
//!     { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t1", "content": "Friday" }] },
//! ] });
//! let messages = Dialect::ANTHROPIC.read(&request)?;
//! assert_eq!(json!(Dialect::ANTHROPIC.restore(&messages)[1..]), request["messages"]);
//!
//! let chat = Dialect::OPENAI.write(&messages);
//! assert_eq!(chat["messages"][0], json!({ "role": "system", "content": "Be brief." }));
//! assert_eq!(chat["messages"][1], json!({ "role": "user", "content": "Which day?" }));
//! assert_eq!(chat["messages"][3], json!({ "role": "tool", "tool_call_id": "t1", "content": "Friday" }));
//! # Ok::<(), epitome_wire::DialectError>(())
//! ```
//!
//! Each format is one implementation of [`Format`] in one file: `openai`, `responses`, `anthropic`, `native`
//! (Epitome's own).
//! [`register`] adds a program's own formats. Shared modules: `fit` (adjust messages to a format's limits),
//! `media`, `flags`, `field` (errors with the path of the field), `reader`, `restore`, `residue` and `exact`
//! (return messages as received), `body`, `pieces` and `raw` (whole requests), `answer`, `chat` and `sse` (a
//! model's answer), `usage_listener` (an answer that is forwarded), `usage` and `error_text`.
//!
//! This crate uses no network, store or clock, and does not know any model's window. It does not repair
//! lists: orphaned results and open calls are handled by the core's view.

use epitome_core::message::{Content, Part};

mod answer;
mod anthropic;
mod body;
mod chat;
mod dialect;
mod error_text;
mod exact;
mod field;
mod fit;
mod flags;
pub mod format;
mod media;
mod native;
mod openai;
mod pieces;
mod raw;
mod reader;
mod registry;
mod residue;
mod responses;
mod restore;
mod sse;
mod usage;
mod usage_listener;

pub use answer::{Answer, PartialAnswer, Question, ReadStatus};
pub use body::{Body, OwnFields};
pub use dialect::Dialect;
pub use error_text::{ErrorSizes, ErrorText, TooLong, too_long};
pub use field::{DialectError, Object};
pub use fit::FormatLimits;
pub use format::{Endpoint, Format};
pub use pieces::Piece;
pub use raw::RawFields;
pub use reader::{ReadMessage, Reader};
pub use registry::{RegisterError, register};
pub use sse::SseParser;
pub use usage::{PartialUsage, TokenUsage};
pub use usage_listener::{ReplyOutcome, ReplyUsage, UsageListener};

/// Ensures that a message has at least one part. An empty text is used only if there is no other content.
pub(crate) fn blank_if_nothing(mut parts: Vec<Part>) -> Vec<Part> {
    let is_empty = |part: &Part| matches!(part, Part::Text { text } if text.is_empty());
    if parts.iter().any(|part| !is_empty(part)) {
        parts.retain(|part| !is_empty(part));
    } else {
        parts = vec![Part::text("")];
    }
    parts
}

/// Converts content to a message part.
pub(crate) fn part_of(content: Content) -> Part {
    match content {
        Content::Text { text } => Part::Text { text },
        Content::Media(media) => Part::Media(media),
    }
}
