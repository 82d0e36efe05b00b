//! `epitome demo`: a long conversation condensed before your eyes.
//!
//! It plays `story` into a database of its own, message by message, with the built-in summarizer; then it asks that
//! database for the conversation in several sizes and shows what it got. Every figure is counted in that run, by
//! `play`; how they look is `look`'s matter. All but the durations is the same every time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use epitome::rules::message::Tokens;
use epitome::{Engine, Session, SessionInfo};
use epitome_terminal::failure::Failure;
use epitome_terminal::show::Show;
use serde_json::{Map, Value, json};

mod count;
mod look;
mod play;
mod story;

use count::{Found, Size, Written};
use look::Screen;

const EXAMPLES: &str = "\
Examples:
  epitome demo                        ten seconds in a terminal
  epitome demo --fast --tokens 2000   no pauses; what contexts of 2,000 tokens would save
  epitome demo --json --db demo.db    everything as one object, and the database kept there

It needs no key, no server and no network: summaries are written by the built-in model. The database
stays (epitome-demo.db in the temporary folder), so that the other commands can be tried on it. The
next demo takes its place; a database with anything else in it is refused.";

/// A long conversation condensed before your eyes
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// No pauses
    #[arg(long)]
    fast: bool,
    /// The size of the contexts whose savings are counted
    #[arg(long, value_name = "N", default_value_t = 4_000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    tokens: Tokens,
}

/// Whose the session is: whoever names nobody.
const WORKSPACE: &str = "default";

/// The session's name.
const SESSION: &str = "demo";

/// What a demo's session says of itself, so that only such a session is replaced.
const MADE_BY: (&str, &str) = ("made_by", "epitome demo");

/// Plays the story into a database, at `db` where it is given, and shows what came of it.
pub async fn run(args: &Args, db: Option<&str>, show: &mut Show) -> Result<(), Failure> {
    let (path, _alone) = match db {
        // What it plays is thrown away when it is played again.
        Some(given) if given.contains("://") && !given.starts_with("sqlite:") => {
            let problem = "--db: the demo plays in a file of its own; give a path, or nothing";
            return Err(Failure::Setting(problem.to_owned()));
        }
        Some(given) => {
            let path = PathBuf::from(given.strip_prefix("sqlite:").unwrap_or(given));
            let alone = Alone::at(&path).map_err(|_| {
                Failure::Failed(format!("another demo plays at {}; give another place", path.display()))
            })?;
            (path, alone)
        }
        None => usual_place(&std::env::temp_dir()),
    };
    let mut engine = open(&path).await?;
    let done = match look_through(&engine, &path).await {
        Ok(before) => {
            if before {
                engine.close().await;
                remove(&path)?;
                engine = open(&path).await?;
            }
            let session = engine.session(SESSION);
            session.set_metadata(Map::from_iter([(MADE_BY.0.to_owned(), MADE_BY.1.into())])).await?;
            tell(args, &session, &path, show).await
        }
        Err(refused) => Err(refused),
    };
    engine.close().await;
    done
}

/// Where the demo is kept unless it is told. The first to run it on a machine owns that file: whoever may not write to
/// it gets one of their own, and so does whoever comes while another demo plays there.
fn usual_place(folder: &Path) -> (PathBuf, Alone) {
    let user = std::env::var("USER").unwrap_or_default();
    let user: String = user.chars().filter(char::is_ascii_alphanumeric).collect();
    let own = format!("epitome-demo-{}.db", std::process::id());
    for name in ["epitome-demo.db", &format!("epitome-demo-{user}.db")] {
        let path = folder.join(name);
        let writable = match std::fs::OpenOptions::new().append(true).open(&path) {
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
            Ok(_) => true,
        };
        if writable && let Ok(alone) = Alone::at(&path) {
            return (path, alone);
        }
    }
    (folder.join(own), Alone(None))
}

/// Nobody else plays a demo there while this is held.
struct Alone(Option<(PathBuf, std::fs::File)>);

impl Alone {
    fn at(path: &Path) -> Result<Self, std::fs::TryLockError> {
        let mut lock = path.as_os_str().to_owned();
        lock.push(".lock");
        match std::fs::OpenOptions::new().create(true).append(true).open(&lock) {
            Ok(file) => {
                file.try_lock()?;
                Ok(Self(Some((lock.into(), file))))
            }
            // Whatever is in the way will be told when the database is opened.
            Err(_) => Ok(Self(None)),
        }
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        if let Some((path, _file)) = self.0.take() {
            // It is only clutter by now.
            let _ = std::fs::remove_file(path);
        }
    }
}

async fn open(path: &Path) -> Result<Engine, Failure> {
    // No workers: summaries are written between two messages, so that each demo is like the other.
    let opened = Engine::builder().workers(0).open(path).await;
    opened.map_err(|error| Failure::Failed(format!("no demo at {}: {error}", path.display())))
}

/// Removes an earlier demo with its file, so that numbers begin with 1 again.
fn remove(path: &Path) -> Result<(), Failure> {
    for end in ["-wal", "-shm", ""] {
        let mut file = path.as_os_str().to_owned();
        file.push(end);
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                let path = path.display();
                return Err(Failure::Failed(format!(
                    "the demo before cannot be removed from {path}: {error}; give another place with --db"
                )));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Plays it, and shows each thing when it is there.
async fn tell(args: &Args, session: &Session, path: &Path, show: &mut Show) -> Result<(), Failure> {
    let messages = story::messages();
    let json = show.json;
    let mut screen = Screen::new(show, args.fast || json, json);
    screen.opening(&messages)?;
    let played = play::play(session, messages, args.tokens, &mut screen).await?;
    screen.played(&played)?;
    screen.pause(Duration::from_millis(800)).await?;
    let sizes = count::sizes(session).await?;
    screen.sizes(&sizes, played.tokens)?;
    screen.pause(Duration::from_millis(800)).await?;
    let facts = count::facts(session, &sizes).await?;
    screen.facts(&facts, &sizes)?;
    screen.pause(Duration::from_millis(800)).await?;
    let one = count::one_summary(session).await?;
    screen.summary(&one)?;
    screen.pause(Duration::from_millis(800)).await?;
    screen.savings(&played.savings)?;
    screen.pause(Duration::from_millis(800)).await?;
    screen.next(path, program(), SESSION)?;
    if json {
        show.object(&json!({
            "database": path.display().to_string(),
            "session": SESSION,
            "messages": played.messages,
            "tokens": played.tokens,
            "tool_calls": played.tool_calls,
            "summaries": played.summaries.iter().map(Written::object).collect::<Vec<_>>(),
            "contexts": sizes.iter().map(Size::object).collect::<Vec<_>>(),
            "facts": facts.iter().map(Found::object).collect::<Vec<_>>(),
            "summary": one.object(),
            "savings": played.savings.object(),
        }))?;
    }
    Ok(())
}

/// How whoever runs this can run it again: a fresh clone has no `epitome` to be found by its name.
fn program() -> &'static str {
    if std::env::var_os("CARGO").is_some() { "cargo run -q --" } else { "epitome" }
}

/// Whether an earlier demo is there. A database that holds anything else is left alone.
async fn look_through(engine: &Engine, path: &Path) -> Result<bool, Failure> {
    let made_by = Value::from(MADE_BY.1);
    let is_demo =
        |info: &SessionInfo| &*info.name == SESSION && info.metadata.get(MADE_BY.0) == Some(&made_by);
    let workspace = engine.workspace(WORKSPACE);
    let there = workspace.sessions(None, 2).await?;
    // The file is going to be removed with all that is in it.
    let others = engine.workspaces(None, 2).await?.iter().any(|name| **name != *WORKSPACE);
    let settings = !workspace.patch().await?.entries().is_empty();
    if !there.iter().all(is_demo) || others || settings {
        let path = path.display();
        return Err(Failure::Failed(format!(
            "{path} holds something that is not a demo's; nothing was changed: give another place with --db"
        )));
    }
    Ok(!there.is_empty())
}

#[cfg(test)]
mod tests;
