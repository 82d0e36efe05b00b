//! `epitome demo`: condenses a long conversation and shows each step.
//!
//! The demo appends the messages of `story` to a session in its own database, one by one. The built-in extractive
//! summarizer writes the summaries. Then the demo requests contexts with several budgets and shows the results. `play`
//! and `numbers` measure every number during the run; `screen` formats the output. Everything except the durations is
//! the same in every run.

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
  epitome demo                        plays for about ten seconds in a terminal
  epitome demo --fast --tokens 2000   plays without pauses; the savings are for 2,000 tokens
  epitome demo --json --db demo.db    prints one JSON object, and creates the database demo.db

The demo needs no key, no server and no network: the built-in extractive summarizer writes the
summaries. The demo creates the database epitome-demo.db in the temporary folder and leaves it
there, so that you can try other commands on this database. The next demo replaces the database.
If the database contains anything that is not from a demo, the command changes nothing and fails.";

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

/// The workspace of the demo's session.
const WORKSPACE: &str = "default";

/// The name of the demo's session.
const SESSION: &str = "demo";

/// Key and value that the demo adds to the metadata of its session. A demo replaces only sessions with this entry.
const MADE_BY: (&str, &str) = ("made_by", "epitome demo");

/// Plays the story in the database at `db`, or at the default path, and shows the results.
pub async fn run(args: &Args, db: Option<&str>, show: &mut Show) -> Result<(), Failure> {
    let (path, _lock) = match db {
        // The next run deletes the database, so a database server is not accepted.
        Some(db) if db.contains("://") && !db.starts_with("sqlite:") => {
            let problem = "--db: the demo needs its own database file; pass a file path, or omit the flag";
            return Err(Failure::Setting(problem.to_owned()));
        }
        Some(db) => {
            let path = PathBuf::from(db.strip_prefix("sqlite:").unwrap_or(db));
            let lock = DemoLock::take(&path).map_err(|_| {
                Failure::Failed(format!("another demo is using {}; choose another path", path.display()))
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

/// Returns the default path of the demo's database, and the lock on this path. The default is `epitome-demo.db` in
/// `folder`. If the user cannot write to that file, or another demo has locked it, the file name also contains the
/// user's name or the process id.
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

/// File lock that prevents two demos from using the same database. `None` if there is no lock file.
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
            // Without a lock file, the demo continues. It then opens the database in the same folder, which fails for
            // the same reason, and reports that error.
            Err(_) => Ok(Self(None)),
        }
    }
}

impl Drop for DemoLock {
    fn drop(&mut self) {
        if let Some((path, _file)) = self.0.take() {
            // Ignores errors: a lock file that remains does no harm.
            let _ = std::fs::remove_file(path);
        }
    }
}

async fn open(path: &Path) -> Result<Engine, Failure> {
    // Without workers, `play` writes the due summaries after each message. So every run gives the same result.
    let opened = Engine::builder().workers(0).open(path).await;
    opened.map_err(|error| Failure::Failed(format!("cannot open {}: {error}", path.display())))
}

/// Removes the database files of an earlier demo. The ids in the new database then start at 1 again.
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

/// Returns the command that starts Epitome. If Cargo started this program, `epitome` may not be in the user's `PATH`.
fn program() -> &'static str {
    if std::env::var_os("CARGO").is_some() { "cargo run -q --" } else { "epitome" }
}

/// Returns whether the database contains an earlier demo; false if the database is empty. Returns an error if the
/// database contains anything that is not from a demo.
async fn contains_demo(engine: &Engine, path: &Path) -> Result<bool, Failure> {
    let made_by = Value::from(MADE_BY.1);
    let is_demo =
        |info: &SessionInfo| &*info.name == SESSION && info.metadata.get(MADE_BY.0) == Some(&made_by);
    let workspace = engine.workspace(WORKSPACE);
    let sessions = workspace.sessions(None, 2).await?;
    // The demo removes the whole file, so every workspace in the file is checked.
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
