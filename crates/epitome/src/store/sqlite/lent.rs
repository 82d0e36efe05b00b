//! Implements [`Ask`] for SQLite: a connection inside a transaction, which answers without waiting.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use epitome_core::message::Timestamp;
use rusqlite::types::{ToSqlOutput, Value as SqlValue, ValueRef};
use rusqlite::{Connection, Row, ToSql, params_from_iter};

use super::super::ask::{Ask, Batch};
use super::super::changes::{Changes, Standing};
use super::super::decode::{ReadRow, json};
use super::super::events::NEWEST;
use super::super::given::Given;
use super::super::rows::{SessionId, SessionKey};
use super::super::sql::Sql;
use super::error::{NOT_OF_ITS_KIND, Outcome, nonsense, refused};
use super::known::Known;

/// A connection, borrowed for one operation.
pub(in crate::store) struct Lent<'c> {
    pub(in crate::store) db: &'c mut Connection,
    pub(in crate::store) known: &'c Known,
    pub(in crate::store) now: Timestamp,
}

impl Lent<'_> {
    fn run(&mut self, batch: Batch<'_>) -> Outcome<()> {
        for (sql, mut each) in batch.steps {
            let mut statement = self.db.prepare_cached(&sql.for_sqlite())?;
            let mut rows = statement.query(params_from_iter(&sql.given))?;
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
impl Ask for Lent<'_> {
    async fn ask(&mut self, batch: Batch<'_>) -> Outcome<()> {
        self.run(batch)
    }

    /// Does not commit: the caller that lent the connection does.
    async fn finish(&mut self, batch: Batch<'_>) -> Outcome<()> {
        self.run(batch)
    }

    async fn finish_by(&mut self, batch: Batch<'_>, _: Option<Sql<'_>>) -> Outcome<()> {
        self.run(batch)
    }

    fn in_file(&self) -> bool {
        true
    }

    fn remembered(&mut self, key: &SessionKey) -> Option<Standing> {
        self.known.take(key, self.now)
    }

    fn is_member(&self, session: SessionId, name: &Arc<str>) -> bool {
        self.known.is_member(session, name)
    }

    fn decided(
        &mut self,
        key: &SessionKey,
        standing: Standing,
        changes: Option<Changes>,
        written: Option<SessionId>,
    ) {
        if let (Some(changes), Some(id)) = (&changes, written) {
            self.known.keep_members(id, &changes.members);
        }
        self.known.keep(key, standing, changes);
    }

    fn forget(&mut self, key: &SessionKey) {
        self.known.forget(key);
    }

    fn number_event(&mut self, workspace: &Arc<str>) -> Outcome<Option<i64>> {
        let last = || Ok(self.db.prepare_cached(NEWEST)?.query_row([workspace], |row| row.get(0))?);
        self.known.number_event(workspace, last).map(Some)
    }

    async fn now(&mut self) -> Outcome<Timestamp> {
        Ok(self.now)
    }
}

/// Returns the result of a future that never waits.
pub(in crate::store) fn done<T>(future: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => Err(refused("internal error: a SQLite operation did not finish at once")),
    }
}

impl ReadRow for Row<'_> {
    fn maybe_int(&self, at: usize) -> Outcome<Option<i64>> {
        match self.get_ref(at)? {
            ValueRef::Null => Ok(None),
            ValueRef::Integer(value) => Ok(Some(value)),
            _ => Err(nonsense(NOT_OF_ITS_KIND)),
        }
    }

    fn maybe_text(&self, at: usize) -> Outcome<Option<&str>> {
        match self.get_ref(at)? {
            ValueRef::Null => Ok(None),
            ValueRef::Text(text) => {
                std::str::from_utf8(text).map(Some).map_err(|_| nonsense(NOT_OF_ITS_KIND))
            }
            _ => Err(nonsense(NOT_OF_ITS_KIND)),
        }
    }

    fn bytes(&self, at: usize) -> Outcome<&[u8]> {
        self.get_ref(at)?.as_blob().map_err(|_| nonsense(NOT_OF_ITS_KIND))
    }
}

impl ToSql for Given<'_> {
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
