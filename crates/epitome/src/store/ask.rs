//! Runs batches of SQL statements against a database.
//!
//! The code that all stores share is written once, against [`Ask`]. PostgreSQL handles a batch in one round trip, so callers
//! put every statement into a batch that does not depend on the result of another. SQLite runs the statements one after the
//! other, synchronously. Rows are read in place, so only the needed values are copied.
//!
//! This module does not depend on how the database is connected, or on what the statements do.

use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use epitome_core::message::Timestamp;

use super::changes::{Changes, Standing};
use super::decode::Found;
use super::rows::{SessionId, SessionKey};
use super::sql::Sql;
use super::trouble::{Outcome, nonsense};

/// Reads a row, and returns whether the next row is needed.
pub(super) type Each<'a> = Box<dyn FnMut(Found<'_>) -> Outcome<bool> + Send + 'a>;

/// Statements in order, each with an optional callback for its rows.
#[derive(Default)]
pub(super) struct Batch<'a> {
    pub(super) steps: Vec<(Sql<'a>, Option<Each<'a>>)>,
    /// Whether the current time is read too.
    pub(super) timed: bool,
}

impl<'a> Batch<'a> {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Also reads the current time, so that a later [`Ask::now`] needs no round trip.
    pub(super) fn timed(self) -> Self {
        Self { timed: true, ..self }
    }

    /// Adds a statement and ignores its rows.
    pub(super) fn run(mut self, sql: Sql<'a>) -> Self {
        self.push(sql);
        self
    }

    /// Like [`Self::run`], but by reference, for use in loops.
    pub(super) fn push(&mut self, sql: Sql<'a>) {
        self.steps.push((sql, None));
    }

    /// Adds a statement and passes its rows to `each` until `each` returns false.
    pub(super) fn each(
        mut self,
        sql: Sql<'a>,
        each: impl FnMut(Found<'_>) -> Outcome<bool> + Send + 'a,
    ) -> Self {
        self.steps.push((sql, Some(Box::new(each))));
        self
    }

    /// Adds a statement and reads all of its rows.
    pub(super) fn all<T: Send>(
        self,
        sql: Sql<'a>,
        into: &'a mut Vec<T>,
        mut read: impl FnMut(Found<'_>) -> Outcome<T> + Send + 'a,
    ) -> Self {
        self.each(sql, move |row| {
            into.push(read(row)?);
            Ok(true)
        })
    }

    /// Adds a statement and reads its first row.
    pub(super) fn first<T: Send>(
        self,
        sql: Sql<'a>,
        into: &'a mut Option<T>,
        mut read: impl FnMut(Found<'_>) -> Outcome<T> + Send + 'a,
    ) -> Self {
        self.each(sql, move |row| {
            *into = Some(read(row)?);
            Ok(false)
        })
    }

    /// Adds a statement and counts its rows.
    pub(super) fn count(self, sql: Sql<'a>, into: &'a mut i64) -> Self {
        self.each(sql, move |_| {
            *into += 1;
            Ok(true)
        })
    }

    /// Adds a statement and checks whether it returns a row.
    pub(super) fn any(self, sql: Sql<'a>, into: &'a mut bool) -> Self {
        self.each(sql, move |_| {
            *into = true;
            Ok(false)
        })
    }
}

/// Runs statements within one operation. All reads see one snapshot; in a writing operation, each statement sees the state
/// after the one before. With [`Way::Looks`] and [`Way::LooksHere`], a server uses a separate snapshot for each statement.
#[async_trait]
pub(super) trait Ask: Send {
    /// Runs a batch.
    async fn ask(&mut self, batch: Batch<'_>) -> Outcome<()>;

    /// Runs the last batch and commits. If the commit fails, nothing was written. In a writing operation this batch must not
    /// read rows: an error while reading them would come after the commit.
    async fn finish(&mut self, batch: Batch<'_>) -> Outcome<()>;

    /// Like [`Self::finish`]. If the connection breaks during the commit, the statement `known` finds out whether it
    /// succeeded: it returns a row only if this operation was committed. Pass `None` only if running the operation twice is
    /// harmless.
    async fn finish_by(&mut self, batch: Batch<'_>, known: Option<Sql<'_>>) -> Outcome<()>;

    /// Whether the database is a file (SQLite), whose rows are read one at a time without a round trip.
    fn in_file(&self) -> bool {
        false
    }

    /// Number of rows to request at a time: `size` for a server, unlimited for a file, which reads rows one at a time.
    fn page(&self, size: usize) -> usize {
        if self.in_file() { usize::MAX } else { size }
    }

    /// Returns a random number that identifies this transaction's writes, for databases that may have to check after a lost
    /// connection whether they were committed. A database that returns a mark also accepts lists as values.
    fn mark(&self) -> Option<i64> {
        None
    }

    /// Returns the number of the workspace's next event; `None` if the store numbers events later.
    fn number_event(&mut self, _workspace: &Arc<str>) -> Outcome<Option<i64>> {
        Ok(None)
    }

    /// Returns the cached state of a session, without log and summaries, and removes it from the cache. `None` if not
    /// cached.
    fn remembered(&mut self, _key: &SessionKey) -> Option<Standing> {
        None
    }

    /// Whether the cache has this author as a member of the session.
    fn is_member(&self, _session: SessionId, _name: &Arc<str>) -> bool {
        false
    }

    /// Notifies the store of a finished decision: the state before, the changes, and the session's id if it was written.
    fn decided(
        &mut self,
        _key: &SessionKey,
        _standing: Standing,
        _changes: Option<Changes>,
        _written: Option<SessionId>,
    ) {
    }

    /// Removes a session from the cache, because an operation other than [`super::Store::change`] writes to it.
    fn forget(&mut self, _key: &SessionKey) {}

    /// Returns the current time of the store's clock.
    async fn now(&mut self) -> Outcome<Timestamp>;
}

/// Returns all rows of a statement.
pub(super) async fn all<T: Send>(
    ask: &mut dyn Ask,
    sql: Sql<'_>,
    read: impl FnMut(Found<'_>) -> Outcome<T> + Send,
) -> Outcome<Vec<T>> {
    let mut found = Vec::new();
    ask.ask(Batch::new().all(sql, &mut found, read)).await?;
    Ok(found)
}

/// Returns the first row of a statement.
pub(super) async fn first<T: Send>(
    ask: &mut dyn Ask,
    sql: Sql<'_>,
    read: impl FnMut(Found<'_>) -> Outcome<T> + Send,
) -> Outcome<Option<T>> {
    let mut found = None;
    ask.ask(Batch::new().first(sql, &mut found, read)).await?;
    Ok(found)
}

/// Returns the number in the first row of a statement that always has a row.
pub(super) async fn number(ask: &mut dyn Ask, sql: Sql<'_>) -> Outcome<i64> {
    first(ask, sql, |row| row.int(0)).await?.ok_or_else(|| nonsense("a row is missing"))
}

/// The future of an [`Op`].
pub(super) type Asked<'x, T> = Pin<Box<dyn Future<Output = Outcome<T>> + Send + 'x>>;

/// An operation on a database, with its arguments.
pub(super) type Op<A, T> = for<'x> fn(&'x A, &'x mut dyn Ask) -> Asked<'x, T>;

/// The access mode of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Reads from one snapshot.
    Reads,
    /// Reads a little data that is likely in the page cache, from one snapshot. SQLite does this on the caller's thread.
    ReadsHere,
    /// Reads; a server uses a separate snapshot for each statement.
    Looks,
    /// Like [`Self::Looks`], for a little data that is likely in the page cache.
    LooksHere,
    /// Reads everything from one snapshot, without a time limit.
    ReadsAll,
    /// Reads and writes in one transaction that is isolated from other writers.
    Writes,
    /// Like [`Self::Writes`], for data outside of the sessions' cached state, which stays valid.
    Notes,
}

type Doing = dyn for<'x> Fn(&'x mut dyn Ask) -> Asked<'x, ()> + Send + Sync;

/// An operation on a database that stores its result itself.
pub struct Task(pub(super) Box<Doing>);

impl Task {
    /// Runs the operation.
    pub(super) fn on<'x>(&self, ask: &'x mut dyn Ask) -> Asked<'x, ()> {
        (self.0)(ask)
    }
}
