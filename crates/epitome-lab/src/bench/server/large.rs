//! Measures a server on a large database: its startup time, and its memory under load.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::appends::append;
use super::child::Child;
use super::{BenchError, CLIENTS, client};
use crate::bench::engine::{self, OnProgress, ResultLine, Spread};

/// Maximum startup time, in milliseconds.
const TARGET_MILLIS: f64 = 500.0;

/// Maximum peak memory, in bytes: 100 MB.
const TARGET_BYTES: u64 = 100_000_000;

/// Maximum number of messages in the database for the load test. With a larger database, the server needs more memory:
/// all sessions without summaries are due at once, and the server caches parts of each session that is read.
const MAX_LOAD_MESSAGES: u64 = 100_000;

/// Number of server starts.
const STARTS: usize = 5;

/// Results for a server on a large database.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Large {
    /// Number of messages in the database for the startup measurement.
    messages: u64,
    /// Time from the start of the process until the server reports that it is ready, in milliseconds.
    ready: Spread,
    /// Duration of the load test, in seconds. In this test, 16 clients append and read while summaries are written.
    seconds: u64,
    /// Requests per second in the load test.
    requests_per_second: f64,
    /// Durations of the requests in the load test, in milliseconds.
    millis: Spread,
    /// Resident memory after the load test, in bytes. `None` if the operating system does not report the memory.
    resident: Option<u64>,
    /// Peak resident memory, in bytes. `None` if the operating system does not report the memory.
    peak: Option<u64>,
}

impl Large {
    pub(super) fn lines(&self) -> [ResultLine; 2] {
        let mb = |bytes: u64| bytes / 1_000_000;
        let memory = match (self.resident, self.peak) {
            (Some(resident), Some(peak)) => format!("{} MB (peak {} MB)", mb(resident), mb(peak)),
            _ => "not reported by this system".to_owned(),
        };
        let Self { messages, seconds, requests_per_second: rate, .. } = self;
        [
            ResultLine::new(
                format!("from start to ready, database of {messages} messages"),
                format!("{:.0} ms (p95 {:.0})", self.ready.median, self.ready.p95),
                "< 500 ms",
                Some(self.ready.median < TARGET_MILLIS),
            ),
            ResultLine::new(
                format!(
                    "memory after {seconds} s of mixed load, {} messages",
                    messages.min(&MAX_LOAD_MESSAGES)
                ),
                format!("{memory}, at {rate:.0} requests/s"),
                "peak < 100 MB",
                self.peak.or(self.resident).map(|bytes| bytes < TARGET_BYTES),
            ),
        ]
    }
}

/// Creates a database with `messages` messages, and measures how long servers need to start on this database. Then
/// creates a database of at most [`MAX_LOAD_MESSAGES`] messages, and runs the load test on the second database.
pub(super) async fn large(
    folder: &Path,
    messages: u64,
    seconds: u64,
    on_progress: OnProgress<'_>,
) -> Result<Large, BenchError> {
    let (file, load_file) = (folder.join("large.db"), folder.join("used.db"));
    engine::large(&file, messages, on_progress).await?;
    let mut starts = Vec::new();
    for _ in 0..STARTS {
        starts.push(Child::serve(folder, "large.db", &[]).await?.ready().await?);
    }
    engine::remove(&file);

    let sessions = engine::large(&load_file, messages.min(MAX_LOAD_MESSAGES), on_progress).await?;
    let server = Child::serve(folder, "used.db", &[]).await?;
    server.ready().await?;
    on_progress(engine::Progress { stage: "mixed load", done: 0, of: seconds });
    let end = Instant::now() + Duration::from_secs(seconds);
    let requests = move |client: usize, n: u64| (Instant::now() < end).then(|| mixed(client, n, sessions));
    let load = client::round(server.address, CLIENTS, Arc::new(requests)).await?;
    let (resident, peak) = engine::resident(server.id());
    drop(server);
    engine::remove(&load_file);
    let (ready, millis) = (Spread::of(starts), Spread::of(load.times));
    Ok(Large { messages, ready, seconds, requests_per_second: load.rate, millis, resident, peak })
}

/// Returns the n-th request of a client in the load test. Of ten requests, eight append a message, one requests a
/// context of the client's own session, and one requests messages or a context of an old session. Different clients
/// read different old sessions.
fn mixed(client: usize, n: u64, sessions: u64) -> Vec<u8> {
    let old = (client as u64 * 7_919 + n) % sessions.max(1);
    match (n % 10, n / 10 % 4) {
        (8, _) => client::get(&format!("/v1/sessions/client-{client}/context?tokens=4000")),
        (9, 0) => client::get(&format!("/v1/sessions/session%20{old}/messages")),
        (9, 1) => client::get(&format!("/v1/sessions/session%20{old}/context")),
        (9, _) => client::get(&format!("/v1/sessions/session%20{old}/context?tokens=16000")),
        _ => append(client, n),
    }
}
