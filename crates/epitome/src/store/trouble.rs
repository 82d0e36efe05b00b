//! What goes wrong inside of a store, before it is said where.

use std::path::Path;

use super::error::StoreError;

/// What is said of a column whose value is of another type.
pub(in crate::store) const NOT_OF_ITS_KIND: &str = "a stored value is not of its kind";

/// What goes wrong inside, sorted by what to do next.
#[derive(Debug)]
pub(in crate::store) enum Trouble {
    /// Nobody answers, or not any more. Nothing was written; it is worth trying again for as long as anybody waits.
    Lost(String),
    /// Another writer came between: to be done again at once.
    Again,
    /// What was to be written is there already, or so it seemed: another writer may have come between.
    Taken,
    /// What was read makes no sense.
    Nonsense(String),
    /// Nothing can be written for want of space.
    Full,
    /// It took too long, most often for want of a lock somebody holds.
    Slow,
    /// What was asked makes no sense there (any more).
    Unfit,
    /// A statement is not known by its name, or somebody else's is: it is not the same backend as before. Nothing was
    /// written.
    Nameless,
    /// A file is being moved into it. Nothing was written.
    Moving,
    /// SQLite says so.
    #[cfg(feature = "sqlite")]
    Sql(rusqlite::Error),
    /// It is over. What to tell.
    Said(StoreError),
}

pub(in crate::store) type Outcome<T> = Result<T, Trouble>;

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Said(error)
    }
}

/// Something stored that cannot be read. What stands there is not told: it may be anybody's words.
pub(in crate::store) fn nonsense(what: impl Into<String>) -> Trouble {
    Trouble::Nonsense(what.into())
}

/// What is not done, for this reason.
pub(in crate::store) fn refused(reason: &str) -> Trouble {
    Trouble::Said(StoreError::Failed { reason: reason.to_owned() })
}

impl Trouble {
    /// The error for callers. It tells neither SQL nor values.
    pub(in crate::store) fn at(self, place: impl AsRef<Path>) -> StoreError {
        let place = place.as_ref().display().to_string();
        let failed = |reason: &str| StoreError::Failed { reason: reason.to_owned() };
        match self {
            Self::Said(error) => error,
            #[cfg(feature = "sqlite")]
            Self::Sql(error) => of_sqlite::sorted(&error, place),
            Self::Lost(reason) => StoreError::Unavailable { place, reason },
            Self::Again | Self::Slow => StoreError::Busy,
            Self::Taken => failed("a place or name is taken"),
            Self::Nonsense(reason) => StoreError::Damaged { path: place, reason },
            Self::Unfit => failed("the database refuses a value"),
            Self::Nameless => failed("a statement is not known by its name"),
            Self::Moving => StoreError::Moving { place },
            Self::Full => StoreError::Full { path: place },
        }
    }

    /// Why something that is stored cannot be read; what has nothing to do with that is an error.
    pub(in crate::store) fn unreadable(self) -> Outcome<String> {
        match self {
            Self::Nonsense(why) => Ok(why),
            #[cfg(feature = "sqlite")]
            Self::Sql(error) => Ok(of_sqlite::said(&error).to_owned()),
            other => Err(other),
        }
    }
}

/// What SQLite's own errors mean.
#[cfg(feature = "sqlite")]
mod of_sqlite {
    use rusqlite::ErrorCode;

    use super::{NOT_OF_ITS_KIND, StoreError, Trouble};

    impl From<rusqlite::Error> for Trouble {
        fn from(error: rusqlite::Error) -> Self {
            Self::Sql(error)
        }
    }

    /// What SQLite calls it. It tells neither SQL nor values.
    pub(super) fn said(error: &rusqlite::Error) -> &'static str {
        error
            .sqlite_error()
            .map_or(NOT_OF_ITS_KIND, |failure| rusqlite::ffi::code_to_str(failure.extended_code))
    }

    /// The error for callers.
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
                _ => StoreError::Failed { reason: "a statement was not understood".to_owned() },
            },
        }
    }
}
