//! `epitome demo`, the first command that people run.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on should stop, loudly"
)]

use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The demo in a temporary folder, without the user's environment.
fn demo(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_epitome"));
    command.arg("demo").args(args).current_dir(folder);
    for name in ["TMPDIR", "TEMP", "TMP", "HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"] {
        command.env(name, folder);
    }
    command.stdin(Stdio::null()).env_remove("CARGO").env_remove("EPITOME_DB");
    command
}

fn text(output: &Output) -> (Option<i32>, String, String) {
    let said = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), said(&output.stdout), said(&output.stderr))
}

#[test]
fn piped_output_is_plain_and_the_database_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (code, out, errors) = text(&demo(folder.path(), &[]).output().unwrap());
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(!out.contains(['\u{1b}', '\r']), "{out}");
    assert!(out.starts_with("A long conversation, condensed but complete\n"), "{out}");
    let db = folder.path().join("epitome-demo.db");
    let commands: Vec<&str> = out.lines().filter_map(|line| line.strip_prefix("  epitome ")).collect();
    assert!(commands.len() >= 5 && db.exists(), "{out}");
    assert!(out.contains(&format!("  export EPITOME_DB={}\n", db.display())), "{out}");
    for command in commands {
        let tried = Command::new(env!("CARGO_BIN_EXE_epitome"))
            .args(command.split_whitespace())
            .env("EPITOME_DB", &db)
            .env("HOME", folder.path())
            .current_dir(folder.path())
            .output()
            .unwrap();
        let (code, out, errors) = text(&tried);
        assert!(code == Some(0) && !out.is_empty(), "{command}: {errors}");
    }
}

#[test]
fn json_contains_everything_that_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--json", "--tokens", "2000", "--db", "mine.db"];
    let (code, out, errors) = text(&demo(folder.path(), &args).output().unwrap());
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let object: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(object["savings"]["budget"], 2_000);
    for name in ["summaries", "contexts", "facts"] {
        assert!(object[name].as_array().is_some_and(|list| list.len() >= 5), "{name}");
    }
    assert!(folder.path().join("mine.db").exists());
}

#[test]
fn colours_only_when_requested() {
    let folder = tempfile::tempdir().unwrap();
    let (_, out, _) = text(&demo(folder.path(), &["--color", "always"]).output().unwrap());
    assert!(out.contains("\u{1b}[32m") && !out.contains("\u{1b}[K"), "colours, and nothing that moves");
}

#[test]
fn a_wrong_database_or_budget_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("letter.txt"), "Dear Ann, this is no database at all.").unwrap();
    for (args, code) in
        [(["--db", "letter.txt"], 1), (["--db", "no/such/folder.db"], 1), (["--tokens", "0"], 2)]
    {
        let (exit, out, errors) = text(&demo(folder.path(), &args).output().unwrap());
        assert_eq!((exit, out.as_str(), errors.lines().count()), (Some(code), "", 1), "{errors}");
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut running = demo(folder.path(), &[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(running.stdout.take());
    let mut errors = String::new();
    running.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!((running.wait().unwrap().code(), errors.as_str()), (Some(0), ""));
}

/// What the README and docs/cli.md show of the demo is what the demo prints: every line, in this order, durations aside.
/// A line `...` matches any number of lines, also at the end.
#[test]
fn the_readme_and_the_cli_page_show_what_the_demo_prints() {
    let folder = tempfile::tempdir().unwrap();
    // As in a fresh clone.
    let (_, out, _) = text(&demo(folder.path(), &[]).env("CARGO", "cargo").output().unwrap());
    let out = out.replace(&folder.path().display().to_string(), "/tmp");
    for page in ["README.md", "docs/cli.md"] {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
        let page = std::fs::read_to_string(page).unwrap();
        let (_, shown) = page.split_once("```text\nA long conversation, condensed but complete\n").unwrap();
        check_shown(shown.split("```").next().unwrap(), &out);
    }
}

#[track_caller]
fn check_shown(shown: &str, out: &str) {
    let mut printed = out.lines().map(timeless).skip(1);
    let mut skips = false;
    for line in shown.lines().map(timeless) {
        if line == "..." {
            skips = true;
            continue;
        }
        let found =
            if std::mem::take(&mut skips) { printed.find(|next| *next == line) } else { printed.next() };
        assert_eq!(found.as_deref(), Some(line.as_str()), "a page shows what the demo does not print");
    }
    assert!(skips || printed.next().is_none(), "a page leaves out the end of the demo without a line `...`");
}

/// A line without the duration at its end, and without the space before it.
fn timeless(line: &str) -> String {
    let Some(rest) = line.strip_suffix(" ms") else { return line.to_owned() };
    let rest = rest.trim_end_matches(|c: char| c.is_ascii_digit() || c == ',').trim_end();
    rest.strip_suffix("under").unwrap_or(rest).trim_end().to_owned()
}

#[test]
fn durations_are_left_out_of_comparisons() {
    let lines = ["  short  1-20  2,703 →   996  under 1 ms", "  short  1-20  2,703 →   996       12 ms"];
    assert_eq!(lines.map(timeless), ["  short  1-20  2,703 →   996"; 2]);
}

#[test]
fn two_demos_at_once_do_not_disturb_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let start =
        || demo(folder.path(), &["--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let both: Vec<_> = (0..3).map(|_| start()).collect();
    let mut places = Vec::new();
    for one in both {
        let (code, out, errors) = text(&one.wait_with_output().unwrap());
        assert_eq!((code, errors.as_str()), (Some(0), ""));
        let object: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(object["messages"], 372);
        places.push(object["database"].as_str().unwrap().to_owned());
    }
    places.sort();
    places.dedup();
    assert_eq!(places.len(), 3, "each has a place of its own");
}
