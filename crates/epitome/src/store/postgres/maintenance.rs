//! Maintenance that a node does at intervals: it removes deleted sessions, expired idempotency keys and old events, one
//! bounded step at a time. If two nodes do the same step at the same time, the result is the same as if only one node
//! does it.
//!
//! The task also detects that a SQLite file is being migrated into the database. From then on, the task does nothing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::super::copy::{REMOVE_CHUNK, abandon_stale_copies, delete_expired_keys, remove_chunk};
use super::super::error::StoreError;
use super::super::events::RETAINED_EVENTS;
use super::super::executor::{self, Executor, SqlBatch};
use super::super::rows::SessionId;
use super::super::sql::Sql;
use super::error::{OpError, OpResult};
use super::transaction::PgTransaction;
use super::{Postgres, retry};

/// Maximum number of deleted sessions that are removed before other maintenance.
const MAX_DELETED: usize = 1_000;

/// How long commit marks are stored, in milliseconds: 1 hour. After this time no node checks any more whether a change
/// was committed.
const COMMIT_MARK_TTL_MILLIS: i64 = 60 * 60 * 1_000;

/// Interval of the sweep, which is the maintenance that runs without a notification.
const SWEEP_INTERVAL: Duration = Duration::from_secs(20);

/// Does maintenance until the store is closed: at intervals, and after a session was deleted.
pub(super) async fn run(store: Postgres) {
    let mut due = Instant::now() + SWEEP_INTERVAL;
    loop {
        let is_sweep = timeout_at(due, store.maintenance.notified()).await.is_err() || Instant::now() >= due;
        if is_sweep {
            due = Instant::now() + SWEEP_INTERVAL;
        }
        run_once(&store, is_sweep).await;
    }
}

async fn run_once(store: &Postgres, is_sweep: bool) {
    // Wait briefly, so that writers go first.
    sleep(store.options.index_pause).await;
    if store.check_for_migration().await.is_err() {
        return;
    }
    // A failed step is retried in the next sweep, and the other steps still run.
    let _ = remove_all(store).await;
    if is_sweep {
        let _ = delete_expired(store).await;
        let _ = number_events(store).await;
    }
}

/// Removes deleted sessions.
async fn remove_all(store: &Postgres) -> OpResult<()> {
    let sql = "SELECT id FROM epitome.sessions WHERE state <> 'open' AND state = 'gone' ORDER BY id LIMIT $1";
    let sql = Sql::new(sql, [MAX_DELETED.into()]);
    let deleted = executor::all(&mut PgTransaction::autocommit(store), sql, |row| row.int(0)).await?;
    for session in &deleted {
        while remove_one_chunk(store, *session).await? {}
    }
    if deleted.len() >= MAX_DELETED {
        store.maintenance.notify_one();
    }
    Ok(())
}

async fn remove_one_chunk(store: &Postgres, session: SessionId) -> OpResult<bool> {
    let mut tx = PgTransaction::read_write(store);
    let more = remove_chunk(&mut tx, session).await;
    tx.end(more).await
}

/// Marks abandoned copies for removal, and deletes expired idempotency keys and old commit marks.
async fn delete_expired(store: &Postgres) -> OpResult<()> {
    let mut tx = PgTransaction::read_write(store);
    let now = tx.now().await?;
    tx.finish_checked(SqlBatch::new().add(abandon_stale_copies(now)), None).await?;
    let commit_marks = "DELETE FROM epitome.done WHERE mark IN \
         (SELECT mark FROM epitome.done WHERE at < $1 ORDER BY at LIMIT $2) RETURNING 1";
    let oldest = now.0.saturating_sub(COMMIT_MARK_TTL_MILLIS);
    let commit_marks = Sql::new(commit_marks, [oldest.into(), REMOVE_CHUNK.into()]);
    for delete in [delete_expired_keys(now), commit_marks] {
        let mut deleted_rows = REMOVE_CHUNK;
        while deleted_rows >= REMOVE_CHUNK {
            deleted_rows = 0;
            let sql = delete.clone();
            PgTransaction::autocommit(store).run(SqlBatch::new().count(sql, &mut deleted_rows)).await?;
        }
    }
    Ok(())
}

/// Assigns numbers to events in workspaces that have many events without a number, and deletes the oldest events of
/// these workspaces. Usually a read does this, but in some workspaces events are never read.
async fn number_events(store: &Postgres) -> OpResult<()> {
    let sql = "SELECT workspace FROM epitome.told GROUP BY workspace HAVING count(*) > 1000 LIMIT 100";
    let mut tx = PgTransaction::autocommit(store);
    for workspace in executor::all(&mut tx, Sql::new(sql, []), |row| row.string(0)).await? {
        while store.number_some_events(&workspace).await? {}
    }
    Ok(())
}

/// Maximum number of events that get a number at a time.
const MAX_NUMBERED: i64 = 5_000;

impl Postgres {
    /// Fails if a migration into the database has begun and is not finished. Otherwise returns when the last migration
    /// began; `None` if there was none.
    pub(super) async fn refuse_unfinished_migration(&self) -> Result<Option<i64>, StoreError> {
        let last: Result<_, StoreError> = retry!(self.retries(), self.last_migration());
        let last = last?;
        if last.is_some_and(|(_, finished)| !finished) {
            let reason =
                "a SQLite file is being migrated into it; wait until `epitome migrate` is finished, or run it again if it was interrupted"
                    .to_owned();
            return Err(StoreError::Unreachable { path: self.address_text.to_string(), reason });
        }
        Ok(last.map(|(begun, _)| begun))
    }

    /// Returns when the last migration into the database began, and whether it is finished; `None` if there was none.
    async fn last_migration(&self) -> OpResult<Option<(i64, bool)>> {
        let sql = Sql::new("SELECT begun, finished IS NOT NULL FROM epitome.moving", []);
        executor::first(&mut PgTransaction::autocommit(self), sql, |row| Ok((row.int(0)?, row.flag(1)?)))
            .await
    }

    /// Fails if a migration has begun since the store was opened. A node that writes during the migration gets an error
    /// anyway. This check is for a node that only reads, or that was suspended.
    pub(super) async fn check_for_migration(&self) -> OpResult<()> {
        if self.last_migration().await?.map(|(begun, _)| begun) == self.migration_began {
            return Ok(());
        }
        self.server.migrating.store(true, Ordering::Release);
        Err(OpError::Migrating)
    }

    /// Assigns numbers to all events of a workspace that have no number yet.
    pub(super) async fn number_pending_events(&self, workspace: &str) -> OpResult<()> {
        let pending = Sql::new("SELECT 1 FROM epitome.told WHERE workspace = $1 LIMIT 1", [workspace.into()]);
        let mut more =
            executor::first(&mut PgTransaction::autocommit(self), pending, |_| Ok(())).await?.is_some();
        while more {
            more = self.number_some_events(workspace).await?;
        }
        Ok(())
    }

    /// Assigns numbers to a workspace's events that have no number yet, oldest first and to at most [`MAX_NUMBERED`]
    /// events. Also deletes the oldest numbered events above the limit. Returns whether [`MAX_NUMBERED`] events got a
    /// number, because then more events may be left. With fewer events, returns false even if new events have arrived:
    /// otherwise a reader could wait forever while new events keep arriving.
    pub(super) async fn number_some_events(&self, workspace: &str) -> OpResult<bool> {
        // With this lock, only one node at a time assigns numbers to the workspace's events. The lock does not block
        // the creation of sessions or reads of the settings.
        let lock = "SELECT 1 FROM epitome.workspaces WHERE name = $1 FOR NO KEY UPDATE";
        let mut tx = PgTransaction::read_write(self);
        tx.run(SqlBatch::new().add(Sql::new(lock, [workspace.into()]))).await?;
        let number = "WITH numbers AS (SELECT events_given AS last FROM epitome.workspaces WHERE name = $1), \
             taken AS (DELETE FROM epitome.told WHERE workspace = $1 AND tick IN \
             (SELECT tick FROM epitome.told WHERE workspace = $1 ORDER BY tick LIMIT $2) \
             RETURNING tick, session, kind, data, at), \
             numbered AS (INSERT INTO epitome.events (workspace, id, session, kind, data, at) \
             SELECT $1, numbers.last + row_number() OVER (ORDER BY tick), session, kind, data, at FROM taken, numbers) \
             UPDATE epitome.workspaces SET events_given = events_given + (SELECT count(*) FROM taken) WHERE name = $1 \
             RETURNING (SELECT count(*) FROM taken)";
        let trim = "DELETE FROM epitome.events WHERE workspace = $1 AND id <= \
             (SELECT events_given FROM epitome.workspaces WHERE name = $1) - $2";
        let number = Sql::new(number, [workspace.into(), MAX_NUMBERED.into()]);
        let trim = Sql::new(trim, [workspace.into(), RETAINED_EVENTS.into()]);
        let mut numbered = None;
        tx.run(SqlBatch::new().first(number, &mut numbered, |row| row.int(0)).add(trim)).await?;
        // This can be repeated without harm: events that have a number keep it, and the other events get one the next
        // time.
        tx.finish_checked(SqlBatch::new(), None).await?;
        Ok(numbered.is_some_and(|numbered| numbered >= MAX_NUMBERED))
    }
}
