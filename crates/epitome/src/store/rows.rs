//! What is kept: sessions, slots, summaries, messages, calls of models.
//!
//! Rows as values. Stores map them to their tables, the engine makes and reads them; neither has a row type of
//! the other's.

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

/// Which session: a name inside a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey {
    /// The tenant. Nothing crosses it.
    pub workspace: Arc<str>,
    /// The session's name there.
    pub session: Arc<str>,
}

impl SessionKey {
    /// The session of that name in that workspace.
    pub fn new(workspace: impl Into<Arc<str>>, session: impl Into<Arc<str>>) -> Self {
        Self { workspace: workspace.into(), session: session.into() }
    }
}

/// Where a session is, as far as contexts go: as long as this is the same, so is every context of it, but for how old
/// it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// The session's number: one that is made again under the same name is another.
    pub session: SessionId,
    /// Its last message.
    pub head: Seq,
    /// Counts up when a message's flags, a summary or the session's own row change.
    pub revision: u64,
    /// Counts up when its workspace's settings change.
    pub workspace: u64,
}

/// What is known of a session beside its messages.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionRow {
    /// Its number; 0 for one that is not stored yet.
    pub id: SessionId,
    /// By which name its tokens are counted. Fixed when it is created.
    pub encoding: String,
    /// Its head, turns, tokens and open calls.
    pub tracker: Tracker,
    /// The message that opened the turn under way; 0 before the first.
    pub opener: Seq,
    /// Where the newest call batch begins.
    pub batch_from: Seq,
    /// Whether a message of that batch is skipped, and so all of it.
    pub batch_skipped: bool,
    /// How many messages are skipped, by whole batches.
    pub skipped: u64,
    /// Its own settings, a partial document; empty when nothing was set.
    pub settings: String,
    /// The caller's notes on it.
    pub metadata: Map<String, Value>,
    /// What other APIs keep of it: one object per API, by its name.
    pub attributes: Map<String, Value>,
    /// When it came to be.
    pub created: Timestamp,
    /// When it was last written to.
    pub updated: Timestamp,
}

impl SessionRow {
    /// Whether a session became this one by nothing but what every message changes.
    pub(crate) fn only_grew_from(&self, before: &Self) -> bool {
        before.created == self.created
            && before.encoding == self.encoding
            && before.settings == self.settings
            && before.metadata == self.metadata
            && before.attributes == self.attributes
    }

    /// Whether remembering it takes little memory: for stores that do.
    pub(crate) fn takes_little(&self, workspace_settings: &str) -> bool {
        let notes = self.metadata.iter().chain(&self.attributes);
        let notes = notes.map(|(name, value)| name.len().saturating_add(value_memory(value)));
        notes.fold(self.settings.len().max(workspace_settings.len()), usize::saturating_add)
            <= MOST_REMEMBERED
    }
}

/// Sessions with longer settings and notes than this take much to remember.
const MOST_REMEMBERED: usize = 8 << 10;

/// Where a slot stands, and who works on it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SlotRow {
    /// Whose messages it covers.
    pub scope: Scope,
    /// The slot's name.
    pub name: String,
    /// Its cursor.
    pub state: SlotState,
    /// The summary that stands.
    pub active: Option<SummaryId>,
    /// Raised whenever somebody else takes the slot over. What was begun under a lower one is refused.
    pub fence: u64,
    /// How the work on it goes.
    pub work: Work,
}

/// How the work on a slot goes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Work {
    /// Since when something is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<Timestamp>,
    /// It is due, but no place to cut exists yet: not to be taken until a message brings one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub parked: bool,
    /// The next summary is written from the first message on, not from the one that stands.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub rebuild: bool,
    /// What whoever forced the next summary cares about most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub focus: Option<String>,
    /// Who works on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Until when it is theirs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// How often in a row it failed.
    pub attempts: u32,
    /// Since when it fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<Timestamp>,
    /// When it may be tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// When it may be taken again, though nothing failed: whoever took it had no worker left to wait for its model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aside: Option<Timestamp>,
    /// What failed last, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

impl SlotRow {
    /// A slot that has seen nothing yet.
    pub fn new(scope: Scope, name: impl Into<String>) -> Self {
        Self { scope, name: name.into(), ..Self::default() }
    }

    /// From when on a worker may take it: what stores find due slots by. `None` when nothing is to do.
    pub fn ready_at(&self) -> Option<Timestamp> {
        let due = match self.state.due {
            Some(_) if self.work.parked => return None,
            Some(_) => self.work.waiting_since.unwrap_or_default(),
            None => self.state.due_at?,
        };
        let later = [self.work.until, self.work.not_before, self.work.aside].into_iter().flatten();
        Some(later.fold(due, Timestamp::max))
    }

    /// Notes since when something is due, or that nothing is. Whoever changed the state calls it.
    pub fn mark(&mut self, now: Timestamp) {
        if self.state.due.is_none() {
            self.work.waiting_since = None;
            self.work.parked = false;
        } else if self.work.waiting_since.is_none() {
            self.work.waiting_since = Some(now);
        }
    }
}

/// A summary as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct SummaryRow {
    /// Its number; 0 for one that is not stored yet.
    pub id: SummaryId,
    /// Whose messages it stands for.
    pub scope: Scope,
    /// Which slot's it is.
    pub slot: String,
    /// It stands for its scope's messages up to this one.
    pub through: Seq,
    /// Whether it stands.
    pub state: SummaryState,
    /// The one that stood before it, and stands again when this one is undone.
    pub parent: Option<SummaryId>,
    /// Its text.
    pub text: String,
    /// What it can be rendered from in another size, or built upon, as [`Sources`] are written: read only
    /// when it is needed. Empty when there is nothing, when it was not asked for, or when the store dropped it, as
    /// it may once the one that followed was superseded too; then it is not `elastic` any more.
    pub sources: String,
    /// Everything else that is known of it.
    pub facts: Facts,
    /// When it was kept.
    pub created: Timestamp,
}

impl SummaryRow {
    /// What it was made of; nothing where that was dropped.
    pub fn sources(&self) -> Sources {
        serde_json::from_str(&self.sources).unwrap_or_default()
    }

    /// Whether it can be rendered in any size from what `local` picked.
    pub fn has_extracts(&self) -> bool {
        self.facts.elastic
    }
}

/// What a summary was made of.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sources {
    /// The pieces `local` picked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extracts: Option<Extracts>,
    /// The names found so far, where a model wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<Ledger>,
}

// fields: one document, stored as it is.
/// What is known of a summary.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// The first message that was read for it, beside the summary it was built on.
    pub from: Seq,
    /// The message at which it became due.
    pub firing: Seq,
    /// The summary it was built on, where there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub built_on: Option<SummaryId>,
    /// Who wrote it.
    pub model: String,
    /// Whether it only stands in for one that a failing model should have written.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stand_in: bool,
    /// Whether `local` wrote it, so that it can be rendered in any size.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub elastic: bool,
    /// The tokens of its text.
    pub tokens: Tokens,
    /// Its tokens as handed out, frame and overhead included.
    pub shown: Tokens,
    /// The tokens of what it replaced: the messages, and the summary before.
    pub replaced: Tokens,
    /// How many messages there were to see before it, a summary counting as one.
    pub original_count: u64,
    /// How many there are with it: those kept, and itself.
    pub compressed_count: u64,
    /// How many messages of its span are skipped.
    pub skipped: u64,
    /// What whoever asked for it cared about most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub focus: Option<String>,
    /// Names that were missing in what the model wrote, and were added.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<String>,
    /// What was sent for it, over all calls, as far as is known.
    pub input: Tokens,
    /// What came back, over all calls.
    pub output: Tokens,
    /// What that cost, in millionths; nothing where no price is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<i64>,
    /// How long it took to write, in milliseconds.
    pub millis: u64,
    /// What its model was asked, hashed; nothing where asking again costs nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
    /// The fence under which it was committed; 0 for one that was copied, or is from before that was written down.
    pub fence: u64,
}

/// A message to be kept: its shape, and its words as [`words`] writes them.
#[derive(Debug, Clone, PartialEq)]
pub struct NewMessage {
    /// Its shape. Place, role, flags and time are taken from here.
    pub outline: Outline,
    /// The message that opened its turn; 0 before the first.
    pub opener: Seq,
    /// Its words, as [`words`] writes them.
    pub body: String,
}

/// What of a message is kept as text.
#[derive(Serialize, Deserialize)]
struct Words<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    author: Option<Cow<'a, str>>,
    parts: Cow<'a, [Part]>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    metadata: Cow<'a, Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wire: Option<Cow<'a, Value>>,
}

/// What of a message is kept as text: all that its outline does not have.
pub fn words(message: &Message) -> Result<String, serde_json::Error> {
    serde_json::to_string(&Words {
        author: message.author.as_deref().map(Cow::Borrowed),
        parts: Cow::Borrowed(&message.parts),
        metadata: Cow::Borrowed(&message.metadata),
        wire: message.wire.as_deref().map(Cow::Borrowed),
    })
}

/// The message again, of its shape and its words.
pub fn message(outline: &Outline, body: &str) -> Result<Message, serde_json::Error> {
    let words: Words<'_> = serde_json::from_str(body)?;
    Ok(Message {
        seq: outline.seq,
        role: outline.role,
        author: words.author.map(Into::into),
        parts: words.parts.into_owned(),
        pinned: outline.pinned,
        skip: outline.skip,
        at: outline.at,
        metadata: words.metadata.into_owned(),
        wire: words.wire.map(|wire| Box::new(wire.into_owned())),
    })
}

/// A message's words with other notes of the caller's.
pub fn with_metadata(body: &str, metadata: &Map<String, Value>) -> Result<String, serde_json::Error> {
    let words: Words<'_> = serde_json::from_str(body)?;
    serde_json::to_string(&Words { metadata: Cow::Borrowed(metadata), ..words })
}

/// A call of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UsageRow {
    /// Whose.
    pub workspace: String,
    /// For which session, by its name.
    pub session: String,
    /// For whose messages; empty for the whole session.
    pub scope: String,
    /// For which slot.
    pub slot: String,
    /// Which model.
    pub model: String,
    /// `kept`, `unused` where the slot was lost meanwhile, `dropped` where nobody waited for its end, or else
    /// the name of what was wrong with it, or of how it failed.
    pub outcome: String,
    /// Tokens sent.
    pub input: Tokens,
    /// Of those, read from the provider's cache.
    pub cached: Tokens,
    /// Tokens that came back.
    pub output: Tokens,
    /// In millionths of the price table's money; nothing where no price is known.
    pub cost: Option<i64>,
    /// How long it took, in milliseconds.
    pub millis: u64,
    /// When it ended; left at 0, the moment it is recorded.
    pub at: Timestamp,
}

/// Calls that were added up.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UsageSum {
    /// For which session.
    pub session: String,
    /// For whose messages; empty for the whole session.
    pub scope: String,
    /// For which slot.
    pub slot: String,
    /// Which model.
    pub model: String,
    /// How they ended.
    pub outcome: String,
    /// How many.
    pub calls: u64,
    /// Tokens sent.
    pub input: Tokens,
    /// Of those, read from the provider's cache.
    pub cached: Tokens,
    /// Tokens that came back.
    pub output: Tokens,
    /// In millionths of the price table's money; nothing where no price was known for any of them.
    pub cost: Option<i64>,
    /// How long they took together, in milliseconds.
    pub millis: u64,
}

/// How many slots have something to do, each counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct QueueCounts {
    /// Slots that can be taken up now.
    pub due: u64,
    /// Slots whose summary is being written, by whichever engine.
    pub working: u64,
    /// Slots that failed, and are tried again later.
    pub waiting: u64,
    /// Slots that are due, but nothing can be cut yet.
    pub parked: u64,
    /// For how long the first of those that can be taken now has waited, in milliseconds by the store's clock. It
    /// grows where there are too few workers.
    pub oldest_millis: Option<u64>,
}

/// A slot with something to do.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueRow {
    /// The moment of asking.
    pub now: Timestamp,
    /// Whose.
    pub workspace: Arc<str>,
    /// Which session, by its name.
    pub session: Arc<str>,
    /// The slot.
    pub slot: SlotRow,
}
