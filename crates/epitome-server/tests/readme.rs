//! What the README shows is what comes out.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop, loudly")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn readme() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap()
}

/// The blocks of a language.
fn blocks(language: &str) -> Vec<String> {
    let readme = readme();
    let fence = format!("```{language}\n");
    let blocks: Vec<String> =
        readme.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect();
    assert!(!blocks.is_empty(), "the README has no {language}");
    blocks
}

/// A shell in a folder that stands for the temporary one, with the binary on its path.
fn shell(folder: &Path, command: &str) -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_epitome")).parent().unwrap();
    let path = std::env::join_paths(
        std::iter::once(binary.to_owned()).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let mut run = Command::new("sh");
    run.args(["-c", &format!("{command} 2>&1")]).current_dir(folder).stdin(Stdio::null());
    run.env("PATH", path.unwrap()).env("TMPDIR", folder).env("HOME", folder);
    for name in ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "EPITOME_DB", "EPITOME_CONFIG", "OPENAI_API_KEY"] {
        run.env_remove(name);
    }
    let output = run.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{command}: {said}");
    said
}

/// Every line that is shown is said, in this order and nothing between; `...` stands for any number of lines, and at the
/// end of one for its rest.
#[track_caller]
fn check(command: &str, shown: &[&str], said: &str) {
    let is = |said: &str, shown: &str| match shown.strip_suffix("...") {
        Some(start) => said.starts_with(start),
        None => said == shown,
    };
    let mut said_lines = said.lines();
    let mut skips = false;
    for line in shown {
        if *line == "..." {
            skips = true;
            continue;
        }
        let next = if skips { said_lines.find(|said| is(said, line)) } else { said_lines.next() };
        assert!(next.is_some_and(|next| is(next, line)), "`{command}` does not say {line:?}, but:\n{said}");
        skips = false;
    }
    assert!(skips || said_lines.next().is_none(), "`{command}` says more:\n{said}");
}

/// Types what a block shows, with what was exported before, and tells how many commands that were.
fn typed(folder: &Path, block: &str, set: &mut String) -> usize {
    let mut tried = 0;
    for step in block.split("$ ").skip(1) {
        let (command, shown) = step.split_once('\n').unwrap();
        if command.starts_with("export ") {
            *set = format!("{command}; ");
            continue;
        }
        let said = shell(folder, &format!("{set}{command}"));
        check(command, &shown.lines().collect::<Vec<_>>(), &said);
        tried += 1;
    }
    tried
}

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
