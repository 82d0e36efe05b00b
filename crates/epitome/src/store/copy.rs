//! Copies and deletes sessions.
//!
//! Messages are copied in pieces of limited size, and the rows of a deleted session are removed in such pieces too. So
//! every transaction is short.

use std::collections::HashMap;

use epitome_core::message::{Seq, Timestamp};

use super::change::{MESSAGE_COLUMNS, SessionWrites, insert_session, session_id_query};
use super::changes::IDEMPOTENCY_TTL_MILLIS;
use super::decode::RowRef;
use super::directory_queries::ensure_workspace;
use super::events;
use super::executor::{self, Executor, SqlBatch};
use super::op_error::OpResult;
use super::rows::{SessionId, SessionKey, SessionRow, SlotRow, SummaryId, SummaryRow};
use super::sql::Sql;
use crate::event::EventBody;

/// A copied session that is about to become visible.
#[derive(Debug, Clone)]
pub struct CopiedSession {
    /// The copy's id, which `Store::copy` returned.
    pub id: SessionId,
    /// The copy's row.
    pub row: SessionRow,
    /// The copy's slots. In each slot, `active` is a summary id of the original session.
    pub slots: Vec<SlotRow>,
    /// The copy's summaries. In each summary, `id` and `parent` are summary ids of the original session.
    pub summaries: Vec<SummaryRow>,
    /// The events that report the copy.
    pub events: Vec<EventBody>,
}

impl CopiedSession {
    /// Replaces the summaries' ids with 1, 2, 3 … in the order of the old ids. Updates all references to the summaries.
    pub(super) fn renumber(&mut self) {
        self.summaries.sort_by_key(|summary| summary.id);
        let numbers: HashMap<SummaryId, SummaryId> =
            self.summaries.iter().map(|summary| summary.id).zip(1..).collect();
        let renumbered = |id: &mut Option<SummaryId>| *id = id.and_then(|id| numbers.get(&id).copied());
        for (summary, number) in self.summaries.iter_mut().zip(1..) {
            renumbered(&mut summary.parent);
            renumbered(&mut summary.facts.built_on);
            summary.id = number;
        }
        self.slots.iter_mut().for_each(|slot| renumbered(&mut slot.active));
    }
}

/// Maximum number of messages copied in one transaction.
const COPY_CHUNK: Seq = 500;

/// Maximum number of bytes copied in one transaction, unless a single message is larger: 4 MiB.
const COPY_BYTES: u64 = 4 << 20;

/// Creates the hidden session into which messages are copied, and copies the members. Returns the id of the hidden
/// session; `None` if the source session does not exist.
pub(super) async fn begin(db: &mut dyn Executor, from: SessionId) -> OpResult<Option<SessionId>> {
    let sql = "SELECT workspace, name FROM epitome.sessions WHERE id = $1 AND state = 'open' FOR KEY SHARE";
    let key = |row: RowRef<'_>| Ok(SessionKey::new(row.text(0)?, row.text(1)?));
    let Some(key) = executor::first(db, Sql::new(sql, [from.into()]), key).await? else { return Ok(None) };
    let copied = insert_session(db, &key, "hidden").await?;
    let sql = "INSERT INTO epitome.members (session, author, attributes, joined) \
         SELECT $2, author, attributes, joined FROM epitome.members WHERE session = $1";
    db.finish(SqlBatch::new().add(Sql::new(sql, [from.into(), copied.into()]))).await?;
    Ok(Some(copied))
}

/// Copies the next messages: from message `first` on, and no message after `through`. Returns the number of the last
/// message copied; `None` if the source or the copy no longer exists.
pub(super) async fn copy_chunk(
    db: &mut dyn Executor,
    from: SessionId,
    to: SessionId,
    (first, through): (Seq, Seq),
) -> OpResult<Option<Seq>> {
    let lock_both = "SELECT id FROM epitome.sessions WHERE id = $1 AND state = 'open' OR id = $2 AND state = 'hidden' \
         ORDER BY id FOR KEY SHARE";
    let last_possible = first.saturating_add(COPY_CHUNK - 1).min(through);
    let sizes = Sql::per_database(
        "SELECT seq, octet_length(body)::bigint FROM epitome.messages WHERE session = $1 AND seq BETWEEN $2 AND $3 ORDER BY seq",
        "SELECT seq, octet_length(body) FROM messages WHERE session = ?1 AND seq BETWEEN ?2 AND ?3 ORDER BY seq",
        [from.into(), first.into(), last_possible.into()],
    );
    // `last` is `through` until a row is read. So if no messages are left, the copy is complete.
    let (mut both, mut last, mut bytes) = (Vec::new(), through, 0u64);
    let each = |row: RowRef<'_>| {
        let before = bytes;
        bytes = bytes.saturating_add(row.uint(1)?);
        let fits = before == 0 || bytes <= COPY_BYTES;
        if fits {
            last = row.uint(0)?;
        }
        Ok(fits)
    };
    let lock_both = Sql::new(lock_both, [from.into(), to.into()]);
    db.run(SqlBatch::new().all(lock_both, &mut both, |row| row.int(0)).each(sizes, each)).await?;
    if both.len() != 2 {
        return Ok(None);
    }
    // If an earlier attempt was committed but its response was lost, these messages are already copied and are skipped.
    let columns = &*MESSAGE_COLUMNS;
    let sql = Sql::per_database(
        format!(
            "INSERT INTO epitome.messages (session, created, change, {columns}) SELECT $2, created, change, {columns} \
             FROM epitome.messages WHERE session = $1 AND seq BETWEEN $3 AND $4 ON CONFLICT DO NOTHING"
        ),
        format!(
            "INSERT INTO messages (session, created, {columns}) SELECT ?2, created, {columns} FROM messages \
             WHERE session = ?1 AND seq BETWEEN ?3 AND ?4"
        ),
        [from.into(), to.into(), first.into(), last.into()],
    );
    // Updates the time of the copy's last write. Without recent writes, maintenance would remove the copy.
    let touch = "UPDATE epitome.sessions SET updated = $2 WHERE id = $1";
    let touch = Sql::new(touch, [to.into(), db.now().await?.into()]);
    db.finish(SqlBatch::new().add(sql).add(touch)).await?;
    Ok(Some(last))
}

/// Marks an unfinished copy as deleted.
pub(super) async fn abandon(db: &mut dyn Executor, copied: SessionId) -> OpResult<()> {
    let sql = "UPDATE epitome.sessions SET state = 'gone' WHERE id = $1 AND state = 'hidden'";
    db.finish_checked(SqlBatch::new().add(Sql::new(sql, [copied.into()])), None).await
}

/// Makes a copied session visible. The caller must call [`CopiedSession::renumber`] first. Returns false if the name is
/// taken or the copy does not exist.
pub(super) async fn reveal(db: &mut dyn Executor, key: &SessionKey, copy: &CopiedSession) -> OpResult<bool> {
    let copied = copy.id;
    let sql = "SELECT 1 FROM epitome.sessions WHERE id = $1 AND state = 'hidden' FOR UPDATE";
    let (mut exists, mut taken) = (false, false);
    let batch = SqlBatch::new().any(Sql::new(sql, [copied.into()]), &mut exists);
    db.run(batch.any(session_id_query(key), &mut taken)).await?;
    if !exists || taken {
        return Ok(false);
    }
    ensure_workspace(db, &key.workspace).await?;
    let sql = "UPDATE epitome.sessions SET state = 'open', workspace = $2, name = $3 WHERE id = $1";
    let params = [copied.into(), (&*key.workspace).into(), (&*key.session).into()];
    let mut writes = SessionWrites { batch: SqlBatch::new().add(Sql::new(sql, params)), id: copied, key };
    writes.update_session(None, &copy.row);
    copy.summaries.iter().for_each(|summary| writes.insert_summary(summary.id, summary));
    copy.slots.iter().for_each(|slot| writes.put_slot(slot, slot.active));
    events::write_events(db, &mut writes.batch, key, &copy.events, None).await?;
    db.finish(writes.batch).await?;
    Ok(true)
}

/// Marks a session as deleted. Its slots and events are removed at once, so that no worker leases a slot. Maintenance
/// removes the other rows later. Returns false if the session does not exist.
pub(super) async fn delete(db: &mut dyn Executor, key: &SessionKey) -> OpResult<bool> {
    let sql =
        "SELECT id FROM epitome.sessions WHERE workspace = $1 AND name = $2 AND state = 'open' FOR UPDATE";
    let sql = Sql::new(sql, [(&*key.workspace).into(), (&*key.session).into()]);
    let Some(id) = executor::first(db, sql, |row| row.int(0)).await? else { return Ok(false) };
    let mut batch = SqlBatch::new()
        .add(Sql::new("UPDATE epitome.sessions SET state = 'gone' WHERE id = $1", [id.into()]))
        .add(Sql::new("DELETE FROM epitome.slots WHERE session = $1", [id.into()]));
    events::delete_session_events(&mut batch, key);
    db.finish(batch).await?;
    Ok(true)
}

/// Maximum number of rows removed in one transaction, per table.
pub(super) const REMOVE_CHUNK: i64 = 1_000;

/// Age in milliseconds after which an unfinished copy without writes counts as abandoned: 1 hour.
pub(super) const ABANDONED_MILLIS: i64 = 60 * 60 * 1_000;

/// Returns the statement that marks abandoned copies as deleted: at most [`REMOVE_CHUNK`] copies that had no write for
/// [`ABANDONED_MILLIS`].
pub(super) fn abandon_stale_copies(now: Timestamp) -> Sql<'static> {
    let sql = "UPDATE epitome.sessions SET state = 'gone' WHERE id IN (SELECT id FROM epitome.sessions \
         WHERE state <> 'open' AND state = 'hidden' AND updated < $1 LIMIT $2)";
    Sql::new(sql, [now.0.saturating_sub(ABANDONED_MILLIS).into(), REMOVE_CHUNK.into()])
}

/// Returns the statement that deletes at most [`REMOVE_CHUNK`] expired idempotency keys. The statement returns a row
/// for each deleted key.
pub(super) fn delete_expired_keys(now: Timestamp) -> Sql<'static> {
    let sql = "DELETE FROM epitome.idempotency WHERE (session, key) IN \
         (SELECT session, key FROM epitome.idempotency WHERE created < $1 ORDER BY created LIMIT $2) RETURNING 1";
    Sql::new(sql, [now.0.saturating_sub(IDEMPOTENCY_TTL_MILLIS).into(), REMOVE_CHUNK.into()])
}

/// Removes some rows of a deleted session: messages first, then other rows, and last the session's own row. Returns
/// whether rows remain.
pub(super) async fn remove_chunk(db: &mut dyn Executor, session: SessionId) -> OpResult<bool> {
    let params = || [session.into(), REMOVE_CHUNK.into()];
    let lock = "SELECT 1 FROM epitome.sessions WHERE id = $1 AND state = 'gone' FOR UPDATE SKIP LOCKED";
    let chunk_end =
        "SELECT max(seq) FROM (SELECT seq FROM epitome.messages WHERE session = $1 ORDER BY seq LIMIT $2) m";
    let (mut exists, mut through) = (false, None);
    let batch = SqlBatch::new().any(Sql::new(lock, [session.into()]), &mut exists);
    db.run(batch.first(Sql::new(chunk_end, params()), &mut through, |row| row.maybe_int(0))).await?;
    if !exists {
        return Ok(false);
    }
    if let Some(through) = through.flatten() {
        let index_rows = Sql::per_database(
            "DELETE FROM epitome.words WHERE session = $1 AND seq <= $2",
            "DELETE FROM words WHERE rowid BETWEEN ?1 << 32 AND (?1 << 32) + ?2",
            [session.into(), through.into()],
        );
        let messages = "DELETE FROM epitome.messages WHERE session = $1 AND seq <= $2";
        let messages = Sql::new(messages, [session.into(), through.into()]);
        db.finish_checked(SqlBatch::new().add(index_rows).add(messages), None).await?;
        return Ok(true);
    }
    let (mut summaries, mut keys) = (0, 0);
    let sql = "DELETE FROM epitome.summaries WHERE kept IN \
         (SELECT kept FROM epitome.summaries WHERE session = $1 LIMIT $2) RETURNING 1";
    let batch = SqlBatch::new().count(Sql::new(sql, params()), &mut summaries);
    let sql = "DELETE FROM epitome.idempotency WHERE (session, key) IN \
         (SELECT session, key FROM epitome.idempotency WHERE session = $1 LIMIT $2) RETURNING 1";
    db.run(batch.count(Sql::new(sql, params()), &mut keys)).await?;
    let more = summaries.max(keys) >= REMOVE_CHUNK;
    let mut batch = SqlBatch::new();
    if !more {
        batch.push(Sql::per_database(
            "DELETE FROM epitome.words WHERE session = $1",
            "DELETE FROM words WHERE rowid BETWEEN ?1 << 32 AND (?1 << 32) + 4294967295",
            [session.into()],
        ));
        for table in ["members", "slots"] {
            batch.push(Sql::new(format!("DELETE FROM epitome.{table} WHERE session = $1"), [session.into()]));
        }
        batch.push(Sql::new("DELETE FROM epitome.sessions WHERE id = $1", [session.into()]));
    }
    db.finish_checked(batch, None).await?;
    Ok(more)
}
