//! Measures memory use with a large database.

use std::path::Path;
use std::time::Instant;

use epitome::Engine;
use epitome::Error;
use serde::Serialize;
use tokio::task::JoinSet;

use super::{OnProgress, Progress, ResultLine, messages, remove};

/// Number of messages per session. One append adds all of them.
const SESSION_MESSAGES: u64 = 1_000;

/// Number of sessions that are summarized and read.
const USED_SESSIONS: u64 = 50;

/// Maximum peak memory, in bytes: 150 MB.
const TARGET_BYTES: u64 = 150_000_000;

/// Memory of the process with a large database open, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Memory {
    /// Number of messages in the database. Each session has 1,000 messages.
    pub messages: u64,
    /// Messages per second while the database was created. Each append had 1,000 messages, and no worker ran.
    pub rows_per_second: f64,
    /// Size of the database file.
    pub database: u64,
    /// Resident memory of the process after appends, summaries and contexts in some sessions. `None` if the operating
    /// system does not report the memory.
    pub resident: Option<u64>,
    /// Peak resident memory of the process. `None` if the operating system does not report the memory.
    pub peak: Option<u64>,
}

impl Memory {
    pub(super) fn line(&self) -> ResultLine {
        let mb = |bytes: u64| bytes / 1_000_000;
        let figure = match (self.resident, self.peak) {
            (Some(resident), Some(peak)) => format!(
                "{} MB (peak {} MB), {:.2}× the size of the database file ({} MB)",
                mb(resident),
                mb(peak),
                resident as f64 / self.database.max(1) as f64,
                mb(self.database)
            ),
            _ => "not reported by this system".to_owned(),
        };
        let name = format!("memory, database of {} messages", self.messages);
        ResultLine::new(
            name,
            figure,
            "peak < 150 MB",
            self.peak.or(self.resident).map(|bytes| bytes < TARGET_BYTES),
        )
    }
}

/// Creates a database with `messages` messages, uses some of its sessions, and measures the memory of the process.
pub async fn memory(dir: &Path, messages: u64, on_progress: OnProgress<'_>) -> Result<Memory, Error> {
    let file = dir.join("memory.db");
    let started = Instant::now();
    let sessions = large(&file, messages, on_progress).await?;
    let rows_per_second = messages as f64 / started.elapsed().as_secs_f64();

    let engine = Engine::builder().workers(0).open(&file).await?;
    let used = USED_SESSIONS.min(sessions);
    for n in 0..used {
        on_progress(Progress { stage: "sessions of the large database", done: n, of: used });
        let session = engine.session(name(n * (sessions / used)));
        session.append(messages::short_messages(n, 20)).await?;
        session.work().await?;
        session.context(4_000).await?;
        session.context(64_000).await?;
    }
    let (resident, peak) = resident(std::process::id());
    engine.close().await;
    let database = std::fs::metadata(&file).map_or(0, |file| file.len());
    remove(&file);
    Ok(Memory { messages, rows_per_second, database, resident, peak })
}

/// Creates a database with `messages` messages. Each session has 1,000 messages. The sessions are named `session 0`,
/// `session 1` and so on. Returns the number of sessions.
pub async fn large(file: &Path, messages: u64, on_progress: OnProgress<'_>) -> Result<u64, Error> {
    let engine = Engine::builder().workers(0).open(file).await?;
    let sessions = messages.div_ceil(SESSION_MESSAGES).max(1);
    let mut tasks = JoinSet::new();
    for n in 0..sessions {
        on_progress(Progress { stage: "a large database", done: n, of: sessions });
        let session = engine.session(name(n));
        let count = SESSION_MESSAGES.min(messages.saturating_sub(n * SESSION_MESSAGES)).max(1);
        tasks.spawn(
            async move { session.append(messages::short_messages(n * SESSION_MESSAGES, count)).await },
        );
        // Several appends run at a time, so the engine counts the tokens of the next batches while it writes a batch.
        while tasks.len() > 3 {
            join_next(&mut tasks).await?;
        }
    }
    while !tasks.is_empty() {
        join_next(&mut tasks).await?;
    }
    engine.close().await;
    Ok(sessions)
}

fn name(n: u64) -> String {
    format!("session {n}")
}

async fn join_next(tasks: &mut JoinSet<Result<epitome::Appended, Error>>) -> Result<(), Error> {
    match tasks.join_next().await {
        Some(done) => done.map_err(|_| Error::Closed)?.map(|_| ()),
        None => Ok(()),
    }
}

/// Returns the current and the peak resident memory of a process, in bytes. Both are `None` if the operating system
/// does not report them.
pub fn resident(process: u32) -> (Option<u64>, Option<u64>) {
    // Only Linux has this file.
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    (field(&status, "VmRSS:"), field(&status, "VmHWM:"))
}

fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_if_the_system_reports_it() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!((field(status, "VmRSS:"), field(status, "VmHWM:")), (Some(1 << 20), Some(2 << 20)));
        assert_eq!(field("", "VmRSS:"), None);
    }
}
