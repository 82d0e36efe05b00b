//! A server on a large database: how soon it is there, and what it takes of memory under load.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::appends::append;
use super::child::Child;
use super::{CLIENTS, Trouble, client};
use crate::bench::engine::{self, Line, Spread, Tell};

/// In milliseconds.
const TARGET_MILLIS: f64 = 500.0;

/// In bytes: 100 MB.
const TARGET_BYTES: u64 = 100_000_000;

/// So many messages at most are in the database a server is used on. One with more takes more: old sessions that nobody
/// summarized yet are all due at once, and each that is read is remembered in part.
const USED: u64 = 100_000;

/// So often a server is started.
const STARTS: usize = 5;

/// A server on a large database.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Large {
    /// The messages in it.
    messages: u64,
    /// From the start of the process until it says that it is ready, in milliseconds.
    ready: Spread,
    /// For so many seconds it was used: by 16 clients that append and read, while summaries are written.
    seconds: u64,
    /// Requests a second under that load.
    requests_per_second: f64,
    /// How long they took, in milliseconds.
    millis: Spread,
    /// Resident after it, in bytes; nothing where the system does not tell.
    resident: Option<u64>,
    /// The most that was ever resident.
    peak: Option<u64>,
}

impl Large {
    pub(super) fn lines(&self) -> [Line; 2] {
        let mb = |bytes: u64| bytes / 1_000_000;
        let memory = match (self.resident, self.peak) {
            (Some(resident), Some(peak)) => format!("{} MB (at most {})", mb(resident), mb(peak)),
            _ => "not told by this system".to_owned(),
        };
        let Self { messages, seconds, requests_per_second: rate, .. } = self;
        [
            Line::new(
                format!("start to ready, database of {messages} messages"),
                format!("{:.0} ms (p95 {:.0})", self.ready.median, self.ready.p95),
                "500 ms",
                Some(self.ready.median < TARGET_MILLIS),
            ),
            Line::new(
                format!("memory after {seconds} s of mixed load, {} messages", messages.min(&USED)),
                format!("{memory}, at {rate:.0} requests/s"),
                "100 MB",
                self.peak.or(self.resident).map(|bytes| bytes < TARGET_BYTES),
            ),
        ]
    }
}

/// Makes a database of so many messages in a folder and starts servers on it; then a smaller one, which is used for a
/// while.
pub(super) async fn large(
    folder: &Path,
    messages: u64,
    seconds: u64,
    tell: Tell<'_>,
) -> Result<Large, Trouble> {
    let (file, used) = (folder.join("large.db"), folder.join("used.db"));
    engine::large(&file, messages, tell).await?;
    let mut taken = Vec::new();
    for _ in 0..STARTS {
        taken.push(Child::serve(folder, "large.db", &[]).await?.ready().await?);
    }
    engine::remove(&file);

    let sessions = engine::large(&used, messages.min(USED), tell).await?;
    let server = Child::serve(folder, "used.db", &[]).await?;
    server.ready().await?;
    tell(engine::Progress { stage: "mixed load", done: 0, of: seconds });
    let end = Instant::now() + Duration::from_secs(seconds);
    let says = move |client: usize, n: u64| (Instant::now() < end).then(|| mixed(client, n, sessions));
    let load = client::round(server.address, CLIENTS, Arc::new(says)).await?;
    let (resident, peak) = engine::resident(server.id());
    drop(server);
    engine::remove(&used);
    let (ready, millis) = (Spread::of(taken), Spread::of(load.times));
    Ok(Large { messages, ready, seconds, requests_per_second: load.rate, millis, resident, peak })
}

/// Of ten requests eight append, one reads a context of what was appended to, and one reads of an old session, of which
/// each client sees others: contexts of all sizes, and messages.
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
