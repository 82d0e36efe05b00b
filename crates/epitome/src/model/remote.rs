//! Defines models that are called over a network.
//!
//! The crate `epitome-wire` writes requests and reads responses in the provider's format. A response arrives as a whole
//! or as a stream. The module `call_error` interprets failures. The module `endpoint` sends requests, and limits the
//! time and the size of responses. [`Lender`] creates models that use a caller's key.
//!
//! This module does not retry failed calls. The worker decides whether and when to retry, and with which model.
//! [`epitome_core::inspect`] decides whether a text is accepted. This module only reports how an answer ended, and
//! never reports an incomplete answer as complete.
//!
//! Error messages of providers are never included in errors or logs, because they may quote prompts and keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use epitome_core::inspect::Finish;
use epitome_core::message::Tokens;
use epitome_core::prompt::PromptError;
use epitome_core::slot::Limit;
use reqwest::Url;
use secrecy::SecretString;
use serde_json::Value;

use super::{Local, Model, ModelError, Reply, SummaryRequest};
use crate::settings::{ModelSettings, Provider, Settings, SettingsError};
use crate::table;
use epitome_wire::{Answer, Dialect, ErrorText, PartialAnswer, Question, ReadStatus, SseParser, TokenUsage};

mod api_key;
mod call_error;
mod endpoint;

use api_key::{ApiKey, variable};
pub use api_key::{Credentials, Lender};
use call_error::CallError;
pub use endpoint::install_tls;
use endpoint::{Endpoint, Incomplete, OpenResponse};

/// Maximum size of a prompt if the model's window is unknown, in tokens.
const UNKNOWN_ROOM: Tokens = 100_000;

/// Initial number of output tokens that a call allows in addition to the size of the summary. Most models need them to
/// reason before they write.
const HEADROOM: Tokens = 4_096;

/// Maximum number of output tokens that a call allows in addition to the size of the summary. After each answer that
/// was cut off, the number doubles until it reaches this maximum.
const MAX_HEADROOM: Tokens = 32_768;

/// Minimum for a window that is read from a provider's error message, in tokens. A quarter of the configured window is
/// also a minimum. The message is a text for people, so the window in it may be wrong.
const MIN_WINDOW: Tokens = 2_000;

/// Maximum output reserve in tokens, if the window is configured and the output reserve is not.
const MAX_RESERVE: Tokens = 16_384;

/// Time that the caller of a model waits in addition to the model's own timeout. Therefore the model's own timeout ends
/// the call first, and the error contains the reason.
const CALLER_GRACE: Duration = Duration::from_secs(5);

/// Maximum length of the text that is returned for an answer that was cut off, in characters. This text is not stored.
const MAX_PARTIAL_CHARS: usize = 1_000;

/// Maximum size in bytes of a text whose tokens are counted. For a longer text, the number of tokens is estimated.
const MAX_COUNTED_BYTES: usize = 64 << 10;

/// The prompt that checks whether a model answers.
const CHECK_PROMPT: &str = "Reply with the word: ready";

/// Maximum output of a check, in tokens. One word is not enough for models that reason before they answer.
const CHECK_TOKENS: Tokens = 1_024;

/// A configured model that is called over a network.
///
/// This value contains the API key and never shows it. A missing key is an error only when the model is called.
/// Therefore a program that never calls the model needs no key.
///
/// ```
/// use epitome::model::{Model, Remote};
/// use epitome::settings::{ModelSettings, Provider};
///
/// let settings = ModelSettings::new(Provider::OPENAI, "gpt-5-mini");
/// let model = Remote::from_env("cheap", &settings)?;
/// assert_eq!((model.name(), model.provider()), ("gpt-5-mini", "https://api.openai.com"));
/// assert_eq!(model.room(), Some(272_000)); // from the table of models
///
/// let own = ModelSettings {
///     base_url: Some("http://127.0.0.1:11434/v1".to_owned()),
///     window: Some(32_768),
///     output_reserve: Some(4_096),
///     ..ModelSettings::new(Provider::OPENAI, "llama3.1")
/// };
/// assert_eq!(Remote::new("own", &own, None)?.room(), Some(28_672));
/// # Ok::<(), epitome::settings::SettingsError>(())
/// ```
#[derive(Debug)]
pub struct Remote {
    /// The settings of the model. If the window or the output reserve is not set, the value from the table of models is
    /// used.
    settings: ModelSettings,
    dialect: Dialect,
    endpoint: Arc<Endpoint>,
    key: ApiKey,
    /// The name by which circuit breakers identify the provider.
    provider: String,
    /// The smallest window that the provider has reported, in tokens. The initial value is `Tokens::MAX`. A larger
    /// reported window does not change it. If a prompt does not fit this window, the value is reset, so that a wrong
    /// number has no permanent effect.
    reported_window: AtomicU64,
    /// Number of output tokens that a call allows in addition to the size of the summary. It grows when answers are cut
    /// off.
    headroom: AtomicU64,
    /// Providers have different parameter names for the output limit. This is the index of the name that the provider
    /// accepted last.
    limit: AtomicUsize,
}

/// Returns the URL of the endpoint of `dialect` under this base URL.
fn address(base: &str, dialect: Dialect) -> Result<Url, String> {
    let base = base.trim_end_matches('/');
    let parse = |url: &str| {
        let url = Url::parse(url).map_err(|error| format!("is not a URL: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err("must begin with http:// or https://".to_owned());
        }
        // Errors show the URL, so the URL must not contain a password.
        if !url.username().is_empty() || url.password().is_some() {
            return Err("must contain no user and no password".to_owned());
        }
        Ok(url)
    };
    let route = dialect.format().about().endpoint.map_or("", |endpoint| endpoint.route);
    parse(base).and_then(|_| parse(&format!("{base}/{route}")))
}

/// The result of a check: the model answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckReport {
    /// The provider's name for the model.
    pub model: String,
    /// How long the call took, in milliseconds.
    pub millis: u64,
    /// Whether the answer was empty. The model may have used its whole output for reasoning.
    pub empty: bool,
}

/// Why a model did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct CheckError {
    /// What must be fixed.
    pub cause: FailureCause,
    /// Short description of the failure. It contains no secrets, so it may be recorded.
    pub reason: String,
}

/// What must be fixed if a model does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureCause {
    /// The key: it is missing, not accepted, or has no credit.
    Key,
    /// The address: no server answers there, or the wrong server.
    Address,
    /// The model's name.
    Model,
    /// Another cause. The failure may disappear by itself.
    Other,
}

/// Checks every configured network model: sends a short prompt to all of them at the same time. Returns the name and
/// the result of each model. Models of the provider `local` are left out, because they always work.
///
/// ```
/// # async fn try_it() -> Result<(), epitome::settings::SettingsError> {
/// use epitome::model::{FailureCause, check};
/// use epitome::settings::{Patch, Settings};
///
/// let patch = Patch::parse(r#"{"models": {"own": {
///     "provider": "openai", "model": "llama3.1", "base_url": "http://127.0.0.1:1/v1", "timeout": "2s"
/// }}}"#)?;
/// let results = check(&Settings::default().with(&patch)?).await;
/// let (name, result) = &results[0];
/// assert_eq!((name.as_str(), result.as_ref().unwrap_err().cause), ("own", FailureCause::Address));
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(try_it()).unwrap();
/// ```
pub async fn check(settings: &Settings) -> Vec<(String, Result<CheckReport, CheckError>)> {
    let remote = settings.models.iter().filter(|(_, model)| model.provider != Provider::Local);
    let begun: Vec<_> = remote
        .map(|(name, model)| {
            let remote = Remote::from_env(name, model)
                .map_err(|error| CheckError { cause: FailureCause::Address, reason: error.to_string() });
            (name.clone(), tokio::spawn(async move { remote?.check().await }))
        })
        .collect();
    let mut results = Vec::new();
    for (name, task) in begun {
        let stopped =
            |_| Err(CheckError { cause: FailureCause::Other, reason: "the check was stopped".to_owned() });
        results.push((name, task.await.unwrap_or_else(stopped)));
    }
    results
}

/// Returns the model that the settings describe. The model's key comes from the environment.
pub(crate) fn of_settings(name: &str, settings: &ModelSettings) -> Result<Arc<dyn Model>, SettingsError> {
    match settings.provider {
        Provider::Local => Ok(Arc::new(Local)),
        Provider::Remote(_) => Ok(Arc::new(Remote::from_env(name, settings)?)),
    }
}

impl Remote {
    /// Creates the model that has the name `name` in the settings, with this key.
    ///
    /// Returns an error if the provider is `local`, or if the URL is invalid or contains a password.
    pub fn new(
        name: &str,
        settings: &ModelSettings,
        key: Option<SecretString>,
    ) -> Result<Self, SettingsError> {
        let invalid = |key: &str, problem: &str| SettingsError::new(format!("models.{name}.{key}"), problem);
        let Some(dialect) = settings.provider.dialect() else {
            return Err(invalid("provider", "`local` is built in and has no network address"));
        };
        let base = settings.base_url.as_deref().unwrap_or(settings.provider.base_url());
        let url = address(base, dialect).map_err(|problem| invalid("base_url", &problem))?;
        let endpoint = Arc::new(Endpoint::new(url, settings.timeout));
        let key = ApiKey::own(name, settings, dialect, key);
        let provider = endpoint.origin.clone();
        Ok(Self::build(settings.clone(), dialect, endpoint, key, provider))
    }

    fn build(
        settings: ModelSettings,
        dialect: Dialect,
        endpoint: Arc<Endpoint>,
        key: ApiKey,
        provider: String,
    ) -> Self {
        let listed = table::find(&settings.model);
        // Selects the first parameter name for the output limit. The provider that defined the format requires the
        // newest name. Other servers may support only the oldest name.
        let about = dialect.format().about();
        let own = about.endpoint.and_then(|endpoint| Url::parse(endpoint.base_url).ok());
        let newest = about.limit_names.len().saturating_sub(1);
        let limit = if endpoint.url.host_str() == own.as_ref().and_then(Url::host_str) { newest } else { 0 };
        Self {
            settings: ModelSettings {
                window: settings.window.or(listed.map(|listed| listed.window)),
                output_reserve: settings.output_reserve.or(listed.map(|listed| listed.output_reserve)),
                ..settings
            },
            dialect,
            endpoint,
            key,
            provider,
            reported_window: AtomicU64::new(Tokens::MAX),
            headroom: AtomicU64::new(HEADROOM),
            limit: AtomicUsize::new(limit),
        }
    }

    /// Creates the model with a key from an environment variable: the variable that the setting `key_env` names or, by
    /// default, the provider's usual variable. If a base URL is set, the usual variable is not used, because it
    /// contains the key of another provider.
    pub fn from_env(name: &str, settings: &ModelSettings) -> Result<Self, SettingsError> {
        let named = settings.base_url.is_none() || settings.key_env.is_some();
        let key = std::env::var(variable(settings)).ok().filter(|_| named).map(SecretString::from);
        Self::new(name, settings, key)
    }

    /// Calls the model with a short prompt. If the model does not answer, the error contains what must be fixed.
    pub async fn check(&self) -> Result<CheckReport, CheckError> {
        let started = Instant::now();
        let max_output = self.reserve().map_or(CHECK_TOKENS, |reserve| reserve.min(CHECK_TOKENS));
        let question = self.question("", CHECK_PROMPT, 16, max_output);
        match self.send(&question).await {
            Ok((answer, None)) => Ok(CheckReport {
                model: self.settings.model.clone(),
                millis: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
                empty: answer.text.trim().is_empty(),
            }),
            Ok((_, Some(incomplete))) => {
                Err(CheckError { cause: FailureCause::Other, reason: incomplete.to_string() })
            }
            Err(CallError { error, cause }) => {
                let reason = match error {
                    ModelError::Refused { reason } | ModelError::NoAnswer { reason } => reason,
                    ModelError::Busy { .. } | ModelError::TooLong { .. } => error.to_string(),
                };
                Err(CheckError { cause, reason })
            }
        }
    }

    fn question<'a>(
        &'a self,
        system: &'a str,
        user: &'a str,
        tokens: Tokens,
        max_output: Tokens,
    ) -> Question<'a> {
        let ModelSettings { model, stream, .. } = &self.settings;
        Question { model, system, user, tokens, max_output, limit_field: "", stream: *stream }
    }

    /// Returns the model's window in tokens, from the settings, the table of models, or the provider's errors. `None`
    /// if none of these contains the window.
    fn window(&self) -> Option<Tokens> {
        let reported = self.reported_window.load(Ordering::Relaxed);
        match self.settings.window {
            Some(window) => Some(window.min(reported)),
            None => (reported < Tokens::MAX).then_some(reported),
        }
    }

    /// Returns how many tokens of the window are reserved for output. This is at most half of the window, so that the
    /// rest is available for the prompt.
    fn reserve(&self) -> Option<Tokens> {
        let window = self.window();
        let usual = window.map(|window| (window / 4).min(MAX_RESERVE));
        let reserve = self.settings.output_reserve.or(usual)?;
        Some(window.map_or(reserve, |window| reserve.min(window / 2)).max(1))
    }

    /// Returns the maximum output for a summary of this size, in tokens.
    fn max_output(&self, limit: Limit) -> Tokens {
        // Assumes at most one token for each character.
        let (Limit::Tokens(size) | Limit::Chars(size)) = limit;
        let max = size.saturating_mul(2).saturating_add(self.headroom.load(Ordering::Relaxed));
        self.reserve().map_or(max, |reserve| max.min(reserve))
    }

    /// Sends one question, and returns the answer, which may be cut off. If the provider rejects the parameter name for
    /// the output limit, sends the question again with another name.
    async fn send(&self, question: &Question<'_>) -> Result<(Answer, Option<Incomplete>), CallError> {
        let format = self.dialect.format();
        let names = format.about().limit_names;
        let first = self.limit.load(Ordering::Relaxed);
        let mut error = CallError::refused(FailureCause::Other, "the format has no output limit");
        for (at, limit) in names.iter().copied().enumerate().cycle().skip(first).take(names.len()) {
            let body = format.request_body(&Question { limit_field: limit, ..*question });
            let mut response = self.endpoint.post(self.key.headers(self.dialect)?, body.to_string()).await?;
            if response.status == 200 {
                let answer = self.read_answer(&mut response, question).await?;
                self.limit.store(at, Ordering::Relaxed);
                return Ok(answer);
            }
            let error_text = ErrorText::read(&response.error().await);
            error = self.call_error(response.status, &error_text, response.retry_after, question);
            if response.status != 400 || !error_text.rejects_field(limit) {
                break;
            }
        }
        Err(error)
    }

    /// Reads an answer to its end.
    async fn read_answer(
        &self,
        response: &mut OpenResponse<'_>,
        question: &Question<'_>,
    ) -> Result<(Answer, Option<Incomplete>), CallError> {
        if response.is_stream() {
            return self.read_stream(response, question).await;
        }
        let body = response
            .body()
            .await
            .map_err(|incomplete| CallError::no_answer(FailureCause::Other, &incomplete.to_string()))?;
        let Ok(body) = serde_json::from_slice::<Value>(&body) else {
            // An HTML page probably comes from the wrong server.
            let html = body.trim_ascii_start().starts_with(b"<");
            let (cause, what) =
                if html { (FailureCause::Address, "a web page") } else { (FailureCause::Other, "not JSON") };
            return Err(CallError::no_answer(
                cause,
                &format!("the answer is {what}; no text could be read from it"),
            ));
        };
        let mut partial = PartialAnswer::default();
        match partial.read_body(self.dialect, &body) {
            ReadStatus::Done => Ok((partial.answer(), None)),
            ReadStatus::Failed(error_text) => Err(self.error_in_answer(&error_text, question)),
            _ if body.get("error").is_some_and(|error| !error.is_null()) => {
                Err(self.error_in_answer(&body, question))
            }
            _ => Err(CallError::no_answer(FailureCause::Other, "the answer is JSON of an unexpected shape")),
        }
    }

    /// Reads a stream of events to its end. If the stream ends too early, returns the part that arrived, because this
    /// part may contain the token counts of the call.
    async fn read_stream(
        &self,
        response: &mut OpenResponse<'_>,
        question: &Question<'_>,
    ) -> Result<(Answer, Option<Incomplete>), CallError> {
        let (mut events, mut partial, mut status) =
            (SseParser::default(), PartialAnswer::default(), ReadStatus::Continue);
        let incomplete = loop {
            let bytes = response.next().await;
            let read = |event: &[u8]| {
                if status == ReadStatus::Continue {
                    status = partial.read_event(self.dialect, event);
                }
            };
            let incomplete = match bytes {
                Ok(Some(bytes)) => {
                    events.push(&bytes, read);
                    None
                }
                Ok(None) => {
                    events.finish(read);
                    Some(Incomplete::Broken)
                }
                Err(incomplete) => Some(incomplete),
            };
            match status {
                ReadStatus::Continue if incomplete.is_none() => {}
                ReadStatus::Continue => break incomplete,
                ReadStatus::Done => break None,
                ReadStatus::Failed(error_text) => return Err(self.error_in_answer(&error_text, question)),
                ReadStatus::Unexpected => {
                    let reason = "the stream contains an unexpected event";
                    return Err(CallError::no_answer(FailureCause::Other, reason));
                }
            }
        };
        let answer = partial.answer();
        // If the stop reason arrived, the text is complete, even if the stream is incomplete.
        let incomplete = incomplete.filter(|_| !answer.complete);
        Ok((answer, incomplete))
    }

    /// Interprets an error that arrived in the body of a successful response.
    fn error_in_answer(&self, body: &Value, question: &Question<'_>) -> CallError {
        let error_text = ErrorText::of(body);
        self.call_error(error_text.status().unwrap_or(500), &error_text, None, question)
    }

    /// Interprets an error response. If the response contains the model's window, stores the window.
    fn call_error(
        &self,
        status: u16,
        error_text: &ErrorText,
        wait: Option<Duration>,
        question: &Question<'_>,
    ) -> CallError {
        let error = self.interpret(status, error_text, wait, question.tokens);
        if let ModelError::TooLong { sent, limit: Some(limit) } = error.error {
            // Converts the window from the provider's tokens to local tokens, if the provider counts more tokens than
            // the local counter. The provider may have counted the output reserve, too. Therefore the conversion
            // reduces the window to half at most.
            let counted = sent.max(1);
            let ours = question.tokens.clamp(counted / 2, counted);
            let window = u128::from(limit) * u128::from(ours) / u128::from(counted);
            let least = MIN_WINDOW.max(self.settings.window.unwrap_or(0) / 4);
            let window = Tokens::try_from(window).unwrap_or(limit).max(least);
            self.reported_window.fetch_min(window, Ordering::Relaxed);
        }
        error
    }

    /// Returns the reply for an answer that did not arrive completely. The reply contains the token counts of the call.
    /// If the provider reported no token counts, returns an error. The text is marked as cut off. It is shortened, so
    /// that it is not mistaken for a text that reached the limit of the summary.
    fn cut_short(
        &self,
        request: &SummaryRequest,
        answer: &Answer,
        incomplete: Incomplete,
    ) -> Result<Reply, ModelError> {
        let Some(usage) = answer.usage else { return Err(ModelError::no_answer(&incomplete.to_string())) };
        let chars = match request.limit {
            Limit::Tokens(_) => MAX_PARTIAL_CHARS,
            Limit::Chars(chars) => usize::try_from(chars).unwrap_or(MAX_PARTIAL_CHARS).min(MAX_PARTIAL_CHARS),
        };
        let text: String = answer.text.chars().take(chars).collect();
        // The provider reports the final count of output tokens at the end of an answer, and this end did not arrive.
        let counted = match answer.text.len() {
            0..MAX_COUNTED_BYTES => request.counter.text(&answer.text),
            bytes => bytes as Tokens / 4,
        };
        let output = usage.output.max(counted);
        Ok(Reply {
            text,
            finish: Finish::Length,
            usage: Some(TokenUsage { output, ..usage }),
            extracts: None,
        })
    }
}

#[async_trait]
impl Model for Remote {
    fn name(&self) -> &str {
        &self.settings.model
    }

    fn room(&self) -> Option<Tokens> {
        let window = self.window()?;
        Some(window.saturating_sub(self.reserve().unwrap_or(0)))
    }

    fn provider(&self) -> &str {
        &self.provider
    }

    fn timeout(&self) -> Option<Duration> {
        Some(self.settings.timeout.saturating_add(CALLER_GRACE))
    }

    fn reusable(&self) -> bool {
        // An answer that one caller paid for is not returned to another caller.
        !self.key.of_caller
    }

    async fn write(&self, request: &SummaryRequest) -> Result<Reply, ModelError> {
        // If a required key is missing, no prompt is built.
        self.key.headers(self.dialect).map_err(|error| error.error)?;
        let room = self.room().unwrap_or(UNKNOWN_ROOM);
        let own = request.clone();
        // Counting a megabyte takes long enough to delay other tasks, so this runs in a thread for blocking work.
        let prompt = tokio::task::spawn_blocking(move || own.prompt(room)).await;
        let prompt = match prompt.map_err(|_| ModelError::no_answer("building the prompt failed"))? {
            Ok(prompt) => prompt,
            Err(PromptError::NoRoom { needed, room }) => {
                self.reported_window.store(Tokens::MAX, Ordering::Relaxed);
                return Err(ModelError::TooLong { sent: needed, limit: Some(room) });
            }
            Err(_) => return Err(ModelError::TooLong { sent: request.replaces, limit: Some(room) }),
        };
        let question =
            self.question(&prompt.system, &prompt.user, prompt.tokens, self.max_output(request.limit));
        let (answer, incomplete) = self.send(&question).await.map_err(|error| error.error)?;
        if let Some(incomplete) = incomplete {
            return self.cut_short(request, &answer, incomplete);
        }
        if answer.finish == Finish::Length {
            // The model may have reasoned for too long. The next call allows more output.
            let more = |room: Tokens| Some(room.saturating_mul(2).min(MAX_HEADROOM));
            let _ = self.headroom.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        }
        Ok(Reply { text: answer.text, finish: answer.finish, usage: answer.usage, extracts: None })
    }
}

#[cfg(test)]
mod tests;
