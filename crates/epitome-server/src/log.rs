//! What a server tells of itself while it runs: lines on standard error.
//!
//! For people on a terminal, one JSON object a line for everybody else. Only what this program says is written, not
//! what the libraries beneath it have to say, and no line holds anything of anybody's: no words, no names of sessions
//! or workspaces, no keys, no headers, no parameters. A request is told by its id and the shape of its path.

use std::io::{IsTerminal, stderr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// How much is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Level {
    /// What somebody has to look at.
    Error,
    /// And what they may want to know: requests that failed here, places that are all taken.
    Warn,
    /// And where the server stands: started, ready, stopping, stopped.
    #[default]
    Info,
    /// And every request.
    Debug,
}

/// In which form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Format {
    /// For people on a terminal, for programs elsewhere.
    #[default]
    Auto,
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Whose lines are written: this program's and its library's.
const OURS: &str = "epitome";

/// Has everything told from now on. A second time changes nothing.
pub(crate) fn start(level: Level, format: Format) {
    let watched = stderr().is_terminal();
    let level = match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
    };
    let ours = Targets::new().with_target(OURS, level);
    let json = match format {
        Format::Auto => !watched,
        Format::Text => false,
        Format::Json => true,
    };
    // Where nobody can be told, nobody is told of that either: it would end the program.
    let told = layer().with_writer(stderr).log_internal_errors(false).with_target(false).with_ansi(false);
    // It fails only where somebody else tells already.
    let _ = if json {
        tracing_subscriber::registry().with(ours).with(told.json().flatten_event(true)).try_init()
    } else {
        tracing_subscriber::registry().with(ours).with(told.compact()).try_init()
    };
}
