//! The numbers in the README, on this machine.
//!
//! Six measurements: durable appends, contexts of long sessions, summaries in the background, memory, counting and
//! summarizing, lists that are condensed inline. Nothing is printed here; `epitome bench` shows what [`run`] returns.
//!
//! Figures of one machine say little about another's, so what can be compared is compared within one run, on one
//! disk, in turns: appends with a bare rusqlite loop ([`appends`]), a long session with a short one ([`contexts`]), summaries
//! that are kept with the same ones written in memory ([`batches`]), counting and summarizing with the bare tokenizer
//! ([`reading`]), a turn with the counting of its message, and a list that is condensed with the counting of it
//! ([`inline`]), memory with the size of the database ([`memory`]).
//!
//! What a program measures that stands on an engine, a server say, is measured with the same messages ([`said`]), in the
//! same kind of folder ([`Folder`]) and told in the same lines ([`Line`]).
//!
//! ```
//! # async fn try_it() -> Result<(), epitome::Error> {
//! use epitome_lab::bench::engine::{self, Options};
//!
//! let dir = std::env::temp_dir();
//! let options = Options { rounds: 1, appends: 32, long: 200, contexts: 3, batches: 1, messages: 2_000, list: 200, turns: 40, ..Options::quick(&dir) };
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

/// How much is measured, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Files are made in a folder of their own in here, and removed afterwards. The disk beneath it is what
    /// appends are measured on.
    pub dir: PathBuf,
    /// How often engine and bare loop take turns.
    pub rounds: usize,
    /// Rows that each of them appends in a round.
    pub appends: usize,
    /// The messages of the long session.
    pub long: u64,
    /// How often each kind of context is asked for.
    pub contexts: usize,
    /// How many batches of 100 messages are summarized.
    pub batches: usize,
    /// The messages of the database whose memory is measured.
    pub messages: u64,
    /// The messages of a list that is condensed inline.
    pub list: u64,
    /// How many of its turns are measured.
    pub turns: usize,
}

impl Options {
    /// A look, in some ten seconds.
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

    /// A minute or so: everything but the million messages.
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

    /// Everything, as the README tells it.
    pub fn full(dir: &Path) -> Self {
        Self { contexts: 1_000, batches: 100, messages: 1_000_000, ..Self::standard(dir) }
    }
}

/// How far a measurement is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done, in a few words.
    pub stage: &'static str,
    /// So many steps are done.
    pub done: u64,
    /// Of so many.
    pub of: u64,
}

/// Told how far it is.
pub type Tell<'a> = &'a (dyn Fn(Progress) + Sync);

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Durable appends.
    pub appends: Appends,
    /// Contexts of a long and of a short session.
    pub contexts: Contexts,
    /// Summaries in the background.
    pub batches: Batches,
    /// Memory.
    pub memory: Memory,
    /// Counting and summarizing.
    pub reading: Reading,
    /// Lists that are condensed inline.
    pub inline: Inline,
}

/// One line of the table: a figure and what it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// What was measured.
    pub name: String,
    /// What it came to.
    pub figure: String,
    /// What it should be; empty where nothing is asked of it.
    pub target: String,
    /// Whether it is; nothing where it could not be told.
    pub met: Option<bool>,
}

impl Line {
    /// A line of the table.
    pub fn new(name: impl Into<String>, figure: String, target: &str, met: Option<bool>) -> Self {
        Self { name: name.into(), figure, target: target.to_owned(), met }
    }
}

impl Report {
    /// What people read of it.
    pub fn lines(&self) -> Vec<Line> {
        let mut lines = vec![self.appends.line()];
        lines.extend(self.contexts.lines());
        lines.push(self.batches.line());
        lines.push(self.memory.line());
        lines.extend(self.reading.lines());
        lines.extend(self.inline.lines());
        lines
    }

    /// Whether every target that could be told is met.
    pub fn met(&self) -> bool {
        self.lines().iter().all(|line| line.met != Some(false))
    }
}

/// Measures everything. Wants a runtime with several threads.
pub async fn run(options: &Options, tell: Tell<'_>) -> Result<Report, Error> {
    let folder = Folder::new(&options.dir)?;
    // First: what the others leave behind in memory is not the database's.
    let memory = memory(folder.path(), options.messages, tell).await?;
    Ok(Report {
        appends: appends(folder.path(), options.rounds, options.appends, tell).await?,
        contexts: contexts(folder.path(), options.long, options.contexts, tell).await?,
        batches: batches(folder.path(), options.batches, tell).await?,
        memory,
        reading: reading(options.list, options.rounds, tell),
        // Last: its lists are held in memory.
        inline: inline(options.list, options.turns, tell).await?,
    })
}

/// A folder that is gone when the measurement is over. Its name begins with `epitome-bench-` and the process's number,
/// by which whoever is interrupted finds it.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A new one in here.
    pub fn new(dir: &Path) -> Result<Self, Error> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!("epitome-bench-{}-{next}", std::process::id()));
        std::fs::create_dir(&path)
            .map_err(|error| invalid(format!("dir: nothing can be made in {}: {error}", dir.display())))?;
        Ok(Self(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is found by its name.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Removes a database and what stands beside it, so that the next measurement has the room.
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
