//! What can only be tried on PostgreSQL. `on_sqlite.rs` has what can only be tried on a file.

use serde_json::json;

use crate::home::{meddle, postgres};
use crate::running::refused;
use crate::server::Server;

#[test]
fn a_server_without_a_database_fails_before_it_answers() {
    let folder = tempfile::tempdir().unwrap();
    meddle(
        folder.path(),
        "DROP SCHEMA epitome CASCADE; CREATE SCHEMA epitome; CREATE TABLE epitome.notes (words text)",
    );
    let (code, lines) =
        refused(folder.path(), &["--listen", "127.0.0.1:0", "--db", &postgres(folder.path())]);
    assert_eq!(code, Some(1), "{lines}");
    let last = lines.lines().last().unwrap();
    assert!(last.contains("its schema `epitome` contains tables of another program"), "{lines}");
}

#[test]
fn only_the_log_names_the_address_of_a_failing_store() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::on(folder.path(), &["--db", &postgres(folder.path())], &[]);
    assert_eq!(server.client().get("/readyz").ok(), json!({"ready": true, "problems": []}));
    meddle(&server.folder, "ALTER TABLE epitome.workspaces RENAME TO elsewhere");
    let answer = server.client().get("/readyz");
    assert_eq!(answer.status, 503);
    assert_eq!(answer.json(), json!({"ready": false, "problems": ["the store failed"]}));
    assert_eq!(server.client().get("/readyz").status, 503);
    meddle(&server.folder, "ALTER TABLE epitome.elsewhere RENAME TO workspaces");
    assert_eq!(server.client().get("/readyz").status, 200);
    let log = server.log();
    assert_eq!(log.matches("\"message\":\"not ready\"").count(), 1, "once, however often it is asked: {log}");
    assert_eq!(log.matches("\"message\":\"ready again\"").count(), 1, "{log}");
    assert!(!answer.text().contains("127.0.0.1"));
}
