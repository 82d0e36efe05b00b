//! Measures durable appends over HTTP. The baseline is an engine in this process, without HTTP.

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
use super::{BenchError, CLIENTS, client};
use crate::bench::engine::{self, OnProgress, Progress, ResultLine, Spread, median};

/// Minimum throughput over HTTP, as a share of the engine's throughput.
const TARGET_RATIO: f64 = 0.5;

/// Maximum 99th percentile of a request's duration, in milliseconds.
const TARGET_MILLIS: f64 = 25.0;

/// Slots with triggers that no measured session reaches. The server and the engine both use these slots, so that
/// neither writes summaries. They still check the triggers and update the slots on each append.
const SLOTS: &str =
    r#"[{"name":"short","trigger":"messages(1000000000)"},{"name":"long","trigger":"messages(1000000000)"}]"#;

/// Results for durable appends of single messages. 16 clients append, and each client has its own session and
/// connection.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct HttpAppends {
    /// Rows per second over HTTP.
    rows_per_second: f64,
    /// Rows per second from 16 tasks in a process with its own engine.
    engine_rows_per_second: f64,
    /// The server's rate divided by the engine's rate. The value is the median of this ratio over all rounds.
    ratio: f64,
    /// Durations of the HTTP requests, in milliseconds.
    millis: Spread,
    rounds: usize,
}

impl HttpAppends {
    pub(super) fn lines(&self) -> [ResultLine; 2] {
        let (rate, engine, millis) = (self.rows_per_second, self.engine_rows_per_second, &self.millis);
        [
            ResultLine::new(
                "durable appends, 16 clients",
                format!("{rate:.0}/s, {:.2}× the engine without HTTP ({engine:.0}/s)", self.ratio),
                ">= 0.50×",
                Some(self.ratio >= TARGET_RATIO),
            ),
            ResultLine::new(
                "durable appends, 16 clients: response time",
                format!("p50 {:.2} ms, p99 {:.2} ms", millis.median, millis.p99),
                "p99 < 25 ms",
                Some(millis.p99 < TARGET_MILLIS),
            ),
        ]
    }
}

/// Measures appends to databases in `folder`. In each of `rounds` rounds, the server and the engine each append `rows`
/// rows.
pub(super) async fn appends(
    folder: &Path,
    rounds: usize,
    rows: u64,
    on_progress: OnProgress<'_>,
) -> Result<HttpAppends, BenchError> {
    let (engine_file, server_file) = (folder.join("engine.db"), folder.join("server.db"));
    let patch = Patch::parse(&format!(r#"{{"slot":{SLOTS}}}"#)).map_err(epitome::Error::from)?;
    let engine = Engine::builder().settings(patch).open(&engine_file).await?;
    let server = Child::serve(folder, "server.db", &[format!("slot={SLOTS}")]).await?;
    server.ready().await?;
    let each = rows.div_ceil(CLIENTS as u64);
    let (mut server_rates, mut engine_rates, mut ratios, mut times) = (vec![], vec![], vec![], vec![]);
    // The first round only warms up.
    for round in 0..=rounds.max(1) {
        on_progress(Progress { stage: "durable appends", done: round as u64, of: rounds as u64 });
        let from = round as u64 * each;
        // The order alternates: otherwise either the server or the engine would always start with an idle disk.
        let (over_http, engine_rate) = if round % 2 == 0 {
            let over_http = over_http(&server, from, each).await?;
            engine::wait_until_indexed(&server_file).await?;
            (over_http, through_engine(&engine, from, each).await?)
        } else {
            let rate = through_engine(&engine, from, each).await?;
            engine::wait_until_indexed(&engine_file).await?;
            (over_http(&server, from, each).await?, rate)
        };
        engine::wait_until_indexed(&engine_file).await?;
        engine::wait_until_indexed(&server_file).await?;
        if round > 0 {
            ratios.push(over_http.rate / engine_rate);
            server_rates.push(over_http.rate);
            engine_rates.push(engine_rate);
            times.extend(over_http.times);
        }
    }
    engine.close().await;
    drop(server);
    engine::remove(&engine_file);
    engine::remove(&server_file);
    Ok(HttpAppends {
        rows_per_second: median(server_rates),
        engine_rows_per_second: median(engine_rates),
        ratio: median(ratios),
        millis: Spread::of(times),
        rounds: rounds.max(1),
    })
}

async fn over_http(server: &Child, from: u64, each: u64) -> Result<client::Round, BenchError> {
    let requests = move |client: usize, n: u64| (n < each).then(|| append(client, from + n));
    Ok(client::round(server.address, CLIENTS, Arc::new(requests)).await?)
}

/// Returns a request that appends the n-th message to a client's session.
pub(super) fn append(client: usize, n: u64) -> Vec<u8> {
    let body = json!({"role": engine::short_message(n).role, "content": text(n)}).to_string();
    client::post(&format!("/v1/sessions/client-{client}/messages"), &body)
}

/// Returns the text of the n-th message.
pub(super) fn text(n: u64) -> Option<String> {
    engine::short_message(n).parts.into_iter().find_map(|part| match part {
        Part::Text { text } => Some(text),
        _ => None,
    })
}

/// Appends `each` messages per session through the engine. Returns the rows per second of all sessions together.
async fn through_engine(engine: &Engine, from: u64, each: u64) -> Result<f64, BenchError> {
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for client in 0..CLIENTS {
        let session = engine.session(format!("client-{client}"));
        tasks.spawn(async move {
            for n in from..from + each {
                session.append(engine::short_message(n)).await?;
            }
            Ok::<_, epitome::Error>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.map_err(|_| epitome::Error::Closed)??;
    }
    Ok((each * CLIENTS as u64) as f64 / started.elapsed().as_secs_f64())
}
