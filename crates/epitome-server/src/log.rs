//! Writes the server's log to standard error.
//!
//! The format is text on a terminal and one JSON object per line elsewhere. Only this program's events are logged, not
//! those of its libraries. No line contains user data: no message content, session or workspace names, keys, headers or
//! parameters. A request is identified by its id and the pattern of its path.

use std::io::{IsTerminal, stderr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Log level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Level {
    /// Problems that the operator must handle.
    Error,
    /// Also requests that the server failed to serve, and limits that are reached.
    Warn,
    /// Also the server's state: started, ready, stopping, stopped.
    #[default]
    Info,
    /// Also every request.
    Debug,
}

/// Log format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Format {
    /// Text on a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Target prefix of logged events: this program's and its library's.
const OURS: &str = "epitome";

/// Starts the log. A second call changes nothing.
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
    // Ignores write errors: reporting them to the same closed output would end the program.
    let told = layer().with_writer(stderr).log_internal_errors(false).with_target(false).with_ansi(false);
    // Fails only if another logger is installed already.
    let _ = if json {
        tracing_subscriber::registry().with(ours).with(told.json().flatten_event(true)).try_init()
    } else {
        tracing_subscriber::registry().with(ours).with(told.compact()).try_init()
    };
}
