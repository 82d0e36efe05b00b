//! The API key of a model call. The key belongs to the operator who configured the model, or a caller lends it.
//!
//! A proxy may let the model that a client calls also write the summaries, with the client's key and at the client's
//! cost. Such a key stays in memory only as long as the [`Remote`] that was created with the key. The key is never
//! shown. When the key is dropped, its memory is overwritten.

use std::fmt;
use std::sync::{Arc, LazyLock};

use epitome_wire::Dialect;
use reqwest::header::{HeaderMap, HeaderValue};
use secrecy::{ExposeSecret, SecretString};

use super::call_error::CallError;
use super::endpoint::Endpoint;
use super::{FailureCause, Remote, address};
use crate::settings::{ModelSettings, Provider, SettingsError};

/// Number of groups into which the callers of one provider are divided by a hash. Circuit breakers treat each group as
/// a separate provider. Therefore a wrong key does not block the callers of other groups, and the number of circuit
/// breakers stays small even if callers try many keys.
const CALLER_GROUPS: u64 = 256;

/// A caller's credentials: the request headers by which a provider identifies the caller.
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
    /// Takes the credentials from the headers of a request. Leaves out all other headers.
    pub fn of<'a>(headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let endpoints = Dialect::all().into_iter().filter_map(|dialect| dialect.format().about().endpoint);
        let names = endpoints.flat_map(|endpoint| [&[endpoint.key.0], endpoint.credentials].concat());
        let names: Vec<&'static str> = names.collect();
        let credential = |(name, value): (&str, &str)| {
            let name = names.iter().find(|header| header.eq_ignore_ascii_case(name))?;
            Some((*name, SecretString::from(value)))
        };
        Self(headers.into_iter().filter_map(credential).collect())
    }

    /// Returns the caller's group: a number that few callers share, and that reveals nothing about their keys.
    pub(super) fn caller_group(&self) -> u64 {
        /// Different in every process.
        static SEED: LazyLock<[u8; 32]> = LazyLock::new(|| {
            let mut seed = [0; 32];
            // If the system provides no random data, the seed is zero. Callers are still distinguished.
            let _ = getrandom::fill(&mut seed);
            seed
        });
        let mut hash = blake3::Hasher::new_keyed(&SEED);
        for (name, value) in &self.0 {
            hash.update(name.as_bytes()).update(&[0]).update(value.expose_secret().as_bytes()).update(&[0]);
        }
        let number = hash.finalize().as_bytes().first_chunk().copied().unwrap_or_default();
        u64::from_le_bytes(number) % CALLER_GROUPS
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|(name, _)| *name).collect();
        f.debug_tuple("Credentials").field(&names).finish()
    }
}

/// How a call authenticates.
#[derive(Debug)]
pub(super) struct ApiKey {
    /// The headers with the key.
    pub(super) credentials: Credentials,
    /// The source of the key, for error messages: the name of an environment variable, or a description of another
    /// source.
    pub(super) variable: String,
    /// The setting that names the variable.
    pub(super) setting: String,
    /// Whether a key is required. If so, no request is sent without a key.
    pub(super) required: bool,
    /// Whether a caller lent the key.
    pub(super) of_caller: bool,
}

impl ApiKey {
    /// Returns the key of the operator who configured the model, if there is one.
    pub(super) fn own(
        name: &str,
        settings: &ModelSettings,
        dialect: Dialect,
        key: Option<SecretString>,
    ) -> Self {
        let (header, before) =
            dialect.format().about().endpoint.map_or(("authorization", "Bearer "), |it| it.key);
        let key = key.filter(|key| !key.expose_secret().trim().is_empty());
        let header = key.map(|key| (header, format!("{before}{}", key.expose_secret().trim()).into()));
        Self {
            credentials: Credentials(header.into_iter().collect()),
            variable: variable(settings).to_owned(),
            setting: format!("models.{name}.key_env"),
            required: settings.base_url.is_none() || settings.key_env.is_some(),
            of_caller: false,
        }
    }

    pub(super) fn is_present(&self) -> bool {
        self.of_caller || !self.credentials.0.is_empty()
    }

    /// Returns the headers that contain the key, and the headers that the provider requires in every request.
    pub(super) fn headers(&self, dialect: Dialect) -> Result<HeaderMap, CallError> {
        let Self { variable, setting, .. } = self;
        if self.required && !self.is_present() {
            let reason = format!("no key: environment variable {variable} is not set (setting: {setting})");
            return Err(CallError::refused(FailureCause::Key, &reason));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &self.credentials.0 {
            let mut value = HeaderValue::from_str(value.expose_secret()).map_err(|_| {
                let reason = if self.of_caller {
                    format!("the caller's header {name} contains an invalid character")
                } else {
                    format!("{variable} contains an invalid character")
                };
                CallError::refused(FailureCause::Key, &reason)
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

/// Returns the environment variable that contains the key of a configured model.
pub(super) fn variable(settings: &ModelSettings) -> &str {
    settings.key_env.as_deref().unwrap_or(settings.provider.key_env())
}

/// A provider whose callers lend their keys. Create one lender for each provider and reuse it, because the lender owns
/// the HTTP client and the client's connections.
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
    endpoint: Arc<Endpoint>,
    /// The settings that all lent models have in common.
    settings: ModelSettings,
}

impl Lender {
    /// Creates a lender for requests in this dialect. `base_url` includes the API version, for example `/v1`. Calls go
    /// to the route of the dialect. The Epitome dialect has no provider, so its calls use OpenAI's chat completions
    /// instead.
    ///
    /// Returns an error if the base URL is invalid or contains a password.
    pub fn new(dialect: Dialect, base_url: &str) -> Result<Self, SettingsError> {
        let has_provider = dialect.format().about().endpoint.is_some();
        let dialect = if has_provider { dialect } else { Dialect::OPENAI };
        let settings = ModelSettings::new(Provider::OPENAI, "");
        let url = address(base_url, dialect).map_err(|problem| SettingsError::new("base_url", problem))?;
        Ok(Self { dialect, endpoint: Arc::new(Endpoint::new(url, settings.timeout)), settings })
    }

    /// Returns the model that the caller requests. It uses the caller's credentials.
    pub fn lend(&self, model: &str, credentials: Credentials) -> Remote {
        let provider =
            format!("{}, with the key of caller {}", self.endpoint.origin, credentials.caller_group());
        let settings = ModelSettings { model: model.to_owned(), ..self.settings.clone() };
        let key = ApiKey {
            credentials,
            variable: "the caller's request".to_owned(),
            setting: String::new(),
            required: false,
            of_caller: true,
        };
        Remote::build(settings, self.dialect, Arc::clone(&self.endpoint), key, provider)
    }
}
