//! Runs batches of SQL statements against a database.
//!
//! The code that all stores share uses the trait [`Executor`]. PostgreSQL handles a batch in one round trip. So callers
//! combine all statements that do not depend on each other's results into one batch. SQLite runs the statements of a
//! batch one after the other. Callbacks read each row in place, so only the needed values are copied.
//!
//! This module does not depend on how the database is connected, or on what the statements do.

use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use epitome_core::message::Timestamp;

use super::changes::{Changes, SessionState};
use super::decode::RowRef;
use super::op_error::{OpResult, damaged};
use super::rows::{SessionId, SessionKey};
use super::sql::Sql;

/// Reads a row, and returns whether the next row is needed.
pub(super) type OnRow<'a> = Box<dyn FnMut(RowRef<'_>) -> OpResult<bool> + Send + 'a>;

/// A list of SQL statements that run in this order. Each statement may have a callback that reads the statement's rows.
#[derive(Default)]
pub(super) struct SqlBatch<'a> {
    pub(super) statements: Vec<(Sql<'a>, Option<OnRow<'a>>)>,
    /// Whether the current time is read too.
    pub(super) reads_time: bool,
}

impl<'a> SqlBatch<'a> {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Also reads the current time, so that a later [`Executor::now`] needs no round trip.
    pub(super) fn with_time(self) -> Self {
        Self { reads_time: true, ..self }
    }

    /// Adds a statement and ignores its rows.
    pub(super) fn add(mut self, sql: Sql<'a>) -> Self {
        self.push(sql);
        self
    }

    /// Like [`Self::add`], but changes the batch in place, for use in loops.
    pub(super) fn push(&mut self, sql: Sql<'a>) {
        self.statements.push((sql, None));
    }

    /// Adds a statement and passes its rows to `each` until `each` returns false.
    pub(super) fn each(
        mut self,
        sql: Sql<'a>,
        each: impl FnMut(RowRef<'_>) -> OpResult<bool> + Send + 'a,
    ) -> Self {
        self.statements.push((sql, Some(Box::new(each))));
        self
    }

    /// Adds a statement and reads all of its rows into the list `into`.
    pub(super) fn all<T: Send>(
        self,
        sql: Sql<'a>,
        into: &'a mut Vec<T>,
        mut read: impl FnMut(RowRef<'_>) -> OpResult<T> + Send + 'a,
    ) -> Self {
        self.each(sql, move |row| {
            into.push(read(row)?);
            Ok(true)
        })
    }

    /// Adds a statement and reads its first row into `into`. If there is no row, `into` stays `None`.
    pub(super) fn first<T: Send>(
        self,
        sql: Sql<'a>,
        into: &'a mut Option<T>,
        mut read: impl FnMut(RowRef<'_>) -> OpResult<T> + Send + 'a,
    ) -> Self {
        self.each(sql, move |row| {
            *into = Some(read(row)?);
            Ok(false)
        })
    }

    /// Adds a statement, and adds the number of its rows to `into`.
    pub(super) fn count(self, sql: Sql<'a>, into: &'a mut i64) -> Self {
        self.each(sql, move |_| {
            *into += 1;
            Ok(true)
        })
    }

    /// Adds a statement, and sets `into` to true if the statement returns a row.
    pub(super) fn any(self, sql: Sql<'a>, into: &'a mut bool) -> Self {
        self.each(sql, move |_| {
            *into = true;
            Ok(false)
        })
    }
}

/// Runs statements within one operation. In an operation that only reads, all statements see one snapshot. The modes
/// [`AccessMode::ReadCommitted`] and [`AccessMode::ReadCommittedInline`] are an exception: with them, PostgreSQL uses a
/// separate snapshot for each statement. In an operation that writes, each statement sees the writes of the statements
/// before it.
#[async_trait]
pub(super) trait Executor: Send {
    /// Runs a batch.
    async fn run(&mut self, batch: SqlBatch<'_>) -> OpResult<()>;

    /// Runs the last batch of the operation and commits the operation. If the commit fails, nothing was written. If the
    /// operation writes, this batch must not have callbacks that read rows. They would run after the commit, when an
    /// error can no longer undo the operation.
    async fn finish(&mut self, batch: SqlBatch<'_>) -> OpResult<()>;

    /// Like [`Self::finish`]. If the connection breaks during the commit, the query `commit_check` is run. This query
    /// returns a row only if the operation was committed. Pass `None` only if running the operation twice is harmless.
    async fn finish_checked(&mut self, batch: SqlBatch<'_>, commit_check: Option<Sql<'_>>) -> OpResult<()>;

    /// Whether the database is a file (SQLite), whose rows are read one at a time without a round trip.
    fn in_file(&self) -> bool {
        false
    }

    /// Returns the number of rows to request at a time: `size` for PostgreSQL, and no limit for SQLite, whose rows are
    /// read one at a time.
    fn page_size(&self, size: usize) -> usize {
        if self.in_file() { usize::MAX } else { size }
    }

    /// Returns a random number that is stored with this transaction's writes. If the connection breaks, the number
    /// shows whether the writes were committed. Returns `None` if the database needs no such check. A database that
    /// returns a number also accepts lists as parameters.
    fn commit_mark(&self) -> Option<i64> {
        None
    }

    /// Returns the number of the workspace's next event; `None` if the store numbers events later.
    fn next_event_number(&mut self, _workspace: &Arc<str>) -> OpResult<Option<i64>> {
        Ok(None)
    }

    /// Removes a session's state from the cache and returns it, without log and summaries. Returns `None` if the state
    /// is not cached.
    fn take_cached(&mut self, _key: &SessionKey) -> Option<SessionState> {
        None
    }

    /// Whether the cache contains this author as a member of the session.
    fn has_cached_member(&self, _session: SessionId, _name: &Arc<str>) -> bool {
        false
    }

    /// Notifies the store that a change was decided. The arguments are the state before the change, the changes, and
    /// the session's id if the changes were written.
    fn on_decided(
        &mut self,
        _key: &SessionKey,
        _before: SessionState,
        _changes: Option<Changes>,
        _written: Option<SessionId>,
    ) {
    }

    /// Removes a session from the cache, because an operation other than [`super::Store::change`] writes to it.
    fn evict(&mut self, _key: &SessionKey) {}

    /// Returns the current time of the store's clock.
    async fn now(&mut self) -> OpResult<Timestamp>;
}

/// Returns all rows of a statement.
pub(super) async fn all<T: Send>(
    db: &mut dyn Executor,
    sql: Sql<'_>,
    read: impl FnMut(RowRef<'_>) -> OpResult<T> + Send,
) -> OpResult<Vec<T>> {
    let mut rows = Vec::new();
    db.run(SqlBatch::new().all(sql, &mut rows, read)).await?;
    Ok(rows)
}

/// Returns the first row of a statement.
pub(super) async fn first<T: Send>(
    db: &mut dyn Executor,
    sql: Sql<'_>,
    read: impl FnMut(RowRef<'_>) -> OpResult<T> + Send,
) -> OpResult<Option<T>> {
    let mut rows = None;
    db.run(SqlBatch::new().first(sql, &mut rows, read)).await?;
    Ok(rows)
}

/// Returns the integer in the first column of the first row. Fails if there is no row.
pub(super) async fn number(db: &mut dyn Executor, sql: Sql<'_>) -> OpResult<i64> {
    first(db, sql, |row| row.int(0)).await?.ok_or_else(|| damaged("a row is missing"))
}

/// The future of an [`Op`].
pub(super) type OpFuture<'x, T> = Pin<Box<dyn Future<Output = OpResult<T>> + Send + 'x>>;

/// An operation on a database. Its first parameter is a reference to the operation's arguments.
pub(super) type Op<A, T> = for<'x> fn(&'x A, &'x mut dyn Executor) -> OpFuture<'x, T>;

/// The access mode of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessMode {
    /// Reads from one snapshot.
    Snapshot,
    /// Like [`Self::Snapshot`], but for a small read whose data is likely in the page cache. SQLite runs this read on
    /// the caller's thread.
    SnapshotInline,
    /// Only reads. PostgreSQL uses a separate snapshot for each statement.
    ReadCommitted,
    /// Like [`Self::ReadCommitted`], but for a small read whose data is likely in the page cache. SQLite runs this read
    /// on the caller's thread.
    ReadCommittedInline,
    /// Reads everything from one snapshot, without a time limit.
    FullScan,
    /// Reads and writes in one transaction that is isolated from other writers. The SQLite store also clears its cache
    /// of session states.
    Write,
    /// Like [`Self::Write`], but the SQLite store does not clear its cache of session states. Use this mode for an
    /// operation that changes no session state, or that updates the cache itself.
    WriteKeepCache,
}

type ErasedFn = dyn for<'x> Fn(&'x mut dyn Executor) -> OpFuture<'x, ()> + Send + Sync;

/// An operation on a database. It has no return value, because the closure stores the result itself.
pub struct ErasedOp(pub(super) Box<ErasedFn>);

impl ErasedOp {
    /// Runs the operation.
    pub(super) fn run_on<'x>(&self, db: &'x mut dyn Executor) -> OpFuture<'x, ()> {
        (self.0)(db)
    }
}
