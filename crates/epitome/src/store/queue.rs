//! Reads the queue: the slots that have work, in one workspace or in all workspaces.
//!
//! The queries read the slots first and then their sessions. Few slots have work, and the indexes `slots_due` and
//! `slots_ready` contain only these slots.

use super::decode::{self, RowRef, SLOT};
use super::executor::{Executor, SqlBatch};
use super::op_error::OpResult;
use super::rows::{QueueCounts, QueueRow};
use super::sql::Sql;

/// Returns a query for `columns` of all slots that have work. In `columns`, `s` is the slot and `o` is its session. In
/// the query, `$1` is the workspace and `$2` is the current time.
fn busy(columns: &str, workspace: Option<&str>) -> String {
    let whose = if workspace.is_some() { "AND s.workspace = $1" } else { "" };
    let from = |index: &str| {
        // With CROSS JOIN, SQLite reads the tables in the order in which the query names them.
        format!(
            "SELECT {columns} FROM epitome.slots s INDEXED BY {index} CROSS JOIN epitome.sessions o \
             WHERE o.id = s.session AND o.state = 'open' {whose}"
        )
    };
    let (due, timed) = (from("slots_due"), from("slots_ready"));
    format!(
        "{due} AND s.due IS NOT NULL UNION ALL {timed} AND s.due IS NULL AND s.ready_at IS NOT NULL AND s.ready_at <= $2"
    )
}

/// Builds a statement for PostgreSQL and for SQLite. `text` receives two functions, which take the name of a field in
/// the JSON column `work`. The first function returns SQL that reads the field as a number. The second function returns
/// SQL that reads the field as a boolean.
fn of_work(text: impl Fn(fn(&str) -> String, fn(&str) -> String) -> String) -> (String, String) {
    let postgres = text(
        |name| format!("(s.work::json ->> '{name}')::bigint"),
        |name| format!("(s.work::json ->> '{name}')::boolean"),
    );
    let of_sqlite: fn(&str) -> String = |name| format!("(s.work ->> '{name}')");
    (postgres, text(of_sqlite, of_sqlite))
}

/// Reads the slots that have work. These are the slots that are due, including leased, failing and parked slots, and
/// the slots that became ready because time passed. Counts the slots by state, and returns the longest-waiting slots. A
/// slot's state is one of four: a worker is working on it, it is parked, it waits for a retry, or it can be leased.
pub(super) async fn queue(
    db: &mut dyn Executor,
    workspace: Option<&str>,
    limit: usize,
) -> OpResult<(QueueCounts, Vec<QueueRow>)> {
    let now = db.now().await?;
    let counts = of_work(|number, truth| {
        let (until, not_before, since) = (number("until"), number("not_before"), number("waiting_since"));
        let parked = truth("parked");
        let columns = format!(
            "CASE WHEN {until} > $2 AND s.due IS NOT NULL THEN 1 WHEN {parked} THEN 2 WHEN {not_before} > $2 THEN 3 \
             ELSE 4 END AS is_, coalesce({since}, s.ready_at) AS since"
        );
        format!(
            "SELECT count(*) FILTER (WHERE is_ = 1), count(*) FILTER (WHERE is_ = 2), count(*) FILTER (WHERE is_ = 3), \
             count(*) FILTER (WHERE is_ = 4), min(since) FILTER (WHERE is_ = 4) FROM ({}) q",
            busy(&columns, workspace)
        )
    });
    let list = of_work(|number, _| {
        let since = number("waiting_since");
        let columns =
            format!("{SLOT}, o.workspace, o.name AS session, coalesce({since}, s.ready_at) AS since");
        format!("SELECT * FROM ({}) q ORDER BY since, 7, 8, 1, 2 LIMIT $3", busy(&columns, workspace))
    });
    let (mut counted, mut rows) = (None, Vec::new());
    let counts = Sql::per_database(counts.0, counts.1, [workspace.into(), now.into()]);
    let list = Sql::per_database(list.0, list.1, [workspace.into(), now.into(), limit.into()]);
    let count = |row: RowRef<'_>| {
        let oldest = row.maybe_int(4)?;
        Ok(QueueCounts {
            working: row.uint(0)?,
            parked: row.uint(1)?,
            waiting: row.uint(2)?,
            due: row.uint(3)?,
            // If the clock was set back, the waiting time is 0 and not negative.
            oldest_millis: oldest.map(|since| u64::try_from(now.0.saturating_sub(since)).unwrap_or(0)),
        })
    };
    let read = |row: RowRef<'_>| {
        Ok(QueueRow { now, workspace: row.name(6)?, session: row.name(7)?, slot: decode::slot(row)? })
    };
    let batch = SqlBatch::new().first(counts, &mut counted, count).all(list, &mut rows, read);
    db.finish(batch).await?;
    Ok((counted.unwrap_or_default(), rows))
}
