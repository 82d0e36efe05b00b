//! Sends signals to child processes without the program `kill`, which a minimal Debian does not have.

use rustix::process::{Pid, Signal, kill_process};

/// Sends a signal to a process. The name of the signal is written as for the program `kill`: `INT` or `-INT`.
///
/// # Panics
///
/// If there is no process with this id, because the test expects the process to run. Also if the name of the signal
/// is unknown.
pub fn send(name: &str, pid: u32) {
    let signal = match name.trim_start_matches('-') {
        "CONT" => Signal::CONT,
        "HUP" => Signal::HUP,
        "INT" => Signal::INT,
        "KILL" => Signal::KILL,
        "QUIT" => Signal::QUIT,
        "STOP" => Signal::STOP,
        "TERM" => Signal::TERM,
        other => panic!("signal {other} is not supported"),
    };
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw).unwrap();
    kill_process(process, signal).unwrap_or_else(|error| panic!("{name} to process {pid}: {error}"));
}
