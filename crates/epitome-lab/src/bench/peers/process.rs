//! Runs a peer's process with a timeout. If the process fails, returns the last line of its log as the error.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use epitome_terminal::show::{clipped, printable};

use super::super::child_process::start;
use super::PeerOutput;

/// Maximum size of a peer's output, in bytes.
const MAX_OUTPUT_BYTES: u64 = 16_000_000;

/// Number of bytes that are read from the end of the log.
const LOG_END_BYTES: u64 = 16_000;

/// Interval for checking whether the process has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Runs a peer. The inner result is the peer's output, or an error text if the peer failed. The outer result is an
/// error if the program cannot be started or its files cannot be created.
pub(super) async fn run(
    program: &Path,
    name: &str,
    folder: &Path,
    timeout: Duration,
) -> io::Result<Result<PeerOutput, String>> {
    let (answer, log) = (folder.join("answer.json"), folder.join("log"));
    let mut command = Command::new(program);
    command.arg(name).arg(folder).current_dir(folder).stdin(Stdio::null());
    // The output goes to files, not to pipes. A child process of the peer could leave a pipe open and block the reader.
    command.stdout(File::create(&answer)?).stderr(File::create(&log)?);
    let status = match wait(&mut command, timeout).await {
        Ok(status) => status,
        Err(error) => {
            let message = format!("--peers: cannot start {}: {error}", program.display());
            return Err(io::Error::new(error.kind(), message));
        }
    };
    Ok(match status {
        None => Err(format!("no answer within {} s", timeout.as_secs())),
        Some(status) if !status.success() => Err(match last_line(&log) {
            Some(line) => format!("{status}: {line}"),
            None => status.to_string(),
        }),
        Some(_) => read(&answer).map_err(|error| format!("its answer cannot be read: {error}")),
    })
}

/// Starts the process and waits for its end. Kills the process after the timeout, and then returns `None`.
async fn wait(command: &mut Command, timeout: Duration) -> io::Result<Option<ExitStatus>> {
    let (process, _cleanup) = start(command)?;
    let until = Instant::now() + timeout;
    loop {
        if let Some(status) = process.lock().unwrap_or_else(PoisonError::into_inner).try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > until {
            let mut process = process.lock().unwrap_or_else(PoisonError::into_inner);
            process.kill()?;
            process.wait()?;
            return Ok(None);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn read(answer: &Path) -> Result<PeerOutput, String> {
    let bytes = std::fs::metadata(answer).map_err(|error| error.to_string())?.len();
    if bytes > MAX_OUTPUT_BYTES {
        return Err(format!("it has {bytes} bytes; the limit is {MAX_OUTPUT_BYTES}"));
    }
    let text = std::fs::read(answer).map_err(|error| error.to_string())?;
    serde_json::from_slice(&text).map_err(|error| error.to_string())
}

/// Returns the last line of the log that is not blank, as at most 200 printable characters.
fn last_line(log: &Path) -> Option<String> {
    let mut file = File::open(log).ok()?;
    let bytes = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(bytes.saturating_sub(LOG_END_BYTES))).ok()?;
    let mut text = Vec::new();
    file.take(LOG_END_BYTES).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    Some(clipped(&printable(line), 200))
}
