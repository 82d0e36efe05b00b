//! Writes the server's log to standard error.
//!
//! By default, the log is text on a terminal, and one JSON object per line elsewhere. Only events of Epitome's own
//! crates are logged, not events of other libraries. No line contains user data: no message content, no names of
//! sessions or workspaces, no keys, no headers and no parameters. The log identifies a request by the request's id and
//! by the pattern of its path.

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
    /// All of `Error`, requests that the server failed to serve, and limits that were reached.
    Warn,
    /// All of `Warn`, and the server's state: started, ready, stopping, stopped.
    #[default]
    Info,
    /// All of `Info`, and every request.
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

/// Prefix of the targets whose events are logged: the crates of Epitome.
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
    // Does not report write errors: reporting them to the same closed output would end the program.
    let output = layer().with_writer(stderr).log_internal_errors(false).with_target(false).with_ansi(false);
    // Fails only if another logger is installed already.
    let _ = if json {
        tracing_subscriber::registry().with(own_events).with(output.json().flatten_event(true)).try_init()
    } else {
        tracing_subscriber::registry().with(own_events).with(output.compact()).try_init()
    };
}
