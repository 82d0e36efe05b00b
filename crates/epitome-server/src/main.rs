//! The binary `epitome`.
//!
//! HTTP, proxy and command line will stand here, over an engine. Today it tells its version and
//! what there is.

mod cli;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let answer = cli::answer(std::env::args_os().skip(1));
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

/// Flushes by hand: at exit, an error would go unseen.
fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}
