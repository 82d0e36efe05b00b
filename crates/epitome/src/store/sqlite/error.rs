//! What went wrong, sorted by what to do next.

use std::path::Path;

use rusqlite::ErrorCode;

use super::super::error::StoreError;

/// What goes wrong inside, before it is said where.
#[derive(Debug)]
pub(in crate::store) enum Trouble {
    /// The database says so.
    Sql(rusqlite::Error),
    /// What was read makes no sense.
    Nonsense(String),
    /// Said already.
    Said(StoreError),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Said(error)
    }
}

pub(super) type Outcome<T> = Result<T, Trouble>;

/// Something stored that cannot be read. What stands there is not told: it may be anybody's words.
pub(super) fn nonsense(what: impl Into<String>) -> Trouble {
    Trouble::Nonsense(what.into())
}

impl Trouble {
    /// The error for callers. It tells neither SQL nor values.
    pub(super) fn at(self, path: &Path) -> StoreError {
        let path = path.display().to_string();
        let error = match self {
            Self::Said(error) => return error,
            Self::Nonsense(reason) => return StoreError::Damaged { path, reason },
            Self::Sql(error) => error,
        };
        match error.sqlite_error() {
            Some(failure) => {
                let reason = rusqlite::ffi::code_to_str(failure.extended_code).to_owned();
                match failure.code {
                    ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => StoreError::Busy,
                    ErrorCode::DiskFull => StoreError::Full { path },
                    ErrorCode::ReadOnly | ErrorCode::PermissionDenied => {
                        StoreError::ReadOnly { path, reason }
                    }
                    ErrorCode::CannotOpen => StoreError::Unreachable { path, reason },
                    ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
                        StoreError::Damaged { path, reason }
                    }
                    _ => StoreError::Failed { reason },
                }
            }
            None => match error {
                rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::InvalidColumnType(..)
                | rusqlite::Error::IntegralValueOutOfRange(..) => {
                    StoreError::Damaged { path, reason: "a stored value is not of its kind".to_owned() }
                }
                rusqlite::Error::QueryReturnedNoRows => {
                    StoreError::Damaged { path, reason: "a row is missing".to_owned() }
                }
                _ => StoreError::Failed { reason: "a statement was not understood".to_owned() },
            },
        }
    }
}
