//! `epitome serve`: the HTTP API and the proxy.

use std::net::{IpAddr, SocketAddr};

use epitome::Pace;
use epitome::rules::tokens::Counter;
use epitome_honcho::Honcho;
use epitome_http::{Bounds, HttpState, Keys};
use tokio::sync::watch;

use super::prelude::*;
use crate::http::{self, App, Proxy, RequestsLog};
use crate::log;
use crate::settings::{OwnFlag, RequireKeys, Role, Source};
use crate::signals::Signals;

const EXAMPLES: &str = "\
Examples:
  epitome serve                                 on http://127.0.0.1:7878, no keys needed
  epitome serve --listen 127.0.0.1:0            on any free port; the address is printed
  epitome serve --listen 0.0.0.0:7878           for other machines; callers need keys
  epitome keys create --admin                   the first key, also while the server runs
  epitome serve --shadow                        the proxy only tells what it would save
  epitome serve --openai-upstream http://127.0.0.1:8000
  epitome serve --db postgres://db/epitome      one of any number of nodes that share a PostgreSQL
  epitome serve --db postgres://db/epitome --role worker --listen 127.0.0.1:0

On an address that only this machine reaches no keys are needed; on every other one they are, unless
--require-keys never says otherwise. A key opens its workspace. Without one the workspace is
`default`, or the one that the header x-epitome-workspace names.

Under /openai/v1 and /anthropic it passes requests on to the provider, and keeps long conversations
inside the window: change a client's base_url, and nothing else. Callers' own keys go through; ours,
where keys are needed, comes in the header x-epitome-key.

All but --log-requests can be set in the environment too (EPITOME_SERVER_REQUIRE_KEYS,
EPITOME_PROXY_SHADOW), and in epitome.toml under [server] and [proxy].

Under /v3 it answers as Honcho's API does: its client works with http://127.0.0.1:7878 as base_url.

Nodes that share a PostgreSQL share everything. Each may answer and write summaries (--role all),
leave those to others (api), or do nothing else (worker: it answers only /healthz, /readyz and
/metrics). A password stays out of sight in the environment:
EPITOME_DB=postgres://USER:PASSWORD@HOST:PORT/DATABASE.

What is stored is what every other command sees: both may be used at once. SIGTERM and Ctrl-C end it
in order: requests under way are answered, summaries under way finished or handed back.";

/// Serves the HTTP API and the proxy
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Where it listens (127.0.0.1:7878) [env: EPITOME_SERVER_LISTEN]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// What it does: all, api (no summaries), worker (nothing else)
    #[arg(long, value_name = "ROLE")]
    role: Option<String>,
    /// When callers need keys: off-loopback, always, never
    #[arg(long, value_name = "WHEN")]
    require_keys: Option<String>,
    /// Logged: error, warn, info, debug [env: EPITOME_SERVER_LOG_LEVEL]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// In which form: text, json, auto [env: EPITOME_SERVER_LOG_FORMAT]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// /openai/v1/x goes to URL/v1/x (https://api.openai.com)
    #[arg(long, value_name = "URL")]
    openai_upstream: Option<String>,
    /// /anthropic/v1/x likewise (https://api.anthropic.com)
    #[arg(long, value_name = "URL")]
    anthropic_upstream: Option<String>,
    /// The proxy changes nothing, and tells what it would save
    #[arg(long)]
    shadow: bool,
    /// Writes each request as it is passed on, words and all (JSONL)
    #[arg(long, value_name = "FILE")]
    log_requests: Option<PathBuf>,
    /// Sets one of the server's bounds, for tests
    #[arg(long, value_name = "NAME=NUMBER", hide = true)]
    bound: Vec<String>,
    /// For how long work is held before it is anybody's again, for tests
    #[arg(long, value_name = "MILLISECONDS", hide = true)]
    lease: Option<u32>,
}

impl Args {
    /// Those flags that are settings: the flag, its key, what it says.
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
            all.into_iter().filter_map(|(flag, key, said)| Some((flag, key, said.as_deref()?.into())));
        texts.chain(self.shadow.then(|| ("--shadow", "proxy.shadow", true.into()))).collect()
    }

    /// How the workers go about it. A hold is renewed three times before it runs out.
    fn pace(&self) -> Pace {
        let usual = Pace::default();
        let lease = self.lease.map_or(usual.lease, |lease| Duration::from_millis(u64::from(lease.max(3))));
        Pace { lease, renew: lease / 3, ..usual }
    }
}

pub(super) async fn run(args: &Args, loaded: &Loaded, show: &mut Show) -> Result<(), Failure> {
    if loaded.typed_workspace().is_some() {
        let problem = "a server serves every workspace: callers name theirs in the header x-epitome-workspace, or \
                       by their key; leave --workspace out";
        return Err(Failure::Setting(problem.to_owned()));
    }
    let server = &loaded.server;
    let mut signals = Signals::listen();
    #[cfg(unix)]
    open_more_files();
    let mut bounds = Bounds::default();
    for set in &args.bound {
        bounds = bounds.with(set).map_err(|wrong| Failure::Misused(format!("--bound {set}: {wrong}")))?;
    }
    let secret = jwt_secret(server.jwt_secret_env.as_deref())?;
    let secret_bytes = secret.as_ref().map(Vec::len);
    let requests = args.log_requests.as_deref().map(RequestsLog::open).transpose()?;
    // The address first: where it cannot be had, nothing else is touched.
    let listener = http::bind(&server.listen).await?;
    let address: SocketAddr =
        listener.local_addr().map_err(|error| Failure::Failed(format!("cannot listen: {error}")))?;
    log::start(server.log_level, server.log_format);
    epitome_http::figures::count();
    let keys = keys(server.require_keys, address.ip());
    let (role, version) = (json!(server.role), env!("CARGO_PKG_VERSION"));
    tracing::info!(%address, role = role.as_str(), keys = keys.in_a_word(), version, "starting");
    let database = tokio::select! {
        database = Database::serving(loaded, args.pace()) => database?,
        () = http::meanwhile(&listener) => return Ok(()),
        _ = signals.next() => return Ok(()),
    };
    let (stop, stopping) = watch::channel(false);
    let proxy = Proxy::new(&server.proxy, requests);
    let http = HttpState::new(database.engine.clone(), keys, bounds, stopping);
    let app = App::new(Arc::clone(&http), proxy);
    let router = match server.role {
        Role::Worker => http::watched(&app),
        Role::All | Role::Api => http::router(&app, Honcho::new(Arc::clone(&http), secret)),
    };
    remark((keys, secret_bytes), &database, loaded).await?;
    show.line(format_args!("listening on http://{address}"))?;
    show.flush()?;
    tracing::info!("ready");
    // The first message would wait for the vocabulary to be read.
    let encoding = loaded.settings.encoding;
    tokio::task::spawn_blocking(move || Counter::new(encoding).text("ready"));
    let serving = async {
        epitome_http::listen::serve(listener, router, &http.bounds, http.stopping.clone()).await;
        app.settle().await;
        database.close().await;
    };
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        // It ends only when it is told to.
        () = serving.as_mut() => return Ok(()),
        signal = signals.next() => {
            tracing::info!(signal, "stopping");
            stop.send_replace(true);
        }
    }
    tokio::select! {
        () = serving => {}
        // Whoever says it twice means now: what is held is given back, and nothing else is waited for.
        signal = signals.next() => {
            tracing::warn!(signal, "told again; ending at once");
            crate::end(signal).await;
        }
    }
    tracing::info!("stopped");
    Ok(())
}

/// Every stream that is passed on is two connections. Many systems let a program have a thousand unless it asks for more.
#[cfg(unix)]
fn open_more_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Where it may not, it does with what it has.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// The secret by which tokens for Honcho's routes are signed.
fn jwt_secret(variable: Option<&str>) -> Result<Option<Vec<u8>>, Failure> {
    let Some(variable) = variable else { return Ok(None) };
    match std::env::var(variable).ok().filter(|secret| !secret.trim().is_empty()) {
        Some(secret) => Ok(Some(secret.into_bytes())),
        None => Err(Failure::Setting(format!(
            "server.jwt_secret_env: the environment variable {variable} is not set; set it, or leave the key out"
        ))),
    }
}

/// Whether callers need keys. What counts is the address that is really listened on, whatever it was called.
fn keys(require: RequireKeys, address: IpAddr) -> Keys {
    let loopback = address.to_canonical().is_loopback();
    match require {
        RequireKeys::Always => Keys::Required,
        RequireKeys::OffLoopback if !loopback => Keys::Required,
        RequireKeys::OffLoopback | RequireKeys::Never => Keys::Off { loopback },
    }
}

/// A shorter secret than what it signs with may be found by trying (RFC 7518 wants so many bytes for HS256).
const SECRET_BYTES: usize = 32;

/// What whoever starts it should know: that everybody may come in, that nobody can yet, or that a secret is weak.
async fn remark(
    (keys, secret_bytes): (Keys, Option<usize>),
    database: &Database,
    loaded: &Loaded,
) -> Result<(), Failure> {
    if secret_bytes.is_some_and(|bytes| bytes < SECRET_BYTES) {
        tracing::warn!(
            "the secret for tokens (server.jwt_secret_env) is shorter than {SECRET_BYTES} bytes: whoever has a token \
             may find it by trying; take a longer one"
        );
    }
    match keys {
        Keys::Off { loopback: false } => tracing::warn!(
            "no keys are needed (server.require_keys is \"never\"): whoever reaches the address may read and write \
             everything"
        ),
        // Where there is a secret, whoever has it makes tokens.
        Keys::Required if secret_bytes.is_none() && database.engine.keys().is_empty().await? => {
            let db = match (loaded.source("server.db"), &loaded.db) {
                (Source::Flag(_), Place::Sqlite(path)) => format!(" --db {}", path.display()),
                // Its password is not repeated.
                (Source::Flag(_), Place::Postgres(_)) => " --db postgres://…".to_owned(),
                _ => String::new(),
            };
            tracing::warn!(
                "callers need keys, and there is none yet: `epitome keys create --admin{db}` makes the first"
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
    fn keys_are_needed_wherever_others_can_come_from() {
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
