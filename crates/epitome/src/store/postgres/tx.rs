//! Transactions that are done once, whatever becomes of the connection.

use std::time::Duration;

use epitome_core::message::Timestamp;
use tokio_postgres::Row;

use super::Postgres;
use super::error::{Outcome, Trouble, nonsense};
use super::pipe::{Link, Pipe};

/// The moment, and what the transaction is known by: with that, whoever lost the connection asks what became of it.
const NOW_AND_NUMBER: &str =
    "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, pg_current_xact_id()::text";

/// The moment.
pub(super) const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";

const WRITING: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";
const READING: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// A transaction under way.
pub(super) struct Tx<'s> {
    store: &'s Postgres,
    link: Link,
    /// The moment, by the store's clock, after what it began with was read.
    pub(super) now: Timestamp,
    number: String,
}

impl<'s> Tx<'s> {
    /// Begins one that writes, and reads this with the same message: each statement sees what was there when the one
    /// before it was done, so what comes after a lock is as fresh as the lock.
    pub(super) async fn write(store: &'s Postgres, reads: Pipe<'_>) -> Outcome<(Self, Vec<Vec<Row>>)> {
        Self::begin(store, WRITING, reads.then(NOW_AND_NUMBER, [])).await
    }

    /// Begins one that sees a single state throughout.
    pub(super) async fn read(store: &'s Postgres, reads: Pipe<'_>) -> Outcome<(Self, Vec<Vec<Row>>)> {
        Self::begin(store, READING, reads.then(NOW, [])).await
    }

    async fn begin(
        store: &'s Postgres,
        begin: &'static str,
        reads: Pipe<'_>,
    ) -> Outcome<(Self, Vec<Vec<Row>>)> {
        let mut link = store.link().await?;
        let mut reads = reads;
        let mut ahead = 1;
        if !link.named {
            // Nothing that is set for a connection stays with it behind a pooler.
            reads = reads.first(store.limits.clone());
            ahead = 2;
        }
        let mut found = link.run(&reads.first(begin)).await?;
        let last = found.pop().unwrap_or_default();
        let row = last.first().ok_or_else(|| nonsense("the database does not tell the time"))?;
        let now = store.moment(row.try_get(0)?);
        let number = if row.len() > 1 { row.try_get(1)? } else { String::new() };
        found.drain(..ahead);
        Ok((Self { store, link, now, number }, found))
    }

    /// Reads this, all of it as of one moment, with a single message there and back.
    pub(super) async fn whole(store: &'s Postgres, reads: Pipe<'_>) -> Outcome<(Timestamp, Vec<Vec<Row>>)> {
        let (mut tx, mut found) = Self::begin(store, READING, reads.then("COMMIT", []).then(NOW, [])).await?;
        tx.link.rests();
        found.pop();
        Ok((tx.now, found))
    }

    /// Has statements take as long as they need: for whoever looks everything through.
    pub(super) async fn take_your_time(&mut self) -> Outcome<()> {
        self.ask(Pipe::new().then("SET LOCAL statement_timeout = 0", [])).await?;
        self.link.wait_for(Duration::from_secs(3_600));
        Ok(())
    }

    /// Asks for more.
    pub(super) async fn ask(&mut self, pipe: Pipe<'_>) -> Outcome<Vec<Vec<Row>>> {
        self.link.run(&pipe).await
    }

    /// Writes this, and all that was written before, for good. Where the connection breaks meanwhile it is found out
    /// whether that was done.
    pub(super) async fn commit(self, writes: Pipe<'_>) -> Outcome<()> {
        let mark = i64::from_ne_bytes(super::random().to_ne_bytes());
        let sql = "INSERT INTO epitome.done (mark, at) VALUES ($1, $2)";
        let writes = writes.then(sql, [mark.into(), self.now.into()]);
        let mark = Pipe::new().then("SELECT 1 FROM epitome.done WHERE mark = $1", [mark.into()]);
        self.commit_marked(writes, mark).await
    }

    /// The same where something is written anyway by which it is known again: `mark` asks for it, and has an answer only
    /// where this very transaction was done.
    pub(super) async fn commit_marked(mut self, writes: Pipe<'_>, mark: Pipe<'_>) -> Outcome<()> {
        let number = std::mem::take(&mut self.number);
        let store = self.store;
        match self.commit_again(writes).await {
            Err(Trouble::Lost(why)) => {
                if store.was_committed(&number, &mark).await? {
                    Ok(())
                } else {
                    Err(Trouble::Lost(why))
                }
            }
            done => done,
        }
    }

    /// The same for what does no harm when it is done twice: where the connection breaks, it is to be done again.
    pub(super) async fn commit_again(mut self, writes: Pipe<'_>) -> Outcome<()> {
        let done = self.link.run(&writes.then("COMMIT", [])).await;
        if !matches!(done, Err(Trouble::Lost(_))) {
            // Either way the transaction is over: after an error COMMIT takes it back.
            self.link.rests();
        }
        done.map(|_| ())
    }

    /// Ends one that only read, with a last question.
    pub(super) async fn finish(mut self, pipe: Pipe<'_>) -> Outcome<Vec<Vec<Row>>> {
        let found = self.link.run(&pipe.then("COMMIT", [])).await?;
        self.link.rests();
        Ok(found)
    }

    /// Takes it back.
    pub(super) async fn give_up(mut self) -> Outcome<()> {
        self.link.run(&Pipe::new().then("ROLLBACK", [])).await?;
        self.link.rests();
        Ok(())
    }
}

impl Postgres {
    /// What became of a transaction. One whose connection broke may be under way for a while.
    ///
    /// That a number was given is not written down: a server that crashed gives those again that were not used by then.
    /// So one that was not given yet was given before the crash, and what it stood for is lost. And one that is told to
    /// be committed may be somebody else's: the mark says whose.
    async fn was_committed(&self, number: &str, mark: &Pipe<'_>) -> Outcome<bool> {
        let mut tries = self.tries();
        loop {
            let asked = Pipe::new().then("SELECT pg_xact_status($1::xid8)", [number.into()]);
            let trouble = match self.once(asked).await {
                Ok(found) => match found.first().and_then(|rows| rows.first()).map(|row| row.try_get(0)) {
                    Some(Ok(Some("committed"))) => match self.asked(mark).await {
                        Ok(found) => return Ok(found.iter().any(|rows| !rows.is_empty())),
                        Err(trouble) => trouble,
                    },
                    Some(Ok(Some("aborted"))) => return Ok(false),
                    _ => Trouble::Lost("whether the last change was done is not known".to_owned()),
                },
                Err(Trouble::Unfit) => return Ok(false),
                Err(trouble) => trouble,
            };
            tries.after(trouble).await?;
        }
    }

    /// Sends it once, outside of any transaction.
    pub(super) async fn once(&self, pipe: Pipe<'_>) -> Outcome<Vec<Vec<Row>>> {
        self.asked(&pipe).await
    }

    async fn asked(&self, pipe: &Pipe<'_>) -> Outcome<Vec<Vec<Row>>> {
        let mut link = self.link().await?;
        let found = link.run_alone(pipe, &self.limits).await;
        // What the database refused is over as well; what was not heard of is not.
        if !matches!(found, Err(Trouble::Lost(_))) {
            link.rests();
        }
        found
    }
}
