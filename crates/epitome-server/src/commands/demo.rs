//! `epitome demo`: a long conversation condensed before your eyes.
//!
//! It plays [`story`] into a database of its own, message by message, with the built-in summarizer; then it asks that
//! database for the conversation in several sizes and shows what it got. Every figure is counted in that run, by
//! [`play`]; how they look is [`look`]'s matter. All but the durations is the same every time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use epitome::core::message::Tokens;
use epitome::{Engine, Session};
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::show::Show;

mod look;
mod play;
mod story;

use look::Screen;
use play::{Found, Size, Written};

const EXAMPLES: &str = "\
Examples:
  epitome demo                        ten seconds in a terminal
  epitome demo --fast --tokens 2000   no pauses; what contexts of 2,000 tokens would save
  epitome demo --json --db demo.db    everything as one object, and the database kept there

It needs no key, no server and no network: summaries are written by the built-in model. The database
stays (epitome-demo.db in the temporary folder), so that the other commands can be tried on it; the
next demo replaces it, but never a file that is not a demo's.";

/// A long conversation condensed before your eyes
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// No pauses
    #[arg(long)]
    fast: bool,
    /// The size of the contexts whose savings are counted
    #[arg(long, value_name = "N", default_value_t = 4_000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    tokens: Tokens,
}

/// The session's name.
const SESSION: &str = "demo";

/// What a demo's session says of itself, so that only such a database is replaced.
const MADE_BY: (&str, &str) = ("made_by", "epitome demo");

pub(super) async fn run(args: &Args, db: Option<&str>, show: &mut Show) -> Result<(), Failure> {
    let path = match db {
        Some(given) => PathBuf::from(given.strip_prefix("sqlite:").unwrap_or(given)),
        None => std::env::temp_dir().join("epitome-demo.db"),
    };
    make_room(&path).await?;
    let engine = open(&path).await?;
    let session = engine.session(SESSION);
    session.set_metadata(Map::from_iter([(MADE_BY.0.to_owned(), Value::from(MADE_BY.1))])).await?;
    let done = tell(args, &session, &path, show).await;
    engine.close().await;
    done
}

/// Plays it, and shows each thing when it is there.
async fn tell(args: &Args, session: &Session, path: &Path, show: &mut Show) -> Result<(), Failure> {
    let messages = story::messages();
    let json = show.json;
    let mut screen = Screen::new(show, args.fast || json, json);
    screen.opening(&messages)?;
    let played = play::play(session, messages, args.tokens, &mut screen).await?;
    screen.played(&played)?;
    screen.pause(Duration::from_millis(900)).await?;
    let sizes = play::sizes(session).await?;
    screen.sizes(&sizes, played.tokens)?;
    screen.pause(Duration::from_millis(1_200)).await?;
    let facts = play::facts(session, &sizes).await?;
    screen.facts(&facts, &sizes)?;
    screen.pause(Duration::from_millis(1_200)).await?;
    let one = play::one_summary(session).await?;
    screen.summary(&one)?;
    screen.pause(Duration::from_millis(1_200)).await?;
    screen.savings(&played.savings)?;
    screen.pause(Duration::from_millis(900)).await?;
    screen.next(path, SESSION)?;
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

async fn open(path: &Path) -> Result<Engine, Failure> {
    // No workers: summaries are written between two messages, so that each demo is like the other.
    let opened = Engine::builder().workers(0).open(path).await;
    opened.map_err(|error| Failure::Failed(format!("no demo database at {}: {error}", path.display())))
}

/// Takes away the database of an earlier demo. Anything else that is there is left alone, and is an error.
async fn make_room(path: &Path) -> Result<(), Failure> {
    let refuse = |why: &str| {
        let path = path.display();
        Failure::Failed(format!("{path} {why}; nothing was changed: give another place with --db"))
    };
    match std::fs::metadata(path) {
        Err(_) => return Ok(()),
        Ok(there) if !there.is_file() => return Err(refuse("is no file")),
        Ok(there) if there.len() == 0 => return Ok(()),
        Ok(_) => {}
    }
    let engine = Engine::builder().workers(0).open(path).await;
    let engine = engine.map_err(|error| refuse(&format!("is not a demo's database ({error})")))?;
    let ours = is_ours(&engine).await;
    engine.close().await;
    if !ours? {
        return Err(refuse("holds more than a demo"));
    }
    for end in ["", "-wal", "-shm"] {
        let mut file = path.as_os_str().to_owned();
        file.push(end);
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(refuse(&format!("cannot be removed ({error})")));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether a database holds a demo's session and nothing else.
async fn is_ours(engine: &Engine) -> Result<bool, Failure> {
    let mut sessions = engine.workspace("default").sessions(None, 2).await?;
    let (one, more) = (sessions.pop(), sessions.pop());
    let made_by = |info: &epitome::SessionInfo| info.metadata.get(MADE_BY.0) == Some(&Value::from(MADE_BY.1));
    Ok(more.is_none() && one.is_none_or(|info| &*info.name == SESSION && made_by(&info)))
}

