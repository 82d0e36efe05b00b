//! What has something to do, in one workspace or in all.
//!
//! Everything goes from the slots to their sessions, never the other way: few slots have something to do, and the
//! indexes `slots_due` and `slots_ready` hold no others.

use epitome_core::message::Timestamp;

use super::super::decode::{self, ReadRow, SLOT};
use super::super::rows::{QueueCounts, QueueRow};
use super::Postgres;
use super::counts::Counts;
use super::error::{Outcome, nonsense};
use super::pipe::Pipe;
use super::rows::get;
use super::tx::{NOW, Tx};

/// These columns of the slots in question, `s`, and of their sessions, `o`. `$1` is the workspace, `$2` the moment.
fn busy(columns: &str, workspace: Option<&str>) -> String {
    let whose = if workspace.is_some() { "AND s.workspace = $1" } else { "" };
    let from = format!(
        "SELECT {columns} FROM epitome.slots s JOIN epitome.sessions o ON o.id = s.session AND o.state = 'open' WHERE"
    );
    format!(
        "{from} s.due IS NOT NULL {whose} UNION ALL {from} s.due IS NULL AND s.ready_at IS NOT NULL \
         AND s.ready_at <= $2 {whose}"
    )
}

impl Postgres {
    /// Those with something due, held, failing or parked ones too; and those whose time has come.
    pub(super) async fn queue_once(
        &self,
        workspace: Option<&str>,
        limit: usize,
    ) -> Outcome<(QueueCounts, Vec<QueueRow>)> {
        let found = self.once(Pipe::new().then(NOW, [])).await?;
        let now = found.first().and_then(|rows| rows.first()).map_or(Ok(0), |row| get(row, 0))?;
        let now = self.moment(now);
        let of_work = |name: &str| format!("(s.work::json ->> '{name}')::bigint");
        let columns = format!(
            "CASE WHEN {until} > $2 AND s.due IS NOT NULL THEN 1 WHEN (s.work::json ->> 'parked')::boolean THEN 2 \
             WHEN {not_before} > $2 THEN 3 ELSE 4 END AS is_, coalesce({since}, s.ready_at) AS since",
            until = of_work("until"),
            not_before = of_work("not_before"),
            since = of_work("waiting_since"),
        );
        let counts = format!(
            "SELECT count(*) FILTER (WHERE is_ = 1), count(*) FILTER (WHERE is_ = 2), count(*) FILTER (WHERE is_ = 3), \
             count(*) FILTER (WHERE is_ = 4), min(since) FILTER (WHERE is_ = 4) FROM ({}) q",
            busy(&columns, workspace)
        );
        let columns = format!(
            "{SLOT}, o.workspace, o.name AS session, coalesce({}, s.ready_at) AS since, o.counts",
            of_work("waiting_since")
        );
        let list =
            format!("SELECT * FROM ({}) q ORDER BY since, 7, 8, 1, 2 LIMIT $3", busy(&columns, workspace));
        let pipe = Pipe::new()
            .then(counts, [workspace.into(), now.into()])
            .then(list, [workspace.into(), now.into(), limit.into()]);
        let (tx, found) = Tx::read(self, pipe).await?;
        tx.finish(Pipe::new()).await?;
        let [counts, list] = found.as_slice() else {
            return Err(nonsense("the database answers less than it was asked"));
        };
        let row = counts.first().ok_or_else(|| nonsense("a row is missing"))?;
        let counts = decode::queue_counts(row, now)?;
        Ok((counts, list.iter().map(|row| queued(row, now)).collect::<Outcome<_>>()?))
    }
}

fn queued(row: &tokio_postgres::Row, now: Timestamp) -> Outcome<QueueRow> {
    let (workspace, session) = (row.name(6)?, row.name(7)?);
    let slot = Counts::read(get(row, 9)?)?.complete(decode::slot(row)?);
    Ok(QueueRow { now, workspace, session, slot })
}
