//! What the command line asks for, and what it is answered.
//!
//! Arguments in, words and an exit code out. Answers are not printed here, so every one can be tried without a
//! process.

use std::ffi::OsString;

use clap::error::{ContextKind, ErrorKind};
use clap::{Parser, Subcommand};

mod bench;

const TODAY: &str = "\
Examples:
  epitome bench            a minute of measuring, on the disk of the temporary folder
  epitome bench --quick --dir . --json

There is today: sessions that summarize themselves, on SQLite, as a Rust library: use the crate
`epitome`.

There is not yet: models over a network, the HTTP server, the proxy, and every other command (demo,
serve, condense, context and the others).";

/// Keeps long agent conversations inside a model's window without losing the thread.
#[derive(Parser)]
#[command(name = "epitome", version, after_help = TODAY, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// The numbers in the README, on this machine
    Bench(bench::Args),
}

/// What goes where. Texts end their own lines; an empty one is not printed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: u8,
}

impl Answer {
    pub(crate) fn good(stdout: String) -> Self {
        Self { stdout, stderr: String::new(), code: 0 }
    }

    /// One line, and exit code 2: the command was not understood and nothing was done.
    pub(crate) fn misused(problem: &str) -> Self {
        let stderr = format!("epitome: {}; `epitome --help` says what there is\n", one_line(problem));
        Self { stdout: String::new(), stderr, code: 2 }
    }

    /// One line, and exit code 1: it was understood, and did not work.
    pub(crate) fn failed(problem: &str) -> Self {
        Self { stdout: String::new(), stderr: format!("epitome: {}\n", one_line(problem)), code: 1 }
    }
}

/// What the arguments, the program's name first, ask for; or the answer where that is known already.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, Answer> {
    Cli::try_parse_from(args).map(|cli| cli.command).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Answer::good(error.render().to_string()),
        _ => Answer::misused(&problem(&error)),
    })
}

/// Does it. `watched` where somebody sees standard error as it is written.
pub(crate) async fn run(command: Command, watched: bool) -> Answer {
    match command {
        Command::Bench(args) => bench::run(&args, watched).await,
    }
}

fn problem(error: &clap::Error) -> String {
    let given = |kind| error.get(kind).map(ToString::to_string);
    match error.kind() {
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand => {
            let argument = given(ContextKind::InvalidArg).or_else(|| given(ContextKind::InvalidSubcommand));
            format!("unknown argument {:?}", argument.unwrap_or_default())
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            "no argument given".to_owned()
        }
        _ => {
            let rendered = error.render().to_string();
            let first = rendered.split("\n\n").next().unwrap_or_default();
            first.strip_prefix("error: ").unwrap_or(first).to_owned()
        }
    }
}

/// On one line, whatever was typed.
fn one_line(text: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ").chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(args: &[&str]) -> Answer {
        let all = ["epitome"].iter().chain(args).map(OsString::from);
        parse(all).err().expect("a command was understood where none should be")
    }

    #[track_caller]
    fn check_misused(args: &[&str], problem: &str) {
        let expected = format!("epitome: {problem}; `epitome --help` says what there is\n");
        assert_eq!(ask(args), Answer { stdout: String::new(), stderr: expected, code: 2 });
    }

    #[test]
    fn the_version_is_one_line() {
        let line = format!("epitome {}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!(ask(&["--version"]), Answer::good(line));
        assert_eq!(ask(&["-V"]), ask(&["--version"]));
    }

    #[test]
    fn the_help_says_what_there_is_and_what_there_is_not() {
        let Answer { stdout, stderr, code } = ask(&["--help"]);
        assert!(stdout.contains("There is today") && stdout.contains("There is not yet"), "{stdout}");
        assert!(stdout.contains("Examples:") && stdout.contains("bench"), "{stdout}");
        assert!(stdout.ends_with(".\n"), "{stdout}");
        assert_eq!((stderr.as_str(), code), ("", 0));
        assert_eq!(ask(&["-h"]), ask(&["--help"]));
    }

    #[test]
    fn every_help_has_examples_and_fits_a_terminal() {
        for help in [ask(&["--help"]), ask(&["bench", "--help"])] {
            assert!(help.stdout.contains("Examples:\n"), "{}", help.stdout);
            let wide = help.stdout.lines().find(|line| line.chars().count() > 100);
            assert_eq!(wide, None);
        }
    }

    #[test]
    fn what_is_not_understood_is_named() {
        check_misused(&["serve"], r#"unknown argument "serve""#);
        check_misused(&["--versions"], r#"unknown argument "--versions""#);
        check_misused(&["bench", "--slow"], r#"unknown argument "--slow""#);
        check_misused(&["bench", "now"], r#"unknown argument "now""#);
        check_misused(&["", "--help"], r#"unknown argument """#);
        check_misused(&[], "no argument given");
        check_misused(&["bench", "--quick", "--full"], "the argument '--quick' cannot be used with '--full'");
        check_misused(
            &["bench", "--messages", "many"],
            "invalid value 'many' for '--messages <N>': invalid digit found in string",
        );
    }

    #[test]
    fn a_misuse_is_one_line_whatever_was_typed() {
        check_misused(&["two\nlines \u{1b}[31m"], r#"unknown argument "two\nlines \u{1b}[31m""#);
        let odd = ask(&["bench", "--messages", "two\nlines \u{1b}[31m"]);
        assert_eq!((odd.stderr.lines().count(), odd.code), (1, 2), "{}", odd.stderr);
        assert!(!odd.stderr.contains('\u{1b}'), "{}", odd.stderr);
    }

    #[cfg(unix)]
    #[test]
    fn an_argument_need_not_be_text() {
        use std::os::unix::ffi::OsStringExt;
        let odd = parse(["epitome".into(), OsString::from_vec(vec![b'a', 0xff])]).err().unwrap();
        assert_eq!((odd.stderr.lines().count(), odd.code), (1, 2), "{}", odd.stderr);
    }
}
