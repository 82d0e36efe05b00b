//! `epitome bench`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::bin::{TestFolder, result_of};

#[test]
fn a_bench_whose_folder_does_not_exist_fails_with_one_line() {
    let (code, out, errors) = TestFolder::new().run(&["bench", "--quick", "--dir", "/nowhere/at/all"]);
    assert_eq!((code, out.as_str(), errors.lines().count()), (Some(1), "", 1), "{errors}");
    assert!(errors.starts_with("epitome: bench: dir: cannot create files in /nowhere/at/all: "), "{errors}");
}

const TINY: [&str; 7] = ["bench", "--quick", "--messages", "1000", "--long", "200", "--dir"];

#[test]
fn a_bench_is_one_json_object() {
    let dir = tempfile::tempdir().unwrap();
    let (code, out, errors) =
        result_of(TestFolder::new().epitome(&TINY).arg(dir.path()).arg("--json").output().unwrap());
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
        "/batches/ratio",
        "/memory/rows_per_second",
        "/memory/database",
        "/reading/counting_ratio",
        "/reading/reading_ratio",
        "/reading/writing/median",
        "/reading/writing_ratio",
        "/inline/untouched/turn/median",
        "/inline/command/condense/median",
    ] {
        let found = report.pointer(number).and_then(serde_json::Value::as_f64);
        assert!(found.is_some_and(|found| found > 0.0), "{number} in {out}");
    }
    assert_eq!(report.pointer("/memory/messages"), Some(&1_000.into()));
    assert_eq!(report.pointer("/size"), Some(&"quick".into()));
    assert!(report.pointer("/lines/0/target").is_some() && report["met"].is_boolean(), "{out}");
    assert_eq!(report["lines"].as_array().map(Vec::len), Some(15), "{out}");
    assert_eq!(dir.path().read_dir().unwrap().count(), 0, "files were left behind");
}

#[test]
fn a_bench_of_lists_reports_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let (code, out, errors) = result_of(
        TestFolder::new().epitome(&TINY).arg(dir.path()).args(["--inline", "--json"]).output().unwrap(),
    );
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["lines"].as_array().map(Vec::len), Some(6), "{out}");
    for number in [
        "untouched/counting",
        "condensed/turn",
        "shared/turn",
        "condensing",
        "unseen",
        "counting",
        "command/start",
    ] {
        let found = report.pointer(&format!("/inline/{number}/median")).and_then(serde_json::Value::as_f64);
        assert!(found.is_some_and(|found| found > 0.0), "{number} in {out}");
    }
    assert!(report.get("appends").is_none() && report["inline"]["messages"] == 200, "{out}");
    assert_eq!(dir.path().read_dir().unwrap().count(), 0, "files were left behind");
}

#[test]
fn a_piped_bench_is_a_plain_table() {
    let dir = tempfile::tempdir().unwrap();
    let (code, out, errors) =
        result_of(TestFolder::new().epitome(&TINY).arg(dir.path()).arg("--inline").output().unwrap());
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(out.starts_with("benchmark ") && !out.contains('\u{1b}'), "{out}");
    assert_eq!(out.lines().count(), 1 + 6);
    assert!(
        out.lines()
            .skip(1)
            .all(|line| line.ends_with("met") || line.ends_with("missed") || line.ends_with("unknown"))
    );
}

#[test]
fn a_bench_of_the_server_reports_everything_it_measured() {
    let dir = tempfile::tempdir().unwrap();
    let place = TestFolder::new();
    let mut command = place.epitome(&["bench", "--server", "--seconds", "1", "--json"]);
    let (code, out, errors) = result_of(command.args(&TINY[1..]).arg(dir.path()).output().unwrap());
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    for number in [
        "/appends/rows_per_second",
        "/appends/engine_rows_per_second",
        "/appends/ratio",
        "/appends/millis/p99",
        "/contexts/0/per_second",
        "/contexts/11/echo_per_second",
        "/contexts/11/ratio",
        "/honcho/appends_per_second",
        "/honcho/contexts_anew_per_second",
        "/large/ready/median",
        "/large/requests_per_second",
    ] {
        let found = report.pointer(number).and_then(serde_json::Value::as_f64);
        assert!(found.is_some_and(|found| found > 0.0), "{number} in {out}");
    }
    assert_eq!(report["lines"].as_array().map(Vec::len), Some(20), "{out}");
    assert_eq!(dir.path().read_dir().unwrap().count(), 0, "files were left behind");
}

/// A program that plays the peers: what it does for each of them is a piece of Python.
fn peers(place: &TestFolder, langchain: &str, openhands: &str, trpc_agent: &str) -> PathBuf {
    let program = place.path("peers");
    let pieces = [langchain, openhands, trpc_agent].map(|piece| piece.replace('\n', "\n    "));
    let [langchain, openhands, trpc_agent] = pieces;
    let text = format!(
        r#"#!/usr/bin/env python3
import json, sys, time
name, folder = sys.argv[1:]
plan = json.load(open("plan.json"))
history = [json.loads(line)["message"] for line in open(folder + "/history.jsonl")]
def lists(*lists):
    with open(folder + "/lists.jsonl", "w") as file:
        file.writelines(json.dumps({{"messages": list}}) + "\n" for list in lists)
def answer(millis):
    turns = [{{"messages": length, "millis": [millis] * 3}} for length in plan["lengths"]]
    session = {{"millis": [millis] * (plan["session"] // 4), "condensed": 2}}
    print(json.dumps({{"version": "1.2.3", "memory": 50_000_000, "turns": turns, "session": session}}))
if name == "langchain":
    {langchain}
elif name == "openhands":
    {openhands}
elif name == "trpc-agent":
    {trpc_agent}
"#
    );
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

const BESIDE: [&str; 7] = ["bench", "--quick", "--long", "100", "--seconds", "60", "--peers"];

const WELL: &str = "lists(history[:1], history[:3])\nanswer(4000)";

#[test]
fn other_condensers_are_reported_next_to_ours() {
    let (place, dir) = (TestFolder::new(), tempfile::tempdir().unwrap());
    // The first list begins with a result that no call requested.
    let refused = "lists(history[2:4], history[:3])\nprint('hello', file=sys.stderr)\nanswer(0.002)";
    let program = peers(&place, WELL, refused, WELL);
    let run = |json: bool| {
        let mut command = place.epitome(&BESIDE);
        command.arg(&program).arg("--dir").arg(dir.path());
        result_of(if json { command.arg("--json") } else { &mut command }.output().unwrap())
    };
    let (code, out, errors) = run(true);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    let number = |path: &str| report.pointer(path).and_then(serde_json::Value::as_f64).unwrap_or(-1.0);
    assert!(number("/epitome/turns/0/1/median") > 0.0 && number("/epitome/whole") > 0.0, "{out}");
    assert_eq!([number("/epitome/lists"), number("/epitome/refused")], [50.0, 0.0], "{out}");
    assert_eq!(number("/peers/langchain/session/p99"), 4_000.0, "{out}");
    assert_eq!(number("/peers/trpc-agent/whole"), 100_000.0, "{out}");
    assert_eq!([number("/peers/openhands/lists"), number("/peers/openhands/refused")], [2.0, 1.0], "{out}");
    assert_eq!(report["peers"]["openhands"]["version"], "1.2.3");
    let (code, out, errors) = run(false);
    assert_eq!(code, Some(0), "{errors}");
    let head = out.lines().next().unwrap_or_default();
    assert!(head.contains("LangChain 1.2.3") && head.contains("tRPC-Agent 1.2.3"), "{out}");
    assert!(
        out.contains("turn with a list of 100 messages, nothing due")
            && out.contains("4,000 ms (p99 4,000 ms), ")
    );
    assert!(out.contains("1 of 2") && out.contains("0 of 50") && out.contains("50 MB"), "{out}");
    let refused = "OpenHands: a strict provider rejects one of its lists: the first message is from tool, not from the user\n";
    assert_eq!(errors, refused);
    assert_eq!(dir.path().read_dir().unwrap().count(), 0, "files were left behind");
}

#[test]
fn a_peer_that_dies_or_prints_rubbish_is_left_out_and_the_others_are_reported() {
    let (place, dir) = (TestFolder::new(), tempfile::tempdir().unwrap());
    let dies = "print('well, \\x1b[31mno', file=sys.stderr)\nsys.exit('not installed; install it')";
    let program = peers(&place, dies, "print('hello')", WELL);
    let (code, out, errors) =
        result_of(place.epitome(&BESIDE).arg(&program).arg("--dir").arg(dir.path()).output().unwrap());
    assert_eq!(code, Some(0), "{errors}");
    assert!(out.contains("  –  ") && out.contains("tRPC-Agent 1.2.3"), "{out}");
    let printed: Vec<&str> = errors.lines().collect();
    assert_eq!(printed.len(), 2, "{errors}");
    assert_eq!(printed[0], "LangChain was not measured: exit status: 1: not installed; install it");
    assert!(
        printed[1]
            .starts_with("OpenHands was not measured: its answer cannot be read: expected value at line 1")
    );
}

#[test]
fn a_peer_that_never_answers_is_killed() {
    let (place, dir) = (TestFolder::new(), tempfile::tempdir().unwrap());
    let program = peers(&place, "time.sleep(3600)", WELL, WELL);
    let mut command =
        place.epitome(&["bench", "--quick", "--long", "100", "--seconds", "1", "--json", "--peers"]);
    let (code, out, errors) = result_of(command.arg(&program).arg("--dir").arg(dir.path()).output().unwrap());
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["peers"]["langchain"]["failed"], "no answer within 1 s", "{out}");
    assert_eq!(dir.path().read_dir().unwrap().count(), 0, "files were left behind");
}

#[test]
fn a_peer_that_measures_something_else_is_left_out() {
    let (place, dir) = (TestFolder::new(), tempfile::tempdir().unwrap());
    let other = "lists()\nplan['lengths'] = [7]\nanswer(1)";
    let program = peers(&place, other, "lists()\nanswer(-1)", "answer(1)");
    let mut command = place.epitome(&BESIDE);
    command.arg(&program).arg("--json").arg("--dir").arg(dir.path());
    let (code, out, errors) = result_of(command.output().unwrap());
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    let failed = |name: &str| report["peers"][name]["failed"].as_str().unwrap_or_default().to_owned();
    assert_eq!(failed("langchain"), "its output does not match the plan");
    assert_eq!(failed("openhands"), "its durations are invalid");
    assert!(failed("trpc-agent").starts_with("its lists cannot be read: "), "{out}");
}

#[test]
fn a_missing_program_for_peers_is_reported_in_one_line() {
    let place = TestFolder::new();
    let (code, out, errors) = place.run(&["bench", "--quick", "--long", "100", "--peers", "nowhere/run"]);
    assert_eq!((code, out.as_str(), errors.lines().count()), (Some(1), "", 1), "{errors}");
    assert!(errors.starts_with("epitome: bench: --peers: cannot start ") && errors.contains("nowhere/run: "));
}
