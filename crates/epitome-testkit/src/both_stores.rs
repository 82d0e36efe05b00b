//! Runs one test binary on SQLite and on PostgreSQL.
//!
//! The tests of a suite call [`on_postgres`] to choose their store. The process that cargo starts uses SQLite. One
//! test of the suite calls [`again_on_postgres`], which starts the same binary as a child process that uses
//! PostgreSQL. So the tests are compiled only once, and both runs use the machine at the same time.
//!
//! `CHECK_STORE=postgres cargo test --test engine NAME` runs a single test on PostgreSQL. With `CHECK_STORE=sqlite`,
//! the run on PostgreSQL is left out. `./check --quick` uses this value.

use std::io::Write;
use std::process::{Command, Stdio};

const STORE: &str = "CHECK_STORE";

/// Returns whether this process tests PostgreSQL.
pub fn on_postgres() -> bool {
    std::env::var_os(STORE).is_some_and(|store| store == "postgres")
}

/// Runs this test binary again on PostgreSQL, and panics if a test fails. Leaves out each test whose name contains
/// one of the texts in `except`. Does nothing if `CHECK_STORE` is set, either in the child process or by the user.
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
    // Writes directly to standard output, because `cargo test` hides the output of tests. Scripts that count tests
    // need this line.
    let result = output.lines().find(|line| line.starts_with("test result: ")).unwrap();
    assert!(!result.contains(" 0 passed"), "no test ran: {result}");
    std::io::stdout().write_all(format!("on PostgreSQL, {result}\n").as_bytes()).unwrap();
}
