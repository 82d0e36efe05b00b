//! What can only be tried on a file. `on_postgres.rs` has what can only be tried on PostgreSQL.

use std::path::Path;

use serde_json::json;

use crate::running::refused;
use crate::server::Server;

#[test]
fn a_server_without_a_database_fails_before_it_answers() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.db"), "these are somebody's notes\n".repeat(100)).unwrap();
    let (code, lines) = refused(folder.path(), &["--listen", "127.0.0.1:0", "--db", "a.db"]);
    assert_eq!(code, Some(1));
    assert!(lines.lines().last().unwrap().contains("a.db is not an Epitome database"), "{lines}");
}

#[test]
fn only_the_log_names_the_path_of_a_failing_store() {
    let server = Server::with(&["--db", "a.db"], &[]);
    let file = server.folder.join("a.db");
    assert_eq!(server.client().get("/readyz").ok(), json!({"ready": true, "problems": []}));
    sql(&file, "ALTER TABLE workspaces RENAME TO elsewhere");
    let answer = server.client().get("/readyz");
    assert_eq!(answer.status, 503);
    assert_eq!(answer.json(), json!({"ready": false, "problems": ["the store failed"]}));
    assert_eq!(server.client().get("/readyz").status, 503);
    sql(&file, "ALTER TABLE elsewhere RENAME TO workspaces");
    assert_eq!(server.client().get("/readyz").status, 200);
    let log = server.log();
    assert_eq!(log.matches("\"message\":\"not ready\"").count(), 1, "once, however often it is asked: {log}");
    assert_eq!(log.matches("\"message\":\"ready again\"").count(), 1, "{log}");
    assert!(!answer.text().contains("a.db"));
}

/// Does something to a database that nobody should.
pub(crate) fn sql(file: &Path, statements: &str) {
    let code = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=30).executescript(sys.argv[2])";
    let done = std::process::Command::new("python3").args(["-c", code]).arg(file).arg(statements).status();
    assert!(done.unwrap().success());
}
