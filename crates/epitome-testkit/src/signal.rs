//! Sends signals to child processes without the program `kill`, which a minimal Debian does not have.

use rustix::process::{Pid, Signal, kill_process};

/// Sends a signal, named as `kill` names it (`INT` or `-INT`), to a process.
///
/// # Panics
///
/// If there is no such process, because the test expected it to run, or no such signal.
pub fn send(name: &str, pid: u32) {
    let signal = match name.trim_start_matches('-') {
        "CONT" => Signal::CONT,
        "HUP" => Signal::HUP,
        "INT" => Signal::INT,
        "KILL" => Signal::KILL,
        "QUIT" => Signal::QUIT,
        "STOP" => Signal::STOP,
        "TERM" => Signal::TERM,
        other => panic!("signal {other} is not in this table"),
    };
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw).unwrap();
    kill_process(process, signal).unwrap_or_else(|error| panic!("{name} to process {pid}: {error}"));
}
