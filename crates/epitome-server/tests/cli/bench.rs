//! `epitome bench`.

use crate::bin::{Place, told};

#[test]
fn a_bench_without_a_place_is_told_in_one_line() {
    let (code, out, errors) = Place::new().run(&["bench", "--quick", "--dir", "/nowhere/at/all"]);
    assert_eq!((code, out.as_str(), errors.lines().count()), (Some(1), "", 1), "{errors}");
    assert!(errors.starts_with("epitome: bench: dir: nothing can be made in /nowhere/at/all: "), "{errors}");
}

const TINY: [&str; 7] = ["bench", "--quick", "--messages", "1000", "--long", "200", "--dir"];

#[test]
fn a_bench_is_one_json_object() {
    let dir = tempfile::tempdir().unwrap();
    let (code, out, errors) =
        told(Place::new().epitome(&TINY).arg(dir.path()).arg("--json").output().unwrap());
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
        "/inline/untouched/turn/median",
        "/inline/command/condense/median",
    ] {
        let found = report.pointer(number).and_then(serde_json::Value::as_f64);
        assert!(found.is_some_and(|found| found > 0.0), "{number} in {out}");
    }
    assert_eq!(report.pointer("/memory/messages"), Some(&1_000.into()));
    assert_eq!(report.pointer("/size"), Some(&"quick".into()));
    assert!(report.pointer("/lines/0/target").is_some() && report["met"].is_boolean(), "{out}");
    assert_eq!(report["lines"].as_array().map(Vec::len), Some(12), "{out}");
    assert_eq!(dir.path().read_dir().unwrap().count(), 0, "files were left behind");
}

#[test]
fn a_bench_of_lists_tells_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let (code, out, errors) =
        told(Place::new().epitome(&TINY).arg(dir.path()).args(["--inline", "--json"]).output().unwrap());
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["lines"].as_array().map(Vec::len), Some(6), "{out}");
    for number in
        ["untouched/counting", "condensed/turn", "shared/turn", "condensing", "unseen", "command/start"]
    {
        let found = report.pointer(&format!("/inline/{number}/median")).and_then(serde_json::Value::as_f64);
        assert!(found.is_some_and(|found| found > 0.0), "{number} in {out}");
    }
    assert!(report.get("appends").is_none() && report["inline"]["messages"] == 200, "{out}");
    assert_eq!(dir.path().read_dir().unwrap().count(), 0, "files were left behind");
}

#[test]
fn a_bench_is_a_plain_table_where_it_is_piped() {
    let dir = tempfile::tempdir().unwrap();
    let (code, out, errors) =
        told(Place::new().epitome(&TINY).arg(dir.path()).arg("--inline").output().unwrap());
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(out.starts_with("what ") && !out.contains('\u{1b}'), "{out}");
    assert_eq!(out.lines().count(), 1 + 6);
    assert!(
        out.lines()
            .skip(1)
            .all(|line| line.ends_with("met") || line.ends_with("missed") || line.ends_with("unknown"))
    );
}

#[test]
fn a_bench_of_the_server_tells_all_it_measured() {
    let dir = tempfile::tempdir().unwrap();
    let place = Place::new();
    let mut command = place.epitome(&["bench", "--server", "--seconds", "1", "--json"]);
    let (code, out, errors) = told(command.args(&TINY[1..]).arg(dir.path()).output().unwrap());
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
