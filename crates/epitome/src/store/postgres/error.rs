//! Sorts the database's errors by what to do next.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_postgres::error::SqlState;

use super::super::error::StoreError;
use super::PostgresOptions;
use crate::retry::jitter;

pub(in crate::store) use super::super::trouble::{Outcome, Trouble, nonsense, refused};

/// The error code of a write while a file is being moved into the database.
const IS_MOVING: &str = "EP001";

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        sorted(&error)
    }
}

/// Returns the error for a missing answer after this time.
pub(super) fn silent(time: Duration) -> Trouble {
    Trouble::Lost(format!("there was no answer for {} seconds", time.as_secs()))
}

/// Returns the database's message if it cannot contain stored data, otherwise only its code. Details and values may
/// contain any message text.
fn told(state: &SqlState, message: &str) -> String {
    // Messages of these classes are about the server itself: permissions, connection limits, its state.
    let plain =
        ["08", "28", "3D", "53", "57", "25", "42501"].iter().any(|class| state.code().starts_with(class));
    if plain { message.to_owned() } else { format!("it returned error {}", state.code()) }
}

fn sorted(error: &tokio_postgres::Error) -> Trouble {
    let Some(said) = error.as_db_error() else {
        // An error that is not from the database: the connection broke, or a value has the wrong type.
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
        // Shutting down, starting up, out of connections, a read-only standby, a transaction that the database ended.
        "57P01" | "57P02" | "57P03" | "57P05" | "25006" | "25P03" | "53300" | "53200" => {
            Trouble::Lost(reason)
        }
        IS_MOVING => Trouble::Moving,
        "26000" | "42P05" => Trouble::Nameless,
        "08P01" if said.message().starts_with("bind message") => Trouble::Nameless,
        code if code.starts_with("08") => Trouble::Lost(reason),
        // Another statement in the same message failed, and its error is reported.
        "25P02" => Trouble::Lost("the transaction was aborted".to_owned()),
        "3D000" => refused(&format!(
            "{reason}; create it first, for example with `createdb`; Epitome creates its tables"
        )),
        _ => refused(&reason),
    }
}

/// Sorts an error of a connection attempt while the store is opened. If no secure connection is possible, because the
/// server does not encrypt or its certificate is wrong, a retry cannot help.
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

/// Sorts an error that is from neither the network nor the database: a value cannot be read or sent.
fn odd(error: &tokio_postgres::Error) -> Trouble {
    // The library's message names the column, and no value.
    let text = error.to_string();
    if text.contains("deserializ") {
        nonsense("a stored value has the wrong type")
    } else if text.contains("serializ") {
        // U+0000 is the only character that PostgreSQL refuses.
        refused("a text contains U+0000, which PostgreSQL cannot store")
    } else if text.contains("connect") || text.contains("timed out") || text.contains("TLS") {
        Trouble::Lost(reason_of(error))
    } else {
        refused(&reason_of(error))
    }
}

/// Returns an error's message with those of its sources.
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

/// Maximum number of tries that may fail because a key exists already.
const MOST_TAKEN: u32 = 5;

/// Longest pause before the next try.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The retries of one operation: its deadline and its backoff.
pub(super) struct Tries<'a> {
    place: &'a str,
    until: Instant,
    pause: Duration,
    taken: u32,
    began: Instant,
    /// Called once if the database does not answer while it is opened.
    waits: Option<&'a (dyn Fn(&str) + Send + Sync)>,
}

/// How long to wait for a database that is being opened before `waits` is called.
const IN_SILENCE: Duration = Duration::from_secs(1);

impl<'a> Tries<'a> {
    pub(super) fn new(place: &'a str, patience: Duration) -> Self {
        let began = Instant::now();
        Self { place, until: began + patience, pause: Duration::from_millis(5), taken: 0, began, waits: None }
    }

    /// Returns the retries for opening the store.
    pub(super) fn opening(place: &'a str, options: &'a PostgresOptions) -> Self {
        Self { waits: options.waits.as_deref(), ..Self::new(place, options.patience) }
    }

    /// Returns the deadline.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Waits until the next try. Returns the error if another try makes no sense, or the deadline would pass.
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
        // Jitter: callers that failed together should not all retry together.
        sleep(self.pause.mul_f64(0.5 + 0.5 * jitter())).await;
        self.pause = self.pause.saturating_mul(2).min(LONGEST_PAUSE);
        Ok(())
    }
}
