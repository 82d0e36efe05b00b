//! Turns each error of clap into one line, and suggests the name that the user probably meant.

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

use crate::failure::Failure;
use crate::suggest::similar_names;

/// Converts an error of clap. `command` is the name of the subcommand, if clap recognised a subcommand.
pub(super) fn failure(error: &Error, mut cli: Command, command: Option<&str>) -> Failure {
    // Adds the flags of every command to each subcommand.
    cli.build();
    let words = command.into_iter().flat_map(str::split_whitespace);
    let cli = words.fold(&cli, |cli, name| cli.find_subcommand(name).unwrap_or(cli));
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = rejected(error);
            let commands = cli.get_subcommands().map(Command::get_name);
            suggest(format!("unknown command {word:?}"), &similar_names(&word, commands, 3))
        }
        ErrorKind::UnknownArgument => unknown_argument(&rejected(error), cli),
        ErrorKind::InvalidValue => invalid_value(error),
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Failure::Misused("missing command".to_owned())
        }
        _ => match first_paragraph(error) {
            // A message that ends with a question comes from the flag's own parser and already suggests a value.
            problem if problem.ends_with('?') => Failure::Setting(problem),
            problem => Failure::Misused(problem),
        },
    }
}

fn unknown_argument(word: &str, cli: &Command) -> Failure {
    let problem = format!("unknown argument {word:?}");
    let Some(flag) = word.strip_prefix("--") else {
        let commands = cli.get_subcommands().map(Command::get_name);
        return suggest(problem, &similar_names(word, commands, 3));
    };
    let flag = flag.split('=').next().unwrap_or_default();
    let visible = cli.get_arguments().filter(|flag| !flag.is_hide_set());
    let flags: Vec<&str> = visible.filter_map(clap::Arg::get_long).collect();
    let similar: Vec<String> = similar_names(flag, flags, 3).iter().map(|flag| format!("--{flag}")).collect();
    suggest(problem, &similar)
}

/// Describes a value that is not one of the words that the flag accepts.
fn invalid_value(error: &Error) -> Failure {
    let text = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let (flag, value) = (text(ContextKind::InvalidArg), text(ContextKind::InvalidValue));
    let words = match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(words)) if !value.is_empty() => words,
        _ => return Failure::Misused(first_paragraph(error)),
    };
    let problem = format!("{flag}: {value:?} is not one of {}", words.join(", "));
    suggest(problem, &similar_names(&value, words.iter().map(String::as_str), 3))
}

/// Adds the suggestions to an error. With a suggestion, the error does not mention `--help`.
fn suggest(problem: String, similar: &[impl AsRef<str>]) -> Failure {
    let similar: Vec<&str> = similar.iter().map(AsRef::as_ref).collect();
    match similar.as_slice() {
        [] => Failure::Misused(problem),
        [name] => Failure::Setting(format!("{problem}; did you mean {name}?")),
        names => Failure::Setting(format!("{problem}; similar names: {}", names.join(", "))),
    }
}

/// Returns the word that clap rejected.
fn rejected(error: &Error) -> String {
    let word = error.get(ContextKind::InvalidArg).or_else(|| error.get(ContextKind::InvalidSubcommand));
    word.map(ToString::to_string).unwrap_or_default()
}

fn first_paragraph(error: &Error) -> String {
    let rendered = error.render().to_string();
    let first = rendered.split("\n\n").next().unwrap_or_default();
    first.strip_prefix("error: ").unwrap_or(first).to_owned()
}
