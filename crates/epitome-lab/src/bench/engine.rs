//! Measures the engine on this machine; the results are the numbers in the README and in docs/performance.md.
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
//! | [`batches`]: stored summaries | the same summaries, written in memory |
//! | [`reading`]: counting and summarizing | the bare tokenizer |
//! | [`inline`]: a turn; a list that is condensed | counting the turn's message; counting the list |
//! | [`memory`] | the size of the database |
//!
//! Benchmarks of programs that use an engine, such as the server, use the same messages ([`said`]), the same kind of folder
//! ([`Folder`]) and the same result type ([`Line`]).
//!
//! ```
//! # async fn try_it() -> Result<(), epitome::Error> {
//! use epitome_lab::bench::engine::{self, Options};
//!
//! let dir = std::env::temp_dir();
//! let options = Options { rounds: 1, appends: 32, long: 200, contexts: 3, batches: 1, messages: 2_000, list: 200, turns:
//! 40, ..Options::quick(&dir) }; let report = engine::run(&options, &|progress| assert!(progress.done <=
//! progress.of)).await?; assert!(report.appends.rows_per_second > 0.0 && report.contexts.long.warm.median > 0.0);
//! assert_eq!(report.lines().len(), 14); # Ok(()) # } #
//! tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(try_it()).unwrap();
//! ```

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use epitome::Error;
use serde::Serialize;

mod appends;
mod bare;
mod batches;
mod contexts;
mod inline;
mod memory;
mod nodes;
mod reading;
mod sample;
mod talk;

pub use appends::{Appends, appends, quiet};
pub use batches::{Batches, batches};
pub use contexts::{Contexts, OfSession, contexts, summarized};
pub use inline::{Inline, Turns, inline};
pub use memory::{Memory, large, memory, resident};
pub use nodes::{Beside, Contexts as NodeContexts, NodeSizes, Nodes, nodes};
pub use reading::{Reading, reading};
pub use sample::{Spread, median};
pub use talk::{many, said, worked};

/// How much to measure, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Files are created in a new subfolder and removed afterwards. Appends are measured on the disk of this folder.
    pub dir: PathBuf,
    /// Number of rounds in which the engine and the baseline alternate.
    pub rounds: usize,
    /// Rows that each of the two appends per round.
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

impl Options {
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
pub type Tell<'a> = &'a (dyn Fn(Progress) + Sync);

/// The results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Durable appends.
    pub appends: Appends,
    /// Contexts of a long and of a short session.
    pub contexts: Contexts,
    /// Background summaries.
    pub batches: Batches,
    /// Memory.
    pub memory: Memory,
    /// Counting and summarizing.
    pub reading: Reading,
    /// Inline lists.
    pub inline: Inline,
}

/// A line of the result table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// What was measured.
    pub name: String,
    /// The result.
    pub figure: String,
    /// The target; empty if there is none.
    pub target: String,
    /// Whether the target is met; `None` if there is none or the value could not be measured.
    pub met: Option<bool>,
}

impl Line {
    /// Creates a line of the table.
    pub fn new(name: impl Into<String>, figure: String, target: &str, met: Option<bool>) -> Self {
        Self { name: name.into(), figure, target: target.to_owned(), met }
    }
}

impl Report {
    /// Returns the lines of the result table.
    pub fn lines(&self) -> Vec<Line> {
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
pub async fn run(options: &Options, tell: Tell<'_>) -> Result<Report, Error> {
    let folder = Folder::new(&options.dir)?;
    // First, because the memory that other measurements leave behind is not the database's.
    let memory = memory(folder.path(), options.messages, tell).await?;
    Ok(Report {
        appends: appends(folder.path(), options.rounds, options.appends, tell).await?,
        contexts: contexts(folder.path(), options.long, options.contexts, tell).await?,
        batches: batches(folder.path(), options.batches, tell).await?,
        memory,
        reading: reading(options.list, options.rounds, tell),
        // Last, because its lists stay in memory.
        inline: inline(options.list, options.turns, tell).await?,
    })
}

/// A temporary folder that is removed when the measurement is over. Its name begins with `epitome-bench-` and the process
/// id, so that it can be found after an interrupted run.
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
        // If the folder cannot be removed, the user can find it by its name.
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

fn invalid(what: impl std::fmt::Display) -> Error {
    Error::Invalid(what.to_string())
}

fn thousands(n: u64) -> String {
    if n > 0 && n.is_multiple_of(1_000) { format!("{},000", n / 1_000) } else { n.to_string() }
}
