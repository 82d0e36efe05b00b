//! Runs one test binary on both databases.
//!
//! The tests of a suite choose their store by [`on_postgres`]. The process that cargo starts uses SQLite. One test of
//! the suite calls [`again_on_postgres`], which starts the same binary as a child process with PostgreSQL. So the tests
//! are compiled once, and both runs share the machine.
//!
//! `CHECK_STORE=postgres cargo test --test engine NAME` runs a single test on PostgreSQL, and with `sqlite` the
//! second run is left out, as `./check --quick` does.

use std::io::Write;
use std::process::{Command, Stdio};

const STORE: &str = "CHECK_STORE";

/// Returns whether this process tests PostgreSQL.
pub fn on_postgres() -> bool {
    std::env::var_os(STORE).is_some_and(|store| store == "postgres")
}

/// Runs this test binary again on PostgreSQL, without the tests whose names contain one of `except`, and fails if one
/// of them fails. Does nothing in the child process itself, or if a store was chosen by hand.
pub fn again_on_postgres(except: &[&str]) {
    if std::env::var_os(STORE).is_some() {
        return;
    }
    let mut run = Command::new(std::env::current_exe().unwrap());
    run.env(STORE, "postgres").stdin(Stdio::null());
    for name in except.iter().chain(&["again_on_postgres"]) {
        run.args(["--skip", name]);
    }
    let done = run.output().unwrap();
    let output = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "on PostgreSQL:\n{output}\n{}", String::from_utf8_lossy(&done.stderr));
    // Bypasses the capture of test output, so that scripts that count tests see the count.
    let result = output.lines().find(|line| line.starts_with("test result: ")).unwrap();
    assert!(!result.contains(" 0 passed"), "no test ran: {result}");
    std::io::stdout().write_all(format!("on PostgreSQL, {result}\n").as_bytes()).unwrap();
}
