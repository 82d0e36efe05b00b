//! Providers' formats as pure mappings, used by model calls, import, contexts, condensing and the proxy alike.
//!
//! There are two ways out. [`Dialect::restore`] gives a message back as it came, value for value: what our own form
//! does not hold is kept beside it ([`Message::wire`]). [`Dialect::write`] makes a request of a list that the core's
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
//! let messages = Dialect::Anthropic.read(&request)?;
//! assert_eq!(serde_json::Value::Object(Dialect::Anthropic.restore_body(&messages)), request);
//!
//! let chat = Dialect::OpenAi.write(&messages);
//! assert_eq!(chat["messages"][0], json!({ "role": "system", "content": "Be brief." }));
//! assert_eq!(chat["messages"][1], json!({ "role": "user", "content": "Which day?" }));
//! assert_eq!(chat["messages"][3], json!({ "role": "tool", "tool_call_id": "t1", "content": "Friday" }));
//! # Ok::<(), epitome_wire::DialectError>(())
//! ```
//!
//! One file for each dialect; what they share is in `fit` (made to be sent), `media`, `flags`, `field` (complaints
//! that name the place), `reader`, in `restored`, `residue` and `exact` (given back as it came), and in `body`.
//! Nothing here knows a network, a store or a model's window, and no list is mended: orphans and open calls are the
//! view's matter.

use std::fmt;
use std::str::FromStr;

use epitome_core::message::{Message, Part};
use serde_json::{Map, Value};

mod anthropic;
mod body;
mod error_text;
mod events;
mod exact;
mod failure;
mod field;
mod fit;
mod flags;
mod heard;
mod media;
mod openai;
mod ours;
mod reader;
mod residue;
mod responses;
mod restored;
mod too_long;
mod usage;

pub use body::{Body, Marks};
pub use error_text::{ErrorText, Sizes};
pub use events::Events;
pub use failure::failure;
pub use heard::{Counted, Heard, Listener};
pub use reader::{Read, Reader};
pub use too_long::{TooLong, too_long};
pub use usage::{Tally, Usage};

/// A provider's wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI's chat completions, and everybody who speaks it.
    OpenAi,
    /// OpenAI's Responses.
    Responses,
    /// Anthropic's messages.
    Anthropic,
    /// Messages as this crate writes them.
    Ours,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::OpenAi, Self::Responses, Self::Anthropic, Self::Ours];

    /// By what it is called in flags and settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Responses => "responses",
            Self::Anthropic => "anthropic",
            Self::Ours => "epitome",
        }
    }

    /// The dialect of one wire message, where its shape tells; `None` where it could be any.
    ///
    /// ```
    /// use epitome_wire::Dialect;
    /// use serde_json::json;
    ///
    /// let result = json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t1" }] });
    /// assert_eq!(Dialect::of(&result), Some(Dialect::Anthropic));
    /// assert_eq!(Dialect::of(&json!({ "role": "user", "content": "Hello" })), None);
    /// ```
    #[must_use]
    pub fn of(message: &Value) -> Option<Self> {
        let fields = message.as_object()?;
        if fields.get("parts").is_some_and(Value::is_array) {
            return Some(Self::Ours);
        }
        if !fields.contains_key("role") {
            // Somebody's wrapper around a message, of which the wrapper tells nothing.
            if fields.get("message").is_some_and(Value::is_object) {
                return None;
            }
            if fields.contains_key(responses::INSTRUCTIONS) && !fields.contains_key("output") {
                return Some(Self::Responses);
            }
        }
        let kinds = fields.get("content").and_then(Value::as_array).into_iter().flatten();
        let by_content = kinds.filter_map(|piece| piece.get("type")?.as_str()).find_map(|kind| match kind {
            "input_text" | "output_text" | "input_image" | "input_file" => Some(Self::Responses),
            "image_url" | "input_audio" | "file" | "refusal" => Some(Self::OpenAi),
            "tool_use" | "tool_result" | "thinking" | "redacted_thinking" | "image" | "document"
            | "search_result" => Some(Self::Anthropic),
            kind if kind.ends_with("tool_use") || kind.ends_with("tool_result") => Some(Self::Anthropic),
            _ => None,
        });
        if by_content.is_some() {
            return by_content;
        }
        if fields.get("type").is_some_and(Value::is_string) {
            return Some(Self::Responses);
        }
        let chat = ["tool_calls", "tool_call_id", "function_call", "reasoning_content"];
        let role = fields.get("role").and_then(Value::as_str);
        let is_chat = chat.iter().any(|key| fields.contains_key(*key))
            || matches!(role, Some("tool" | "function" | "developer"));
        if is_chat {
            return Some(Self::OpenAi);
        }
        // Gateways take these on chat messages too, which is why they come last.
        let mut pieces = fields.get("content").and_then(Value::as_array).into_iter().flatten();
        let marked = |piece: &Value| piece.get("cache_control").is_some() || piece.get("citations").is_some();
        pieces.any(marked).then_some(Self::Anthropic)
    }

    /// Reads wire messages, one after the other.
    #[must_use]
    pub fn reader(self) -> Reader {
        Reader::new(self)
    }

    /// Reads a whole request body, or a bare list of messages.
    ///
    /// Numbers are as exact as a [`Value`] holds them; [`Dialect::read_text`] takes the text itself.
    ///
    /// ```
    /// use epitome_wire::Dialect;
    /// use serde_json::json;
    ///
    /// let wrong = json!([{ "role": "user", "content": "Hello" }, { "role": "robot", "content": "Hello" }]);
    /// let error = Dialect::OpenAi.read(&wrong).unwrap_err().to_string();
    /// assert!(error.starts_with("messages[1].role: \"robot\" is unknown"));
    /// ```
    pub fn read(self, body: &Value) -> Result<Vec<Message>, DialectError> {
        reader::read(self, body)
    }

    /// As [`Dialect::read`], of the text of a body: every digit of every number is kept.
    ///
    /// ```
    /// use epitome_wire::Dialect;
    ///
    /// let list = r#"[{"role":"user","content":"Hello","x":1e2}]"#;
    /// let messages = Dialect::OpenAi.read_text(list)?;
    /// assert_eq!(Dialect::OpenAi.restore_text(&messages), [r#"{"role":"user","content":"Hello","x":1e2}"#]);
    /// # Ok::<(), epitome_wire::DialectError>(())
    /// ```
    pub fn read_text(self, body: &str) -> Result<Vec<Message>, DialectError> {
        reader::read_text(self, body)
    }

    /// The fields of a request that carry these messages, ready to be sent.
    ///
    /// The list is one the core's view made: pairs and order are right. `{"messages"}` for chat and for ours,
    /// `{"input"}` for Responses, with `instructions` where they came as such, `{"system", "messages"}` for
    /// Anthropic. A list that only grew at its end is spelled as before, but for its last message.
    #[must_use]
    pub fn write(self, messages: &[Message]) -> Map<String, Value> {
        match self {
            Self::OpenAi => openai::write(messages),
            Self::Responses => {
                let came_so = |message: &Message| {
                    message.role.is_system()
                        && matches!(restored::of(self, message).values().as_slice(),
                            [Value::Object(item)] if item.contains_key(responses::INSTRUCTIONS))
                };
                responses::write(messages, messages.first().is_some_and(came_so))
            }
            Self::Anthropic => anthropic::write(messages),
            Self::Ours => ours::write(messages, self.name()),
        }
    }

    /// The messages as they came in, where they came in this dialect, and plainly spelled where not.
    ///
    /// Flags are as they are now. A system prompt that was a field of the request is a message of the role `system`
    /// (Anthropic) or an item `{"instructions": …}` (Responses); [`Dialect::restore_body`] puts it where it was.
    ///
    /// ```
    /// use epitome_wire::Dialect;
    /// use serde_json::json;
    ///
    /// let came = json!([{ "id": 7, "role": "user", "content": [{ "type": "text", "text": "Hello", "new": null }] }]);
    /// let mut messages = Dialect::OpenAi.read(&came)?;
    /// assert_eq!(json!(Dialect::OpenAi.restore(&messages)), came);
    ///
    /// messages[0].pinned = true;
    /// assert_eq!(Dialect::OpenAi.restore(&messages)[0]["epitome"], json!({ "pinned": true }));
    /// # Ok::<(), epitome_wire::DialectError>(())
    /// ```
    #[must_use]
    pub fn restore(self, messages: &[Message]) -> Vec<Value> {
        messages.iter().flat_map(|message| restored::of(self, message).values()).collect()
    }

    /// As [`Dialect::restore`], as text: every number is spelled as it was in what [`Reader::push_text`] took in.
    #[must_use]
    pub fn restore_text(self, messages: &[Message]) -> Vec<String> {
        messages.iter().flat_map(|message| restored::of(self, message).texts()).collect()
    }

    /// The fields of the body that [`Dialect::read`] took in, as they came.
    #[must_use]
    pub fn restore_body(self, messages: &[Message]) -> Map<String, Value> {
        restored::body(self, messages)
    }

    /// One wire message, flags included, residue not.
    fn understood(self, wire: &Value) -> Result<Message, DialectError> {
        let mut message = match self {
            Self::OpenAi => openai::read(wire)?,
            Self::Responses => responses::read(wire)?,
            Self::Anthropic => anthropic::read(wire)?,
            Self::Ours => return ours::read(wire),
        };
        if let Some(fields) = wire.as_object() {
            (message.pinned, message.skip) = flags::of(fields)?;
        }
        Ok(message)
    }

    /// One message the plain way, without flags.
    fn spelled(self, message: &Message) -> Vec<Value> {
        match self {
            Self::OpenAi => openai::spell(message),
            Self::Responses => responses::spell(message),
            Self::Anthropic => anthropic::spell(message),
            Self::Ours => ours::spell(message, self.name()),
        }
    }
}

/// A message holds at least one part: an empty text stands where there is nothing to say, and only there.
fn blank_if_nothing(mut parts: Vec<Part>) -> Vec<Part> {
    let is_empty = |part: &Part| matches!(part, Part::Text { text } if text.is_empty());
    if parts.iter().any(|part| !is_empty(part)) {
        parts.retain(|part| !is_empty(part));
    } else {
        parts = vec![Part::text("")];
    }
    parts
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Dialect {
    type Err = DialectError;

    fn from_str(name: &str) -> Result<Self, DialectError> {
        let found = Self::ALL.into_iter().find(|dialect| dialect.name() == name);
        found.ok_or_else(|| {
            let there_are = "no such format; there are openai, responses, anthropic and epitome";
            DialectError::new("", format!("{name:?}: {there_are}"))
        })
    }
}

/// What is wrong with a wire message, and where in it: one line that repeats nothing of what was said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}{}{what}", if place.is_empty() { "" } else { ": " })]
pub struct DialectError {
    /// As in `messages[3].content[1].type`; empty where it is the whole.
    place: String,
    what: String,
}

impl DialectError {
    fn new(place: &str, what: impl Into<String>) -> Self {
        Self { place: place.to_owned(), what: what.into() }
    }

    /// The same, seen from further out: `messages[3]` around `role`.
    #[must_use]
    pub fn under(self, outer: &str) -> Self {
        let dot = if self.place.is_empty() || self.place.starts_with('[') { "" } else { "." };
        Self { place: format!("{outer}{dot}{}", self.place), what: self.what }
    }

    /// The same, where the outermost field has another name on the wire.
    fn renamed(self, field: &str) -> Self {
        let inner = self.place.find(['.', '[']).and_then(|end| self.place.get(end..)).unwrap_or_default();
        Self { place: format!("{field}{inner}"), what: self.what }
    }
}
