//! `epitome migrate`: the real binary, killed again and again while it moves a file.

use std::process::Stdio;
use std::time::{Duration, Instant};

use epitome::rules::message::Message;

use crate::bin::{RunResult, TestFolder, result_of};
use crate::postgres::address;
use crate::postgres_server::{Database, server};

fn migrate(place: &TestFolder, database: &Database, args: &[&str]) -> RunResult {
    let to = address(database);
    let all = [&["migrate", "--from", "sqlite:epitome.db", "--to", &to], args].concat();
    let printed = result_of(place.epitome(&all).output().unwrap());
    assert!(!printed.1.contains("s3cret-word") && !printed.2.contains("s3cret-word"), "{printed:?}");
    printed
}

/// With so many messages, in batches.
fn filled(batches: usize) -> TestFolder {
    let place = TestFolder::with_sessions();
    place.engine(|engine| async move {
        let session = engine.session("long");
        for batch in 0..batches {
            let said =
                |n| Message::user(format!("Message {n} of batch {batch} is about order {batch}{n}71."));
            session.append((0..500).map(said).collect::<Vec<_>>()).await.unwrap();
        }
    });
    place
}

#[test]
fn a_file_is_moved_and_reported_table_by_table() {
    let (place, database) = (TestFolder::with_sessions(), server().database());
    let (code, out, errors) = migrate(&place, &database, &["--json"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let printed: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&printed["from"], &printed["moved"]), (&"epitome.db".into(), &true.into()));
    assert!(printed["to"].as_str().unwrap().contains(":***@"), "{printed}");
    let rows = |name: &str| {
        let tables = printed["tables"].as_array().unwrap();
        tables.iter().find(|table| table["table"] == name).unwrap()["rows"].as_u64().unwrap()
    };
    assert_eq!((rows("sessions"), rows("messages")), (2, 62));
    let sums: u64 =
        printed["tables"].as_array().unwrap().iter().map(|table| table["rows"].as_u64().unwrap()).sum();
    assert_eq!(printed["rows"], sums);

    let there = |args: &[&str]| {
        let output = place.epitome(args).env("EPITOME_DB", address(&database)).output().unwrap();
        crate::bin::result_of(output)
    };
    let here = place.on_db(&["context", "ann", "--tokens", "700"]);
    assert_eq!(there(&["context", "ann", "--tokens", "700"]), here);
    assert_eq!(there(&["verify"]).0, Some(0));

    let (code, _, errors) = migrate(&place, &database, &[]);
    assert!(code == Some(1) && errors.contains("was already migrated into this database"), "{errors}");
    let (code, out, errors) = migrate(&place, &database, &["--verify-only"]);
    assert!(code == Some(0) && out.contains("are identical: "), "{out} {errors}");
    database.psql("DELETE FROM epitome.messages WHERE seq = 7 AND session = 1");
    let (code, _, errors) = migrate(&place, &database, &["--verify-only"]);
    assert!(code == Some(1) && errors.contains("not in the database (session 1, seq 7)"), "{errors}");
}

#[test]
fn a_migration_killed_at_any_time_resumes() {
    let (place, database) = (filled(40), server().database());
    let to = address(&database);
    let args = ["migrate", "--from", "epitome.db", "--to", to.as_str(), "--piece", "50"];
    // From the first connection on to the middle of the comparison, each a little later than the one before.
    let mut killed = 0;
    for after in (0..).map(|n| Duration::from_millis(40 + n * n * 9)) {
        let mut child = place.epitome(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let began = Instant::now();
        while began.elapsed() < after && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(2));
        }
        if let Some(status) = child.try_wait().unwrap() {
            let errors = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
            // The one before may have been killed when all was done.
            let done = status.success()
                || (killed > 0 && errors.contains("was already migrated into this database"));
            assert!(done, "after {killed} kills: {status} {errors}");
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        killed += 1;
        // It may have finished by then without printing that.
        let done = database.try_psql("SELECT count(*) FROM epitome.moving WHERE finished IS NOT NULL");
        if done.is_ok_and(|rows| rows.trim() == "1") {
            break;
        }
        // Nobody uses what is half there.
        let begun = database.try_psql("SELECT count(*) FROM epitome.moving WHERE finished IS NULL");
        if begun.is_ok_and(|rows| rows.trim() == "1") {
            let (code, _, errors) =
                crate::bin::result_of(place.epitome(&["list", "--db", &to]).output().unwrap());
            assert!(code == Some(1) && errors.contains("being migrated into it"), "{errors}");
        }
    }
    assert!(killed > 3, "{killed}");
    let (code, out, errors) = migrate(&place, &database, &["--verify-only", "--json"]);
    assert_eq!(code, Some(0), "{errors}");
    let printed: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(printed["rows"].as_u64().unwrap() > 20_000, "{printed}");
    let list = |db: &str| crate::bin::result_of(place.epitome(&["list", "--db", db]).output().unwrap());
    assert_eq!(list(&to), list("epitome.db"));
}

#[test]
fn a_migration_checks_its_arguments_first() {
    let (place, database) = (TestFolder::with_sessions(), server().database());
    let to = address(&database);
    for (args, printed) in [
        (vec!["--from", "missing.db", "--to", &to], "missing.db cannot be opened: there is no such file"),
        (vec!["--from", &to, "--to", &to], "--from: expected the path of a SQLite file, or sqlite:PATH"),
        (
            vec!["--from", "epitome.db", "--to", "epitome.db"],
            "--to: expected postgres://USER:PASSWORD@HOST:PORT/DATABASE",
        ),
        (
            vec!["--from", "epitome.db"],
            "no PostgreSQL database to move into; add --to, or set server.db: expected postgres://USER:PASSWORD@",
        ),
    ] {
        let all = [vec!["migrate"], args].concat();
        let (code, out, errors) = crate::bin::result_of(place.epitome(&all).output().unwrap());
        assert!(matches!(code, Some(1 | 2)) && out.is_empty(), "{all:?}: {out}");
        assert!(errors.contains(printed) && errors.lines().count() == 1, "{errors}");
        assert!(!errors.contains("s3cret-word"), "{errors}");
    }
    assert!(!place.path("missing.db").exists());
    assert_eq!(database.psql("SELECT to_regnamespace('epitome') IS NULL").trim(), "t");
}
