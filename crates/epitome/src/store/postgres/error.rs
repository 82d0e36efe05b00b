//! Classifies the database's errors by how the store reacts, and retries operations.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_postgres::error::SqlState;

use super::super::error::StoreError;
use super::PostgresOptions;
use crate::retry::jitter;

pub(in crate::store) use super::super::op_error::{OpError, OpResult, damaged, rejected};

/// The error code of a write that was refused because a file is being migrated into the database.
const MIGRATION_CODE: &str = "EP001";

impl From<tokio_postgres::Error> for OpError {
    fn from(error: tokio_postgres::Error) -> Self {
        classify(&error)
    }
}

/// Returns the error for a server that has not answered for this duration.
pub(super) fn no_answer(time: Duration) -> OpError {
    OpError::ConnectionLost(format!("there was no answer for {} seconds", time.as_secs()))
}

/// Returns the database's error message if it cannot contain stored data, otherwise only the error code. Other messages
/// may quote the text of stored messages.
fn safe_message(state: &SqlState, message: &str) -> String {
    // Messages of these classes are about the server itself: permissions, connection limits, its state.
    let is_safe =
        ["08", "28", "3D", "53", "57", "25", "42501"].iter().any(|class| state.code().starts_with(class));
    if is_safe { message.to_owned() } else { format!("the database returned error {}", state.code()) }
}

fn classify(error: &tokio_postgres::Error) -> OpError {
    let Some(db_error) = error.as_db_error() else {
        // An error that is not from the database: the connection broke, or a value has the wrong type.
        return match std::error::Error::source(error) {
            Some(source) if source.is::<std::io::Error>() => OpError::ConnectionLost(source.to_string()),
            _ if error.is_closed() => OpError::ConnectionLost("the connection was closed".to_owned()),
            _ => classify_client_error(error),
        };
    };
    let (state, reason) = (db_error.code(), safe_message(db_error.code(), db_error.message()));
    match state.code() {
        "40001" | "40P01" => OpError::Conflict,
        "23505" => OpError::DuplicateKey,
        "53100" => OpError::DiskFull,
        "22023" => OpError::InvalidValue,
        "57014" | "55P03" => OpError::Timeout,
        // The server is shutting down, is starting up, has no free connections or memory, is a read-only standby, or
        // has ended the transaction.
        "57P01" | "57P02" | "57P03" | "57P05" | "25006" | "25P03" | "53300" | "53200" => {
            OpError::ConnectionLost(reason)
        }
        MIGRATION_CODE => OpError::Migrating,
        "26000" | "42P05" => OpError::MissingStatement,
        "08P01" if db_error.message().starts_with("bind message") => OpError::MissingStatement,
        code if code.starts_with("08") => OpError::ConnectionLost(reason),
        // Another statement in the same message failed before this one. That statement's error is the one reported.
        "25P02" => OpError::ConnectionLost("the transaction was aborted".to_owned()),
        "3D000" => rejected(&format!(
            "{reason}; create the database first, for example with `createdb`; Epitome then creates its tables"
        )),
        _ => rejected(&reason),
    }
}

/// Classifies an error of a connection attempt while the store is opened. If no secure connection is possible, the
/// error is final. This happens if the server does not encrypt or its certificate is wrong.
pub(super) fn classify_connect_error(error: &tokio_postgres::Error, address_text: &str) -> OpError {
    let source = std::error::Error::source(error);
    let io = source.and_then(|source| source.downcast_ref::<std::io::Error>());
    let is_insecure = match io.map(std::io::Error::get_ref) {
        Some(below) => below.is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>),
        None => error.as_db_error().is_none() && error.to_string().contains("TLS"),
    };
    if is_insecure {
        let reason = reason_of(error);
        return OpError::Final(StoreError::Unreachable { path: address_text.to_owned(), reason });
    }
    classify(error)
}

/// Classifies an error that is from neither the network nor the database: a value cannot be read or sent.
fn classify_client_error(error: &tokio_postgres::Error) -> OpError {
    // The library's message contains the column's name, but no values.
    let text = error.to_string();
    if text.contains("deserializ") {
        damaged("a stored value has the wrong type")
    } else if text.contains("serializ") {
        // U+0000 is the only character that PostgreSQL refuses.
        rejected("a text contains U+0000, which PostgreSQL cannot store")
    } else if text.contains("connect") || text.contains("timed out") || text.contains("TLS") {
        OpError::ConnectionLost(reason_of(error))
    } else {
        rejected(&reason_of(error))
    }
}

/// Returns an error's message, followed by the messages of its sources.
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

/// Maximum number of attempts that may fail because a key already exists.
const MAX_DUPLICATE_KEYS: u32 = 5;

/// Longest pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// The retries of one operation: its deadline and its backoff.
pub(super) struct Retries<'a> {
    address_text: &'a str,
    until: Instant,
    pause: Duration,
    duplicate_keys: u32,
    began: Instant,
    /// Called once if the database does not answer while the store is opened.
    on_wait: Option<&'a (dyn Fn(&str) + Send + Sync)>,
}

/// How long the database must be unreachable, while the store is opened, before `on_wait` is called.
const REPORT_AFTER: Duration = Duration::from_secs(1);

impl<'a> Retries<'a> {
    pub(super) fn new(address_text: &'a str, patience: Duration) -> Self {
        let began = Instant::now();
        Self {
            address_text,
            until: began + patience,
            pause: Duration::from_millis(5),
            duplicate_keys: 0,
            began,
            on_wait: None,
        }
    }

    /// Returns the retries for opening the store.
    pub(super) fn opening(address_text: &'a str, options: &'a PostgresOptions) -> Self {
        Self { on_wait: options.on_wait.as_deref(), ..Self::new(address_text, options.patience) }
    }

    /// Returns the time after which the operation is not retried.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Waits until the next attempt. Returns the error if a retry cannot help, or if the deadline would pass before the
    /// next attempt.
    pub(super) async fn after(&mut self, error: OpError) -> Result<(), StoreError> {
        if let OpError::ConnectionLost(reason) = &error
            && self.began.elapsed() >= REPORT_AFTER
            && let Some(on_wait) = self.on_wait.take()
        {
            on_wait(&format!("waiting for the database at {}: {reason}", self.address_text));
        }
        let again = match &error {
            OpError::ConnectionLost(_) => true,
            OpError::Conflict => {
                self.pause = self.pause.min(Duration::from_millis(20));
                true
            }
            OpError::DuplicateKey => {
                self.duplicate_keys += 1;
                self.duplicate_keys < MAX_DUPLICATE_KEYS
            }
            _ => false,
        };
        if !again || Instant::now() + self.pause > self.until {
            return Err(error.into_store_error(self.address_text));
        }
        // Jitter: callers whose operations failed at the same time should not all retry at the same time.
        sleep(self.pause.mul_f64(0.5 + 0.5 * jitter())).await;
        self.pause = self.pause.saturating_mul(2).min(MAX_PAUSE);
        Ok(())
    }
}
