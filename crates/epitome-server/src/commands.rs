//! Parses the command line and runs the command.
//!
//! Each command has its own file. [`crate::settings::load`] turns the flags into settings once. Then a plain
//! function runs: it takes its arguments, the settings, and a [`Show`] through which it prints.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

use epitome_lab::{bench, demo, replay};
use epitome_terminal::leftovers;
use epitome_terminal::flags::whole;

use crate::database::Database;
use crate::failure::{Failure, Opened};
use crate::near::near;
use crate::settings::{Given, Loaded, Place, World, load, load_without_database};
use crate::show::{Color, Show};

mod backup;
mod check_config;
mod completions;
mod condense;
mod context;
mod expand;
mod explain;
mod export;
mod import;
mod keys;
mod list;
mod messages;
mod migrate;
mod prelude;
mod search;
mod serve;
mod summarize;
mod undo;
mod verify;
mod write_config;

const TODAY: &str = "\
Examples:
  epitome demo                                  a demonstration of ten seconds
  epitome condense < request.json               shorten an agent's request, if that is due
  epitome list                                  list the stored sessions
  epitome context ann --tokens 8000             the session `ann` in at most 8,000 tokens
  epitome search \"order 7071\"                   search all messages, summarized or not
  epitome replay traces/ --html report.html     what your own recordings would lose and save
  epitome serve                                 the HTTP API, for any language, and the proxy
  epitome serve --db postgres://db/epitome      one of several nodes that share a PostgreSQL
  epitome --write-config                        write every setting, explained, to epitome.toml

Flags override the environment (EPITOME_CONTEXT_MAX_TOKENS sets context.max_tokens). The environment
overrides epitome.toml, in the current folder or else in the user's config folder.
`epitome COMMAND --help` shows the help of a command.";

/// Keeps long agent conversations inside a model's window without losing the thread.
#[derive(Parser)]
#[command(name = "epitome", version, after_help = TODAY, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// Writes every setting, explained, to FILE (epitome.toml; - prints it)
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = crate::settings::FILE_NAME)]
    write_config: Option<PathBuf>,
    /// Shows the settings in effect and their sources, and tests the models
    #[arg(long, conflicts_with = "write_config")]
    check_config: bool,
    #[command(flatten)]
    globals: Globals,
}

/// Flags of every command.
#[derive(clap::Args, Debug, Clone, Default)]
#[command(next_help_heading = "For every command")]
pub(crate) struct Globals {
    #[command(flatten)]
    given: Given,
    /// Prints JSON instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Colours: auto, always or never
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t = Color::Auto)]
    #[arg(hide_possible_values = true)]
    pub(crate) color: Color,
}

#[derive(Subcommand)]
enum Command {
    /// Demonstrates Epitome on a long recorded conversation; needs no key, server or set-up
    Demo(demo::Args),
    /// Serves the HTTP API and the proxy
    Serve(Box<serve::Args>),
    /// Shortens the message list of one request; needs no database
    Condense(condense::Args),
    /// Imports recorded conversations as sessions
    Import(import::Args),
    #[command(flatten)]
    Stored(Stored),
    /// Moves a SQLite database into PostgreSQL, and compares both
    Migrate(migrate::Args),
    /// Creates, lists and revokes keys for the HTTP API
    Keys(keys::Args),
    /// Measures what policies preserve of recorded conversations, and what they cost
    Replay(replay::Args),
    /// Measures the numbers in the README on this machine
    Bench(bench::Args),
    /// Prints completions for a shell
    Completions(completions::Args),
}

/// Commands that work on stored sessions. They require an existing database.
#[derive(Subcommand)]
enum Stored {
    /// Lists the stored sessions
    List(list::Args),
    /// Exports the messages of one session or of all sessions
    Export(export::Args),
    /// Prints a session within a token budget, ready to be sent to a model
    Context(context::Args),
    /// Summarizes a session now
    Summarize(summarize::Args),
    /// Undoes a summary; the summary before it becomes current again
    Undo(undo::Args),
    /// Shows the original messages that a summary covers
    Expand(expand::Args),
    /// Searches messages by their words, summarized or not
    Search(search::Args),
    /// Shows what each summary covers, and why the next one is due or not
    Explain(explain::Args),
    /// Checks the whole database for faults
    Verify(verify::Args),
    /// Copies the database into a new file, while it is in use
    Backup(backup::Args),
}

impl Stored {
    /// The session argument, if the command requires one.
    fn session(&self) -> Option<&SessionArgs> {
        match self {
            Self::Export(args) => (!args.all).then_some(&args.session),
            Self::Context(args) => Some(&args.session),
            Self::Summarize(args) => Some(&args.session),
            Self::Undo(args) => Some(&args.session),
            Self::Expand(args) => Some(&args.session),
            Self::List(_) | Self::Search(_) | Self::Explain(_) | Self::Verify(_) | Self::Backup(_) => None,
        }
    }
}

/// A parsed command line.
pub(crate) struct Asked {
    what: What,
    /// Name of the subcommand, if there is one.
    name: Option<String>,
    pub(crate) globals: Globals,
}

#[expect(clippy::large_enum_variant, reason = "a process has one of it")]
enum What {
    /// Text to print as it is: help or the version.
    Told(String),
    Command(Command),
    WriteConfig(PathBuf),
    CheckConfig,
}

impl Asked {
    /// Whether the command handles shutdown signals itself.
    pub(crate) fn ends_itself(&self) -> bool {
        matches!(self.what, What::Command(Command::Serve(_)))
    }

    /// Whether the command always counts tokens, so that loading the tokenizer early saves time.
    pub(crate) fn counts(&self) -> bool {
        matches!(self.what, What::Command(Command::Condense(_)))
    }
}

/// The session that a command works on, as an argument or as a flag.
#[derive(clap::Args, Debug)]
struct SessionArgs {
    /// Session name
    #[arg(value_name = "SESSION")]
    named: Option<String>,
    /// Session name, as a flag instead of an argument
    #[arg(short, long, value_name = "NAME", conflicts_with = "named")]
    session: Option<String>,
}

impl SessionArgs {
    fn optional(&self) -> Option<&str> {
        self.named.as_deref().or(self.session.as_deref())
    }

    fn name(&self) -> Result<&str, Failure> {
        self.optional().ok_or_else(|| {
            Failure::Misused(
                "no session named; use --session NAME (`epitome list` shows all sessions)".to_owned(),
            )
        })
    }
}

/// Parses the arguments. The first one is the program's name.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Asked, Failure> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let wants_help = args.get(1).is_some_and(|word| word == "help");
    if wants_help {
        // `epitome help COMMAND` is `epitome COMMAND --help`.
        args.remove(1);
        args.truncate(2);
    }
    if wants_help || args.len() < 2 {
        args.push("--help".into());
    }
    // Finds the command's name even if its arguments are wrong, so that the error can name its help.
    let name = Cli::command().ignore_errors(true).try_get_matches_from(&args);
    let name = name.ok().and_then(|known| known.subcommand_name().map(str::to_owned));
    understand(args, name.clone()).map_err(|failure| failure.of(name.as_deref()))
}

fn unknown_command(word: &str) -> Failure {
    let cli = Cli::command();
    match near(word, cli.get_subcommands().map(clap::Command::get_name), 1).first() {
        // With a suggestion, the error needs no pointer to `--help`.
        Some(meant) => Failure::Setting(format!("unknown command {word:?}; did you mean {meant}?")),
        None => Failure::Misused(format!("unknown command {word:?}")),
    }
}

fn understand(args: Vec<OsString>, name: Option<String>) -> Result<Asked, Failure> {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                    let what = What::Told(error.render().to_string());
                    Ok(Asked { what, name, globals: Globals::default() })
                }
                ErrorKind::InvalidSubcommand if name.is_none() => Err(unknown_command(&wrong_word(&error))),
                _ => Err(Failure::Misused(problem(&error))),
            };
        }
    };
    let what = match (cli.command, cli.write_config, cli.check_config) {
        (Some(command), None, false) => What::Command(command),
        (None, Some(path), _) => What::WriteConfig(path),
        (None, None, true) => What::CheckConfig,
        (None, None, false) => return Err(Failure::Misused("missing command".to_owned())),
        (Some(_), ..) => {
            let problem =
                "--write-config and --check-config are commands themselves; remove the other command";
            return Err(Failure::Misused(problem.to_owned()));
        }
    };
    Ok(Asked { what, name, globals: cli.globals })
}

/// Runs the command, prints its error if it fails, and returns the exit code.
pub(crate) async fn run(asked: Asked, world: World, mut show: Show) -> u8 {
    let Asked { what, name, globals } = asked;
    let mut database = None;
    let done = act(what, globals, &world, &mut show, &mut database).await;
    match done.and_then(|()| show.flush()) {
        Ok(()) => 0,
        Err(failure) => {
            // While the process shuts down, its files and child processes are already gone, and failures follow from that.
            leftovers::unless_ending().await;
            show.end(&failure.of(name.as_deref()), database.as_ref())
        }
    }
}

async fn act(
    what: What,
    Globals { mut given, .. }: Globals,
    world: &World,
    show: &mut Show,
    opened: &mut Option<Opened>,
) -> Result<(), Failure> {
    match what {
        // These need no settings, and must also work when some settings are wrong.
        What::Told(text) => show.raw(text.as_bytes()),
        What::WriteConfig(path) => write_config::run(&path, world, show),
        What::Command(Command::Demo(args)) => demo::run(&args, given.db.as_deref(), show).await,
        What::Command(Command::Bench(args)) => bench::run(&args, show).await,
        What::Command(Command::Completions(args)) => completions::run(&args, Cli::command(), show),
        // These need no database, or not in every case.
        What::Command(Command::Condense(args)) => {
            given.own = args.settings()?;
            let loaded = load_without_database(&given, world).map_err(Failure::Setting)?;
            condense::run(&args, &loaded, show).await
        }
        What::Command(Command::Replay(args)) => {
            let load = |config: Option<&Path>, set: &[String]| {
                let mut given = given.clone();
                given.config = config.map(Path::to_owned).or(given.config);
                given.set.extend_from_slice(set);
                load_without_database(&given, world).map(|loaded| (loaded.settings, loaded.patch))
            };
            replay::run(&args, &load, show).await
        }
        What::Command(Command::Migrate(args)) => {
            // With `--to`, the database of the settings is not used.
            let read = if args.to.is_some() { load_without_database } else { load };
            let loaded = read(&given, world).map_err(Failure::Setting)?;
            migrate::run(&args, &loaded, world, show).await
        }
        What::Command(Command::Serve(args)) => {
            given.own = args.settings();
            serve::run(&args, &settled(&given, world, opened)?, show).await
        }
        What::Command(Command::Import(args)) => {
            import::run(&args, &settled(&given, world, opened)?, show).await
        }
        What::Command(Command::Keys(args)) => keys::run(&args, &settled(&given, world, opened)?, show).await,
        What::Command(Command::Stored(command)) => {
            // Checks the session argument before it opens the database.
            command.session().map_or(Ok(""), SessionArgs::name)?;
            let database = Database::existing(&settled(&given, world, opened)?).await?;
            let done = on_database(&command, &database, show).await;
            database.close().await;
            done
        }
        What::CheckConfig => check_config::run(&settled(&given, world, opened)?, show).await,
    }
}

/// Loads the settings, and notes which database the command is about to open, for its error messages.
fn settled(given: &Given, world: &World, opened: &mut Option<Opened>) -> Result<Loaded, Failure> {
    let loaded = load(given, world).map_err(Failure::Setting)?;
    let shared = matches!(loaded.db, Place::Postgres(_));
    *opened = Some(Opened { place: loaded.db.to_string(), shared });
    Ok(loaded)
}

async fn on_database(command: &Stored, database: &Database, show: &mut Show) -> Result<(), Failure> {
    match command {
        Stored::List(args) => list::run(args, database, show).await,
        Stored::Export(args) => export::run(args, database, show).await,
        Stored::Context(args) => context::run(args, database, show).await,
        Stored::Summarize(args) => summarize::run(args, database, show).await,
        Stored::Undo(args) => undo::run(args, database, show).await,
        Stored::Expand(args) => expand::run(args, database, show).await,
        Stored::Search(args) => search::run(args, database, show).await,
        Stored::Explain(args) => explain::run(args, database, show).await,
        Stored::Verify(_) => verify::run(database, show).await,
        Stored::Backup(args) => backup::run(args, database, show).await,
    }
}

fn problem(error: &clap::Error) -> String {
    match error.kind() {
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand => {
            format!("unknown argument {:?}", wrong_word(error))
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            "missing command".to_owned()
        }
        _ => {
            let rendered = error.render().to_string();
            let first = rendered.split("\n\n").next().unwrap_or_default();
            first.strip_prefix("error: ").unwrap_or(first).to_owned()
        }
    }
}

/// Returns the argument that clap rejected.
fn wrong_word(error: &clap::Error) -> String {
    let given = error.get(ContextKind::InvalidArg).or_else(|| error.get(ContextKind::InvalidSubcommand));
    given.map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests;
