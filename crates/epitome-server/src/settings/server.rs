//! The sections `[server]`: which database, whose sessions, and how `epitome serve` listens; and `[proxy]`: where requests go on
//! to, and whether anything is done to them.
//!
//! The engine knows nothing of them. A setting is a field, its doc comment the help text; which layer set a wrong value is
//! worked out by `judge`.

use std::time::Duration;

use epitome::settings::{Settings, SettingsError, form, time};
use reqwest::Url;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::log::{Format, Level};

/// A settings file: the sections that are the server's own, and the engine's.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Sections {
    pub(super) server: Server,
    pub(super) proxy: Proxy,
    /// All others, which are the engine's.
    #[serde(flatten)]
    #[schemars(with = "Settings")]
    pub(super) engine: Map<String, Value>,
}

/// The section `[server]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Server {
    /// The database: a path, from this file's folder on, or sqlite:PATH; or a PostgreSQL that many nodes share,
    /// postgres://USER:PASSWORD@HOST:PORT/DATABASE. Unless set, epitome.db in the user's data folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"sqlite:epitome.db")]
    pub(super) db: Option<String>,
    /// How many connections to PostgreSQL a node has at most.
    #[schemars(schema_with = "form::whole::<1, 1_000>", example = 32)]
    pub(crate) connections: usize,
    /// For how long it is tried again when PostgreSQL cannot be reached, before a caller is told.
    #[serde(with = "time")]
    #[schemars(schema_with = "form::time::<0, 3_600_000>", example = &"2m")]
    pub(crate) patience: Duration,
    /// Whose sessions commands work on: nothing crosses a workspace. Callers over HTTP say theirs.
    #[schemars(example = &"team-a")]
    pub(crate) workspace: String,
    /// What `epitome serve` does: "api" answers and writes no summaries, "worker" writes them and answers
    /// only /healthz, /readyz and /metrics, "all" does both.
    #[schemars(example = &"worker")]
    pub(crate) role: Role,
    /// Where `epitome serve` listens.
    #[schemars(example = &"0.0.0.0:7878")]
    pub(crate) listen: String,
    /// When callers need keys: "off-loopback" on every address that other machines reach, "always", or
    /// "never": then whoever reaches the address may read and write everything.
    #[schemars(example = &"always")]
    pub(crate) require_keys: RequireKeys,
    /// The environment variable that holds the secret by which tokens (JWT) for Honcho's routes are signed,
    /// never the secret itself. With it those routes want a token, or a key of ours, on every address.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"AUTH_JWT_SECRET")]
    pub(crate) jwt_secret_env: Option<String>,
    /// How much `epitome serve` logs: error, warn, info or debug.
    #[schemars(example = &"debug")]
    pub(crate) log_level: Level,
    /// In which form: text, json, or "auto" for text on a terminal and JSON elsewhere.
    #[schemars(example = &"json")]
    pub(crate) log_format: Format,
    /// The section `[proxy]`, which stands next to this one in the file.
    #[serde(skip)]
    pub(crate) proxy: Proxy,
}

/// What a node does of what there is to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Role {
    /// Both.
    #[default]
    All,
    /// It answers, and leaves the summaries to others.
    Api,
    /// It writes summaries, and answers nobody but whoever watches over it.
    Worker,
}

/// When callers of the HTTP API need keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RequireKeys {
    /// On every address but those that only this machine reaches.
    #[default]
    OffLoopback,
    /// Wherever it listens.
    Always,
    /// Nowhere: whoever reaches the server may do everything.
    Never,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            db: None,
            workspace: "default".to_owned(),
            connections: 16,
            // PostgreSQL is started again in less.
            patience: Duration::from_secs(30),
            role: Role::default(),
            listen: "127.0.0.1:7878".to_owned(),
            require_keys: RequireKeys::default(),
            jwt_secret_env: None,
            log_level: Level::default(),
            log_format: Format::default(),
            proxy: Proxy::default(),
        }
    }
}

impl Server {
    /// Refuses what cannot be meant, and writes addresses in one way.
    pub(super) fn settle(&mut self) -> Result<(), SettingsError> {
        let refuse = |key: &str, problem: &str| Err(SettingsError::wrong(key, problem));
        if !epitome::is_name(&self.workspace) {
            return refuse("server.workspace", "a name has 1 to 512 bytes and no control characters");
        }
        if !is_address(&self.listen) {
            let allowed = "allowed is ADDRESS:PORT, such as 127.0.0.1:7878, 0.0.0.0:7878 or [::1]:7878";
            return refuse("server.listen", &format!("{:?} given; {allowed}", self.listen));
        }
        if self.jwt_secret_env.as_ref().is_some_and(|name| !is_variable(name)) {
            // A secret that is written there by mistake is not repeated.
            let wanted = "the name of an environment variable is expected, never the secret itself";
            return refuse("server.jwt_secret_env", wanted);
        }
        let Proxy { openai_upstream, anthropic_upstream, .. } = &mut self.proxy;
        for (key, url) in
            [("proxy.openai_upstream", openai_upstream), ("proxy.anthropic_upstream", anthropic_upstream)]
        {
            *url = upstream(url).map_err(|problem| SettingsError::wrong(key, problem))?;
        }
        Ok(())
    }
}

fn is_variable(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (1..=128).contains(&name.len()) && name.chars().all(plain)
}

/// Whether it is a host and a port. Whether it is an address of this machine shows when it is listened on.
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

/// The section `[proxy]`: how `epitome serve` passes requests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Proxy {
    /// Where /openai/v1/x goes on to: this address and /v1/x.
    #[schemars(example = &"http://127.0.0.1:8000")]
    pub(crate) openai_upstream: String,
    /// The same for /anthropic/v1/x.
    #[schemars(example = &"https://gateway.example.com/anthropic")]
    pub(crate) anthropic_upstream: String,
    /// Whether the proxy changes nothing and only tells what it would have saved.
    #[schemars(example = true)]
    pub(crate) shadow: bool,
    /// For so long an upstream may say nothing, 100ms to 24h.
    #[serde(with = "time")]
    #[schemars(schema_with = "form::time::<100, 86_400_000>", example = &"2m")]
    pub(crate) timeout: Duration,
}

/// Clients of both providers wait for so long by themselves.
const TIMEOUT: Duration = Duration::from_secs(600);

impl Default for Proxy {
    fn default() -> Self {
        Self {
            openai_upstream: "https://api.openai.com".to_owned(),
            anthropic_upstream: "https://api.anthropic.com".to_owned(),
            shadow: false,
            timeout: TIMEOUT,
        }
    }
}

/// An address without the `/v1` that every path has anyway. Whoever writes it all the same means the same.
fn upstream(text: &str) -> Result<String, String> {
    let allowed = "allowed is an address such as https://api.openai.com or http://127.0.0.1:8000";
    // An address may hold a password: it is not repeated.
    let Ok(url) = Url::parse(text) else { return Err(format!("no address; {allowed}")) };
    let plain = url.username().is_empty() && url.password().is_none();
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() || !plain {
        return Err(format!(
            "http:// or https:// and a host is wanted, without a name or password; {allowed}"
        ));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(format!("nothing after `?` or `#` is wanted; {allowed}"));
    }
    let bare = text.trim_end_matches('/');
    Ok(bare.strip_suffix("/v1").unwrap_or(bare).trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_an_address_with_or_without_its_v1() {
        for (said, meant) in [
            ("https://api.openai.com", "https://api.openai.com"),
            ("https://api.openai.com/v1/", "https://api.openai.com"),
            ("http://127.0.0.1:8000/deep/er", "http://127.0.0.1:8000/deep/er"),
        ] {
            assert_eq!(upstream(said).unwrap(), meant);
        }
        for wrong in
            ["api.openai.com", "ftp://x", "", "http://", "https://me:secret@x", "http://x?y", "http://x#y"]
        {
            let told = upstream(wrong).unwrap_err();
            assert!(told.contains("allowed is an address") && !told.contains("secret"), "{wrong}: {told}");
        }
    }
}
