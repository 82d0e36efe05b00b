//! Maintenance of a SQLite file. The writer runs maintenance in steps of limited size, usually while no write is
//! waiting. If there is nothing to do, the writer does not write.

use epitome_core::message::Timestamp;
use epitome_core::outline::Outline;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use super::super::changes::IDEMPOTENCY_TTL_MILLIS;
use super::super::copy::{ABANDONED_MILLIS, abandon_stale_copies, delete_expired_keys, remove_chunk};
use super::super::decode::{AFTER_OUTLINE, OUTLINE, outline};
use super::super::executor::{Executor, SqlBatch};
use super::super::rows::{SessionId, restore_message};
use super::super::sql::Sql;
use super::error::OpResult;
use super::executor::{SqliteExecutor, ready_result};
use super::session_cache::SessionCache;
use crate::search::{indexed, text_of};

/// Maximum number of messages indexed in one step.
const MAX_INDEXED: i64 = 256;

/// A step ends with the message whose text brings the step above this size in bytes: 1 MiB.
const MAX_BYTES: usize = 1 << 20;

/// Returns the row id of a message in the full-text index: `(session << 32) + seq`.
pub(super) fn row_id(session: SessionId, seq: i64) -> i64 {
    session.saturating_mul(1 << 32).saturating_add(seq)
}

/// A maintenance step.
pub(super) enum MaintenanceStep {
    /// Add the messages after this sequence number to the index.
    Index(SessionId, i64),
    /// Remove rows of a deleted session.
    Remove(SessionId),
    /// Mark abandoned copies for removal, or delete expired idempotency keys.
    Run(Sql<'static>),
}

/// Returns the next step, if there is one. The queries are fast: if there is nothing to do, the indexes that they use
/// contain no matching rows.
pub(super) fn next_step(db: &Connection, now: Timestamp) -> OpResult<Option<MaintenanceStep>> {
    let first = |sql: &str, since: Option<i64>| -> OpResult<Option<(i64, i64)>> {
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        Ok(db.prepare_cached(sql)?.query_row(params_from_iter(since), read).optional()?)
    };
    let sql = "SELECT id, 0 FROM sessions INDEXED BY sessions_leftover WHERE state <> 'open' AND state = 'gone' LIMIT 1";
    if let Some((id, _)) = first(sql, None)? {
        return Ok(Some(MaintenanceStep::Remove(id)));
    }
    let sql = "SELECT id, indexed FROM sessions INDEXED BY sessions_to_index \
         WHERE state = 'open' AND indexed < head ORDER BY id LIMIT 1";
    if let Some((id, indexed)) = first(sql, None)? {
        return Ok(Some(MaintenanceStep::Index(id, indexed)));
    }
    let sql = "SELECT id, 0 FROM sessions INDEXED BY sessions_leftover \
         WHERE state <> 'open' AND state = 'hidden' AND updated < ?1 LIMIT 1";
    if first(sql, Some(now.0.saturating_sub(ABANDONED_MILLIS)))?.is_some() {
        return Ok(Some(MaintenanceStep::Run(abandon_stale_copies(now))));
    }
    let sql = "SELECT 1, 0 FROM idempotency WHERE created < ?1 LIMIT 1";
    let old = first(sql, Some(now.0.saturating_sub(IDEMPOTENCY_TTL_MILLIS)))?;
    Ok(old.map(|_| MaintenanceStep::Run(delete_expired_keys(now))))
}

impl MaintenanceStep {
    /// Runs the step inside a transaction.
    pub(super) fn run(self, db: &mut Connection, cache: &SessionCache, now: Timestamp) -> OpResult<()> {
        match self {
            Self::Index(session, after) => index_messages(db, session, after),
            Self::Remove(session) => {
                ready_result(remove_chunk(&mut SqliteExecutor { db, cache, now }, session)).map(|_| ())
            }
            Self::Run(sql) => ready_result(SqliteExecutor { db, cache, now }.run(SqlBatch::new().add(sql))),
        }
    }
}

fn index_messages(db: &Connection, session: SessionId, after: i64) -> OpResult<()> {
    let sql =
        format!("SELECT {OUTLINE}, body FROM messages WHERE session = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3");
    let mut read = db.prepare_cached(&sql)?;
    // Another process may have indexed some of these messages since `next_step`. Replacing such a row changes nothing.
    let mut write = db.prepare_cached("INSERT OR REPLACE INTO words (rowid, text) VALUES (?1, ?2)")?;
    let mut rows = read.query([session, after, MAX_INDEXED])?;
    let (mut through, mut bytes) = (after, 0);
    while let Some(row) = rows.next()? {
        if bytes > MAX_BYTES {
            break;
        }
        through = row.get(0)?;
        let shape: Outline = outline(row)?;
        let body = row.get_ref(AFTER_OUTLINE)?.as_str().unwrap_or_default();
        // An unreadable message must not block the index forever. It is indexed as empty text, and `verify` reports it.
        let text = restore_message(&shape, body)
            .map_or_else(|_| String::new(), |message| indexed(&text_of(&message)));
        bytes += text.len();
        write.execute(params![row_id(session, through), text])?;
    }
    let sql = "UPDATE sessions SET indexed = max(indexed, CASE WHEN ?3 THEN head ELSE ?2 END) WHERE id = ?1";
    db.prepare_cached(sql)?.execute(params![session, through, through == after])?;
    Ok(())
}
