//! PostgreSQL as the shared code asks it: a transaction that begins with the first question and ends with the last.

use std::sync::atomic::Ordering;

use async_trait::async_trait;
use epitome_core::message::Timestamp;

use super::super::ask::{Ask, Backend, Batch, Each, Op, Way};
use super::super::asked::{Hit, Look, Portion, Search, View, Window};
use super::super::changes::{Decide, Load};
use super::super::error::StoreError;
use super::super::rows::{SessionId, SessionKey};
use super::super::slots::{Lease, Want};
use super::super::sql::Sql;
use super::error::{Outcome, Trouble};
use super::pipe::Pipe;
use super::rows::first;
use super::tx::{NOW, Tx};
use super::{Postgres, again};

/// Whether a transaction writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reads,
    Writes,
}

/// A transaction, from before its first question.
pub(super) struct Asking<'s> {
    store: &'s Postgres,
    kind: Kind,
    tx: Option<Tx<'s>>,
    now: Option<Timestamp>,
}

impl<'s> Asking<'s> {
    pub(super) fn reads(store: &'s Postgres) -> Self {
        Self { store, kind: Kind::Reads, tx: None, now: None }
    }

    pub(super) fn writes(store: &'s Postgres) -> Self {
        Self { store, kind: Kind::Writes, tx: None, now: None }
    }

    /// Has statements take as long as they need: for whoever looks everything through.
    pub(super) async fn take_your_time(&mut self) -> Outcome<()> {
        self.run(Pipe::new(), Vec::new()).await?;
        match &mut self.tx {
            Some(tx) => tx.take_your_time().await,
            None => Ok(()),
        }
    }

    /// Ends it where that was not done: what it wrote is taken back. After an error too, so that the connection can be used
    /// again.
    pub(super) async fn ended<T>(self, done: Outcome<T>) -> Outcome<T> {
        let Some(tx) = self.tx else { return done };
        match done {
            Ok(done) => tx.give_up().await.map(|()| done),
            Err(Trouble::Lost(why)) => Err(Trouble::Lost(why)),
            Err(trouble) => {
                let _ = tx.give_up().await;
                Err(trouble)
            }
        }
    }

    async fn run(&mut self, pipe: Pipe<'_>, each: Wanted<'_>) -> Outcome<()> {
        let found = match &mut self.tx {
            Some(tx) => tx.ask(pipe).await?,
            None => {
                let begun = match self.kind {
                    Kind::Reads => Tx::read(self.store, pipe).await?,
                    Kind::Writes => Tx::write(self.store, pipe).await?,
                };
                self.now = Some(begun.0.now);
                self.tx = Some(begun.0);
                begun.1
            }
        };
        given(&found, each)
    }

    /// The transaction, which is over with what is done next.
    async fn taken(&mut self) -> Outcome<Tx<'s>> {
        match self.tx.take() {
            Some(tx) => Ok(tx),
            None => {
                let (tx, _) = Tx::write(self.store, Pipe::new()).await?;
                self.now = Some(tx.now);
                Ok(tx)
            }
        }
    }
}

/// Who wants the rows of each statement.
type Wanted<'a> = Vec<Option<Each<'a>>>;

fn split(batch: Batch<'_>) -> (Pipe<'_>, Wanted<'_>) {
    let (mut pipe, mut wanted) = (Pipe::new(), Vec::with_capacity(batch.steps.len()));
    for (sql, each) in batch.steps {
        pipe.add(sql);
        wanted.push(each);
    }
    (pipe, wanted)
}

/// Gives rows to those who want them.
fn given(found: &[Vec<tokio_postgres::Row>], wanted: Wanted<'_>) -> Outcome<()> {
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

#[async_trait]
impl Ask for Asking<'_> {
    async fn ask(&mut self, batch: Batch<'_>) -> Outcome<()> {
        let (pipe, wanted) = split(batch);
        self.run(pipe, wanted).await
    }

    async fn finish(&mut self, batch: Batch<'_>) -> Outcome<()> {
        let timed = batch.timed;
        let (pipe, wanted) = split(batch);
        match (self.kind, self.tx.take()) {
            // One statement is as of one moment without a transaction around it.
            (Kind::Reads, None) if wanted.len() == 1 && !timed => {
                given(&self.store.once(pipe).await?, wanted)
            }
            (Kind::Reads, None) => {
                let (now, found) = Tx::whole(self.store, pipe).await?;
                self.now = Some(now);
                given(&found, wanted)
            }
            (Kind::Reads, Some(tx)) => given(&tx.finish(pipe).await?, wanted),
            (Kind::Writes, tx) => {
                self.tx = tx;
                self.taken().await?.commit(pipe).await
            }
        }
    }

    async fn finish_by(&mut self, batch: Batch<'_>, known: Option<Sql<'_>>) -> Outcome<()> {
        let (pipe, _) = split(batch);
        let tx = self.taken().await?;
        match known {
            Some(known) => tx.commit_marked(pipe, Pipe::new().and(known)).await,
            None => tx.commit_again(pipe).await,
        }
    }

    fn mark(&self) -> Option<i64> {
        Some(i64::from_ne_bytes(super::random().to_ne_bytes()))
    }

    async fn now(&mut self) -> Outcome<Timestamp> {
        if let Some(now) = self.now {
            return Ok(now);
        }
        if self.kind == Kind::Writes {
            self.run(Pipe::new(), Vec::new()).await?;
        } else {
            let now = first(&self.store.once(Pipe::new().then(NOW, [])).await?, |row| row.int(0))?;
            self.now = Some(self.store.moment(now.unwrap_or_default()));
        }
        Ok(self.now.unwrap_or_default())
    }
}

impl Backend for Postgres {
    async fn change(
        &self,
        key: &SessionKey,
        load: Load,
        decide: Decide,
    ) -> Result<Option<SessionId>, StoreError> {
        // Whoever waits for a turn is waiting: all that write to a session lose patience each by itself, not in turn.
        let mut tries = self.tries();
        loop {
            match self.change_in_turn(key, (&load, &decide), tries.until()).await {
                Ok(done) => return Ok(done),
                Err(trouble) => tries.after(trouble).await?,
            }
        }
    }

    async fn window(&self, key: &SessionKey, view: View, look: Look) -> Result<Option<Window>, StoreError> {
        self.read_window(key, &view, &look).await
    }

    async fn search(&self, search: Search) -> Result<Portion<Hit>, StoreError> {
        again!(self, self.search_once(&search))
    }

    async fn lease(&self, want: Want) -> Result<Option<Lease>, StoreError> {
        again!(self, self.lease_once(&want))
    }

    async fn nudged(&self) {
        if !self.noticed.pooler.load(Ordering::Acquire) {
            self.hints.heard.notified().await;
        } else {
            std::future::pending::<()>().await;
        }
    }

    async fn number_all(&self, workspace: &str) -> Result<(), StoreError> {
        self.number_told(workspace).await
    }

    fn deleted(&self, key: &SessionKey) {
        self.known.forget(key);
        self.chores.notify_one();
    }

    fn revealed(&self, copy: SessionId) {
        self.behind.add(copy);
        self.hints.tell.notify_one();
    }

    async fn run<A: Send + Sync + 'static, T: Send + 'static>(
        &self,
        way: Way,
        args: A,
        op: Op<A, T>,
    ) -> Result<T, StoreError> {
        again!(self, async {
            let mut asking = match way {
                Way::Reads | Way::ReadsHere => Asking::reads(self),
                Way::Writes | Way::Notes => Asking::writes(self),
            };
            let done = op(&args, &mut asking).await;
            asking.ended(done).await
        })
    }
}
