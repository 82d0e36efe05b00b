//! Errors, sorted by what the caller does next.

use crate::names::is_name;
use crate::settings::SettingsError;
use crate::store::StoreError;
use epitome_wire::DialectError;

/// Why a request failed. In this case nothing was changed.
///
/// Sorted by what the caller does next; [`Error::next`] returns that as a value.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request is wrong. Fix it: the same request will be refused again.
    #[error("{0}")]
    Invalid(String),
    /// The requested thing does not exist, or belongs to another tenant. Look for the right name.
    #[error("{what} not found")]
    NotFound {
        /// What was requested.
        what: String,
    },
    /// The request contradicts the current state. Read that first.
    #[error("{0}")]
    Conflict(String),
    /// No model returned a summary. The current summary stays in use, and the worker will retry.
    #[error("no summary yet: {reason}; the worker will retry")]
    Model {
        /// The last error.
        reason: String,
    },
    /// The store is busy, or does not answer now. Retry later.
    #[error(transparent)]
    Busy(StoreError),
    /// The store has a problem that an operator must fix. Data that was stored before is safe.
    #[error(transparent)]
    Store(StoreError),
    /// The engine was closed.
    #[error("the engine is closed")]
    Closed,
}

/// What to do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Fix the request.
    Mend,
    /// Look for the right name.
    Look,
    /// Read the current state, and decide again.
    Decide,
    /// Retry the same request later.
    Retry,
    /// Have an operator check the store.
    Repair,
    /// Open the engine again.
    Reopen,
}

impl Error {
    /// Returns what to do about it.
    ///
    /// ```
    /// # async fn try_it() -> Result<(), epitome::Error> {
    /// use epitome::{Engine, Next};
    ///
    /// let engine = Engine::memory().await?;
    /// let error = engine.session("missing").context(1_000).await.unwrap_err();
    /// assert_eq!((error.next(), error.to_string()), (Next::Look, "session `missing` not found".to_owned()));
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

    /// Returns the error for a session that does not exist, or whose name is invalid.
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

/// Rejects names that are empty, too long, or cannot be displayed.
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), Error> {
    if is_name(name) {
        return Ok(());
    }
    Err(Error::invalid(format!("{what}: a name has 1 to 512 bytes and no control characters")))
}
