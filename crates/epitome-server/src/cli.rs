//! What the command line asks for, and what it is answered.
//!
//! Arguments in, words and an exit code out. Nothing is printed here, so every answer can be tried
//! without a process.

use std::ffi::OsString;

const HELP: &str = concat!(
    "epitome ",
    env!("CARGO_PKG_VERSION"),
    ": keeps long agent conversations inside a model's window without losing the thread

Usage: epitome --help | --version

  -h, --help      what you are reading
  -V, --version   the version

There is today: the decision core, as a Rust library. It counts tokens, says when a summary is due
and where a log may be cut, plans summaries, and lays out contexts that fit a budget. Use the crate
`epitome`, which passes on `epitome-core`.

There is not yet: a store, a model to write summaries, the HTTP server, the proxy, and every command
(demo, serve, condense, context and the others).
"
);

const VERSION: &str = concat!("epitome ", env!("CARGO_PKG_VERSION"), "\n");

/// What goes where. Texts end their own lines; an empty one is not printed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: u8,
}

impl Answer {
    fn good(text: &str) -> Self {
        Self { stdout: text.to_owned(), stderr: String::new(), code: 0 }
    }

    /// One line, and exit code 2: the command was not understood and nothing was done.
    fn misused(problem: &str) -> Self {
        let stderr = format!("epitome: {problem}; `epitome --help` says what there is\n");
        Self { stdout: String::new(), stderr, code: 2 }
    }
}

/// The answer to the arguments after the program's name.
pub(crate) fn answer(args: impl IntoIterator<Item = OsString>) -> Answer {
    let mut args = args.into_iter();
    let Some(first) = args.next() else { return Answer::misused("no argument given") };
    let text = match first.to_str() {
        Some("-h" | "--help") => HELP,
        Some("-V" | "--version") => VERSION,
        _ => return Answer::misused(&format!("unknown argument {}", quoted(&first))),
    };
    match args.next() {
        None => Answer::good(text),
        Some(extra) => Answer::misused(&format!("argument {} is one too many", quoted(&extra))),
    }
}

/// In quotes and on one line, whatever was typed.
fn quoted(arg: &OsString) -> String {
    format!("{:?}", arg.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(args: &[&str]) -> Answer {
        answer(args.iter().map(OsString::from))
    }

    #[track_caller]
    fn check_misused(args: &[&str], problem: &str) {
        let expected = format!("epitome: {problem}; `epitome --help` says what there is\n");
        assert_eq!(ask(args), Answer { stdout: String::new(), stderr: expected, code: 2 });
    }

    #[test]
    fn the_version_is_one_line() {
        let line = format!("epitome {}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!(ask(&["--version"]), Answer { stdout: line, stderr: String::new(), code: 0 });
        assert_eq!(ask(&["-V"]), ask(&["--version"]));
    }

    #[test]
    fn the_help_says_what_there_is_and_what_there_is_not() {
        let Answer { stdout, stderr, code } = ask(&["--help"]);
        assert!(stdout.contains("There is today") && stdout.contains("There is not yet"), "{stdout}");
        assert!(
            stdout.lines().all(|line| line.chars().count() <= 100) && stdout.ends_with(".\n"),
            "{stdout}"
        );
        assert_eq!((stderr.as_str(), code), ("", 0));
        assert_eq!(ask(&["-h"]), ask(&["--help"]));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        check_misused(&["serve"], r#"unknown argument "serve""#);
        check_misused(&["--versions"], r#"unknown argument "--versions""#);
        check_misused(&["", "--help"], r#"unknown argument """#);
        check_misused(&["--help", "me"], r#"argument "me" is one too many"#);
        check_misused(&[], "no argument given");
    }

    #[test]
    fn a_misuse_is_one_line_whatever_was_typed() {
        check_misused(&["two\nlines \u{1b}[31m"], r#"unknown argument "two\nlines \u{1b}[31m""#);
    }

    #[cfg(unix)]
    #[test]
    fn an_argument_need_not_be_text() {
        use std::os::unix::ffi::OsStringExt;
        let odd = answer([OsString::from_vec(vec![b'a', 0xff])]);
        assert_eq!((odd.stderr.lines().count(), odd.code), (1, 2));
    }
}
