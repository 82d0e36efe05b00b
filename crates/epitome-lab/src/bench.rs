//! `epitome bench`: runs benchmarks and shows a table.
//!
//! | module | what it measures |
//! |---|---|
//! | [`engine`] | the engine, and inline lists: message lists that a condenser shortens in memory |
//! | `command` | the cost of starting `epitome condense` for each request |
//! | `server` | the cost of HTTP |
//! | `proxy` | the latency that the proxy adds to a request |
//! | `peers` | the condensers of other projects |

use std::path::{Path, PathBuf};
use std::time::Duration;

use epitome_terminal::cleanup;
use epitome_terminal::failure::Failure;
use epitome_terminal::show::{self, Show, Table};
use serde_json::{Value, json};

use self::engine::{EngineOptions, NodeSizes, Progress, ResultLine};

mod child_process;
mod command;
mod echo;
pub mod engine;
mod peers;
mod proxy;
mod server;

const EXAMPLES: &str = "\
Examples:
  epitome bench                       measures the engine, in one to two minutes
  epitome bench --full --dir /data    creates a database of a million messages in /data
  epitome bench --quick --json        runs for about ten seconds, and prints one JSON object
  epitome bench --inline              measures only message lists that are condensed inline
  epitome bench --server              measures the HTTP API, with 16 clients
  epitome bench --server --full       uses a database of a million messages, and a minute of load
  epitome bench --proxy               measures the latency that the proxy adds to a request
  epitome bench --postgres postgres://localhost/postgres   measures nodes that share a database
  epitome bench --peers bench/peers/run   measures LangChain, OpenHands, tRPC-Agent and Epitome

Each run also measures baselines, for example:
  appends         a loop that inserts the same rows into SQLite
  contexts        contexts of a session of 100 messages
  turns           counting the tokens of the turn's new message
  HTTP appends    the engine without HTTP
  HTTP contexts   a server that only echoes the same number of bytes
A ratio to a baseline, for example 0.80×, is comparable between machines. An absolute number is
not. The benchmark creates its files in the folder DIR (see --dir) and removes the files at its
end. It also stops the servers that it starts. With --postgres, it creates databases named
epitome_bench_... and removes these databases. It writes nothing to the database in the URL.";

/// Measures speed and memory on this machine, as in docs/performance.md
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Runs for about ten seconds, with small sessions and databases
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Runs all measurements in full, with a database of a million messages
    #[arg(long)]
    full: bool,
    /// Measures only message lists that are condensed inline
    #[arg(long, conflicts_with = "server")]
    inline: bool,
    /// Measures the HTTP API instead; starts this program as a server
    #[arg(long)]
    server: bool,
    /// Measures the proxy instead of the engine, with a test provider on loopback
    #[arg(long, conflicts_with_all = ["server", "inline"])]
    proxy: bool,
    /// Measures several nodes on this PostgreSQL server, in temporary databases
    #[arg(long, value_name = "URL", conflicts_with_all = ["server", "inline", "proxy"])]
    postgres: Option<String>,
    /// Compares Epitome with condensers of other projects, which PROGRAM runs
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["server", "inline", "proxy", "postgres"])]
    peers: Option<PathBuf>,
    /// Folder for the benchmark's files [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Number of messages in the large database
    #[arg(long, value_name = "N", value_parser = epitome_terminal::flags::whole, allow_negative_numbers = true)]
    messages: Option<u64>,
    /// Number of messages in the long session, and in the inline list
    #[arg(long, value_name = "N", hide = true)]
    long: Option<u64>,
    /// Duration of the load test with --server; timeout for each condenser with --peers
    #[arg(long, value_name = "SECONDS", hide = true)]
    seconds: Option<u64>,
    /// Runs the echo server, the baseline for contexts over HTTP
    #[arg(long, hide = true)]
    echo: bool,
}

impl Args {
    fn dir(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(std::env::temp_dir)
    }

    fn options(&self) -> EngineOptions {
        let dir = self.dir();
        let sized = match (self.quick, self.full) {
            (true, _) => EngineOptions::quick(&dir),
            (_, true) => EngineOptions::full(&dir),
            _ => EngineOptions::standard(&dir),
        };
        EngineOptions {
            messages: self.messages.unwrap_or(sized.messages),
            long: self.long.unwrap_or(sized.long),
            list: self.long.unwrap_or(sized.list),
            ..sized
        }
    }

    fn server_options(&self) -> server::ServerOptions {
        let (rounds, appends, contexts, messages, seconds) = match (self.quick, self.full) {
            (true, _) => (3, 2_000, 500, 20_000, 2),
            (_, true) => (9, 8_000, 4_000, 1_000_000, 60),
            _ => (7, 4_000, 2_000, 100_000, 10),
        };
        // A run with a small `--long` only checks the table, so such a run also sends fewer requests.
        let few = self.long.unwrap_or(u64::MAX);
        server::ServerOptions {
            dir: self.dir(),
            rounds,
            appends: appends.min(few),
            session: self.long.unwrap_or(10_000),
            contexts: contexts.min(few / 4),
            messages: self.messages.unwrap_or(messages),
            seconds: self.seconds.unwrap_or(seconds),
        }
    }

    fn peer_options(&self) -> peers::PeerOptions {
        let (longest, session, turns) = if self.quick { (1_000, 400, 10) } else { (10_000, 1_000, 100) };
        let longest = self.long.unwrap_or(longest);
        peers::PeerOptions {
            dir: self.dir(),
            plan: peers::PeerPlan::new(longest, longest.min(session), turns),
            timeout: Duration::from_secs(self.seconds.unwrap_or(600)),
        }
    }

    /// Returns whether this run measures the engine, and not inline lists, the HTTP API, the proxy or PostgreSQL.
    fn is_plain(&self) -> bool {
        !self.inline && !self.server && !self.proxy && self.postgres.is_none()
    }

    /// Returns how many times the benchmark runs `epitome condense`.
    fn runs(&self) -> usize {
        if self.quick { 10 } else { 40 }
    }

    fn size(&self) -> &'static str {
        match (self.quick, self.full) {
            (true, _) => "quick",
            (_, true) => "full",
            _ => "standard",
        }
    }
}

/// Runs the selected benchmarks and shows their results as a table or as JSON.
pub async fn run(args: &Args, show: &mut Show) -> Result<(), Failure> {
    if args.echo {
        return echo::run(show).await;
    }
    if let Some(program) = &args.peers {
        return compare_peers(program, args, show).await;
    }
    let (lines, figures) = {
        let progress = show.progress("", Some(0));
        let on_progress = |now| update(&progress, now);
        let _files = register_files(&args.dir());
        if args.server {
            let report = server::run(&args.server_options(), &on_progress).await.map_err(failed)?;
            (report.lines(), json!(report))
        } else if let Some(url) = &args.postgres {
            let sizes = if args.quick { NodeSizes::quick() } else { NodeSizes::standard() };
            let nodes = engine::nodes(url, &sizes, &on_progress).await.map_err(failed)?;
            (nodes.lines(), json!({ "nodes": nodes }))
        } else if args.proxy {
            let turns = if args.quick { 3 } else { 25 };
            let proxied = proxy::measure(&args.dir(), turns, &on_progress).await.map_err(failed)?;
            (proxied.lines(), json!({ "proxy": proxied }))
        } else {
            let options = args.options();
            let (mut lines, mut figures) = if args.inline {
                let inline =
                    engine::inline(options.list, options.turns, &on_progress).await.map_err(failed)?;
                (inline.lines(), json!({ "inline": inline }))
            } else {
                let report = engine::run(&options, &on_progress).await.map_err(failed)?;
                (report.lines(), json!(report))
            };
            let command = command::measure(&options.dir, args.runs(), &on_progress).await.map_err(failed)?;
            lines.push(command.line());
            if let Some(inline) = figures.get_mut("inline").and_then(Value::as_object_mut) {
                inline.insert("command".to_owned(), json!(command));
            }
            (lines, figures)
        }
    };
    if show.json {
        return show.object(&object(&lines, figures, args.size()));
    }
    show.table(&table(lines))?;
    if args.is_plain() {
        show.note("`epitome bench --peers PROGRAM` compares Epitome with other condensers; see bench/peers/README.md")?;
    }
    Ok(())
}

fn update(show::Progress { bar }: &show::Progress, now: Progress) {
    bar.set_prefix(now.stage);
    bar.set_length(now.of);
    bar.set_position(now.done);
}

/// Shows a table with one column for each condenser. Notes after the table report failed condensers and invalid lists.
async fn compare_peers(program: &Path, args: &Args, show: &mut Show) -> Result<(), Failure> {
    let measured = {
        let progress = show.progress("", Some(0));
        let on_progress = |now| update(&progress, now);
        let _files = register_files(&args.dir());
        peers::measure(program, &args.peer_options(), &on_progress).await.map_err(failed)?
    };
    if show.json {
        return show.object(&object(&[], measured.json(), args.size()));
    }
    show.table(&measured.table())?;
    measured.notes().into_iter().try_for_each(|note| show.note(note))
}

/// Registers the benchmark's files for removal if a signal ends this process.
fn register_files(dir: &Path) -> cleanup::CleanupGuard {
    cleanup::register(dir, format!("epitome-bench-{}-", std::process::id()))
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(format!("bench: {error}"))
}

fn object(lines: &[ResultLine], figures: Value, size: &str) -> Value {
    let met = lines.iter().all(|line| line.met != Some(false));
    let mut object = json!({"version": env!("CARGO_PKG_VERSION"), "size": size, "met": met});
    if let (Value::Object(object), Value::Object(figures)) = (&mut object, figures) {
        object.extend(figures);
        object.insert("lines".to_owned(), json!(lines));
    }
    object
}

fn table(lines: Vec<ResultLine>) -> Table {
    let mut table = Table::new(&["benchmark", "result", "target", ""]);
    for line in lines {
        let met = match line.met {
            Some(true) => "met",
            Some(false) => "missed",
            None if line.target.is_empty() => "",
            None => "unknown",
        };
        table.row([line.name, line.figure, line.target, met.to_owned()]);
    }
    table
}
