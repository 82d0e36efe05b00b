//! Where sessions are kept.
//!
//! A [`Store`] owns transactions and nothing else. Everything that is written to a session goes through one
//! door, [`Store::change`]: the store reads where the session stands, hands that to a function, and writes
//! what the function decided, all of it or nothing. So the rules live outside, are the same for every store,
//! and cannot be raced: a message and the firing it causes are one write, and so are a summary and the
//! cursor it moves.
//!
//! Messages are never altered once they are in (their two flags and the caller's notes excepted), so they may be read at any
//! time, outside of any transaction, and still belong to the state that named them.
//!
//! Nothing here knows of models, prompts or policy.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use epitome_core::message::{Message, Seq, Span, Timestamp};
use epitome_core::outline::Outline;
use epitome_core::slot::Scope;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::event::{Events, Happened};
pub use crate::ids::{SessionId, SummaryId, SummaryState};

mod asked;
mod check;
mod columns;
mod directory;
mod inlines;
mod keyring;
mod moving;
mod postgres;
mod rows;
mod sqlite;
mod tail;

pub(crate) use asked::Filling;
pub use asked::{Ahead, Hit, Look, Pick, PickSummaries, Portion, Reach, Search, UsageQuery, View, Window};
pub use directory::{
    AuthorRow, DecideRow, Deleted, Directory, Keep, Listed, Listing, MemberRow, Membership, WorkspaceRow,
};
pub use inlines::{InlineRow, Inlines, ListHash, Passed};
pub use keyring::{KeyHash, KeyRow, Keyring};
pub use moving::{MoveError, MoveOptions, MoveProgress, MoveStage, Moved, MovedTable, move_to_postgres};
pub(crate) use postgres::client as postgres_client;
pub use postgres::{Postgres, PostgresOptions};
pub use rows::{
    Facts, NewMessage, QueueCounts, QueueRow, SessionRow, SlotRow, Sources, SummaryRow, UsageRow, UsageSum,
    Work, message, with_metadata, words,
};
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
    /// Messages whose notes are replaced.
    pub metadata: Vec<(Seq, Map<String, Value>)>,
    /// Who joins or leaves, in order.
    pub members: Vec<Membership>,
    /// An append to be remembered by its key.
    pub idempotency: Option<(String, Repeat)>,
    /// Calls of models to be recorded.
    pub usage: Vec<UsageRow>,
    /// What is told of it, in order. A summary's number is put in by the store: [`Happened::numbered`].
    pub events: Vec<Happened>,
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
    /// None of these.
    pub except: HashSet<(SessionId, Scope, String)>,
    /// The workspace that was served last. Turns go round by name: the next one after it that has something ready comes
    /// first, and after the last the first again. `None`: whoever waits longest, whosesoever it is.
    pub after: Option<Arc<str>>,
    /// Workspaces that hold enough workers already: they are passed over.
    pub full: HashSet<Arc<str>>,
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
pub trait Store: Keyring + Directory + Inlines + 'static {
    /// The only way to write to a session: reads where it stands, asks `decide`, and writes what it says;
    /// all of that as if nobody else were there, and durable when it returns. Gives the number of the session that
    /// was written to (0 where only what models cost was written down, and there is none); `None` when `decide`
    /// wanted nothing written.
    async fn change(
        &self,
        key: &SessionKey,
        load: Load,
        decide: Decide,
    ) -> Result<Option<SessionId>, StoreError>;

    /// Where a session stands.
    async fn standing(&self, key: &SessionKey, load: Load) -> Result<Standing, StoreError>;

    /// Whether anything changed that a context is made from: one row is read. `None` where there is no such session.
    async fn stamp(&self, key: &SessionKey) -> Result<Option<Stamp>, StoreError>;

    /// The workspaces that anything was ever written to, by name: those after this one, at most so many.
    async fn workspaces(&self, after: Option<&str>, limit: usize) -> Result<Vec<Arc<str>>, StoreError>;

    /// A workspace's settings, a partial document; empty when nothing was set.
    async fn workspace(&self, workspace: &str) -> Result<String, StoreError>;

    /// The workspace's sessions by name, those after this one, at most so many.
    async fn sessions(
        &self,
        workspace: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Arc<str>, SessionRow)>, StoreError>;

    /// Takes a slot that is ready: its time has come, and nobody holds it or their hold ran out. Of the workspace
    /// whose turn it is ([`Want::after`]) the one that waits longest. Where time alone made it due, it fires now. Its
    /// fence rises.
    ///
    /// It is asked often, mostly for nothing, and looks at no more than so many slots, however many are ready. One that is
    /// being written to at that moment may be passed over.
    async fn lease(&self, want: Want) -> Result<Option<Lease>, StoreError>;

    /// Returns when another node said that something may be ready. Only a hint, which may come late, for nothing, or
    /// not at all: whoever works looks for itself now and then. One that came while nobody waited is told to whoever
    /// waits next. A store that knows of no others never returns.
    async fn nudged(&self) {
        std::future::pending::<()>().await;
    }

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
    async fn messages(&self, session: SessionId, pick: Pick) -> Result<Portion<Message>, StoreError>;

    /// Summaries.
    async fn summaries(&self, session: SessionId, pick: PickSummaries)
    -> Result<Vec<SummaryRow>, StoreError>;

    /// The text of a summary that was written to the very same question, by the hash of that
    /// ([`Facts::asked`]), in any session of the workspace, the newest. None is given that was undone in this
    /// session: whoever took it back wants another.
    async fn recall(
        &self,
        workspace: &str,
        session: SessionId,
        asked: &str,
    ) -> Result<Option<String>, StoreError>;

    /// Messages by their words, newest session and newest message first.
    async fn search(&self, search: Search) -> Result<Portion<Hit>, StoreError>;

    /// Copies messages `1..=through` into a session that nobody sees yet, in pieces, so that no other
    /// writer waits long. Leftovers of a copy that was not finished are removed in time.
    async fn copy(&self, from: SessionId, through: Seq) -> Result<SessionId, StoreError>;

    /// Shows a copied session under this name, with this row, these slots and these summaries (whose `id` and
    /// `parent` are numbers of the original; the slots' `active` too), and tells these events of it. False when the
    /// name is taken.
    async fn reveal(
        &self,
        copied: SessionId,
        key: &SessionKey,
        row: SessionRow,
        slots: Vec<SlotRow>,
        summaries: Vec<SummaryRow>,
        events: Vec<Happened>,
    ) -> Result<bool, StoreError>;

    /// Deletes a session with all that was made from it and told of it; usage stays. Nobody sees it any more when this
    /// returns. False when there is none.
    async fn delete(&self, key: &SessionKey) -> Result<bool, StoreError>;

    /// What happened in a workspace after the event of that number, in one session or in all: at most so many, oldest
    /// first. Numbers are dense inside a workspace and never given twice, whatever is deleted. The newest 10,000 of a
    /// workspace are kept, and not many more.
    async fn events(
        &self,
        workspace: &str,
        after: u64,
        session: Option<&str>,
        limit: usize,
    ) -> Result<Events, StoreError>;

    /// How often messages became a summary, by session, among the events that are kept. At most 10,000 or so are looked at.
    async fn condensed(&self, workspace: &str) -> Result<Vec<(Arc<str>, u64)>, StoreError>;

    /// Records calls of models.
    async fn record(&self, usage: Vec<UsageRow>) -> Result<(), StoreError>;

    /// Calls of models, added up.
    async fn usage(&self, query: UsageQuery) -> Result<Vec<UsageSum>, StoreError>;

    /// The workspace's slots that have something to do now, or once they may: how many, and at most so many of
    /// them, those waiting longest first. Without a workspace those of all, which is for whoever runs the engine. It
    /// is asked often: what it costs depends on how many have something to do, and not on how many sessions there are.
    async fn queue(
        &self,
        workspace: Option<&str>,
        limit: usize,
    ) -> Result<(QueueCounts, Vec<QueueRow>), StoreError>;

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
    /// A database on a server does not answer. It is tried again for a while before this is said; the same may go well
    /// a little later.
    #[error(
        "the database at {place} cannot be reached: {reason}; it was tried again for a while, check that it runs"
    )]
    Unavailable {
        /// Which server and database, without a password.
        place: String,
        /// What went wrong last.
        reason: String,
    },
    /// A file is being moved into the database, or was since it was opened. What is there is not what it was.
    #[error(
        "a file is being moved into the database at {place}, or was since it was opened here; open it again when \
         `epitome migrate` is done"
    )]
    Moving {
        /// Which server and database, without a password.
        place: String,
    },
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
    /// A database on a server is there, and nothing of ours in it.
    #[error("{place} holds no Epitome tables; `epitome serve` and `epitome import` make them")]
    Empty {
        /// Which server and database, without a password.
        place: String,
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
    #[error("{path} is damaged: {reason}; keep a copy of it, and restore a backup")]
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
