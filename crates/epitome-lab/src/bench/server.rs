//! `epitome bench --server`: measures the cost of HTTP.
//!
//! The benchmark starts this program again as a server with its own files. Clients send requests as fast as the server
//! responds ([`client`]). Absolute numbers of one machine say little about another, so the server alternates with a
//! baseline in the same run: appends with an engine in this process ([`appends`]), contexts with the same server that
//! echoes the same number of bytes without an engine ([`contexts`]). Honcho's routes are measured as its clients use them
//! ([`honcho`]). Startup time and memory on a large database have no baseline ([`large`]).

use std::fmt;
use std::io;
use std::path::PathBuf;

use serde::Serialize;

use crate::bench::engine::{Folder, OnProgress, ResultLine};

mod appends;
pub(super) mod child;
mod client;
mod contexts;
mod honcho;
mod large;

/// Number of concurrent clients.
const CLIENTS: usize = 16;

/// How much to measure, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerOptions {
    /// Files are created in a new subfolder and removed afterwards.
    pub(super) dir: PathBuf,
    /// Number of rounds in which the server and the baseline alternate.
    pub(super) rounds: usize,
    /// Messages that the server, and the baseline, append per round.
    pub(super) appends: u64,
    /// Messages in the session whose contexts are requested.
    pub(super) session: u64,
    /// Contexts per round.
    pub(super) contexts: u64,
    /// Messages in the large database.
    pub(super) messages: u64,
    /// Duration of the load, in seconds.
    pub(super) seconds: u64,
}

/// The results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ServerReport {
    appends: appends::HttpAppends,
    contexts: Vec<contexts::HttpContexts>,
    honcho: honcho::Honcho,
    large: large::Large,
}

impl ServerReport {
    /// Returns the lines of the result table.
    pub(super) fn lines(&self) -> Vec<ResultLine> {
        let mut lines = Vec::from(self.appends.lines());
        lines.extend(self.contexts.iter().map(contexts::HttpContexts::line));
        lines.extend(self.honcho.lines());
        lines.extend(self.large.lines());
        lines
    }
}

/// Runs all measurements.
pub(super) async fn run(
    options: &ServerOptions,
    on_progress: OnProgress<'_>,
) -> Result<ServerReport, BenchError> {
    let folder = Folder::new(&options.dir)?;
    let path = folder.path();
    let ServerOptions { rounds, appends, session, contexts, messages, seconds, .. } = *options;
    Ok(ServerReport {
        appends: appends::appends(path, rounds, appends, on_progress).await?,
        contexts: contexts::contexts(path, session, rounds, contexts, on_progress).await?,
        honcho: honcho::honcho(path, rounds, (appends, contexts), on_progress).await?,
        large: large::large(path, messages, seconds, on_progress).await?,
    })
}

/// Why a measurement failed.
#[derive(Debug)]
pub(super) enum BenchError {
    Engine(epitome::Error),
    Server(io::Error),
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(error) => error.fmt(f),
            Self::Server(error) => error.fmt(f),
        }
    }
}

impl From<epitome::Error> for BenchError {
    fn from(error: epitome::Error) -> Self {
        Self::Engine(error)
    }
}

impl From<io::Error> for BenchError {
    fn from(error: io::Error) -> Self {
        Self::Server(error)
    }
}
