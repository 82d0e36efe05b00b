//! What the README shows is what comes out.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop, loudly")]

#[path = "readme/typing.rs"]
mod typing;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use typing::{blocks, shell, typed};

#[test]
fn the_tour_is_true() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().display().to_string();
    shell(folder.path(), "epitome demo");
    let mut set = String::new();
    let mut tried = 0;
    for block in blocks("console").into_iter().filter(|block| !block.contains("$API")) {
        let block = block.replace("/tmp/", &format!("{here}/"));
        tried += typed(folder.path(), &block, &mut set);
    }
    assert!(tried >= 9, "{tried}");
}

/// Its commands go to a server that is started as it says, on a port that is free here.
#[test]
fn the_quick_start_is_true() {
    let folder = tempfile::tempdir().unwrap();
    let serve = blocks("sh").into_iter().find(|block| block.contains("epitome serve")).unwrap();
    let started: Vec<&str> = serve.split('#').next().unwrap().split_whitespace().collect();
    assert_eq!(started, ["epitome", "serve"]);
    let server = Server::start(folder.path());
    let mut set = String::new();
    let mut tried = 0;
    for block in blocks("console").into_iter().filter(|block| block.contains("$API")) {
        let block = block.replace("localhost:7878", &server.address);
        tried += typed(folder.path(), &block, &mut set);
        // Whoever types takes longer than a summary does.
        server.rest();
    }
    assert!(tried >= 6, "{tried}");
}

/// `epitome serve`, until dropped.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(folder: &Path) -> Self {
        let mut run = Command::new(env!("CARGO_BIN_EXE_epitome"));
        run.args(["serve", "--listen", "127.0.0.1:0", "--db", "a.db"])
            .current_dir(folder)
            .env("HOME", folder);
        let mut child = run.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let address = said.trim().strip_prefix("listening on http://").unwrap().to_owned();
        Self { child, address }
    }

    /// Waits until nothing is due.
    fn rest(&self) {
        for _ in 0..600 {
            let queue = shell(Path::new("."), &format!("curl -s {}/v1/queue", self.address));
            if queue.starts_with("{\"due\":0,\"working\":0,") {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("summaries are not written");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn its_settings_are_read() {
    let folder = tempfile::tempdir().unwrap();
    for block in blocks("toml") {
        std::fs::write(folder.path().join("epitome.toml"), block).unwrap();
        // Without the key: whoever needs it is told, and whoever does not is not kept from working.
        std::fs::write(folder.path().join("a.jsonl"), "{\"role\":\"user\",\"content\":\"Hello.\"}\n")
            .unwrap();
        let said = shell(folder.path(), "epitome import a.jsonl --db a.db");
        assert_eq!(said, "a: 1 message added\n");
        let said = shell(folder.path(), "epitome --check-config --db a.db || true");
        assert!(said.contains("the environment has no OPENAI_API_KEY"), "{said}");
    }
}

/// The first block of commands is what is typed first of all.
#[test]
fn its_two_commands_are_there() {
    let commands = blocks("sh").remove(0);
    assert!(commands.starts_with("cargo run -- demo ") && commands.contains("\n./check "), "{commands}");
}
