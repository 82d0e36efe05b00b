//! Measures the engine on this machine. The numbers in the README and in docs/performance.md come from these
//! measurements.
//!
//! There are six measurements: durable appends, contexts of long sessions, background summaries, memory, counting and
//! summarizing, and inline lists. [`run`] returns the results; `epitome bench` prints them.
//!
//! Absolute numbers of one machine say little about another. So each measurement alternates with a baseline in the same run,
//! on the same disk:
//!
//! | measurement | baseline |
//! |---|---|
//! | [`appends`] | a bare rusqlite loop |
//! | [`contexts`]: a long session | a short session |
//! | [`batches`]: summaries that are stored | the same summaries, written in memory |
//! | [`local_speed`]: counting and summarizing | the bare tokenizer |
//! | [`inline`]: a turn | counting the turn's message |
//! | [`inline`]: a list that is condensed | counting the list |
//! | [`memory`] | the size of the database |
//!
//! Benchmarks of programs that use an engine, such as the server, use the same messages ([`short_message`]), the same kind of folder
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

/// How much to measure, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineOptions {
    /// Files are created in a new subfolder and removed afterwards. Appends are measured on the disk of this folder.
    pub dir: PathBuf,
    /// Number of rounds in which the engine and the baseline alternate.
    pub rounds: usize,
    /// Rows that the engine, and the baseline, append per round.
    pub appends: usize,
    /// Messages in the long session.
    pub long: u64,
    /// Number of requests for each kind of context.
    pub contexts: usize,
    /// Number of batches of 100 messages that are summarized.
    pub batches: usize,
    /// Messages in the database whose memory is measured.
    pub messages: u64,
    /// Messages in an inline list.
    pub list: u64,
    /// Number of measured turns of the inline list.
    pub turns: usize,
}

impl EngineOptions {
    /// A short run of about ten seconds.
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

    /// A run of about a minute: everything except the million messages.
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

    /// A full run, as described in the documentation.
    pub fn full(dir: &Path) -> Self {
        Self { contexts: 1_000, batches: 100, messages: 1_000_000, ..Self::standard(dir) }
    }
}

/// Progress of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The current step, in a few words.
    pub stage: &'static str,
    /// Number of steps done.
    pub done: u64,
    /// Total number of steps.
    pub of: u64,
}

/// Callback that receives the progress.
pub type OnProgress<'a> = &'a (dyn Fn(Progress) + Sync);

/// The results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EngineReport {
    /// Durable appends.
    pub appends: EngineAppends,
    /// Contexts of a long and of a short session.
    pub contexts: SessionContexts,
    /// Background summaries.
    pub batches: Batches,
    /// Memory.
    pub memory: Memory,
    /// Counting and summarizing.
    pub reading: LocalSpeed,
    /// Inline lists.
    pub inline: Inline,
}

/// A line of the result table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResultLine {
    /// What was measured.
    pub name: String,
    /// The result.
    pub figure: String,
    /// The target; empty if there is none.
    pub target: String,
    /// Whether the target is met; `None` if there is none or the value could not be measured.
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

    /// Returns whether every measured target is met.
    pub fn met(&self) -> bool {
        self.lines().iter().all(|line| line.met != Some(false))
    }
}

/// Runs all measurements. Requires a multi-threaded runtime.
pub async fn run(options: &EngineOptions, on_progress: OnProgress<'_>) -> Result<EngineReport, Error> {
    let folder = Folder::new(&options.dir)?;
    // Runs first, because memory that other measurements still use does not belong to the database.
    let memory = memory(folder.path(), options.messages, on_progress).await?;
    Ok(EngineReport {
        appends: appends(folder.path(), options.rounds, options.appends, on_progress).await?,
        contexts: contexts(folder.path(), options.long, options.contexts, on_progress).await?,
        batches: batches(folder.path(), options.batches, on_progress).await?,
        memory,
        reading: local_speed(options.list, options.rounds, on_progress),
        // Runs last, because its lists stay in memory.
        inline: inline(options.list, options.turns, on_progress).await?,
    })
}

/// A temporary folder that is removed when the measurement ends. Its name begins with `epitome-bench-` and the process
/// id, so that the user can find it after an interrupted run.
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
        // A folder that cannot be removed can be found by its name.
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
