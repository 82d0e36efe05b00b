//! Where sessions are kept.
//!
//! A [`Store`] owns transactions and nothing else. Everything that is written to a session goes through one
//! door, [`Store::change`]: the store reads where the session stands, hands that to a function, and writes
//! what the function decided, all of it or nothing. So the rules live outside, are the same for every store,
//! and cannot be raced: a message and the firing it causes are one write, and so are a summary and the
//! cursor it moves.
//!
//! Messages are never altered once they are in (their two flags excepted), so they may be read at any
//! time, outside of any transaction, and still belong to the state that named them.
//!
//! Nothing here knows of models, prompts or policy.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use epitome_core::ledger::Ledger;
use epitome_core::local::Extracts;
use epitome_core::message::{Message, Seq, Span, Timestamp, Tokens};
use epitome_core::outline::{Cut, Outline};
use epitome_core::slot::{Scope, SlotState};
use epitome_core::track::Tracker;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::search::Query;

mod sqlite;

pub use sqlite::{Sqlite, SqliteOptions, WriteStage};

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

/// A session's number in its store. Never given twice.
pub type SessionId = i64;

/// A summary's number in its store. Never given twice; a later one is larger.
pub type SummaryId = i64;

/// What is known of a session beside its messages.
#[derive(Debug, Clone, PartialEq)]
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
    /// When it came to be.
    pub created: Timestamp,
    /// When it was last written to.
    pub updated: Timestamp,
}

/// Where a slot stands, and who works on it.
#[derive(Debug, Clone, PartialEq)]
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
    /// What failed last, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

impl SlotRow {
    /// A slot that has seen nothing yet.
    #[must_use]
    pub fn new(scope: Scope, name: impl Into<String>) -> Self {
        Self {
            scope,
            name: name.into(),
            state: SlotState::default(),
            active: None,
            fence: 0,
            work: Work::default(),
        }
    }

    /// From when on a worker may take it: what stores find due slots by. `None` when nothing is to do.
    #[must_use]
    pub fn ready_at(&self) -> Option<Timestamp> {
        let due = match self.state.due {
            Some(_) if self.work.parked => return None,
            Some(_) => self.work.waiting_since.unwrap_or_default(),
            None => self.state.due_at?,
        };
        let held = self.work.until.unwrap_or(due);
        Some(due.max(held).max(self.work.not_before.unwrap_or(due)))
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

/// Whether a summary stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SummaryState {
    /// It is its slot's.
    Standing,
    /// A later one stands for it.
    Superseded,
    /// It was taken back. It is never shown again, nor built upon.
    Undone,
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
    /// when it is needed. Empty when there is nothing, or the store dropped it, as it may once the one that
    /// followed was superseded too.
    pub sources: String,
    /// Everything else that is known of it.
    pub facts: Facts,
    /// When it was kept.
    pub created: Timestamp,
}

impl SummaryRow {
    /// What it was made of; nothing where that was dropped.
    #[must_use]
    pub fn sources(&self) -> Sources {
        serde_json::from_str(&self.sources).unwrap_or_default()
    }

    /// Whether it can be rendered in any size from what `local` picked.
    #[must_use]
    pub fn has_extracts(&self) -> bool {
        self.facts.elastic && !self.sources.is_empty()
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
}

/// A message to be kept: its shape, and its words as [`words`] writes them.
#[derive(Debug, Clone)]
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
    author: Option<std::borrow::Cow<'a, str>>,
    parts: std::borrow::Cow<'a, [epitome_core::message::Part]>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    metadata: std::borrow::Cow<'a, Map<String, Value>>,
}

/// What of a message is kept as text: all that its outline does not have.
pub fn words(message: &Message) -> Result<String, serde_json::Error> {
    use std::borrow::Cow;
    serde_json::to_string(&Words {
        author: message.author.as_deref().map(Cow::Borrowed),
        parts: Cow::Borrowed(&message.parts),
        metadata: Cow::Borrowed(&message.metadata),
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
    })
}

/// An append that was done before under the same key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repeat {
    /// The hash of what was appended.
    pub body: Vec<u8>,
    /// The messages it became.
    pub span: Span,
}

/// What else is to be read before it is decided.
#[derive(Debug, Clone, Default)]
pub struct Load {
    /// The append done before under this key.
    pub idempotency: Option<String>,
    /// Shapes of messages.
    pub log: Log,
    /// These summaries.
    pub summaries: Vec<SummaryId>,
}

/// Which shapes are to be read.
#[derive(Debug, Clone, Default)]
pub enum Log {
    /// None.
    #[default]
    None,
    /// Of a slot with something due: its scope's messages after the first pending firing, up to and
    /// including the newest firing. At most 100,000.
    Pending(Scope, String),
    /// The call batch a message stands in, by the whole log's cuts: all messages that stay with it.
    Batch(Seq),
}

/// Where a session stands: what a decision is made from.
#[derive(Debug, Clone)]
pub struct Standing {
    /// The moment, by the store's clock.
    pub now: Timestamp,
    /// The workspace's settings, a partial document; empty when nothing was set.
    pub workspace_settings: String,
    /// The session, where it exists.
    pub session: Option<SessionRow>,
    /// Its slots.
    pub slots: Vec<SlotRow>,
    /// What [`Load::idempotency`] found.
    pub repeat: Option<Repeat>,
    /// What [`Load::log`] asked for.
    pub log: Vec<Outline>,
    /// What [`Load::summaries`] asked for, as far as they are this session's.
    pub summaries: Vec<SummaryRow>,
}

impl Standing {
    /// The slot of that scope and name.
    #[must_use]
    pub fn slot(&self, scope: &Scope, name: &str) -> Option<&SlotRow> {
        self.slots.iter().find(|row| row.scope == *scope && row.name == name)
    }
}

/// What is to be written, all of it or nothing.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// The session's row as it shall be. Needed to create one; `id` is given by the store.
    pub session: Option<SessionRow>,
    /// Messages to be added, in order.
    pub messages: Vec<NewMessage>,
    /// Slots as they shall be.
    pub slots: Vec<SlotRow>,
    /// A summary to be kept. Its slot, which must be among `slots`, is made to point to it.
    pub summary: Option<SummaryRow>,
    /// Summaries whose state changes.
    pub states: Vec<(SummaryId, SummaryState)>,
    /// Messages whose flags change: seq, pinned, skip.
    pub flags: Vec<(Seq, bool, bool)>,
    /// An append to be remembered by its key.
    pub idempotency: Option<(String, Repeat)>,
    /// Calls of models to be recorded.
    pub usage: Vec<UsageRow>,
}

/// Decides, from where a session stands, what is to be written; `None` to write nothing. It must depend
/// on nothing else: a store may ask again when another writer came between.
pub type Decide = Box<dyn Fn(&Standing) -> Option<Changes> + Send + Sync>;

/// A worker's hold on a slot.
#[derive(Debug, Clone, PartialEq)]
pub struct Lease {
    /// Which session.
    pub key: SessionKey,
    /// The session's number.
    pub id: SessionId,
    /// The slot as it was taken, with this worker's name and fence in it.
    pub slot: SlotRow,
    /// The moment it was taken.
    pub now: Timestamp,
}

/// What a worker is willing to take.
#[derive(Debug, Clone)]
pub struct Want {
    /// The worker's name.
    pub owner: String,
    /// For how long.
    pub hold: Duration,
    /// Only slots of this session.
    pub session: Option<SessionKey>,
}

/// How far a context may look, once it is known whose it is.
#[derive(Debug, Clone, Copy)]
pub struct Reach {
    /// The budget: the newest messages are read until they are more than this.
    pub tokens: Tokens,
    /// Whether messages that a summary covers may be shown too. Otherwise none is read from before
    /// where the oldest standing summary's coverage ends, nor are the words of any that the newest one
    /// covers.
    pub deep: bool,
}

/// Says how far a context looks, from where the session stands (without its slots).
pub type Look = Box<dyn FnOnce(&Standing) -> Option<Reach> + Send>;

/// Which part of a session a context is made from.
#[derive(Debug, Clone)]
pub struct View {
    /// Whose messages.
    pub scope: Scope,
    /// As if the log ended here.
    pub as_of: Option<Seq>,
}

/// One consistent state of a session, as much as a context needs: see `epitome_core::context::Scene`.
#[derive(Debug, Clone)]
pub struct Window {
    /// The session and its workspace's settings; slots, log and the like are left empty.
    pub standing: Standing,
    /// The system and developer messages at the head.
    pub leading: Vec<Outline>,
    /// Pinned messages, whole batches, oldest first, neither leading nor strays.
    pub pinned: Vec<Outline>,
    /// The message that opened the turn `tail` starts in, where it lies before it.
    pub opener: Option<Outline>,
    /// The newest messages, oldest first: enough that no earlier one could fit the budget beside them.
    pub tail: Vec<Outline>,
    /// All the scope's messages from this one on are in `tail`.
    pub from: Seq,
    /// What a cut after the last of them parts.
    pub end: Cut,
    /// How many calls are open there.
    pub open_calls: u32,
    /// How many messages are skipped, by whole batches.
    pub skipped: u64,
    /// One a slot: the one that stands, or with `as_of` the one that reaches furthest up to there.
    pub summaries: Vec<SummaryRow>,
    /// The words of `leading`, `pinned`, `opener` and those of `tail` likely to be shown, by seq.
    pub words: Vec<Message>,
}

/// What lies ahead of a slot's coverage.
#[derive(Debug, Clone)]
pub struct Ahead {
    /// The scope's messages, oldest first.
    pub log: Vec<Outline>,
    /// What a cut after the last of them parts; `None` when more messages follow.
    pub end: Option<Cut>,
}

/// Which messages are to be read.
#[derive(Debug, Clone)]
pub enum Pick {
    /// These, ascending.
    Seqs(Vec<Seq>),
    /// A page: the scope's messages after (or, in reverse, before) a place, at most so many.
    Page {
        /// Whose messages.
        scope: Scope,
        /// Nothing outside of this.
        within: Span,
        /// Newest first.
        reverse: bool,
        /// At most so many.
        limit: usize,
    },
}

/// Which summaries are to be read.
#[derive(Debug, Clone)]
pub enum PickSummaries {
    /// Those that stand.
    Standing,
    /// These.
    Ids(Vec<SummaryId>),
    /// All, undone ones too, newest first, of one slot or of all; those before this id, at most so many.
    History {
        /// Only this slot's.
        slot: Option<(Scope, String)>,
        /// Only those with a smaller id.
        before: Option<SummaryId>,
        /// At most so many.
        limit: usize,
    },
}

/// A message found by its words.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// The session's name.
    pub session: Arc<str>,
    /// The session's number.
    pub id: SessionId,
    /// The message.
    pub message: Message,
}

/// Where a search goes on: after this hit.
pub type HitCursor = (SessionId, Seq);

/// What is searched.
#[derive(Debug, Clone)]
pub struct Search {
    /// Whose workspace. Nothing outside of it is looked at.
    pub workspace: Arc<str>,
    /// Only in this session, and there only in these messages.
    pub session: Option<(SessionId, Span)>,
    /// What is looked for.
    pub query: Query,
    /// Newest session first, newest message first: only those after this hit.
    pub after: Option<HitCursor>,
    /// At most so many.
    pub limit: usize,
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

/// Whose usage is asked for. Rows are added up by session, slot, model and outcome.
#[derive(Debug, Clone)]
pub struct UsageQuery {
    /// Whose.
    pub workspace: Arc<str>,
    /// Only this session's, by its name.
    pub session: Option<Arc<str>>,
    /// Only calls from this moment on.
    pub since: Timestamp,
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

/// A slot with something to do.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueRow {
    /// The moment of asking.
    pub now: Timestamp,
    /// Which session, by its name.
    pub session: Arc<str>,
    /// The slot.
    pub slot: SlotRow,
}

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Where: `session "a" message 7`, `file`.
    pub at: String,
    /// What is wrong.
    pub what: String,
}

/// Keeps sessions.
///
/// A new store passes `tests/store_contract.rs`, which says in code what is said here in words.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The only way to write to a session: reads where it stands, asks `decide`, and writes what it says;
    /// all of that as if nobody else were there, and durable when it returns. False when `decide` wanted
    /// nothing written.
    async fn change(&self, key: &SessionKey, load: Load, decide: Decide) -> Result<bool, StoreError>;

    /// Where a session stands.
    async fn standing(&self, key: &SessionKey, load: Load) -> Result<Standing, StoreError>;

    /// A workspace's settings, a partial document; empty when nothing was set.
    async fn workspace(&self, workspace: &str) -> Result<String, StoreError>;

    /// Sets a workspace's settings.
    async fn set_workspace(&self, workspace: &str, settings: String) -> Result<(), StoreError>;

    /// The workspace's sessions by name, those after this one, at most so many.
    async fn sessions(
        &self,
        workspace: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Arc<str>, SessionRow)>, StoreError>;

    /// Takes the slot that waits longest of those that are ready: its time has come, and nobody holds it or
    /// their hold ran out. Where time alone made it due, it fires now. Its fence rises.
    async fn lease(&self, want: Want) -> Result<Option<Lease>, StoreError>;

    /// What a context is made from: one consistent state. `None` where there is no such session, or `look`
    /// wants nothing.
    async fn window(&self, key: &SessionKey, view: View, look: Look) -> Result<Option<Window>, StoreError>;

    /// The shapes of the scope's messages after this one, at most so many; of a session that is being copied,
    /// those that were, their end unknown.
    async fn ahead(
        &self,
        session: SessionId,
        scope: &Scope,
        after: Seq,
        limit: usize,
    ) -> Result<Ahead, StoreError>;

    /// Messages with their words. Those that do not exist are left out.
    async fn messages(&self, session: SessionId, pick: Pick) -> Result<Vec<Message>, StoreError>;

    /// Summaries.
    async fn summaries(&self, session: SessionId, pick: PickSummaries)
    -> Result<Vec<SummaryRow>, StoreError>;

    /// Messages by their words, newest session and newest message first.
    async fn search(&self, search: Search) -> Result<Vec<Hit>, StoreError>;

    /// Copies messages `1..=through` into a session that nobody sees yet, in pieces, so that no other
    /// writer waits long. Leftovers of a copy that was not finished are removed in time.
    async fn copy(&self, from: SessionId, through: Seq) -> Result<SessionId, StoreError>;

    /// Shows a copied session under this name, with this row, these slots and these summaries (whose `id` and
    /// `parent` are numbers of the original; the slots' `active` too). False when the name is taken.
    async fn reveal(
        &self,
        copied: SessionId,
        key: &SessionKey,
        row: SessionRow,
        slots: Vec<SlotRow>,
        summaries: Vec<SummaryRow>,
    ) -> Result<bool, StoreError>;

    /// Deletes a session with all that was made from it; usage stays. Nobody sees it any more when this
    /// returns. False when there is none.
    async fn delete(&self, key: &SessionKey) -> Result<bool, StoreError>;

    /// Records calls of models.
    async fn record(&self, usage: Vec<UsageRow>) -> Result<(), StoreError>;

    /// Calls of models, added up.
    async fn usage(&self, query: UsageQuery) -> Result<Vec<UsageSum>, StoreError>;

    /// The workspace's slots that have something to do now, or once they may; at most so many, those
    /// waiting longest first.
    async fn queue(&self, workspace: &str, limit: usize) -> Result<Vec<QueueRow>, StoreError>;

    /// Looks everything through.
    async fn verify(&self) -> Result<Vec<Fault>, StoreError>;

    /// Copies the whole store into a new file, while it goes on being used.
    async fn backup(&self, to: &Path) -> Result<(), StoreError>;

    /// Finishes what is under way and lets go of the file.
    async fn close(&self);
}

/// Why a store did not do it, sorted by what to do next.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Somebody else is writing for too long. Try again.
    #[error("the database is locked by another process; try again, or see who else has it open")]
    Busy,
    /// Nothing can be written for want of space. Make room, then try again; nothing was lost.
    #[error("the disk is full: make room at {path}, then try again; what was kept before is untouched")]
    Full {
        /// Where.
        path: String,
    },
    /// Nothing may be written there.
    #[error("{path} cannot be written: {reason}; check who owns it and that it is not mounted read-only")]
    ReadOnly {
        /// Where.
        path: String,
        /// What the system says.
        reason: String,
    },
    /// It cannot be opened.
    #[error("{path} cannot be opened: {reason}")]
    Unreachable {
        /// Where.
        path: String,
        /// What the system says.
        reason: String,
    },
    /// The file is somebody else's.
    #[error("{path} is not an Epitome database: {reason}; give another path")]
    Foreign {
        /// Where.
        path: String,
        /// What it seems to be.
        reason: String,
    },
    /// A later release wrote it.
    #[error(
        "{path} was written by a newer Epitome (schema {found}, this one knows {known}); use that release"
    )]
    Newer {
        /// Where.
        path: String,
        /// Its schema.
        found: i64,
        /// The newest we know.
        known: i64,
    },
    /// What is stored makes no sense. Restore a backup.
    #[error("{path} is damaged: {reason}; run verify, and restore a backup")]
    Damaged {
        /// Where.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// It was closed.
    #[error("the store is closed")]
    Closed,
    /// Anything else the database says.
    #[error("the database failed: {reason}")]
    Failed {
        /// What it says.
        reason: String,
    },
}
