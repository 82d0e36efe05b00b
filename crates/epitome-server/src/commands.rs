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

use crate::failure::{Failure, Opened};
use crate::near::near;
use crate::settings::{Given, Loaded, Place, World, load, load_without_database};
use crate::show::{Color, Show};

mod backup;
mod check_config;
mod completions;
mod condense;
mod context;
mod echo;
mod expand;
mod explain;
mod export;
mod import;
mod keys;
mod late;
mod list;
mod messages;
mod migrate;
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
struct Globals {
    /// The settings (./epitome.toml, else the user's) [env: EPITOME_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The database (epitome.db in the data folder) [env: EPITOME_DB]
    #[arg(long, global = true, value_name = "PATH|URL")]
    db: Option<String>,
    /// Whose sessions (default) [env: EPITOME_WORKSPACE]
    #[arg(long, global = true, value_name = "NAME")]
    workspace: Option<String>,
    /// Sets any key of the settings; may be given again
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// JSON instead of text
    #[arg(long, global = true)]
    json: bool,
    /// Colours: auto, always or never
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t = Color::Auto)]
    #[arg(hide_possible_values = true)]
    color: Color,
}

#[derive(Subcommand)]
enum Command {
    /// A long conversation condensed before your eyes: no key, no server, no set-up
    Demo(demo::Args),
    /// Serves the HTTP API and the proxy
    Serve(Box<serve::Args>),
    /// A request in, the same with a shorter list out: no database
    Condense(condense::Args),
    /// The sessions there are
    List(list::Args),
    /// Recorded conversations become sessions
    Import(import::Args),
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

/// What the command line asks for.
pub(crate) enum Asked {
    /// Words that are known already: help, the version.
    Told(String),
    /// Something to be done.
    Job(Box<Job>),
}

/// Something to be done, and what every command takes.
pub(crate) struct Job {
    what: What,
    /// What the command is called, where it is one.
    name: Option<&'static str>,
    globals: Globals,
}

#[expect(clippy::large_enum_variant, reason = "a process has one of it")]
enum What {
    Command(Command),
    WriteConfig(PathBuf),
    CheckConfig,
}

impl Asked {
    /// When there are colours.
    pub(crate) fn color(&self) -> Color {
        match self {
            Self::Told(_) => Color::Auto,
            Self::Job(job) => job.globals.color,
        }
    }

    /// Whether it ends in its own way when told to.
    pub(crate) fn ends_itself(&self) -> bool {
        matches!(self, Self::Job(job) if matches!(job.what, What::Command(Command::Serve(_))))
    }

    /// Whether it counts tokens in any case, and has nothing else to wait for.
    pub(crate) fn counts(&self) -> bool {
        matches!(self, Self::Job(job) if matches!(job.what, What::Command(Command::Condense(_))))
    }

    /// Whether JSON was asked for.
    pub(crate) fn json(&self) -> bool {
        matches!(self, Self::Job(job) if job.globals.json)
    }
}

impl Globals {
    fn given(&self) -> Given {
        Given {
            config: self.config.clone(),
            db: self.db.clone(),
            workspace: self.workspace.clone(),
            set: self.set.clone(),
            own: Vec::new(),
        }
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
    let word = args.iter().skip(1).position(|word| word == "help").filter(|at| *at == 0);
    if word.is_some() {
        // `epitome help COMMAND` is `epitome COMMAND --help`.
        args.remove(1);
        args.truncate(2);
    }
    if word.is_some() || args.len() < 2 {
        args.push("--help".into());
    }
    let given = Word::of(&args);
    let name = if let Some(Word::Command(name)) = given { Some(name) } else { None };
    understand(args, name).map_err(|failure| match (failure, given) {
        (Failure::Misused(problem), Some(Word::Unknown(word))) if problem == unknown_argument(&word) => {
            unknown_command(&word)
        }
        (failure, _) => failure.of(name),
    })
}

/// The first word that is no flag and no flag's value.
enum Word {
    Command(&'static str),
    Unknown(String),
}

impl Word {
    fn of(args: &[OsString]) -> Option<Self> {
        let cli = Cli::command();
        let takes_value = |flag: &str| {
            let long = flag.strip_prefix("--");
            // `--write-config` takes one only where it is no command.
            let own = |known: &&clap::Arg| known.get_long() == long && known.get_id() != "write_config";
            cli.get_arguments().find(own).is_some_and(|known| known.get_action().takes_values())
        };
        let mut words = args.iter().skip(1).map(|word| word.to_string_lossy());
        while let Some(word) = words.next() {
            if !word.starts_with('-') {
                let known = COMMANDS.into_iter().find(|name| *name == word);
                return Some(known.map_or_else(|| Self::Unknown(word.into_owned()), Self::Command));
            }
            if takes_value(&word) {
                words.next();
            }
        }
        None
    }
}

/// Their names.
const COMMANDS: [&str; 19] = [
    "demo",
    "serve",
    "condense",
    "list",
    "import",
    "export",
    "context",
    "summarize",
    "undo",
    "expand",
    "search",
    "explain",
    "verify",
    "backup",
    "migrate",
    "keys",
    "replay",
    "bench",
    "completions",
];

fn unknown_argument(word: &str) -> String {
    format!("unknown argument {word:?}")
}

fn unknown_command(word: &str) -> Failure {
    match near(word, COMMANDS, 1).first() {
        // Whoever is told what they meant need not look for it.
        Some(meant) => Failure::Setting(format!("unknown command {word:?}; did you mean {meant}?")),
        None => Failure::Misused(format!("unknown command {word:?}")),
    }
}

fn understand(args: Vec<OsString>, name: Option<&'static str>) -> Result<Asked, Failure> {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                    Ok(Asked::Told(error.render().to_string()))
                }
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
    Ok(Asked::Job(Box::new(Job { what, name, globals: cli.globals })))
}

/// Does it, says what went wrong, and tells the exit code.
pub(crate) async fn run(asked: Asked, world: World, mut show: Show) -> u8 {
    let Asked::Job(job) = asked else { return 0 };
    let mut database = None;
    let name = job.name;
    let done = act(*job, &world, &mut show, &mut database).await;
    match done.and_then(|()| show.flush()) {
        Ok(()) => 0,
        Err(failure) => show.end(&failure.of(name), database.as_ref()),
    }
}

async fn act(job: Job, world: &World, show: &mut Show, database: &mut Option<Opened>) -> Result<(), Failure> {
    let Job { what, globals, .. } = job;
    // These need no settings, and must work where some are wrong.
    let command = match what {
        What::WriteConfig(path) => return write_config::run(&path, world, show),
        What::Command(Command::Demo(args)) => return demo::run(&args, globals.db.as_deref(), show).await,
        What::Command(Command::Bench(args)) if args.is_echo() => return echo::run(show).await,
        What::Command(Command::Bench(args)) => return bench::run(&args, show).await,
        What::Command(Command::Completions(args)) => return completions::run(&args, Cli::command(), show),
        What::Command(command) => Some(command),
        What::CheckConfig => None,
    };
    let mut given = globals.given();
    match &command {
        Some(Command::Serve(args)) => given.own = args.settings(),
        Some(Command::Condense(args)) => {
            given.own = args.settings();
            let loaded = load_without_database(&given, world).map_err(Failure::Setting)?;
            return condense::run(args, &loaded, show).await;
        }
        Some(Command::Replay(args)) => {
            let load = |config: Option<&Path>, set: &[String]| {
                let mut given = given.clone();
                given.config = config.map(Path::to_owned).or(given.config);
                given.set.extend_from_slice(set);
                load_without_database(&given, world).map(|loaded| (loaded.settings, loaded.patch))
            };
            return replay::run(args, &load, show).await;
        }
        Some(Command::Migrate(args)) => {
            // Who says where to needs no other database.
            let read = if args.to.is_some() { load_without_database } else { load };
            let loaded = read(&given, world).map_err(Failure::Setting)?;
            return migrate::run(args, &loaded, world, show).await;
        }
        _ => {}
    }
    let loaded: Loaded = load(&given, world).map_err(Failure::Setting)?;
    let shared = matches!(loaded.db, Place::Postgres(_));
    *database = Some(Opened { place: loaded.db.to_string(), shared });
    match command {
        None => check_config::run(&loaded, show).await,
        Some(Command::Serve(args)) => serve::run(&args, &loaded, show).await,
        Some(Command::List(args)) => list::run(&args, &loaded, show).await,
        Some(Command::Import(args)) => import::run(&args, &loaded, show).await,
        Some(Command::Export(args)) => export::run(&args, &loaded, show).await,
        Some(Command::Context(args)) => context::run(&args, &loaded, show).await,
        Some(Command::Summarize(args)) => summarize::run(&args, &loaded, show).await,
        Some(Command::Undo(args)) => undo::run(&args, &loaded, show).await,
        Some(Command::Expand(args)) => expand::run(&args, &loaded, show).await,
        Some(Command::Search(args)) => search::run(&args, &loaded, show).await,
        Some(Command::Explain(args)) => explain::run(&args, &loaded, show).await,
        Some(Command::Verify(args)) => verify::run(&args, &loaded, show).await,
        Some(Command::Backup(args)) => backup::run(&args, &loaded, show).await,
        Some(Command::Keys(args)) => keys::run(&args, &loaded, show).await,
        // Done above.
        Some(
            Command::Demo(_)
            | Command::Bench(_)
            | Command::Completions(_)
            | Command::Condense(_)
            | Command::Replay(_)
            | Command::Migrate(_),
        ) => Ok(()),
    }
}

fn problem(error: &clap::Error) -> String {
    let given = |kind| error.get(kind).map(ToString::to_string);
    match error.kind() {
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand => {
            let argument = given(ContextKind::InvalidArg).or_else(|| given(ContextKind::InvalidSubcommand));
            unknown_argument(&argument.unwrap_or_default())
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

#[cfg(test)]
mod tests;
