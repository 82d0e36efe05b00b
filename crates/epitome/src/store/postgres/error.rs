//! What went wrong, sorted by what to do next.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_postgres::error::SqlState;

use super::super::error::StoreError;
use super::PostgresOptions;
use crate::retry::jitter;

pub(in crate::store) use super::super::trouble::{Outcome, Trouble, nonsense, refused};

/// What the database answers to whoever writes while a file is moved into it.
const IS_MOVING: &str = "EP001";

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        sorted(&error)
    }
}

/// Nobody answered for so long.
pub(super) fn silent(time: Duration) -> Trouble {
    Trouble::Lost(format!("there was no answer for {} seconds", time.as_secs()))
}

/// What the database says, without what it says about rows: details and values may be anybody's words.
fn told(state: &SqlState, message: &str) -> String {
    // Messages of these classes name the server's own matters: who may come in, how many, what it is doing.
    let plain =
        ["08", "28", "3D", "53", "57", "25", "42501"].iter().any(|class| state.code().starts_with(class));
    if plain { message.to_owned() } else { format!("it answered with {}", state.code()) }
}

fn sorted(error: &tokio_postgres::Error) -> Trouble {
    let Some(said) = error.as_db_error() else {
        // Without a word of the database it is the way there that broke, or a value that is not of its kind.
        return match std::error::Error::source(error) {
            Some(source) if source.is::<std::io::Error>() => Trouble::Lost(source.to_string()),
            _ if error.is_closed() => Trouble::Lost("the connection was closed".to_owned()),
            _ => odd(error),
        };
    };
    let (state, reason) = (said.code(), told(said.code(), said.message()));
    match state.code() {
        "40001" | "40P01" => Trouble::Again,
        "23505" => Trouble::Taken,
        "53100" => Trouble::Full,
        "22023" => Trouble::Unfit,
        "57014" | "55P03" => Trouble::Slow,
        // Shutting down, starting up, out of connections, a standby that may only be read, a transaction it gave up.
        "57P01" | "57P02" | "57P03" | "57P05" | "25006" | "25P03" | "53300" | "53200" => {
            Trouble::Lost(reason)
        }
        IS_MOVING => Trouble::Moving,
        "26000" | "42P05" => Trouble::Nameless,
        "08P01" if said.message().starts_with("bind message") => Trouble::Nameless,
        code if code.starts_with("08") => Trouble::Lost(reason),
        // What another one in the same pipe made fail: that one tells.
        "25P02" => Trouble::Lost("the transaction was given up".to_owned()),
        "3D000" => refused(&format!(
            "{reason}; make it first, as with `createdb`: the tables in it are made by themselves"
        )),
        _ => refused(&reason),
    }
}

/// What went wrong when a database was connected to that is being opened. Where there is no safe way to it, since it does
/// not encrypt or is somebody else's, it will be no other in a while.
pub(super) fn connecting(error: &tokio_postgres::Error, place: &str) -> Trouble {
    let source = std::error::Error::source(error);
    let io = source.and_then(|source| source.downcast_ref::<std::io::Error>());
    let unsafe_way = match io.map(std::io::Error::get_ref) {
        Some(below) => below.is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>),
        None => error.as_db_error().is_none() && error.to_string().contains("TLS"),
    };
    if unsafe_way {
        let reason = reason_of(error);
        return Trouble::Said(StoreError::Unreachable { path: place.to_owned(), reason });
    }
    sorted(error)
}

/// Neither the network nor the database: what was read or sent does not fit.
fn odd(error: &tokio_postgres::Error) -> Trouble {
    // The library names the place of what it could not read, and no value.
    let text = error.to_string();
    if text.contains("deserializ") {
        nonsense("a stored value is not of its kind")
    } else if text.contains("serializ") {
        // The one thing a text may not have there.
        refused("a text has a character PostgreSQL cannot keep (U+0000)")
    } else if text.contains("connect") || text.contains("timed out") || text.contains("TLS") {
        Trouble::Lost(reason_of(error))
    } else {
        refused(&reason_of(error))
    }
}

/// An error with what lies below it.
pub(super) fn reason_of(error: &(dyn std::error::Error + 'static)) -> String {
    let mut reason = error.to_string();
    let mut below = error.source();
    while let Some(error) = below {
        let text = error.to_string();
        if !reason.contains(&text) {
            reason = format!("{reason}: {text}");
        }
        below = error.source();
    }
    reason
}

/// How often what seemed taken is looked at again.
const MOST_TAKEN: u32 = 5;

/// How long at most until the next try.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Tries of one thing: for how long, and how far apart.
pub(super) struct Tries<'a> {
    place: &'a str,
    until: Instant,
    pause: Duration,
    taken: u32,
    began: Instant,
    /// Who is told that a database that is opened is waited for; once.
    waits: Option<&'a (dyn Fn(&str) + Send + Sync)>,
}

/// So long a database that is opened is waited for in silence.
const IN_SILENCE: Duration = Duration::from_secs(1);

impl<'a> Tries<'a> {
    pub(super) fn new(place: &'a str, patience: Duration) -> Self {
        let began = Instant::now();
        Self { place, until: began + patience, pause: Duration::from_millis(5), taken: 0, began, waits: None }
    }

    /// Tries of opening it.
    pub(super) fn opening(place: &'a str, options: &'a PostgresOptions) -> Self {
        Self { waits: options.waits.as_deref(), ..Self::new(place, options.patience) }
    }

    /// When patience ends.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Waits until it is worth another try; gives the error when it is not.
    pub(super) async fn after(&mut self, trouble: Trouble) -> Result<(), StoreError> {
        if let Trouble::Lost(reason) = &trouble
            && self.began.elapsed() >= IN_SILENCE
            && let Some(tell) = self.waits.take()
        {
            tell(&format!("waiting for the database at {}: {reason}", self.place));
        }
        let again = match &trouble {
            Trouble::Lost(_) => true,
            Trouble::Again => {
                self.pause = self.pause.min(Duration::from_millis(20));
                true
            }
            Trouble::Taken => {
                self.taken += 1;
                self.taken < MOST_TAKEN
            }
            _ => false,
        };
        if !again || Instant::now() + self.pause > self.until {
            return Err(trouble.at(self.place));
        }
        // Not always as long: whoever failed together shall not all come back together.
        sleep(self.pause.mul_f64(0.5 + 0.5 * jitter())).await;
        self.pause = self.pause.saturating_mul(2).min(LONGEST_PAUSE);
        Ok(())
    }
}
