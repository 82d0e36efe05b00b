//! Parses the command line and runs the command.
//!
//! Each command has its own file, with a function `run`. [`crate::settings::load`] loads the settings once, from the
//! flags and the other sources. The function `run` then receives the command's arguments, and a [`Show`] that prints
//! the output. If the command needs the settings or the open database, `run` receives them too.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use epitome_lab::{bench, demo, replay};
use epitome_terminal::cleanup;
use epitome_terminal::flags::whole;

use crate::database::Database;
use crate::failure::{Failure, OpenDatabase};
use crate::settings::{DbLocation, Environment, Loaded, SettingsFlags, load, load_without_database};
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
mod misuse;
mod prelude;
mod search;
mod serve;
mod summarize;
mod undo;
mod verify;
mod write_config;

const EXAMPLES: &str = "\
Examples:
  epitome demo                                  play a demonstration of ten seconds
  epitome condense < request.json               shorten an agent's request if it is too long
  epitome list                                  list the stored sessions
  epitome context ann --tokens 8000             the session `ann` in at most 8,000 tokens
  epitome search \"order 7071\"                   search all messages, summarized or not
  epitome replay traces/ --html report.html     compare ways of building contexts on recordings
  epitome serve                                 start the HTTP API and the proxy
  epitome serve --db postgres://db/epitome      start one of several nodes that share a database
  epitome --write-config                        write epitome.toml, which explains every setting

Flags override environment variables, and environment variables override the settings file. For
example, the variable EPITOME_CONTEXT_MAX_TOKENS sets context.max_tokens. The settings file is
epitome.toml in the current folder. If it does not exist, the settings file is epitome.toml in the
user's config folder.
`epitome COMMAND --help` shows the help of a command.";

/// Keeps long agent conversations inside a model's context window.
#[derive(Parser)]
#[command(name = "epitome", version, after_help = EXAMPLES, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// Writes a settings FILE [default: epitome.toml; - is standard output]
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = crate::settings::FILE_NAME)]
    write_config: Option<PathBuf>,
    /// Shows the settings in effect and their sources, and tests the models
    #[arg(long, conflicts_with = "write_config")]
    check_config: bool,
    #[command(flatten)]
    globals: Globals,
}

/// Flags that every command accepts.
#[derive(clap::Args, Debug, Clone, Default)]
#[command(next_help_heading = "For every command")]
pub(crate) struct Globals {
    #[command(flatten)]
    flags: SettingsFlags,
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
    /// Demonstrates Epitome with a long recorded conversation; needs no key and no server
    Demo(demo::Args),
    /// Serves the HTTP API and the proxy
    Serve(Box<serve::Args>),
    /// Shortens the message list of one request; needs no database
    Condense(condense::Args),
    /// Imports recorded conversations as sessions
    Import(import::Args),
    #[command(flatten)]
    Stored(Stored),
    /// Moves a SQLite database into PostgreSQL, and checks that no data differs
    Migrate(migrate::Args),
    /// Creates, lists and revokes keys for the HTTP API
    Keys(keys::Args),
    /// Compares ways of building contexts on recordings, by forgotten facts and cost
    Replay(replay::Args),
    /// Measures speed and memory on this machine, as in docs/performance.md
    Bench(bench::Args),
    /// Prints the script for a shell's command-line completion
    Completions(completions::Args),
}

/// Commands that work on stored sessions. They require an existing database.
#[derive(Subcommand)]
enum Stored {
    /// Lists the stored sessions
    List(list::Args),
    /// Exports the messages of one session or of all sessions
    Export(export::Args),
    /// Prints a session's context: the conversation in at most N tokens, for a model
    Context(context::Args),
    /// Summarizes a session now
    Summarize(summarize::Args),
    /// Undoes a summary; the previous summary becomes current again
    Undo(undo::Args),
    /// Shows the original messages that a summary covers
    Expand(expand::Args),
    /// Searches all messages for words, including summarized messages
    Search(search::Args),
    /// Shows what each summary covers, and why the next summary is due or not
    Explain(explain::Args),
    /// Checks the whole database for faults
    Verify(verify::Args),
    /// Copies the database into a new file, even while the database is in use
    Backup(backup::Args),
}

impl Stored {
    /// Returns the session argument, if the command requires a session.
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
pub(crate) struct CommandLine {
    action: Action,
    /// Name of the subcommand, such as `keys create`. None if the command line has no subcommand.
    name: Option<String>,
    pub(crate) globals: Globals,
}

#[expect(clippy::large_enum_variant, reason = "a process has only one `Action`")]
enum Action {
    /// Prints help or the version.
    Print(String),
    Command(Command),
    WriteConfig(PathBuf),
    CheckConfig,
}

impl CommandLine {
    /// Whether the command handles shutdown signals itself.
    pub(crate) fn handles_signals(&self) -> bool {
        matches!(self.action, Action::Command(Command::Serve(_)))
    }

    /// Whether the command always counts tokens, so that loading the tokenizer early saves time.
    pub(crate) fn counts_tokens(&self) -> bool {
        matches!(self.action, Action::Command(Command::Condense(_)))
    }
}

/// The session that a command works on, as an argument or as a flag.
#[derive(clap::Args, Debug)]
struct SessionArgs {
    /// Session name
    #[arg(value_name = "SESSION")]
    positional: Option<String>,
    /// Session name, as a flag instead of an argument
    #[arg(short, long, value_name = "NAME", conflicts_with = "positional")]
    session: Option<String>,
}

impl SessionArgs {
    fn optional(&self) -> Option<&str> {
        self.positional.as_deref().or(self.session.as_deref())
    }

    fn name(&self) -> Result<&str, Failure> {
        self.optional().ok_or_else(|| {
            Failure::Misused("the session's name is missing (`epitome list` shows all sessions)".to_owned())
        })
    }
}

/// Parses the arguments. The first argument is the program's name.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<CommandLine, Failure> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let wants_help = args.get(1).is_some_and(|word| word == "help");
    if wants_help {
        // `epitome help COMMAND` has the same effect as `epitome COMMAND --help`.
        args.remove(1);
        args.truncate(2);
    }
    if wants_help || args.len() < 2 {
        args.push("--help".into());
    }
    let name = command_name(&args);
    parse_with_clap(args, name.clone()).map_err(|failure| failure.of(name.as_deref()))
}

/// Returns the command's name even if its arguments are wrong, so that the error can point to the command's help.
fn command_name(args: &[OsString]) -> Option<String> {
    let matches = Cli::command().ignore_errors(true).try_get_matches_from(args).ok()?;
    let (name, inner) = matches.subcommand()?;
    Some(match inner.subcommand_name() {
        Some(subcommand) => format!("{name} {subcommand}"),
        None => name.to_owned(),
    })
}

fn parse_with_clap(args: Vec<OsString>, name: Option<String>) -> Result<CommandLine, Failure> {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            let action = Action::Print(error.render().to_string());
            return Ok(CommandLine { action, name, globals: Globals::default() });
        }
        Err(error) => return Err(misuse::failure(&error, Cli::command(), name.as_deref())),
    };
    let action = match (cli.command, cli.write_config, cli.check_config) {
        (Some(command), None, false) => Action::Command(command),
        (None, Some(path), _) => Action::WriteConfig(path),
        (None, None, true) => Action::CheckConfig,
        (None, None, false) => return Err(Failure::Misused("missing command".to_owned())),
        (Some(_), ..) => {
            let problem =
                "--write-config and --check-config are commands themselves; remove the other command";
            return Err(Failure::Misused(problem.to_owned()));
        }
    };
    Ok(CommandLine { action, name, globals: cli.globals })
}

/// Runs the command, prints its error if it fails, and returns the exit code.
pub(crate) async fn run(line: CommandLine, environment: Environment, mut show: Show) -> u8 {
    let CommandLine { action, name, globals } = line;
    let mut database = None;
    let done = dispatch(action, globals, &environment, &mut show, &mut database).await;
    match done.and_then(|()| show.flush()) {
        Ok(()) => 0,
        Err(failure) => {
            // During a shutdown, the signal handler removes files and ends child processes. The command can fail
            // because of that. Such a failure is not printed.
            cleanup::unless_ending().await;
            show.end(&failure.of(name.as_deref()), database.as_ref())
        }
    }
}

async fn dispatch(
    action: Action,
    Globals { mut flags, .. }: Globals,
    environment: &Environment,
    show: &mut Show,
    opened: &mut Option<OpenDatabase>,
) -> Result<(), Failure> {
    match action {
        // The following actions need no settings, so they also work if a setting is invalid.
        Action::Print(text) => show.raw(text.as_bytes()),
        Action::WriteConfig(path) => write_config::run(&path, environment, show),
        Action::Command(Command::Demo(args)) => demo::run(&args, flags.db.as_deref(), show).await,
        Action::Command(Command::Bench(args)) => bench::run(&args, show).await,
        Action::Command(Command::Completions(args)) => completions::run(&args, Cli::command(), show),
        // The following commands load the settings, but do not always use the database that the settings name.
        Action::Command(Command::Condense(args)) => {
            flags.own = args.settings()?;
            let loaded = load_without_database(&flags, environment).map_err(Failure::Setting)?;
            condense::run(&args, &loaded, show).await
        }
        Action::Command(Command::Replay(args)) => {
            let load = |config: Option<&Path>, set: &[String]| {
                let mut flags = flags.clone();
                flags.config = config.map(Path::to_owned).or(flags.config);
                flags.set.extend_from_slice(set);
                load_without_database(&flags, environment).map(|loaded| (loaded.settings, loaded.patch))
            };
            replay::run(&args, &load, show).await
        }
        Action::Command(Command::Migrate(args)) => {
            // With `--to`, `migrate` does not use the database that the settings name.
            let load = if args.to.is_some() { load_without_database } else { load };
            let loaded = load(&flags, environment).map_err(Failure::Setting)?;
            migrate::run(&args, &loaded, environment, show).await
        }
        Action::Command(Command::Serve(args)) => {
            flags.own = args.settings();
            serve::run(&args, &load_noting_database(&flags, environment, opened)?, show).await
        }
        Action::Command(Command::Import(args)) => {
            import::run(&args, &load_noting_database(&flags, environment, opened)?, show).await
        }
        Action::Command(Command::Keys(args)) => {
            keys::run(&args, &load_noting_database(&flags, environment, opened)?, show).await
        }
        Action::Command(Command::Stored(command)) => {
            // Checks the session argument before the database is opened.
            command.session().map_or(Ok(""), SessionArgs::name)?;
            let database =
                Database::open_existing(&load_noting_database(&flags, environment, opened)?).await?;
            let done = run_stored(&command, &database, show).await;
            database.close().await;
            done
        }
        Action::CheckConfig => {
            check_config::run(&load_noting_database(&flags, environment, opened)?, show).await
        }
    }
}

/// Loads the settings. Stores the address of the database in `opened`, so that error messages can name the database.
fn load_noting_database(
    flags: &SettingsFlags,
    environment: &Environment,
    opened: &mut Option<OpenDatabase>,
) -> Result<Loaded, Failure> {
    let loaded = load(flags, environment).map_err(Failure::Setting)?;
    let shared = matches!(loaded.db, DbLocation::Postgres(_));
    *opened = Some(OpenDatabase { address: loaded.db.to_string(), shared });
    Ok(loaded)
}

async fn run_stored(command: &Stored, database: &Database, show: &mut Show) -> Result<(), Failure> {
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

#[cfg(test)]
mod tests;
