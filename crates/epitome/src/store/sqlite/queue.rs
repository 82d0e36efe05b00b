//! What has something to do, in one workspace or in all.
//!
//! Everything goes from the slots to their sessions, never the other way: few slots have something to do, and the
//! indexes `slots_due` and `slots_ready` hold no others.

use epitome_core::message::Timestamp;
use rusqlite::{Connection, params};

use super::super::decode::{self, SLOT};
use super::super::rows::{QueueCounts, QueueRow};
use super::error::Outcome;
use super::rows::{all_of, first_of, rows};

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
    all_of(db, &sql, params![workspace, now.0, rows(limit)], |row| {
        Ok(QueueRow { now, workspace: row.name(6)?, session: row.name(7)?, slot: decode::slot(row)? })
    })
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
    let counted = first_of(db, &sql, params![workspace, now.0], |row| decode::queue_counts(row, now))?;
    Ok(counted.unwrap_or_default())
}
