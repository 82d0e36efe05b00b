//! Stores and sums usage: model calls, and requests through the proxy.

use epitome_core::message::{Timestamp, Tokens};
use serde::Serialize;

use super::executor::{self, Executor, SqlBatch};
use super::op_error::OpResult;
use super::query_types::UsageQuery;
use super::rows::{UsageRow, UsageSum};
use super::sql::Sql;
use super::sql_params::SqlParam;

/// Proxy usage of one model in one hour, or the sum over several hours.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ProxyUsage {
    /// The requested model.
    pub model: String,
    /// Whether the requests were forwarded unchanged (shadow mode). If so, `saved` is the number of tokens that
    /// condensing would have saved.
    pub shadow: bool,
    /// Number of requests that got a response.
    pub requests: u64,
    /// Number of requests whose condensed list was shorter than the original.
    pub shorter: u64,
    /// Number of requests that were sent again because the provider rejected them as too long.
    pub retried: u64,
    /// Number of responses that were cut off before their end.
    pub cut_off: u64,
    /// Number of requests for which the provider reported no token counts. These requests are not part of the token
    /// counts and costs.
    pub uncounted: u64,
    /// Input tokens as counted by the provider, including cached input tokens.
    pub input: Tokens,
    /// Input tokens read from the provider's cache.
    pub cached: Tokens,
    /// Output tokens.
    pub output: Tokens,
    /// Input tokens saved by condensing.
    pub saved: Tokens,
    /// Cost in millionths of the currency unit. Requests of models without a price are not included.
    pub cost: i64,
    /// Cost saved by condensing, in millionths of the currency unit. Negative if condensing cost more than it saved.
    pub saved_cost: i64,
}

impl ProxyUsage {
    /// Adds the numbers of another record to this one.
    pub fn add(&mut self, more: &Self) {
        let mut copy = Self { model: String::new(), ..*more };
        for (sum, more) in self.counts().into_iter().zip(copy.counts()) {
            *sum = sum.saturating_add(*more);
        }
        self.cost = self.cost.saturating_add(more.cost);
        self.saved_cost = self.saved_cost.saturating_add(more.saved_cost);
    }

    /// Returns the counters in the order of their columns.
    fn counts(&mut self) -> [&mut u64; 9] {
        [
            &mut self.requests,
            &mut self.shorter,
            &mut self.retried,
            &mut self.cut_off,
            &mut self.uncounted,
            &mut self.input,
            &mut self.cached,
            &mut self.output,
            &mut self.saved,
        ]
    }
}

/// Records model calls.
pub(super) async fn record(db: &mut dyn Executor, usage: &[UsageRow]) -> OpResult<()> {
    let (now, mut batch) = (db.now().await?, SqlBatch::new());
    usage.iter().for_each(|row| batch.push(usage_insert(row, now)));
    db.finish(batch).await
}

/// Returns the statement that records a model call. If the row has no time, `now` is recorded.
pub(super) fn usage_insert(row: &UsageRow, now: Timestamp) -> Sql<'_> {
    let sql = "INSERT INTO epitome.usage (workspace, session, scope, slot, model, outcome, input, cached, output, cost, \
         millis, at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
    let texts = [&row.workspace, &row.session, &row.scope, &row.slot, &row.model, &row.outcome];
    let at = if row.at == Timestamp::default() { now } else { row.at };
    let mut params: Vec<SqlParam<'_>> = texts.into_iter().map(|text| text.as_str().into()).collect();
    params.extend([row.input, row.cached, row.output].map(SqlParam::from));
    params.extend([row.cost.into(), row.millis.into(), at.into()]);
    Sql::new(sql, params)
}

/// Returns SQL for the sums of these columns. A sum above the range of 64-bit integers becomes the largest integer. A
/// sum of no values is NULL.
fn sum_columns(columns: &str) -> String {
    let sum = |column: &str| {
        format!(
            "CASE WHEN sum({column}) > 9223372036854775807 THEN 9223372036854775807 \
             ELSE CAST(sum({column}) AS bigint) END"
        )
    };
    columns.split(", ").map(sum).collect::<Vec<_>>().join(", ")
}

/// Sums model calls.
pub(super) async fn usage(db: &mut dyn Executor, query: &UsageQuery) -> OpResult<Vec<UsageSum>> {
    let session = if query.by_session { "session" } else { "''" };
    let sums = sum_columns("input, cached, output, cost, millis");
    let sql = format!(
        "SELECT {session} AS apart, scope, slot, model, outcome, count(*), {sums} FROM epitome.usage \
         WHERE workspace = $1 AND at >= $2 AND ($3 IS NULL OR session = $3) \
         GROUP BY apart, scope, slot, model, outcome ORDER BY apart, scope, slot, model, outcome"
    );
    let params = [(&*query.workspace).into(), query.since.into(), query.session.as_deref().into()];
    executor::all(db, Sql::new(sql, params), |row| {
        Ok(UsageSum {
            session: row.string(0)?,
            scope: row.string(1)?,
            slot: row.string(2)?,
            model: row.string(3)?,
            outcome: row.string(4)?,
            calls: row.uint(5)?,
            input: row.uint(6)?,
            cached: row.uint(7)?,
            output: row.uint(8)?,
            cost: row.maybe_int(9)?,
            millis: row.uint(10)?,
        })
    })
    .await
}

/// The columns of [`ProxyUsage`] that are summed: the counters, then the costs.
const SUMMED_COLUMNS: &str =
    "requests, shorter, retried, cut_off, uncounted, input, cached, output, saved, cost, saved_cost";

/// Maximum number of models with separate rows per hour. Clients choose the model names, so the number of names must be
/// limited.
const MAX_MODELS: i64 = 100;

/// The name under which models beyond [`MAX_MODELS`] are counted.
const OTHER: &str = "other";

const HOUR_MILLIS: i64 = 3_600_000;

fn hour(at: Timestamp) -> SqlParam<'static> {
    at.0.div_euclid(HOUR_MILLIS).saturating_mul(HOUR_MILLIS).into()
}

/// Adds `more` to the proxy usage of the current hour. Each model is counted under its name, or under [`OTHER`] if
/// there are too many models.
pub(super) async fn add_proxy_usage(
    db: &mut dyn Executor,
    workspace: &str,
    more: &[ProxyUsage],
) -> OpResult<()> {
    let (now, mut batch) = (db.now().await?, SqlBatch::new());
    let added: Vec<String> = SUMMED_COLUMNS
        .split(", ")
        .map(|column| format!("{column} = p.{column} + excluded.{column}"))
        .collect();
    let sql = format!(
        "INSERT INTO epitome.passed AS p (workspace, hour, model, shadow, {SUMMED_COLUMNS}) SELECT $1, $2, CASE WHEN \
         EXISTS (SELECT 1 FROM epitome.passed WHERE workspace = $1 AND hour = $2 AND model = $3) OR \
         (SELECT count(DISTINCT model) FROM epitome.passed WHERE workspace = $1 AND hour = $2) < $16 THEN $3 ELSE $17 END, \
         $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15 WHERE true \
         ON CONFLICT (workspace, hour, model, shadow) DO UPDATE SET {}",
        added.join(", ")
    );
    for more in more {
        let mut params = vec![workspace.into(), hour(now), more.model.as_str().into(), more.shadow.into()];
        params.extend(more.clone().counts().map(|count| SqlParam::from(*count)));
        params.extend([more.cost.into(), more.saved_cost.into(), MAX_MODELS.into(), OTHER.into()]);
        batch.push(Sql::new(sql.clone(), params));
    }
    db.finish(batch).await
}

/// Sums proxy usage since the start of the hour that contains `since`.
pub(super) async fn proxy_usage(
    db: &mut dyn Executor,
    workspace: &str,
    since: Timestamp,
) -> OpResult<Vec<ProxyUsage>> {
    let sums = sum_columns(SUMMED_COLUMNS);
    let sql = format!(
        "SELECT model, shadow, {sums} FROM epitome.passed WHERE workspace = $1 AND hour >= $2 \
         GROUP BY model, shadow ORDER BY model, shadow"
    );
    executor::all(db, Sql::new(sql, [workspace.into(), hour(since)]), |row| {
        let (model, shadow) = (row.string(0)?, row.flag(1)?);
        let (cost, saved_cost) = (row.int(11)?, row.int(12)?);
        let mut usage = ProxyUsage { model, shadow, cost, saved_cost, ..ProxyUsage::default() };
        for (at, count) in (2..).zip(usage.counts()) {
            *count = row.uint(at)?;
        }
        Ok(usage)
    })
    .await
}
