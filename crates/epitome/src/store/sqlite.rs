//! Sessions in a SQLite file, or in memory.
//!
//! One thread writes, a few connections read. Writes that wait together become durable together. The file is in
//! WAL mode, and several processes may have it open: nothing that another one may change is kept in memory.
//!
//! What can wait is done when nobody writes: taking messages into the index of words, removing what was
//! deleted, forgetting old keys. See [`SqliteOptions::index_pause`].

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use epitome_core::message::{Message, Seq, Timestamp};
use epitome_core::slot::Scope;
use rusqlite::Connection;

use super::{
    Ahead, Decide, Fault, Hit, Lease, Load, Look, Pick, PickSummaries, Portion, QueueCounts, QueueRow,
    Search, SessionId, SessionKey, SessionRow, SlotRow, Stamp, Standing, Store, StoreError, SummaryRow,
    UsageQuery, UsageRow, UsageSum, View, Want, Window,
};
use crate::event::{Events, Happened};
use error::Outcome;
use known::Known;
use readers::Readers;
use writer::Writer;

pub(super) use source::{Piece, Source};

mod backup;
mod change;
mod chores;
mod copy;
mod directory;
mod error;
mod events;
mod find;
mod inlines;
mod keys;
mod known;
mod lease;
mod lens;
mod open;
mod queue;
mod read;
mod readers;
mod rows;
mod source;
mod verify;
mod window;
mod writer;

/// How a SQLite store is run.
#[derive(Clone)]
pub struct SqliteOptions {
    /// What time it is.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// How long another process that writes is waited for.
    pub busy: Duration,
    /// How many may read at once.
    pub readers: usize,
    /// Told by the writer right before a transaction begins and right after it ended, whichever way. For tests
    /// that kill the process in between.
    pub on_write: Option<Arc<dyn Fn(WriteStage) + Send + Sync>>,
    /// How long nobody must have wanted anything written before the writer turns to what can wait.
    pub index_pause: Duration,
    /// Whether a file that may only be read is opened all the same, as long as nobody else has it open: what would
    /// write then fails. Without it opening fails.
    pub read_only_too: bool,
    /// More pages than this the file never has: a disk that is full, for tests.
    #[doc(hidden)]
    pub max_pages: Option<u32>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            clock: Arc::new(system_time),
            busy: Duration::from_secs(5),
            readers: 4,
            on_write: None,
            index_pause: Duration::from_millis(20),
            read_only_too: false,
            max_pages: None,
        }
    }
}

impl fmt::Debug for SqliteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteOptions")
            .field("busy", &self.busy)
            .field("readers", &self.readers)
            .field("index_pause", &self.index_pause)
            .finish_non_exhaustive()
    }
}

fn system_time() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Where the writer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteStage {
    /// A transaction is about to begin.
    Begun,
    /// It is durable, or undone.
    Ended,
}

/// Sessions in SQLite.
pub struct Sqlite {
    path: PathBuf,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    writer: Writer,
    known: Known,
    /// A store in memory has a single connection, the writer's.
    readers: Option<Readers>,
    options: SqliteOptions,
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Sqlite {
    /// Opens a file, making it where there is none. Blocks for as long as that takes.
    ///
    /// A file of up to 64 MiB is looked through for damage. Of a larger one only the header, the schema, the
    /// length and the newest rows are; [`Store::verify`] looks at all of it.
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, StoreError> {
        let path = path.as_ref().to_owned();
        let (db, lasting) = match open::writer(&path, &options) {
            Ok(db) => (db, false),
            Err(error @ StoreError::ReadOnly { .. }) if options.read_only_too => {
                (open::lasting(&path, &options, error)?, true)
            }
            Err(error) => return Err(error),
        };
        let readers = Some(Readers::new(&path, &options, lasting));
        Self::start(db, path, readers, options)
    }

    /// A store that is gone with the process.
    pub fn memory(options: SqliteOptions) -> Result<Self, StoreError> {
        let db = open::memory(&options)?;
        Self::start(db, PathBuf::from(":memory:"), None, options)
    }

    fn start(
        db: Connection,
        path: PathBuf,
        readers: Option<Readers>,
        options: SqliteOptions,
    ) -> Result<Self, StoreError> {
        let known = Known::default();
        let writer = Writer::start(db, path.clone(), options.clone(), known.clone())?;
        Ok(Self { path, clock: Arc::clone(&options.clock), writer, known, readers, options })
    }

    /// Writes something that may move any session.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Outcome<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let known = self.known.clone();
        let work = move |db: &Connection| {
            known.forget_all();
            work(db)
        };
        self.writer.write(work).await
    }

    /// Reads in one transaction.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Outcome<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        match &self.readers {
            Some(readers) => readers.read(work).await,
            None => self.writer.write(work).await,
        }
    }

    /// The same for what is small and in memory: on the caller's own thread, where that is possible.
    async fn read_here<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Outcome<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        match &self.readers {
            Some(readers) => readers.read_here(work).await,
            None => self.writer.write(work).await,
        }
    }

    fn now(&self) -> Timestamp {
        (self.clock)()
    }
}

#[async_trait]
impl Store for Sqlite {
    async fn change(
        &self,
        key: &SessionKey,
        load: Load,
        decide: Decide,
    ) -> Result<Option<SessionId>, StoreError> {
        let (key, clock, known) = (key.clone(), Arc::clone(&self.clock), self.known.clone());
        self.writer.write(move |db| change::change(db, &known, &key, &load, &decide, clock())).await
    }

    async fn standing(&self, key: &SessionKey, load: Load) -> Result<Standing, StoreError> {
        let (key, now) = (key.clone(), self.now());
        self.read(move |db| change::standing(db, &key, &load, now)).await
    }

    async fn stamp(&self, key: &SessionKey) -> Result<Option<Stamp>, StoreError> {
        let key = key.clone();
        self.read_here(move |db| read::stamp(db, &key)).await
    }

    async fn workspaces(&self, after: Option<&str>, limit: usize) -> Result<Vec<Arc<str>>, StoreError> {
        let after = after.unwrap_or_default().to_owned();
        self.read(move |db| read::workspaces(db, &after, limit)).await
    }

    async fn workspace(&self, workspace: &str) -> Result<String, StoreError> {
        let workspace = workspace.to_owned();
        self.read(move |db| change::workspace(db, &workspace)).await
    }

    async fn sessions(
        &self,
        workspace: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Arc<str>, SessionRow)>, StoreError> {
        let (workspace, after) = (workspace.to_owned(), after.map(str::to_owned));
        self.read(move |db| read::sessions(db, &workspace, after.as_deref(), limit)).await
    }

    async fn lease(&self, want: Want) -> Result<Option<Lease>, StoreError> {
        // Workers ask often, and most often in vain: that must not cost a write.
        let clock = Arc::clone(&self.clock);
        let (asked, now) = (want.clone(), clock());
        let ready = self.read(move |db| Ok(lease::ready(db, &asked, now)?.is_some())).await?;
        if !ready {
            return Ok(None);
        }
        let known = self.known.clone();
        let take = move |db: &Connection| {
            let lease = lease::lease(db, &want, clock())?;
            if let Some(lease) = &lease {
                known.forget(&lease.key);
            }
            Ok(lease)
        };
        self.writer.write(take).await
    }

    async fn window(&self, key: &SessionKey, view: View, look: Look) -> Result<Option<Window>, StoreError> {
        let (key, now) = (key.clone(), self.now());
        let at_hand = view.at_hand;
        let read = move |db: &Connection| {
            let standing = change::bare(db, &key, now)?;
            if standing.session.is_none() {
                return Ok(None);
            }
            let Some(reach) = look(&standing) else { return Ok(None) };
            window::window(db, standing, &view, reach)
        };
        if at_hand { self.read_here(read).await } else { self.read(read).await }
    }

    async fn ahead(
        &self,
        session: SessionId,
        scope: &Scope,
        after: Seq,
        limit: usize,
    ) -> Result<Ahead, StoreError> {
        let scope = scope.clone();
        self.read(move |db| read::ahead(db, session, &scope, after, limit)).await
    }

    async fn messages(&self, session: SessionId, pick: Pick) -> Result<Portion<Message>, StoreError> {
        self.read(move |db| read::messages(db, session, &pick)).await
    }

    async fn summaries(
        &self,
        session: SessionId,
        pick: PickSummaries,
    ) -> Result<Vec<SummaryRow>, StoreError> {
        self.read(move |db| read::summaries(db, session, &pick)).await
    }

    async fn recall(
        &self,
        workspace: &str,
        session: SessionId,
        asked: &str,
    ) -> Result<Option<String>, StoreError> {
        let (workspace, asked) = (workspace.to_owned(), asked.to_owned());
        self.read(move |db| read::recall(db, &workspace, session, &asked)).await
    }

    async fn search(&self, search: Search) -> Result<Portion<Hit>, StoreError> {
        self.read(move |db| find::search(db, &search)).await
    }

    async fn copy(&self, from: SessionId, through: Seq) -> Result<SessionId, StoreError> {
        let gone = || StoreError::Failed { reason: "the session was deleted while it was copied".to_owned() };
        let clock = Arc::clone(&self.clock);
        let copied = self.write(move |db| copy::begin(db, from, clock())).await?.ok_or_else(gone)?;
        let mut first: Seq = 1;
        while first <= through {
            let clock = Arc::clone(&self.clock);
            let piece = move |db: &Connection| copy::piece(db, from, copied, first, through, clock());
            let last = match self.write(piece).await {
                Ok(Some(last)) => last,
                failed => {
                    // Where this fails too, it is found by its age later.
                    let _ = self.write(move |db| copy::give_up(db, copied)).await;
                    return Err(failed.err().unwrap_or_else(gone));
                }
            };
            if last >= through {
                break;
            }
            first = last.saturating_add(1);
        }
        Ok(copied)
    }

    async fn reveal(
        &self,
        copied: SessionId,
        key: &SessionKey,
        row: SessionRow,
        slots: Vec<SlotRow>,
        summaries: Vec<SummaryRow>,
        events: Vec<Happened>,
    ) -> Result<bool, StoreError> {
        let (key, known, now) = (key.clone(), self.known.clone(), self.now());
        self.write(move |db| {
            let shown = copy::reveal(db, copied, &key, &row, &slots, summaries, now)?;
            if shown {
                events::write(db, &known, &key, &events, None, now)?;
            }
            Ok(shown)
        })
        .await
    }

    async fn delete(&self, key: &SessionKey) -> Result<bool, StoreError> {
        let key = key.clone();
        self.write(move |db| copy::delete(db, &key)).await
    }

    async fn events(
        &self,
        workspace: &str,
        after: u64,
        session: Option<&str>,
        limit: usize,
    ) -> Result<Events, StoreError> {
        let (workspace, session) = (workspace.to_owned(), session.map(str::to_owned));
        self.read(move |db| events::read(db, &workspace, after, session.as_deref(), limit)).await
    }

    async fn condensed(&self, workspace: &str) -> Result<Vec<(Arc<str>, u64)>, StoreError> {
        let workspace = workspace.to_owned();
        self.read(move |db| events::condensed(db, &workspace)).await
    }

    async fn record(&self, usage: Vec<UsageRow>) -> Result<(), StoreError> {
        let now = self.now();
        self.writer.write(move |db| change::usage(db, &usage, now)).await
    }

    async fn usage(&self, query: UsageQuery) -> Result<Vec<UsageSum>, StoreError> {
        self.read(move |db| read::usage(db, &query)).await
    }

    async fn queue(
        &self,
        workspace: Option<&str>,
        limit: usize,
    ) -> Result<(QueueCounts, Vec<QueueRow>), StoreError> {
        let (workspace, now) = (workspace.map(str::to_owned), self.now());
        self.read(move |db| queue::queue(db, workspace.as_deref(), limit, now)).await
    }

    async fn verify(&self) -> Result<Vec<Fault>, StoreError> {
        match &self.readers {
            Some(readers) => readers.read_afresh(verify::verify).await,
            None => self.writer.write(verify::verify).await,
        }
    }

    async fn backup(&self, to: &Path) -> Result<(), StoreError> {
        let to = to.to_owned();
        match &self.readers {
            None => self.writer.alone(move |db| backup::into(db, &to)).await,
            Some(readers) => {
                let (path, options, lasting) = (self.path.clone(), self.options.clone(), readers.lasting);
                let task = tokio::task::spawn_blocking(move || {
                    // A connection of its own, so that neither readers nor the writer wait.
                    let open = if lasting { open::unchanging } else { open::plain };
                    let copied = open(&path, &options).and_then(|db| backup::into(&db, &to));
                    copied.map_err(|trouble| trouble.at(&path))
                });
                task.await
                    .unwrap_or_else(|_| Err(StoreError::Failed { reason: "the backup panicked".to_owned() }))
            }
        }
    }

    async fn close(&self) {
        if let Some(readers) = &self.readers {
            readers.close().await;
        }
        self.writer.close().await;
    }
}
