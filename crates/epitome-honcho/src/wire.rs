//! Converts Epitome's workspaces, peers, sessions, messages and summaries into Honcho's format.

use std::borrow::Cow;
use std::sync::Arc;

use epitome::rules::message::{Content, Message, Part, Seq, Timestamp, Tokens};
use epitome::rules::tokens::Counter;
use epitome::store::SessionId;
use epitome::{AuthorRow, SessionInfo, WorkspaceRow};
use quick_cache::sync::Cache;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::configuration::{LONG, stored};
use super::filter::{Filter, FilterFields};
use super::ids::IdPrefix;
use super::iso_time::IsoTime;

/// The key, in a message's `wire` data, under which data from Honcho's clients is stored.
pub(super) const WIRE_KEY: &str = "honcho";

/// The key of the microseconds of a message's time. They are stored separately, because Epitome's times are in
/// milliseconds.
pub(super) const MICROS_KEY: &str = "micros";

fn created(at: Timestamp) -> String {
    IsoTime::from_millis(at.0).to_string()
}

pub(super) fn workspace(row: &WorkspaceRow) -> Value {
    json!({
        "id": row.name,
        "metadata": row.metadata,
        "configuration": stored(&row.attributes),
        "created_at": created(row.created),
    })
}

/// Converts a peer. The converted configuration contains only `observe_me`, because Honcho's clients refuse other
/// fields.
pub(super) fn peer(workspace: &str, author: &AuthorRow) -> Value {
    let AuthorRow { name, metadata, attributes, created: at } = author;
    let mut configuration = stored(attributes).into_owned();
    configuration.retain(|name, _| name == "observe_me");
    json!({
        "id": name,
        "workspace_id": workspace,
        "created_at": created(*at),
        "metadata": metadata,
        "configuration": configuration,
    })
}

pub(super) fn session(workspace: &str, info: &SessionInfo) -> Value {
    json!({
        "id": info.name,
        "is_active": true,
        "workspace_id": workspace,
        "metadata": info.metadata,
        "configuration": stored(&info.attributes),
        "created_at": created(info.created),
    })
}

/// Converts a summary. `slot` determines Honcho's type of the summary.
pub(super) fn summary(text: &str, through: &str, slot: &str, created: IsoTime, tokens: Tokens) -> Value {
    let kind = if slot == LONG { "honcho_chat_summary_long" } else { "honcho_chat_summary_short" };
    json!({
        "content": text,
        "message_id": through,
        "summary_type": kind,
        "created_at": created.to_second(),
        "token_count": tokens,
    })
}

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

/// The fields of messages that a filter may use.
pub(super) const MESSAGE_FIELDS: FilterFields = FilterFields {
    allowed: &[
        "id",
        "content",
        "peer_id",
        "session_id",
        "workspace_id",
        "metadata",
        "created_at",
        "token_count",
    ],
    id_aliases: &[],
};

/// Converts the messages of one session into Honcho's format.
pub(super) struct MessageRenderer {
    pub(super) workspace: Arc<str>,
    pub(super) session: Arc<str>,
    pub(super) session_id: SessionId,
    pub(super) ids: IdPrefix,
    pub(super) token_counts: Arc<TokenCache>,
    pub(super) counter: Counter,
}

impl MessageRenderer {
    /// Returns a message's id.
    pub(super) fn id(&self, seq: Seq) -> String {
        self.ids.message(seq)
    }

    pub(super) fn message<'m>(&'m self, message: &'m Message) -> MessageOut<'m> {
        let content = content(message);
        let key = (self.session_id, message.seq, content.len());
        let token_count = self.token_counts.get(&key).unwrap_or_else(|| {
            let tokens = self.counter.text(&content);
            self.token_counts.insert(key, tokens);
            tokens
        });
        MessageOut {
            id: self.id(message.seq),
            peer_id: author(message),
            session_id: &self.session,
            metadata: &message.metadata,
            created_at: sent_at(message).to_string(),
            workspace_id: &self.workspace,
            token_count,
            content,
        }
    }

    /// Returns whether a message matches the filter.
    pub(super) fn matches(&self, message: &Message, filter: &Filter) -> bool {
        filter.is_empty()
            || serde_json::to_value(self.message(message)).is_ok_and(|message| filter.matches(&message))
    }
}

/// Returns the author of a message. For a message without an author, returns the role, because every message of Honcho
/// has an author.
fn author(message: &Message) -> &str {
    message.author.as_deref().filter(|author| !author.is_empty()).unwrap_or(message.role.name())
}

/// Returns the time of a message. If the microseconds are stored too, the time includes them.
fn sent_at(message: &Message) -> IsoTime {
    let micros = message.wire.as_deref().and_then(|wire| wire.get(WIRE_KEY)?.get(MICROS_KEY)?.as_i64());
    IsoTime(IsoTime::from_millis(message.at.0).0.saturating_add(micros.unwrap_or(0)))
}

/// Returns a message as text. The text includes tool calls and their results.
fn content(message: &Message) -> Cow<'_, str> {
    if let [Part::Text { text }] = message.parts.as_slice() {
        return Cow::Borrowed(text);
    }
    let mut texts: Vec<Cow<'_, str>> = Vec::new();
    for part in &message.parts {
        match part {
            Part::Text { text } => texts.push(Cow::Borrowed(text)),
            Part::Thinking { .. } => {}
            Part::ToolCall(call) => texts.push(Cow::Owned(format!("{}({})", call.name, call.arguments))),
            Part::ToolResult(result) => texts.extend(result.content.iter().map(|content| match content {
                Content::Text { text } => Cow::Borrowed(text.as_str()),
                Content::Media(media) => Cow::Owned(format!("[{}]", media.mime)),
            })),
            Part::Media(media) => texts.push(Cow::Owned(format!("[{}]", media.mime))),
        }
    }
    Cow::Owned(texts.join("\n"))
}

/// A cache of the token counts of messages. Every response with messages contains token counts, and a count never
/// changes. The key contains the length of the message's text in bytes, because a response may contain only a part of a
/// message.
pub(super) type TokenCache = Cache<(SessionId, Seq, usize), Tokens>;

/// Maximum number of cached token counts.
pub(super) const TOKEN_CACHE_ENTRIES: usize = 1 << 16;
