//! Stores and sums usage: model calls, and requests through the proxy.

use epitome_core::message::{Timestamp, Tokens};
use serde::Serialize;

use super::ask::{self, Ask, Batch};
use super::asked::UsageQuery;
use super::given::Given;
use super::rows::{UsageRow, UsageSum};
use super::sql::Sql;
use super::trouble::Outcome;

/// Proxy usage of one model in one hour, or sums of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Passed {
    /// The requested model.
    pub model: String,
    /// Whether the requests were forwarded unchanged (shadow mode), so that `saved` is only what condensing would have
    /// saved.
    pub shadow: bool,
    /// Number of requests that got a response.
    pub requests: u64,
    /// Number of requests whose condensed list was shorter than the original.
    pub shorter: u64,
    /// Number of requests that were sent again because the provider rejected them as too long.
    pub retried: u64,
    /// Number of responses that ended early.
    pub cut_off: u64,
    /// Number of requests for which the provider reported no token counts. They are not part of the sums below.
    pub uncounted: u64,
    /// Input tokens as counted by the provider, including cached ones.
    pub input: Tokens,
    /// Input tokens read from the provider's cache.
    pub cached: Tokens,
    /// Output tokens.
    pub output: Tokens,
    /// Input tokens saved by condensing.
    pub saved: Tokens,
    /// Cost in millionths of the currency unit, where the price is available.
    pub cost: i64,
    /// Cost saved by condensing, in millionths of the currency unit. Negative if condensing cost more than it saved.
    pub saved_cost: i64,
}

impl Passed {
    /// Adds the numbers of another record to this one.
    pub fn add(&mut self, more: &Self) {
        let mut figures = Self { model: String::new(), ..*more };
        for (sum, more) in self.counts().into_iter().zip(figures.counts()) {
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
pub(super) async fn record(ask: &mut dyn Ask, usage: &[UsageRow]) -> Outcome<()> {
    let (now, mut batch) = (ask.now().await?, Batch::new());
    usage.iter().for_each(|row| batch.push(record_one(row, now)));
    ask.finish(batch).await
}

/// Returns the statement that records a model call. Uses `now` if the call has no time.
pub(super) fn record_one(row: &UsageRow, now: Timestamp) -> Sql<'_> {
    let sql = "INSERT INTO epitome.usage (workspace, session, scope, slot, model, outcome, input, cached, output, cost, \
         millis, at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
    let texts = [&row.workspace, &row.session, &row.scope, &row.slot, &row.model, &row.outcome];
    let at = if row.at == Timestamp::default() { now } else { row.at };
    let mut given: Vec<Given<'_>> = texts.into_iter().map(|text| text.as_str().into()).collect();
    given.extend([row.input, row.cached, row.output].map(Given::from));
    given.extend([row.cost.into(), row.millis.into(), at.into()]);
    Sql::new(sql, given)
}

/// Returns SQL for the sums of these columns. A sum above the integer range becomes its maximum; a sum of no values is NULL.
fn sums(columns: &str) -> String {
    let sum = |column: &str| {
        format!(
            "CASE WHEN sum({column}) > 9223372036854775807 THEN 9223372036854775807 \
             ELSE CAST(sum({column}) AS bigint) END"
        )
    };
    columns.split(", ").map(sum).collect::<Vec<_>>().join(", ")
}

/// Sums model calls.
pub(super) async fn usage(ask: &mut dyn Ask, query: &UsageQuery) -> Outcome<Vec<UsageSum>> {
    let session = if query.by_session { "session" } else { "''" };
    let sums = sums("input, cached, output, cost, millis");
    let sql = format!(
        "SELECT {session} AS apart, scope, slot, model, outcome, count(*), {sums} FROM epitome.usage \
         WHERE workspace = $1 AND at >= $2 AND ($3 IS NULL OR session = $3) \
         GROUP BY apart, scope, slot, model, outcome ORDER BY apart, scope, slot, model, outcome"
    );
    let given = [(&*query.workspace).into(), query.since.into(), query.session.as_deref().into()];
    ask::all(ask, Sql::new(sql, given), |row| {
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

/// The columns of [`Passed`] that are summed: the counters, then the costs.
const PASSED: &str =
    "requests, shorter, retried, cut_off, uncounted, input, cached, output, saved, cost, saved_cost";

/// Maximum number of models with separate rows per hour. Names come from clients, so their number must be limited.
const MOST_MODELS: i64 = 100;

/// The name under which further models are counted.
const OTHER: &str = "other";

const HOUR_MILLIS: i64 = 3_600_000;

fn hour(at: Timestamp) -> Given<'static> {
    at.0.div_euclid(HOUR_MILLIS).saturating_mul(HOUR_MILLIS).into()
}

/// Adds to this hour's proxy usage, under each model's name, or under [`OTHER`] if there are too many models.
pub(super) async fn add_passed(ask: &mut dyn Ask, workspace: &str, more: &[Passed]) -> Outcome<()> {
    let (now, mut batch) = (ask.now().await?, Batch::new());
    let added: Vec<String> =
        PASSED.split(", ").map(|column| format!("{column} = p.{column} + excluded.{column}")).collect();
    let sql = format!(
        "INSERT INTO epitome.passed AS p (workspace, hour, model, shadow, {PASSED}) SELECT $1, $2, CASE WHEN \
         EXISTS (SELECT 1 FROM epitome.passed WHERE workspace = $1 AND hour = $2 AND model = $3) OR \
         (SELECT count(DISTINCT model) FROM epitome.passed WHERE workspace = $1 AND hour = $2) < $16 THEN $3 ELSE $17 END, \
         $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15 WHERE true \
         ON CONFLICT (workspace, hour, model, shadow) DO UPDATE SET {}",
        added.join(", ")
    );
    for more in more {
        let mut given = vec![workspace.into(), hour(now), more.model.as_str().into(), more.shadow.into()];
        given.extend(more.clone().counts().map(|count| Given::from(*count)));
        given.extend([more.cost.into(), more.saved_cost.into(), MOST_MODELS.into(), OTHER.into()]);
        batch.push(Sql::new(sql.clone(), given));
    }
    ask.finish(batch).await
}

/// Sums proxy usage since the hour that contains `since`.
pub(super) async fn passed(ask: &mut dyn Ask, workspace: &str, since: Timestamp) -> Outcome<Vec<Passed>> {
    let sums = sums(PASSED);
    let sql = format!(
        "SELECT model, shadow, {sums} FROM epitome.passed WHERE workspace = $1 AND hour >= $2 \
         GROUP BY model, shadow ORDER BY model, shadow"
    );
    ask::all(ask, Sql::new(sql, [workspace.into(), hour(since)]), |row| {
        let (model, shadow) = (row.string(0)?, row.flag(1)?);
        let (cost, saved_cost) = (row.int(11)?, row.int(12)?);
        let mut passed = Passed { model, shadow, cost, saved_cost, ..Passed::default() };
        for (at, count) in (2..).zip(passed.counts()) {
            *count = row.uint(at)?;
        }
        Ok(passed)
    })
    .await
}
