//! What can go wrong, sorted by what the caller does next.

use crate::names::is_name;
use crate::settings::SettingsError;
use crate::store::StoreError;
use epitome_wire::DialectError;

/// Why something was not done. Nothing was changed then.
///
/// Sorted by what whoever called does next; [`Error::next`] says it in a word.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Mend the request: the same one will be refused again.
    #[error("{0}")]
    Invalid(String),
    /// There is no such thing, or it is somebody else's. Look for the right name.
    #[error("{what} not found")]
    NotFound {
        /// What was looked for.
        what: String,
    },
    /// It contradicts what stands. Look at that first.
    #[error("{0}")]
    Conflict(String),
    /// The model gave no summary. What stood stays, and it is tried again by itself.
    #[error("no summary yet: {reason}; it will be tried again")]
    Model {
        /// What went wrong last.
        reason: String,
    },
    /// The store is busy, or does not answer now. Do the same again a little later.
    #[error(transparent)]
    Busy(StoreError),
    /// The store is in trouble. Somebody has to look at it; what was kept before is safe.
    #[error(transparent)]
    Store(StoreError),
    /// The engine was closed.
    #[error("the engine is closed")]
    Closed,
}

/// What to do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Mend the request.
    Mend,
    /// Look for the right name.
    Look,
    /// See what stands there, and decide again.
    Decide,
    /// Do the same again a little later.
    Retry,
    /// Have somebody look at the store.
    Repair,
    /// Open it again.
    Reopen,
}

impl Error {
    /// What to do about it.
    ///
    /// ```
    /// # async fn try_it() -> Result<(), epitome::Error> {
    /// use epitome::{Engine, Next};
    ///
    /// let engine = Engine::memory().await?;
    /// let error = engine.session("nobody").context(1_000).await.unwrap_err();
    /// assert_eq!((error.next(), error.to_string()), (Next::Look, "session `nobody` not found".to_owned()));
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(try_it()).unwrap();
    /// ```
    pub fn next(&self) -> Next {
        match self {
            Self::Invalid(_) => Next::Mend,
            Self::NotFound { .. } => Next::Look,
            Self::Conflict(_) => Next::Decide,
            Self::Model { .. } | Self::Busy(_) => Next::Retry,
            Self::Store(
                StoreError::Foreign { .. }
                | StoreError::Unreachable { .. }
                | StoreError::Empty { .. }
                | StoreError::Newer { .. },
            ) => Next::Mend,
            Self::Store(_) => Next::Repair,
            Self::Closed => Next::Reopen,
        }
    }

    pub(crate) fn invalid(what: impl std::fmt::Display) -> Self {
        Self::Invalid(what.to_string())
    }

    /// There is none of this name, or there can be none.
    pub(crate) fn no_session(name: &str) -> Self {
        let missing = || Self::NotFound { what: format!("session `{name}`") };
        check_name("session", name).err().unwrap_or_else(missing)
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Busy | StoreError::Unavailable { .. } | StoreError::Moving { .. } => {
                Self::Busy(error)
            }
            StoreError::Closed => Self::Closed,
            _ => Self::Store(error),
        }
    }
}

impl From<DialectError> for Error {
    fn from(error: DialectError) -> Self {
        Self::invalid(error)
    }
}

impl From<SettingsError> for Error {
    fn from(error: SettingsError) -> Self {
        Self::invalid(error)
    }
}

/// Refuses names that cannot be told apart or shown.
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), Error> {
    if is_name(name) {
        return Ok(());
    }
    Err(Error::invalid(format!("{what}: a name has 1 to 512 bytes and no control characters")))
}
