//! What happened, written with what did it.
//!
//! An append writes one of these, so it must cost little: one statement, no index but the key, and nothing to clean up
//! later. Every so many the oldest few go in the same transaction.

use std::sync::Arc;

use epitome_core::message::Timestamp;
use rusqlite::{Connection, params};

use super::super::decode;
use super::super::rows::{SessionKey, SummaryId};
use super::super::statements;
use super::error::{Outcome, nonsense};
use super::known::Known;
use super::rows::{all, all_of, first_of};
use crate::event::{Events, Happened};

/// So many of a workspace are kept, and up to [`TRIMMED`] more.
const KEPT: i64 = 10_000;

/// So many are removed at a time, and that often.
const TRIMMED: i64 = 64;

/// The newest number a workspace gave, whatever became of that event. `?1` is the workspace.
macro_rules! newest {
    () => {
        "max(coalesce((SELECT max(id) FROM events WHERE workspace = ?1), 0), \
         coalesce((SELECT events_given FROM workspaces WHERE name = ?1), 0))"
    };
}

fn newest(db: &Connection, workspace: &str) -> Outcome<i64> {
    Ok(db.prepare_cached(concat!("SELECT ", newest!()))?.query_row([workspace], |row| row.get(0))?)
}

/// Writes down what happened in a session, which has a row by now. `kept` is the summary that is kept with it.
pub(super) fn write(
    db: &Connection,
    known: &Known,
    key: &SessionKey,
    events: &[Happened],
    kept: Option<SummaryId>,
    now: Timestamp,
) -> Outcome<()> {
    for event in events {
        let event = event.numbered(kept);
        let data = event.data().map_err(|_| nonsense("an event cannot be written as JSON"))?;
        let id = known.number_event(&key.workspace, || newest(db, &key.workspace))?;
        debug_assert_eq!(id, newest(db, &key.workspace)? + 1, "what is known is not so");
        let sql =
            "INSERT INTO events (workspace, id, session, kind, data, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let values = params![key.workspace, id, key.session, event.kind(), data, now.0];
        db.prepare_cached(sql)?.execute(values)?;
        if id % TRIMMED == 0 {
            let sql = "DELETE FROM events WHERE workspace = ?1 AND id <= ?2";
            db.prepare_cached(sql)?.execute(params![key.workspace, id.saturating_sub(KEPT)])?;
        }
    }
    Ok(())
}

/// Removes what was told of a session. Its numbers are not given again.
pub(super) fn forget(db: &Connection, key: &SessionKey) -> Outcome<()> {
    let sql = concat!("UPDATE workspaces SET events_given = ", newest!(), " WHERE name = ?1");
    db.prepare_cached(sql)?.execute([&key.workspace])?;
    // There are few enough to look through.
    let sql = "DELETE FROM events WHERE workspace = ?1 AND session = ?2";
    db.prepare_cached(sql)?.execute([&key.workspace, &key.session])?;
    Ok(())
}

/// Those after a number, of one session or all.
pub(super) fn read(
    db: &Connection,
    workspace: &str,
    after: u64,
    session: Option<&str>,
    limit: usize,
) -> Outcome<Events> {
    let sql = concat!("SELECT ", newest!(), ", (SELECT min(id) FROM events WHERE workspace = ?1)");
    let ends = first_of(db, sql, [workspace], |row| Ok((row.uint(0)?, row.maybe_int(1)?)))?;
    let (newest, oldest) = ends.unwrap_or_default();
    let oldest = oldest.and_then(|oldest| u64::try_from(oldest).ok());
    let events = all(db, &statements::events(workspace, after, session, limit), decode::event)?;
    Ok(Events { events, oldest: oldest.unwrap_or_else(|| newest.saturating_add(1)), newest })
}

/// How often messages became a summary, by session. There are few enough to look through.
pub(super) fn condensed(db: &Connection, workspace: &str) -> Outcome<Vec<(Arc<str>, u64)>> {
    let sql = "SELECT session, count(*) FROM events WHERE workspace = ?1 AND kind = 'condensed' \
         GROUP BY session ORDER BY session";
    all_of(db, sql, [workspace], |row| Ok((row.name(0)?, row.uint(1)?)))
}
