//! What was done to lists that pass through, as rows.

use async_trait::async_trait;
use epitome_core::message::Timestamp;
use tokio_postgres::Row;

use super::super::{InlineRow, Inlines, ListHash, Passed, StoreError};
use super::error::{Outcome, nonsense};
use super::given::Given;
use super::pipe::Pipe;
use super::rows::{get, plain, uint};
use super::tx::Tx;
use super::{Postgres, again};

/// So many lists are remembered in a workspace.
const MOST_LISTS: i64 = 1_000;

/// So many models are told apart in an hour.
const MOST_MODELS: i64 = 100;

/// What the others are called.
const OTHER: &str = "other";

const HOUR_MILLIS: i64 = 3_600_000;

fn hour(at: Timestamp) -> i64 {
    at.0.div_euclid(HOUR_MILLIS).saturating_mul(HOUR_MILLIS)
}

/// Forgets all that is kept of a workspace.
pub(super) fn forget<'a>(pipe: &mut Pipe<'a>, workspace: &'a str) {
    pipe.push("DELETE FROM epitome.inline WHERE workspace = $1", [workspace.into()]);
    pipe.push("DELETE FROM epitome.passed WHERE workspace = $1", [workspace.into()]);
}

fn inline_row(row: &Row) -> Outcome<InlineRow> {
    let hash = |at: usize| -> Outcome<ListHash> {
        get::<&[u8]>(row, at)?.try_into().map_err(|_| nonsense("a list's hash is none"))
    };
    Ok(InlineRow { root: hash(0)?, length: uint(row, 1)?, hash: hash(2)?, kept: get(row, 3)? })
}

fn passed(row: &Row) -> Outcome<Passed> {
    Ok(Passed {
        model: get(row, 0)?,
        shadow: get(row, 1)?,
        requests: uint(row, 2)?,
        shorter: uint(row, 3)?,
        retried: uint(row, 4)?,
        cut_off: uint(row, 5)?,
        uncounted: uint(row, 6)?,
        input: uint(row, 7)?,
        cached: uint(row, 8)?,
        output: uint(row, 9)?,
        saved: uint(row, 10)?,
        cost: get(row, 11)?,
        saved_cost: get(row, 12)?,
    })
}

impl Postgres {
    async fn keep_inline_once(&self, workspace: &str, row: &InlineRow) -> Outcome<()> {
        let (tx, _) = Tx::write(self, Pipe::new()).await?;
        let now = tx.now;
        // Later than all others, whatever the clock says, so that the oldest can be told.
        let keep = "INSERT INTO epitome.inline (workspace, root, length, hash, kept, at) VALUES ($1, $2, $3, $4, $5, \
             greatest($6, (SELECT max(at) + 1 FROM epitome.inline WHERE workspace = $1))) \
             ON CONFLICT (workspace, root, length, hash) DO UPDATE SET kept = excluded.kept, at = excluded.at";
        let given = [
            workspace.into(),
            row.root.as_slice().into(),
            row.length.into(),
            row.hash.as_slice().into(),
            row.kept.as_str().into(),
            now.into(),
        ];
        let trim = "DELETE FROM epitome.inline WHERE workspace = $1 AND at < \
             (SELECT at FROM epitome.inline WHERE workspace = $1 ORDER BY at DESC LIMIT 1 OFFSET $2)";
        let pipe = Pipe::new().then(keep, given).then(trim, [workspace.into(), (MOST_LISTS - 1).into()]);
        tx.commit_again(pipe).await
    }

    async fn add_passed_once(&self, workspace: &str, more: &[Passed]) -> Outcome<()> {
        let (mut tx, _) = Tx::write(self, Pipe::new()).await?;
        let hour = hour(tx.now);
        for more in more {
            let sql = "SELECT EXISTS (SELECT 1 FROM epitome.passed WHERE workspace = $1 AND hour = $2 AND model = $3) OR \
                 (SELECT count(DISTINCT model) FROM epitome.passed WHERE workspace = $1 AND hour = $2) < $4";
            let given =
                [workspace.into(), hour.into(), Given::Text(Some(plain(&more.model))), MOST_MODELS.into()];
            let found = tx.ask(Pipe::new().then(sql, given)).await?;
            let own = found.first().and_then(|rows| rows.first()).map_or(Ok(true), |row| get(row, 0))?;
            let model = if own { plain(&more.model).into_owned() } else { OTHER.to_owned() };
            let sql = "INSERT INTO epitome.passed AS p VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, \
                 $15) ON CONFLICT (workspace, hour, model, shadow) DO UPDATE SET \
                 requests = p.requests + excluded.requests, shorter = p.shorter + excluded.shorter, \
                 retried = p.retried + excluded.retried, cut_off = p.cut_off + excluded.cut_off, \
                 uncounted = p.uncounted + excluded.uncounted, input = p.input + excluded.input, \
                 cached = p.cached + excluded.cached, output = p.output + excluded.output, \
                 saved = p.saved + excluded.saved, cost = p.cost + excluded.cost, \
                 saved_cost = p.saved_cost + excluded.saved_cost";
            let counts = [
                more.requests,
                more.shorter,
                more.retried,
                more.cut_off,
                more.uncounted,
                more.input,
                more.cached,
                more.output,
                more.saved,
            ];
            let [a, b, c, d, e, f, g, h, i] = counts.map(Given::from);
            let given = [
                workspace.into(),
                hour.into(),
                model.into(),
                more.shadow.into(),
                a,
                b,
                c,
                d,
                e,
                f,
                g,
                h,
                i,
                more.cost.into(),
                more.saved_cost.into(),
            ];
            tx.ask(Pipe::new().then(sql, given)).await?;
        }
        tx.commit(Pipe::new()).await.map(|_| ())
    }
}

#[async_trait]
impl Inlines for Postgres {
    async fn inline(&self, workspace: &str, chain: Vec<ListHash>) -> Result<Option<InlineRow>, StoreError> {
        let Some(root) = chain.first() else { return Ok(None) };
        again!(self, async {
            // The longest that is a beginning of this one.
            let sql = "SELECT i.root, i.length, i.hash, i.kept FROM epitome.inline i WHERE i.workspace = $1 AND i.root = $2 \
                 AND i.length <= $3 AND i.hash = ($4::bytea[])[i.length::integer] ORDER BY i.length DESC LIMIT 1";
            let hashes = Given::Blobs(chain.iter().map(|hash| hash.as_slice().into()).collect());
            let given = [workspace.into(), root.as_slice().into(), chain.len().into(), hashes];
            let found = self.once(Pipe::new().then(sql, given)).await?;
            found.first().and_then(|rows| rows.first()).map(inline_row).transpose()
        })
    }

    async fn keep_inline(&self, workspace: &str, row: InlineRow) -> Result<(), StoreError> {
        again!(self, self.keep_inline_once(workspace, &row))
    }

    async fn add_passed(&self, workspace: &str, more: Vec<Passed>) -> Result<(), StoreError> {
        again!(self, self.add_passed_once(workspace, &more))
    }

    async fn passed(&self, workspace: &str, since: Timestamp) -> Result<Vec<Passed>, StoreError> {
        again!(self, async {
            let sums = [
                "requests",
                "shorter",
                "retried",
                "cut_off",
                "uncounted",
                "input",
                "cached",
                "output",
                "saved",
                "cost",
                "saved_cost",
            ];
            let sums = sums.map(|column| format!("sum({column})::bigint")).join(", ");
            let sql = format!(
                "SELECT model, shadow, {sums} FROM epitome.passed WHERE workspace = $1 AND hour >= $2 \
                 GROUP BY model, shadow ORDER BY model, shadow"
            );
            let found = self.once(Pipe::new().then(sql, [workspace.into(), hour(since).into()])).await?;
            found.iter().flatten().map(passed).collect()
        })
    }
}
