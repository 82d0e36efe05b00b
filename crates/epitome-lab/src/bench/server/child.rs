//! Starts the measured server. The server is this program in a child process.

use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use epitome_terminal::cleanup::CleanupGuard;

use super::super::child_process::{own_command, start};
use super::client::{self, Client};

/// Timeout for the server's start.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// A running server. The server is killed when this value is dropped, or when a signal ends this program.
pub(crate) struct Child {
    process: Arc<Mutex<std::process::Child>>,
    pub(crate) address: SocketAddr,
    pub(crate) started: Instant,
    /// Kills the process if a signal ends this program.
    _cleanup: CleanupGuard,
}

impl Child {
    /// Starts `epitome serve` with a database in `folder` and with these `KEY=VALUE` settings. The server does not read
    /// the user's settings.
    pub(crate) async fn serve(folder: &Path, database: &str, settings: &[String]) -> io::Result<Self> {
        let mut args = vec!["serve".to_owned(), "--listen".to_owned(), "127.0.0.1:0".to_owned()];
        args.extend(["--db".to_owned(), database.to_owned()]);
        for setting in settings {
            args.extend(["--set".to_owned(), setting.clone()]);
        }
        Self::start(folder, args).await
    }

    /// Starts the echo server, the baseline for contexts.
    pub(crate) async fn echo(folder: &Path) -> io::Result<Self> {
        Self::start(folder, vec!["bench".to_owned(), "--echo".to_owned()]).await
    }

    async fn start(folder: &Path, args: Vec<String>) -> io::Result<Self> {
        let log = folder.join("server.log");
        let mut command = own_command(folder)?;
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(std::fs::File::create(&log)?);
        let started = Instant::now();
        let (process, cleanup) = start(&mut command)?;
        let out = process.lock().unwrap_or_else(PoisonError::into_inner).stdout.take();
        let line = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            out.map_or(Ok(0), |out| BufReader::new(out).read_line(&mut line)).map(|_| line)
        });
        let mut child = Self { process, address: ([127, 0, 0, 1], 0).into(), started, _cleanup: cleanup };
        let line = line.await??;
        let address = line.trim().strip_prefix("listening on http://").and_then(|at| at.parse().ok());
        child.address = address.ok_or_else(|| {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            io::Error::other(format!("the server did not start: {}", log.trim()))
        })?;
        Ok(child)
    }

    /// Waits until the server reports that it is ready. Returns the time since the start of the process.
    pub(crate) async fn ready(&self) -> io::Result<Duration> {
        let request = client::get("/readyz");
        loop {
            let ready = async { Client::connect(self.address).await?.send(&request).await.map(|_| ()) };
            match ready.await {
                Ok(()) => return Ok(self.started.elapsed()),
                Err(error) if self.started.elapsed() > START_TIMEOUT => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.lock().unwrap_or_else(PoisonError::into_inner).id()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        // Ignores errors: `kill` fails if the process has already ended.
        let _ = process.kill();
        let _ = process.wait();
    }
}
