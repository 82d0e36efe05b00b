//! Taking a slot: whose turn it is, and which of theirs waits longest.

use epitome_core::message::Timestamp;
use rusqlite::{Connection, params};

use super::super::{Lease, SessionId, SessionKey, SlotRow, Want};
use super::change::number;
use super::error::Outcome;
use super::rows::{self, SLOT, scope_of};

/// So many slots are passed over in search of one to take.
const MOST_PASSED: usize = 10_000;

/// A slot that may be taken.
pub(super) struct Found {
    id: SessionId,
    scope: String,
    name: String,
    key: SessionKey,
}

/// Takes the slot whose turn it is.
pub(super) fn lease(db: &Connection, want: &Want, now: Timestamp) -> Outcome<Option<Lease>> {
    let Some(found) = ready(db, want, now)? else { return Ok(None) };
    let mut slot = read(db, &found)?;
    if slot.state.due.is_none() {
        slot.state.tick(now);
        slot.mark(now);
    }
    slot.fence = slot.fence.saturating_add(1);
    slot.work.owner = Some(want.owner.clone());
    let hold = i64::try_from(want.hold.as_millis()).unwrap_or(i64::MAX);
    slot.work.until = Some(Timestamp(now.0.saturating_add(hold)));
    rows::put_slot(db, found.id, &slot, slot.active)?;
    Ok(Some(Lease { key: found.key, id: found.id, slot, now }))
}

/// Of those that are ready and wanted: the one that waits longest in the workspace whose turn it is.
pub(super) fn ready(db: &Connection, want: &Want, now: Timestamp) -> Outcome<Option<Found>> {
    let only = match &want.session {
        Some(key) => match number(db, key)? {
            Some(id) => Some(id),
            None => return Ok(None),
        },
        None => None,
    };
    let of = if only.is_some() { "s.session = ?2" } else { "?2 IS NULL" };
    let sql = format!(
        "SELECT s.session, s.scope, s.name, o.workspace, o.name FROM slots s JOIN sessions o ON o.id = s.session \
         WHERE s.ready_at IS NOT NULL AND s.ready_at <= ?1 AND {of} AND o.state = 'open' \
         ORDER BY s.ready_at, s.session, s.scope, s.name"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params![now.0, only])?;
    let mut best: Option<Found> = None;
    for _ in 0..MOST_PASSED {
        let Some(row) = rows.next()? else { break };
        let key = SessionKey::new(row.get::<_, String>(3)?, row.get::<_, String>(4)?);
        if want.full.contains(&key.workspace) {
            continue;
        }
        let found = Found { id: row.get(0)?, scope: row.get(1)?, name: row.get(2)?, key };
        if !want.except.is_empty()
            && want.except.contains(&(found.id, scope_of(&found.scope), found.name.clone()))
        {
            continue;
        }
        let Some(after) = want.after.as_deref() else { return Ok(Some(found)) };
        let turn = |found: &Found| (*found.key.workspace <= *after, found.key.workspace.clone());
        if best.as_ref().is_none_or(|best| turn(&found) < turn(best)) {
            best = Some(found);
        }
    }
    Ok(best)
}

fn read(db: &Connection, found: &Found) -> Outcome<SlotRow> {
    let sql = format!("SELECT {SLOT} FROM slots s WHERE s.session = ?1 AND s.scope = ?2 AND s.name = ?3");
    let mut statement = db.prepare_cached(&sql)?;
    Ok(statement.query_row(params![found.id, found.scope, found.name], rows::slot)?)
}
