//! `epitome bench --server`: measures the cost of HTTP.
//!
//! The benchmark starts this program again as a server with its own files. Clients send requests as fast as the server
//! responds ([`client`]). The absolute numbers of one machine say little about another machine. So the server
//! alternates with a baseline in the same run:
//!
//! | measurement | baseline |
//! |---|---|
//! | [`appends`] | an engine in this process |
//! | [`contexts`] | a server without an engine that echoes the same number of bytes |
//! | [`honcho`]: Honcho's routes, as Honcho's clients use these routes | none |
//! | [`large`]: startup time and memory on a large database | none |

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

/// Sizes and folder of the measurements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerOptions {
    /// Parent folder of the benchmark's files. The benchmark creates a subfolder and removes the subfolder at the end.
    pub(super) dir: PathBuf,
    /// Number of rounds in which the server and the baseline alternate.
    pub(super) rounds: usize,
    /// Number of messages that the server appends per round. The baseline appends the same number.
    pub(super) appends: u64,
    /// Number of messages in the session whose contexts are requested.
    pub(super) session: u64,
    /// Number of context requests per round.
    pub(super) contexts: u64,
    /// Number of messages in the large database.
    pub(super) messages: u64,
    /// Duration of the load test, in seconds.
    pub(super) seconds: u64,
}

/// Results of all measurements of the server.
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

/// Error of a measurement.
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
