//! Converts messages to and from the formats of model providers. Model calls, import, contexts, condensing and
//! the proxy use this crate. A wire message is the JSON of a message in a provider's format.
//!
//! There are three ways to write messages:
//!
//! - [`Dialect::restore`] returns each message with exactly the JSON values that were received. Fields that the
//!   type [`Message`](epitome_core::message::Message) cannot represent are stored with the message, in
//!   [`Message::wire`](epitome_core::message::Message::wire).
//! - [`Dialect::write`] builds the message fields of a new request. Its input is a list that
//!   [`epitome_core::view`] has already made valid. The output contains only what the provider accepts, and no
//!   fields of Epitome. The same input always gives the same output.
//! - [`Body`] replaces the messages of a complete request. It writes unchanged messages exactly as they were
//!   received, and encodes the other messages.
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
//! Each format implements [`Format`] in its own module. The built-in formats are in `openai`, `responses`,
//! `anthropic` and `native` (Epitome's own format). A program can add formats with [`register`]. The other
//! modules:
//!
//! - `fit` adjusts messages to a format's limits.
//! - `field`, `flags` and `media` read and write parts of messages.
//! - `reader`, `restore`, `residue` and `exact` return messages as they were received.
//! - `body`, `pieces` and `raw` rewrite whole requests.
//! - `answer`, `chat` and `sse` read a model's answer.
//! - `usage_listener` reads the token counts of an answer while the answer is forwarded.
//! - `usage` reads token counts, and `error_text` reads error messages.
//!
//! This crate uses no network, no store and no clock, and it contains no window sizes of models. It does not
//! repair message lists: [`epitome_core::view`] handles tool results without a call and calls without a result.

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

/// Removes empty texts from the parts. If no part is left, returns one empty text, because a message needs at
/// least one part.
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
