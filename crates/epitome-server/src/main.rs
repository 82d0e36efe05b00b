//! The binary `epitome`.
//!
//! HTTP, proxy and the other commands will stand here, over an engine. Today it measures, tells its version and
//! what there is.

mod commands;

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;

use commands::Answer;

fn main() -> ExitCode {
    let answer = match commands::parse(std::env::args_os()) {
        Ok(command) => run(command),
        Err(answer) => answer,
    };
    // Nobody is left to be told when this fails.
    let _ = io::stderr().write_all(answer.stderr.as_bytes());
    match print(&answer.stdout) {
        Ok(()) => ExitCode::from(answer.code),
        // The reader has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::from(answer.code),
        Err(error) => {
            let _ = writeln!(io::stderr(), "epitome: cannot write to standard output: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: commands::Command) -> Answer {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Answer::failed(&format!("no threads can be started: {error}")),
    };
    runtime.block_on(commands::run(command, io::stderr().is_terminal()))
}

/// Flushes by hand: at exit, an error would go unseen.
fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}
