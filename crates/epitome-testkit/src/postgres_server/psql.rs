//! Runs SQL with `psql`, independently of the code under test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::{USER, program};

/// Returns a `psql` command with plain output that ignores PostgreSQL's environment variables.
fn psql(address: SocketAddr, database: &str) -> Command {
    let mut psql = Command::new(program("psql"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            psql.env_remove(name);
        }
    }
    psql.args(["-X", "-q", "-A", "-t", "-w", "-v", "ON_ERROR_STOP=1", "-U", USER, "-d", database])
        .args(["-h", &address.ip().to_string(), "-p", &address.port().to_string()])
        .env("LC_ALL", "C")
        .env("PGCONNECT_TIMEOUT", "30")
        .stdin(Stdio::null());
    psql
}

pub(super) fn run(address: SocketAddr, database: &str, sql: &str) -> Result<String, String> {
    let done = psql(address, database).args(["-c", sql]).output().map_err(|error| error.to_string())?;
    if done.status.success() {
        Ok(String::from_utf8_lossy(&done.stdout).trim_end().to_owned())
    } else {
        Err(String::from_utf8_lossy(&done.stderr).trim_end().to_owned())
    }
}

/// A connection that stays open and keeps its locks. Dropping this value closes the connection, which rolls back its
/// transaction.
#[derive(Debug)]
pub struct LockHolder {
    psql: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl LockHolder {
    pub(super) fn new(address: SocketAddr, database: &str, sql: &str) -> Result<LockHolder, String> {
        let mut psql = psql(address, database);
        psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut psql = psql.spawn().map_err(|error| error.to_string())?;
        let input = psql.stdin.take();
        let output = BufReader::new(psql.stdout.take().unwrap());
        let mut holder = LockHolder { psql, input, output };
        if holder.try_also(sql) {
            return Ok(holder);
        }
        let mut error = String::new();
        holder.psql.stderr.take().unwrap().read_to_string(&mut error).map_err(|error| error.to_string())?;
        Err(error.trim_end().to_owned())
    }

    /// Runs more SQL in the connection.
    pub fn also(&mut self, sql: &str) {
        assert!(self.try_also(sql), "{sql}: failed");
    }

    fn try_also(&mut self, sql: &str) -> bool {
        let Some(input) = &mut self.input else { return false };
        // If `psql` could not connect, the write may fail. The error is ignored, because the missing answer also
        // shows the failure.
        let _ = writeln!(input, "{sql};\n\\echo it-was-done").and_then(|()| input.flush());
        self.output.by_ref().lines().map_while(Result::ok).any(|line| line == "it-was-done")
    }
}

impl Drop for LockHolder {
    fn drop(&mut self) {
        // `psql` ends when its input ends. If the server is gone, `psql` may not notice the end of its input, so it
        // is killed.
        drop(self.input.take());
        let _ = self.psql.kill();
        let _ = self.psql.wait();
    }
}
