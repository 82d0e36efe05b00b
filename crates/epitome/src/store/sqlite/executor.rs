//! Implements [`Executor`] for SQLite, on a connection inside a transaction. The futures of this executor never wait.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use epitome_core::message::Timestamp;
use rusqlite::types::{ToSqlOutput, Value as SqlValue, ValueRef};
use rusqlite::{Connection, Row, ToSql, params_from_iter};

use super::super::changes::{Changes, SessionState};
use super::super::decode::{ReadRow, json};
use super::super::events::NEWEST_NUMBER;
use super::super::executor::{Executor, SqlBatch};
use super::super::rows::{SessionId, SessionKey};
use super::super::sql::Sql;
use super::super::sql_params::SqlParam;
use super::error::{OpResult, WRONG_TYPE, damaged, rejected};
use super::session_cache::SessionCache;

/// A connection, borrowed for one operation.
pub(in crate::store) struct SqliteExecutor<'c> {
    pub(in crate::store) db: &'c mut Connection,
    pub(in crate::store) cache: &'c SessionCache,
    pub(in crate::store) now: Timestamp,
}

impl SqliteExecutor<'_> {
    fn run_batch(&mut self, batch: SqlBatch<'_>) -> OpResult<()> {
        for (sql, mut each) in batch.statements {
            let mut statement = self.db.prepare_cached(&sql.for_sqlite())?;
            let mut rows = statement.query(params_from_iter(&sql.params))?;
            while let Some(row) = rows.next()? {
                if let Some(each) = &mut each
                    && !each(row)?
                {
                    break;
                }
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Executor for SqliteExecutor<'_> {
    async fn run(&mut self, batch: SqlBatch<'_>) -> OpResult<()> {
        self.run_batch(batch)
    }

    /// Does not commit. The owner of the connection commits after the operation.
    async fn finish(&mut self, batch: SqlBatch<'_>) -> OpResult<()> {
        self.run_batch(batch)
    }

    async fn finish_checked(&mut self, batch: SqlBatch<'_>, _: Option<Sql<'_>>) -> OpResult<()> {
        self.run_batch(batch)
    }

    fn in_file(&self) -> bool {
        true
    }

    fn take_cached(&mut self, key: &SessionKey) -> Option<SessionState> {
        self.cache.take(key, self.now)
    }

    fn has_cached_member(&self, session: SessionId, name: &Arc<str>) -> bool {
        self.cache.has_member(session, name)
    }

    fn on_decided(
        &mut self,
        key: &SessionKey,
        state: SessionState,
        changes: Option<Changes>,
        written: Option<SessionId>,
    ) {
        if let (Some(changes), Some(id)) = (&changes, written) {
            self.cache.add_members(id, &changes.members);
        }
        self.cache.put(key, state, changes);
    }

    fn evict(&mut self, key: &SessionKey) {
        self.cache.evict(key);
    }

    fn next_event_number(&mut self, workspace: &Arc<str>) -> OpResult<Option<i64>> {
        let last = || Ok(self.db.prepare_cached(NEWEST_NUMBER)?.query_row([workspace], |row| row.get(0))?);
        self.cache.next_event_number(workspace, last).map(Some)
    }

    async fn now(&mut self) -> OpResult<Timestamp> {
        Ok(self.now)
    }
}

/// Returns the result of a future that never waits.
pub(in crate::store) fn ready_result<T>(future: impl Future<Output = OpResult<T>>) -> OpResult<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => Err(rejected("internal error: a SQLite operation did not finish at once")),
    }
}

impl ReadRow for Row<'_> {
    fn maybe_int(&self, at: usize) -> OpResult<Option<i64>> {
        match self.get_ref(at)? {
            ValueRef::Null => Ok(None),
            ValueRef::Integer(value) => Ok(Some(value)),
            _ => Err(damaged(WRONG_TYPE)),
        }
    }

    fn maybe_text(&self, at: usize) -> OpResult<Option<&str>> {
        match self.get_ref(at)? {
            ValueRef::Null => Ok(None),
            ValueRef::Text(text) => std::str::from_utf8(text).map(Some).map_err(|_| damaged(WRONG_TYPE)),
            _ => Err(damaged(WRONG_TYPE)),
        }
    }

    fn bytes(&self, at: usize) -> OpResult<&[u8]> {
        self.get_ref(at)?.as_blob().map_err(|_| damaged(WRONG_TYPE))
    }
}

impl ToSql for SqlParam<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Int(value) => ToSqlOutput::Owned(value.map_or(SqlValue::Null, SqlValue::Integer)),
            Self::Bool(value) => ToSqlOutput::Owned(SqlValue::Integer((*value).into())),
            Self::Text(None) => ToSqlOutput::Owned(SqlValue::Null),
            Self::Text(Some(text)) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Self::Bytes(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
            // Lists are passed as JSON arrays.
            Self::Ints(values) => ToSqlOutput::Owned(SqlValue::Text(json(values))),
            Self::Texts(values) => ToSqlOutput::Owned(SqlValue::Text(json(values))),
            _ => return Err(rusqlite::Error::ToSqlConversionFailure("unsupported list type".into())),
        })
    }
}
