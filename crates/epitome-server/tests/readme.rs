//! Types what the README shows, and compares the output.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop, loudly")]

#[path = "readme/typing.rs"]
mod typing;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use typing::{blocks, shell, typed};

#[test]
fn the_tour_prints_what_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().display().to_string();
    shell(folder.path(), "epitome demo");
    let mut exports = String::new();
    let mut tried = 0;
    for block in blocks("console").into_iter().filter(|block| !block.contains("$API")) {
        let block = block.replace("/tmp/", &format!("{here}/"));
        tried += typed(folder.path(), &block, &mut exports);
    }
    assert!(tried >= 9, "{tried}");
}

/// The commands go to a server that is started as the README says, but on a free port.
#[test]
fn the_quick_start_prints_what_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let serve = blocks("sh").into_iter().find(|block| block.contains("-- serve")).unwrap();
    let started: Vec<&str> = serve.split('#').next().unwrap().split_whitespace().collect();
    assert_eq!(started, ["cargo", "run", "--", "serve"]);
    let server = Server::start(folder.path());
    let mut exports = String::new();
    let mut tried = 0;
    for block in blocks("console").into_iter().filter(|block| block.contains("$API")) {
        let block = block.replace("localhost:7878", &server.address);
        tried += typed(folder.path(), &block, &mut exports);
        // A person who types takes longer than a summary does.
        server.rest();
    }
    assert!(tried >= 6, "{tried}");
}

/// The chatbot is started as it is, but for the port. Its model is the placeholder.
#[test]
fn the_chatbot_runs_as_it_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let program =
        blocks("python").into_iter().find(|program| program.contains("/context?tokens=8000")).unwrap();
    let server = Server::start(folder.path());
    std::fs::write(folder.path().join("chat.py"), program.replace("127.0.0.1:7878", &server.address))
        .unwrap();
    let mut run = Command::new("python3");
    run.arg("chat.py").current_dir(folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut chat = run.spawn().unwrap();
    // An empty line ends it.
    chat.stdin.take().unwrap().write_all(b"Where is order 10071?\nAnd when will it arrive?\n\n").unwrap();
    let output = chat.wait_with_output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}");
    assert_eq!(printed, "> I received 1 messages.\n> I received 3 messages.\n> ");
    let context =
        shell(folder.path(), &format!("curl -s '{}/v1/sessions/bob/messages?limit=10'", server.address));
    assert_eq!(context.matches("\"seq\":").count(), 4, "{context}");
}

/// Short enough to be read in five minutes, with a glossary at the end.
#[test]
fn the_readme_is_short() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (text, glossary) = page.split_once("\n## Glossary\n").unwrap();
    let words = text.split_whitespace().count();
    assert!(words <= 1_200, "{words} words");
    assert!(!glossary.contains("\n## "), "the glossary is the last section");
    let terms = glossary.lines().filter(|line| line.starts_with("| ")).count() - 1;
    assert!((1..=25).contains(&terms), "{terms} terms");
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
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").unwrap().to_owned();
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
        panic!("the summaries are not written");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_settings_shown_are_valid() {
    let folder = tempfile::tempdir().unwrap();
    for block in blocks("toml") {
        std::fs::write(folder.path().join("epitome.toml"), block).unwrap();
        // The environment has no key: `--check-config` reports it, and commands that need none work.
        std::fs::write(folder.path().join("a.jsonl"), "{\"role\":\"user\",\"content\":\"Hello.\"}\n")
            .unwrap();
        let printed = shell(folder.path(), "epitome import a.jsonl --db a.db");
        assert_eq!(printed, "a: 1 message added\n");
        let printed = shell(folder.path(), "epitome --check-config --db a.db || true");
        assert!(printed.contains("environment variable OPENAI_API_KEY is not set"), "{printed}");
    }
}

/// A reader types the first block of commands first.
#[test]
fn the_readme_begins_with_its_two_commands() {
    let commands = blocks("sh").remove(0);
    assert!(commands.starts_with("cargo run -- demo ") && commands.contains("\n./check "), "{commands}");
}
