//! Internal errors of stores. Unlike [`StoreError`], they contain neither the file's path nor the server's address.

use std::path::Path;

use super::error::StoreError;

/// The error for a column whose value has the wrong type.
pub(in crate::store) const WRONG_TYPE: &str = "a stored value has the wrong type";

/// An internal error, grouped by how the store reacts.
#[derive(Debug)]
pub(in crate::store) enum OpError {
    /// The server does not respond, or the connection broke. Nothing was written. The store retries until its time
    /// limit.
    ConnectionLost(String),
    /// A conflict with another writer. The store retries almost at once.
    Conflict,
    /// A unique key already exists, possibly because another writer was faster.
    DuplicateKey,
    /// Stored data is invalid.
    Damaged(String),
    /// The disk is full.
    DiskFull,
    /// A timeout, usually while waiting for a lock.
    Timeout,
    /// The database rejected a value as invalid.
    InvalidValue,
    /// A prepared statement does not exist, or its name belongs to another statement, because a pooler switched to
    /// another backend. Nothing was written.
    MissingStatement,
    /// A SQLite file is being migrated into the database. Nothing was written.
    Migrating,
    /// An error of SQLite.
    #[cfg(feature = "sqlite")]
    Sqlite(rusqlite::Error),
    /// An error that is returned to the caller without a retry.
    Final(StoreError),
}

pub(in crate::store) type OpResult<T> = Result<T, OpError>;

impl From<StoreError> for OpError {
    fn from(error: StoreError) -> Self {
        Self::Final(error)
    }
}

/// Returns the error for invalid stored data. `what` must not contain the data itself, which may be message text.
pub(in crate::store) fn damaged(what: impl Into<String>) -> OpError {
    OpError::Damaged(what.into())
}

/// Returns the error for an operation that the store rejects for this reason.
pub(in crate::store) fn rejected(reason: &str) -> OpError {
    OpError::Final(StoreError::Failed { reason: reason.to_owned() })
}

impl OpError {
    /// Converts this into the error for callers, which contains neither SQL nor values. `place` is the file's path or
    /// the server's address.
    pub(in crate::store) fn into_store_error(self, place: impl AsRef<Path>) -> StoreError {
        let place = place.as_ref().display().to_string();
        let failed = |reason: &str| StoreError::Failed { reason: reason.to_owned() };
        match self {
            Self::Final(error) => error,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(error) => sqlite_error::classify(&error, place),
            Self::ConnectionLost(reason) => StoreError::Unavailable { place, reason },
            Self::Conflict | Self::Timeout => StoreError::Busy,
            Self::DuplicateKey => failed("a stored row with this key or name already exists"),
            Self::Damaged(reason) => StoreError::Damaged { path: place, reason },
            Self::InvalidValue => failed("the database rejected a value"),
            Self::MissingStatement => failed("a prepared statement does not exist on this connection"),
            Self::Migrating => StoreError::Migrating { place },
            Self::DiskFull => StoreError::Full { path: place },
        }
    }

    /// Returns why stored data cannot be read. If the error has another cause, returns the error itself as `Err`.
    pub(in crate::store) fn damage_reason(self) -> OpResult<String> {
        match self {
            Self::Damaged(why) => Ok(why),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(error) => Ok(sqlite_error::code_name(&error).to_owned()),
            other => Err(other),
        }
    }
}

/// Interprets SQLite's errors.
#[cfg(feature = "sqlite")]
mod sqlite_error {
    use rusqlite::ErrorCode;

    use super::{OpError, StoreError, WRONG_TYPE};

    impl From<rusqlite::Error> for OpError {
        fn from(error: rusqlite::Error) -> Self {
            Self::Sqlite(error)
        }
    }

    /// Returns SQLite's name of the error, which contains neither SQL nor values.
    pub(super) fn code_name(error: &rusqlite::Error) -> &'static str {
        error.sqlite_error().map_or(WRONG_TYPE, |failure| rusqlite::ffi::code_to_str(failure.extended_code))
    }

    /// Converts SQLite's error into the error for callers.
    pub(super) fn classify(error: &rusqlite::Error, path: String) -> StoreError {
        let reason = code_name(error).to_owned();
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Busy,
            Some(ErrorCode::DiskFull) => StoreError::Full { path },
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => StoreError::ReadOnly { path, reason },
            Some(ErrorCode::CannotOpen) => StoreError::Unreachable { path, reason },
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                StoreError::Damaged { path, reason }
            }
            Some(_) => StoreError::Failed { reason },
            None => match error {
                rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::InvalidColumnType(..)
                | rusqlite::Error::IntegralValueOutOfRange(..) => StoreError::Damaged { path, reason },
                rusqlite::Error::QueryReturnedNoRows => {
                    StoreError::Damaged { path, reason: "a row is missing".to_owned() }
                }
                _ => StoreError::Failed { reason: "SQLite rejected a statement".to_owned() },
            },
        }
    }
}
