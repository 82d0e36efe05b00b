//! As whom a model is asked: with a key of the settings, or with one that a caller lends.

use std::fmt;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use secrecy::{ExposeSecret, SecretString};

use super::fault::Fault;
use super::{Credentials, Wire, Wrong, anthropic};

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
    pub(super) fn headers(&self, wire: Wire) -> Result<HeaderMap, Fault> {
        let (key, needed, variable, setting) = match self {
            Self::Own { key, needed, variable, setting } => (key, *needed, variable, setting),
            Self::Lent(credentials) => return credentials.headers(wire),
        };
        let mut headers = HeaderMap::new();
        if wire == Wire::Anthropic {
            headers.insert("anthropic-version", HeaderValue::from_static(anthropic::VERSION));
        }
        let Some(key) = key else {
            if needed {
                let reason = format!("no key: the environment has no {variable} ({setting})");
                return Err(Fault::refused(Wrong::Key, &reason));
            }
            return Ok(headers);
        };
        let key = key.expose_secret().trim();
        let (name, value) = match wire {
            Wire::OpenAi | Wire::Responses => {
                (AUTHORIZATION.as_str(), HeaderValue::from_str(&format!("Bearer {key}")))
            }
            Wire::Anthropic => ("x-api-key", HeaderValue::from_str(key)),
        };
        let reason = "holds something that cannot be a key";
        let mut value = value.map_err(|_| Fault::refused(Wrong::Key, &format!("{variable} {reason}")))?;
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
