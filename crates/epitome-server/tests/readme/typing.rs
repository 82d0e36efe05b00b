//! Types the commands that the README and docs/cli.md show, and compares the output.

#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on should stop, loudly"
)]

use std::path::Path;
use std::process::{Command, Stdio};

/// The pages whose commands are typed, in reading order.
const PAGES: [&str; 2] = ["README.md", "docs/cli.md"];

/// Returns the code blocks of a language, page by page.
pub fn blocks(language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let blocks: Vec<String> = PAGES
        .iter()
        .map(|page| Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page))
        .flat_map(|page| {
            let text = std::fs::read_to_string(page).unwrap();
            let code = |rest: &str| rest.split("```").next().unwrap().to_owned();
            text.split(&fence).skip(1).map(code).collect::<Vec<_>>()
        })
        .collect();
    assert!(!blocks.is_empty(), "no page has {language}");
    blocks
}

/// Runs a command in a shell, with the binary on its path and the folder as temporary and home folder. Returns its output.
pub fn shell(folder: &Path, command: &str) -> String {
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
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{command}: {printed}");
    printed
}

/// Checks that the output has exactly the lines that are shown, in this order. A line `...` matches any number of lines;
/// at the end of a line, `...` matches its rest.
#[track_caller]
fn check(command: &str, shown: &[&str], printed: &str) {
    let matches = |printed: &str, shown: &str| match shown.strip_suffix("...") {
        Some(start) => printed.starts_with(start),
        None => printed == shown,
    };
    let mut lines = printed.lines();
    let mut skips = false;
    for line in shown {
        if *line == "..." {
            skips = true;
            continue;
        }
        let next = if skips { lines.find(|printed| matches(printed, line)) } else { lines.next() };
        assert!(
            next.is_some_and(|next| matches(next, line)),
            "`{command}` does not print {line:?}, but:\n{printed}"
        );
        skips = false;
    }
    assert!(skips || lines.next().is_none(), "`{command}` prints more:\n{printed}");
}

/// Types the commands of a block, with the variables exported before. Returns the number of commands.
pub fn typed(folder: &Path, block: &str, exports: &mut String) -> usize {
    let mut tried = 0;
    for step in block.split("$ ").skip(1) {
        let (command, shown) = step.split_once('\n').unwrap();
        if command.starts_with("export ") {
            *exports = format!("{command}; ");
            continue;
        }
        let printed = shell(folder, &format!("{exports}{command}"));
        check(command, &shown.lines().collect::<Vec<_>>(), &printed);
        tried += 1;
    }
    tried
}
