//! Honcho's published client, unchanged, against this server: programs written for Honcho work here too.
//!
//! The programs are in `tests/honcho/`, each with a few checks that run twice, with the client's plain methods and with its
//! asynchronous ones. `v3_recorded.rs` has what went over the wire when the same client spoke to the original.

use std::path::Path;
use std::process::Command;

use crate::python::installed;
use crate::server::{Server, command, db};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/honcho");

/// Runs a program against a new server. All of its checks must pass.
#[track_caller]
fn holds(program: &str) {
    holds_on(&Server::start(), program, &[]);
}

/// Runs a program against this server, with further arguments.
#[track_caller]
fn holds_on(server: &Server, program: &str, more: &[&str]) {
    runs(server, &Path::new(FOLDER).join(program), more);
}

/// Runs a program, and returns what it printed.
#[track_caller]
fn runs(server: &Server, program: &Path, more: &[&str]) -> String {
    let folder = Path::new(FOLDER);
    let python =
        installed("honcho", &folder.join("requirements.txt"), Path::new(env!("CARGO_TARGET_TMPDIR")))
            .join("bin/python");
    let mut run = Command::new(python);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("HONCHO_")) {
        run.env_remove(name);
    }
    let said = run
        .arg(program)
        .arg(format!("http://{}", server.address))
        .args(more)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // No HTTP proxy between the client and the server.
        .env("NO_PROXY", "127.0.0.1")
        .output()
        .unwrap();
    let (out, errors) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success(), "{out}\n{errors}\n{}", server.log());
    out.into_owned()
}

#[test]
fn workspaces_are_created_listed_and_deleted() {
    holds("workspaces.py");
}

#[test]
fn peers_have_their_configuration_and_find_their_messages() {
    holds("peers.py");
}

#[test]
fn sessions_have_their_own_metadata_and_members() {
    holds("sessions.py");
}

#[test]
fn messages_are_returned_as_sent_and_found_by_filters() {
    holds("messages.py");
}

#[test]
fn a_text_file_becomes_messages() {
    holds("files.py");
}

#[test]
fn a_context_has_a_summary_and_every_message_after_it() {
    holds("contexts.py");
}

#[test]
fn both_summaries_exist_when_they_are_due() {
    holds("summaries.py");
}

#[test]
fn search_finds_words_in_session_workspace_and_peer() {
    holds("searches.py");
}

#[test]
fn a_clone_has_the_same_token_counts_and_workspace() {
    holds("clones.py");
}

#[test]
fn errors_and_missing_features_are_reported_in_honchos_format() {
    holds("refusals.py");
}

#[test]
fn unusual_contents_are_stored_unchanged() {
    holds("odd.py");
}

#[test]
fn concurrent_writers_lose_no_message() {
    holds("crowds.py");
}

#[test]
fn an_epitome_key_allows_its_workspace_to_the_client() {
    let server = Server::with(&["--require-keys", "always"], &[]);
    let made = |flags: &[&str]| {
        let mut run = command(&server.folder);
        let done = run.args(["keys", "create", "--db", &db(&server.folder)]).args(flags).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    };
    let key = |rights| made(&["--workspace", "w", "--rights", rights]);
    holds_on(&server, "keys.py", &[&key("write"), &key("read"), &made(&["--admin"])]);
}

#[test]
fn a_token_signed_by_honcho_allows_the_same_as_there() {
    let secret = "known to both";
    let flags = ["--require-keys", "always", "--set", "server.jwt_secret_env=SHARED"];
    let server = Server::with(&flags, &[("SHARED", secret)]);
    holds_on(&server, "tokens.py", &[secret]);
}

/// Runs the program in docs/honcho.md, with another address.
#[test]
fn the_program_in_the_documentation_works() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/honcho.md");
    let text = std::fs::read_to_string(page).unwrap();
    let shown = text.split("```python\n").nth(1).and_then(|rest| rest.split("```").next());
    let shown = shown.expect("docs/honcho.md shows a program");
    assert!(shown.contains("http://127.0.0.1:7878"));
    let server = Server::start();
    let program = server.folder.join("shown.py");
    std::fs::write(&program, shown.replace("127.0.0.1:7878", &server.address)).unwrap();
    let said = runs(&server, &program, &[]);
    let answer = "{'role': 'assistant', 'name': 'bot', 'content': 'It left Leipzig at 14:02.'}";
    assert!(said.contains(answer), "{said}");
}
