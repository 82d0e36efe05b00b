//! `epitome demo`: condenses a long conversation and shows each step.
//!
//! The demo plays `story` into its own database, message by message, with the built-in extractive summarizer. Then it
//! requests the conversation in several sizes and shows the results. `play` and `numbers` measure every number during the
//! run; `screen` formats the output. Everything except the durations is the same in every run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use epitome::rules::message::Tokens;
use epitome::{Engine, Session, SessionInfo};
use epitome_terminal::failure::Failure;
use epitome_terminal::show::Show;
use serde_json::{Map, Value, json};

mod numbers;
mod play;
mod screen;
mod story;

use numbers::{ContextSize, FactCheck, WrittenSummary};
use screen::Screen;

const EXAMPLES: &str = "\
Examples:
  epitome demo                        ten seconds in a terminal
  epitome demo --fast --tokens 2000   without pauses; savings with contexts of 2,000 tokens
  epitome demo --json --db demo.db    prints one JSON object; the database is demo.db

The demo needs no key, no server and no network: the built-in extractive summarizer writes the
summaries. The database stays (epitome-demo.db in the temporary folder), so that you can try the
other commands on it. The next demo replaces it. If a database contains anything but a demo, the
command fails and changes nothing.";

/// Condenses a long conversation and shows each step
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Shows everything at once, without pauses
    #[arg(long)]
    fast: bool,
    /// Budget of the contexts in the savings table, in tokens
    #[arg(long, value_name = "N", default_value_t = 4_000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    tokens: Tokens,
}

/// The session's workspace: the default one.
const WORKSPACE: &str = "default";

/// The session's name.
const SESSION: &str = "demo";

/// Metadata entry of a demo's session. Only a session with this entry is replaced.
const MADE_BY: (&str, &str) = ("made_by", "epitome demo");

/// Plays the story into the database at `db`, or at the default path, and shows the results.
pub async fn run(args: &Args, db: Option<&str>, show: &mut Show) -> Result<(), Failure> {
    let (path, _lock) = match db {
        // The next run deletes the database, so a database server is not accepted.
        Some(db) if db.contains("://") && !db.starts_with("sqlite:") => {
            let problem = "--db: the demo needs a file of its own; pass a path or omit the flag";
            return Err(Failure::Setting(problem.to_owned()));
        }
        Some(db) => {
            let path = PathBuf::from(db.strip_prefix("sqlite:").unwrap_or(db));
            let lock = DemoLock::take(&path).map_err(|_| {
                Failure::Failed(format!("another demo is running at {}; choose another path", path.display()))
            })?;
            (path, lock)
        }
        None => default_path(&std::env::temp_dir()),
    };
    let mut engine = open(&path).await?;
    let done = match contains_demo(&engine, &path).await {
        Ok(is_demo) => {
            if is_demo {
                engine.close().await;
                remove(&path)?;
                engine = open(&path).await?;
            }
            let session = engine.session(SESSION);
            session.set_metadata(Map::from_iter([(MADE_BY.0.to_owned(), MADE_BY.1.into())])).await?;
            play_and_show(args, &session, &path, show).await
        }
        Err(error) => Err(error),
    };
    engine.close().await;
    done
}

/// Returns the default path of the demo's database. The first user who runs the demo on a machine owns that file. A user who
/// cannot write to it, or who starts a second demo while the first is running, gets another file.
fn default_path(folder: &Path) -> (PathBuf, DemoLock) {
    let user = std::env::var("USER").unwrap_or_default();
    let user: String = user.chars().filter(char::is_ascii_alphanumeric).collect();
    let own = format!("epitome-demo-{}.db", std::process::id());
    for name in ["epitome-demo.db", &format!("epitome-demo-{user}.db")] {
        let path = folder.join(name);
        let writable = match std::fs::OpenOptions::new().append(true).open(&path) {
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
            Ok(_) => true,
        };
        if writable && let Ok(lock) = DemoLock::take(&path) {
            return (path, lock);
        }
    }
    (folder.join(own), DemoLock(None))
}

/// File lock that prevents two demos from using the same database.
struct DemoLock(Option<(PathBuf, std::fs::File)>);

impl DemoLock {
    fn take(path: &Path) -> Result<Self, std::fs::TryLockError> {
        let mut lock = path.as_os_str().to_owned();
        lock.push(".lock");
        match std::fs::OpenOptions::new().create(true).append(true).open(&lock) {
            Ok(file) => {
                file.try_lock()?;
                Ok(Self(Some((lock.into(), file))))
            }
            // Opening the database fails for the same reason and reports it.
            Err(_) => Ok(Self(None)),
        }
    }
}

impl Drop for DemoLock {
    fn drop(&mut self) {
        if let Some((path, _file)) = self.0.take() {
            // The lock file is not needed any more; a leftover does no harm.
            let _ = std::fs::remove_file(path);
        }
    }
}

async fn open(path: &Path) -> Result<Engine, Failure> {
    // No workers: summaries are written between two messages, so every run gives the same result.
    let opened = Engine::builder().workers(0).open(path).await;
    opened.map_err(|error| Failure::Failed(format!("cannot open {}: {error}", path.display())))
}

/// Removes the database file of an earlier demo, so that ids begin with 1 again.
fn remove(path: &Path) -> Result<(), Failure> {
    for end in ["-wal", "-shm", ""] {
        let mut file = path.as_os_str().to_owned();
        file.push(end);
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                let path = path.display();
                return Err(Failure::Failed(format!(
                    "cannot remove the previous demo {path}: {error}; choose another path with --db"
                )));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Plays the story and shows each result as soon as it is available.
async fn play_and_show(args: &Args, session: &Session, path: &Path, show: &mut Show) -> Result<(), Failure> {
    let messages = story::messages();
    let json = show.json;
    let mut screen = Screen::new(show, args.fast || json, json);
    screen.opening(&messages)?;
    let played = play::play(session, messages, args.tokens, &mut screen).await?;
    screen.played(&played)?;
    screen.pause(Duration::from_millis(800)).await?;
    let sizes = numbers::sizes(session).await?;
    screen.sizes(&sizes, played.tokens)?;
    screen.pause(Duration::from_millis(800)).await?;
    let facts = numbers::facts(session, &sizes).await?;
    screen.facts(&facts, &sizes)?;
    screen.pause(Duration::from_millis(800)).await?;
    let one = numbers::one_summary(session).await?;
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
            "summaries": played.summaries.iter().map(WrittenSummary::object).collect::<Vec<_>>(),
            "contexts": sizes.iter().map(ContextSize::object).collect::<Vec<_>>(),
            "facts": facts.iter().map(FactCheck::object).collect::<Vec<_>>(),
            "summary": one.object(),
            "savings": played.savings.object(),
        }))?;
    }
    Ok(())
}

/// Returns the command that the user can type: in a fresh clone, `epitome` is not on the path.
fn program() -> &'static str {
    if std::env::var_os("CARGO").is_some() { "cargo run -q --" } else { "epitome" }
}

/// Returns whether the database contains an earlier demo. If it contains anything else, returns an error.
async fn contains_demo(engine: &Engine, path: &Path) -> Result<bool, Failure> {
    let made_by = Value::from(MADE_BY.1);
    let is_demo =
        |info: &SessionInfo| &*info.name == SESSION && info.metadata.get(MADE_BY.0) == Some(&made_by);
    let workspace = engine.workspace(WORKSPACE);
    let sessions = workspace.sessions(None, 2).await?;
    // The whole file will be removed, so every workspace in it is checked.
    let others = engine.workspaces(None, 2).await?.iter().any(|name| **name != *WORKSPACE);
    let settings = !workspace.patch().await?.entries().is_empty();
    if !sessions.iter().all(is_demo) || others || settings {
        let path = path.display();
        return Err(Failure::Failed(format!(
            "{path} contains data that is not from a demo; nothing was changed. Choose another path with --db"
        )));
    }
    Ok(!sessions.is_empty())
}

#[cfg(test)]
mod tests;
