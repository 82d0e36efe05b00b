//! Defines the messages of a session, and the parts of a message.
//!
//! A [`Message`] is one entry of a session's append-only log. It contains the author, the role and the [`Part`]s.
//! Providers represent tool calls and their results in different ways. In a [`Message`], calls and results are always
//! parts, so each rule needs only one implementation.
//!
//! This module does not validate *sequences* of messages. A message may contain an orphaned result or an unanswered
//! call: [`crate::track`] handles such defects. [`Message::check`] rejects only messages that are invalid on their own.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A message's position in its session. Positions are consecutive and start at 1. As a *cut*, a position `n` means the
/// cut directly after message `n`, and 0 means the cut before the first message.
pub type Seq = u64;

/// A number of tokens, counted by a [`crate::tokens::Counter`].
pub type Tokens = u64;

/// The author of a message: an agent, a person or a tool. Cheap to clone.
pub type Author = Arc<str>;

/// The id by which a tool result refers to its call. Cheap to clone.
pub type CallId = Arc<str>;

/// A timestamp in milliseconds since the Unix epoch.
///
/// The core never reads a clock; the caller passes timestamps in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Adds `seconds` to this timestamp. Saturates at the maximum instead of wrapping.
    ///
    /// ```
    /// use epitome_core::message::Timestamp;
    /// assert_eq!(Timestamp(500).plus_seconds(2), Timestamp(2_500));
    /// ```
    pub fn plus_seconds(self, seconds: u64) -> Self {
        let millis = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000);
        Self(self.0.saturating_add(millis))
    }
}

/// A range of messages, both ends included. Never empty.
///
/// ```
/// use epitome_core::message::Span;
/// let span = Span::new(141, 160).unwrap();
/// assert_eq!((span.len(), span.to_string()), (20, "141..=160".to_owned()));
/// assert!(Span::new(5, 4).is_none() && Span::new(0, 4).is_none());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Ends")]
pub struct Span {
    /// The first message of the range.
    pub from: Seq,
    /// The last message of the range.
    pub through: Seq,
}

impl Span {
    /// Returns the range `from..=through`, or `None` if the range is empty or starts at 0.
    pub fn new(from: Seq, through: Seq) -> Option<Self> {
        (from >= 1 && from <= through).then_some(Self { from, through })
    }

    /// Returns the number of messages in the range.
    #[expect(clippy::len_without_is_empty, reason = "a span is never empty")]
    pub fn len(&self) -> u64 {
        self.through.saturating_sub(self.from).saturating_add(1)
    }

    /// Returns whether `seq` is in the range.
    pub fn contains(&self, seq: Seq) -> bool {
        self.from <= seq && seq <= self.through
    }
}

/// A span that was deserialized and is not yet validated.
#[derive(Deserialize)]
struct Ends {
    from: Seq,
    through: Seq,
}

impl TryFrom<Ends> for Span {
    type Error = String;

    fn try_from(Ends { from, through }: Ends) -> Result<Self, String> {
        Self::new(from, through)
            .ok_or_else(|| format!("span: {from}..={through} is invalid; 1 <= from <= through is required"))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..={}", self.from, self.through)
    }
}

/// The role in which a message was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions that apply to the whole session. System messages at the start of a session are never condensed.
    System,
    /// The same as `System`. Some providers use this name.
    Developer,
    /// The user, or a program that acts for the user.
    User,
    /// The assistant (the agent).
    Assistant,
    /// A tool's answer.
    Tool,
    /// An author that may be a user or an assistant, as in Honcho's sessions. The message counts as a user message
    /// until a context request names its author as the assistant.
    Peer,
}

impl Role {
    /// Returns whether a message of this role starts a turn. This is true for `User` and `Peer`.
    pub fn is_user(self) -> bool {
        matches!(self, Self::User | Self::Peer)
    }

    /// Returns whether a message of this role contains instructions. This is true for `System` and `Developer`.
    pub fn is_system(self) -> bool {
        matches!(self, Self::System | Self::Developer)
    }

    /// Returns the role's name as it is serialized.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Developer => "developer",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
            Self::Peer => "peer",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One piece of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// The model's reasoning. It belongs to the tool loop that it started. It is never summarized.
    Thinking {
        /// The reasoning text; empty if the provider hides it.
        text: String,
        /// The provider's signature of this block. Without the signature, the provider rejects the block.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
        /// The id from OpenAI's Responses API. It is an empty text if the API sent no id, and `None` if the reasoning
        /// comes from another API. A present id therefore also shows that the signature is OpenAI's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// Whether the provider encrypted the reasoning. If true, `signature` contains the whole encrypted reasoning.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        redacted: bool,
    },
    /// A tool call by the model.
    ToolCall(ToolCall),
    /// The answer to a call: a tool's output, a rejection or an error.
    ToolResult(ToolResult),
    /// An image, audio clip, video or document.
    Media(Media),
}

impl Part {
    /// Creates a text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// Creates a reasoning part without a signature.
    pub fn thinking(text: impl Into<String>) -> Self {
        Self::Thinking { text: text.into(), signature: None, id: None, redacted: false }
    }

    /// Creates a call of the tool `name`. `arguments` is the text that the model wrote.
    pub fn call(id: impl Into<CallId>, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        Self::ToolCall(ToolCall {
            id: id.into(),
            item_id: None,
            name: name.into(),
            arguments: arguments.into(),
        })
    }

    /// Creates a text result for the call `id`.
    pub fn result(id: impl Into<CallId>, text: impl Into<String>) -> Self {
        Self::ToolResult(ToolResult {
            call: id.into(),
            content: vec![Content::Text { text: text.into() }],
            error: false,
        })
    }
}

/// A tool call by the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The id that the result refers to: `id` in most dialects, `call_id` in OpenAI's Responses API.
    pub id: CallId,
    /// The second id of a call. Only some dialects set it: in OpenAI's Responses API, it is `id`. A result may refer to
    /// the call by this id too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_id: Option<CallId>,
    /// The tool's name.
    pub name: String,
    /// The arguments exactly as the model wrote them. They are not always valid JSON.
    pub arguments: String,
}

impl ToolCall {
    /// Returns the arguments as a JSON object, the only form that every provider accepts.
    ///
    /// A JSON object is returned unchanged. An empty text becomes `{}`. Any other text is wrapped in an object, so that
    /// no content is lost. The log stores the original text.
    ///
    /// ```
    /// # use epitome_core::message::{Part, ToolCall};
    /// # let call = |arguments: &str| match Part::call("x", "f", arguments) {
    /// #     Part::ToolCall(call) => call.arguments_as_object().into_owned(),
    /// #     _ => unreachable!(),
    /// # };
    /// assert_eq!(call(r#"{"path": "a.rs"}"#), r#"{"path": "a.rs"}"#);
    /// assert_eq!(call(""), "{}");
    /// assert_eq!(call(r#"{"path": "a"#), r#"{"arguments":"{\"path\": \"a"}"#);
    /// ```
    pub fn arguments_as_object(&self) -> Cow<'_, str> {
        if is_json(&self.arguments) {
            if self.arguments.trim_start().starts_with('{') {
                return Cow::Borrowed(&self.arguments);
            }
            return Cow::Owned(format!("{{\"arguments\":{}}}", self.arguments.trim()));
        }
        if self.arguments.trim().is_empty() {
            return Cow::Borrowed("{}");
        }
        let quoted = Value::String(self.arguments.clone());
        Cow::Owned(format!("{{\"arguments\":{quoted}}}"))
    }
}

/// Maximum nesting depth of arguments that are treated as JSON. `serde_json` and similar parsers allow at most 128
/// levels, and the request around the arguments also adds levels.
const DEEPEST: usize = 100;

/// Returns whether every JSON parser accepts the text. A quick check is enough for most texts. But this check wrongly
/// accepts unpaired surrogates and numbers that are out of range. A text that may contain them is therefore parsed
/// completely.
fn is_json(text: &str) -> bool {
    if is_deep(text) {
        return false;
    }
    let exponent = text.as_bytes().windows(2).any(|two| matches!(two, [b'0'..=b'9', b'e' | b'E']));
    if exponent || text.contains("\\u") {
        return serde_json::from_str::<Value>(text).is_ok();
    }
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// Returns whether brackets outside of strings nest deeper than [`DEEPEST`].
fn is_deep(text: &str) -> bool {
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    text.bytes().any(|byte| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => depth += 1,
            b'}' | b']' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > DEEPEST
    })
}

/// The answer to a tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call that this result answers, by its `id` or its `item_id`.
    pub call: CallId,
    /// The tool's output.
    pub content: Vec<Content>,
    /// Whether the tool failed or was rejected. The result still answers the call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub error: bool,
}

impl ToolResult {
    /// Returns the text pieces of the result.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.content.iter().filter_map(|content| match content {
            Content::Text { text } => Some(text.as_str()),
            Content::Media(_) => None,
        })
    }
}

/// One piece of a tool's output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Content {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image or a file.
    Media(Media),
}

/// An image, audio clip, video or document. Epitome stores and forwards media. The content is read only to estimate the
/// size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Media {
    /// The MIME type, such as `image/png`.
    pub mime: String,
    /// The location of the content.
    pub source: MediaSource,
    /// Width and height in pixels, if the sender provided them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<(u32, u32)>,
}

/// The location of the content of a medium.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MediaSource {
    /// The content is in the message, as base64.
    Base64(String),
    /// The content is at a URL, and the provider fetches it.
    Url(String),
    /// The provider stores the content under this file id.
    File(String),
}

/// One entry of a session's log.
///
/// ```
/// use epitome_core::message::{Message, Part, Role};
///
/// let asked = Message::user("Why does the build fail?");
/// let called = Message::new(Role::Assistant, [
///     Part::text("Let me look."),
///     Part::call("c1", "run", r#"{"command": "cargo build"}"#),
/// ]);
/// let answered = Message::tool("c1", "error[E0432]: unresolved import");
/// assert!([asked, called, answered].iter().all(|m| m.check(&Default::default()).is_ok()));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Position in the session, from 1. It is 0 until the session assigns a position.
    #[serde(default)]
    pub seq: Seq,
    /// The role in which the message was sent.
    pub role: Role,
    /// The author; `None` if only the role is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<Author>,
    /// The content.
    pub parts: Vec<Part>,
    /// Whether the message is always shown verbatim, regardless of the session's length.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// Whether the message is shown only while it is recent. Such a message is never summarized, and triggers do not
    /// count it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip: bool,
    /// When the message was sent. The triggers `every` and `idle` measure time from this timestamp.
    #[serde(default)]
    pub at: Timestamp,
    /// The caller's own data, stored and returned unchanged.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Fields of the source dialect that have no equivalent in this type: unknown fields and unusual spellings. With
    /// these fields, a dialect can return the message exactly as it was received. Only dialects read and write them.
    /// API responses omit them, and their tokens are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<Box<Value>>,
}

impl Message {
    /// Creates a message with these parts and no flags set.
    pub fn new(role: Role, parts: impl IntoIterator<Item = Part>) -> Self {
        Self {
            seq: 0,
            role,
            author: None,
            parts: parts.into_iter().collect(),
            pinned: false,
            skip: false,
            at: Timestamp::default(),
            metadata: Map::new(),
            wire: None,
        }
    }

    /// Creates a user message.
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(Role::User, [Part::text(text)])
    }

    /// Creates an assistant message.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::new(Role::Assistant, [Part::text(text)])
    }

    /// Creates a system message.
    pub fn system(text: impl Into<String>) -> Self {
        Self::new(Role::System, [Part::text(text)])
    }

    /// Creates a tool message that answers the call `id` with `text`.
    pub fn tool(id: impl Into<CallId>, text: impl Into<String>) -> Self {
        Self::new(Role::Tool, [Part::result(id, text)])
    }

    /// Returns the tool calls of the message, in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            Part::ToolCall(call) => Some(call),
            _ => None,
        })
    }

    /// Returns the tool results of the message, in order.
    pub fn results(&self) -> impl Iterator<Item = &ToolResult> {
        self.parts.iter().filter_map(|part| match part {
            Part::ToolResult(result) => Some(result),
            _ => None,
        })
    }

    /// Returns an error if the message is invalid on its own. The messages around it are not considered.
    pub fn check(&self, limits: &Limits) -> Result<(), MessageError> {
        for (at, part) in self.parts.iter().enumerate() {
            let (kind, at_home, allowed) = match part {
                Part::ToolCall(_) => ("tool call", self.role == Role::Assistant, "assistant"),
                Part::Thinking { .. } => ("thinking", self.role == Role::Assistant, "assistant"),
                Part::ToolResult(_) => {
                    ("tool result", matches!(self.role, Role::Tool | Role::User), "tool and user")
                }
                Part::Text { .. } => ("text", self.role != Role::Tool, "all but tool"),
                Part::Media(_) => ("media", self.role != Role::Tool, "all but tool"),
            };
            if !at_home {
                return Err(MessageError::WrongRole { at, kind, role: self.role, allowed });
            }
            match part {
                Part::ToolCall(call) if call.id.is_empty() => {
                    return Err(MessageError::Empty { at, field: "id" });
                }
                Part::ToolCall(call) if call.name.is_empty() => {
                    return Err(MessageError::Empty { at, field: "name" });
                }
                Part::ToolResult(result) if result.call.is_empty() => {
                    return Err(MessageError::Empty { at, field: "call" });
                }
                _ => {}
            }
        }
        if self.parts.is_empty() {
            return Err(MessageError::NoParts);
        }
        if self.author.as_ref().is_some_and(|author| author.is_empty()) {
            return Err(MessageError::NoAuthor);
        }
        let bytes = self.bytes();
        if bytes > limits.message {
            return Err(MessageError::TooLarge { field: "message", bytes, limit: limits.message });
        }
        let bytes = self.metadata_bytes();
        if bytes > limits.metadata {
            return Err(MessageError::TooLarge { field: "metadata", bytes, limit: limits.metadata });
        }
        Ok(())
    }

    /// Returns the size of the message's parts, author and wire data in bytes. Metadata are not included.
    pub fn bytes(&self) -> u64 {
        let media = |m: &Media| {
            m.mime.len()
                + match &m.source {
                    MediaSource::Base64(s) | MediaSource::Url(s) | MediaSource::File(s) => s.len(),
                }
        };
        let parts: usize = self
            .parts
            .iter()
            .map(|part| match part {
                Part::Text { text } => text.len(),
                Part::Thinking { text, signature, id, .. } => {
                    let sealed = [signature, id].into_iter().flatten().map(String::len);
                    text.len() + sealed.sum::<usize>()
                }
                Part::ToolCall(call) => {
                    let item = call.item_id.as_ref().map_or(0, |item| item.len());
                    call.id.len() + item + call.name.len() + call.arguments.len()
                }
                Part::ToolResult(result) => {
                    let content = result.content.iter().map(|c| match c {
                        Content::Text { text } => text.len(),
                        Content::Media(m) => media(m),
                    });
                    result.call.len() + content.sum::<usize>()
                }
                Part::Media(m) => media(m),
            })
            .sum();
        let wire = self.wire.as_ref().map_or(0, |wire| wire.to_string().len());
        (parts + wire + self.author.as_ref().map_or(0, |author| author.len())) as u64
    }

    /// Estimates the memory use of the message in bytes: the content and the data structures around it. Callers that
    /// hold many messages use this to limit their memory.
    pub fn memory(&self) -> usize {
        let within = |part: &Part| match part {
            Part::ToolResult(result) => result.content.len().saturating_mul(size_of::<Content>()),
            _ => 0,
        };
        let parts = self.parts.iter().map(|part| size_of::<Part>().saturating_add(within(part)));
        let words = usize::try_from(self.bytes()).unwrap_or(usize::MAX);
        let others = [map_memory(&self.metadata), self.wire.as_deref().map_or(0, value_memory)];
        parts.chain(others).fold(size_of::<Self>().saturating_add(words), usize::saturating_add)
    }

    fn metadata_bytes(&self) -> u64 {
        if self.metadata.is_empty() {
            return 0;
        }
        serde_json::to_vec(&self.metadata).map_or(u64::MAX, |json| json.len() as u64)
    }
}

/// Estimates the memory use of a JSON value in bytes. It is larger than the JSON text: in an array, the two bytes `1,`
/// become a whole [`Value`].
pub fn value_memory(value: &Value) -> usize {
    let within: usize = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(value_memory).fold(0, usize::saturating_add),
        Value::Object(fields) => map_memory(fields),
    };
    size_of::<Value>().saturating_add(within)
}

fn map_memory(fields: &Map<String, Value>) -> usize {
    let entry = |(name, value): (&String, &Value)| {
        // A map stores each entry twice, once for lookup and once for order.
        let places = size_of::<String>().saturating_mul(2);
        places.saturating_add(name.len()).saturating_add(value_memory(value))
    };
    fields.iter().map(entry).fold(0, usize::saturating_add)
}

/// Size limits of one message.
///
/// ```
/// let limits = epitome_core::message::Limits::default();
/// assert_eq!((limits.message, limits.metadata), (1 << 20, 64 << 10));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of a message's parts, author and wire data, in bytes.
    pub message: u64,
    /// Maximum size of a message's metadata as JSON, in bytes.
    pub metadata: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { message: 1 << 20, metadata: 64 << 10 }
    }
}

/// Reasons why a message is rejected. In all cases, the caller must fix the message before sending it again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The part is not allowed in a message of this role.
    #[error(
        "parts[{at}]: a {kind} part is not allowed in a {role} message; it is allowed in {allowed} messages"
    )]
    WrongRole {
        /// Index of the part.
        at: usize,
        /// Kind of the part.
        kind: &'static str,
        /// Role of the message.
        role: Role,
        /// Roles that allow this part.
        allowed: &'static str,
    },
    /// A required name is empty.
    #[error("parts[{at}].{field}: must not be empty")]
    Empty {
        /// Index of the part.
        at: usize,
        /// The empty field.
        field: &'static str,
    },
    /// The message has no parts.
    #[error("parts: is empty; a message needs at least one part")]
    NoParts,
    /// The author's name is empty.
    #[error("author: is empty; set a name, or leave the field out")]
    NoAuthor,
    /// A field has more bytes than allowed.
    #[error("{field}: {bytes} bytes; at most {limit} are allowed")]
    TooLarge {
        /// The field that is too large.
        field: &'static str,
        /// Size of the field in bytes.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
    },
}
