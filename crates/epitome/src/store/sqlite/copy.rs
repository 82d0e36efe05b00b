//! Copying sessions in pieces, showing them, and deleting them.

use epitome_core::message::{Seq, Timestamp};
use rusqlite::{Connection, params};

use super::super::decode::ReadRow;
use super::super::given::int;
use super::super::log::CopiedSession;
use super::super::rows::{SessionId, SessionKey};
use super::super::statements;
use super::change::{insert_session, make_workspace, number};
use super::directory::copy_members;
use super::error::Outcome;
use super::events;
use super::known::Known;
use super::rows::{self, exists, first_of, run};

/// So many messages are copied at a time.
const COPY_CHUNK: Seq = 500;

/// And no more bytes than this, unless it is a single message's.
const COPY_BYTES: u64 = 4 << 20;

/// Makes the hidden session that messages are copied into. `None` when there is nothing to copy from.
pub(super) fn begin(db: &Connection, from: SessionId, now: Timestamp) -> Outcome<Option<SessionId>> {
    let sql = "SELECT workspace, name FROM sessions WHERE id = ?1 AND state = 'open'";
    let key = first_of(db, sql, [from], |row| Ok(SessionKey::new(row.text(0)?, row.text(1)?)))?;
    let Some(key) = key else { return Ok(None) };
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
        bytes = bytes.saturating_add(row.uint(1)?);
        if before > 0 && bytes > COPY_BYTES {
            break;
        }
        last = row.uint(0)?;
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
    known: &Known,
    key: &SessionKey,
    mut copy: CopiedSession,
    now: Timestamp,
) -> Outcome<bool> {
    let copied = copy.id;
    let sql = "SELECT 1 FROM sessions WHERE id = ?1 AND state = 'hidden'";
    if !exists(db, sql, [copied])? || number(db, key)?.is_some() {
        return Ok(false);
    }
    make_workspace(db, &key.workspace, now)?;
    let sql = "UPDATE sessions SET state = 'open', workspace = ?2, name = ?3 WHERE id = ?1";
    db.prepare_cached(sql)?.execute(params![copied, key.workspace, key.session])?;
    rows::update_session(db, copied, None, &copy.row)?;
    copy.renumber();
    for summary in &copy.summaries {
        run(db, &statements::insert_summary(copied, summary.id, summary))?;
    }
    for slot in &copy.slots {
        run(db, &statements::put_slot((copied, &key.workspace), slot, slot.active))?;
    }
    events::write(db, known, key, &copy.events, None, now)?;
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
