//! Measures the engine on this machine. The numbers in the README and in docs/performance.md come from these
//! measurements.
//!
//! There are six measurements: durable appends, contexts of long sessions, background summaries, memory, counting and
//! summarizing, and inline lists. [`run`] returns the results; `epitome bench` prints the results.
//!
//! The absolute numbers of one machine say little about another machine. So each run also measures baselines, on the
//! same disk:
//!
//! | measurement | baseline |
//! |---|---|
//! | [`appends`] | a bare rusqlite loop |
//! | [`contexts`] of a long session | contexts of a short session |
//! | [`batches`]: time to write and store summaries | time to write the same summaries in memory |
//! | [`local_speed`]: counting and summarizing | the bare tokenizer |
//! | [`inline`]: a turn without condensing | counting the tokens of the turn's new message |
//! | [`inline`]: a turn that condenses the list | counting the tokens of the list |
//! | [`memory`] of the process | the size of the database file |
//!
//! The benchmarks of the server and of the proxy use the same messages ([`short_message`]), the same temporary folder
//! ([`Folder`]) and the same result type ([`ResultLine`]).
//!
//! ```
//! # async fn try_it() -> Result<(), epitome::Error> {
//! use epitome_lab::bench::engine::{self, EngineOptions};
//!
//! let dir = std::env::temp_dir();
//! let options = EngineOptions {
//!     rounds: 1,
//!     appends: 32,
//!     long: 200,
//!     contexts: 3,
//!     batches: 1,
//!     messages: 2_000,
//!     list: 200,
//!     turns: 40,
//!     ..EngineOptions::quick(&dir)
//! };
//! let report = engine::run(&options, &|progress| assert!(progress.done <= progress.of)).await?;
//! assert!(report.appends.rows_per_second > 0.0 && report.contexts.long.warm.median > 0.0);
//! assert_eq!(report.lines().len(), 14);
//! # Ok(())
//! # }
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(try_it()).unwrap();
//! ```

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use epitome::Error;
use serde::Serialize;

mod appends;
mod batches;
mod contexts;
mod inline;
mod memory;
mod messages;
mod nodes;
mod reading;
mod spread;
mod tokenizer;

pub use appends::{EngineAppends, appends, wait_until_indexed};
pub use batches::{Batches, batches};
pub use contexts::{ContextTimes, SessionContexts, contexts, summarized};
pub use inline::{Inline, InlineTurns, inline};
pub use memory::{Memory, large, memory, resident};
pub use messages::{agent_message, short_message, short_messages};
pub use nodes::{NodeAppends, NodeContexts, NodeSizes, Nodes, nodes};
pub use reading::{LocalSpeed, local_speed};
pub use spread::{Spread, median};

/// Sizes and folder of the engine's measurements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineOptions {
    /// Parent folder of the benchmark's files. The benchmark creates a subfolder and removes the subfolder at the end.
    /// Appends are measured on the disk of this folder.
    pub dir: PathBuf,
    /// Number of rounds in which the engine and the baseline alternate.
    pub rounds: usize,
    /// Number of rows that the engine appends per round. The baseline appends the same number.
    pub appends: usize,
    /// Number of messages in the long session.
    pub long: u64,
    /// Number of requests for each kind of context.
    pub contexts: usize,
    /// Number of batches of 100 messages that are summarized.
    pub batches: usize,
    /// Number of messages in the database for the memory measurement.
    pub messages: u64,
    /// Number of messages in an inline list.
    pub list: u64,
    /// Number of measured turns per inline list.
    pub turns: usize,
}

impl EngineOptions {
    /// Returns the options for a short run of about ten seconds.
    pub fn quick(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            rounds: 5,
            appends: 2_000,
            long: 20_000,
            contexts: 200,
            batches: 20,
            messages: 20_000,
            list: 10_000,
            turns: 400,
        }
    }

    /// Returns the options for a run of about a minute. The database for the memory measurement has 100,000 messages,
    /// not a million.
    pub fn standard(dir: &Path) -> Self {
        Self {
            rounds: 9,
            appends: 4_000,
            long: 100_000,
            contexts: 500,
            batches: 50,
            messages: 100_000,
            turns: 1_000,
            ..Self::quick(dir)
        }
    }

    /// Returns the options for a full run, with a database of a million messages.
    pub fn full(dir: &Path) -> Self {
        Self { contexts: 1_000, batches: 100, messages: 1_000_000, ..Self::standard(dir) }
    }
}

/// Progress of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Short name of the current measurement.
    pub stage: &'static str,
    /// Number of finished steps of this measurement.
    pub done: u64,
    /// Total number of steps of this measurement.
    pub of: u64,
}

/// Callback that receives the progress.
pub type OnProgress<'a> = &'a (dyn Fn(Progress) + Sync);

/// Results of all measurements of the engine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EngineReport {
    /// Results for durable appends.
    pub appends: EngineAppends,
    /// Results for contexts of a long session and of a short session.
    pub contexts: SessionContexts,
    /// Results for background summaries.
    pub batches: Batches,
    /// Memory use with a large database.
    pub memory: Memory,
    /// Speed of counting tokens and of summarizing.
    pub reading: LocalSpeed,
    /// Results for inline lists.
    pub inline: Inline,
}

/// A line of the result table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResultLine {
    /// Name of the benchmark.
    pub name: String,
    /// The result, as text with units.
    pub figure: String,
    /// The target, as text with units; empty if the benchmark has no target.
    pub target: String,
    /// Whether the result meets the target. `None` if there is no target, or if the value could not be measured.
    pub met: Option<bool>,
}

impl ResultLine {
    /// Creates a line of the table.
    pub fn new(name: impl Into<String>, figure: String, target: &str, met: Option<bool>) -> Self {
        Self { name: name.into(), figure, target: target.to_owned(), met }
    }
}

impl EngineReport {
    /// Returns the lines of the result table.
    pub fn lines(&self) -> Vec<ResultLine> {
        let mut lines = vec![self.appends.line()];
        lines.extend(self.contexts.lines());
        lines.push(self.batches.line());
        lines.push(self.memory.line());
        lines.extend(self.reading.lines());
        lines.extend(self.inline.lines());
        lines
    }

    /// Returns whether no result misses its target. Results without a target, and values that could not be measured,
    /// are ignored.
    pub fn met(&self) -> bool {
        self.lines().iter().all(|line| line.met != Some(false))
    }
}

/// Runs all measurements. Requires Tokio's multi-threaded runtime.
pub async fn run(options: &EngineOptions, on_progress: OnProgress<'_>) -> Result<EngineReport, Error> {
    let folder = Folder::new(&options.dir)?;
    // The memory measurement runs first: later, the process would also use memory for the other measurements.
    let memory = memory(folder.path(), options.messages, on_progress).await?;
    Ok(EngineReport {
        appends: appends(folder.path(), options.rounds, options.appends, on_progress).await?,
        contexts: contexts(folder.path(), options.long, options.contexts, on_progress).await?,
        batches: batches(folder.path(), options.batches, on_progress).await?,
        memory,
        reading: local_speed(options.list, options.rounds, on_progress),
        // Inline lists are measured last, because the lists stay in memory.
        inline: inline(options.list, options.turns, on_progress).await?,
    })
}

/// A temporary folder that is removed when this value is dropped. The folder's name is `epitome-bench-`, the process id
/// and a number, so that the user can find the folder after an interrupted run.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Creates a folder inside `dir`.
    pub fn new(dir: &Path) -> Result<Self, Error> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!("epitome-bench-{}-{next}", std::process::id()));
        std::fs::create_dir(&path)
            .map_err(|error| invalid(format!("dir: cannot create files in {}: {error}", dir.display())))?;
        Ok(Self(path))
    }

    /// Returns the folder's path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Ignores errors: the user can find a remaining folder by its name.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Removes a database and its WAL files, to free disk space for the next measurement.
pub fn remove(path: &Path) {
    for end in ["", "-wal", "-shm"] {
        let mut file = path.as_os_str().to_owned();
        file.push(end);
        let _ = std::fs::remove_file(file);
    }
}

fn invalid(problem: impl std::fmt::Display) -> Error {
    Error::Invalid(problem.to_string())
}

fn thousands(n: u64) -> String {
    if n > 0 && n.is_multiple_of(1_000) { format!("{},000", n / 1_000) } else { n.to_string() }
}
