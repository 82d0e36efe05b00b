//! Runs a peer's process with a timeout, and extracts the error if it fails.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use epitome_terminal::show::{clipped, tame};

use super::super::own::start;
use super::Answer;

/// Maximum size of a peer's output, in bytes.
const LONGEST: u64 = 16_000_000;

/// How much of the end of its log is read, in bytes.
const END: u64 = 16_000;

/// Interval for checking whether the process has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Runs a peer. Returns its output, or why there is none. The outer result is an error only if the program cannot be
/// started.
pub(super) async fn asked(
    program: &Path,
    name: &str,
    folder: &Path,
    patience: Duration,
) -> io::Result<Result<Answer, String>> {
    let (answer, log) = (folder.join("answer.json"), folder.join("log"));
    let mut command = Command::new(program);
    command.arg(name).arg(folder).current_dir(folder).stdin(Stdio::null());
    // Files instead of pipes: a grandchild that holds a pipe open would block the reader.
    command.stdout(File::create(&answer)?).stderr(File::create(&log)?);
    let status = match ended(&mut command, patience).await {
        Ok(status) => status,
        Err(error) => {
            let told = format!("--peers: cannot start {}: {error}", program.display());
            return Err(io::Error::new(error.kind(), told));
        }
    };
    Ok(match status {
        None => Err(format!("no answer within {} s", patience.as_secs())),
        Some(status) if !status.success() => Err(match last(&log) {
            Some(line) => format!("{status}: {line}"),
            None => status.to_string(),
        }),
        Some(_) => read(&answer).map_err(|why| format!("its answer cannot be read: {why}")),
    })
}

/// Waits for the process. Returns `None` if it was killed after the timeout.
async fn ended(command: &mut Command, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let (process, _noted) = start(command)?;
    let until = Instant::now() + patience;
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
        tokio::time::sleep(LOOK).await;
    }
}

fn read(answer: &Path) -> Result<Answer, String> {
    let bytes = std::fs::metadata(answer).map_err(|error| error.to_string())?.len();
    if bytes > LONGEST {
        return Err(format!("it has {bytes} bytes; at most {LONGEST} are read"));
    }
    let text = std::fs::read(answer).map_err(|error| error.to_string())?;
    serde_json::from_slice(&text).map_err(|error| error.to_string())
}

/// Returns the last line of the log that is not blank.
fn last(log: &Path) -> Option<String> {
    let mut file = File::open(log).ok()?;
    let bytes = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(bytes.saturating_sub(END))).ok()?;
    let mut text = Vec::new();
    file.take(END).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    Some(clipped(&tame(line), 200))
}
