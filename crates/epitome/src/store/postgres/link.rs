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

use super::super::given::Given;
use super::super::sql::Sql;
use super::error::{Outcome, Trouble, silent};

/// The result of one statement.
type Answer = Result<Vec<Row>, tokio_postgres::Error>;

/// What any connection has noticed about the database.
#[derive(Debug, Default)]
pub(super) struct Noticed {
    /// There is a pooler in transaction mode: the next statement may reach another backend.
    pub(super) pooler: AtomicBool,
    /// A move of a file into the database has begun since it was opened, so its content has changed.
    pub(super) moved: AtomicBool,
}

/// A connection from the pool. If it is dropped while busy, it is closed, so that no other operation finds an
/// unfinished transaction on it.
pub(super) struct Link {
    object: Option<Object>,
    /// Whether statements can be prepared by name, which they cannot behind a pooler.
    pub(super) named: bool,
    noticed: Arc<Noticed>,
    /// Timeout for an answer. The database's own timeout is shorter; this one applies when the database does not
    /// answer.
    limit: Duration,
    /// Whether a transaction may be open.
    busy: bool,
}

impl Link {
    pub(super) fn new(object: Object, noticed: &Arc<Noticed>, limit: Duration) -> Self {
        let (noticed, named) = (Arc::clone(noticed), !noticed.pooler.load(Ordering::Acquire));
        Self { object: Some(object), named, noticed, limit, busy: false }
    }

    /// Marks the connection as idle: no transaction is open.
    pub(super) fn rests(&mut self) {
        self.busy = false;
    }

    /// Sets the timeout for answers from now on.
    pub(super) fn wait_for(&mut self, limit: Duration) {
        self.limit = limit;
    }

    /// Sends all statements, and waits for all answers. If several fail, returns the error of the first.
    pub(super) async fn run(&mut self, steps: &[Sql<'_>]) -> Outcome<Vec<Vec<Row>>> {
        let outcome = self.sent(steps).await;
        match &outcome {
            Err(Trouble::Nameless) if self.named => {
                // There is a pooler after all. The state of the transaction on this connection is not clear, so it is
                // abandoned.
                self.noticed.pooler.store(true, Ordering::Release);
                self.object.take().map(Object::take);
                return Err(Trouble::Again);
            }
            Err(Trouble::Moving) => self.noticed.moved.store(true, Ordering::Release),
            _ => {}
        }
        outcome
    }

    async fn sent(&mut self, steps: &[Sql<'_>]) -> Outcome<Vec<Vec<Row>>> {
        self.busy = true;
        let (limit, named) = (self.limit, self.named);
        let Some(object) = &self.object else {
            return Err(Trouble::Lost("the connection is gone".to_owned()));
        };
        match timeout(limit, send(object, named, steps)).await {
            Ok(found) => found,
            Err(_) => {
                // Idle connections use the same network route. Close them, so that the next try opens a new one.
                if let Some(pool) = Object::pool(object) {
                    pool.retain(|_, _| false);
                }
                Err(silent(limit))
            }
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.busy
            && let Some(object) = self.object.take()
        {
            drop(Object::take(object));
        }
    }
}

/// Sends statements. All are prepared before the first is sent, so that they arrive in order.
async fn send(object: &Object, named: bool, steps: &[Sql<'_>]) -> Outcome<Vec<Vec<Row>>> {
    let mut running: Vec<Pin<Box<dyn Future<Output = Answer> + Send + '_>>> = Vec::with_capacity(steps.len());
    for step in steps {
        let (text, given) = (step.for_postgres(), &step.given);
        if named {
            let kinds: Vec<Type> = given.iter().map(Given::kind).collect();
            let statement = object.prepare_typed_cached(&text, &kinds).await?;
            running.push(Box::pin(async move {
                let values: Vec<&(dyn ToSql + Sync)> = given.iter().map(Given::value).collect();
                object.query(&statement, &values).await
            }));
        } else {
            running.push(Box::pin(async move {
                let values: Vec<_> = given.iter().map(|given| (given.value(), given.kind())).collect();
                object.query_typed(&text, &values).await
            }));
        }
    }
    let mut answers: Vec<Option<Answer>> = running.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut all = Poll::Ready(());
        for (future, answer) in running.iter_mut().zip(&mut answers) {
            if answer.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(given) => *answer = Some(given),
                    Poll::Pending => all = Poll::Pending,
                }
            }
        }
        all
    })
    .await;
    Ok(answers.into_iter().flatten().collect::<Result<_, _>>()?)
}
