//! The section `[server]`: which database, whose sessions, and how `epitome serve` listens.
//!
//! The engine knows nothing of it. Each key is read here once, and refused with what would be allowed; who is to blame
//! is told by `judge.rs`.

use std::time::Duration;

use clap::ValueEnum;
use epitome::settings::{parse_time, write_time};
use serde_json::{Map, Value, json};

use super::judge::Wrong;
use super::keys;
use super::proxy::Proxy;
use crate::log::{Format, Level};

/// Our own sections, typed and right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    /// The database as it was written; none for the usual place.
    pub(super) db: Option<String>,
    /// Whose sessions commands work on. Callers over HTTP say theirs themselves.
    pub(crate) workspace: String,
    /// How many connections to PostgreSQL there may be at once.
    pub(crate) connections: usize,
    /// For so long it is tried again when PostgreSQL cannot be reached.
    pub(crate) patience: Duration,
    /// What `serve` does.
    pub(crate) role: Role,
    /// Where `serve` listens: a host and a port.
    pub(crate) listen: String,
    /// When callers need keys.
    pub(crate) require_keys: RequireKeys,
    /// The environment variable that holds the secret by which tokens for Honcho's routes are signed.
    pub(crate) jwt_secret_env: Option<String>,
    /// How much is logged.
    pub(crate) log_level: Level,
    /// In which form.
    pub(crate) log_format: Format,
    /// The section `[proxy]`.
    pub(crate) proxy: Proxy,
}

/// What a node does of what there is to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Both.
    #[default]
    All,
    /// It answers, and leaves the summaries to others.
    Api,
    /// It writes summaries, and answers nobody but whoever watches over it.
    Worker,
}

impl Role {
    /// What it is called.
    pub(crate) fn in_a_word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Api => "api",
            Self::Worker => "worker",
        }
    }
}

/// When callers of the HTTP API need keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum RequireKeys {
    /// On every address but those that only this machine reaches.
    #[default]
    OffLoopback,
    /// Wherever it listens.
    Always,
    /// Nowhere: whoever reaches the server may do everything.
    Never,
}

const KEYS: [&str; 10] = [
    "db",
    "connections",
    "patience",
    "workspace",
    "role",
    "listen",
    "require_keys",
    "jwt_secret_env",
    "log_level",
    "log_format",
];

/// So many connections unless told otherwise, and as many at most.
const CONNECTIONS: (usize, usize) = (16, 1_000);

/// For so long PostgreSQL is tried again unless told otherwise: it is started again in less.
const PATIENCE: Duration = Duration::from_secs(30);

impl Default for Server {
    fn default() -> Self {
        Self {
            db: None,
            workspace: "default".to_owned(),
            connections: CONNECTIONS.0,
            patience: PATIENCE,
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
    /// What the section says, over the defaults; a null is as good as nothing.
    pub(super) fn read(section: Option<Value>) -> Result<Self, Wrong> {
        let mut server = Self::default();
        let entries = match section {
            None | Some(Value::Null) => return Ok(server),
            Some(Value::Object(entries)) => entries,
            Some(other) => {
                return Err(Wrong::new("server", format!("{other} given; allowed is a table of settings")));
            }
        };
        for (key, value) in entries {
            let name = keys::name(&["server".to_owned(), key.clone()]);
            server.set(&key, value).map_err(|problem| Wrong::new(name, problem))?;
        }
        Ok(server)
    }

    fn set(&mut self, key: &str, value: Value) -> Result<(), String> {
        if value.is_null() && KEYS.contains(&key) {
            return Ok(());
        }
        match key {
            "db" => self.db = Some(text(value)?),
            "workspace" => self.workspace = workspace(text(value)?)?,
            "connections" => self.connections = connections(&value)?,
            "patience" => self.patience = patience(&value)?,
            "role" => self.role = chosen(&value)?,
            "listen" => self.listen = address(text(value)?)?,
            "require_keys" => self.require_keys = chosen(&value)?,
            "jwt_secret_env" => self.jwt_secret_env = Some(variable(text(value)?)?),
            "log_level" => self.log_level = chosen(&value)?,
            "log_format" => self.log_format = chosen(&value)?,
            _ => return Err(format!("no such setting; allowed here are {}", KEYS.join(", "))),
        }
        Ok(())
    }

    /// How PostgreSQL is used, and what only `serve` goes by, as a file would say it.
    pub(super) fn serving(&self) -> Map<String, Value> {
        let mut entries = Map::new();
        entries.insert("connections".to_owned(), json!(self.connections));
        entries.insert("patience".to_owned(), json!(write_time(self.patience)));
        entries.insert("role".to_owned(), json!(name(&self.role)));
        entries.insert("listen".to_owned(), json!(self.listen));
        entries.insert("require_keys".to_owned(), json!(name(&self.require_keys)));
        if let Some(variable) = &self.jwt_secret_env {
            entries.insert("jwt_secret_env".to_owned(), json!(variable));
        }
        entries.insert("log_level".to_owned(), json!(name(&self.log_level)));
        entries.insert("log_format".to_owned(), json!(name(&self.log_format)));
        entries
    }
}

fn text(value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(format!("{other} given; allowed is a text")),
    }
}

fn connections(value: &Value) -> Result<usize, String> {
    let most = CONNECTIONS.1;
    let read = value.as_u64().and_then(|number| usize::try_from(number).ok());
    read.filter(|number| (1..=most).contains(number))
        .ok_or_else(|| format!("{value} given; allowed is a whole number from 1 to {most}"))
}

/// Up to an hour; nothing for whoever wants to be told at once.
fn patience(value: &Value) -> Result<Duration, String> {
    let read = match value {
        Value::Number(number) => number.as_u64().map(Duration::from_secs),
        Value::String(text) => parse_time(text),
        _ => None,
    };
    read.filter(|time| *time <= Duration::from_secs(3_600)).ok_or_else(|| {
        format!("{value} given; allowed is a time up to \"1h\" such as \"30s\", or 30 for seconds")
    })
}

/// The name of an environment variable. Whoever writes the secret itself there is told, and it is not repeated.
fn variable(name: String) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match (1..=128).contains(&name.len()) && name.chars().all(plain) {
        true => Ok(name),
        false => Err("the name of an environment variable is wanted, never the secret itself".to_owned()),
    }
}

fn workspace(name: String) -> Result<String, String> {
    match epitome::is_name(&name) {
        true => Ok(name),
        false => Err("a name has 1 to 512 bytes and no control characters".to_owned()),
    }
}

/// A host and a port. Whether it is an address of this machine shows when it is listened on.
fn address(text: String) -> Result<String, String> {
    let right = text.rsplit_once(':').is_some_and(|(host, port)| {
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let host_fits = match bracketed {
            Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                !host.is_empty() && !host.contains([':', '/', '@']) && !host.contains(char::is_whitespace)
            }
        };
        host_fits && port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok()
    });
    match right {
        true => Ok(text),
        false => Err(format!(
            "{text:?} given; allowed is ADDRESS:PORT, such as 127.0.0.1:7878, 0.0.0.0:7878 or [::1]:7878"
        )),
    }
}

fn chosen<T: ValueEnum>(value: &Value) -> Result<T, String> {
    let found = value.as_str().and_then(|text| T::from_str(text, false).ok());
    found.ok_or_else(|| {
        let names: Vec<String> = T::value_variants().iter().filter_map(name).collect();
        format!("{value} given; allowed are {}", names.join(", "))
    })
}

fn name<T: ValueEnum>(choice: &T) -> Option<String> {
    choice.to_possible_value().map(|known| known.get_name().to_owned())
}
