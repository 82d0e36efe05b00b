//! Honcho's routes, as its clients use them: single messages from many clients, contexts of a session that is
//! summarized, both while summaries are written. For scale: Honcho 3.0.12 on such a machine did 33 to 51 appends a second
//! with 16 clients, and 70 to 120 contexts with one.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};

use super::appends::words;
use super::child::Child;
use super::client::{self, Client};
use super::{CLIENTS, Trouble};
use crate::bench::engine::{self, Line, Progress, Spread, Tell, median};

/// At least 60 times the most that Honcho did.
const APPENDS: f64 = 60.0 * 51.0;

/// At least 50 times.
const CONTEXTS: f64 = 50.0 * 120.0;

/// The messages of the session whose contexts are asked for: summarized up to the last few.
const MESSAGES: u64 = 1_010;

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Honcho {
    /// Messages a second from 16 clients, each in a session of its own.
    appends_per_second: f64,
    /// How long a request took, in milliseconds.
    append_millis: Spread,
    /// The same, all in one session.
    appends_to_one_per_second: f64,
    /// Contexts of 4,000 tokens a second for one client, nothing having changed.
    contexts_per_second: f64,
    context_millis: Spread,
    /// The same right after a message was added.
    contexts_anew_per_second: f64,
    context_anew_millis: Spread,
    rounds: usize,
}

impl Honcho {
    pub(super) fn lines(&self) -> [Line; 4] {
        let told = |rate: f64, millis: &Spread| {
            format!("{rate:.0}/s (p50 {:.2} ms, p99 {:.2} ms)", millis.median, millis.p99)
        };
        let (appends, contexts) = (self.appends_per_second, self.contexts_per_second);
        [
            Line::new(
                "Honcho's routes: appends, 16 clients, 16 sessions",
                told(appends, &self.append_millis),
                "3060/s",
                Some(appends >= APPENDS),
            ),
            Line::new(
                "Honcho's routes: appends, 16 clients, one session",
                format!("{:.0}/s", self.appends_to_one_per_second),
                "3060/s",
                Some(self.appends_to_one_per_second >= APPENDS),
            ),
            Line::new(
                "Honcho's routes: contexts, 1 client, asked again",
                told(contexts, &self.context_millis),
                "6000/s",
                Some(contexts >= CONTEXTS),
            ),
            Line::new(
                "Honcho's routes: contexts, 1 client, after an append",
                told(self.contexts_anew_per_second, &self.context_anew_millis),
                "",
                None,
            ),
        ]
    }
}

/// Measures in a folder, `rounds` times: so many appends and so many contexts each time.
pub(super) async fn honcho(
    folder: &Path,
    rounds: usize,
    (appends, contexts): (u64, u64),
    tell: Tell<'_>,
) -> Result<Honcho, Trouble> {
    let server = Child::serve(folder, "honcho.db", &[]).await?;
    server.ready().await?;
    long_session(&server).await?;
    let each = appends.div_ceil(CLIENTS as u64);
    let (mut own, mut shared, mut again, mut anew) = (vec![], vec![], vec![], vec![]);
    let (mut own_times, mut again_times, mut anew_times) = (vec![], vec![], vec![]);
    // The first round only warms up.
    for round in 0..=rounds.max(1) {
        tell(Progress { stage: "Honcho's routes", done: round as u64, of: rounds as u64 });
        let from = round as u64 * each;
        let says = move |client: usize, n: u64| {
            (n < each).then(|| append(&format!("client-{client}"), client, from + n))
        };
        let apart = client::round(server.address, CLIENTS, Arc::new(says)).await?;
        let says = move |client: usize, n: u64| (n < each).then(|| append("shared", client, from + n));
        let together = client::round(server.address, CLIENTS, Arc::new(says)).await?;
        settled(&server).await?;
        let says = move |_: usize, n: u64| (n < contexts).then(context);
        let asked = client::round(server.address, 1, Arc::new(says)).await?;
        let made = after_appends(&server, (contexts / 10).max(1)).await?;
        if round > 0 {
            own.push(apart.rate);
            own_times.extend(apart.times);
            shared.push(together.rate);
            again.push(asked.rate);
            again_times.extend(asked.times);
            anew.push(made.len() as f64 / made.iter().sum::<Duration>().as_secs_f64());
            anew_times.extend(made);
        }
    }
    drop(server);
    engine::remove(&folder.join("honcho.db"));
    Ok(Honcho {
        appends_per_second: median(own),
        append_millis: Spread::of(own_times),
        appends_to_one_per_second: median(shared),
        contexts_per_second: median(again),
        context_millis: Spread::of(again_times),
        contexts_anew_per_second: median(anew),
        context_anew_millis: Spread::of(anew_times),
        rounds: rounds.max(1),
    })
}

const SESSIONS: &str = "/v3/workspaces/bench/sessions";

/// A request that adds a message, as Honcho's clients write it.
fn append(session: &str, client: usize, n: u64) -> Vec<u8> {
    let message = json!({"peer_id": format!("peer-{client}"), "content": words(n)});
    client::post(&format!("{SESSIONS}/{session}/messages"), &json!({"messages": [message]}).to_string())
}

fn context() -> Vec<u8> {
    client::get(&format!("{SESSIONS}/long/context?summary=true&limit_to_session=false&tokens=4000"))
}

/// Fills the session whose contexts are asked for, and waits for its summaries.
async fn long_session(server: &Child) -> Result<(), Trouble> {
    let mut client = Client::connect(server.address).await?;
    for from in (0..MESSAGES).step_by(100) {
        let messages = (from..(from + 100).min(MESSAGES))
            .map(|n| json!({"peer_id": if n % 2 == 0 { "ann" } else { "bot" }, "content": words(n)}))
            .collect::<Vec<_>>();
        let body = json!({ "messages": messages }).to_string();
        client.ask(&client::post(&format!("{SESSIONS}/long/messages"), &body)).await?;
    }
    settled(server).await
}

/// Waits until no summary is due: whoever asks for contexts all day does not do so beside a thousand appends a second.
async fn settled(server: &Child) -> Result<(), Trouble> {
    let mut client = Client::connect(server.address).await?;
    let status = client::get("/v3/workspaces/bench/queue/status");
    for _ in 0..600 {
        let told: Value = serde_json::from_slice(client.ask(&status).await?).unwrap_or_default();
        let left = |key: &str| told.get(key).and_then(Value::as_u64);
        if left("pending_work_units") == Some(0) && left("in_progress_work_units") == Some(0) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// How long contexts take, each right after a message was added.
async fn after_appends(server: &Child, times: u64) -> Result<Vec<Duration>, Trouble> {
    let mut client = Client::connect(server.address).await?;
    let mut took = Vec::new();
    for n in 0..times {
        client.ask(&append("long", 0, n)).await?;
        let asked = Instant::now();
        client.ask(&context()).await?;
        took.push(asked.elapsed());
    }
    Ok(took)
}
