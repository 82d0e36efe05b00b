//! Providers' formats as pure mappings, used by model calls, import, contexts, condensing and the proxy alike.
//!
//! There are two ways out. [`Dialect::restore`] gives a message back as it came, value for value: what our own form
//! does not hold is kept beside it ([`Message::wire`](epitome_core::message::Message::wire)). [`Dialect::write`] makes a request of a list that the core's
//! view has made valid ([`epitome_core::view`]): it spells what this one provider accepts, deterministically, and
//! sends nothing of ours along. Whoever is given somebody's whole request, to give it back with a shorter list in it,
//! uses a [`Body`]: it does the first for every message that stayed the same and the second for the rest.
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
//! Each format is one implementation of [`Format`] in one file: `openai`, `responses`, `anthropic`, `ours`. [`register`] adds
//! those of a program. What they share: `fit` (made to be sent), `media`, `flags`, `field` (errors that name the place), `reader`,
//! `restored`, `residue` and `exact` (given back as it came), `body`, `pieces` and `raw` (whole requests), `asking`, `chat` and
//! `events` (a model's answer),
//! `heard` (an answer that passes by), `usage` and `error_text`.
//!
//! Nothing here knows a network, a store, a clock or a model's window, and no list is mended: orphans and open calls are the
//! view's matter.

use epitome_core::message::{Content, Part};

mod anthropic;
mod asking;
mod body;
mod chat;
mod dialect;
mod error_text;
mod events;
mod exact;
mod field;
mod fit;
mod flags;
pub mod format;
mod heard;
mod media;
mod openai;
mod ours;
mod pieces;
mod raw;
mod reader;
mod registry;
mod residue;
mod responses;
mod restored;
mod usage;

pub use asking::{Answer, Hearing, Question, Then};
pub use body::{Body, Marks};
pub use dialect::Dialect;
pub use error_text::{ErrorText, Sizes, TooLong, too_long};
pub use events::Events;
pub use field::{DialectError, Object};
pub use fit::Wants;
pub use format::{Endpoint, Format};
pub use heard::{Counted, Heard, Listener};
pub use pieces::Piece;
pub use raw::Members;
pub use reader::{Read, Reader};
pub use registry::{RegisterError, register};
pub use usage::{Tally, Usage};

/// A message holds at least one part: an empty text stands where there is nothing to say, and only there.
pub(crate) fn blank_if_nothing(mut parts: Vec<Part>) -> Vec<Part> {
    let is_empty = |part: &Part| matches!(part, Part::Text { text } if text.is_empty());
    if parts.iter().any(|part| !is_empty(part)) {
        parts.retain(|part| !is_empty(part));
    } else {
        parts = vec![Part::text("")];
    }
    parts
}

/// A piece of what is said, as a part of a message.
pub(crate) fn part_of(content: Content) -> Part {
    match content {
        Content::Text { text } => Part::Text { text },
        Content::Media(media) => Part::Media(media),
    }
}
