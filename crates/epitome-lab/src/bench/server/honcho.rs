//! Measures Honcho's routes the way Honcho's clients use these routes. Many clients append single messages while
//! summaries are written. One client requests contexts of a summarized session.
//!
//! For comparison: Honcho 3.0.12 on a similar machine handled 33 to 51 appends per second with 16 clients, and 70 to
//! 120 contexts per second with one client.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};

use super::appends::text;
use super::child::Child;
use super::client::{self, Client};
use super::{BenchError, CLIENTS};
use crate::bench::engine::{self, OnProgress, Progress, ResultLine, Spread, median};

/// Minimum appends per second: 60 times Honcho's best result.
const TARGET_APPENDS: f64 = 60.0 * 51.0;

/// Minimum contexts per second: 50 times Honcho's best result.
const TARGET_CONTEXTS: f64 = 50.0 * 120.0;

/// Number of messages in the session whose contexts are requested. All messages except the last few are summarized.
const MESSAGES: u64 = 1_010;

/// Results for Honcho's routes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Honcho {
    /// Messages per second from 16 clients. Each client appends to its own session.
    appends_per_second: f64,
    /// Durations of the appends to own sessions, in milliseconds.
    append_millis: Spread,
    /// Messages per second from 16 clients. All clients append to the same session.
    appends_to_one_per_second: f64,
    /// Contexts per second for one client that repeats its request. A context has at most 4,000 tokens.
    contexts_per_second: f64,
    /// Durations of the repeated context requests, in milliseconds.
    context_millis: Spread,
    /// Contexts per second for one client that appends a message before each context request. The time of the append
    /// does not count.
    #[serde(rename = "contexts_anew_per_second")]
    contexts_after_append_per_second: f64,
    /// Durations of the context requests after an append, in milliseconds.
    #[serde(rename = "context_anew_millis")]
    context_after_append_millis: Spread,
    rounds: usize,
}

impl Honcho {
    pub(super) fn lines(&self) -> [ResultLine; 4] {
        let figure = |rate: f64, millis: &Spread| {
            format!("{rate:.0}/s (p50 {:.2} ms, p99 {:.2} ms)", millis.median, millis.p99)
        };
        let (appends, contexts) = (self.appends_per_second, self.contexts_per_second);
        [
            ResultLine::new(
                "Honcho's routes: appends, 16 clients, 16 sessions",
                figure(appends, &self.append_millis),
                ">= 3060/s",
                Some(appends >= TARGET_APPENDS),
            ),
            ResultLine::new(
                "Honcho's routes: appends, 16 clients, one session",
                format!("{:.0}/s", self.appends_to_one_per_second),
                ">= 3060/s",
                Some(self.appends_to_one_per_second >= TARGET_APPENDS),
            ),
            ResultLine::new(
                "Honcho's routes: contexts, 1 client, repeated",
                figure(contexts, &self.context_millis),
                ">= 6000/s",
                Some(contexts >= TARGET_CONTEXTS),
            ),
            ResultLine::new(
                "Honcho's routes: contexts, 1 client, after an append",
                figure(self.contexts_after_append_per_second, &self.context_after_append_millis),
                "",
                None,
            ),
        ]
    }
}

/// Measures Honcho's routes in `rounds` rounds. A round has `appends` appends to own sessions, `appends` appends to one
/// session, `contexts` repeated contexts, and a tenth as many contexts after an append.
pub(super) async fn honcho(
    folder: &Path,
    rounds: usize,
    (appends, contexts): (u64, u64),
    on_progress: OnProgress<'_>,
) -> Result<Honcho, BenchError> {
    let server = Child::serve(folder, "honcho.db", &[]).await?;
    server.ready().await?;
    long_session(&server).await?;
    let each = appends.div_ceil(CLIENTS as u64);
    let (mut own, mut shared, mut repeated, mut after) = (vec![], vec![], vec![], vec![]);
    let (mut own_times, mut repeated_times, mut after_times) = (vec![], vec![], vec![]);
    // The first round only warms up.
    for round in 0..=rounds.max(1) {
        on_progress(Progress { stage: "Honcho's routes", done: round as u64, of: rounds as u64 });
        let from = round as u64 * each;
        let requests = move |client: usize, n: u64| {
            (n < each).then(|| append(&format!("client-{client}"), client, from + n))
        };
        let own_sessions = client::round(server.address, CLIENTS, Arc::new(requests)).await?;
        let requests = move |client: usize, n: u64| (n < each).then(|| append("shared", client, from + n));
        let one_session = client::round(server.address, CLIENTS, Arc::new(requests)).await?;
        wait_for_summaries(&server).await?;
        let requests = move |_: usize, n: u64| (n < contexts).then(context);
        let repeats = client::round(server.address, 1, Arc::new(requests)).await?;
        let durations = after_appends(&server, (contexts / 10).max(1)).await?;
        if round > 0 {
            own.push(own_sessions.rate);
            own_times.extend(own_sessions.times);
            shared.push(one_session.rate);
            repeated.push(repeats.rate);
            repeated_times.extend(repeats.times);
            after.push(durations.len() as f64 / durations.iter().sum::<Duration>().as_secs_f64());
            after_times.extend(durations);
        }
    }
    drop(server);
    engine::remove(&folder.join("honcho.db"));
    Ok(Honcho {
        appends_per_second: median(own),
        append_millis: Spread::of(own_times),
        appends_to_one_per_second: median(shared),
        contexts_per_second: median(repeated),
        context_millis: Spread::of(repeated_times),
        contexts_after_append_per_second: median(after),
        context_after_append_millis: Spread::of(after_times),
        rounds: rounds.max(1),
    })
}

const SESSIONS: &str = "/v3/workspaces/bench/sessions";

/// Returns a request that appends the n-th message to a session, in the format of Honcho's clients.
fn append(session: &str, client: usize, n: u64) -> Vec<u8> {
    let message = json!({"peer_id": format!("peer-{client}"), "content": text(n)});
    client::post(&format!("{SESSIONS}/{session}/messages"), &json!({"messages": [message]}).to_string())
}

fn context() -> Vec<u8> {
    client::get(&format!("{SESSIONS}/long/context?summary=true&limit_to_session=false&tokens=4000"))
}

/// Appends [`MESSAGES`] messages to the session whose contexts are requested, and waits for its summaries.
async fn long_session(server: &Child) -> Result<(), BenchError> {
    let mut client = Client::connect(server.address).await?;
    for from in (0..MESSAGES).step_by(100) {
        let messages = (from..(from + 100).min(MESSAGES))
            .map(|n| json!({"peer_id": if n % 2 == 0 { "ann" } else { "bot" }, "content": text(n)}))
            .collect::<Vec<_>>();
        let body = json!({ "messages": messages }).to_string();
        client.send(&client::post(&format!("{SESSIONS}/long/messages"), &body)).await?;
    }
    wait_for_summaries(server).await
}

/// Waits until no summary is due and no summary is being written. Clients normally do not request contexts while
/// thousands of messages are appended per second.
async fn wait_for_summaries(server: &Child) -> Result<(), BenchError> {
    let mut client = Client::connect(server.address).await?;
    let request = client::get("/v3/workspaces/bench/queue/status");
    for _ in 0..600 {
        let status: Value = serde_json::from_slice(client.send(&request).await?).unwrap_or_default();
        let left = |key: &str| status.get(key).and_then(Value::as_u64);
        if left("pending_work_units") == Some(0) && left("in_progress_work_units") == Some(0) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Returns the durations of contexts, each requested directly after an append.
async fn after_appends(server: &Child, times: u64) -> Result<Vec<Duration>, BenchError> {
    let mut client = Client::connect(server.address).await?;
    let mut durations = Vec::new();
    for n in 0..times {
        client.send(&append("long", 0, n)).await?;
        let sent = Instant::now();
        client.send(&context()).await?;
        durations.push(sent.elapsed());
    }
    Ok(durations)
}
