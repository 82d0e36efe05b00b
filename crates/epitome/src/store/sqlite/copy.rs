//! Copying sessions in pieces, showing them, and deleting them.

use std::collections::HashMap;

use epitome_core::message::{Seq, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use super::super::{SessionId, SessionKey, SessionRow, SlotRow, SummaryId, SummaryRow};
use super::change::{insert_session, make_workspace, number};
use super::directory::copy_members;
use super::error::Outcome;
use super::events;
use super::rows::{self, int};

/// So many messages are copied at a time.
const COPY_CHUNK: Seq = 500;

/// And no more bytes than this, unless it is a single message's.
const COPY_BYTES: u64 = 4 << 20;

/// Makes the hidden session that messages are copied into. `None` when there is nothing to copy from.
pub(super) fn begin(db: &Connection, from: SessionId, now: Timestamp) -> Outcome<Option<SessionId>> {
    let sql = "SELECT workspace, name FROM sessions WHERE id = ?1 AND state = 'open'";
    let key = db
        .prepare_cached(sql)?
        .query_row([from], |row| Ok(SessionKey::new(row.get::<_, String>(0)?, row.get::<_, String>(1)?)));
    let Some(key) = key.optional()? else { return Ok(None) };
    let copied = insert_session(db, &key, "hidden", now)?;
    copy_members(db, from, copied)?;
    Ok(Some(copied))
}

/// Copies the next messages, and tells up to which. `None` when either session is not there any more.
pub(super) fn piece(
    db: &Connection,
    from: SessionId,
    to: SessionId,
    first: Seq,
    through: Seq,
    now: Timestamp,
) -> Outcome<Option<Seq>> {
    let sql =
        "SELECT count(*) FROM sessions WHERE id = ?1 AND state = 'open' OR id = ?2 AND state = 'hidden'";
    let there: i64 = db.prepare_cached(sql)?.query_row([from, to], |row| row.get(0))?;
    if there != 2 {
        return Ok(None);
    }
    let most = first.saturating_add(COPY_CHUNK - 1).min(through);
    let sql = "SELECT seq, octet_length(body) FROM messages WHERE session = ?1 AND seq BETWEEN ?2 AND ?3 ORDER BY seq";
    let mut sizes = db.prepare_cached(sql)?;
    let mut sizes = sizes.query(params![from, int(first), int(most)])?;
    // Where nothing is left to copy, all is copied.
    let (mut last, mut bytes) = (through, 0u64);
    while let Some(row) = sizes.next()? {
        let before = bytes;
        bytes = bytes.saturating_add(rows::uint(row, 1)?);
        if before > 0 && bytes > COPY_BYTES {
            break;
        }
        last = rows::uint(row, 0)?;
    }
    let columns = "seq, role, author, turn, tokens, before, chars, longest, calls, answers, own_answers, open, \
         own_open, shape, pinned, skip, cut, own_cut, opener, at, created, body";
    let sql = format!(
        "INSERT INTO messages (session, {columns}) SELECT ?2, {columns} FROM messages \
         WHERE session = ?1 AND seq BETWEEN ?3 AND ?4"
    );
    db.prepare_cached(&sql)?.execute(params![from, to, int(first), int(last)])?;
    // Says that somebody is still at it.
    db.prepare_cached("UPDATE sessions SET updated = ?2 WHERE id = ?1")?.execute([to, now.0])?;
    Ok(Some(last))
}

/// Gives up a copy.
pub(super) fn give_up(db: &Connection, copied: SessionId) -> Outcome<()> {
    let sql = "UPDATE sessions SET state = 'gone' WHERE id = ?1 AND state = 'hidden'";
    db.prepare_cached(sql)?.execute([copied])?;
    Ok(())
}

/// Shows a copied session. False when the name is taken or there is no such copy.
pub(super) fn reveal(
    db: &Connection,
    copied: SessionId,
    key: &SessionKey,
    row: &SessionRow,
    slots: &[SlotRow],
    mut summaries: Vec<SummaryRow>,
    now: Timestamp,
) -> Outcome<bool> {
    let sql = "SELECT 1 FROM sessions WHERE id = ?1 AND state = 'hidden'";
    let there = db.prepare_cached(sql)?.query_row([copied], |_| Ok(())).optional()?.is_some();
    if !there || number(db, key)?.is_some() {
        return Ok(false);
    }
    make_workspace(db, &key.workspace, now)?;
    let sql = "UPDATE sessions SET state = 'open', workspace = ?2, name = ?3 WHERE id = ?1";
    db.prepare_cached(sql)?.execute(params![copied, key.workspace, key.session])?;
    rows::update_session(db, copied, row)?;
    // A parent has a smaller number than its child, so its new one is known by then.
    summaries.sort_by_key(|summary| summary.id);
    let mut renamed: HashMap<SummaryId, SummaryId> = HashMap::new();
    for mut summary in summaries {
        let anew = |id: Option<SummaryId>| id.and_then(|id| renamed.get(&id).copied());
        summary.parent = anew(summary.parent);
        summary.facts.built_on = anew(summary.facts.built_on);
        renamed.insert(summary.id, rows::insert_summary(db, copied, &summary)?);
    }
    for slot in slots {
        let active = slot.active.and_then(|id| renamed.get(&id).copied());
        rows::put_slot(db, copied, slot, active)?;
    }
    Ok(true)
}

/// Hides a session for ever. Its rows go later; its slots at once, so that nobody works on them,
/// and so does what was told of it.
pub(super) fn delete(db: &Connection, key: &SessionKey) -> Outcome<bool> {
    let Some(id) = number(db, key)? else { return Ok(false) };
    db.prepare_cached("UPDATE sessions SET state = 'gone' WHERE id = ?1")?.execute([id])?;
    db.prepare_cached("DELETE FROM slots WHERE session = ?1")?.execute([id])?;
    events::forget(db, key)?;
    Ok(true)
}
