//! Measures nodes on PostgreSQL, compared with bare statements on the same tables.

use std::time::{Duration, Instant};

use epitome::Error;
use epitome::store::{PostgresOptions, StoreError};
use epitome::{ContextRequest, Engine, Session};
use serde::Serialize;
use tokio::task::JoinSet;

use super::{Line, Progress, Spread, Tell, median, talk};

mod bare;
mod work;

use bare::{Bare, in_one_of_its_own};
use work::{heard, work};

/// Number of connections on either side, and of concurrent appending tasks.
const TASKS: usize = 16;

/// Response time of the model in the comparison of two nodes with one.
const MODEL_TAKES: Duration = Duration::from_millis(200);

/// Minimum throughput of appends, as a share of bare inserts.
const APPENDS: f64 = 0.7;
/// Maximum duration of a context, as a multiple of a bare query.
const CONTEXTS: f64 = 2.0;
/// Minimum throughput of two nodes, as a multiple of one node's.
const TWO: f64 = 1.7;
/// Maximum time from a commit to the lease on another node, in milliseconds.
const HEARD: f64 = 50.0;

/// How much to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSizes {
    /// Number of alternating rounds.
    pub rounds: usize,
    /// Messages that each side appends per round.
    pub appends: usize,
    /// Messages in the session whose contexts are requested.
    pub long: u64,
    /// Number of contexts.
    pub contexts: usize,
    /// Number of sessions with a due summary, for one node and then for two.
    pub sessions: usize,
    /// Number of measured leases.
    pub leases: usize,
}

impl NodeSizes {
    /// A run of one to two minutes.
    pub fn standard() -> Self {
        Self { rounds: 7, appends: 8_000, long: 10_000, contexts: 500, sessions: 64, leases: 60 }
    }

    /// A short run.
    pub fn quick() -> Self {
        Self { rounds: 3, appends: 2_000, long: 2_000, contexts: 100, sessions: 24, leases: 15 }
    }
}

/// Appends through the engine and bare inserts, in alternating rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Beside {
    /// Messages per second through `Session::append`.
    pub rows_per_second: f64,
    /// Rows per second with bare inserts into the same table.
    pub bare_rows_per_second: f64,
    /// Median of the rounds' ratios of the first rate to the second.
    pub ratio: f64,
}

/// Durations of contexts of 4,000 tokens, in milliseconds. Each is compared with a bare query for the same number of
/// messages of the same session.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Contexts {
    /// A session that grows by one message before each context.
    pub growing: Spread,
    /// The bare queries for these contexts.
    pub query: Spread,
    /// Ratio of the two medians.
    pub ratio: f64,
    /// Sessions that this node reads for the first time.
    pub strange: Spread,
    /// The bare queries for these contexts, including the query for the session's id.
    pub strange_query: Spread,
    /// Ratio of the two medians.
    pub strange_ratio: f64,
}

/// The results of nodes on PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Nodes {
    /// Appends of one message each.
    pub appends: Beside,
    /// Appends of a hundred messages each.
    pub batches: Beside,
    /// Contexts and bare queries.
    pub contexts: Contexts,
    /// Summaries per second by one node, with a model that takes 200 ms.
    pub one_node: f64,
    /// Summaries per second by two nodes.
    pub two_nodes: f64,
    /// Time from the commit of an append that made a slot due until another node has the lease, in milliseconds.
    pub heard: Spread,
}

impl Nodes {
    /// Returns the lines of the result table.
    pub fn lines(&self) -> Vec<Line> {
        let appends = |name: &str, beside: &Beside| {
            let figure = format!(
                "{:.0}/s, {:.2} of bare inserts' {:.0}/s",
                beside.rows_per_second, beside.ratio, beside.bare_rows_per_second
            );
            Line::new(name, figure, "0.70 of it", Some(beside.ratio >= APPENDS))
        };
        let contexts = |ours: &Spread, query: &Spread, ratio: f64, what: &str| {
            format!("{:.2} ms, {ratio:.2} of {what} {:.2} ms", ours.median, query.median)
        };
        let of = &self.contexts;
        let growing = contexts(&of.growing, &of.query, of.ratio, "a bare query's");
        let strange = contexts(&of.strange, &of.strange_query, of.strange_ratio, "two bare queries'");
        let two = self.two_nodes / self.one_node;
        vec![
            appends("appends, 16 connections", &self.appends),
            appends("appends of 100, 16 connections", &self.batches),
            Line::new("context, p50", growing, "2.00 of it", Some(of.ratio <= CONTEXTS)),
            // Most contexts belong to growing sessions, so this value has no target.
            Line::new("first context of a session, p50", strange, "", None),
            Line::new(
                "two nodes, model takes 200 ms",
                format!("{two:.2} of one's {:.1} summaries/s", self.one_node),
                "1.70 of it",
                Some(two >= TWO),
            ),
            Line::new(
                "commit to lease on another node, p50",
                format!("{:.1} ms (p95 {:.1})", self.heard.median, self.heard.p95),
                "50 ms",
                Some(self.heard.median < HEARD),
            ),
        ]
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Store(StoreError::Failed { reason: error.to_string() })
}

/// Runs the measurements in temporary databases on the server at this URL.
pub async fn nodes(url: &str, sizes: &NodeSizes, tell: Tell<'_>) -> Result<Nodes, Error> {
    let (appends, batches, contexts) =
        in_one_of_its_own(url, async |url| one_node(url, sizes, tell).await).await?;
    let at_work =
        async |nodes| in_one_of_its_own(url, async |url| work(url, sizes.sessions, nodes, tell).await).await;
    let (one_node, two_nodes) = (at_work(1).await?, at_work(2).await?);
    let heard = in_one_of_its_own(url, async |url| heard(url, sizes.leases, tell).await).await?;
    Ok(Nodes { appends, batches, contexts, one_node, two_nodes, heard })
}

/// Measures a single node.
async fn one_node(url: &str, sizes: &NodeSizes, tell: Tell<'_>) -> Result<(Beside, Beside, Contexts), Error> {
    let options = || PostgresOptions { connections: TASKS, ..PostgresOptions::default() };
    let node = || Engine::builder().workers(0).postgres(options()).open_postgres(url);
    let (engine, bare) = (node().await?, Bare::connect(url).await?);
    let appends = beside(&engine, &bare, sizes, 1, ("appends", tell)).await?;
    let batches = beside(&engine, &bare, sizes, 100, ("appends of 100", tell)).await?;
    let contexts = contexts(&engine, node, &bare, sizes, tell).await?;
    engine.close().await;
    Ok((appends, batches, contexts))
}

async fn beside(
    engine: &Engine,
    bare: &Bare,
    sizes: &NodeSizes,
    together: u64,
    (stage, tell): (&'static str, Tell<'_>),
) -> Result<Beside, Error> {
    // Batches are faster, so a round of batches needs more messages to be measurable.
    let each = (sizes.appends as u64).saturating_mul(together.min(3)).div_ceil(TASKS as u64);
    let each = each.div_ceil(together).max(2);
    let rounds = sizes.rounds.max(1) as u64;
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    // The first round only warms up.
    for round in 0..=rounds {
        tell(Progress { stage, done: round, of: rounds });
        let (mine, other) = if round % 2 == 0 {
            let mine = through_engine(engine, each, together).await?;
            (mine, bare.round(each, together).await?)
        } else {
            let other = bare.round(each, together).await?;
            (through_engine(engine, each, together).await?, other)
        };
        // The search index is updated when no append is waiting. This must not slow down the other side's turn.
        bare.quiet().await?;
        if round > 0 {
            ratios.push(mine / other);
            ours.push(mine);
            theirs.push(other);
        }
    }
    Ok(Beside { rows_per_second: median(ours), bare_rows_per_second: median(theirs), ratio: median(ratios) })
}

async fn through_engine(engine: &Engine, each: u64, together: u64) -> Result<f64, Error> {
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let session = engine.session(format!("task {task} of {together}"));
        tasks.spawn(async move {
            for n in 0..each {
                session.append(talk::many(n * together, together)).await?;
            }
            Ok::<_, Error>(())
        });
    }
    all(&mut tasks).await?;
    Ok((each * together * TASKS as u64) as f64 / started.elapsed().as_secs_f64())
}

async fn all(tasks: &mut JoinSet<Result<(), Error>>) -> Result<(), Error> {
    while let Some(done) = tasks.join_next().await {
        done.map_err(|_| Error::Closed)??;
    }
    Ok(())
}

/// Number of sessions that the node reads for the first time, and messages in each.
const STRANGE: (u64, u64) = (100, 500);

/// Measures contexts of a long session that grows by one message each time, and of sessions that another node wrote.
async fn contexts<F: Future<Output = Result<Engine, Error>>>(
    engine: &Engine,
    another: impl Fn() -> F,
    bare: &Bare,
    sizes: &NodeSizes,
    tell: Tell<'_>,
) -> Result<Contexts, Error> {
    let long = engine.session("long");
    for from in (0..sizes.long).step_by(500) {
        long.append(talk::many(from, 500.min(sizes.long - from))).await?;
    }
    for n in 0..STRANGE.0 {
        engine.session(format!("strange {n}")).append(talk::many(0, STRANGE.1)).await?;
    }
    bare.quiet().await?;
    // Without statistics the query would get a bad plan.
    bare.ask("ANALYZE").await?;
    let (mut growing, mut query) = (Vec::new(), Vec::new());
    for n in 0..sizes.contexts as u64 {
        tell(Progress { stage: "contexts", done: n, of: sizes.contexts as u64 });
        long.append(talk::said(n)).await?;
        let (ours, messages) = context(&long).await?;
        growing.push(ours);
        query.push(bare.query("long", messages, true).await?);
    }
    let (mut strange, mut strange_query) = (Vec::new(), Vec::new());
    let other = another().await?;
    for n in 0..STRANGE.0 {
        tell(Progress { stage: "contexts elsewhere", done: n, of: STRANGE.0 });
        let name = format!("strange {n}");
        let (ours, messages) = context(&other.session(name.as_str())).await?;
        strange.push(ours);
        strange_query.push(bare.query(&name, messages, false).await?);
    }
    other.close().await;
    let [growing, query, strange, strange_query] = [growing, query, strange, strange_query].map(Spread::of);
    let (ratio, strange_ratio) = (growing.median / query.median, strange.median / strange_query.median);
    Ok(Contexts { growing, query, ratio, strange, strange_query, strange_ratio })
}

/// Returns the duration of a context request and the number of messages in the context.
async fn context(session: &Session) -> Result<(Duration, usize), Error> {
    let asked = ContextRequest { tokens: Some(4_000), ..ContextRequest::default() };
    let started = Instant::now();
    let context = session.context(asked).await?;
    Ok((started.elapsed(), context.messages.len()))
}
