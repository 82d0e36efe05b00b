//! As whom a model is asked: with a key of the settings, or with one that a caller lends.
//!
//! Whoever forwards requests may have summaries written by the very model that is asked anyway, at the caller's cost and in the
//! caller's name. The key is held for as long as the [`Remote`] that was made with it, shown nowhere, and overwritten when it is
//! let go of.

use std::fmt;
use std::sync::{Arc, LazyLock};

use epitome_wire::Dialect;
use reqwest::header::{HeaderMap, HeaderValue};
use secrecy::{ExposeSecret, SecretString};

use super::fault::Fault;
use super::http::Line;
use super::{Remote, Wrong, address};
use crate::settings::{ModelSettings, Provider, SettingsError};

/// Callers of one provider are told apart by so many numbers, where it fails: whose key is wrong shall be left alone, and nobody
/// else, and there shall not be one number for every key that was ever tried.
const CALLERS: u64 = 256;

/// What a caller says of who they are: the headers of a request that a provider knows them by.
///
/// ```
/// use epitome::model::Credentials;
///
/// let headers = [("Authorization", "Bearer sk-very-secret"), ("cookie", "a=b"), ("openai-project", "p1")];
/// let lent = Credentials::of(headers);
/// assert_eq!(format!("{lent:?}"), r#"Credentials(["authorization", "openai-project"])"#);
/// ```
#[derive(Clone, Default)]
pub struct Credentials(Vec<(&'static str, SecretString)>);

impl Credentials {
    /// Those among the headers of a request. All others are left out.
    pub fn of<'a>(headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let endpoints = Dialect::all().into_iter().filter_map(|dialect| dialect.format().about().endpoint);
        let names = endpoints.flat_map(|endpoint| [&[endpoint.key.0], endpoint.credentials].concat());
        let names: Vec<&'static str> = names.collect();
        let known = |(name, value): (&str, &str)| {
            let name = names.iter().find(|known| known.eq_ignore_ascii_case(name))?;
            Some((*name, SecretString::from(value)))
        };
        Self(headers.into_iter().filter_map(known).collect())
    }

    /// A number that callers hardly share, and that says nothing of their keys.
    pub(super) fn caller(&self) -> u64 {
        /// Another in every process.
        static SEED: LazyLock<[u8; 32]> = LazyLock::new(|| {
            let mut seed = [0; 32];
            // Where there is no chance, callers are told apart all the same.
            let _ = getrandom::fill(&mut seed);
            seed
        });
        let mut hash = blake3::Hasher::new_keyed(&SEED);
        for (name, value) in &self.0 {
            hash.update(name.as_bytes()).update(&[0]).update(value.expose_secret().as_bytes()).update(&[0]);
        }
        let number = hash.finalize().as_bytes().first_chunk().copied().unwrap_or_default();
        u64::from_le_bytes(number) % CALLERS
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|(name, _)| *name).collect();
        f.debug_tuple("Credentials").field(&names).finish()
    }
}

/// As whom it is asked.
#[derive(Debug)]
pub(super) struct Key {
    /// What shows it.
    pub(super) shown: Credentials,
    /// The environment's variable that holds it, or where else it is from.
    pub(super) variable: String,
    /// The setting that names the variable.
    pub(super) setting: String,
    /// No request is sent without one.
    pub(super) needed: bool,
    /// Whether it is the caller's.
    pub(super) lent: bool,
}

impl Key {
    /// The key of whoever set the model up, where there is one.
    pub(super) fn own(
        name: &str,
        settings: &ModelSettings,
        dialect: Dialect,
        key: Option<SecretString>,
    ) -> Self {
        let (header, before) =
            dialect.format().about().endpoint.map_or(("authorization", "Bearer "), |it| it.key);
        let key = key.filter(|key| !key.expose_secret().trim().is_empty());
        let shown = key.map(|key| (header, format!("{before}{}", key.expose_secret().trim()).into()));
        Self {
            shown: Credentials(shown.into_iter().collect()),
            variable: variable(settings).to_owned(),
            setting: format!("models.{name}.key_env"),
            needed: settings.base_url.is_none() || settings.key_env.is_some(),
            lent: false,
        }
    }

    pub(super) fn is_there(&self) -> bool {
        self.lent || !self.shown.0.is_empty()
    }

    /// The headers that show it, and those that the provider wants of everybody.
    pub(super) fn headers(&self, dialect: Dialect) -> Result<HeaderMap, Fault> {
        let Self { variable, setting, .. } = self;
        if self.needed && !self.is_there() {
            let reason = format!("no key: the environment has no {variable} ({setting})");
            return Err(Fault::refused(Wrong::Key, &reason));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &self.shown.0 {
            let mut value = HeaderValue::from_str(value.expose_secret()).map_err(|_| {
                let reason = if self.lent {
                    format!("the caller's header {name} holds something that cannot be sent")
                } else {
                    format!("{variable} holds something that cannot be a key")
                };
                Fault::refused(Wrong::Key, &reason)
            })?;
            value.set_sensitive(true);
            headers.append(*name, value);
        }
        let endpoint = dialect.format().about().endpoint;
        for (name, value) in endpoint.map_or(&[][..], |endpoint| endpoint.headers) {
            headers.entry(*name).or_insert(HeaderValue::from_static(value));
        }
        Ok(headers)
    }
}

/// Where a key is that is not lent.
pub(super) fn variable(settings: &ModelSettings) -> &str {
    settings.key_env.as_deref().unwrap_or(settings.provider.key_env())
}

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
#[derive(Debug)]
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
        let usual = ModelSettings::new(Provider::OPENAI, "");
        let url = address(base_url, dialect).map_err(|problem| SettingsError::wrong("base_url", problem))?;
        Ok(Self { dialect, line: Arc::new(Line::new(url, usual.timeout)), usual })
    }

    /// The model that the caller asks for, asked as they ask it.
    pub fn lend(&self, model: &str, credentials: Credentials) -> Remote {
        let provider = format!("{}, with the key of caller {}", self.line.origin, credentials.caller());
        let settings = ModelSettings { model: model.to_owned(), ..self.usual.clone() };
        let key = Key {
            shown: credentials,
            variable: "the caller's request".to_owned(),
            setting: String::new(),
            needed: false,
            lent: true,
        };
        Remote::made(settings, self.dialect, Arc::clone(&self.line), key, provider)
    }
}
