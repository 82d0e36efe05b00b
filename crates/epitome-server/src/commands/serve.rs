//! `epitome serve`: serves the HTTP API and the proxy.

use std::net::{IpAddr, SocketAddr};

use epitome::Pace;
use epitome::rules::tokens::Counter;
use epitome_honcho::Honcho;
use epitome_http::{HttpState, Keys, Limits};
use tokio::sync::watch;

use super::prelude::*;
use crate::http::{self, App, ProxyState, RequestsLog};
use crate::log;
use crate::settings::{OwnFlag, RequireKeys, Role, Source};
use crate::signals::Signals;

const EXAMPLES: &str = "\
Examples:
  epitome serve                                 on http://127.0.0.1:7878, no keys required
  epitome serve --listen 127.0.0.1:0            on any free port; prints the address
  epitome serve --listen 0.0.0.0:7878           for other machines; clients need keys
  epitome keys create --admin                   create a key; the server may be running
  epitome serve --shadow                        the proxy only reports what it would save
  epitome serve --openai-upstream http://127.0.0.1:8000
  epitome serve --db postgres://db/epitome      one of several nodes on one PostgreSQL database
  epitome serve --db postgres://db/epitome --role worker --listen 127.0.0.1:0

On a loopback address no keys are required. On any other address keys are required, except with
--require-keys never. A key belongs to one workspace. A request without a key uses the workspace in
its header x-epitome-workspace, or `default`.

The paths /openai/v1 and /anthropic/v1 are a proxy: the server forwards their requests to the
provider, and condenses long conversations so that they fit the model's window. In the client,
change only base_url. The server forwards the client's provider key. If Epitome's keys are required,
the client sends its Epitome key in the header x-epitome-key.

--openai-upstream and --anthropic-upstream set the URL of another provider. The server then forwards
requests for /openai/v1/x or /anthropic/v1/x to URL/v1/x.

Every flag except --log-requests is also a setting. In epitome.toml, these settings are in the
sections [server] and [proxy]. Their environment variables begin with EPITOME_SERVER_ and
EPITOME_PROXY_, for example EPITOME_SERVER_REQUIRE_KEYS and EPITOME_PROXY_SHADOW.

The routes under /v3 are Honcho's API: in Honcho's client, set base_url to http://127.0.0.1:7878.

Nodes that share a PostgreSQL database share all data. With --role all, a node serves requests and
writes summaries. With --role api, it writes no summaries. With --role worker, it writes summaries
and serves only /healthz, /readyz and /metrics. Process lists show flags, so put an address with a
password into the environment: EPITOME_DB=postgres://USER:PASSWORD@HOST:PORT/DATABASE.

All other commands use the same data, and work while the server runs. On SIGTERM or Ctrl-C the
server answers the requests in progress, finishes the summaries in progress or leaves them to other
processes, and exits.";

/// Serves the HTTP API and the proxy
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Address [default: 127.0.0.1:7878] [env: EPITOME_SERVER_LISTEN]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// Node's role: all, api (no summaries), worker (only summaries)
    #[arg(long, value_name = "ROLE")]
    role: Option<String>,
    /// When clients need keys: off-loopback, always, never
    #[arg(long, value_name = "WHEN")]
    require_keys: Option<String>,
    /// Level: error, warn, info, debug [env: EPITOME_SERVER_LOG_LEVEL]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Format: text, json, auto [env: EPITOME_SERVER_LOG_FORMAT]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Provider at /openai/v1 [default: https://api.openai.com]
    #[arg(long, value_name = "URL")]
    openai_upstream: Option<String>,
    /// Provider at /anthropic/v1 [default: https://api.anthropic.com]
    #[arg(long, value_name = "URL")]
    anthropic_upstream: Option<String>,
    /// Forwards all requests unchanged, and reports possible savings
    #[arg(long)]
    shadow: bool,
    /// Writes each proxied request, with its content, to FILE as JSONL
    #[arg(long, value_name = "FILE")]
    log_requests: Option<PathBuf>,
    /// Sets one of the server's limits, for tests
    #[arg(long, value_name = "NAME=NUMBER", hide = true)]
    bound: Vec<String>,
    /// Duration of a worker's lease, for tests
    #[arg(long, value_name = "MILLISECONDS", hide = true)]
    lease: Option<u32>,
}

impl Args {
    /// Returns the flags that are also settings: the flag, the setting's key, and the value.
    pub(super) fn settings(&self) -> Vec<OwnFlag> {
        let all = [
            ("--listen", "server.listen", &self.listen),
            ("--role", "server.role", &self.role),
            ("--require-keys", "server.require_keys", &self.require_keys),
            ("--log-level", "server.log_level", &self.log_level),
            ("--log-format", "server.log_format", &self.log_format),
            ("--openai-upstream", "proxy.openai_upstream", &self.openai_upstream),
            ("--anthropic-upstream", "proxy.anthropic_upstream", &self.anthropic_upstream),
        ];
        let texts =
            all.into_iter().filter_map(|(flag, key, value)| Some((flag, key, value.as_deref()?.into())));
        texts.chain(self.shadow.then(|| ("--shadow", "proxy.shadow", true.into()))).collect()
    }

    /// Returns the workers' timing. A lease is renewed three times before it expires.
    fn pace(&self) -> Pace {
        let default = Pace::default();
        let lease = self.lease.map_or(default.lease, |lease| Duration::from_millis(u64::from(lease.max(3))));
        Pace { lease, renew: lease / 3, ..default }
    }
}

pub(super) async fn run(args: &Args, loaded: &Loaded, show: &mut Show) -> Result<(), Failure> {
    if loaded.workspace_from_flag().is_some() {
        let problem = "a server serves every workspace, so remove --workspace; each request selects a workspace by its \
                       key or by the header x-epitome-workspace";
        return Err(Failure::Setting(problem.to_owned()));
    }
    let server = &loaded.server;
    let mut signals = Signals::listen();
    #[cfg(unix)]
    open_more_files();
    let mut limits = Limits::default();
    for set in &args.bound {
        limits = limits.with(set).map_err(|wrong| Failure::Misused(format!("--bound {set}: {wrong}")))?;
    }
    let secret = jwt_secret(server.jwt_secret_env.as_deref())?;
    let secret_bytes = secret.as_ref().map(Vec::len);
    let requests = args.log_requests.as_deref().map(RequestsLog::open).transpose()?;
    // Binds the address before anything else is changed, because binding may fail.
    let listener = http::bind(&server.listen).await?;
    let address: SocketAddr =
        listener.local_addr().map_err(|error| Failure::Failed(format!("cannot listen: {error}")))?;
    log::start(server.log_level, server.log_format);
    epitome_http::metrics::install();
    let keys = keys(server.require_keys, address.ip());
    let (role, version) = (json!(server.role), env!("CARGO_PKG_VERSION"));
    tracing::info!(%address, role = role.as_str(), keys = keys.as_str(), version, "starting");
    for warning in loaded.warnings() {
        tracing::warn!("{warning}");
    }
    let database = tokio::select! {
        database = Database::open_for_server(loaded, args.pace()) => database?,
        () = http::answer_until_open(&listener) => return Ok(()),
        _ = signals.next() => return Ok(()),
    };
    let (stop, stopping) = watch::channel(false);
    let proxy = ProxyState::new(&server.proxy, requests);
    let http = HttpState::new(database.engine.clone(), keys, limits, stopping);
    let app = App::new(Arc::clone(&http), proxy);
    let router = match server.role {
        Role::Worker => http::monitoring_router(&app),
        Role::All | Role::Api => http::router(&app, Honcho::new(Arc::clone(&http), secret)),
    };
    warn_about_access((keys, secret_bytes), &database, loaded).await?;
    show.line(format_args!("listening on http://{address}"))?;
    show.flush()?;
    tracing::info!("ready");
    // Loads the tokenizer now, so that the first message does not wait for it.
    let encoding = loaded.settings.encoding;
    tokio::task::spawn_blocking(move || Counter::new(encoding).text("ready"));
    let serving = async {
        epitome_http::listen::serve(listener, router, &http.limits, http.stopping.clone()).await;
        app.flush().await;
        database.close().await;
    };
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        // `serving` ends only after `stop` was sent.
        () = serving.as_mut() => return Ok(()),
        signal = signals.next() => {
            tracing::info!(signal, "stopping");
            stop.send_replace(true);
        }
    }
    tokio::select! {
        () = serving => {}
        // After a second signal, releases the leases and does not wait for requests.
        signal = signals.next() => {
            tracing::warn!(signal, "second signal; stopping at once");
            crate::end(signal).await;
        }
    }
    tracing::info!("stopped");
    Ok(())
}

/// Raises the limit of open files. Every proxied stream takes two connections, and many systems allow a program only
/// about a thousand open files by default.
#[cfg(unix)]
fn open_more_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // An error is ignored: the server can also run with the old limit.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Returns the secret that signs tokens (JWT) for Honcho's routes.
fn jwt_secret(variable: Option<&str>) -> Result<Option<Vec<u8>>, Failure> {
    let Some(variable) = variable else { return Ok(None) };
    match std::env::var(variable).ok().filter(|secret| !secret.trim().is_empty()) {
        Some(secret) => Ok(Some(secret.into_bytes())),
        None => Err(Failure::Setting(format!(
            "server.jwt_secret_env: the environment variable {variable} is not set; set it, or remove this setting"
        ))),
    }
}

/// Returns whether clients need keys. `address` is the bound address, because the name in the settings could resolve to
/// another address.
fn keys(require: RequireKeys, address: IpAddr) -> Keys {
    let loopback = address.to_canonical().is_loopback();
    match require {
        RequireKeys::Always => Keys::Required,
        RequireKeys::OffLoopback if !loopback => Keys::Required,
        RequireKeys::OffLoopback | RequireKeys::Never => Keys::Off { loopback },
    }
}

/// Minimum length of the JWT secret, in bytes. RFC 7518 requires this length for HS256, because a shorter secret can be
/// found by brute force.
const MIN_SECRET_BYTES: usize = 32;

/// Logs a warning in three cases: keys are not required on an address that other machines can reach, keys are required
/// but no key exists, or the JWT secret is too short.
async fn warn_about_access(
    (keys, secret_bytes): (Keys, Option<usize>),
    database: &Database,
    loaded: &Loaded,
) -> Result<(), Failure> {
    if secret_bytes.is_some_and(|bytes| bytes < MIN_SECRET_BYTES) {
        tracing::warn!(
            "the secret for tokens (server.jwt_secret_env) is shorter than {MIN_SECRET_BYTES} bytes: the holder of a \
             token may find the secret by brute force; use a longer secret"
        );
    }
    match keys {
        Keys::Off { loopback: false } => tracing::warn!(
            "no keys are required (server.require_keys is \"never\"): any client that reaches this address can read \
             and write everything"
        ),
        // With a JWT secret, clients can use tokens, so a missing key is no problem.
        Keys::Required if secret_bytes.is_none() && database.engine.keys().is_empty().await? => {
            let db = match (loaded.source("server.db"), &loaded.db) {
                (Source::Flag(_), DbLocation::Sqlite(path)) => format!(" --db {}", path.display()),
                // Leaves out the address, because it may contain a password.
                (Source::Flag(_), DbLocation::Postgres(_)) => " --db postgres://…".to_owned(),
                _ => String::new(),
            };
            tracing::warn!(
                "clients need keys, but no key exists yet; create one with `epitome keys create --admin{db}`"
            );
        }
        Keys::Off { loopback: true } | Keys::Required => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_required_on_every_address_that_other_machines_reach() {
        let all =
            ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "192.168.1.5", "fe80::1"];
        for (at, address) in all.into_iter().enumerate() {
            let (address, loopback) = (address.parse().unwrap(), at < 4);
            let usual = if loopback { Keys::Off { loopback } } else { Keys::Required };
            assert_eq!(keys(RequireKeys::OffLoopback, address), usual, "{address}");
            assert_eq!(keys(RequireKeys::Always, address), Keys::Required, "{address}");
            assert_eq!(keys(RequireKeys::Never, address), Keys::Off { loopback }, "{address}");
        }
    }
}
