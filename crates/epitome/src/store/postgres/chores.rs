//! What a node does by the clock, whatever else it does: removing what was deleted, forgetting old keys, letting go of old
//! events. A bounded piece at a time; two nodes that do the same piece do it once.
//!
//! It notices too that a SQLite file is being moved into its database, and stops: a database can be half moved whichever
//! program opens it.

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

/// So many deleted sessions are removed at most before anything else is done.
const GONE: usize = 1_000;

/// Nobody asks for so long whether a change was done.
const MARKED_MILLIS: i64 = 60 * 60 * 1_000;

/// How often it is looked for what nobody says.
const SWEEP_EVERY: Duration = Duration::from_secs(20);

/// Works for as long as it is polled. Whoever deletes something wakes it.
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
    // Whoever writes goes first.
    sleep(store.options.index_pause).await;
    if store.look_for_a_move().await.is_err() {
        return;
    }
    // What fails is tried again at the next sweep, and keeps nothing else from being done.
    let _ = remove_all(store).await;
    if sweeps {
        let _ = give_up_and_forget(store).await;
        let _ = number(store).await;
    }
}

/// Sessions that were deleted.
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

/// Copies that nobody goes on with, keys of appends and marks of changes that were done long ago.
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

/// Nobody may ever ask what happened: it is numbered and the oldest let go of all the same.
async fn number(store: &Postgres) -> Outcome<()> {
    let sql = "SELECT workspace FROM epitome.told GROUP BY workspace HAVING count(*) > 1000 LIMIT 100";
    for workspace in ask::all(&mut Asking::alone(store), Sql::new(sql, []), |row| row.string(0)).await? {
        while store.number_once(&workspace).await? {}
    }
    Ok(())
}

/// So many are numbered at a time.
const NUMBERED: i64 = 5_000;

impl Postgres {
    /// An error where a move into it was begun and is not finished. Gives when the last one began.
    pub(super) async fn refuse_half_moved(&self) -> Result<Option<i64>, StoreError> {
        let last: Result<_, StoreError> = again!(self.tries(), self.last_move());
        let last = last?;
        if last.is_some_and(|(_, finished)| !finished) {
            let reason = "a SQLite file is being moved into it, and that is not finished; let `epitome migrate` go on \
                          until it is"
                .to_owned();
            return Err(StoreError::Unreachable { path: self.place.to_string(), reason });
        }
        Ok(last.map(|(begun, _)| begun))
    }

    /// When the last move into it began, and whether it is finished.
    async fn last_move(&self) -> Outcome<Option<(i64, bool)>> {
        let sql = Sql::new("SELECT begun, finished IS NOT NULL FROM epitome.moving", []);
        ask::first(&mut Asking::alone(self), sql, |row| Ok((row.int(0)?, row.flag(1)?))).await
    }

    /// An error where a move was begun since it was opened. Whoever writes meanwhile notices by itself; this is for whoever
    /// only reads, or was asleep.
    pub(super) async fn look_for_a_move(&self) -> Outcome<()> {
        if self.last_move().await?.map(|(begun, _)| begun) == self.moved {
            return Ok(());
        }
        self.noticed.moved.store(true, Ordering::Release);
        Err(Trouble::Moving)
    }

    /// Numbers all that have none, where there are any.
    pub(super) async fn number_told(&self, workspace: &str) -> Outcome<()> {
        let untold = Sql::new("SELECT 1 FROM epitome.told WHERE workspace = $1 LIMIT 1", [workspace.into()]);
        let mut more = ask::first(&mut Asking::alone(self), untold, |_| Ok(())).await?.is_some();
        while more {
            more = self.number_once(workspace).await?;
        }
        Ok(())
    }

    /// Numbers what has no number yet, oldest first, and lets go of what is too old. Tells whether there was more than that:
    /// what comes meanwhile is no reason to go on, or who asks under load would never hear.
    pub(super) async fn number_once(&self, workspace: &str) -> Outcome<bool> {
        // One at a time; whoever makes sessions or reads settings does not wait.
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
        // What has a number has it, and what has none is given one the next time.
        asking.finish_by(Batch::new(), None).await?;
        Ok(numbered.is_some_and(|numbered| numbered >= NUMBERED))
    }
}
