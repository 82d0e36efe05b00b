//! Defines two sections of the settings: `[server]` (database, workspace, how `epitome serve` listens) and `[proxy]`
//! (the upstreams, and whether requests are changed).
//!
//! The engine does not use these sections. Each setting is a field, and the field's doc comment is the setting's help
//! text. The function `with_source` in `settings.rs` finds the source of an invalid value.

use std::time::Duration;

use epitome::settings::{Settings, SettingsError, form, time};
use reqwest::Url;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::log::{LogFormat, LogLevel};

/// A settings file: the server's own sections, and the engine's.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Sections {
    pub(super) server: ServerSettings,
    pub(super) proxy: ProxySettings,
    /// All other sections, which belong to the engine.
    #[serde(flatten)]
    #[schemars(with = "Settings")]
    pub(super) engine: Map<String, Value>,
}

/// The section `[server]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ServerSettings {
    /// The database. For SQLite: the path of a file, relative to this file's folder, or sqlite:PATH. For
    /// PostgreSQL: an address such as postgres://USER:PASSWORD@HOST:PORT/DATABASE. By default, the database
    /// is the file epitome.db in the user's data folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"sqlite:epitome.db")]
    pub(super) db: Option<String>,
    /// Maximum number of connections from one node to PostgreSQL.
    #[schemars(schema_with = "form::whole::<1, 1_000>", example = 32)]
    pub(crate) connections: usize,
    /// How long a request waits while PostgreSQL cannot be reached, before the request fails.
    #[serde(with = "time")]
    #[schemars(schema_with = "form::time::<0, 3_600_000>", example = &"2m")]
    pub(crate) patience: Duration,
    /// The workspace that commands use. Workspaces share no data. HTTP requests select their workspace themselves.
    #[schemars(example = &"team-a")]
    pub(crate) workspace: String,
    /// What `epitome serve` does: "api" serves requests and writes no summaries; "worker" writes summaries and
    /// serves only /healthz, /readyz and /metrics; "all" serves requests and writes summaries.
    #[schemars(example = &"worker")]
    pub(crate) role: Role,
    /// Address and port on which `epitome serve` listens.
    #[schemars(example = &"0.0.0.0:7878")]
    pub(crate) listen: String,
    /// When clients need keys: "off-loopback" (on every address that other machines can reach), "always", or
    /// "never" (any client that can reach the address can read and write everything).
    #[schemars(example = &"always")]
    pub(crate) require_keys: RequireKeys,
    /// Name of the environment variable that contains the secret for tokens (JWT) of Honcho's routes. Do not
    /// write the secret here. With this setting, Honcho's routes always require a token or an Epitome key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"AUTH_JWT_SECRET")]
    pub(crate) jwt_secret_env: Option<String>,
    /// Log level of `epitome serve`: error, warn, info or debug.
    #[schemars(example = &"debug")]
    pub(crate) log_level: LogLevel,
    /// Log format: text, json, or "auto" for text on a terminal and JSON elsewhere.
    #[schemars(example = &"json")]
    pub(crate) log_format: LogFormat,
    /// The section `[proxy]`. In the settings file, it is a section of its own.
    #[serde(skip)]
    pub(crate) proxy: ProxySettings,
}

/// Role of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Role {
    /// Serves requests and writes summaries.
    #[default]
    All,
    /// Serves requests, and writes no summaries.
    Api,
    /// Writes summaries, and serves only health and metrics routes.
    Worker,
}

/// When clients of the HTTP API need keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RequireKeys {
    /// On every address except loopback, which only this machine can reach.
    #[default]
    OffLoopback,
    /// On every address.
    Always,
    /// On no address: any client that reaches the server may do everything.
    Never,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            db: None,
            workspace: "default".to_owned(),
            connections: 16,
            // Longer than a restart of PostgreSQL usually takes.
            patience: Duration::from_secs(30),
            role: Role::default(),
            listen: "127.0.0.1:7878".to_owned(),
            require_keys: RequireKeys::default(),
            jwt_secret_env: None,
            log_level: LogLevel::default(),
            log_format: LogFormat::default(),
            proxy: ProxySettings::default(),
        }
    }
}

impl ServerSettings {
    /// Refuses invalid values, and normalizes addresses.
    pub(super) fn validate(&mut self) -> Result<(), SettingsError> {
        let refuse = |key: &str, problem: &str| Err(SettingsError::new(key, problem));
        if !epitome::is_name(&self.workspace) {
            return refuse("server.workspace", "a name has 1 to 512 bytes and no control characters");
        }
        if !is_address(&self.listen) {
            let expected = "expected ADDRESS:PORT, such as 127.0.0.1:7878, 0.0.0.0:7878 or [::1]:7878";
            return refuse("server.listen", &format!("{:?} is not allowed; {expected}", self.listen));
        }
        if self.jwt_secret_env.as_ref().is_some_and(|name| !is_variable(name)) {
            // The error does not contain the value, because the user may have written the secret itself by mistake.
            let expected = "expected the name of an environment variable, never the secret itself";
            return refuse("server.jwt_secret_env", expected);
        }
        let ProxySettings { openai_upstream, anthropic_upstream, .. } = &mut self.proxy;
        for (key, url) in
            [("proxy.openai_upstream", openai_upstream), ("proxy.anthropic_upstream", anthropic_upstream)]
        {
            *url = upstream(url).map_err(|problem| SettingsError::new(key, problem))?;
        }
        Ok(())
    }
}

fn is_variable(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (1..=128).contains(&name.len()) && name.chars().all(plain)
}

/// Whether the text is a host and a port. Only binding the address shows whether the host is an address of this
/// machine.
fn is_address(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let host_fits = match bracketed {
            Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                !host.is_empty() && !host.contains([':', '/', '@']) && !host.contains(char::is_whitespace)
            }
        };
        host_fits && port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok()
    })
}

/// The section `[proxy]`: how `epitome serve` proxies requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ProxySettings {
    /// Upstream of /openai: requests to /openai/v1/x are sent to this address followed by /v1/x.
    #[schemars(example = &"http://127.0.0.1:8000")]
    pub(crate) openai_upstream: String,
    /// Upstream of /anthropic: requests to /anthropic/v1/x are sent to this address followed by /v1/x.
    #[schemars(example = &"https://gateway.example.com/anthropic")]
    pub(crate) anthropic_upstream: String,
    /// Whether the proxy forwards all requests unchanged, and only reports what it would have saved.
    #[schemars(example = true)]
    pub(crate) shadow: bool,
    /// How long the proxy waits for the next byte from an upstream, 100ms to 24h.
    #[serde(with = "time")]
    #[schemars(schema_with = "form::time::<100, 86_400_000>", example = &"2m")]
    pub(crate) timeout: Duration,
}

/// Default timeout. The clients of both providers have the same default.
const TIMEOUT: Duration = Duration::from_secs(600);

impl Default for ProxySettings {
    fn default() -> Self {
        Self {
            openai_upstream: "https://api.openai.com".to_owned(),
            anthropic_upstream: "https://api.anthropic.com".to_owned(),
            shadow: false,
            timeout: TIMEOUT,
        }
    }
}

/// Normalizes an upstream address. Removes `/v1` at the end, because every proxied path begins with `/v1`.
fn upstream(text: &str) -> Result<String, String> {
    let expected = "expected an address such as https://api.openai.com or http://127.0.0.1:8000";
    // The errors do not contain the address, because it may contain a password.
    let Ok(url) = Url::parse(text) else { return Err(format!("invalid address; {expected}")) };
    let plain = url.username().is_empty() && url.password().is_none();
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() || !plain {
        return Err(format!(
            "expected http:// or https:// and a host, without a user name or password; {expected}"
        ));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(format!("`?` and `#` are not allowed; {expected}"));
    }
    let bare = text.trim_end_matches('/');
    Ok(bare.strip_suffix("/v1").unwrap_or(bare).trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_an_address_with_or_without_its_v1() {
        for (text, normalized) in [
            ("https://api.openai.com", "https://api.openai.com"),
            ("https://api.openai.com/v1/", "https://api.openai.com"),
            ("http://127.0.0.1:8000/deep/er", "http://127.0.0.1:8000/deep/er"),
        ] {
            assert_eq!(upstream(text).unwrap(), normalized);
        }
        for wrong in
            ["api.openai.com", "ftp://x", "", "http://", "https://me:secret@x", "http://x?y", "http://x#y"]
        {
            let error = upstream(wrong).unwrap_err();
            assert!(error.contains("expected an address") && !error.contains("secret"), "{wrong}: {error}");
        }
    }
}
