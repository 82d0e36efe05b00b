//! The real binary, run as people run it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop, loudly")]

mod bench;
mod bin;
mod commands;
mod importing;
mod settings;
#[cfg(unix)]
mod signals;
mod trouble;

use bin::{Place, told};

#[test]
fn it_tells_its_version() {
    let line = format!("epitome {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(told(Place::new().epitome(&["--version"]).output().unwrap()), (Some(0), line, String::new()));
}

#[test]
fn it_explains_itself() {
    let (code, help, errors) = Place::new().run(&["--help"]);
    assert!(help.contains("Usage: epitome") && help.ends_with('\n'), "{help}");
    assert_eq!((code, errors.as_str()), (Some(0), ""));
}

#[test]
fn a_wrong_argument_is_named_in_one_line() {
    let line = "epitome: unknown argument \"serve\"; `epitome --help` says what there is\n".to_owned();
    assert_eq!(Place::new().run(&["serve"]), (Some(2), String::new(), line));
}

#[test]
fn completions_are_there_for_every_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let (code, out, errors) = Place::new().run(&["completions", shell]);
        assert_eq!((code, errors.as_str()), (Some(0), ""));
        assert!(out.contains("epitome") && out.contains("check-config"), "{shell}");
    }
    let (code, _, errors) = Place::new().run(&["completions", "tcsh"]);
    assert_eq!((code, errors.lines().count()), (Some(2), 1), "{errors}");
}
