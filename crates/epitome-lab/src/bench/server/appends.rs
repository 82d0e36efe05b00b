//! Measures durable appends over HTTP, compared with the engine itself.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use epitome::Engine;
use epitome::rules::message::Part;
use epitome::settings::Patch;
use serde::Serialize;
use serde_json::json;
use tokio::task::JoinSet;

use super::child::Child;
use super::{CLIENTS, Trouble, client};
use crate::bench::engine::{self, Line, Progress, Spread, Tell, median};

/// Minimum throughput, as a share of the engine's.
const TARGET: f64 = 0.5;

/// Maximum 99th percentile of a request's duration, in milliseconds.
const TARGET_MILLIS: f64 = 25.0;

/// Slots whose triggers never fire, for both sides, because the cost of summaries is not compared. Triggers are still
/// checked and cursors advanced.
const SLOTS: &str =
    r#"[{"name":"short","trigger":"messages(1000000000)"},{"name":"long","trigger":"messages(1000000000)"}]"#;

/// Durable appends of single messages from 16 clients, each with its own session and connection.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Appends {
    /// Rows per second over HTTP.
    rows_per_second: f64,
    /// Rows per second from 16 tasks in a process with its own engine.
    engine_rows_per_second: f64,
    /// Median of the rounds' ratios of the first rate to the second.
    ratio: f64,
    /// Durations of requests, in milliseconds.
    millis: Spread,
    rounds: usize,
}

impl Appends {
    pub(super) fn lines(&self) -> [Line; 2] {
        let (rate, engine, millis) = (self.rows_per_second, self.engine_rows_per_second, &self.millis);
        [
            Line::new(
                "durable appends, 16 clients",
                format!("{rate:.0}/s, {:.2} of the engine's {engine:.0}/s", self.ratio),
                "0.50 of it",
                Some(self.ratio >= TARGET),
            ),
            Line::new(
                "the same, response time",
                format!("p50 {:.2} ms, p99 {:.2} ms", millis.median, millis.p99),
                "p99 25 ms",
                Some(millis.p99 < TARGET_MILLIS),
            ),
        ]
    }
}

/// Measures appends in a folder: `rounds` alternating rounds of `rows` rows each.
pub(super) async fn appends(
    folder: &Path,
    rounds: usize,
    rows: u64,
    tell: Tell<'_>,
) -> Result<Appends, Trouble> {
    let (theirs, ours) = (folder.join("engine.db"), folder.join("server.db"));
    let patch = Patch::parse(&format!(r#"{{"slot":{SLOTS}}}"#)).map_err(epitome::Error::from)?;
    let engine = Engine::builder().settings(patch).open(&theirs).await?;
    let server = Child::serve(folder, "server.db", &[format!("slot={SLOTS}")]).await?;
    server.ready().await?;
    let each = rows.div_ceil(CLIENTS as u64);
    let (mut server_rates, mut engine_rates, mut ratios, mut times) = (vec![], vec![], vec![], vec![]);
    // The first round only warms up.
    for round in 0..=rounds.max(1) {
        tell(Progress { stage: "durable appends", done: round as u64, of: rounds as u64 });
        let from = round as u64 * each;
        // The order alternates, so that neither always has an idle disk.
        let (over_http, engine_rate) = if round % 2 == 0 {
            let over_http = over_http(&server, from, each).await?;
            engine::quiet(&ours).await?;
            (over_http, through_engine(&engine, from, each).await?)
        } else {
            let rate = through_engine(&engine, from, each).await?;
            engine::quiet(&theirs).await?;
            (over_http(&server, from, each).await?, rate)
        };
        engine::quiet(&theirs).await?;
        engine::quiet(&ours).await?;
        if round > 0 {
            ratios.push(over_http.rate / engine_rate);
            server_rates.push(over_http.rate);
            engine_rates.push(engine_rate);
            times.extend(over_http.times);
        }
    }
    engine.close().await;
    drop(server);
    engine::remove(&theirs);
    engine::remove(&ours);
    Ok(Appends {
        rows_per_second: median(server_rates),
        engine_rows_per_second: median(engine_rates),
        ratio: median(ratios),
        millis: Spread::of(times),
        rounds: rounds.max(1),
    })
}

async fn over_http(server: &Child, from: u64, each: u64) -> Result<client::Round, Trouble> {
    let says = move |client: usize, n: u64| (n < each).then(|| append(client, from + n));
    Ok(client::round(server.address, CLIENTS, Arc::new(says)).await?)
}

/// Returns a request that adds the n-th message to a client's session.
pub(super) fn append(client: usize, n: u64) -> Vec<u8> {
    let body = json!({"role": engine::said(n).role, "content": words(n)}).to_string();
    client::post(&format!("/v1/sessions/client-{client}/messages"), &body)
}

/// Returns the text of the n-th message.
pub(super) fn words(n: u64) -> Option<String> {
    engine::said(n).parts.into_iter().find_map(|part| match part {
        Part::Text { text } => Some(text),
        _ => None,
    })
}

/// Returns rows per second.
async fn through_engine(engine: &Engine, from: u64, each: u64) -> Result<f64, Trouble> {
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for client in 0..CLIENTS {
        let session = engine.session(format!("client-{client}"));
        tasks.spawn(async move {
            for n in from..from + each {
                session.append(engine::said(n)).await?;
            }
            Ok::<_, epitome::Error>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.map_err(|_| epitome::Error::Closed)??;
    }
    Ok((each * CLIENTS as u64) as f64 / started.elapsed().as_secs_f64())
}
