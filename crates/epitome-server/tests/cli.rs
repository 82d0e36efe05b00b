//! The real binary, run as people run it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop, loudly")]

use std::process::{Command, Output, Stdio};

fn epitome() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_epitome"));
    command.stdin(Stdio::null());
    command
}

/// Exit code, standard output, standard error.
fn told(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn it_tells_its_version() {
    let line = format!("epitome {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(told(epitome().arg("--version").output().unwrap()), (Some(0), line, String::new()));
}

#[test]
fn it_explains_itself() {
    let (code, help, errors) = told(epitome().arg("--help").output().unwrap());
    assert!(help.contains("Usage: epitome") && help.ends_with('\n'), "{help}");
    assert_eq!((code, errors.as_str()), (Some(0), ""));
}

#[test]
fn a_wrong_argument_is_named_in_one_line() {
    let line = "epitome: unknown argument \"serve\"; `epitome --help` says what there is\n".to_owned();
    assert_eq!(told(epitome().arg("serve").output().unwrap()), (Some(2), String::new(), line));
}

/// `epitome --help | head -0`, without the race: the reader is gone before the binary starts.
#[test]
fn a_closed_pipe_is_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = epitome().arg("--help").stdout(writer).output().unwrap();
    assert_eq!(told(output), (Some(0), String::new(), String::new()));
}

#[test]
fn a_closed_pipe_for_errors_changes_nothing() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = epitome().arg("serve").stderr(writer).output().unwrap();
    assert_eq!(told(output), (Some(2), String::new(), String::new()));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told_and_fails() {
    let full = std::fs::File::create("/dev/full").unwrap();
    let (code, _, errors) = told(epitome().arg("--help").stdout(full).output().unwrap());
    assert_eq!(code, Some(1));
    assert!(errors.starts_with("epitome: cannot write to standard output: "), "{errors}");
    assert_eq!(errors.lines().count(), 1);
}
