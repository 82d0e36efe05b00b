//! Taking a slot: whose turn it is, and which of theirs waits longest.

use epitome_core::message::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, Rows, params};

use super::super::columns::scope_of;
use super::super::decode::{self, SLOT};
use super::super::rows::{SessionId, SessionKey, SlotRow};
use super::super::slots::{Lease, Want};
use super::super::statements;
use super::error::{Outcome, nonsense};
use super::rows::{first, first_of, run};

/// So many of those that wait longest are looked at. Seldom are more ready, and then it is known whose turn it is.
const NEAR: usize = 64;

/// Where more are ready, so many workspaces are gone through.
const MOST_WORKSPACES: usize = 1_000;

/// So many slots of one session or workspace are passed over in search of one to take.
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
    let slot = want.take(read(db, &found)?, now);
    run(db, &statements::put_slot((found.id, &found.key.workspace), &slot, slot.active))?;
    Ok(Some(Lease { key: found.key, id: found.id, slot, now }))
}

/// Of those that are ready and wanted: the one that waits longest in the workspace whose turn it is.
pub(super) fn ready(db: &Connection, want: &Want, now: Timestamp) -> Outcome<Option<Found>> {
    if let Some(key) = &want.session {
        let Some(id) = first(db, &statements::number(key), |row| row.int(0))? else { return Ok(None) };
        return of_session(db, want, id, now);
    }
    let (near, more) = near(db, want, now)?;
    if !more || near.is_some() && want.after.is_none() {
        return Ok(near);
    }
    Ok(in_turn(db, want, now)?.or(near))
}

/// The columns of [`found`]. Slots go with their session when it is deleted, so there is always one.
const FOUND: &str = "SELECT s.session, s.scope, s.name, o.workspace, o.name FROM slots s";
const SESSION: &str = "CROSS JOIN sessions o ON o.id = s.session AND o.state = 'open'";

/// The next one that is not passed over.
fn next_found(rows: &mut Rows<'_>, want: &Want, most: usize) -> Outcome<Option<Found>> {
    for _ in 0..most {
        let Some(row) = rows.next()? else { break };
        if let Some(found) = found(row, want)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The slot in this row, where it is wanted.
fn found(row: &Row<'_>, want: &Want) -> Outcome<Option<Found>> {
    let workspace = row.get_ref(3)?.as_str().map_err(|_| nonsense("a workspace has no name"))?;
    if want.full.contains(workspace) {
        return Ok(None);
    }
    let key = SessionKey::new(workspace, row.get::<_, String>(4)?);
    let found = Found { id: row.get(0)?, scope: row.get(1)?, name: row.get(2)?, key };
    let passed = !want.except.is_empty()
        && want.except.contains(&(found.id, scope_of(&found.scope), found.name.clone()));
    Ok(Some(found).filter(|_| !passed))
}

fn of_session(db: &Connection, want: &Want, id: SessionId, now: Timestamp) -> Outcome<Option<Found>> {
    let sql = format!(
        "{FOUND} {SESSION} WHERE s.session = ?1 AND s.ready_at IS NOT NULL AND s.ready_at <= ?2 \
         ORDER BY s.ready_at, s.scope, s.name"
    );
    let mut statement = db.prepare_cached(&sql)?;
    next_found(&mut statement.query([id, now.0])?, want, MOST_PASSED)
}

/// Whose turn it is of those that wait longest, and whether there are more than were looked at. Mostly there is none,
/// which costs one look.
fn near(db: &Connection, want: &Want, now: Timestamp) -> Outcome<(Option<Found>, bool)> {
    let sql = format!(
        "{FOUND} INDEXED BY slots_ready {SESSION} WHERE s.ready_at IS NOT NULL AND s.ready_at <= ?1 \
         ORDER BY s.ready_at, s.session, s.scope, s.name"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query([now.0])?;
    let mut best: Option<Found> = None;
    for _ in 0..NEAR {
        let Some(row) = rows.next()? else { return Ok((best, false)) };
        let Some(found) = found(row, want)? else { continue };
        let Some(after) = want.after.as_deref() else { return Ok((Some(found), true)) };
        let turn = |found: &Found| (*found.key.workspace <= *after, found.key.workspace.clone());
        if best.as_ref().is_none_or(|best| turn(&found) < turn(best)) {
            best = Some(found);
        }
    }
    Ok((best, true))
}

/// Goes from one workspace to the next by their names, from the one served last round to it again.
fn in_turn(db: &Connection, want: &Want, now: Timestamp) -> Outcome<Option<Found>> {
    let sql = "SELECT workspace, ready_at FROM slots INDEXED BY slots_in_turn \
         WHERE ready_at IS NOT NULL AND workspace > ?1 ORDER BY workspace, ready_at LIMIT 1";
    let mut step = db.prepare_cached(sql)?;
    let last = want.after.as_deref().unwrap_or("");
    let (mut at, mut again) = (last.to_owned(), false);
    for _ in 0..MOST_WORKSPACES {
        let next = step.query_row([&at], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)));
        let Some((workspace, ready_at)) = next.optional()? else {
            if again {
                break;
            }
            (at, again) = (String::new(), true);
            continue;
        };
        if ready_at <= now.0
            && !want.full.contains(workspace.as_str())
            && let Some(found) = of_workspace(db, want, &workspace, now)?
        {
            return Ok(Some(found));
        }
        if again && *workspace >= *last {
            break;
        }
        at = workspace;
    }
    Ok(None)
}

fn of_workspace(db: &Connection, want: &Want, workspace: &str, now: Timestamp) -> Outcome<Option<Found>> {
    let sql = format!(
        "{FOUND} INDEXED BY slots_in_turn {SESSION} WHERE s.workspace = ?1 AND s.ready_at IS NOT NULL \
         AND s.ready_at <= ?2 ORDER BY s.ready_at, s.session, s.scope, s.name"
    );
    let mut statement = db.prepare_cached(&sql)?;
    next_found(&mut statement.query(params![workspace, now.0])?, want, MOST_PASSED)
}

fn read(db: &Connection, found: &Found) -> Outcome<SlotRow> {
    let sql = format!("SELECT {SLOT} FROM slots s WHERE s.session = ?1 AND s.scope = ?2 AND s.name = ?3");
    let slot = first_of(db, &sql, params![found.id, found.scope, found.name], decode::slot)?;
    slot.ok_or_else(|| nonsense("a row is missing"))
}
