//! Defines the settings of models that are called over the network: address, API key and context window.

#![allow(rustdoc::bare_urls, reason = "doc comments are the help text of the settings file")]

use std::time::Duration;

use epitome_core::message::Tokens;
use epitome_core::suggest::did_you_mean;
use epitome_wire::{Dialect, Endpoint};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};

use super::{SettingsError, form, invalid_setting, time};
use crate::names::LOCAL;

/// The provider of a model: the built-in extractive summarizer, or a remote provider with its wire format.
///
/// In settings, a provider has the name that its registered wire format declares ([`Endpoint::provider`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub enum Provider {
    /// The built-in extractive summarizer.
    Local,
    /// A remote provider that is called in this wire format.
    Remote(Dialect),
}

impl Provider {
    /// OpenAI's chat completions, and every server with a compatible API.
    pub const OPENAI: Self = Self::Remote(Dialect::OPENAI);
    /// Anthropic's messages.
    pub const ANTHROPIC: Self = Self::Remote(Dialect::ANTHROPIC);

    /// Returns the provider's name in settings.
    pub fn name(self) -> &'static str {
        self.endpoint().map_or(LOCAL, |endpoint| endpoint.provider)
    }

    /// Returns the wire format for calls to the provider; `None` for `local`.
    pub fn dialect(self) -> Option<Dialect> {
        match self {
            Self::Local => None,
            Self::Remote(dialect) => Some(dialect),
        }
    }

    /// Returns the default base URL; empty for `local`.
    pub fn base_url(self) -> &'static str {
        self.endpoint().map_or("", |endpoint| endpoint.base_url)
    }

    /// Returns the name of the environment variable that contains the API key by default; empty for `local`.
    pub fn key_env(self) -> &'static str {
        self.endpoint().map_or("", |endpoint| endpoint.key_env)
    }

    fn endpoint(self) -> Option<Endpoint> {
        self.dialect()?.format().about().endpoint
    }

    /// Returns all allowed names: the names of the registered wire formats, then `local`.
    fn names() -> Vec<&'static str> {
        let endpoints = Dialect::all().into_iter().filter_map(|dialect| dialect.format().about().endpoint);
        let mut names: Vec<&str> = endpoints.map(|endpoint| endpoint.provider).collect();
        // OpenAI has two formats, which are adjacent in the list.
        names.dedup();
        names.push(LOCAL);
        names
    }
}

impl TryFrom<String> for Provider {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        if name == LOCAL {
            return Ok(Self::Local);
        }
        Dialect::of_provider(&name).map(Self::Remote).ok_or_else(|| {
            let names = Self::names();
            let similar = did_you_mean(&name, names.iter().copied());
            let expected = names.join(", ").replace(", local", " or local");
            format!("{name:?} is not allowed; {similar}expected {expected}")
        })
    }
}

impl Serialize for Provider {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

fn providers(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"enum": Provider::names()})
}

/// Settings of one model, `[models.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-hints" = {
    "api_key": "put the key into an environment variable, and set key_env to the variable's name",
    "key": "put the key into an environment variable, and set key_env to the variable's name",
    "token": "put the key into an environment variable, and set key_env to the variable's name",
}))]
pub struct ModelSettings {
    /// Wire format of the provider: openai, anthropic or local.
    #[schemars(schema_with = "providers", example = &"openai")]
    pub provider: Provider,
    /// The provider's name of the model.
    ///
    /// Empty for `local`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(example = &"gpt-5-mini")]
    pub model: String,
    /// Base URL of the provider. Default: the provider's own URL. For both wire formats, the URL ends in /v1:
    /// https://api.openai.com/v1, https://api.anthropic.com/v1, http://127.0.0.1:11434/v1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "form::text", example = &"https://api.openai.com/v1")]
    pub base_url: Option<String>,
    /// Name of the environment variable that contains the API key, never the key itself. With a base_url of
    /// your own, no key is sent unless you set key_env.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "form::text", example = &"OPENAI_API_KEY")]
    pub key_env: Option<String>,
    /// Timeout of one call.
    #[serde(default = "default_timeout", with = "time")]
    #[schemars(schema_with = "form::time::<1_000, 3_600_000>", example = &"2m")]
    pub timeout: Duration,
    /// Context window of the model: input and output together, in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "form::positive", example = 128_000)]
    pub window: Option<Tokens>,
    /// How much of the window is reserved for the answer, in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "form::positive", example = 16_000)]
    pub output_reserve: Option<Tokens>,
    /// Whether the model's answer is streamed.
    #[serde(default)]
    #[schemars(example = false)]
    pub stream: bool,
}

fn default_timeout() -> Duration {
    Duration::from_secs(120)
}

impl ModelSettings {
    /// Creates the settings of a model, with defaults for everything else.
    pub fn new(provider: Provider, model: impl Into<String>) -> Self {
        Self {
            provider,
            model: model.into(),
            base_url: None,
            key_env: None,
            timeout: default_timeout(),
            window: None,
            output_reserve: None,
            stream: false,
        }
    }

    /// Validates the settings as a whole. Errors do not repeat an invalid address, because it may contain a password,
    /// nor an invalid variable name, because it may be the API key itself.
    pub(super) fn normalize(&mut self, name: &str) -> Result<(), SettingsError> {
        if name == LOCAL {
            return Err(invalid_setting(
                &["models", name],
                "is the name of the built-in extractive summarizer; use another one",
            ));
        }
        let invalid = |key: &str, problem: &str| Err(invalid_setting(&["models", name, key], problem));
        if let Some(url) = &mut self.base_url {
            if !is_base_url(url) {
                return invalid(
                    "base_url",
                    "is not allowed; expected an address that begins with http:// or https://, without a user or a query, \
                     such as \"http://127.0.0.1:11434/v1\"",
                );
            }
            url.truncate(url.trim_end_matches('/').len());
        }
        if self.key_env.as_ref().is_some_and(|key_env| !is_variable_name(key_env)) {
            return invalid(
                "key_env",
                "is not allowed; expected the name of an environment variable, such as \"OPENAI_API_KEY\", not the key itself",
            );
        }
        if self.provider != Provider::Local && self.model.trim().is_empty() {
            return invalid("model", "is missing; name it as the provider does, such as \"gpt-5-mini\"");
        }
        match (self.window, self.output_reserve) {
            (Some(window), Some(reserve)) if reserve >= window => invalid(
                "output_reserve",
                &format!(
                    "{reserve} tokens for the answer leave no tokens for the input in a window of {window}"
                ),
            ),
            _ => Ok(()),
        }
    }
}

fn is_base_url(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    // A user name in the address usually comes with a password, and settings must not contain secrets.
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/') && !url.contains(['@', '?', '#', ' ']))
        && !url.contains(char::is_control)
}

/// Returns whether `name` looks like the name of an environment variable. An API key that was entered by mistake does
/// not look like one, so it is not looked up or printed.
fn is_variable_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    (1..=64).contains(&name.len())
        && name.chars().all(plain)
        && !name.starts_with(|c: char| c.is_ascii_digit())
}
