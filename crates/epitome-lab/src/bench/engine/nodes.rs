//! Measures nodes: engines that share one PostgreSQL database. The baseline is bare SQL statements on the same tables.

use std::time::{Duration, Instant};

use epitome::Error;
use epitome::store::{PostgresOptions, StoreError};
use epitome::{ContextRequest, Engine, Session};
use serde::Serialize;
use tokio::task::JoinSet;

use super::{OnProgress, Progress, ResultLine, Spread, median, messages};

mod bare_sql;
mod workers;

use bare_sql::{BareClients, in_temporary_database};
use workers::{lease_delay, summaries_per_second};

/// Number of connections that the engine uses, and that the baseline uses. Also the number of tasks that append
/// concurrently.
const TASKS: usize = 16;

/// Response time of the test model, for comparing two nodes with one node.
const MODEL_DELAY: Duration = Duration::from_millis(200);

/// Minimum throughput of appends, as a share of the throughput of bare inserts.
const TARGET_APPENDS: f64 = 0.7;
/// Maximum duration of a context, as a multiple of the duration of a bare query.
const TARGET_CONTEXTS: f64 = 2.0;
/// Minimum throughput of two nodes, as a multiple of the throughput of one node.
const TARGET_TWO_NODES: f64 = 1.7;
/// Maximum time from the commit of an append until another node leases the due slot, in milliseconds.
const TARGET_LEASE_MILLIS: f64 = 50.0;

/// Sizes of the measurements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSizes {
    /// Number of rounds in which the engine and the baseline alternate.
    pub rounds: usize,
    /// Number of messages that the engine appends per round. The baseline inserts the same number.
    pub appends: usize,
    /// Number of messages in the session whose contexts are requested.
    pub long: u64,
    /// Number of contexts.
    pub contexts: usize,
    /// Number of sessions with a due summary. One node writes these summaries, and then two nodes do the same work.
    pub sessions: usize,
    /// Number of measured leases.
    pub leases: usize,
}

impl NodeSizes {
    /// Returns the sizes for a run of one to two minutes.
    pub fn standard() -> Self {
        Self { rounds: 7, appends: 8_000, long: 10_000, contexts: 500, sessions: 64, leases: 60 }
    }

    /// Returns the sizes for a short run.
    pub fn quick() -> Self {
        Self { rounds: 3, appends: 2_000, long: 2_000, contexts: 100, sessions: 24, leases: 15 }
    }
}

/// Throughput of appends through the engine and of bare inserts, measured in alternating rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct NodeAppends {
    /// Messages per second through `Session::append`.
    pub rows_per_second: f64,
    /// Rows per second with bare inserts into the same table.
    pub bare_rows_per_second: f64,
    /// The engine's rate divided by the rate of bare inserts. The value is the median of this ratio over all rounds.
    pub ratio: f64,
}

/// Durations of contexts of 4,000 tokens, in milliseconds. Each context is compared with a bare query that reads the
/// same number of messages of the same session.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct NodeContexts {
    /// Durations of contexts of one session. The session grows by one message before each context.
    pub growing: Spread,
    /// Durations of the bare queries that `growing` is compared with.
    pub query: Spread,
    /// The median of `growing` divided by the median of `query`.
    pub ratio: f64,
    /// Durations of contexts of sessions that the node reads for the first time.
    #[serde(rename = "strange")]
    pub first_read: Spread,
    /// Durations of the bare queries that `first_read` is compared with, including the query for the session's id.
    #[serde(rename = "strange_query")]
    pub first_read_query: Spread,
    /// The median of `first_read` divided by the median of `first_read_query`.
    #[serde(rename = "strange_ratio")]
    pub first_read_ratio: f64,
}

/// Results for nodes on PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Nodes {
    /// Throughput of appends of one message each.
    pub appends: NodeAppends,
    /// Throughput of appends of a hundred messages each.
    pub batches: NodeAppends,
    /// Durations of contexts and of bare queries.
    pub contexts: NodeContexts,
    /// Summaries per second by one node, with a model that takes 200 ms.
    pub one_node: f64,
    /// Summaries per second by two nodes.
    pub two_nodes: f64,
    /// Time until another node leases a slot that has become due, in milliseconds. The time starts at the commit of the
    /// append that made the slot due.
    #[serde(rename = "heard")]
    pub lease_delay: Spread,
}

impl Nodes {
    /// Returns the lines of the result table.
    pub fn lines(&self) -> Vec<ResultLine> {
        let appends = |name: &str, appends: &NodeAppends| {
            let figure = format!(
                "{:.0}/s, {:.2}× bare inserts ({:.0}/s)",
                appends.rows_per_second, appends.ratio, appends.bare_rows_per_second
            );
            ResultLine::new(name, figure, ">= 0.70×", Some(appends.ratio >= TARGET_APPENDS))
        };
        let contexts = |context: &Spread, query: &Spread, ratio: f64, baseline: &str| {
            format!("{:.2} ms, {ratio:.2}× {baseline} ({:.2} ms)", context.median, query.median)
        };
        let of = &self.contexts;
        let growing = contexts(&of.growing, &of.query, of.ratio, "a bare query");
        let first = contexts(&of.first_read, &of.first_read_query, of.first_read_ratio, "two bare queries");
        let two = self.two_nodes / self.one_node;
        vec![
            appends("appends, 16 connections", &self.appends),
            appends("appends of 100, 16 connections", &self.batches),
            ResultLine::new("context, p50", growing, "<= 2.00×", Some(of.ratio <= TARGET_CONTEXTS)),
            // Most contexts belong to growing sessions, so this value has no target.
            ResultLine::new("first context of a session on a node, p50", first, "", None),
            ResultLine::new(
                "summaries by two nodes, model takes 200 ms",
                format!("{:.1}/s, {two:.2}× one node ({:.1}/s)", self.two_nodes, self.one_node),
                ">= 1.70×",
                Some(two >= TARGET_TWO_NODES),
            ),
            ResultLine::new(
                "from commit to lease on another node, p50",
                format!("{:.1} ms (p95 {:.1})", self.lease_delay.median, self.lease_delay.p95),
                "< 50 ms",
                Some(self.lease_delay.median < TARGET_LEASE_MILLIS),
            ),
        ]
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Store(StoreError::Failed { reason: error.to_string() })
}

/// Runs the measurements in temporary databases on the PostgreSQL server at `url`.
pub async fn nodes(url: &str, sizes: &NodeSizes, on_progress: OnProgress<'_>) -> Result<Nodes, Error> {
    let (appends, batches, contexts) =
        in_temporary_database(url, async |url| one_node(url, sizes, on_progress).await).await?;
    let throughput = async |nodes| {
        in_temporary_database(url, async |url| {
            summaries_per_second(url, sizes.sessions, nodes, on_progress).await
        })
        .await
    };
    let (one_node, two_nodes) = (throughput(1).await?, throughput(2).await?);
    let lease_delay =
        in_temporary_database(url, async |url| lease_delay(url, sizes.leases, on_progress).await).await?;
    Ok(Nodes { appends, batches, contexts, one_node, two_nodes, lease_delay })
}

/// Measures a single node: appends of one message, appends of a hundred messages, and contexts.
async fn one_node(
    url: &str,
    sizes: &NodeSizes,
    on_progress: OnProgress<'_>,
) -> Result<(NodeAppends, NodeAppends, NodeContexts), Error> {
    let options = || PostgresOptions { connections: TASKS, ..PostgresOptions::default() };
    let node = || Engine::builder().workers(0).postgres(options()).open_postgres(url);
    let (engine, bare) = (node().await?, BareClients::connect(url).await?);
    let appends = compare_appends(&engine, &bare, sizes, 1, ("appends", on_progress)).await?;
    let batches = compare_appends(&engine, &bare, sizes, 100, ("appends of 100", on_progress)).await?;
    let contexts = contexts(&engine, node, &bare, sizes, on_progress).await?;
    engine.close().await;
    Ok((appends, batches, contexts))
}

/// Measures appends of `batch` messages each, through the engine and with bare inserts.
async fn compare_appends(
    engine: &Engine,
    bare: &BareClients,
    sizes: &NodeSizes,
    batch: u64,
    (stage, on_progress): (&'static str, OnProgress<'_>),
) -> Result<NodeAppends, Error> {
    // Batches are faster, so a round of batches needs more messages to be measurable.
    let each = (sizes.appends as u64).saturating_mul(batch.min(3)).div_ceil(TASKS as u64);
    let each = each.div_ceil(batch).max(2);
    let rounds = sizes.rounds.max(1) as u64;
    let (mut engine_rates, mut bare_rates, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    // The first round only warms up.
    for round in 0..=rounds {
        on_progress(Progress { stage, done: round, of: rounds });
        let (engine_rate, bare_rate) = if round % 2 == 0 {
            let engine_rate = through_engine(engine, each, batch).await?;
            (engine_rate, bare.round(each, batch).await?)
        } else {
            let bare_rate = bare.round(each, batch).await?;
            (through_engine(engine, each, batch).await?, bare_rate)
        };
        // The engine updates the search index when no append is waiting. This update must not slow down the next
        // measurement.
        bare.wait_until_indexed().await?;
        if round > 0 {
            ratios.push(engine_rate / bare_rate);
            engine_rates.push(engine_rate);
            bare_rates.push(bare_rate);
        }
    }
    Ok(NodeAppends {
        rows_per_second: median(engine_rates),
        bare_rows_per_second: median(bare_rates),
        ratio: median(ratios),
    })
}

async fn through_engine(engine: &Engine, each: u64, batch: u64) -> Result<f64, Error> {
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let session = engine.session(format!("task {task} of {batch}"));
        tasks.spawn(async move {
            for n in 0..each {
                session.append(messages::short_messages(n * batch, batch)).await?;
            }
            Ok::<_, Error>(())
        });
    }
    join_all(&mut tasks).await?;
    Ok((each * batch * TASKS as u64) as f64 / started.elapsed().as_secs_f64())
}

async fn join_all(tasks: &mut JoinSet<Result<(), Error>>) -> Result<(), Error> {
    while let Some(done) = tasks.join_next().await {
        done.map_err(|_| Error::Closed)??;
    }
    Ok(())
}

/// Number of sessions that the second node reads for the first time, and number of messages in each of these sessions.
const FIRST_READ: (u64, u64) = (100, 500);

/// Measures two kinds of contexts: of a long session that grows by one message before each context, and of sessions
/// that a second node reads for the first time.
async fn contexts<F: Future<Output = Result<Engine, Error>>>(
    engine: &Engine,
    another: impl Fn() -> F,
    bare: &BareClients,
    sizes: &NodeSizes,
    on_progress: OnProgress<'_>,
) -> Result<NodeContexts, Error> {
    let long = engine.session("long");
    for from in (0..sizes.long).step_by(500) {
        long.append(messages::short_messages(from, 500.min(sizes.long - from))).await?;
    }
    for n in 0..FIRST_READ.0 {
        engine.session(format!("first read {n}")).append(messages::short_messages(0, FIRST_READ.1)).await?;
    }
    bare.wait_until_indexed().await?;
    // Without statistics, PostgreSQL's planner would choose a bad plan for the bare query.
    bare.execute("ANALYZE").await?;
    let (mut growing, mut query) = (Vec::new(), Vec::new());
    for n in 0..sizes.contexts as u64 {
        on_progress(Progress { stage: "contexts", done: n, of: sizes.contexts as u64 });
        long.append(messages::short_message(n)).await?;
        let (duration, messages) = context(&long).await?;
        growing.push(duration);
        query.push(bare.query("long", messages, true).await?);
    }
    let (mut first_read, mut first_read_query) = (Vec::new(), Vec::new());
    let other = another().await?;
    for n in 0..FIRST_READ.0 {
        on_progress(Progress { stage: "contexts on another node", done: n, of: FIRST_READ.0 });
        let name = format!("first read {n}");
        let (duration, messages) = context(&other.session(name.as_str())).await?;
        first_read.push(duration);
        first_read_query.push(bare.query(&name, messages, false).await?);
    }
    other.close().await;
    let [growing, query] = [growing, query].map(Spread::of);
    let [first_read, first_read_query] = [first_read, first_read_query].map(Spread::of);
    let first_read_ratio = first_read.median / first_read_query.median;
    let ratio = growing.median / query.median;
    Ok(NodeContexts { growing, query, ratio, first_read, first_read_query, first_read_ratio })
}

/// Returns the duration of a context request and the number of messages in the context.
async fn context(session: &Session) -> Result<(Duration, usize), Error> {
    let request = ContextRequest { tokens: Some(4_000), ..ContextRequest::default() };
    let started = Instant::now();
    let context = session.context(request).await?;
    Ok((started.elapsed(), context.messages.len()))
}
