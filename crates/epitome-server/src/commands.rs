//! What the command line asks for, and how it is answered.
//!
//! One file a command. Flags become settings once ([`crate::settings::load`]), then a plain function runs: it
//! takes its arguments, the settings, and a [`Show`] it prints through.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

use epitome_lab::{bench, demo, replay};
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
  epitome demo                                  see what it does, in ten seconds
  epitome condense < request.json               an agent's own request, shorter where it is due
  epitome list                                  the sessions there are
  epitome context ann --tokens 8000             one of them in 8,000 tokens
  epitome search \"order 7071\"                   what was said about it, summarized or not
  epitome replay traces/ --html report.html     what you would lose and save, on your recordings
  epitome serve                                 the same for any language, over HTTP; and the proxy
  epitome serve --db postgres://db/epitome      one of any number of nodes that share a PostgreSQL
  epitome --write-config                        every setting, explained, in epitome.toml

Settings come from flags, then the environment (EPITOME_CONTEXT_MAX_TOKENS is context.max_tokens),
then epitome.toml, here or in the user's config folder. `epitome COMMAND --help` says more.";

/// Keeps long agent conversations inside a model's window without losing the thread.
#[derive(Parser)]
#[command(name = "epitome", version, after_help = TODAY, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// Writes every setting, explained, to FILE (epitome.toml; - shows it)
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = crate::settings::FILE_NAME)]
    write_config: Option<PathBuf>,
    /// Says which settings hold and from where, and tries the models
    #[arg(long, conflicts_with = "write_config")]
    check_config: bool,
    #[command(flatten)]
    globals: Globals,
}

/// What every command takes.
#[derive(clap::Args, Debug, Clone, Default)]
#[command(next_help_heading = "For every command")]
pub(crate) struct Globals {
    #[command(flatten)]
    given: Given,
    /// JSON instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Colours: auto, always or never
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t = Color::Auto)]
    #[arg(hide_possible_values = true)]
    pub(crate) color: Color,
}

#[derive(Subcommand)]
enum Command {
    /// A long conversation condensed before your eyes: no key, no server, no set-up
    Demo(demo::Args),
    /// Serves the HTTP API and the proxy
    Serve(Box<serve::Args>),
    /// A request in, the same with a shorter list out: no database
    Condense(condense::Args),
    /// Recorded conversations become sessions
    Import(import::Args),
    #[command(flatten)]
    Stored(Stored),
    /// Moves a SQLite file into PostgreSQL, and compares both
    Migrate(migrate::Args),
    /// Who may use the HTTP API
    Keys(keys::Args),
    /// What policies keep of recorded conversations, and what they cost
    Replay(replay::Args),
    /// The numbers in the README, on this machine
    Bench(bench::Args),
    /// Completions for a shell
    Completions(completions::Args),
}

/// Commands about what is stored: they open a database that is there.
#[derive(Subcommand)]
enum Stored {
    /// The sessions there are
    List(list::Args),
    /// Sessions as they came in
    Export(export::Args),
    /// A session in so many tokens, ready to be sent
    Context(context::Args),
    /// Has a summary written now
    Summarize(summarize::Args),
    /// Takes a summary back; the one before it stands again
    Undo(undo::Args),
    /// The messages beneath a summary, word for word
    Expand(expand::Args),
    /// Finds messages by their words, summarized or not
    Search(search::Args),
    /// Where each summary stands, and why it is due or not
    Explain(explain::Args),
    /// Looks the whole database through
    Verify(verify::Args),
    /// Copies the database into a new file, while it is used
    Backup(backup::Args),
}

impl Stored {
    /// The session it is about, where it needs one.
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

/// What the command line asks for.
pub(crate) struct Asked {
    what: What,
    /// What the command is called, where it is one.
    name: Option<String>,
    pub(crate) globals: Globals,
}

#[expect(clippy::large_enum_variant, reason = "a process has one of it")]
enum What {
    /// Words that are known already: help, the version.
    Told(String),
    Command(Command),
    WriteConfig(PathBuf),
    CheckConfig,
}

impl Asked {
    /// Whether it ends in its own way when told to.
    pub(crate) fn ends_itself(&self) -> bool {
        matches!(self.what, What::Command(Command::Serve(_)))
    }

    /// Whether it counts tokens in any case, and has nothing else to wait for.
    pub(crate) fn counts(&self) -> bool {
        matches!(self.what, What::Command(Command::Condense(_)))
    }
}

/// The session a command is about, by flag or without one.
#[derive(clap::Args, Debug)]
struct SessionArgs {
    /// The session
    #[arg(value_name = "SESSION")]
    named: Option<String>,
    /// The same, by a flag
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
                "no session given: say --session NAME; `epitome list` shows those there are".to_owned(),
            )
        })
    }
}

/// What the arguments, the program's name first, ask for.
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
    // The command is known even where what follows it is wrong.
    let name = Cli::command().ignore_errors(true).try_get_matches_from(&args);
    let name = name.ok().and_then(|known| known.subcommand_name().map(str::to_owned));
    understand(args, name.clone()).map_err(|failure| failure.of(name.as_deref()))
}

fn unknown_command(word: &str) -> Failure {
    let cli = Cli::command();
    match near(word, cli.get_subcommands().map(clap::Command::get_name), 1).first() {
        // Whoever is told what they meant need not look for it.
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
        (None, None, false) => return Err(Failure::Misused("no command given".to_owned())),
        (Some(_), ..) => {
            let problem =
                "--write-config and --check-config are commands of their own; leave out the other one";
            return Err(Failure::Misused(problem.to_owned()));
        }
    };
    Ok(Asked { what, name, globals: cli.globals })
}

/// Does it, says what went wrong, and tells the exit code.
pub(crate) async fn run(asked: Asked, world: World, mut show: Show) -> u8 {
    let Asked { what, name, globals } = asked;
    let mut database = None;
    let done = act(what, globals, &world, &mut show, &mut database).await;
    match done.and_then(|()| show.flush()) {
        Ok(()) => 0,
        Err(failure) => show.end(&failure.of(name.as_deref()), database.as_ref()),
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
        // These need no settings, and must work where some are wrong.
        What::Told(text) => show.raw(text.as_bytes()),
        What::WriteConfig(path) => write_config::run(&path, world, show),
        What::Command(Command::Demo(args)) => demo::run(&args, given.db.as_deref(), show).await,
        What::Command(Command::Bench(args)) => bench::run(&args, show).await,
        What::Command(Command::Completions(args)) => completions::run(&args, Cli::command(), show),
        // These need no database, or not always.
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
            // Who says where to needs no other database.
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
            // What was typed is looked at before what is stored.
            command.session().map_or(Ok(""), SessionArgs::name)?;
            let database = Database::existing(&settled(&given, world, opened)?).await?;
            let done = on_database(&command, &database, show).await;
            database.close().await;
            done
        }
        What::CheckConfig => check_config::run(&settled(&given, world, opened)?, show).await,
    }
}

/// The settings that hold, and a note of the database that a command is about to open.
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
            "no command given".to_owned()
        }
        _ => {
            let rendered = error.render().to_string();
            let first = rendered.split("\n\n").next().unwrap_or_default();
            first.strip_prefix("error: ").unwrap_or(first).to_owned()
        }
    }
}

/// The word that makes no sense.
fn wrong_word(error: &clap::Error) -> String {
    let given = error.get(ContextKind::InvalidArg).or_else(|| error.get(ContextKind::InvalidSubcommand));
    given.map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests;
