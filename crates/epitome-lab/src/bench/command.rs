//! Measures `epitome condense` the way other programs use the command: the benchmark starts the process, passes a
//! request, and waits for the result.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use epitome::dialect::Dialect;
use epitome::rules::message::Message;
use serde::Serialize;
use serde_json::json;

use super::child_process::own_command;
use super::server::BenchError;
use crate::bench::engine::{Folder, OnProgress, Progress, ResultLine, Spread, short_message};

/// Size of the request, in bytes.
const REQUEST_BYTES: u64 = 1_000_000;

/// Maximum median duration of `epitome condense`, in milliseconds.
const TARGET_MILLIS: f64 = 150.0;

/// Durations of the command on a large request, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct CommandTimes {
    /// Size of the request, in bytes.
    bytes: u64,
    /// Durations of `epitome condense`, from the start of the process to its end.
    condense: Spread,
    /// Durations of `epitome --version`, which only prints the version.
    start: Spread,
}

impl CommandTimes {
    pub(super) fn line(&self) -> ResultLine {
        let Self { condense, start, .. } = self;
        let figure = format!(
            "{:.1} ms (p95 {:.1}); `epitome --version` takes {:.1} ms",
            condense.median, condense.p95, start.median
        );
        let met = condense.median < TARGET_MILLIS;
        ResultLine::new(
            "`epitome condense` on a request of 1 MB, process start included",
            figure,
            "< 150 ms",
            Some(met),
        )
    }
}

/// Measures `runs` runs of each command. The files of the commands are in a subfolder of `dir`.
pub(super) async fn measure(
    dir: &Path,
    runs: usize,
    on_progress: OnProgress<'_>,
) -> Result<CommandTimes, BenchError> {
    let folder = Folder::new(dir)?;
    let path = folder.path().to_owned();
    let request = request();
    let bytes = request.len() as u64;
    std::fs::write(path.join("request.json"), request)?;
    let (mut condense, mut start) = (Vec::new(), Vec::new());
    for run in 0..=runs.max(1) {
        on_progress(Progress { stage: "epitome condense", done: run as u64, of: runs as u64 });
        let path = path.clone();
        let both = move || Ok::<_, io::Error>((run_once(&path, "condense")?, run_once(&path, "--version")?));
        let (condensed, started) = tokio::task::spawn_blocking(both).await.map_err(io::Error::other)??;
        // The first run only warms up.
        if run > 0 {
            condense.push(condensed);
            start.push(started);
        }
    }
    let condensed_bytes = std::fs::metadata(path.join("answer.json"))?.len();
    if condensed_bytes * 2 > bytes {
        return Err(io::Error::other("the measured request was not condensed").into());
    }
    let [condense, start] = [condense, start].map(Spread::of);
    Ok(CommandTimes { bytes, condense, start })
}

/// Runs `epitome ARGUMENT` once, with files as input and output. Returns the duration of the process.
fn run_once(folder: &Path, argument: &str) -> io::Result<Duration> {
    let answer = if argument == "condense" { "answer.json" } else { "version" };
    let mut command = own_command(folder)?;
    command.arg(argument);
    command.stdin(File::open(folder.join("request.json"))?).stdout(File::create(folder.join(answer))?);
    command.stderr(Stdio::null());
    let started = Instant::now();
    let status = command.status()?;
    let duration = started.elapsed();
    if status.success() {
        Ok(duration)
    } else {
        Err(io::Error::other(format!("`epitome {argument}`: {status}")))
    }
}

/// Returns a chat completions request of almost [`REQUEST_BYTES`] bytes.
fn request() -> String {
    let mut sum = 0;
    let fits = |message: &Message| {
        // The JSON around a message's text has 35 bytes.
        sum += message.bytes() + 35;
        sum < REQUEST_BYTES
    };
    let messages: Vec<Message> = (0..).map(short_message).take_while(fits).collect();
    let mut request = Dialect::OPENAI.write(&messages);
    request.insert("model".to_owned(), json!("gpt-4o"));
    serde_json::Value::Object(request).to_string()
}
