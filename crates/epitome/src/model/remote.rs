//! Models that are asked over a network.
//!
//! What is sent and what is taken of what comes back, whole or streamed, is the matter of a provider's format in
//! `epitome-wire`. What failures mean stands in `fault`; `http` bounds it all in time and size; [`Lender`] asks with a caller's key.
//!
//! A call is made once. Whether it is made again, when, and of whom, is the worker's matter; whether a text
//! may be kept is [`epitome_core::inspect`]'s. Only what an answer says of its own end is taken from here,
//! and what did not come to its end is never told as whole.
//!
//! What providers say in the words of their errors is not repeated anywhere: they quote prompts and keys.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use epitome_core::inspect::Finish;
use epitome_core::message::Tokens;
use epitome_core::prompt::PromptError;
use epitome_core::slot::Limit;
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::{Ask, Local, Model, ModelError, Reply};
use crate::settings::{ModelSettings, Provider, Settings, SettingsError};
use crate::table;
use epitome_wire::{Answer, Dialect, ErrorText, Events, Hearing, Question, Tally, Then};

mod fault;
mod http;
mod key;

use fault::{Asked, Fault, fault};
pub use http::speak_tls;
use http::{Call, Cut, Line};
use key::Key;
pub use key::{Credentials, Lender};

/// How large a prompt may be where nobody knows the model's window.
const UNKNOWN_ROOM: Tokens = 100_000;

/// How much more than the summary a model may write at first: most of them reason before they write.
const HEADROOM: Tokens = 4_096;

/// How much at last, after answers that came to no end.
const MOST_HEADROOM: Tokens = 32_768;

/// No provider is believed to have a smaller window, nor one of less than a quarter of what is known of it: what
/// it says is read of words that were meant for people.
const LEAST_WINDOW: Tokens = 2_000;

/// The most that is kept free for an answer where only the window is known.
const MOST_RESERVE: Tokens = 16_384;

/// Whoever waits for a call waits so much longer, so that it is told here what went wrong.
const GRACE: Duration = Duration::from_secs(5);

/// So much is shown of an answer that broke off, in characters. Nobody keeps it.
const SHOWN: usize = 1_000;

/// What is longer than this is not counted but guessed, in bytes.
const COUNTED: usize = 64 << 10;

/// What is asked to see whether anybody answers.
const TRIAL: &str = "Reply with the word: ready";

/// How much may be written to a trial; models that reason first need more than a word.
const TRIAL_TOKENS: Tokens = 1_024;

/// A model of the settings, asked over a network.
///
/// It holds its key and never shows it. A key that is missing is no error until the model is asked, so that a
/// program which only reads needs none.
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
pub struct Remote {
    model: String,
    dialect: Dialect,
    line: Arc<Line>,
    key: Key,
    /// Whom it is asked of, as whoever counts failures knows them.
    provider: String,
    stream: bool,
    timeout: Duration,
    window: Option<Tokens>,
    reserve: Option<Tokens>,
    /// The smallest window the provider has told of. It never grows; where it leaves no room to ask anything, it
    /// is forgotten, so that a number that was wrong does no harm for ever.
    told: AtomicU64,
    /// How much more than the summary it may write. It grows when answers come to no end.
    headroom: AtomicU64,
    /// Which of the names of the limit is used.
    limit: AtomicUsize,
}

/// Where a format is spoken.
fn address(base: &str, dialect: Dialect) -> Result<Url, String> {
    let base = base.trim_end_matches('/');
    let sound = |url: &str| {
        let url = Url::parse(url).map_err(|error| format!("is no address: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err("must begin with http:// or https://".to_owned());
        }
        // Addresses are shown in errors, and passwords must not be.
        if !url.username().is_empty() || url.password().is_some() {
            return Err("must hold no user and no password".to_owned());
        }
        Ok(url)
    };
    let route = dialect.format().about().endpoint.map_or("", |endpoint| endpoint.route);
    sound(base).and_then(|_| sound(&format!("{base}/{route}")))
}

/// A model that answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// What the provider calls it.
    pub model: String,
    /// How long it took.
    pub millis: u64,
    /// Whether it answered without a word. It may have used all it was given to reason.
    pub empty: bool,
}

/// Why a model did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct CheckError {
    /// What is to be mended.
    pub what: Wrong,
    /// What happened, in a few words, fit to be recorded.
    pub reason: String,
}

/// What may be said of a key.
struct Known<'a> {
    /// Where it is from.
    variable: &'a str,
    /// Where that is set.
    setting: &'a str,
    is_there: bool,
}

/// What is to be mended when a model does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// The key: it is missing, not accepted, or has no credit.
    Key,
    /// The address: nobody is there, or somebody else.
    Address,
    /// The model's name.
    Model,
    /// Something else; it may pass by itself.
    Other,
}

/// Asks every model of the settings that is reached over a network for a word, all at the same time, and
/// tells by name how it went. Models of the provider `local` are always there and are left out.
///
/// ```
/// # async fn try_it() -> Result<(), epitome::settings::SettingsError> {
/// use epitome::model::{Wrong, check};
/// use epitome::settings::{Patch, Settings};
///
/// let patch = Patch::parse(r#"{"models": {"own": {
///     "provider": "openai", "model": "llama3.1", "base_url": "http://127.0.0.1:1/v1", "timeout": "2s"
/// }}}"#)?;
/// let found = check(&Settings::default().with(&patch)?).await;
/// let (name, result) = &found[0];
/// assert_eq!((name.as_str(), result.as_ref().unwrap_err().what), ("own", Wrong::Address));
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(try_it()).unwrap();
/// ```
pub async fn check(settings: &Settings) -> Vec<(String, Result<Checked, CheckError>)> {
    let remote = settings.models.iter().filter(|(_, model)| model.provider != Provider::Local);
    let begun: Vec<_> = remote
        .map(|(name, model)| {
            let made = Remote::from_env(name, model);
            let checking = async move {
                let made =
                    made.map_err(|error| CheckError { what: Wrong::Address, reason: error.to_string() });
                made?.check().await
            };
            (name.clone(), tokio::spawn(checking))
        })
        .collect();
    let mut found = Vec::new();
    for (name, task) in begun {
        let stopped = |_| Err(CheckError { what: Wrong::Other, reason: "the check was stopped".to_owned() });
        found.push((name, task.await.unwrap_or_else(stopped)));
    }
    found
}

/// The model that settings describe, with its key from the environment.
pub(crate) fn of_settings(name: &str, settings: &ModelSettings) -> Result<Arc<dyn Model>, SettingsError> {
    match settings.provider {
        Provider::Local => Ok(Arc::new(Local)),
        Provider::Remote(_) => Ok(Arc::new(Remote::from_env(name, settings)?)),
    }
}

impl Remote {
    /// The model that settings call `name`, with this key.
    ///
    /// Refused are settings that name no model over a network, no address, or one that holds a password.
    pub fn new(
        name: &str,
        settings: &ModelSettings,
        key: Option<SecretString>,
    ) -> Result<Self, SettingsError> {
        let wrong =
            |key: &str, problem: String| SettingsError::wrong(format!("models.{name}.{key}"), problem);
        let Some(dialect) = settings.provider.dialect() else {
            let problem = "`local` is built in, and not asked over a network";
            return Err(wrong("provider", problem.to_owned()));
        };
        let base = settings.base_url.as_deref().unwrap_or(settings.provider.base_url());
        let url = address(base, dialect).map_err(|problem| wrong("base_url", problem))?;
        let line = Arc::new(Line::new(url, settings.timeout));
        let key = Key::Own {
            key: key.filter(|key| !key.expose_secret().trim().is_empty()),
            needed: settings.base_url.is_none() || settings.key_env.is_some(),
            variable: variable(settings).to_owned(),
            setting: format!("models.{name}.key_env"),
        };
        let provider = line.origin.clone();
        Ok(Self::made(settings, dialect, line, key, provider))
    }

    fn made(settings: &ModelSettings, dialect: Dialect, line: Arc<Line>, key: Key, provider: String) -> Self {
        let known = table::find(&settings.model);
        // Those who made it speak the newest name; everybody else knows the oldest one.
        let own = dialect.format().about().endpoint.and_then(|endpoint| Url::parse(endpoint.base_url).ok());
        let newest = dialect.format().about().limit_names.len().saturating_sub(1);
        let limit = if line.url.host_str() == own.as_ref().and_then(Url::host_str) { newest } else { 0 };
        Self {
            model: settings.model.clone(),
            dialect,
            line,
            key,
            provider,
            stream: settings.stream,
            timeout: settings.timeout,
            window: settings.window.or(known.map(|known| known.window)),
            reserve: settings.output_reserve.or(known.map(|known| known.output_reserve)),
            told: AtomicU64::new(Tokens::MAX),
            headroom: AtomicU64::new(HEADROOM),
            limit: AtomicUsize::new(limit),
        }
    }

    /// The same, with the key that the environment holds under `key_env`, or under the provider's usual name. Whoever
    /// is asked at an address of one's own gets no key that is not named: the usual one is somebody else's.
    pub fn from_env(name: &str, settings: &ModelSettings) -> Result<Self, SettingsError> {
        let named = settings.base_url.is_none() || settings.key_env.is_some();
        let key = std::env::var(variable(settings)).ok().filter(|_| named).map(SecretString::from);
        Self::new(name, settings, key)
    }

    /// Asks for one word, and says what is wrong where none comes.
    pub async fn check(&self) -> Result<Checked, CheckError> {
        let started = Instant::now();
        let most = self.reserve().map_or(TRIAL_TOKENS, |reserve| reserve.min(TRIAL_TOKENS));
        let question = self.question("", TRIAL, 16, most);
        match self.ask(&question).await {
            Ok((answer, None)) => Ok(Checked {
                model: self.model.clone(),
                millis: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
                empty: answer.text.trim().is_empty(),
            }),
            Ok((_, Some(cut))) => Err(CheckError { what: Wrong::Other, reason: cut.to_string() }),
            Err(Fault { error, wrong, .. }) => {
                let reason = match error {
                    ModelError::Refused { reason } | ModelError::NoAnswer { reason } => reason,
                    ModelError::Busy { .. } | ModelError::TooLong { .. } => error.to_string(),
                };
                Err(CheckError { what: wrong, reason })
            }
        }
    }

    fn question<'a>(&'a self, system: &'a str, user: &'a str, tokens: Tokens, most: Tokens) -> Question<'a> {
        Question { model: &self.model, system, user, tokens, most, limit: "", stream: self.stream }
    }

    /// Its window, where anybody knows it.
    fn window(&self) -> Option<Tokens> {
        let told = self.told.load(Ordering::Relaxed);
        match self.window {
            Some(window) => Some(window.min(told)),
            None => (told < Tokens::MAX).then_some(told),
        }
    }

    /// What is kept free of it: at most half, so that something is left to be read.
    fn reserve(&self) -> Option<Tokens> {
        let window = self.window();
        let usual = window.map(|window| (window / 4).min(MOST_RESERVE));
        let reserve = self.reserve.or(usual)?;
        Some(window.map_or(reserve, |window| reserve.min(window / 2)).max(1))
    }

    /// How much may be written where a summary of this size is asked for.
    fn most(&self, limit: Limit) -> Tokens {
        // A character is a token at the worst.
        let (Limit::Tokens(size) | Limit::Chars(size)) = limit;
        let most = size.saturating_mul(2).saturating_add(self.headroom.load(Ordering::Relaxed));
        self.reserve().map_or(most, |reserve| most.min(reserve))
    }

    /// One question and its answer, whole or cut short.
    async fn ask(&self, question: &Question<'_>) -> Result<(Answer, Option<Cut>), Fault> {
        let names = self.dialect.format().about().limit_names;
        let known = self.limit.load(Ordering::Relaxed).min(names.len().saturating_sub(1));
        let mut last = None;
        for at in (known..names.len()).chain(0..known) {
            match self.try_once(question, names.get(at).copied().unwrap_or_default()).await {
                Err(fault) if fault.other_limit => last = Some(fault),
                Err(fault) => return Err(fault),
                Ok(answered) => {
                    self.limit.store(at, Ordering::Relaxed);
                    return Ok(answered);
                }
            }
        }
        Err(last.unwrap_or_else(|| Fault::refused(Wrong::Other, "the format has no name for the limit")))
    }

    async fn try_once(
        &self,
        question: &Question<'_>,
        limit: &'static str,
    ) -> Result<(Answer, Option<Cut>), Fault> {
        let format = self.dialect.format();
        let body = format.ask(&Question { limit, ..*question });
        let mut call = self.line.post(self.key.headers(self.dialect)?, body.to_string()).await?;
        if call.status == 200 {
            return self.listen(&mut call, question).await;
        }
        let told = ErrorText::read(&call.error().await);
        let fault = self.fault(call.status, &told, call.retry_after, question);
        let names = format.about().limit_names.len();
        Err(Fault { other_limit: call.status == 400 && names > 1 && told.dislikes(limit), ..fault })
    }

    /// Hears an answer out.
    async fn listen(&self, call: &mut Call, question: &Question<'_>) -> Result<(Answer, Option<Cut>), Fault> {
        if call.is_stream() {
            return self.follow(call, question).await;
        }
        let body = call.body().await.map_err(|cut| Fault::no_answer(Wrong::Other, &cut.to_string()))?;
        let Ok(body) = serde_json::from_slice::<Value>(&body) else {
            // Somebody else's server, by the looks of it.
            let html = body.trim_ascii_start().starts_with(b"<");
            let (wrong, what) =
                if html { (Wrong::Address, "a web page") } else { (Wrong::Other, "not JSON") };
            return Err(Fault::no_answer(
                wrong,
                &format!("the answer is {what}; nothing could be read of it"),
            ));
        };
        let format = self.dialect.format();
        if let Some(told) = format.failure(&body) {
            return Err(self.failed(&told, question));
        }
        match format.answer(&body) {
            Some(answer) => Ok((answer, None)),
            None if body.get("error").is_some_and(|error| !error.is_null()) => {
                Err(self.failed(&body, question))
            }
            None => {
                Err(Fault::no_answer(Wrong::Other, "the answer is JSON, but of a shape that is not known"))
            }
        }
    }

    /// Hears a stream of events out. What was heard before it broke is kept, for what it says of its cost.
    async fn follow(&self, call: &mut Call, question: &Question<'_>) -> Result<(Answer, Option<Cut>), Fault> {
        let (mut events, mut heard) = (Events::default(), Hearing::default());
        let cut = 'heard: loop {
            let (new, over) = match call.next().await {
                Ok(Some(bytes)) => (events.feed(&bytes), None),
                Ok(None) => (events.end().into_iter().collect(), Some(Cut::Broken)),
                Err(cut) => (Vec::new(), Some(cut)),
            };
            for event in new {
                match heard.event(self.dialect, event.as_bytes()) {
                    Then::GoOn => {}
                    Then::End => break 'heard None,
                    Then::Failed(told) => return Err(self.failed(&told, question)),
                    Then::Odd => {
                        let reason = "the stream holds something that is no event of an answer";
                        return Err(Fault::no_answer(Wrong::Other, reason));
                    }
                }
            }
            if let Some(cut) = over {
                break Some(cut);
            }
        };
        let answer = heard.answer();
        // With its reason to stop said, a text is whole, although the stream was not.
        let cut = cut.filter(|_| !answer.whole);
        Ok((answer, cut))
    }

    /// What a failure means that stands where an answer should.
    fn failed(&self, body: &Value, question: &Question<'_>) -> Fault {
        let told = ErrorText::of(body);
        self.fault(told.status().unwrap_or(500), &told, None, question)
    }

    fn fault(&self, status: u16, told: &ErrorText, wait: Option<Duration>, question: &Question<'_>) -> Fault {
        let address = self.line.url.as_str();
        let called = self.dialect.format().about().endpoint.map_or("", |endpoint| endpoint.called);
        let (key, sent) = (self.key.known(), question.tokens);
        let asked = Asked { model: &self.model, address, called, key, sent };
        let fault = fault(status, told, wait, &asked);
        if let ModelError::TooLong { sent, limit: Some(limit) } = fault.error {
            // Where it counts more than we do, its window holds less of what we count. It may also have
            // counted the room for the answer, so it is believed by half at most.
            let counted = sent.max(1);
            let ours = question.tokens.clamp(counted / 2, counted);
            let window = u128::from(limit) * u128::from(ours) / u128::from(counted);
            let least = LEAST_WINDOW.max(self.window.unwrap_or(0) / 4);
            let window = Tokens::try_from(window).unwrap_or(limit).max(least);
            self.told.fetch_min(window, Ordering::Relaxed);
        }
        fault
    }

    /// What is made of an answer that did not come to its end. What it cost is told where that is known; its
    /// text is told as cut off, and is never long enough to be cut where the summary's limit is.
    fn cut_short(&self, ask: &Ask, answer: &Answer, cut: Cut) -> Result<Reply, ModelError> {
        let Some(tally) = answer.tally else { return Err(ModelError::no_answer(&cut.to_string())) };
        let chars = match ask.limit {
            Limit::Tokens(_) => SHOWN,
            Limit::Chars(chars) => usize::try_from(chars).unwrap_or(SHOWN).min(SHOWN),
        };
        let text: String = answer.text.chars().take(chars).collect();
        // The provider counts what was written when it is done, and it was not.
        let counted = match answer.text.len() {
            0..COUNTED => ask.counter.text(&answer.text),
            bytes => bytes as Tokens / 4,
        };
        let output = tally.output.max(counted);
        Ok(Reply { text, finish: Finish::Length, tally: Some(Tally { output, ..tally }), extracts: None })
    }
}

/// Where the key is.
fn variable(settings: &ModelSettings) -> &str {
    settings.key_env.as_deref().unwrap_or(settings.provider.key_env())
}

#[async_trait]
impl Model for Remote {
    fn name(&self) -> &str {
        &self.model
    }

    fn room(&self) -> Option<Tokens> {
        let window = self.window()?;
        Some(window.saturating_sub(self.reserve().unwrap_or(0)))
    }

    fn provider(&self) -> &str {
        &self.provider
    }

    fn time_out(&self) -> Option<Duration> {
        Some(self.timeout.saturating_add(GRACE))
    }

    fn reusable(&self) -> bool {
        // What one caller paid for is not given to another.
        matches!(self.key, Key::Own { .. })
    }

    async fn write(&self, ask: &Ask) -> Result<Reply, ModelError> {
        // No prompt is made that nobody may be asked.
        self.key.headers(self.dialect).map_err(|fault| fault.error)?;
        let room = self.room().unwrap_or(UNKNOWN_ROOM);
        let own = ask.clone();
        // Counting a megabyte takes long enough to be felt by whoever else is served.
        let prompt = tokio::task::spawn_blocking(move || own.prompt(room)).await;
        let prompt = match prompt.map_err(|_| ModelError::no_answer("the prompt was not written"))? {
            Ok(prompt) => prompt,
            Err(PromptError::NoRoom { needed, room }) => {
                self.told.store(Tokens::MAX, Ordering::Relaxed);
                return Err(ModelError::TooLong { sent: needed, limit: Some(room) });
            }
            Err(_) => return Err(ModelError::TooLong { sent: ask.replaces, limit: Some(room) }),
        };
        let question = self.question(&prompt.system, &prompt.user, prompt.tokens, self.most(ask.limit));
        let (answer, cut) = self.ask(&question).await.map_err(|fault| fault.error)?;
        if let Some(cut) = cut {
            return self.cut_short(ask, &answer, cut);
        }
        if answer.finish == Finish::Length {
            // It may have reasoned for too long. It is given more the next time.
            let more = |room: Tokens| Some(room.saturating_mul(2).min(MOST_HEADROOM));
            let _ = self.headroom.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        }
        Ok(Reply { text: answer.text, finish: answer.finish, tally: answer.tally, extracts: None })
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("model", &self.model)
            .field("address", &self.line.url.as_str())
            .field("key", &self.key)
            .field("window", &self.window())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
