//! Implements [`Ask`] for PostgreSQL: a transaction that begins with the first batch, ends with the last, and is
//! committed exactly once, even if the connection breaks.

use std::time::Duration;

use async_trait::async_trait;
use epitome_core::message::Timestamp;
use tokio_postgres::Row;

use super::super::ask::{self, Ask, Batch, Each};
use super::super::changes::{Changes, Standing};
use super::super::decode::ReadRow;
use super::super::error::StoreError;
use super::super::given::Given;
use super::super::rows::{SessionId, SessionKey};
use super::super::sql::Sql;
use super::error::{Outcome, Trouble, nonsense};
use super::link::Link;
use super::{Postgres, again};

/// Reads the time and the transaction id. If the connection breaks, the id is used to find out whether the transaction
/// was committed.
const NOW_AND_NUMBER: &str =
    "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, pg_current_xact_id()::text";

/// Reads the time.
pub(super) const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// How statements are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Each statement runs by itself.
    Alone,
    /// A transaction that reads from a single snapshot.
    Reads,
    /// A transaction that writes. Each statement sees what was committed before it began, so what is read after a lock
    /// is as fresh as the lock.
    Writes,
}

/// A transaction. It begins with its first statement.
pub(super) struct Asking<'s> {
    store: &'s Postgres,
    kind: Kind,
    /// The connection that it runs on.
    link: Option<Link>,
    /// The store's time after its first statements.
    now: Option<Timestamp>,
    /// Its id, if it writes.
    number: String,
}

/// What receives the rows of each statement.
type Wanted<'a> = Vec<Option<Each<'a>>>;

pub(super) fn split(batch: Batch<'_>) -> (Vec<Sql<'_>>, Wanted<'_>) {
    let plain = batch.steps.into_iter().map(|(mut sql, each)| {
        sql.given = sql.given.into_iter().map(Given::plain).collect();
        (sql, each)
    });
    plain.unzip()
}

/// Passes rows to their receivers.
pub(super) fn given(found: &[Vec<Row>], wanted: Wanted<'_>) -> Outcome<()> {
    for (rows, each) in found.iter().zip(wanted) {
        let Some(mut each) = each else { continue };
        for row in rows {
            if !each(row)? {
                break;
            }
        }
    }
    Ok(())
}

impl<'s> Asking<'s> {
    fn new(store: &'s Postgres, kind: Kind) -> Self {
        Self { store, kind, link: None, now: None, number: String::new() }
    }

    pub(super) fn alone(store: &'s Postgres) -> Self {
        Self::new(store, Kind::Alone)
    }

    pub(super) fn reads(store: &'s Postgres) -> Self {
        Self::new(store, Kind::Reads)
    }

    pub(super) fn writes(store: &'s Postgres) -> Self {
        Self::new(store, Kind::Writes)
    }

    /// Removes the statement timeout: for checks that read everything.
    pub(super) async fn take_your_time(&mut self) -> Outcome<()> {
        self.send(Batch::new().run(Sql::new("SET LOCAL statement_timeout = 0", [])), false).await?;
        if let Some(link) = &mut self.link {
            link.wait_for(Duration::from_secs(3_600));
        }
        Ok(())
    }

    /// Rolls the transaction back if it has not ended. Does so after an error too, so that the connection can be used
    /// again.
    pub(super) async fn ended<T>(mut self, done: Outcome<T>) -> Outcome<T> {
        let Some(mut link) = self.link.take().filter(|_| !is_lost(&done)) else { return done };
        let taken_back = link.run(&[Sql::new("ROLLBACK", [])]).await;
        if taken_back.is_ok() {
            link.rests();
        }
        let done = done?;
        taken_back.map(|_| done)
    }

    async fn send(&mut self, batch: Batch<'_>, ends: bool) -> Outcome<()> {
        let asks_time = batch.timed && self.kind == Kind::Alone;
        let (mut steps, wanted) = split(batch);
        steps.extend(asks_time.then(|| Sql::new(NOW, [])));
        let found = self.send_steps(steps, ends).await?;
        if asks_time {
            self.tell_time(found.get(wanted.len()))?;
        }
        given(&found, wanted)
    }

    /// Sends statements in one message, together with the start of the transaction if it has not begun, and with its
    /// end if `ends`.
    pub(super) async fn send_steps(&mut self, steps: Vec<Sql<'_>>, ends: bool) -> Outcome<Vec<Vec<Row>>> {
        let begins = self.link.is_none();
        let mut link = match self.link.take() {
            Some(link) => link,
            None => self.store.link().await?,
        };
        let (begin, now) = match self.kind {
            Kind::Writes => (Some("BEGIN ISOLATION LEVEL READ COMMITTED"), Some(NOW_AND_NUMBER)),
            Kind::Reads => (Some("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"), Some(NOW)),
            // Where a connection keeps no settings, the timeouts need a transaction.
            Kind::Alone => ((!link.named).then_some("BEGIN"), None),
        };
        let mut all = Vec::with_capacity(steps.len() + 4);
        if let Some(begin) = begin.filter(|_| begins) {
            all.push(Sql::new(begin, []));
            // Behind a pooler a connection keeps no settings.
            all.extend((!link.named).then(|| Sql::new(self.store.limits.clone(), [])));
        }
        let (ahead, now) = (all.len(), now.filter(|_| begins));
        all.extend(steps);
        all.extend(begin.filter(|_| ends).map(|_| Sql::new("COMMIT", [])));
        all.extend(now.map(|now| Sql::new(now, [])));
        let found = link.run(&all).await;
        if !ends {
            self.link = Some(link);
        } else if !is_lost(&found) {
            // The transaction is over in any case: after an error COMMIT rolls it back.
            link.rests();
        }
        let mut found = found?;
        if now.is_some() {
            self.tell_time(found.pop().as_ref())?;
        }
        found.drain(..ahead.min(found.len()));
        Ok(found)
    }

    /// Returns whether its first statement was sent.
    pub(super) fn begun(&self) -> bool {
        self.link.is_some()
    }

    /// Returns the store's time after its first statements.
    pub(super) fn began_at(&self) -> Option<Timestamp> {
        self.now
    }

    /// Returns whether it was committed, after the connection broke: see [`Postgres::was_committed`].
    pub(super) async fn was_committed(&self, known: &Sql<'_>) -> Outcome<bool> {
        self.store.was_committed(&self.number, known).await
    }

    fn tell_time(&mut self, rows: Option<&Vec<Row>>) -> Outcome<()> {
        let row = rows.and_then(|rows| rows.first());
        let row = row.ok_or_else(|| nonsense("the database returned no time"))?;
        self.now = Some(self.store.moment(row.int(0)?));
        if row.len() > 1 {
            self.number = row.string(1)?;
        }
        Ok(())
    }

    /// Commits these statements and all earlier ones. If the connection breaks meanwhile, this finds out whether they
    /// were committed: `known` is a query that returns a row only if this very transaction was committed. Without it,
    /// the transaction may run twice without harm.
    async fn commit(&mut self, batch: Batch<'_>, known: Option<Sql<'_>>) -> Outcome<()> {
        if self.link.is_none() {
            self.send(Batch::new(), false).await?;
        }
        match (self.send(batch, true).await, known) {
            (Err(Trouble::Lost(why)), Some(known)) => {
                let done = self.was_committed(&known).await?;
                if done { Ok(()) } else { Err(Trouble::Lost(why)) }
            }
            (done, _) => done,
        }
    }
}

fn is_lost<T>(done: &Outcome<T>) -> bool {
    matches!(done, Err(Trouble::Lost(_)))
}

#[async_trait]
impl Ask for Asking<'_> {
    async fn ask(&mut self, batch: Batch<'_>) -> Outcome<()> {
        self.send(batch, self.kind == Kind::Alone).await
    }

    async fn finish(&mut self, batch: Batch<'_>) -> Outcome<()> {
        if self.kind == Kind::Writes {
            let (done, known) = marked(self.now().await?);
            return self.commit(batch.run(done), Some(known)).await;
        }
        // A single statement sees one snapshot without a transaction around it.
        if self.link.is_none() && !batch.timed && batch.steps.len() <= 1 {
            self.kind = Kind::Alone;
        }
        self.send(batch, true).await
    }

    async fn finish_by(&mut self, batch: Batch<'_>, known: Option<Sql<'_>>) -> Outcome<()> {
        self.commit(batch, known).await
    }

    fn mark(&self) -> Option<i64> {
        Some(mark())
    }

    fn decided(
        &mut self,
        _: &SessionKey,
        standing: Standing,
        changes: Option<Changes>,
        written: Option<SessionId>,
    ) {
        self.store.decided(&standing, changes, written);
    }

    async fn now(&mut self) -> Outcome<Timestamp> {
        if self.now.is_none() {
            self.send(Batch::new().timed(), self.kind == Kind::Alone).await?;
        }
        Ok(self.now.unwrap_or_default())
    }
}

pub(super) fn mark() -> i64 {
    i64::from_ne_bytes(super::random().to_ne_bytes())
}

/// Returns the statement that marks a transaction as committed, for one that writes nothing else to recognise it by,
/// and the query for that mark.
pub(super) fn marked(now: Timestamp) -> (Sql<'static>, Sql<'static>) {
    let mark = mark();
    let done = Sql::new("INSERT INTO epitome.done (mark, at) VALUES ($1, $2)", [mark.into(), now.into()]);
    (done, Sql::new("SELECT 1 FROM epitome.done WHERE mark = $1", [mark.into()]))
}

impl Postgres {
    /// Returns whether a transaction was committed. One whose connection broke may still run for a while.
    ///
    /// Assigning a transaction id is not durable: after a crash the server assigns ids again that were not used by
    /// then. So an id that is not assigned yet was assigned before a crash, and its transaction is lost. And an id that
    /// is reported as committed may belong to another transaction, so the mark is checked too.
    async fn was_committed(&self, number: &str, known: &Sql<'_>) -> Outcome<bool> {
        let done: Result<_, StoreError> = again!(self.tries(), async {
            let status = Sql::new("SELECT coalesce(pg_xact_status($1::xid8), '')", [number.into()]);
            let mut asking = Asking::alone(self);
            match ask::first(&mut asking, status, |row| row.string(0)).await {
                Ok(Some(status)) if status == "committed" => {
                    Ok(ask::first(&mut asking, known.clone(), |_| Ok(())).await?.is_some())
                }
                Ok(Some(status)) if status == "aborted" => Ok(false),
                Ok(_) => Err(Trouble::Lost("it is unclear whether the last change was done".to_owned())),
                Err(Trouble::Unfit) => Ok(false),
                Err(trouble) => Err(trouble),
            }
        });
        Ok(done?)
    }
}
