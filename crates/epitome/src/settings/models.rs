//! Models that are asked over a network: where, as whom, and how much they read.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use epitome_core::message::Tokens;
use epitome_wire::{Dialect, Endpoint};
use serde_json::{Map, Value, json};

use super::read::Table;
use super::time::write_time;
use super::{Set, SettingsError};

/// Whose wire format a model speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Provider {
    /// OpenAI's chat completions, and every server that speaks them.
    OpenAi,
    /// Anthropic's messages.
    Anthropic,
    /// The built-in one.
    Local,
}

impl Provider {
    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Local => "local",
        }
    }

    /// The format that its models are asked in; none for `local`.
    #[must_use]
    pub fn dialect(self) -> Option<Dialect> {
        Dialect::of_provider(self.name())
    }

    /// Where it is found when nobody says otherwise; nothing for `local`.
    #[must_use]
    pub fn base_url(self) -> &'static str {
        self.endpoint().map_or("", |endpoint| endpoint.base_url)
    }

    /// The environment's variable that holds the key when nobody says otherwise; nothing for `local`.
    #[must_use]
    pub fn key_env(self) -> &'static str {
        self.endpoint().map_or("", |endpoint| endpoint.key_env)
    }

    fn endpoint(self) -> Option<Endpoint> {
        self.dialect()?.format().about().endpoint
    }
}

impl FromStr for Provider {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = [Self::OpenAi, Self::Anthropic, Self::Local];
        let found = all.into_iter().find(|provider| provider.name() == name);
        found.ok_or_else(|| format!("{name:?} given; allowed is openai, anthropic or local"))
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One model of the settings, `[models.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSettings {
    /// Whose wire format it speaks.
    pub provider: Provider,
    /// What the provider calls it. Empty for `local`.
    pub model: String,
    /// Where it is asked, up to and with the version: `https://api.openai.com/v1`. The provider's own address where
    /// nothing is set.
    pub base_url: Option<String>,
    /// The environment's variable with the key. The provider's usual one where nothing is set, unless there is a
    /// `base_url` of one's own: then no key is sent that is not named here.
    pub key_env: Option<String>,
    /// How long one call may take.
    pub timeout: Duration,
    /// How many tokens it reads and writes in all, where the table of models does not know or is wrong.
    pub window: Option<Tokens>,
    /// How many of those are kept free for its answer.
    pub output_reserve: Option<Tokens>,
    /// Whether its answer is streamed. A server that closes silent connections may need it.
    pub stream: bool,
}

/// The least and the most that may be waited.
const TIMEOUTS: &str = "a time from \"1s\" to \"1h\"";

impl ModelSettings {
    /// A model of this provider with everything else as usual.
    #[must_use]
    pub fn new(provider: Provider, model: impl Into<String>) -> Self {
        Self {
            provider,
            model: model.into(),
            base_url: None,
            key_env: None,
            timeout: Duration::from_secs(120),
            window: None,
            output_reserve: None,
            stream: false,
        }
    }

    pub(super) fn read(before: Option<&Self>, table: &Table<'_>) -> Result<Self, SettingsError> {
        table.only("provider, model, base_url, key_env, timeout, window, output_reserve, stream")?;
        let provider = table.parsed("provider")?.or(before.map(|before| before.provider));
        let provider = provider.ok_or_else(|| {
            table.wrong("provider", "is missing; say \"openai\", \"anthropic\" or \"local\"")
        })?;
        let mut new = before.cloned().unwrap_or_else(|| Self::new(provider, ""));
        new.provider = provider;
        table.text("model")?.map(str::to_owned).set(&mut new.model);
        if let Some(url) = table.text("base_url")? {
            if !is_address(url) {
                // There may be a password in it, so it is not repeated.
                return Err(table.wrong("base_url", ADDRESS));
            }
            new.base_url = Some(url.trim_end_matches('/').to_owned());
        }
        if let Some(name) = table.text("key_env")? {
            if !is_variable(name) {
                // It may be a key, so it is not repeated.
                return Err(table.wrong("key_env", VARIABLE));
            }
            new.key_env = Some(name.to_owned());
        }
        table.read("timeout", TIMEOUTS, super::time::bounded)?.set(&mut new.timeout);
        table.whole("window")?.map(Some).set(&mut new.window);
        table.whole("output_reserve")?.map(Some).set(&mut new.output_reserve);
        table.yes_or_no("stream")?.set(&mut new.stream);
        if provider != Provider::Local && new.model.trim().is_empty() {
            return Err(
                table.wrong("model", "is missing; name it as the provider does, such as \"gpt-5-mini\"")
            );
        }
        if let (Some(window), Some(reserve)) = (new.window, new.output_reserve)
            && reserve >= window
        {
            return Err(
                table.wrong("output_reserve", format!("{reserve} leaves nothing of the window of {window}"))
            );
        }
        Ok(new)
    }

    pub(super) fn to_value(&self) -> Value {
        let mut entries = Map::new();
        entries.insert("provider".to_owned(), json!(self.provider.name()));
        if !self.model.is_empty() {
            entries.insert("model".to_owned(), json!(self.model));
        }
        for (key, text) in [("base_url", &self.base_url), ("key_env", &self.key_env)] {
            if let Some(text) = text {
                entries.insert(key.to_owned(), json!(text));
            }
        }
        entries.insert("timeout".to_owned(), json!(write_time(self.timeout)));
        for (key, tokens) in [("window", self.window), ("output_reserve", self.output_reserve)] {
            if let Some(tokens) = tokens {
                entries.insert(key.to_owned(), json!(tokens));
            }
        }
        entries.insert("stream".to_owned(), json!(self.stream));
        Value::Object(entries)
    }
}

const ADDRESS: &str = "allowed is an address that begins with http:// or https://, without a user or a query, such as \"http://127.0.0.1:11434/v1\"";
const VARIABLE: &str =
    "allowed is the name of an environment variable, such as \"OPENAI_API_KEY\"; not the key itself";

fn is_address(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    // A user in the address would be a secret in the settings.
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/') && !url.contains(['@', '?', '#', ' ']))
        && !url.contains(char::is_control)
}

/// So that a key written here by mistake is seen as one, and is not looked up, nor told.
fn is_variable(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    (1..=64).contains(&name.len())
        && name.chars().all(plain)
        && !name.starts_with(|c: char| c.is_ascii_digit())
}
