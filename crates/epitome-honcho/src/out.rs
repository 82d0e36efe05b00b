//! Ours in their words.

use std::borrow::Cow;

use epitome::rules::message::{Content, Message, Part, Seq, Tokens};
use epitome::rules::tokens::{Counter, Encoding};
use epitome::store::SessionId;
use epitome::{AuthorRow, SessionInfo, WorkspaceInfo};
use quick_cache::sync::Cache;
use serde::Serialize;
use serde_json::{Map, Value};

use super::ids::{Ids, Mark};
use super::moment::Moment;

/// By which a message's `wire` says what came with it from their clients.
pub(super) const WIRE: &str = "honcho";

/// The microseconds of a message's time that ours do not tell.
pub(super) const MICROS: &str = "micros";

#[derive(Debug, Serialize)]
pub(super) struct WorkspaceOut<'a> {
    id: &'a str,
    metadata: &'a Map<String, Value>,
    configuration: &'a Map<String, Value>,
    created_at: String,
}

impl<'a> From<&'a WorkspaceInfo> for WorkspaceOut<'a> {
    fn from(info: &'a WorkspaceInfo) -> Self {
        Self {
            id: &info.name,
            metadata: &info.metadata,
            configuration: &info.configuration,
            created_at: Moment::from_millis(info.created.0).to_string(),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct PeerOut<'a> {
    id: &'a str,
    workspace_id: &'a str,
    created_at: String,
    metadata: &'a Map<String, Value>,
    configuration: Observed<'a>,
}

/// Their clients know nothing else of a peer, and refuse what they do not know.
#[derive(Debug, Serialize)]
struct Observed<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    observe_me: Option<&'a Value>,
}

impl<'a> PeerOut<'a> {
    pub(super) fn new(workspace: &'a str, author: &'a AuthorRow) -> Self {
        Self {
            id: &author.name,
            workspace_id: workspace,
            created_at: Moment::from_millis(author.created.0).to_string(),
            metadata: &author.metadata,
            configuration: Observed { observe_me: author.configuration.get("observe_me") },
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct SessionOut<'a> {
    id: &'a str,
    is_active: bool,
    workspace_id: &'a str,
    metadata: &'a Map<String, Value>,
    configuration: &'a Map<String, Value>,
    created_at: String,
}

impl<'a> SessionOut<'a> {
    pub(super) fn new(workspace: &'a str, info: &'a SessionInfo) -> Self {
        Self {
            id: &info.name,
            is_active: true,
            workspace_id: workspace,
            metadata: &info.metadata,
            configuration: &info.configuration,
            created_at: Moment::from_millis(info.created.0).to_string(),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct SummaryOut<'a> {
    pub(super) content: &'a str,
    pub(super) message_id: String,
    pub(super) summary_type: &'static str,
    pub(super) created_at: String,
    pub(super) token_count: Tokens,
}

/// What they call the summaries of our slots.
pub(super) fn summary_type(slot: &str) -> &'static str {
    match slot {
        LONG => "honcho_chat_summary_long",
        _ => "honcho_chat_summary_short",
    }
}

/// The slots that their summaries are.
pub(super) const SHORT: &str = "short";
pub(super) const LONG: &str = "long";

#[derive(Debug, Serialize)]
pub(super) struct MessageOut<'a> {
    pub(super) id: String,
    pub(super) content: Cow<'a, str>,
    pub(super) peer_id: &'a str,
    pub(super) session_id: &'a str,
    pub(super) metadata: &'a Map<String, Value>,
    pub(super) created_at: String,
    pub(super) workspace_id: &'a str,
    pub(super) token_count: Tokens,
}

impl MessageOut<'_> {
    /// The names a filter may ask for.
    pub(super) const FIELDS: &'static [&'static str] =
        &["id", "content", "peer_id", "session_id", "workspace_id", "metadata", "created_at", "token_count"];

    pub(super) fn field(&self, name: &str) -> Option<Cow<'_, Value>> {
        Some(Cow::Owned(match name {
            "id" => self.id.as_str().into(),
            "content" => self.content.as_ref().into(),
            "peer_id" => self.peer_id.into(),
            "session_id" => self.session_id.into(),
            "workspace_id" => self.workspace_id.into(),
            "metadata" => Value::Object(self.metadata.clone()),
            "created_at" => self.created_at.as_str().into(),
            "token_count" => self.token_count.into(),
            _ => return None,
        }))
    }
}

/// Puts the messages of one session into their words.
pub(super) struct Scribe<'a> {
    workspace: &'a str,
    session: &'a str,
    number: SessionId,
    mark: Mark,
    counts: &'a Counts,
    counter: Counter,
}

impl<'a> Scribe<'a> {
    pub(super) fn new(
        (ids, counts): (&Ids, &'a Counts),
        (workspace, session): (&'a str, &'a str),
        number: SessionId,
        encoding: &str,
    ) -> Self {
        let counter = Counter::new(encoding.parse::<Encoding>().unwrap_or_default());
        Self { workspace, session, number, mark: ids.mark(number), counts, counter }
    }

    /// A message's name.
    pub(super) fn id(&self, seq: Seq) -> String {
        self.mark.message(seq)
    }

    pub(super) fn message<'m>(&self, message: &'m Message) -> MessageOut<'m>
    where
        'a: 'm,
    {
        let content = content(message);
        let token_count = self.counts.of((self.number, message.seq), &content, &self.counter);
        MessageOut {
            id: self.id(message.seq),
            peer_id: speaker(message),
            session_id: self.session,
            metadata: &message.metadata,
            created_at: moment(message).to_string(),
            workspace_id: self.workspace,
            token_count,
            content,
        }
    }
}

/// Who said it: their messages all have somebody.
fn speaker(message: &Message) -> &str {
    message.author.as_deref().filter(|author| !author.is_empty()).unwrap_or(message.role.name())
}

/// When it was said, to the microsecond where that is known.
fn moment(message: &Message) -> Moment {
    let micros = message.wire.as_deref().and_then(|wire| wire.get(WIRE)?.get(MICROS)?.as_i64());
    Moment(Moment::from_millis(message.at.0).0.saturating_add(micros.unwrap_or(0)))
}

/// What was said, as text: calls and results of tools as they would be told.
fn content(message: &Message) -> Cow<'_, str> {
    if let [Part::Text { text }] = message.parts.as_slice() {
        return Cow::Borrowed(text);
    }
    let mut told: Vec<Cow<'_, str>> = Vec::new();
    for part in &message.parts {
        match part {
            Part::Text { text } => told.push(Cow::Borrowed(text)),
            Part::Thinking { .. } => {}
            Part::ToolCall(call) => told.push(Cow::Owned(format!("{}({})", call.name, call.arguments))),
            Part::ToolResult(result) => told.extend(result.content.iter().map(|content| match content {
                Content::Text { text } => Cow::Borrowed(text.as_str()),
                Content::Media(media) => Cow::Owned(format!("[{}]", media.mime)),
            })),
            Part::Media(media) => told.push(Cow::Owned(format!("[{}]", media.mime))),
        }
    }
    Cow::Owned(told.join("\n"))
}

/// How many tokens messages have by themselves: they are told with each message each time, and never change. A message
/// of which only a part is shown is known by its length.
pub(super) struct Counts(Cache<(SessionId, Seq), (usize, Tokens)>);

/// So many are remembered.
const MOST_COUNTS: usize = 1 << 16;

impl Default for Counts {
    fn default() -> Self {
        Self(Cache::new(MOST_COUNTS))
    }
}

impl Counts {
    fn of(&self, message: (SessionId, Seq), content: &str, counter: &Counter) -> Tokens {
        if let Some((_, tokens)) = self.0.get(&message).filter(|(length, _)| *length == content.len()) {
            return tokens;
        }
        let tokens = counter.text(content);
        self.0.insert(message, (content.len(), tokens));
        tokens
    }
}
