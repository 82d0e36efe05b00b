//! What has something to do, in one workspace or in all.
//!
//! Everything goes from the slots to their sessions, never the other way: few slots have something to do, and the
//! indexes `slots_due` and `slots_ready` hold no others.

use super::ask::{Ask, Batch};
use super::decode::{self, Found, SLOT};
use super::rows::{QueueCounts, QueueRow};
use super::sql::Sql;
use super::trouble::Outcome;

/// These columns of the slots in question, `s`, and of their sessions, `o`. `$1` is the workspace, `$2` the moment.
fn busy(columns: &str, workspace: Option<&str>) -> String {
    let whose = if workspace.is_some() { "AND s.workspace = $1" } else { "" };
    let from = |index: &str| {
        // SQLite keeps to the order in which tables are named where they are crossed.
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

/// The same statement for either database, given how each finds a number and a truth in what is known of the work on a slot.
fn of_work(text: impl Fn(fn(&str) -> String, fn(&str) -> String) -> String) -> (String, String) {
    let postgres = text(
        |name| format!("(s.work::json ->> '{name}')::bigint"),
        |name| format!("(s.work::json ->> '{name}')::boolean"),
    );
    let of_sqlite: fn(&str) -> String = |name| format!("(s.work ->> '{name}')");
    (postgres, text(of_sqlite, of_sqlite))
}

/// Those with something due, held, failing or parked ones too; and those whose time has come: how many of them are worked on,
/// cannot be cut yet, wait to be tried again, or can be taken, and those that wait longest.
pub(super) async fn queue(
    ask: &mut dyn Ask,
    workspace: Option<&str>,
    limit: usize,
) -> Outcome<(QueueCounts, Vec<QueueRow>)> {
    let now = ask.now().await?;
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
    let counts = Sql::own(counts.0, counts.1, [workspace.into(), now.into()]);
    let list = Sql::own(list.0, list.1, [workspace.into(), now.into(), limit.into()]);
    let count = |row: Found<'_>| {
        let oldest = row.maybe_int(4)?;
        Ok(QueueCounts {
            working: row.uint(0)?,
            parked: row.uint(1)?,
            waiting: row.uint(2)?,
            due: row.uint(3)?,
            // A clock that went back makes nobody wait for less than nothing.
            oldest_millis: oldest.map(|since| u64::try_from(now.0.saturating_sub(since)).unwrap_or(0)),
        })
    };
    let read = |row: Found<'_>| {
        Ok(QueueRow { now, workspace: row.name(6)?, session: row.name(7)?, slot: decode::slot(row)? })
    };
    let batch = Batch::new().first(counts, &mut counted, count).all(list, &mut rows, read);
    ask.finish(batch).await?;
    Ok((counted.unwrap_or_default(), rows))
}
