//! `epitome bench --server`: what HTTP costs, on this machine.
//!
//! This program is started once more as a server, on files of its own, and asked as fast as it answers ([`client`]).
//! Figures of one machine say little about another's, so they are compared within one run, in turns: appends with an
//! engine in this process ([`appends`]), contexts with the same server that echoes as many bytes and has no engine
//! behind it ([`contexts`]). Honcho's routes are measured as its clients use them ([`honcho`]). What it takes of time and memory on a large database is measured as it is ([`large`]).

use std::fmt;
use std::io;
use std::path::PathBuf;

use serde::Serialize;

use crate::bench::engine::{Folder, Line, Tell};

mod appends;
pub(super) mod child;
mod client;
mod contexts;
mod honcho;
mod large;

/// So many ask at once.
const CLIENTS: usize = 16;

/// How much is measured, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Files are made in a folder of their own in here, and removed afterwards.
    pub(super) dir: PathBuf,
    /// How often the two that are compared take turns.
    pub(super) rounds: usize,
    /// Messages that each of them appends in a round.
    pub(super) appends: u64,
    /// The messages of the session whose contexts are asked for.
    pub(super) session: u64,
    /// How often they are asked for in a round.
    pub(super) contexts: u64,
    /// The messages of the large database.
    pub(super) messages: u64,
    /// How long it is used.
    pub(super) seconds: u64,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Report {
    appends: appends::Appends,
    contexts: Vec<contexts::Contexts>,
    honcho: honcho::Honcho,
    large: large::Large,
}

impl Report {
    /// What people read of it.
    pub(super) fn lines(&self) -> Vec<Line> {
        let mut lines = Vec::from(self.appends.lines());
        lines.extend(self.contexts.iter().map(contexts::Contexts::line));
        lines.extend(self.honcho.lines());
        lines.extend(self.large.lines());
        lines
    }
}

/// Measures everything.
pub(super) async fn run(sizes: &Sizes, tell: Tell<'_>) -> Result<Report, Trouble> {
    let folder = Folder::new(&sizes.dir)?;
    let path = folder.path();
    Ok(Report {
        appends: appends::appends(path, sizes.rounds, sizes.appends, tell).await?,
        contexts: contexts::contexts(path, sizes.session, sizes.rounds, sizes.contexts, tell).await?,
        honcho: honcho::honcho(path, sizes.rounds, (sizes.appends, sizes.contexts), tell).await?,
        large: large::large(path, sizes.messages, sizes.seconds, tell).await?,
    })
}

/// Why nothing could be measured.
#[derive(Debug)]
pub(super) enum Trouble {
    Engine(epitome::Error),
    Server(io::Error),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(error) => error.fmt(f),
            Self::Server(error) => error.fmt(f),
        }
    }
}

impl From<epitome::Error> for Trouble {
    fn from(error: epitome::Error) -> Self {
        Self::Engine(error)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Server(error)
    }
}
