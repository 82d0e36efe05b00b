//! What goes wrong around the binary: pipes, disks, locks, Ctrl-C.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use epitome::rules::message::Message;

use crate::bin::{TestFolder, result_of, talk};

/// `epitome --help | head -0`, without the race: the reader is gone before the binary starts.
#[test]
fn a_closed_pipe_is_no_error() {
    let place = TestFolder::with_sessions();
    for args in [
        ["--help"].as_slice(),
        &["list", "--db", "epitome.db"],
        &["expand", "ann", "--slot", "long", "--db", "epitome.db"],
        &["search", "order", "--json", "--db", "epitome.db"],
        &["--write-config", "-"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = place.epitome(args).stdout(writer).output().unwrap();
        assert_eq!(result_of(output), (Some(0), String::new(), String::new()), "{args:?}");
    }
}

#[test]
fn a_closed_pipe_for_errors_changes_nothing() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = TestFolder::new().epitome(&["rewind"]).stderr(writer).output().unwrap();
    assert_eq!(result_of(output), (Some(2), String::new(), String::new()));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    let place = TestFolder::with_sessions();
    for args in [["--help"].as_slice(), &["list", "--db", "epitome.db"], &["completions", "zsh"]] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let (code, _, errors) = result_of(place.epitome(args).stdout(full).output().unwrap());
        assert_eq!(code, Some(1), "{args:?}");
        assert!(errors.starts_with("epitome: cannot write to standard output: "), "{errors}");
        assert_eq!(errors.lines().count(), 1);
    }
}

#[test]
fn a_file_that_is_no_database_is_not_changed() {
    let place = TestFolder::new();
    std::fs::write(place.db(), "a letter to nobody, long enough to be looked at as if it were more").unwrap();
    for args in [["list"].as_slice(), &["verify"], &["summarize", "ann"]] {
        let (code, out, errors) = place.on_db(args);
        assert_eq!((code, out.as_str(), errors.lines().count()), (Some(1), "", 1), "{errors}");
        assert!(errors.starts_with("epitome: epitome.db is not an Epitome database"), "{errors}");
    }
    let (code, _, errors) = place.run(&["list", "--db", "."]);
    assert_eq!((code, errors.lines().count()), (Some(1), 1), "{errors}");
}

#[test]
fn verify_reports_damage_with_its_position() {
    let place = TestFolder::with_sessions();
    let script = "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1])\n\
        db.execute('UPDATE messages SET tokens = tokens + 5 WHERE seq = 3')\ndb.commit()\n";
    let done = Command::new("python3").args(["-c", script]).arg(place.db()).status().unwrap();
    assert!(done.success());
    let (code, out, errors) = place.on_db(&["verify"]);
    assert_eq!((code, errors.lines().count()), (Some(1), 1), "{out}{errors}");
    assert!(out.contains("session \"default/ann\" message 4"), "{out}");
    let (code, out, errors) = place.on_db(&["verify", "--json"]);
    assert_eq!((code, errors.as_str()), (Some(1), ""));
    let object: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(object["ok"], false);
    assert!(!object["faults"].as_array().unwrap().is_empty());
}

/// Holds the database's write lock until its input is closed.
struct Lock(Child);

impl Lock {
    fn on(place: &TestFolder) -> Self {
        let script = "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1], isolation_level=None)\n\
            db.execute('BEGIN IMMEDIATE')\nprint('held', flush=True)\nsys.stdin.read()\n";
        let mut command = Command::new("python3");
        command.args(["-c", script]).arg(place.db()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "held\n");
        Self(child)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn a_locked_database_can_be_read_and_a_write_reports_the_lock() {
    let place = TestFolder::with_sessions();
    place.engine(|engine| async move { talk(&engine.session("ann"), 3).await });
    let lock = Lock::on(&place);
    assert!(place.good(&["list"]).contains("ann"));
    assert!(!place.good(&["context", "ann", "--tokens", "500"]).is_empty());
    let began = Instant::now();
    let line = "epitome.db is locked by another process; try again, or stop that process";
    place.fails(&["summarize", "ann"], 1, line);
    assert!(began.elapsed() >= Duration::from_secs(4), "it did not wait: {:?}", began.elapsed());
    drop(lock);
    assert!(place.good(&["verify"]).contains("no faults"));
    assert_eq!(place.json(&["summarize", "ann", "--slot", "short"])["status"], "written");
}

#[cfg(unix)]
fn interrupt(child: &Child) {
    epitome_testkit::signal::send("INT", child.id());
}

/// It waits for the lock when Ctrl-C comes.
#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_command_at_once_and_leaves_the_database_intact() {
    let place = TestFolder::with_sessions();
    place.engine(|engine| async move { talk(&engine.session("ann"), 3).await });
    let lock = Lock::on(&place);
    let mut command = place.epitome(&["summarize", "ann", "--db", "epitome.db"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1_500));
    let began = Instant::now();
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert!(began.elapsed() < Duration::from_secs(2), "it took {:?}", began.elapsed());
    assert_eq!(result_of(output), (Some(130), String::new(), "\n".to_owned()));
    drop(lock);
    assert!(place.good(&["verify"]).contains("no faults"));
    assert_eq!(place.json(&["summarize", "ann", "--slot", "short"])["status"], "written");
}

/// Nobody reads what it says, so it is stuck in the middle of a line.
#[cfg(unix)]
#[test]
fn ctrl_c_works_while_the_output_is_blocked() {
    let place = TestFolder::new();
    place.engine(|engine| async move {
        let session = engine.session("long");
        for _ in 0..60 {
            let words = Message::user("many words ".repeat(2_000));
            session.append([words, Message::assistant("I see.")]).await.unwrap();
        }
        engine.work().await.unwrap();
    });
    let mut command = place.epitome(&["expand", "long", "--slot", "short", "--db", "epitome.db"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 64];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    interrupt(&child);
    let code = child.wait().unwrap().code();
    assert!(began.elapsed() < Duration::from_secs(2), "it took {:?}", began.elapsed());
    assert_eq!(code, Some(130));
}

#[cfg(unix)]
#[test]
fn a_terminal_gets_colours_and_bars_that_fit() {
    let place = TestFolder::with_sessions();
    let list = place.on_terminal(40, &["list"]);
    assert!(list.contains("\u{1b}[1m") && list.contains('…'), "{list:?}");
    assert!(place.on_terminal(100, &["explain", "ann"]).contains('░'));
    assert!(place.on_terminal(100, &["search", "oslo"]).contains("\u{1b}[33mOslo"));
}

/// Runs a command as somebody who may not write what root may.
#[cfg(unix)]
const AS_NOBODY: &str = "\
import os, sys
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
os.execv(sys.argv[1], sys.argv[1:])
";

#[cfg(unix)]
#[test]
fn a_read_only_database_can_be_read() {
    use std::os::unix::fs::PermissionsExt;
    let place = TestFolder::with_sessions();
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    // The binary must be reachable for anybody, wherever it was built.
    let binary = place.path("epitome");
    std::fs::copy(env!("CARGO_BIN_EXE_epitome"), &binary).unwrap();
    let scratch = place.path("scratch");
    std::fs::create_dir(&scratch).unwrap();
    mode(&scratch, 0o777);
    mode(&place.db(), 0o444);
    mode(place.folder.path(), 0o555);
    let run = |args: &[&str]| {
        let mut command = Command::new("python3");
        command.args(["-c", AS_NOBODY]).arg(&binary).args(args).args(["--db", "epitome.db"]);
        result_of(command.current_dir(place.folder.path()).env("HOME", &scratch).output().unwrap())
    };
    for args in [
        &["list"][..],
        &["context", "ann", "--tokens", "1000"],
        &["search", "Oslo"],
        &["export", "ann"],
        &["explain", "ann"],
        &["verify"],
        &["expand", "ann", "--slot", "short"],
        &["backup", "scratch/copy.db"],
    ] {
        let (code, out, errors) = run(args);
        assert!(code == Some(0) && !out.is_empty(), "{args:?}: {errors}");
    }
    let (code, _, errors) = run(&["undo", "ann", "--slot", "short"]);
    assert_eq!((code, errors.lines().count()), (Some(1), 1), "{errors}");
    assert!(errors.contains("cannot be written"), "{errors}");
    mode(place.folder.path(), 0o755);
}

#[test]
fn reading_does_not_wait_for_a_writer() {
    let place = TestFolder::with_sessions();
    let script = "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1], isolation_level=None)\n\
        db.execute('BEGIN IMMEDIATE')\nprint('held', flush=True)\nsys.stdin.read()\n";
    let mut holder = Command::new("python3");
    holder.args(["-c", script]).arg(place.db()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = holder.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let began = Instant::now();
    for args in [&["list"][..], &["context", "ann"], &["search", "Oslo"], &["explain", "ann"]] {
        place.good(args);
    }
    // For a lock each would wait five seconds.
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    drop(holder.stdin.take());
    holder.wait().unwrap();
}
