//! Maintenance that a node does at intervals: it removes deleted sessions, expired idempotency keys and old events, one
//! bounded step at a time. Two nodes that do the same step do it once.
//!
//! It also detects that a SQLite file is being moved into the database, which any program can start, and does nothing
//! from then on.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::super::ask::{self, Ask, Batch};
use super::super::copy::{REMOVE_CHUNK, forget_old, give_up_old, remove};
use super::super::error::StoreError;
use super::super::events::KEPT;
use super::super::rows::SessionId;
use super::super::sql::Sql;
use super::asking::Asking;
use super::error::{Outcome, Trouble};
use super::{Postgres, again};

/// Maximum number of deleted sessions that are removed before other maintenance.
const GONE: usize = 1_000;

/// How long commit marks are stored. No node queries whether a change was committed after this time.
const MARKED_MILLIS: i64 = 60 * 60 * 1_000;

/// Interval of maintenance that no notification triggers.
const SWEEP_EVERY: Duration = Duration::from_secs(20);

/// Does maintenance for as long as it is polled. A deleted session wakes it.
pub(super) async fn run(store: Postgres) {
    let mut due = Instant::now() + SWEEP_EVERY;
    loop {
        let sweeps = timeout_at(due, store.chores.notified()).await.is_err() || Instant::now() >= due;
        if sweeps {
            due = Instant::now() + SWEEP_EVERY;
        }
        some(&store, sweeps).await;
    }
}

async fn some(store: &Postgres, sweeps: bool) {
    // Let writers go first.
    sleep(store.options.index_pause).await;
    if store.look_for_a_move().await.is_err() {
        return;
    }
    // A failed step is retried in the next sweep, and does not stop the others.
    let _ = remove_all(store).await;
    if sweeps {
        let _ = give_up_and_forget(store).await;
        let _ = number(store).await;
    }
}

/// Removes deleted sessions.
async fn remove_all(store: &Postgres) -> Outcome<()> {
    let sql = "SELECT id FROM epitome.sessions WHERE state <> 'open' AND state = 'gone' ORDER BY id LIMIT $1";
    let sql = Sql::new(sql, [GONE.into()]);
    let gone = ask::all(&mut Asking::alone(store), sql, |row| row.int(0)).await?;
    for session in &gone {
        while remove_piece(store, *session).await? {}
    }
    if gone.len() >= GONE {
        store.chores.notify_one();
    }
    Ok(())
}

async fn remove_piece(store: &Postgres, session: SessionId) -> Outcome<bool> {
    let mut asking = Asking::writes(store);
    let more = remove(&mut asking, session).await;
    asking.ended(more).await
}

/// Gives up abandoned copies, and deletes old idempotency keys and commit marks.
async fn give_up_and_forget(store: &Postgres) -> Outcome<()> {
    let mut asking = Asking::writes(store);
    let now = asking.now().await?;
    asking.finish_by(Batch::new().run(give_up_old(now)), None).await?;
    let marks = "DELETE FROM epitome.done WHERE mark IN \
         (SELECT mark FROM epitome.done WHERE at < $1 ORDER BY at LIMIT $2) RETURNING 1";
    let marks = Sql::new(marks, [now.0.saturating_sub(MARKED_MILLIS).into(), REMOVE_CHUNK.into()]);
    for forget in [forget_old(now), marks] {
        let mut forgotten = REMOVE_CHUNK;
        while forgotten >= REMOVE_CHUNK {
            forgotten = 0;
            let sql = forget.clone();
            Asking::alone(store).ask(Batch::new().count(sql, &mut forgotten)).await?;
        }
    }
    Ok(())
}

/// Numbers events and deletes the oldest, even if no client ever reads them.
async fn number(store: &Postgres) -> Outcome<()> {
    let sql = "SELECT workspace FROM epitome.told GROUP BY workspace HAVING count(*) > 1000 LIMIT 100";
    for workspace in ask::all(&mut Asking::alone(store), Sql::new(sql, []), |row| row.string(0)).await? {
        while store.number_once(&workspace).await? {}
    }
    Ok(())
}

/// Maximum number of events numbered at a time.
const NUMBERED: i64 = 5_000;

impl Postgres {
    /// Fails if a move into the database has begun and is not finished. Returns when the last move began.
    pub(super) async fn refuse_half_moved(&self) -> Result<Option<i64>, StoreError> {
        let last: Result<_, StoreError> = again!(self.tries(), self.last_move());
        let last = last?;
        if last.is_some_and(|(_, finished)| !finished) {
            let reason = "a SQLite file is being moved into it, and that is not finished; run `epitome migrate` until \
                          it is"
                .to_owned();
            return Err(StoreError::Unreachable { path: self.place.to_string(), reason });
        }
        Ok(last.map(|(begun, _)| begun))
    }

    /// Returns when the last move into the database began, and whether it is finished.
    async fn last_move(&self) -> Outcome<Option<(i64, bool)>> {
        let sql = Sql::new("SELECT begun, finished IS NOT NULL FROM epitome.moving", []);
        ask::first(&mut Asking::alone(self), sql, |row| Ok((row.int(0)?, row.flag(1)?))).await
    }

    /// Fails if a move has begun since the store was opened. A node that writes meanwhile notices it anyway; this is
    /// for a node that only reads, or was suspended.
    pub(super) async fn look_for_a_move(&self) -> Outcome<()> {
        if self.last_move().await?.map(|(begun, _)| begun) == self.moved {
            return Ok(());
        }
        self.noticed.moved.store(true, Ordering::Release);
        Err(Trouble::Moving)
    }

    /// Numbers all events that have no number yet.
    pub(super) async fn number_told(&self, workspace: &str) -> Outcome<()> {
        let untold = Sql::new("SELECT 1 FROM epitome.told WHERE workspace = $1 LIMIT 1", [workspace.into()]);
        let mut more = ask::first(&mut Asking::alone(self), untold, |_| Ok(())).await?.is_some();
        while more {
            more = self.number_once(workspace).await?;
        }
        Ok(())
    }

    /// Numbers events that have no number yet, oldest first, and deletes those that are too old. Returns whether there
    /// may be more. Events that arrive meanwhile do not count, or a reader under load would wait forever.
    pub(super) async fn number_once(&self, workspace: &str) -> Outcome<bool> {
        // One node at a time. This lock does not block creating sessions or reading settings.
        let lock = "SELECT 1 FROM epitome.workspaces WHERE name = $1 FOR NO KEY UPDATE";
        let mut asking = Asking::writes(self);
        asking.ask(Batch::new().run(Sql::new(lock, [workspace.into()]))).await?;
        let number = "WITH given AS (SELECT events_given AS last FROM epitome.workspaces WHERE name = $1), \
             taken AS (DELETE FROM epitome.told WHERE workspace = $1 AND tick IN \
             (SELECT tick FROM epitome.told WHERE workspace = $1 ORDER BY tick LIMIT $2) \
             RETURNING tick, session, kind, data, at), \
             numbered AS (INSERT INTO epitome.events (workspace, id, session, kind, data, at) \
             SELECT $1, given.last + row_number() OVER (ORDER BY tick), session, kind, data, at FROM taken, given) \
             UPDATE epitome.workspaces SET events_given = events_given + (SELECT count(*) FROM taken) WHERE name = $1 \
             RETURNING (SELECT count(*) FROM taken)";
        let trim = "DELETE FROM epitome.events WHERE workspace = $1 AND id <= \
             (SELECT events_given FROM epitome.workspaces WHERE name = $1) - $2";
        let number = Sql::new(number, [workspace.into(), NUMBERED.into()]);
        let trim = Sql::new(trim, [workspace.into(), KEPT.into()]);
        let mut numbered = None;
        asking.ask(Batch::new().first(number, &mut numbered, |row| row.int(0)).run(trim)).await?;
        // Safe to repeat: events that have a number keep it, and the others get one the next time.
        asking.finish_by(Batch::new(), None).await?;
        Ok(numbered.is_some_and(|numbered| numbered >= NUMBERED))
    }
}
