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

#[test]
fn a_bench_without_a_place_is_told_in_one_line() {
    let (code, out, errors) =
        told(epitome().args(["bench", "--quick", "--dir", "/nowhere/at/all"]).output().unwrap());
    assert_eq!((code, out.as_str(), errors.lines().count()), (Some(1), "", 1), "{errors}");
    assert!(errors.starts_with("epitome: bench: dir: nothing can be made in /nowhere/at/all: "), "{errors}");
}

const TINY: [&str; 7] = ["bench", "--quick", "--messages", "1000", "--long", "200", "--dir"];

#[test]
fn a_bench_is_one_json_object() {
    let dir = tempfile::tempdir().unwrap();
    let (code, out, errors) = told(epitome().args(TINY).arg(dir.path()).arg("--json").output().unwrap());
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    for number in [
        "/appends/rows_per_second",
        "/appends/bare_rows_per_second",
        "/appends/ratio",
        "/contexts/long/warm/median",
        "/contexts/short/cold/p95",
        "/contexts/warm_ratio",
        "/batches/millis/median",
        "/memory/rows_per_second",
    ] {
        let found = report.pointer(number).and_then(serde_json::Value::as_f64);
        assert!(found.is_some_and(|found| found > 0.0), "{number} in {out}");
    }
    assert_eq!(report.pointer("/memory/messages"), Some(&1_000.into()));
    assert_eq!(report.pointer("/size"), Some(&"quick".into()));
    assert!(report.pointer("/lines/0/target").is_some() && report["met"].is_boolean(), "{out}");
    assert_eq!(dir.path().read_dir().unwrap().count(), 0, "files were left behind");
}

#[test]
fn a_bench_is_a_plain_table_where_it_is_piped() {
    let dir = tempfile::tempdir().unwrap();
    let (code, out, errors) = told(epitome().args(TINY).arg(dir.path()).output().unwrap());
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(out.starts_with("what ") && !out.contains('\u{1b}'), "{out}");
    assert_eq!(out.lines().count(), 7);
    assert!(
        out.lines()
            .skip(1)
            .all(|line| line.ends_with("met") || line.ends_with("missed") || line.ends_with("unknown"))
    );
}
