//! Tests of the command line's parser.

use super::*;

fn printed(args: &[&str]) -> String {
    let all = ["epitome"].iter().chain(args).map(OsString::from);
    match parse(all) {
        Ok(CommandLine { action: Action::Print(text), .. }) => text,
        _ => panic!("prints nothing: {args:?}"),
    }
}

fn refused(args: &[&str]) -> Failure {
    let all = ["epitome"].iter().chain(args).map(OsString::from);
    parse(all).err().unwrap_or_else(|| panic!("accepted: {args:?}"))
}

fn accepted(args: &[&str]) -> CommandLine {
    let all = ["epitome"].iter().chain(args).map(OsString::from);
    match parse(all) {
        Ok(line) => line,
        Err(failure) => panic!("{failure:?}"),
    }
}

#[track_caller]
fn check_misused(args: &[&str], problem: &str) {
    let expected = format!("epitome: {problem}; `epitome --help` lists the options\n");
    let failure = refused(args);
    assert_eq!((failure.line(None), failure.code()), (Some(expected), 2));
}

#[track_caller]
fn check_misused_in(command: &str, args: &[&str], problem: &str) {
    let expected = format!("epitome: {problem}; `epitome {command} --help` lists the options\n");
    let failure = refused(&[&[command], args].concat());
    assert_eq!((failure.line(None), failure.code()), (Some(expected), 2));
}

#[track_caller]
fn check_suggests(args: &[&str], problem: &str) {
    let failure = refused(args);
    assert_eq!((failure.line(None), failure.code()), (Some(format!("epitome: {problem}\n")), 2));
}

#[test]
fn the_command_line_is_well_formed() {
    Cli::command().debug_assert();
}

#[test]
fn the_version_is_one_line() {
    assert_eq!(printed(&["--version"]), format!("epitome {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(printed(&["-V"]), printed(&["--version"]));
}

#[test]
fn the_help_lists_every_command() {
    let help = printed(&["--help"]);
    for word in ["Examples:", "--write-config", "--check-config", "EPITOME_DB"] {
        assert!(help.contains(word), "{word} in {help}");
    }
    for command in Cli::command().get_subcommands() {
        assert!(help.contains(&format!("\n  {} ", command.get_name())), "{} in {help}", command.get_name());
    }
    assert_eq!(printed(&["-h"]), help);
}

#[test]
fn every_help_has_examples_and_fits_a_terminal() {
    let commands: Vec<String> =
        Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let keys = ["create", "list", "revoke"].map(|what| printed(&["keys", what, "--help"]));
    let helps =
        commands.iter().map(|name| printed(&[name, "--help"])).chain([printed(&["--help"])]).chain(keys);
    for help in helps {
        assert!(help.contains("Examples:\n"), "{help}");
        let wide = help.lines().find(|line| line.chars().count() > 100);
        assert_eq!(wide, None, "{help}");
    }
}

#[test]
fn an_error_names_the_wrong_argument_and_suggests_another() {
    check_misused(&["rewind"], r#"unknown command "rewind""#);
    check_suggests(&["--db", "context", "lst"], r#"unknown command "lst"; did you mean list?"#);
    check_suggests(&["keys", "crete"], r#"unknown command "crete"; did you mean create?"#);
    check_suggests(
        &["context", "a", "--token", "5"],
        r#"unknown argument "--token"; did you mean --tokens?"#,
    );
    check_suggests(&["list", "--workspce=a"], r#"unknown argument "--workspce"; did you mean --workspace?"#);
    check_suggests(&["keys", "create", "--admn"], r#"unknown argument "--admn"; did you mean --admin?"#);
    check_suggests(&["--write-confg"], r#"unknown argument "--write-confg"; did you mean --write-config?"#);
    check_suggests(
        &["context", "a", "--oversize", "clp"],
        r#"--oversize <HOW>: "clp" is not one of empty, clip; did you mean clip?"#,
    );
    check_suggests(
        &["context", "a", "--format", "opnai"],
        "invalid value 'opnai' for '--format <FORMAT>': no such format; did you mean openai?",
    );
    check_misused_in(
        "completions",
        &["tcsh"],
        r#"<SHELL>: "tcsh" is not one of bash, elvish, fish, powershell, zsh"#,
    );
    check_misused(&["--write-config", "a.toml", "--bad"], r#"unknown argument "--bad""#);
    check_suggests(&["--versions"], r#"unknown argument "--versions"; did you mean --version?"#);
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
        "invalid value 'many' for '--messages <N>': expected a whole number from 1",
    );
    check_misused_in(
        "context",
        &["a", "--format", "xml"],
        "invalid value 'xml' for '--format <FORMAT>': no such format; use one of: text, openai, \
         responses, anthropic, epitome",
    );
    let both = refused(&["--check-config", "list"]).line(None).unwrap();
    assert!(both.starts_with(
        "epitome: --write-config and --check-config are commands themselves; remove the other command"
    ));
}

#[test]
fn an_error_is_one_line_whatever_was_typed() {
    check_misused(&["two\nlines \u{1b}[31m"], r#"unknown command "two\nlines \u{1b}[31m""#);
    let odd = refused(&["bench", "--messages", "two\nlines \u{1b}[31m"]).line(None).unwrap();
    assert_eq!(odd.lines().count(), 1, "{odd}");
    assert!(!odd.contains('\u{1b}'), "{odd}");
}

#[test]
fn flags_for_every_command_may_come_before_or_after_it() {
    for args in [["--db", "a.db", "list", "--json"], ["list", "--json", "--db", "a.db"]] {
        let line = accepted(&args);
        assert_eq!((line.globals.flags.db.as_deref(), line.globals.json), (Some("a.db"), true));
        assert!(matches!(line.action, Action::Command(Command::Stored(Stored::List(_)))));
    }
    let twice = accepted(&["list", "--set", "limits.batch=5", "--set", "encoding=cl100k_base"]);
    assert_eq!(twice.globals.flags.set.len(), 2);
}

#[test]
fn a_settings_file_has_a_default_name() {
    assert!(
        matches!(accepted(&["--write-config"]).action, Action::WriteConfig(path) if path.as_os_str() == "epitome.toml")
    );
    assert!(
        matches!(accepted(&["--write-config", "-"]).action, Action::WriteConfig(path) if path.as_os_str() == "-")
    );
    assert!(matches!(accepted(&["--check-config", "--json"]).action, Action::CheckConfig));
}

#[cfg(unix)]
#[test]
fn an_argument_need_not_be_text() {
    use std::os::unix::ffi::OsStringExt;
    let odd = parse(["epitome".into(), OsString::from_vec(vec![b'a', 0xff])]).err().unwrap();
    assert_eq!((odd.line(None).unwrap().lines().count(), odd.code()), (1, 2));
}
