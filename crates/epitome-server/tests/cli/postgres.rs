//! Every command on PostgreSQL, which `--db` and the settings name in place of a file.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::bin::{RunResult, TestFolder, result_of};
use crate::postgres_server::{Database, free_port, server};

/// Returns the address with a password, which the cluster does not require and which must never be printed.
pub(crate) fn address(database: &Database) -> String {
    database.url().replacen('@', ":s3cret-word@", 1)
}

/// The same, as it is shown.
fn shown(database: &Database) -> String {
    database.url().replacen('@', ":***@", 1)
}

fn on(place: &TestFolder, address: &str, args: &[&str]) -> RunResult {
    let printed = result_of(place.epitome(args).env("EPITOME_DB", address).output().unwrap());
    assert!(
        !printed.1.contains("s3cret-word") && !printed.2.contains("s3cret-word"),
        "{args:?}: {printed:?}"
    );
    printed
}

#[track_caller]
fn good(place: &TestFolder, address: &str, args: &[&str]) -> String {
    let (code, out, errors) = on(place, address, args);
    assert_eq!(code, Some(0), "{args:?}: {out} {errors}");
    out
}

#[test]
fn every_command_works_on_postgresql() {
    let (place, database) = (TestFolder::new(), server().database());
    let db = address(&database);
    let chat: String = (1..=30)
        .map(|n| format!("{{\"role\": \"user\", \"content\": \"Where is order {n}0071?\"}}\n{{\"role\": \"assistant\", \"content\": \"In Oslo.\"}}\n"))
        .collect();
    std::fs::write(place.path("ann.jsonl"), chat).unwrap();
    let checked = good(&place, &db, &["--check-config"]);
    assert!(checked.contains(&format!("database   {} (EPITOME_DB)", shown(&database))), "{checked}");
    assert_eq!(good(&place, &db, &["import", "ann.jsonl"]), "ann: 60 messages added\n");
    assert!(good(&place, &db, &["list"]).contains("short 1-60"));
    assert!(good(&place, &db, &["context", "ann", "--tokens", "300"]).contains("covers=\"1-60\""));
    assert!(good(&place, &db, &["search", "order 170071"]).contains("ann 33"));
    assert!(good(&place, &db, &["explain", "ann"]).contains("covers   messages 1-60 of 60"));
    assert!(good(&place, &db, &["summarize", "ann"]).contains("Oslo"));
    assert!(good(&place, &db, &["expand", "ann", "--slot", "long"]).lines().count() > 20);
    assert!(good(&place, &db, &["undo", "ann", "--slot", "long"]).contains("undone"));
    assert_eq!(good(&place, &db, &["export", "ann"]).lines().count(), 61);
    assert!(good(&place, &db, &["keys", "create", "--admin"]).starts_with("epk_"));
    assert_eq!(good(&place, &db, &["keys", "list"]).lines().count(), 2);
    assert_eq!(good(&place, &db, &["verify"]), format!("{}: no faults\n", shown(&database)));
    let (code, _, errors) = on(&place, &db, &["backup", "copy.db"]);
    assert!(code == Some(2) && errors.contains("pg_dump") && !place.path("copy.db").exists(), "{errors}");
    assert!(!place.db().exists() && !place.path(".local").exists(), "no file is made beside it");
}

/// A database that was meant otherwise, or is not used yet, is no database where all is well.
#[test]
fn reading_commands_create_no_tables() {
    let (place, database) = (TestFolder::with_sessions(), server().database());
    let db = address(&database);
    let migrate = ["migrate", "--from", "epitome.db", "--to", &db, "--verify-only"];
    for args in [
        &["verify"][..],
        &["list"],
        &["context", "ann"],
        &["search", "order"],
        &["summarize", "ann"],
        &["export", "ann"],
        &["keys", "list"],
        &migrate,
    ] {
        let (code, out, errors) = on(&place, &db, args);
        assert!(matches!(code, Some(1 | 2)) && out.is_empty(), "{args:?}: {code:?} {out} {errors}");
        assert!(
            errors.contains("has no Epitome tables") && errors.lines().count() == 1,
            "{args:?}: {errors}"
        );
    }
    // Nor does an import that has nothing to bring.
    std::fs::write(place.path("empty.jsonl"), "").unwrap();
    assert_eq!(on(&place, &db, &["import", "empty.jsonl"]).0, Some(2));
    assert_eq!(database.psql("SELECT to_regnamespace('epitome') IS NULL").trim(), "t");
}

/// Sends a GET request. Returns the status of the response, if there is one.
fn status(port: u16, path: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

#[test]
fn a_server_waits_for_its_database_and_logs_why() {
    let (place, port, nobody) = (TestFolder::new(), free_port(), free_port());
    let listen = format!("127.0.0.1:{port}");
    let args = ["serve", "--listen", &listen, "--set", "server.patience=10m"];
    let db = format!("postgres://ann:s3cret-word@127.0.0.1:{nobody}/x");
    let mut command = place.epitome(&args);
    command.env("EPITOME_DB", db).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let errors = child.stderr.take().unwrap();
    let printed = std::thread::spawn(move || {
        let lines = BufReader::new(errors).lines().map_while(Result::ok);
        lines.take_while(|line| !line.contains("waiting for the database at postgres://127.0.0.1:")).count()
    });
    let began = Instant::now();
    while status(port, "/healthz") != Some(200) {
        assert!(began.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!((status(port, "/readyz"), status(port, "/v1/sessions")), (Some(503), Some(503)));
    assert!(printed.join().unwrap() < 5, "it says so soon");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_wrong_address_is_reported_in_one_line() {
    let place = TestFolder::new();
    let url = address(&server().database());
    let (base, _) = url.rsplit_once('/').unwrap();
    for (db, printed) in [
        (format!("{base}/nosuch"), "\"nosuch\" does not exist"),
        ("postgres://ann:s3cret-word@127.0.0.1:1/x".to_owned(), "cannot be reached"),
        ("postgres://ann:s3cret-word@127.0.0.1:many/x".to_owned(), "port"),
        ("postgres:ann:s3cret-word@127.0.0.1/x".to_owned(), "postgres://USER:PASSWORD@HOST:PORT/DATABASE"),
    ] {
        let (code, out, errors) = on(&place, &db, &["list", "--set", "server.patience=100ms"]);
        assert!(matches!(code, Some(1 | 2)) && out.is_empty(), "{db}: {code:?} {out}");
        assert!(errors.contains(printed) && errors.lines().count() == 1, "{db}: {errors}");
    }
    let demo = result_of(place.epitome(&["demo", "--db", &url]).output().unwrap());
    assert!(demo.0 == Some(2) && demo.2.contains("its own database file"), "{demo:?}");
}
