//! Row types: sessions, slots, summaries, messages, model calls.
//!
//! Stores write rows of these types to tables, and read them from there. The engine creates and uses the same types.

use std::borrow::Cow;
use std::sync::Arc;

use epitome_core::ledger::Ledger;
use epitome_core::local::Extracts;
use epitome_core::message::{Message, Part, Seq, Timestamp, Tokens, value_memory};
use epitome_core::outline::Outline;
use epitome_core::slot::{Scope, SlotState};
use epitome_core::track::Tracker;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use crate::ids::{SessionId, SummaryId, SummaryState};

/// Identifies a session by its name and workspace.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey {
    /// The tenant. Data is never shared between workspaces.
    pub workspace: Arc<str>,
    /// The session's name in the workspace.
    pub session: Arc<str>,
}

impl SessionKey {
    /// Creates a key from a workspace and a session name.
    pub fn new(workspace: impl Into<Arc<str>>, session: impl Into<Arc<str>>) -> Self {
        Self { workspace: workspace.into(), session: session.into() }
    }
}

/// The version of a session's contexts. While the stamp is unchanged, every context of the session is unchanged. Only
/// the ages of messages that a context shows may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// The session's id. A session that is deleted and created again under the same name has a new id.
    pub session: SessionId,
    /// The session's last message.
    pub head: Seq,
    /// Incremented when the session's contexts may have changed for another reason than new messages, such as a new
    /// summary or a changed flag.
    pub revision: u64,
    /// Incremented when the workspace's row changes, for example its settings.
    pub workspace: u64,
}

/// A stored session, without its messages.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionRow {
    /// The session's id; 0 for a session that is not stored yet.
    pub id: SessionId,
    /// The name of the token encoding. It is fixed when the session is created.
    pub encoding: String,
    /// The session's last message, turns, tokens and open calls.
    pub tracker: Tracker,
    /// The message that opened the current turn; 0 before the first turn.
    pub opener: Seq,
    /// The first message of the newest call batch.
    pub batch_from: Seq,
    /// Whether the newest call batch is skipped, because one of its messages is skipped.
    pub batch_skipped: bool,
    /// Number of messages in skipped call batches.
    pub skipped: u64,
    /// The session's own settings, a partial JSON document; empty if nothing is set.
    pub settings: String,
    /// The caller's metadata.
    pub metadata: Map<String, Value>,
    /// Data of other APIs: one object per API, keyed by the API's name.
    pub attributes: Map<String, Value>,
    /// When the session was created.
    pub created: Timestamp,
    /// When the session was last written.
    pub updated: Timestamp,
}

impl SessionRow {
    /// Whether this row differs from `before` only in columns that change with every message.
    pub(crate) fn only_grew_from(&self, before: &Self) -> bool {
        before.created == self.created
            && before.encoding == self.encoding
            && before.settings == self.settings
            && before.metadata == self.metadata
            && before.attributes == self.attributes
    }

    /// Whether the row is small enough for a store to cache it.
    pub(crate) fn is_cacheable(&self, workspace_settings: &str) -> bool {
        let notes = self.metadata.iter().chain(&self.attributes);
        let notes = notes.map(|(name, value)| name.len().saturating_add(value_memory(value)));
        notes.fold(self.settings.len().max(workspace_settings.len()), usize::saturating_add)
            <= MAX_CACHED_BYTES
    }
}

/// Maximum size in bytes of a session's settings, metadata and attributes for the row to be cached: 8 KiB.
const MAX_CACHED_BYTES: usize = 8 << 10;

/// A stored slot: its state, and the worker that has leased it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SlotRow {
    /// The scope whose messages the slot covers.
    pub scope: Scope,
    /// The slot's name.
    pub name: String,
    /// The slot's coverage, its trigger events and its counters.
    pub state: SlotState,
    /// The current summary; `None` if there is none.
    pub active: Option<SummaryId>,
    /// The fencing token. Each lease increments it. Writes of a worker with a lower token are rejected.
    pub fence: u64,
    /// The state of the work on the slot.
    pub work: SlotWork,
}

/// The state of the work on a slot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlotWork {
    /// When the slot became due; `None` if it is not due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<Timestamp>,
    /// Whether the slot is due but cannot be summarized, because the log cannot be cut anywhere yet. The slot is not
    /// leased until a new message allows a cut.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub parked: bool,
    /// Whether the next summary is rebuilt from the first message, instead of being built on the current summary.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub rebuild: bool,
    /// The focus that the caller requested for the next summary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub focus: Option<String>,
    /// The worker that has leased the slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// When the lease expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Number of consecutive failures.
    pub attempts: u32,
    /// When the first of the consecutive failures happened; `None` if there is no failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<Timestamp>,
    /// Time of the next retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// Time of the next attempt if a worker gave the slot back because too many workers were waiting for the slot's
    /// model. This does not count as a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aside: Option<Timestamp>,
    /// The last error message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

impl SlotRow {
    /// Creates a slot that has not counted any message yet.
    pub fn new(scope: Scope, name: impl Into<String>) -> Self {
        Self { scope, name: name.into(), ..Self::default() }
    }

    /// Returns the time from which a worker may lease the slot; `None` if the slot has no work or is parked. Stores
    /// find ready slots by this time.
    pub fn ready_at(&self) -> Option<Timestamp> {
        let due = match self.state.due {
            Some(_) if self.work.parked => return None,
            Some(_) => self.work.waiting_since.unwrap_or_default(),
            None => self.state.due_at?,
        };
        let later = [self.work.until, self.work.not_before, self.work.aside].into_iter().flatten();
        Some(later.fold(due, Timestamp::max))
    }

    /// Updates `work` after `state` changed. If the slot has just become due, sets `waiting_since`. If the slot is not
    /// due, clears `waiting_since` and `parked`.
    pub fn update_waiting_since(&mut self, now: Timestamp) {
        if self.state.due.is_none() {
            self.work.waiting_since = None;
            self.work.parked = false;
        } else if self.work.waiting_since.is_none() {
            self.work.waiting_since = Some(now);
        }
    }
}

/// A stored summary.
#[derive(Debug, Clone, PartialEq)]
pub struct SummaryRow {
    /// The summary's id; 0 for a summary that is not stored yet.
    pub id: SummaryId,
    /// The scope whose messages the summary covers.
    pub scope: Scope,
    /// The slot's name.
    pub slot: String,
    /// The last message that the summary covers. The summary also covers all earlier messages of its scope.
    pub through: Seq,
    /// Whether the summary is current, superseded or undone.
    pub state: SummaryState,
    /// The id of the summary before this one. If this summary is undone, the summary before it becomes current again.
    pub parent: Option<SummaryId>,
    /// The summary's text.
    pub text: String,
    /// The serialized [`Sources`], which are needed to render the summary in another size or to build the next summary.
    /// Empty if there are no sources, if they were not requested, or if the store deleted them. The store deletes the
    /// sources when the slot's next summary is superseded too. From then on, this summary is not `elastic`.
    pub sources: String,
    /// All other properties.
    pub facts: Facts,
    /// When the summary was stored.
    pub created: Timestamp,
}

impl SummaryRow {
    /// Parses the sources. Returns empty sources if they were deleted.
    pub fn sources(&self) -> Sources {
        serde_json::from_str(&self.sources).unwrap_or_default()
    }

    /// Whether the summary can be rendered in any size, from the extracts that `local` selected.
    pub fn has_extracts(&self) -> bool {
        self.facts.elastic
    }
}

/// The sources of a summary.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sources {
    /// The extracts that `local` selected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extracts: Option<Extracts>,
    /// The names found so far, if a model wrote the summary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<Ledger>,
}

// fields: one document, stored as it is.
/// Properties of a summary, stored as one JSON document.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// The first message that was read for the summary. If `built_on` is set, that summary was read too.
    pub from: Seq,
    /// The message at which the slot became due.
    pub firing: Seq,
    /// The summary that this one was built on, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub built_on: Option<SummaryId>,
    /// The model that wrote the summary.
    pub model: String,
    /// Whether this is a fallback summary, written by `local` because the model failed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stand_in: bool,
    /// Whether the summary can be rendered in any size, because `local` wrote it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub elastic: bool,
    /// Size of the summary's text in tokens.
    pub tokens: Tokens,
    /// Size of the summary as it appears in a context, in tokens. Its frame and the message overhead are included.
    pub shown: Tokens,
    /// Size in tokens of the messages and the previous summary that this summary replaced.
    pub replaced: Tokens,
    /// Number of visible messages before this summary was stored. The previous summary counts as one message.
    pub original_count: u64,
    /// Number of visible messages after this summary was stored: the messages that it does not cover, and the summary
    /// itself as one message.
    pub compressed_count: u64,
    /// Number of skipped messages in the summarized range.
    pub skipped: u64,
    /// The focus that the caller requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub focus: Option<String>,
    /// Names that were added to the summary because the model's text did not contain them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<String>,
    /// Input tokens of all model calls for this summary, as far as providers reported them.
    pub input: Tokens,
    /// Output tokens of all model calls for this summary.
    pub output: Tokens,
    /// Cost of all model calls for this summary, in millionths of the currency unit; `None` if the price is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<i64>,
    /// Duration of all model calls for this summary, in milliseconds.
    pub millis: u64,
    /// The hash of the model request; `None` if repeating the request would cost nothing.
    #[serde(rename = "asked", skip_serializing_if = "Option::is_none")]
    pub request_hash: Option<String>,
    /// The fencing token under which the summary was committed; 0 if it was copied, or if an older release wrote it.
    pub fence: u64,
}

/// A message to store: its outline, and its content as serialized by [`content_json`].
#[derive(Debug, Clone, PartialEq)]
pub struct NewMessage {
    /// The outline. It provides the position, role, flags and time.
    pub outline: Outline,
    /// The message that opened this message's turn; 0 before the first turn.
    pub opener: Seq,
    /// The content, as serialized by [`content_json`].
    pub body: String,
}

/// The part of a message that is stored as JSON.
#[derive(Serialize, Deserialize)]
struct StoredContent<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    author: Option<Cow<'a, str>>,
    parts: Cow<'a, [Part]>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    metadata: Cow<'a, Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wire: Option<Cow<'a, Value>>,
}

/// Serializes a message's content: everything that its outline does not contain.
pub fn content_json(message: &Message) -> Result<String, serde_json::Error> {
    serde_json::to_string(&StoredContent {
        author: message.author.as_deref().map(Cow::Borrowed),
        parts: Cow::Borrowed(&message.parts),
        metadata: Cow::Borrowed(&message.metadata),
        wire: message.wire.as_deref().map(Cow::Borrowed),
    })
}

/// Restores a message from its outline and its serialized content.
pub fn restore_message(outline: &Outline, body: &str) -> Result<Message, serde_json::Error> {
    let content: StoredContent<'_> = serde_json::from_str(body)?;
    Ok(Message {
        seq: outline.seq,
        role: outline.role,
        author: content.author.map(Into::into),
        parts: content.parts.into_owned(),
        pinned: outline.pinned,
        skip: outline.skip,
        at: outline.at,
        metadata: content.metadata.into_owned(),
        wire: content.wire.map(|wire| Box::new(wire.into_owned())),
    })
}

/// Returns a message's serialized content with its metadata replaced.
pub fn replace_metadata(body: &str, metadata: &Map<String, Value>) -> Result<String, serde_json::Error> {
    let content: StoredContent<'_> = serde_json::from_str(body)?;
    serde_json::to_string(&StoredContent { metadata: Cow::Borrowed(metadata), ..content })
}

/// A recorded model call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UsageRow {
    /// The workspace.
    pub workspace: String,
    /// The session's name.
    pub session: String,
    /// The author of the slot's scope; empty for the whole session.
    pub scope: String,
    /// The slot's name.
    pub slot: String,
    /// The model's name.
    pub model: String,
    /// How the call ended. `kept`: the text was stored. `unused`: the text was valid but was not stored, for example
    /// after a lost lease. `dropped`: the call was abandoned before it ended. Otherwise this is the name of the fault
    /// in the text, or of the failure.
    pub outcome: String,
    /// Input tokens.
    pub input: Tokens,
    /// Input tokens read from the provider's cache.
    pub cached: Tokens,
    /// Output tokens.
    pub output: Tokens,
    /// Cost in millionths of the price table's currency; `None` if the price is unknown.
    pub cost: Option<i64>,
    /// Duration in milliseconds.
    pub millis: u64,
    /// When the call ended. If this is 0, the store uses the time at which it records the call.
    pub at: Timestamp,
}

/// A sum over recorded model calls.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UsageSum {
    /// The session's name; empty if the sums are not per session.
    pub session: String,
    /// The author of the slot's scope; empty for the whole session.
    pub scope: String,
    /// The slot's name.
    pub slot: String,
    /// The model's name.
    pub model: String,
    /// How the calls ended: see [`UsageRow::outcome`].
    pub outcome: String,
    /// Number of calls.
    pub calls: u64,
    /// Input tokens.
    pub input: Tokens,
    /// Input tokens read from the provider's cache.
    pub cached: Tokens,
    /// Output tokens.
    pub output: Tokens,
    /// Cost in millionths of the price table's currency; `None` if none of the calls had a price.
    pub cost: Option<i64>,
    /// Total duration of the calls in milliseconds.
    pub millis: u64,
}

/// Numbers of slots that have work. Each slot is counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct QueueCounts {
    /// Slots that can be leased now.
    pub due: u64,
    /// Slots whose next summary a worker is writing now.
    pub working: u64,
    /// Slots that failed and wait for their next retry.
    pub waiting: u64,
    /// Slots that are due, but whose log cannot be cut anywhere yet.
    pub parked: u64,
    /// Waiting time of the longest-waiting slot that can be leased now, in milliseconds of the store's clock. `None` if
    /// no slot can be leased. This time grows if there are too few workers.
    pub oldest_millis: Option<u64>,
}

/// A slot that has work.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueRow {
    /// The time of the query.
    pub now: Timestamp,
    /// The workspace.
    pub workspace: Arc<str>,
    /// The session's name.
    pub session: Arc<str>,
    /// The slot.
    pub slot: SlotRow,
}
