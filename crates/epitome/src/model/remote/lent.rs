//! Models that are asked with somebody else's key, while their own request is open.
//!
//! Whoever forwards requests may have summaries written by the very model that is asked anyway, at the caller's cost and in the
//! caller's name. The key is held for as long as the [`Remote`] that was made with it, shown nowhere, and overwritten when it is
//! let go of.

use std::fmt;
use std::sync::Arc;

use super::http::Line;
use super::key::{Credentials, Key};
use super::{Remote, address};
use crate::settings::{ModelSettings, Provider, SettingsError};
use epitome_wire::Dialect;

/// A provider whose callers lend their keys: made once, since it holds the way there.
///
/// ```
/// use epitome::Dialect;
/// use epitome::model::{Credentials, Lender, Model};
///
/// let lender = Lender::new(Dialect::ANTHROPIC, "https://api.anthropic.com/v1")?;
/// let model = lender.lend("claude-sonnet-4-5", Credentials::of([("x-api-key", "sk-very-secret")]));
/// assert_eq!(model.name(), "claude-sonnet-4-5");
/// assert!(!format!("{model:?}").contains("secret"));
/// # Ok::<(), epitome::settings::SettingsError>(())
/// ```
pub struct Lender {
    dialect: Dialect,
    line: Arc<Line>,
    /// What is usual for models that nobody set anything for.
    usual: ModelSettings,
}

impl Lender {
    /// For requests of this dialect, at this address, up to and with the version. Each is asked on the route its own
    /// requests go to. Our own dialect is spoken by no provider, and taken for chat.
    ///
    /// Refused is what is no address, or holds a password.
    pub fn new(dialect: Dialect, base_url: &str) -> Result<Self, SettingsError> {
        let spoken = dialect.format().about().endpoint.is_some();
        let dialect = if spoken { dialect } else { Dialect::OPENAI };
        let usual = ModelSettings::new(Provider::OpenAi, "");
        let url = address(base_url, dialect)
            .map_err(|problem| SettingsError::Wrong { key: "base_url".to_owned(), problem })?;
        Ok(Self { dialect, line: Arc::new(Line::new(url, usual.timeout)), usual })
    }

    /// The model that the caller asks for, asked as they ask it.
    #[must_use]
    pub fn lend(&self, model: &str, credentials: Credentials) -> Remote {
        let provider = format!("{}, with the key of caller {}", self.line.origin(), credentials.caller());
        let settings = ModelSettings { model: model.to_owned(), ..self.usual.clone() };
        Remote::made(&settings, self.dialect, Arc::clone(&self.line), Key::Lent(credentials), provider)
    }
}

impl fmt::Debug for Lender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lender").field("address", &self.line.address()).finish_non_exhaustive()
    }
}
