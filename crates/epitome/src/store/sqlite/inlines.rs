//! What was done to lists that pass through, as rows.

use async_trait::async_trait;
use epitome_core::message::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::super::{InlineRow, Inlines, ListHash, Passed, StoreError};
use super::Sqlite;
use super::error::Outcome;

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

/// A number as a column holds it.
fn column(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn find(db: &Connection, workspace: &str, chain: &[ListHash]) -> Outcome<Option<InlineRow>> {
    let Some(root) = chain.first() else { return Ok(None) };
    let sql = "SELECT length, hash FROM inline WHERE workspace = ?1 AND root = ?2 AND length <= ?3 \
         ORDER BY length DESC";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query(params![workspace, root, column(chain.len() as u64)])?;
    while let Some(row) = rows.next()? {
        let (length, hash): (i64, ListHash) = (row.get(0)?, row.get(1)?);
        let at = usize::try_from(length).ok().and_then(|length| length.checked_sub(1));
        if at.and_then(|at| chain.get(at)) != Some(&hash) {
            continue;
        }
        let sql = "SELECT kept FROM inline WHERE workspace = ?1 AND root = ?2 AND length = ?3 AND hash = ?4";
        let kept = db
            .prepare_cached(sql)?
            .query_row(params![workspace, root, length, hash], |row| row.get(0))
            .optional()?;
        let length = u64::try_from(length).unwrap_or(0);
        return Ok(kept.map(|kept| InlineRow { root: *root, length, hash, kept }));
    }
    Ok(None)
}

fn keep(db: &Connection, workspace: &str, row: &InlineRow, now: Timestamp) -> Outcome<()> {
    // Later than all others, whatever the clock says, so that the oldest can be told.
    let sql = "INSERT OR REPLACE INTO inline (workspace, root, length, hash, kept, at) VALUES (?1, ?2, ?3, ?4, ?5, \
         max(?6, coalesce((SELECT max(at) + 1 FROM inline WHERE workspace = ?1), ?6)))";
    let length = column(row.length);
    db.prepare_cached(sql)?.execute(params![workspace, row.root, length, row.hash, row.kept, now.0])?;
    let sql = "DELETE FROM inline WHERE workspace = ?1 AND at < \
         (SELECT at FROM inline WHERE workspace = ?1 ORDER BY at DESC LIMIT 1 OFFSET ?2)";
    db.prepare_cached(sql)?.execute(params![workspace, MOST_LISTS - 1])?;
    Ok(())
}

/// Forgets all that is kept of a workspace.
pub(super) fn forget(db: &Connection, workspace: &str) -> Outcome<()> {
    db.prepare_cached("DELETE FROM inline WHERE workspace = ?1")?.execute([workspace])?;
    db.prepare_cached("DELETE FROM passed WHERE workspace = ?1")?.execute([workspace])?;
    Ok(())
}

fn add(db: &Connection, workspace: &str, more: &Passed, now: Timestamp) -> Outcome<()> {
    let hour = hour(now);
    let sql = "SELECT EXISTS (SELECT 1 FROM passed WHERE workspace = ?1 AND hour = ?2 AND model = ?3) OR \
         (SELECT count(DISTINCT model) FROM passed WHERE workspace = ?1 AND hour = ?2) < ?4";
    let own: bool = db
        .prepare_cached(sql)?
        .query_row(params![workspace, hour, more.model, MOST_MODELS], |row| row.get(0))?;
    let model = if own { more.model.as_str() } else { OTHER };
    let sql = "INSERT INTO passed VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15) \
         ON CONFLICT DO UPDATE SET requests = requests + excluded.requests, shorter = shorter + excluded.shorter, \
         retried = retried + excluded.retried, cut_off = cut_off + excluded.cut_off, \
         uncounted = uncounted + excluded.uncounted, input = input + excluded.input, \
         cached = cached + excluded.cached, output = output + excluded.output, saved = saved + excluded.saved, \
         cost = cost + excluded.cost, saved_cost = saved_cost + excluded.saved_cost";
    db.prepare_cached(sql)?.execute(params![
        workspace,
        hour,
        model,
        more.shadow,
        column(more.requests),
        column(more.shorter),
        column(more.retried),
        column(more.cut_off),
        column(more.uncounted),
        column(more.input),
        column(more.cached),
        column(more.output),
        column(more.saved),
        more.cost,
        more.saved_cost,
    ])?;
    Ok(())
}

fn passed(row: &Row<'_>) -> rusqlite::Result<Passed> {
    let count = |at: usize| row.get::<_, i64>(at).map(|count| u64::try_from(count).unwrap_or(0));
    Ok(Passed {
        model: row.get(0)?,
        shadow: row.get(1)?,
        requests: count(2)?,
        shorter: count(3)?,
        retried: count(4)?,
        cut_off: count(5)?,
        uncounted: count(6)?,
        input: count(7)?,
        cached: count(8)?,
        output: count(9)?,
        saved: count(10)?,
        cost: row.get(11)?,
        saved_cost: row.get(12)?,
    })
}

#[async_trait]
impl Inlines for Sqlite {
    async fn inline(&self, workspace: &str, chain: Vec<ListHash>) -> Result<Option<InlineRow>, StoreError> {
        let workspace = workspace.to_owned();
        self.read(move |db| find(db, &workspace, &chain)).await
    }

    async fn keep_inline(&self, workspace: &str, row: InlineRow) -> Result<(), StoreError> {
        let (workspace, now) = (workspace.to_owned(), self.now());
        self.writer.write(move |db| keep(db, &workspace, &row, now)).await
    }

    async fn add_passed(&self, workspace: &str, more: Vec<Passed>) -> Result<(), StoreError> {
        let (workspace, now) = (workspace.to_owned(), self.now());
        self.writer.write(move |db| more.iter().try_for_each(|more| add(db, &workspace, more, now))).await
    }

    async fn passed(&self, workspace: &str, since: Timestamp) -> Result<Vec<Passed>, StoreError> {
        let (workspace, since) = (workspace.to_owned(), hour(since));
        self.read(move |db| {
            let sql = "SELECT model, shadow, sum(requests), sum(shorter), sum(retried), sum(cut_off), sum(uncounted), \
                 sum(input), sum(cached), sum(output), sum(saved), sum(cost), sum(saved_cost) FROM passed \
                 WHERE workspace = ?1 AND hour >= ?2 GROUP BY model, shadow ORDER BY model, shadow";
            let mut statement = db.prepare_cached(sql)?;
            let found = statement.query_map(params![workspace, since], passed)?;
            Ok(found.collect::<Result<_, _>>()?)
        })
        .await
    }
}
