//! The real binary, run as a user runs it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop, loudly")]

mod bench;
mod bin;
mod commands;
mod condensing;
mod importing;
mod keys;
#[cfg(unix)]
mod migrating;
#[cfg(unix)]
mod postgres;
#[cfg(unix)]
mod replaying;
mod replaying_models;
mod settings;
mod shapes;
#[cfg(unix)]
mod signals;
mod trouble;

use epitome_testkit::{postgres_server, provider};

use bin::{TestFolder, result_of};

#[test]
fn the_version_is_printed() {
    let line = format!("epitome {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(
        result_of(TestFolder::new().epitome(&["--version"]).output().unwrap()),
        (Some(0), line, String::new())
    );
}

#[test]
fn the_help_is_printed() {
    let (code, help, errors) = TestFolder::new().run(&["--help"]);
    assert!(help.contains("Usage: epitome") && help.ends_with('\n'), "{help}");
    assert_eq!((code, errors.as_str()), (Some(0), ""));
}

#[test]
fn a_wrong_argument_is_reported_in_one_line() {
    for (args, line) in [
        (["rewind"].as_slice(), "unknown command \"rewind\"; `epitome --help` lists the options"),
        (&["sumarize"], "unknown command \"sumarize\"; did you mean summarize?"),
        (&["context", "a", "--token", "5"], "unknown argument \"--token\"; did you mean --tokens?"),
        (
            &["context"],
            "the session's name is missing (`epitome list` shows all sessions); `epitome context --help` lists the options",
        ),
    ] {
        assert_eq!(TestFolder::new().run(args), (Some(2), String::new(), format!("epitome: {line}\n")));
    }
}

#[test]
fn help_is_a_flag_and_a_command() {
    let place = TestFolder::new();
    let help = place.run(&["--help"]);
    assert_eq!((place.run(&[]), place.run(&["help"])), (help.clone(), help));
    let own = place.run(&["context", "--help"]);
    assert_eq!((own.0, place.run(&["help", "context"])), (Some(0), own.clone()));
    assert_eq!(place.run(&["help", "contxt"]).0, Some(2));
    let explain = place.run(&["explain", "--help"]).1;
    for outcome in ["kept", "reused", "unused", "dropped", "no_answer", "same_as_before", "declined"] {
        assert!(explain.contains(outcome), "{outcome} in {explain}");
    }
}

#[test]
fn an_invalid_number_is_reported() {
    for (command, number) in
        [("list", "-1"), ("list", "1e9"), ("list", "0"), ("expand", "-1"), ("search", "many")]
    {
        let (code, _, errors) = TestFolder::new().run(&[command, "words", "--limit", number]);
        let (code_alone, _, alone) = TestFolder::new().run(&[command, "--limit", number]);
        let line = format!("invalid value '{number}' for '--limit <N>': expected a whole number from 1");
        assert!(errors.contains(&line) || alone.contains(&line), "{errors}{alone}");
        assert_eq!((code, code_alone), (Some(2), Some(2)));
    }
}

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let (code, out, errors) = TestFolder::new().run(&["completions", shell]);
        assert_eq!((code, errors.as_str()), (Some(0), ""));
        assert!(out.contains("epitome") && out.contains("check-config"), "{shell}");
    }
    let (code, _, errors) = TestFolder::new().run(&["completions", "tcsh"]);
    assert_eq!((code, errors.lines().count()), (Some(2), 1), "{errors}");
}
