//! Writes and reads events. An event is written in the same transaction as the change that it reports.
//!
//! Event numbers have no gaps within a workspace. SQLite assigns the numbers in the change's own transaction. In
//! PostgreSQL this would make all writers of a workspace wait for each other. So PostgreSQL assigns the numbers later:
//! when events are read, or during maintenance.

use std::sync::Arc;

use super::decode;
use super::executor::{self, Executor, SqlBatch};
use super::op_error::{OpResult, damaged};
use super::rows::{SessionKey, SummaryId};
use super::sql::Sql;
use crate::event::{EventBody, Events};

/// Number of events retained per workspace. Slightly more may be stored, because old events are deleted in groups.
pub(super) const RETAINED_EVENTS: i64 = 10_000;

/// In SQLite, old events are deleted each time this number of new events was written.
const TRIM_EVERY: i64 = 64;

/// A SQLite expression for the highest event number that was ever assigned in a workspace. The event itself may be
/// deleted.
macro_rules! newest {
    () => {
        "max(coalesce((SELECT max(id) FROM events WHERE workspace = ?1), 0), \
         coalesce((SELECT events_given FROM workspaces WHERE name = ?1), 0))"
    };
}

/// A SQLite query for the highest event number that was ever assigned in a workspace.
pub(super) const NEWEST_NUMBER: &str = concat!("SELECT ", newest!());

/// Writes events of a session, whose row must exist. `new_summary` is the id of the summary that the same change adds,
/// if any.
pub(super) async fn write_events<'a>(
    db: &mut dyn Executor,
    batch: &mut SqlBatch<'a>,
    key: &'a SessionKey,
    events: &[EventBody],
    new_summary: Option<SummaryId>,
) -> OpResult<()> {
    let now = db.now().await?;
    for event in events {
        let event = event.with_summary_id(new_summary);
        let data = event.data().map_err(|_| damaged("an event cannot be written as JSON"))?;
        let (workspace, session) = ((&*key.workspace).into(), (&*key.session).into());
        let params = [workspace, session, event.kind().to_owned().into(), data.into(), now.into()];
        let Some(id) = db.next_event_number(&key.workspace)? else {
            let sql =
                "INSERT INTO epitome.told (workspace, session, kind, data, at) VALUES ($1, $2, $3, $4, $5)";
            batch.push(Sql::new(sql, params).mergeable());
            continue;
        };
        let sql = "INSERT INTO epitome.events (workspace, session, kind, data, at, id) VALUES ($1, $2, $3, $4, $5, $6)";
        batch.push(Sql::new(sql, params.into_iter().chain([id.into()]).collect::<Vec<_>>()));
        if id % TRIM_EVERY == 0 {
            let sql = "DELETE FROM epitome.events WHERE workspace = $1 AND id <= $2";
            batch.push(Sql::new(sql, [(&*key.workspace).into(), id.saturating_sub(RETAINED_EVENTS).into()]));
        }
    }
    Ok(())
}

/// Adds to `batch` the statements that delete a session's events. The numbers of deleted events are not reused.
pub(super) fn delete_session_events<'a>(batch: &mut SqlBatch<'a>, key: &'a SessionKey) {
    let params = || [(&*key.workspace).into(), (&*key.session).into()];
    batch.push(Sql::per_database(
        "DELETE FROM epitome.told WHERE workspace = $1 AND session = $2",
        concat!("UPDATE workspaces SET events_given = ", newest!(), " WHERE name = ?1 AND ?2 IS NOT NULL"),
        params(),
    ));
    // This scans all events of the workspace. A workspace has only about 10,000 events.
    batch.push(Sql::new("DELETE FROM epitome.events WHERE workspace = $1 AND session = $2", params()));
}

/// Reads at most `limit` events with numbers above `after`. If `session` is set, reads only events of that session.
pub(super) async fn read(
    db: &mut dyn Executor,
    workspace: &str,
    after: u64,
    session: Option<&str>,
    limit: usize,
) -> OpResult<Events> {
    let numbers = Sql::per_database(
        "SELECT coalesce((SELECT events_given FROM epitome.workspaces WHERE name = $1), 0), \
         (SELECT min(id) FROM epitome.events WHERE workspace = $1)",
        concat!("SELECT ", newest!(), ", (SELECT min(id) FROM events WHERE workspace = ?1)"),
        [workspace.into()],
    );
    let sql = "SELECT id, session, at, kind, data FROM epitome.events WHERE workspace = $1 AND id > $2 \
         AND ($3 IS NULL OR session = $3) ORDER BY id LIMIT $4";
    let listed = Sql::new(sql, [workspace.into(), after.into(), session.into(), limit.into()]);
    let (mut found, mut events) = (None, Vec::new());
    let batch = SqlBatch::new().first(numbers, &mut found, |row| Ok((row.uint(0)?, row.maybe_int(1)?))).all(
        listed,
        &mut events,
        decode::event,
    );
    db.finish(batch).await?;
    let (newest, oldest) = found.ok_or_else(|| damaged("a row is missing"))?;
    let oldest = oldest.and_then(|oldest| u64::try_from(oldest).ok());
    Ok(Events { events, oldest: oldest.unwrap_or_else(|| newest.saturating_add(1)), newest })
}

/// Counts the `condensed` events of each session. This scans all events of the workspace, of which there are only about
/// 10,000.
pub(super) async fn count_condensed(
    db: &mut dyn Executor,
    workspace: &str,
) -> OpResult<Vec<(Arc<str>, u64)>> {
    let sql = Sql::per_database(
        "SELECT session, count(*) FROM (SELECT session FROM epitome.events WHERE workspace = $1 \
         AND kind = 'condensed' UNION ALL SELECT session FROM epitome.told WHERE workspace = $1 \
         AND kind = 'condensed') e GROUP BY session ORDER BY session",
        "SELECT session, count(*) FROM events WHERE workspace = ?1 AND kind = 'condensed' \
         GROUP BY session ORDER BY session",
        [workspace.into()],
    );
    executor::all(db, sql, |row| Ok((row.name(0)?, row.uint(1)?))).await
}
