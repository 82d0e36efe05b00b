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
pub(crate) enum LogLevel {
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
pub(crate) enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Target prefix of logged events: this program's and its library's.
const TARGET_PREFIX: &str = "epitome";

/// Starts the log. A second call changes nothing.
pub(crate) fn start(level: LogLevel, format: LogFormat) {
    let is_terminal = stderr().is_terminal();
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    };
    let own_events = Targets::new().with_target(TARGET_PREFIX, level);
    let json = match format {
        LogFormat::Auto => !is_terminal,
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    // Ignores write errors: reporting them to the same closed output would end the program.
    let output = layer().with_writer(stderr).log_internal_errors(false).with_target(false).with_ansi(false);
    // Fails only if another logger is installed already.
    let _ = if json {
        tracing_subscriber::registry().with(own_events).with(output.json().flatten_event(true)).try_init()
    } else {
        tracing_subscriber::registry().with(own_events).with(output.compact()).try_init()
    };
}
