//! Contexts over HTTP, against the same server with nothing behind it: one that echoes as many bytes, and one that only
//! sends them, which is the harder match. Once they are asked for again and again while nothing changes, once in another
//! way each time, so that none was made before.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use epitome::Engine;
use serde::Serialize;

use super::child::Child;
use super::client::{self, Client};
use super::{CLIENTS, Trouble};
use crate::bench::engine::{self, Line, Progress, Spread, Tell, median};

/// At least this part of the echo's answers.
const TARGET: f64 = 0.4;

/// What is asked for, in tokens; nothing is what the settings say.
const BUDGETS: [Option<u64>; 3] = [Some(4_000), Some(16_000), None];

/// Contexts of a summarized session, of one size, by so many clients at once.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Contexts {
    /// The messages of the session.
    messages: u64,
    /// The budget; nothing is what the settings say.
    tokens: Option<u64>,
    clients: usize,
    /// Whether each of them had to be made; else nothing had changed since it was asked for last.
    anew: bool,
    /// The bytes of the answer.
    bytes: usize,
    /// Answers a second.
    per_second: f64,
    /// The same server with nothing behind it, sent as many bytes, which it sends back.
    echo_per_second: f64,
    /// The first by the second: the median of the rounds' own ratios.
    ratio: f64,
    /// The same server with nothing behind it, sending as many bytes which it has at hand.
    sent_per_second: f64,
    /// The contexts by that.
    sent_ratio: f64,
    /// How long a request took, in milliseconds.
    millis: Spread,
}

impl Contexts {
    pub(super) fn line(&self) -> Line {
        let budget = self.tokens.map_or("no budget".to_owned(), |tokens| format!("{tokens} tokens"));
        let clients =
            if self.clients == 1 { "1 client".to_owned() } else { format!("{} clients", self.clients) };
        let again = if self.anew { "made anew" } else { "asked again" };
        let name = format!("context of {budget}, {} messages, {clients}, {again}", self.messages);
        let figure = format!(
            "{:.0}/s (p99 {:.2} ms) of {:.1} kB, {:.2} of an echo's {:.0}/s ({:.2} of {:.0}/s only sent)",
            self.per_second,
            self.millis.p99,
            self.bytes as f64 / 1e3,
            self.ratio,
            self.echo_per_second,
            self.sent_ratio,
            self.sent_per_second,
        );
        match self.anew {
            true => Line::new(name, figure, "", None),
            false => Line::new(name, figure, "0.40 of it", Some(self.ratio >= TARGET)),
        }
    }
}

/// Measures contexts of a session of so many messages in a folder: in turns, `rounds` times, so many each time.
pub(super) async fn contexts(
    folder: &Path,
    messages: u64,
    rounds: usize,
    each: u64,
    tell: Tell<'_>,
) -> Result<Vec<Contexts>, Trouble> {
    let file = folder.join("contexts.db");
    let engine = Engine::builder().workers(0).open(&file).await?;
    let told = |done| tell(Progress { stage: "a long session", done, of: messages });
    engine::summarized(&engine, messages, &told).await?;
    engine.close().await;
    let server = Child::serve(folder, "contexts.db", &[]).await?;
    let echo = Child::echo(folder).await?;
    server.ready().await?;
    let ways = [(CLIENTS, true), (CLIENTS, false), (1, true), (1, false)];
    let kinds: Vec<_> = ways.iter().flat_map(|way| BUDGETS.map(|tokens| (*way, tokens))).collect();
    let mut all = Vec::new();
    for (at, ((clients, anew), tokens)) in kinds.iter().copied().enumerate() {
        tell(Progress { stage: "contexts", done: at as u64, of: kinds.len() as u64 });
        let asks = Asks { tokens, anew, count: Arc::default() };
        let bytes = Client::connect(server.address).await?.ask(&asks.next()).await?.len();
        let (echoed, sent) = (client::post("/", &" ".repeat(bytes)), client::get(&format!("/{bytes}")));
        let (mut rates, mut times) = (vec![], vec![]);
        let (mut echo_rates, mut ratios, mut sent_rates, mut sent_ratios) = (vec![], vec![], vec![], vec![]);
        // The first round only warms both up.
        for round in 0..=rounds.max(1) {
            let (asks, echoed, sent) = (asks.clone(), echoed.clone(), sent.clone());
            let ours = repeated(&server, clients, each, move || asks.next()).await?;
            let theirs = repeated(&echo, clients, each, move || echoed.clone()).await?;
            let only_sent = repeated(&echo, clients, each, move || sent.clone()).await?;
            if round > 0 {
                rates.push(ours.rate);
                ratios.push(ours.rate / theirs.rate);
                echo_rates.push(theirs.rate);
                sent_ratios.push(ours.rate / only_sent.rate);
                sent_rates.push(only_sent.rate);
                times.extend(ours.times);
            }
        }
        all.push(Contexts {
            messages,
            tokens,
            clients,
            anew,
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

/// What is asked for.
#[derive(Clone)]
struct Asks {
    tokens: Option<u64>,
    anew: bool,
    count: Arc<AtomicU64>,
}

impl Asks {
    fn next(&self) -> Vec<u8> {
        let tokens = self.tokens.map_or(String::new(), |tokens| format!("tokens={tokens}&"));
        // Nobody in there has that name: it is the same context, and another question.
        let anew = match self.anew {
            true => format!("assistant=n{}", self.count.fetch_add(1, Ordering::Relaxed)),
            false => String::new(),
        };
        client::get(&format!("/v1/sessions/measured/context?{tokens}{anew}"))
    }
}

/// Requests, so many in all.
async fn repeated(
    server: &Child,
    clients: usize,
    times: u64,
    request: impl Fn() -> Vec<u8> + Send + Sync + 'static,
) -> Result<client::Round, Trouble> {
    let each = times.div_ceil(clients as u64);
    let says = move |_, n| (n < each).then(&request);
    Ok(client::round(server.address, clients, Arc::new(says)).await?)
}
