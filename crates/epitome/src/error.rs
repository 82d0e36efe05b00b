//! Errors, grouped by what the caller should do next.

use crate::names::is_name;
use crate::settings::SettingsError;
use crate::store::StoreError;
use epitome_wire::DialectError;

/// Why a request failed. A failed request has changed nothing.
///
/// [`Error::remedy`] returns what the caller should do next.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request is invalid. Fix the request, because the same request will be refused again.
    #[error("{0}")]
    Invalid(String),
    /// The requested thing does not exist, or belongs to another tenant. Look for the right name.
    #[error("{what} not found{}{hint}", if hint.is_empty() { "" } else { "; " })]
    NotFound {
        /// What was requested.
        what: String,
        /// Why it may be missing, or what to request instead. Empty if neither is clear.
        hint: String,
    },
    /// The request contradicts the current state. Read the current state first.
    #[error("{0}")]
    Conflict(String),
    /// No model returned a summary. The current summary stays in use, and the worker will retry.
    #[error("no summary yet: {reason}; the worker will retry")]
    Model {
        /// The last error of the slot, in one line.
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

/// What the caller should do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Fix the request.
    FixRequest,
    /// Look for the right name.
    CheckName,
    /// Read the current state, and decide again.
    ReadState,
    /// Retry the same request later.
    Retry,
    /// Have an operator check the store.
    CheckStore,
    /// Open the engine again.
    Reopen,
}

impl Error {
    /// Returns what the caller should do about this error.
    ///
    /// ```
    /// # async fn try_it() -> Result<(), epitome::Error> {
    /// use epitome::{Engine, Remedy};
    ///
    /// let engine = Engine::memory().await?;
    /// let error = engine.session("missing").context(1_000).await.unwrap_err();
    /// assert_eq!((error.remedy(), error.to_string()), (Remedy::CheckName, "session `missing` not found".to_owned()));
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(try_it()).unwrap();
    /// ```
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Invalid(_) => Remedy::FixRequest,
            Self::NotFound { .. } => Remedy::CheckName,
            Self::Conflict(_) => Remedy::ReadState,
            Self::Model { .. } | Self::Busy(_) => Remedy::Retry,
            Self::Store(
                StoreError::Foreign { .. }
                | StoreError::Unreachable { .. }
                | StoreError::Empty { .. }
                | StoreError::Newer { .. },
            ) => Remedy::FixRequest,
            Self::Store(_) => Remedy::CheckStore,
            Self::Closed => Remedy::Reopen,
        }
    }

    pub(crate) fn invalid(what: impl std::fmt::Display) -> Self {
        Self::Invalid(what.to_string())
    }

    /// Returns the error for a thing that does not exist, without a hint.
    pub(crate) fn not_found(what: impl std::fmt::Display) -> Self {
        Self::NotFound { what: what.to_string(), hint: String::new() }
    }

    /// Returns the error for a session that does not exist, or whose name is invalid.
    pub(crate) fn no_session(name: &str) -> Self {
        let missing = || Self::not_found(format_args!("session `{name}`"));
        check_name("session", name).err().unwrap_or_else(missing)
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Busy | StoreError::Unavailable { .. } | StoreError::Migrating { .. } => {
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

/// Rejects a name that is empty, has more than 512 bytes, or contains control characters. The error contains `what` as
/// the name of the field.
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), Error> {
    if is_name(name) {
        return Ok(());
    }
    Err(Error::invalid(format!("{what}: a name has 1 to 512 bytes and no control characters")))
}
