//! Measures contexts over HTTP. The baseline is the echo server, which uses no engine.
//!
//! The echo server has two routes. One route echoes a request body with as many bytes as the context. The other route
//! sends the same number of prepared bytes, which is faster. Contexts are requested in two ways: the same request is
//! repeated while nothing changes, or each request is different, so that no response is cached.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use epitome::Engine;
use serde::Serialize;

use super::child::Child;
use super::client::{self, Client};
use super::{BenchError, CLIENTS};
use crate::bench::engine::{self, OnProgress, Progress, ResultLine, Spread, median};

/// Minimum throughput of repeated requests, as a share of the echo server's throughput.
const TARGET_RATIO: f64 = 0.4;

/// Budgets of the contexts, in tokens. `None` is a request without a budget.
const BUDGETS: [Option<u64>; 3] = [Some(4_000), Some(16_000), None];

/// Results for contexts of a summarized session, with one budget and one number of concurrent clients.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct HttpContexts {
    /// Number of messages in the session.
    messages: u64,
    /// The budget in tokens; `None` if the request has no budget.
    tokens: Option<u64>,
    clients: usize,
    /// Whether each request was different, so that the server had to compute the context. If false, the same request
    /// was repeated.
    #[serde(rename = "anew")]
    computed: bool,
    /// Size of the response, in bytes.
    bytes: usize,
    /// Contexts per second.
    per_second: f64,
    /// Responses per second of the echo server, when it echoes a body with the same number of bytes.
    echo_per_second: f64,
    /// `per_second` divided by `echo_per_second`. The value is the median of this ratio over all rounds.
    ratio: f64,
    /// Responses per second of the echo server, when it only sends the same number of prepared bytes.
    sent_per_second: f64,
    /// `per_second` divided by `sent_per_second`. The value is the median of this ratio over all rounds.
    sent_ratio: f64,
    /// Durations of the context requests, in milliseconds.
    millis: Spread,
}

impl HttpContexts {
    pub(super) fn line(&self) -> ResultLine {
        let budget = self.tokens.map_or("no budget".to_owned(), |tokens| format!("{tokens} tokens"));
        let clients =
            if self.clients == 1 { "1 client".to_owned() } else { format!("{} clients", self.clients) };
        let kind = if self.computed { "computed each time" } else { "repeated" };
        let name = format!("context of {budget}, {} messages, {clients}, {kind}", self.messages);
        let figure = format!(
            "{:.0}/s (p99 {:.2} ms) of {:.1} kB, {:.2}× the echo rate ({:.0}/s), {:.2}× the send rate ({:.0}/s)",
            self.per_second,
            self.millis.p99,
            self.bytes as f64 / 1e3,
            self.ratio,
            self.echo_per_second,
            self.sent_ratio,
            self.sent_per_second,
        );
        match self.computed {
            true => ResultLine::new(name, figure, "", None),
            false => ResultLine::new(name, figure, ">= 0.40×", Some(self.ratio >= TARGET_RATIO)),
        }
    }
}

/// Measures contexts of a session with `messages` messages. In each of `rounds` rounds, the server and both routes of
/// the echo server get `each` requests.
pub(super) async fn contexts(
    folder: &Path,
    messages: u64,
    rounds: usize,
    each: u64,
    on_progress: OnProgress<'_>,
) -> Result<Vec<HttpContexts>, BenchError> {
    let file = folder.join("contexts.db");
    let engine = Engine::builder().workers(0).open(&file).await?;
    let appended = |done| on_progress(Progress { stage: "a long session", done, of: messages });
    engine::summarized(&engine, messages, &appended).await?;
    engine.close().await;
    let server = Child::serve(folder, "contexts.db", &[]).await?;
    let echo = Child::echo(folder).await?;
    server.ready().await?;
    let ways = [(CLIENTS, true), (CLIENTS, false), (1, true), (1, false)];
    let kinds: Vec<_> = ways.iter().flat_map(|way| BUDGETS.map(|tokens| (*way, tokens))).collect();
    let mut all = Vec::new();
    for (at, ((clients, computed), tokens)) in kinds.iter().copied().enumerate() {
        on_progress(Progress { stage: "contexts", done: at as u64, of: kinds.len() as u64 });
        let requests = ContextRequests { tokens, computed, count: Arc::default() };
        let bytes = Client::connect(server.address).await?.send(&requests.next()).await?.len();
        let (echoed, sent) = (client::post("/", &" ".repeat(bytes)), client::get(&format!("/{bytes}")));
        let (mut rates, mut times) = (vec![], vec![]);
        let (mut echo_rates, mut ratios, mut sent_rates, mut sent_ratios) = (vec![], vec![], vec![], vec![]);
        // The first round only warms up.
        for round in 0..=rounds.max(1) {
            let (requests, echoed, sent) = (requests.clone(), echoed.clone(), sent.clone());
            let contexts = repeat(&server, clients, each, move || requests.next()).await?;
            let echoes = repeat(&echo, clients, each, move || echoed.clone()).await?;
            let only_sent = repeat(&echo, clients, each, move || sent.clone()).await?;
            if round > 0 {
                rates.push(contexts.rate);
                ratios.push(contexts.rate / echoes.rate);
                echo_rates.push(echoes.rate);
                sent_ratios.push(contexts.rate / only_sent.rate);
                sent_rates.push(only_sent.rate);
                times.extend(contexts.times);
            }
        }
        all.push(HttpContexts {
            messages,
            tokens,
            clients,
            computed,
            bytes,
            per_second: median(rates),
            echo_per_second: median(echo_rates),
            ratio: median(ratios),
            sent_per_second: median(sent_rates),
            sent_ratio: median(sent_ratios),
            millis: Spread::of(times),
        });
    }
    drop(server);
    engine::remove(&file);
    Ok(all)
}

/// Generates the context requests.
#[derive(Clone)]
struct ContextRequests {
    tokens: Option<u64>,
    computed: bool,
    count: Arc<AtomicU64>,
}

impl ContextRequests {
    fn next(&self) -> Vec<u8> {
        let tokens = self.tokens.map_or(String::new(), |tokens| format!("tokens={tokens}&"));
        // No author in the session has the name `n0`, `n1` and so on. So the context is the same, but the response is
        // not cached.
        let assistant = match self.computed {
            true => format!("assistant=n{}", self.count.fetch_add(1, Ordering::Relaxed)),
            false => String::new(),
        };
        client::get(&format!("/v1/sessions/measured/context?{tokens}{assistant}"))
    }
}

/// Sends `times` requests in total, divided among `clients` concurrent clients.
async fn repeat(
    server: &Child,
    clients: usize,
    times: u64,
    request: impl Fn() -> Vec<u8> + Send + Sync + 'static,
) -> Result<client::Round, BenchError> {
    let each = times.div_ceil(clients as u64);
    let requests = move |_, n| (n < each).then(&request);
    Ok(client::round(server.address, clients, Arc::new(requests)).await?)
}
