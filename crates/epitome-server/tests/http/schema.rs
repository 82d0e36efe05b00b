//! Whether the server does what its description says, asked by schemathesis: with right data and wrong, one request
//! and many in a row, without keys and with them.
//!
//! What it is told is in `tests/schema/`.

use std::fs;
use std::path::Path;
use std::process::Command;

use epitome::key::{NewKey, Rights};
use epitome_testkit::both_stores::on_postgres;
use epitome_testkit::budget::cases;

use crate::home::edges;
use crate::python::installed;
use crate::server::{Server, open};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/schema");

/// All but the thousands of requests with something at the edge of what is described in every place: no key changes what
/// becomes of those, and hardly one of them reaches a store.
const DRAWN: [&str; 2] = ["--phases", "examples,fuzzing,stateful"];

#[test]
fn without_keys_the_server_matches_its_description() {
    let server = serve(tempfile::tempdir().unwrap(), "never");
    ask(&server, None, 20, if edges() { &[] } else { &DRAWN });
}

#[test]
fn with_keys_it_matches_for_the_operator() {
    let (server, secrets) = keyed();
    ask(&server, Some(&secrets.admin), few(), &DRAWN);
}

#[test]
fn with_keys_it_matches_for_one_workspace() {
    let (server, secrets) = keyed();
    let flags = [&DRAWN[..], &["--exclude-path-regex", "^/(v1/keys|metrics)"]].concat();
    ask(&server, Some(&secrets.writer), few(), &flags);
}

/// On PostgreSQL a quarter of what SQLite has.
fn few() -> u32 {
    if on_postgres() { 2 } else { 8 }
}

struct Secrets {
    admin: String,
    writer: String,
}

/// A server that wants keys, and two of them.
fn keyed() -> (Server, Secrets) {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let secrets = runtime.block_on(async {
        let engine = open(folder.path()).await;
        let make = async |workspace: Option<&str>, rights| {
            let workspace = workspace.map(str::to_owned);
            let new = NewKey { workspace, rights, label: "schema".to_owned(), expires: None };
            engine.keys().create(new).await.unwrap().secret
        };
        let admin = make(None, Rights::Admin).await;
        let writer = make(Some("default"), Rights::Write).await;
        engine.close().await;
        Secrets { admin, writer }
    });
    (serve(folder, "always"), secrets)
}

/// A server that knows a few models by name, and wants keys `always` or `never`.
fn serve(folder: tempfile::TempDir, keys: &str) -> Server {
    let models = "[models.second]\nprovider = \"local\"\n[models.third]\nprovider = \"local\"\n";
    fs::write(folder.path().join("epitome.toml"), models).unwrap();
    Server::in_folder(folder, &["--config", "epitome.toml", "--require-keys", keys], &[])
}

/// Runs all checks with so many drawn requests for each route, and says everything they found.
fn ask(server: &Server, key: Option<&str>, examples: u32, flags: &[&str]) {
    let mut told = fs::read_to_string(Path::new(FOLDER).join("schemathesis.toml")).unwrap();
    let place = installed(
        "schemathesis",
        &Path::new(FOLDER).join("requirements.txt"),
        Path::new(env!("CARGO_TARGET_TMPDIR")),
    );
    let mut run = Command::new(place.join("bin/schemathesis"));
    if let Some(key) = key {
        told.push_str("\n[auth.openapi.key]\nbearer = \"${CHECK_SCHEMA_KEY}\"\n");
        run.env("CHECK_SCHEMA_KEY", key);
    }
    let config = server.folder.join("schemathesis.toml");
    fs::write(&config, told).unwrap();
    run.current_dir(FOLDER).arg("--config-file").arg(config).arg("run");
    run.arg(format!("http://{}/openapi.json", server.address)).args(["--no-color"]).args(flags);
    run.args(["--max-examples", &cases(examples).to_string()]);
    let said = run
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("HYPOTHESIS_STORAGE_DIRECTORY", &server.folder)
        .output()
        .unwrap();
    let (out, errors) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success(), "{out}\n{errors}\n{}", server.log());
}
