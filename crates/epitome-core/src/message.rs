//! What a session is made of.
//!
//! A [`Message`] is one entry of a session's append-only log: who spoke, in which role, and the
//! [`Part`]s they said. Providers disagree about where tool calls and their results live; here
//! both are parts, whatever message carries them, so the rules need to be written only once.
//!
//! Nothing in this module judges a *sequence* of messages: orphaned results, calls nobody
//! answered and the like are lawful here and sorted out by [`crate::track`]. [`Message::check`]
//! refuses only what could never be right on its own.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A message's place in its session: dense, from 1. As a *cut*, the place just after that
/// message; 0 is the place before the first.
pub type Seq = u64;

/// A number of tokens, counted with some [`crate::tokens::Counter`].
pub type Tokens = u64;

/// Who said something: an agent, a person, a tool. Cheap to clone.
pub type Author = Arc<str>;

/// The name by which a tool result finds its call. Cheap to clone.
pub type CallId = Arc<str>;

/// A moment, in milliseconds since the Unix epoch.
///
/// The core never asks what time it is; whoever calls it hands the moment in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// This moment and `seconds` more; stops at the end of time instead of wrapping.
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

/// A run of messages, both ends included. Never empty.
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
    /// The first message of the run.
    pub from: Seq,
    /// The last message of the run.
    pub through: Seq,
}

impl Span {
    /// The run `from..=through`, if there is one.
    pub fn new(from: Seq, through: Seq) -> Option<Self> {
        (from >= 1 && from <= through).then_some(Self { from, through })
    }

    /// How many messages it holds.
    #[expect(clippy::len_without_is_empty, reason = "a span is never empty")]
    pub fn len(&self) -> u64 {
        self.through.saturating_sub(self.from).saturating_add(1)
    }

    /// Whether `seq` is one of its messages.
    pub fn contains(&self, seq: Seq) -> bool {
        self.from <= seq && seq <= self.through
    }
}

/// A span as it was written, not yet believed.
#[derive(Deserialize)]
struct Ends {
    from: Seq,
    through: Seq,
}

impl TryFrom<Ends> for Span {
    type Error = String;

    fn try_from(Ends { from, through }: Ends) -> Result<Self, String> {
        Self::new(from, through)
            .ok_or_else(|| format!("span: {from}..={through} given; it starts from 1 on and holds a message"))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..={}", self.from, self.through)
    }
}

/// In which role a message was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Standing orders. At the head of a session they are never condensed.
    System,
    /// Standing orders again, under the name some providers use.
    Developer,
    /// The person, or whoever stands for them.
    User,
    /// The agent.
    Assistant,
    /// A tool's answer.
    Tool,
    /// An author whose side was never told, as in Honcho's sessions. Counts as `User` until a
    /// context is asked for with the assistant's name.
    Peer,
}

impl Role {
    /// Whether such a message starts a turn: the user, or a peer.
    pub fn is_user(self) -> bool {
        matches!(self, Self::User | Self::Peer)
    }

    /// Whether such a message gives standing orders.
    pub fn is_system(self) -> bool {
        matches!(self, Self::System | Self::Developer)
    }

    /// What it is called.
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
    /// Plain words.
    Text {
        /// The words.
        text: String,
    },
    /// The model's reasoning. Belongs to the tool loop it opened; never summarized.
    Thinking {
        /// The reasoning, empty where the provider hides it.
        text: String,
        /// The provider's proof that it wrote this; without it the block is refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
        /// What OpenAI's Responses call it; empty where it came without. Nobody else names reasoning, so this
        /// also tells whose signature it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// Whether the provider sealed the reasoning itself, so that `signature` holds all of it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        redacted: bool,
    },
    /// The model asks for a tool.
    ToolCall(ToolCall),
    /// A tool's answer, a rejection or an error: whatever answers the call.
    ToolResult(ToolResult),
    /// A picture, a sound, a document.
    Media(Media),
}

impl Part {
    /// Plain words.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// Reasoning without a signature.
    pub fn thinking(text: impl Into<String>) -> Self {
        Self::Thinking { text: text.into(), signature: None, id: None, redacted: false }
    }

    /// A call of the tool `name`, its arguments as the model wrote them.
    pub fn call(id: impl Into<CallId>, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        Self::ToolCall(ToolCall {
            id: id.into(),
            item_id: None,
            name: name.into(),
            arguments: arguments.into(),
        })
    }

    /// The textual answer to the call `id`.
    pub fn result(id: impl Into<CallId>, text: impl Into<String>) -> Self {
        Self::ToolResult(ToolResult {
            call: id.into(),
            content: vec![Content::Text { text: text.into() }],
            error: false,
        })
    }
}

/// The model asks for a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// What the result will name: `id` in most dialects, `call_id` in OpenAI's Responses.
    pub id: CallId,
    /// The second name some dialects give a call (`id` in OpenAI's Responses). A result that
    /// names this one is paired all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_id: Option<CallId>,
    /// The tool's name.
    pub name: String,
    /// The arguments, exactly as the model wrote them; not always JSON.
    pub arguments: String,
}

impl ToolCall {
    /// The arguments as a JSON object, which is all that every provider accepts.
    ///
    /// An object goes out untouched. Nothing becomes `{}`; anything else is carried inside an
    /// object, so that no word is lost. The log keeps what was written.
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

/// Nested deeper than this, it is data to no reader: `serde_json` and its like give up at 128, and the
/// request around it is nested as well.
const DEEPEST: usize = 100;

/// Whether every reader takes it for JSON. A half of a surrogate pair and a number out of range pass
/// a quick look, so where either may be, the whole is read.
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

/// Whether brackets outside of strings nest deeper than [`DEEPEST`].
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

/// What answers a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call it answers, by its `id` or its `item_id`.
    pub call: CallId,
    /// What the tool gave back.
    pub content: Vec<Content>,
    /// Whether the tool failed or was refused. It is an answer nevertheless.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub error: bool,
}

impl ToolResult {
    /// What it says in words.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.content.iter().filter_map(|content| match content {
            Content::Text { text } => Some(text.as_str()),
            Content::Media(_) => None,
        })
    }
}

/// A piece of a tool's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Content {
    /// Words.
    Text {
        /// The words.
        text: String,
    },
    /// A screenshot, a file.
    Media(Media),
}

/// A picture, a sound, a document: carried, never read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Media {
    /// What it is, as in `image/png`.
    pub mime: String,
    /// Where its bytes are.
    pub source: MediaSource,
    /// Width and height in pixels, where the sender told them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<(u32, u32)>,
}

/// Where a medium's bytes are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MediaSource {
    /// In the message, base64.
    Base64(String),
    /// Behind an address the provider fetches.
    Url(String),
    /// With the provider, under this id.
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
    /// Its place in the session; 0 until the session has given it one.
    #[serde(default)]
    pub seq: Seq,
    /// In which role it was said.
    pub role: Role,
    /// Who said it, where that is known beyond the role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<Author>,
    /// What was said.
    pub parts: Vec<Part>,
    /// Always shown word for word, however long the session gets.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// Shown while recent, never summarized, counted by no trigger.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip: bool,
    /// When it was said. Triggers on time, `every` and `idle`, count from here.
    #[serde(default)]
    pub at: Timestamp,
    /// The caller's own notes, carried untouched.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// What the dialect it came in said besides, so that it can be given back as it came: unknown fields, an
    /// unusual spelling. Dialects write and read it; nobody is shown it, and no token is counted for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<Box<Value>>,
}

impl Message {
    /// A message of these parts, with no flags set.
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

    /// The user says `text`.
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(Role::User, [Part::text(text)])
    }

    /// The agent says `text`.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::new(Role::Assistant, [Part::text(text)])
    }

    /// A standing order.
    pub fn system(text: impl Into<String>) -> Self {
        Self::new(Role::System, [Part::text(text)])
    }

    /// A tool answers the call `id` with `text`.
    pub fn tool(id: impl Into<CallId>, text: impl Into<String>) -> Self {
        Self::new(Role::Tool, [Part::result(id, text)])
    }

    /// Its tool calls, in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            Part::ToolCall(call) => Some(call),
            _ => None,
        })
    }

    /// Its tool results, in order.
    pub fn results(&self) -> impl Iterator<Item = &ToolResult> {
        self.parts.iter().filter_map(|part| match part {
            Part::ToolResult(result) => Some(result),
            _ => None,
        })
    }

    /// Refuses a message that cannot be right, whatever stands around it.
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

    /// The size of its parts, its author and what came with it on the wire in bytes, metadata not included.
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

    /// About how many bytes of memory it takes, for who holds many: its words and what holds them.
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

/// About how many bytes of memory a JSON value takes, which is more than it has written down: `1,` is a whole value.
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
        // Maps are found by and kept in order, so an entry has a place in two lists.
        let places = size_of::<String>().saturating_mul(2);
        places.saturating_add(name.len()).saturating_add(value_memory(value))
    };
    fields.iter().map(entry).fold(0, usize::saturating_add)
}

/// How large one message may be.
///
/// ```
/// let limits = epitome_core::message::Limits::default();
/// assert_eq!((limits.message, limits.metadata), (1 << 20, 64 << 10));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a message's parts.
    pub message: u64,
    /// Bytes of its metadata, as JSON.
    pub metadata: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { message: 1 << 20, metadata: 64 << 10 }
    }
}

/// Why a message was refused. All of these mean: mend the message, then send it again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// A part that this role never says.
    #[error("parts[{at}]: a {kind} part in a {role} message; allowed in {allowed} messages")]
    WrongRole {
        /// Which part.
        at: usize,
        /// What it is.
        kind: &'static str,
        /// Where it was found.
        role: Role,
        /// Where it may be.
        allowed: &'static str,
    },
    /// A name that must not be empty is.
    #[error("parts[{at}].{field}: is empty; it must name something")]
    Empty {
        /// Which part.
        at: usize,
        /// Which of its names.
        field: &'static str,
    },
    /// Nothing was said.
    #[error("parts: is empty; a message holds at least one part")]
    NoParts,
    /// An author without a name.
    #[error("author: is empty; name somebody, or leave it out")]
    NoAuthor,
    /// More bytes than allowed.
    #[error("{field}: {bytes} bytes; at most {limit} are allowed")]
    TooLarge {
        /// What is too large.
        field: &'static str,
        /// How large it is.
        bytes: u64,
        /// How large it may be.
        limit: u64,
    },
}
