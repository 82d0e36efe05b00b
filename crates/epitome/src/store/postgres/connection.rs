//! Connections that send several statements at once and wait for all answers.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use deadpool_postgres::Object;
use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::super::sql::Sql;
use super::super::sql_params::SqlParam;
use super::error::{OpError, OpResult, no_answer};

/// The result of one statement.
type StatementResult = Result<Vec<Row>, tokio_postgres::Error>;

/// Facts about the server that this node's connections have detected.
#[derive(Debug, Default)]
pub(super) struct ServerFlags {
    /// Whether there is a pooler in transaction mode, so that the next statement may reach another backend.
    pub(super) pooler: AtomicBool,
    /// Whether a migration of a file into the database has begun since the store was opened. The content of the
    /// database has then changed.
    pub(super) migrating: AtomicBool,
}

/// A connection from the pool. If it is dropped while busy, it is closed, so that no other operation finds an
/// unfinished transaction on it.
pub(super) struct PooledConnection {
    object: Option<Object>,
    /// Whether statements are prepared by name, which is impossible behind a pooler.
    pub(super) prepares: bool,
    server: Arc<ServerFlags>,
    /// Timeout for an answer. The database's own timeout is shorter, so this timeout applies only if the database does
    /// not answer at all.
    limit: Duration,
    /// Whether a transaction may be open.
    busy: bool,
}

impl PooledConnection {
    pub(super) fn new(object: Object, server: &Arc<ServerFlags>, limit: Duration) -> Self {
        let (server, prepares) = (Arc::clone(server), !server.pooler.load(Ordering::Acquire));
        Self { object: Some(object), prepares, server, limit, busy: false }
    }

    /// Marks the connection as idle: no transaction is open.
    pub(super) fn mark_idle(&mut self) {
        self.busy = false;
    }

    /// Sets the timeout for answers from now on.
    pub(super) fn set_timeout(&mut self, limit: Duration) {
        self.limit = limit;
    }

    /// Sends all statements, and waits for all answers. If several statements fail, returns the error of the first one
    /// that failed.
    pub(super) async fn run(&mut self, statements: &[Sql<'_>]) -> OpResult<Vec<Vec<Row>>> {
        let result = self.send_within_timeout(statements).await;
        match &result {
            Err(OpError::MissingStatement) if self.prepares => {
                // There is a pooler that was not detected before. The state of the transaction is unclear, so the
                // connection is closed.
                self.server.pooler.store(true, Ordering::Release);
                self.object.take().map(Object::take);
                return Err(OpError::Conflict);
            }
            Err(OpError::Migrating) => self.server.migrating.store(true, Ordering::Release),
            _ => {}
        }
        result
    }

    async fn send_within_timeout(&mut self, statements: &[Sql<'_>]) -> OpResult<Vec<Vec<Row>>> {
        self.busy = true;
        let (limit, prepares) = (self.limit, self.prepares);
        let Some(object) = &self.object else {
            return Err(OpError::ConnectionLost("the connection is gone".to_owned()));
        };
        match timeout(limit, send(object, prepares, statements)).await {
            Ok(rows) => rows,
            Err(_) => {
                // The pool's idle connections use the same network route. Close them, so that the next attempt opens a
                // new connection.
                if let Some(pool) = Object::pool(object) {
                    pool.retain(|_, _| false);
                }
                Err(no_answer(limit))
            }
        }
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        if self.busy
            && let Some(object) = self.object.take()
        {
            drop(Object::take(object));
        }
    }
}

/// Sends statements. All statements are prepared before the first statement is sent, so that they arrive in order.
async fn send(object: &Object, prepares: bool, statements: &[Sql<'_>]) -> OpResult<Vec<Vec<Row>>> {
    let mut pending: Vec<Pin<Box<dyn Future<Output = StatementResult> + Send + '_>>> =
        Vec::with_capacity(statements.len());
    for sql in statements {
        let (text, params) = (sql.for_postgres(), &sql.params);
        if prepares {
            let types: Vec<Type> = params.iter().map(SqlParam::sql_type).collect();
            let statement = object.prepare_typed_cached(&text, &types).await?;
            pending.push(Box::pin(async move {
                let values: Vec<&(dyn ToSql + Sync)> = params.iter().map(SqlParam::value).collect();
                object.query(&statement, &values).await
            }));
        } else {
            pending.push(Box::pin(async move {
                let values: Vec<_> = params.iter().map(|param| (param.value(), param.sql_type())).collect();
                object.query_typed(&text, &values).await
            }));
        }
    }
    let mut results: Vec<Option<StatementResult>> = pending.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut all = Poll::Ready(());
        for (future, result) in pending.iter_mut().zip(&mut results) {
            if result.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(answer) => *result = Some(answer),
                    Poll::Pending => all = Poll::Pending,
                }
            }
        }
        all
    })
    .await;
    Ok(results.into_iter().flatten().collect::<Result<_, _>>()?)
}
