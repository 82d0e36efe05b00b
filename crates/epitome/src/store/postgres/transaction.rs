//! Implements [`Executor`] for PostgreSQL: a transaction that begins with the first batch, ends with the last, and is
//! committed exactly once, even if the connection breaks.

use std::time::Duration;

use async_trait::async_trait;
use epitome_core::message::Timestamp;
use tokio_postgres::Row;

use super::super::changes::{Changes, SessionState};
use super::super::decode::ReadRow;
use super::super::error::StoreError;
use super::super::executor::{self, Executor, OnRow, SqlBatch};
use super::super::rows::{SessionId, SessionKey};
use super::super::sql::Sql;
use super::super::sql_params::SqlParam;
use super::connection::PooledConnection;
use super::error::{OpError, OpResult, damaged};
use super::{Postgres, retry};

/// Reads the time and the transaction id. If the connection breaks, the id is used to find out whether the transaction
/// was committed.
const NOW_AND_XID: &str =
    "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, pg_current_xact_id()::text";

/// Reads the time.
pub(super) const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// How statements are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransactionKind {
    /// No explicit transaction: each statement is committed by itself.
    Autocommit,
    /// A transaction that reads from a single snapshot.
    Snapshot,
    /// A transaction that writes. Each statement sees everything that was committed before the statement began. So a
    /// statement that runs after a lock was taken sees the newest locked rows.
    ReadWrite,
}

/// A transaction. It begins with its first statement.
pub(super) struct PgTransaction<'s> {
    store: &'s Postgres,
    kind: TransactionKind,
    /// The connection on which the transaction runs; `None` before its first statement and after its end.
    connection: Option<PooledConnection>,
    /// The store's time, read with the first statements.
    now: Option<Timestamp>,
    /// The transaction's id if it writes, otherwise empty.
    xid: String,
}

/// For each statement, the callback that reads its rows.
type RowReceivers<'a> = Vec<Option<OnRow<'a>>>;

/// Separates the statements of a batch from their callbacks, and removes U+0000 from the values.
pub(super) fn split(batch: SqlBatch<'_>) -> (Vec<Sql<'_>>, RowReceivers<'_>) {
    let statements = batch.statements.into_iter().map(|(mut sql, each)| {
        sql.params = sql.params.into_iter().map(SqlParam::without_nul).collect();
        (sql, each)
    });
    statements.unzip()
}

/// Passes each statement's rows to its callback.
pub(super) fn deliver_rows(rows: &[Vec<Row>], receivers: RowReceivers<'_>) -> OpResult<()> {
    for (rows, each) in rows.iter().zip(receivers) {
        let Some(mut each) = each else { continue };
        for row in rows {
            if !each(row)? {
                break;
            }
        }
    }
    Ok(())
}

impl<'s> PgTransaction<'s> {
    fn new(store: &'s Postgres, kind: TransactionKind) -> Self {
        Self { store, kind, connection: None, now: None, xid: String::new() }
    }

    pub(super) fn autocommit(store: &'s Postgres) -> Self {
        Self::new(store, TransactionKind::Autocommit)
    }

    pub(super) fn snapshot(store: &'s Postgres) -> Self {
        Self::new(store, TransactionKind::Snapshot)
    }

    pub(super) fn read_write(store: &'s Postgres) -> Self {
        Self::new(store, TransactionKind::ReadWrite)
    }

    /// Removes the statement timeout, for checks that read everything.
    pub(super) async fn disable_timeout(&mut self) -> OpResult<()> {
        self.send(SqlBatch::new().add(Sql::new("SET LOCAL statement_timeout = 0", [])), false).await?;
        if let Some(connection) = &mut self.connection {
            connection.set_timeout(Duration::from_secs(3_600));
        }
        Ok(())
    }

    /// Rolls the transaction back if it has not ended, so that the connection can be used again. This also happens
    /// after an error. Returns `result`. If `result` is not an error but the rollback fails, returns the error of the
    /// rollback.
    pub(super) async fn end<T>(mut self, result: OpResult<T>) -> OpResult<T> {
        let connection = self.connection.take().filter(|_| !is_connection_lost(&result));
        let Some(mut connection) = connection else { return result };
        let rolled_back = connection.run(&[Sql::new("ROLLBACK", [])]).await;
        if rolled_back.is_ok() {
            connection.mark_idle();
        }
        let value = result?;
        rolled_back.map(|_| value)
    }

    async fn send(&mut self, batch: SqlBatch<'_>, ends: bool) -> OpResult<()> {
        let reads_time = batch.reads_time && self.kind == TransactionKind::Autocommit;
        let (mut statements, receivers) = split(batch);
        statements.extend(reads_time.then(|| Sql::new(NOW, [])));
        let rows = self.send_statements(statements, ends).await?;
        if reads_time {
            self.set_time(rows.get(receivers.len()))?;
        }
        deliver_rows(&rows, receivers)
    }

    /// Sends statements in one message. If the transaction has not begun, the message also begins it. If `ends` is set,
    /// the message also ends it.
    pub(super) async fn send_statements(
        &mut self,
        statements: Vec<Sql<'_>>,
        ends: bool,
    ) -> OpResult<Vec<Vec<Row>>> {
        let begins = self.connection.is_none();
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.store.connection().await?,
        };
        let (begin, now) = match self.kind {
            TransactionKind::ReadWrite => (Some("BEGIN ISOLATION LEVEL READ COMMITTED"), Some(NOW_AND_XID)),
            TransactionKind::Snapshot => (Some("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"), Some(NOW)),
            // Behind a pooler, settings end with the transaction. So even a single statement needs a transaction, for
            // the timeouts.
            TransactionKind::Autocommit => ((!connection.prepares).then_some("BEGIN"), None),
        };
        let mut all = Vec::with_capacity(statements.len() + 4);
        if let Some(begin) = begin.filter(|_| begins) {
            all.push(Sql::new(begin, []));
            // Each transaction sets the timeouts again, because settings end with the transaction behind a pooler.
            all.extend((!connection.prepares).then(|| Sql::new(self.store.limits.clone(), [])));
        }
        let (preamble, now) = (all.len(), now.filter(|_| begins));
        all.extend(statements);
        all.extend(begin.filter(|_| ends).map(|_| Sql::new("COMMIT", [])));
        all.extend(now.map(|now| Sql::new(now, [])));
        let rows = connection.run(&all).await;
        if !ends {
            self.connection = Some(connection);
        } else if !is_connection_lost(&rows) {
            // The transaction has ended in any case: after an error, COMMIT rolls it back.
            connection.mark_idle();
        }
        let mut rows = rows?;
        if now.is_some() {
            self.set_time(rows.pop().as_ref())?;
        }
        rows.drain(..preamble.min(rows.len()));
        Ok(rows)
    }

    /// Returns whether the transaction's first statement was sent.
    pub(super) fn has_begun(&self) -> bool {
        self.connection.is_some()
    }

    /// Returns the store's time, which is read with the first statements; `None` before the first statements.
    pub(super) fn time(&self) -> Option<Timestamp> {
        self.now
    }

    /// Returns whether this transaction was committed. Called after the connection broke: see
    /// [`Postgres::was_committed`].
    pub(super) async fn was_committed(&self, commit_check: &Sql<'_>) -> OpResult<bool> {
        self.store.was_committed(&self.xid, commit_check).await
    }

    fn set_time(&mut self, rows: Option<&Vec<Row>>) -> OpResult<()> {
        let row = rows.and_then(|rows| rows.first());
        let row = row.ok_or_else(|| damaged("the database returned no time"))?;
        self.now = Some(self.store.store_time(row.int(0)?));
        if row.len() > 1 {
            self.xid = row.string(1)?;
        }
        Ok(())
    }

    /// Runs these statements and commits the transaction. If the connection breaks meanwhile, runs the query
    /// `commit_check`, which returns a row only if this transaction was committed. Pass `None` only if running the
    /// transaction twice is harmless.
    async fn commit(&mut self, batch: SqlBatch<'_>, commit_check: Option<Sql<'_>>) -> OpResult<()> {
        if self.connection.is_none() {
            self.send(SqlBatch::new(), false).await?;
        }
        match (self.send(batch, true).await, commit_check) {
            (Err(OpError::ConnectionLost(why)), Some(commit_check)) => {
                let done = self.was_committed(&commit_check).await?;
                if done { Ok(()) } else { Err(OpError::ConnectionLost(why)) }
            }
            (done, _) => done,
        }
    }
}

fn is_connection_lost<T>(result: &OpResult<T>) -> bool {
    matches!(result, Err(OpError::ConnectionLost(_)))
}

#[async_trait]
impl Executor for PgTransaction<'_> {
    async fn run(&mut self, batch: SqlBatch<'_>) -> OpResult<()> {
        self.send(batch, self.kind == TransactionKind::Autocommit).await
    }

    async fn finish(&mut self, batch: SqlBatch<'_>) -> OpResult<()> {
        if self.kind == TransactionKind::ReadWrite {
            let (done, commit_check) = commit_mark_statements(self.now().await?);
            return self.commit(batch.add(done), Some(commit_check)).await;
        }
        // A single statement sees one snapshot without a transaction around it.
        if self.connection.is_none() && !batch.reads_time && batch.statements.len() <= 1 {
            self.kind = TransactionKind::Autocommit;
        }
        self.send(batch, true).await
    }

    async fn finish_checked(&mut self, batch: SqlBatch<'_>, commit_check: Option<Sql<'_>>) -> OpResult<()> {
        self.commit(batch, commit_check).await
    }

    fn commit_mark(&self) -> Option<i64> {
        Some(commit_mark())
    }

    fn on_decided(
        &mut self,
        _: &SessionKey,
        before: SessionState,
        changes: Option<Changes>,
        written: Option<SessionId>,
    ) {
        self.store.on_decided(&before, changes, written);
    }

    async fn now(&mut self) -> OpResult<Timestamp> {
        if self.now.is_none() {
            self.send(SqlBatch::new().with_time(), self.kind == TransactionKind::Autocommit).await?;
        }
        Ok(self.now.unwrap_or_default())
    }
}

/// Returns a random number that identifies a transaction.
pub(super) fn commit_mark() -> i64 {
    i64::from_ne_bytes(super::random().to_ne_bytes())
}

/// Returns a statement that stores a new commit mark, and the query for this mark. A transaction uses them if its other
/// writes cannot show whether it was committed.
pub(super) fn commit_mark_statements(now: Timestamp) -> (Sql<'static>, Sql<'static>) {
    let mark = commit_mark();
    let done = Sql::new("INSERT INTO epitome.done (mark, at) VALUES ($1, $2)", [mark.into(), now.into()]);
    (done, Sql::new("SELECT 1 FROM epitome.done WHERE mark = $1", [mark.into()]))
}

impl Postgres {
    /// Returns whether a transaction was committed. Waits if the transaction is still running, which is possible for a
    /// while after its connection broke.
    ///
    /// PostgreSQL may forget in a crash that it assigned a transaction id, and then assign the same id again. So if the
    /// server reports that the id was never assigned, the transaction was lost in a crash. If the server reports the id
    /// as committed, it may be the id of another transaction, so `commit_check` is run too.
    async fn was_committed(&self, xid: &str, commit_check: &Sql<'_>) -> OpResult<bool> {
        let done: Result<_, StoreError> = retry!(self.retries(), async {
            let status = Sql::new("SELECT coalesce(pg_xact_status($1::xid8), '')", [xid.into()]);
            let mut tx = PgTransaction::autocommit(self);
            match executor::first(&mut tx, status, |row| row.string(0)).await {
                Ok(Some(status)) if status == "committed" => {
                    Ok(executor::first(&mut tx, commit_check.clone(), |_| Ok(())).await?.is_some())
                }
                Ok(Some(status)) if status == "aborted" => Ok(false),
                Ok(_) => Err(OpError::ConnectionLost(
                    "it is unclear whether the last change was committed".to_owned(),
                )),
                Err(OpError::InvalidValue) => Ok(false),
                Err(error) => Err(error),
            }
        });
        Ok(done?)
    }
}
