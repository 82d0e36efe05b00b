//! Tests of the command line's parser.

use super::*;

fn said(args: &[&str]) -> String {
    let all = ["epitome"].iter().chain(args).map(OsString::from);
    match parse(all) {
        Ok(Asked { what: What::Told(text), .. }) => text,
        _ => panic!("not told: {args:?}"),
    }
}

fn refused(args: &[&str]) -> Failure {
    let all = ["epitome"].iter().chain(args).map(OsString::from);
    parse(all).err().unwrap_or_else(|| panic!("understood: {args:?}"))
}

fn job(args: &[&str]) -> Asked {
    let all = ["epitome"].iter().chain(args).map(OsString::from);
    match parse(all) {
        Ok(job) => job,
        Err(failure) => panic!("{failure:?}"),
    }
}

#[track_caller]
fn check_misused(args: &[&str], problem: &str) {
    let expected = format!("epitome: {problem}; `epitome --help` says what there is\n");
    let failure = refused(args);
    assert_eq!((failure.line(None), failure.code()), (Some(expected), 2));
}

#[track_caller]
fn check_misused_in(command: &str, args: &[&str], problem: &str) {
    let expected = format!("epitome: {problem}; `epitome {command} --help` says what there is\n");
    let failure = refused(&[&[command], args].concat());
    assert_eq!((failure.line(None), failure.code()), (Some(expected), 2));
}

#[test]
fn the_command_line_is_well_formed() {
    Cli::command().debug_assert();
}

#[test]
fn the_version_is_one_line() {
    assert_eq!(said(&["--version"]), format!("epitome {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(said(&["-V"]), said(&["--version"]));
}

#[test]
fn the_help_says_what_there_is_and_what_there_is_not() {
    let help = said(&["--help"]);
    for word in ["Examples:", "--write-config", "--check-config", "EPITOME_DB"] {
        assert!(help.contains(word), "{word} in {help}");
    }
    for command in Cli::command().get_subcommands() {
        assert!(help.contains(&format!("\n  {} ", command.get_name())), "{} in {help}", command.get_name());
    }
    assert_eq!(said(&["-h"]), help);
}

#[test]
fn every_help_has_examples_and_fits_a_terminal() {
    let commands: Vec<String> =
        Cli::command().get_subcommands().map(|known| known.get_name().to_owned()).collect();
    let keys = ["create", "list", "revoke"].map(|what| said(&["keys", what, "--help"]));
    let helps = commands.iter().map(|name| said(&[name, "--help"])).chain([said(&["--help"])]).chain(keys);
    for help in helps {
        assert!(help.contains("Examples:\n"), "{help}");
        let wide = help.lines().find(|line| line.chars().count() > 100);
        assert_eq!(wide, None, "{help}");
    }
}

#[test]
fn what_is_not_understood_is_named() {
    check_misused(&["rewind"], r#"unknown command "rewind""#);
    let near = refused(&["--db", "context", "lst"]).line(None).unwrap();
    assert_eq!(near, "epitome: unknown command \"lst\"; did you mean list?\n");
    check_misused(&["--write-config", "a.toml", "--bad"], r#"unknown argument "--bad""#);
    check_misused(&["--versions"], r#"unknown argument "--versions""#);
    check_misused_in("bench", &["--slow"], r#"unknown argument "--slow""#);
    check_misused_in("bench", &["now"], r#"unknown argument "now""#);
    check_misused(&["", "--help"], r#"unknown command """#);
    check_misused(&["--json"], "missing command");
    check_misused_in("bench", &["--quick", "--full"], "the argument '--quick' cannot be used with '--full'");
    check_misused_in(
        "context",
        &["a", "--session", "b"],
        "the argument '[SESSION]' cannot be used with '--session <NAME>'",
    );
    check_misused_in(
        "context",
        &["a", "--fill", "--steady"],
        "the argument '--fill' cannot be used with '--steady'",
    );
    check_misused_in(
        "bench",
        &["--messages", "many"],
        "invalid value 'many' for '--messages <N>': give a whole number from 1",
    );
    check_misused_in(
        "context",
        &["a", "--format", "xml"],
        "invalid value 'xml' for '--format <FORMAT>': no such format; there are text, openai, responses, \
         anthropic and epitome",
    );
    let both = refused(&["--check-config", "list"]).line(None).unwrap();
    assert!(both.starts_with(
        "epitome: --write-config and --check-config are commands themselves; remove the other command"
    ));
}

#[test]
fn a_misuse_is_one_line_whatever_was_typed() {
    check_misused(&["two\nlines \u{1b}[31m"], r#"unknown command "two\nlines \u{1b}[31m""#);
    let odd = refused(&["bench", "--messages", "two\nlines \u{1b}[31m"]).line(None).unwrap();
    assert_eq!(odd.lines().count(), 1, "{odd}");
    assert!(!odd.contains('\u{1b}'), "{odd}");
}

#[test]
fn flags_for_every_command_stand_before_or_after_it() {
    for args in [["--db", "a.db", "list", "--json"], ["list", "--json", "--db", "a.db"]] {
        let job = job(&args);
        assert_eq!((job.globals.given.db.as_deref(), job.globals.json), (Some("a.db"), true));
        assert!(matches!(job.what, What::Command(Command::Stored(Stored::List(_)))));
    }
    let twice = job(&["list", "--set", "limits.batch=5", "--set", "encoding=cl100k_base"]);
    assert_eq!(twice.globals.given.set.len(), 2);
}

#[test]
fn a_settings_file_has_a_usual_name() {
    assert!(
        matches!(job(&["--write-config"]).what, What::WriteConfig(path) if path.as_os_str() == "epitome.toml")
    );
    assert!(matches!(job(&["--write-config", "-"]).what, What::WriteConfig(path) if path.as_os_str() == "-"));
    assert!(matches!(job(&["--check-config", "--json"]).what, What::CheckConfig));
}

#[cfg(unix)]
#[test]
fn an_argument_need_not_be_text() {
    use std::os::unix::ffi::OsStringExt;
    let odd = parse(["epitome".into(), OsString::from_vec(vec![b'a', 0xff])]).err().unwrap();
    assert_eq!((odd.line(None).unwrap().lines().count(), odd.code()), (1, 2));
}
