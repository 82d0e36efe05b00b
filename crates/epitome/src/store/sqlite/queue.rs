//! What has something to do, in one workspace or in all.
//!
//! Everything goes from the slots to their sessions, never the other way: few slots have something to do, and the
//! indexes `slots_due` and `slots_ready` hold no others.

use epitome_core::message::Timestamp;
use rusqlite::{Connection, params};

use super::super::{QueueCounts, QueueRow};
use super::error::Outcome;
use super::rows::{self, SLOT};

/// Those with something due, held, failing or parked ones too; and those whose time has come.
pub(super) fn queue(
    db: &Connection,
    workspace: Option<&str>,
    limit: usize,
    now: Timestamp,
) -> Outcome<(QueueCounts, Vec<QueueRow>)> {
    let counts = count(db, workspace, now)?;
    let rows = if limit == 0 { Vec::new() } else { list(db, workspace, limit, now)? };
    Ok((counts, rows))
}

/// These columns of the slots in question, `s`, and of their sessions, `o`. `?1` is the workspace, `?2` the moment.
fn busy(columns: &str, workspace: Option<&str>) -> String {
    let whose = if workspace.is_some() { "AND o.workspace = ?1" } else { "AND ?1 IS NULL" };
    let from = |index: &str| {
        format!(
            "SELECT {columns} FROM slots s INDEXED BY {index} \
             CROSS JOIN sessions o ON o.id = s.session AND o.state = 'open' {whose}"
        )
    };
    let (due, timed) = (from("slots_due"), from("slots_ready"));
    format!(
        "{due} WHERE s.due IS NOT NULL \
         UNION ALL {timed} WHERE s.due IS NULL AND s.ready_at IS NOT NULL AND s.ready_at <= ?2"
    )
}

/// Those that wait longest.
fn list(db: &Connection, workspace: Option<&str>, limit: usize, now: Timestamp) -> Outcome<Vec<QueueRow>> {
    let busy = busy(&format!("{SLOT}, o.workspace, o.name AS session, s.ready_at"), workspace);
    let sql = format!(
        "SELECT * FROM ({busy}) ORDER BY coalesce(json_extract(work, '$.waiting_since'), ready_at), 7, 8, 1, 2 LIMIT ?3"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let found = statement.query_map(params![workspace, now.0, rows::rows(limit)], |row| {
        let (workspace, session) = (row.get::<_, String>(6)?.into(), row.get::<_, String>(7)?.into());
        Ok(QueueRow { now, workspace, session, slot: rows::slot(row)? })
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// How many of them are worked on, cannot be cut yet, wait to be tried again, or can be taken, and since when.
fn count(db: &Connection, workspace: Option<&str>, now: Timestamp) -> Outcome<QueueCounts> {
    let columns = "CASE \
         WHEN json_extract(s.work, '$.until') > ?2 AND s.due IS NOT NULL THEN 1 \
         WHEN json_extract(s.work, '$.parked') THEN 2 \
         WHEN json_extract(s.work, '$.not_before') > ?2 THEN 3 ELSE 4 END AS is_, \
         coalesce(json_extract(s.work, '$.waiting_since'), s.ready_at) AS since";
    let sql = format!(
        "SELECT coalesce(sum(is_ = 1), 0), coalesce(sum(is_ = 2), 0), coalesce(sum(is_ = 3), 0), \
         coalesce(sum(is_ = 4), 0), min(since) FILTER (WHERE is_ = 4) FROM ({})",
        busy(columns, workspace)
    );
    let counted = db.prepare_cached(&sql)?.query_row(params![workspace, now.0], |row| {
        let oldest: Option<i64> = row.get(4)?;
        Ok(QueueCounts {
            working: rows::uint(row, 0)?,
            parked: rows::uint(row, 1)?,
            waiting: rows::uint(row, 2)?,
            due: rows::uint(row, 3)?,
            // A clock that went back makes nobody wait for less than nothing.
            oldest_millis: oldest.map(|since| u64::try_from(now.0.saturating_sub(since)).unwrap_or(0)),
        })
    })?;
    Ok(counted)
}
