//! Internal errors of stores, without the path or server that [`StoreError`] names.

use std::path::Path;

use super::error::StoreError;

/// The error for a column whose value has the wrong type.
pub(in crate::store) const NOT_OF_ITS_KIND: &str = "a stored value has the wrong type";

/// An internal error, grouped by how the store reacts.
#[derive(Debug)]
pub(in crate::store) enum Trouble {
    /// The server does not respond, or the connection broke. Nothing was written. Retried for as long as the caller waits.
    Lost(String),
    /// A conflict with another writer. Retried at once.
    Again,
    /// A unique key already exists, possibly because another writer was faster.
    Taken,
    /// Stored data is invalid.
    Nonsense(String),
    /// The disk is full.
    Full,
    /// A timeout, usually while waiting for a lock.
    Slow,
    /// The database rejected a value as invalid.
    Unfit,
    /// A prepared statement does not exist, or its name belongs to another one: a pooler switched to another backend.
    /// Nothing was written.
    Nameless,
    /// A SQLite file is being migrated into the database. Nothing was written.
    Moving,
    /// An error of SQLite.
    #[cfg(feature = "sqlite")]
    Sql(rusqlite::Error),
    /// A final error for the caller.
    Said(StoreError),
}

pub(in crate::store) type Outcome<T> = Result<T, Trouble>;

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Said(error)
    }
}

/// Reports stored data that is invalid. The error must not contain the data itself, which may be message text.
pub(in crate::store) fn nonsense(what: impl Into<String>) -> Trouble {
    Trouble::Nonsense(what.into())
}

/// Rejects an operation for this reason.
pub(in crate::store) fn refused(reason: &str) -> Trouble {
    Trouble::Said(StoreError::Failed { reason: reason.to_owned() })
}

impl Trouble {
    /// Converts this into the error for callers, which contains neither SQL nor values.
    pub(in crate::store) fn at(self, place: impl AsRef<Path>) -> StoreError {
        let place = place.as_ref().display().to_string();
        let failed = |reason: &str| StoreError::Failed { reason: reason.to_owned() };
        match self {
            Self::Said(error) => error,
            #[cfg(feature = "sqlite")]
            Self::Sql(error) => of_sqlite::sorted(&error, place),
            Self::Lost(reason) => StoreError::Unavailable { place, reason },
            Self::Again | Self::Slow => StoreError::Busy,
            Self::Taken => failed("a stored row with this key or name already exists"),
            Self::Nonsense(reason) => StoreError::Damaged { path: place, reason },
            Self::Unfit => failed("the database rejected a value"),
            Self::Nameless => failed("a prepared statement does not exist on this connection"),
            Self::Moving => StoreError::Moving { place },
            Self::Full => StoreError::Full { path: place },
        }
    }

    /// Returns why stored data cannot be read, or the error itself if it has another cause.
    pub(in crate::store) fn unreadable(self) -> Outcome<String> {
        match self {
            Self::Nonsense(why) => Ok(why),
            #[cfg(feature = "sqlite")]
            Self::Sql(error) => Ok(of_sqlite::said(&error).to_owned()),
            other => Err(other),
        }
    }
}

/// Interprets SQLite's errors.
#[cfg(feature = "sqlite")]
mod of_sqlite {
    use rusqlite::ErrorCode;

    use super::{NOT_OF_ITS_KIND, StoreError, Trouble};

    impl From<rusqlite::Error> for Trouble {
        fn from(error: rusqlite::Error) -> Self {
            Self::Sql(error)
        }
    }

    /// Returns SQLite's name of the error, which contains neither SQL nor values.
    pub(super) fn said(error: &rusqlite::Error) -> &'static str {
        error
            .sqlite_error()
            .map_or(NOT_OF_ITS_KIND, |failure| rusqlite::ffi::code_to_str(failure.extended_code))
    }

    /// Converts SQLite's error into the error for callers.
    pub(super) fn sorted(error: &rusqlite::Error, path: String) -> StoreError {
        let reason = said(error).to_owned();
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
