//! As whom a model is asked: with a key of the settings, or with one that a caller lends.

use std::fmt;

use epitome_wire::Dialect;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};

use super::fault::Fault;
use super::{Credentials, Wrong};

/// As whom it is asked.
pub(super) enum Key {
    /// As whoever set it up.
    Own {
        key: Option<SecretString>,
        /// Nobody gets asked without one.
        needed: bool,
        /// The environment's variable that holds the key.
        variable: String,
        /// The setting that names it.
        setting: String,
    },
    /// As the one whose request it is for.
    Lent(Credentials),
}

/// What may be said of a key.
pub(super) struct Known<'a> {
    /// Where it is from.
    pub(super) variable: &'a str,
    /// Where that is set.
    pub(super) setting: &'a str,
    pub(super) is_there: bool,
}

impl Key {
    /// The headers that show it.
    pub(super) fn headers(&self, dialect: Dialect) -> Result<HeaderMap, Fault> {
        let (key, needed, variable, setting) = match self {
            Self::Own { key, needed, variable, setting } => (key, *needed, variable, setting),
            Self::Lent(credentials) => return credentials.headers(dialect),
        };
        let endpoint = dialect.format().about().endpoint;
        let fixed = endpoint.map_or(&[][..], |endpoint| endpoint.headers).iter();
        let mut headers: HeaderMap = fixed
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        let Some(key) = key else {
            if needed {
                let reason = format!("no key: the environment has no {variable} ({setting})");
                return Err(Fault::refused(Wrong::Key, &reason));
            }
            return Ok(headers);
        };
        let (name, before) = endpoint.map_or(("authorization", "Bearer "), |endpoint| endpoint.key);
        let value = format!("{before}{}", key.expose_secret().trim());
        let reason = format!("{variable} holds something that cannot be a key");
        let mut value = HeaderValue::from_str(&value).map_err(|_| Fault::refused(Wrong::Key, &reason))?;
        value.set_sensitive(true);
        headers.insert(name, value);
        Ok(headers)
    }

    pub(super) fn known(&self) -> Known<'_> {
        match self {
            Self::Own { key, variable, setting, .. } => Known { variable, setting, is_there: key.is_some() },
            Self::Lent(_) => Known { variable: "the caller's request", setting: "", is_there: true },
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own { key, .. } => key.as_ref().map(|_| "[redacted]").fmt(f),
            Self::Lent(credentials) => credentials.fmt(f),
        }
    }
}
