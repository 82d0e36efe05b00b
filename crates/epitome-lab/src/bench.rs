//! `epitome bench`: measures, and shows a table.
//!
//! What is measured of the engine and of lists is in [`engine`]; what a command costs that is started
//! anew for each request is in `filter`, what HTTP costs in `server`, what the way through the proxy in
//! `proxy`, what other people's condensers take in `peers`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use epitome_terminal::failure::Failure;
use epitome_terminal::leftovers;
use epitome_terminal::show::{self, Show, Table};
use serde_json::{Value, json};

use self::engine::{Line, NodeSizes, Options, Progress};

mod echo;
pub mod engine;
mod filter;
mod own;
mod peers;
mod proxy;
mod server;

const EXAMPLES: &str = "\
Examples:
  epitome bench                       everything but the million messages: a minute or two
  epitome bench --full --dir /data    all of it, on the disk that will be used
  epitome bench --quick --json        for a script
  epitome bench --inline              only lists that are condensed before a call
  epitome bench --server              the HTTP API instead, with 16 clients
  epitome bench --proxy               what a request takes longer through the proxy
  epitome bench --postgres postgres://localhost/postgres   nodes that share a database
  epitome bench --peers bench/peers/run   LangChain, OpenHands, tRPC-Agent on the same lists
  epitome bench --server --full       the same as --server, a minute of load on a million messages

Appends, contexts and turns are compared within the run: with a bare SQLite loop, with a short
session and with the counting of one message, and over HTTP with the engine itself and with the
same server that echoes as many bytes and does nothing else. Those ratios mean the same on every
machine. Files are made in DIR and removed afterwards; a server that is started is ended. On
PostgreSQL it makes databases named epitome_bench_... and removes them; the one named in the
address is only connected to.
--json is one object.";

/// The numbers in the README, on this machine
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A look, in some ten seconds
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Everything, with a database of a million messages
    #[arg(long)]
    full: bool,
    /// Only what condensing lists before a call costs
    #[arg(long, conflicts_with = "server")]
    inline: bool,
    /// The HTTP API instead: this program, started once more, over loopback
    #[arg(long)]
    server: bool,
    /// The proxy instead, beside a provider on loopback that answers at once
    #[arg(long, conflicts_with_all = ["server", "inline"])]
    proxy: bool,
    /// Nodes on this PostgreSQL instead, in databases it makes there and removes
    #[arg(long, value_name = "URL", conflicts_with_all = ["server", "inline", "proxy"])]
    postgres: Option<String>,
    /// Other condensers instead, played by this program, as bench/peers/run is
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["server", "inline", "proxy", "postgres"])]
    peers: Option<PathBuf>,
    /// Where to measure (the temporary folder)
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The messages of the large database
    #[arg(long, value_name = "N", value_parser = epitome_terminal::flags::whole, allow_negative_numbers = true)]
    messages: Option<u64>,
    /// The messages of the long session
    #[arg(long, value_name = "N", hide = true)]
    long: Option<u64>,
    /// How long a server is under load, or a peer is waited for
    #[arg(long, value_name = "SECONDS", hide = true)]
    seconds: Option<u64>,
    /// Is the server that contexts are compared with
    #[arg(long, hide = true)]
    echo: bool,
}

impl Args {
    fn dir(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(std::env::temp_dir)
    }

    fn options(&self) -> Options {
        let dir = self.dir();
        let sized = match (self.quick, self.full) {
            (true, _) => Options::quick(&dir),
            (_, true) => Options::full(&dir),
            _ => Options::standard(&dir),
        };
        Options {
            messages: self.messages.unwrap_or(sized.messages),
            long: self.long.unwrap_or(sized.long),
            list: self.long.unwrap_or(sized.list),
            ..sized
        }
    }

    fn sizes(&self) -> server::Sizes {
        let (rounds, appends, contexts, messages, seconds) = match (self.quick, self.full) {
            (true, _) => (3, 2_000, 500, 20_000, 2),
            (_, true) => (9, 8_000, 4_000, 1_000_000, 60),
            _ => (7, 4_000, 2_000, 100_000, 10),
        };
        // A short session is for a look at the tables, not at the numbers.
        let few = self.long.unwrap_or(u64::MAX);
        server::Sizes {
            dir: self.dir(),
            rounds,
            appends: appends.min(few),
            session: self.long.unwrap_or(10_000),
            contexts: contexts.min(few / 4),
            messages: self.messages.unwrap_or(messages),
            seconds: self.seconds.unwrap_or(seconds),
        }
    }

    fn peers(&self) -> peers::Sizes {
        let (longest, session, turns) = if self.quick { (1_000, 400, 10) } else { (10_000, 1_000, 100) };
        let longest = self.long.unwrap_or(longest);
        peers::Sizes {
            dir: self.dir(),
            plan: peers::Plan::new(longest, longest.min(session), turns),
            patience: Duration::from_secs(self.seconds.unwrap_or(600)),
        }
    }

    /// Whether nothing else was asked for in its place.
    fn is_plain(&self) -> bool {
        !self.inline && !self.server && !self.proxy && self.postgres.is_none()
    }

    /// How often the command is started.
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

/// Measures, and shows a table.
pub async fn run(args: &Args, show: &mut Show) -> Result<(), Failure> {
    if args.echo {
        return echo::run(show).await;
    }
    if let Some(program) = &args.peers {
        return beside_peers(program, args, show).await;
    }
    let (lines, figures) = {
        let progress = show.progress("", Some(0));
        let tell = |now| shown(&progress, now);
        let _files = noted(&args.dir());
        if args.server {
            let measured = server::run(&args.sizes(), &tell).await;
            // The server may have been ended before this.
            leftovers::unless_ending().await;
            let report = measured.map_err(failed)?;
            (report.lines(), json!(report))
        } else if let Some(url) = &args.postgres {
            let sizes = if args.quick { NodeSizes::quick() } else { NodeSizes::standard() };
            let nodes = engine::nodes(url, &sizes, &tell).await.map_err(failed)?;
            (nodes.lines(), json!({ "nodes": nodes }))
        } else if args.proxy {
            let measured = proxy::proxied(&args.dir(), if args.quick { 3 } else { 25 }, &tell).await;
            leftovers::unless_ending().await;
            let proxied = measured.map_err(failed)?;
            (proxied.lines(), json!({ "proxy": proxied }))
        } else {
            let options = args.options();
            let (mut lines, mut figures) = if args.inline {
                let inline = engine::inline(options.list, options.turns, &tell).await.map_err(failed)?;
                (inline.lines(), json!({ "inline": inline }))
            } else {
                let report = engine::run(&options, &tell).await.map_err(failed)?;
                (report.lines(), json!(report))
            };
            let filter = filter::filter(&options.dir, args.runs(), &tell).await.map_err(failed)?;
            lines.push(filter.line());
            if let Some(inline) = figures.get_mut("inline").and_then(Value::as_object_mut) {
                inline.insert("command".to_owned(), json!(filter));
            }
            (lines, figures)
        }
    };
    if show.json {
        return show.object(&object(&lines, figures, args.size()));
    }
    show.table(&table(lines))?;
    if args.is_plain() {
        show.note("other condensers on the same lists: epitome bench --peers PROGRAM; bench/peers/README.md has one")?;
    }
    Ok(())
}

fn shown(show::Progress { bar }: &show::Progress, now: Progress) {
    bar.set_prefix(now.stage);
    bar.set_length(now.of);
    bar.set_position(now.done);
}

/// A column for each, and why one is empty.
async fn beside_peers(program: &Path, args: &Args, show: &mut Show) -> Result<(), Failure> {
    let measured = {
        let progress = show.progress("", Some(0));
        let tell = |now| shown(&progress, now);
        let _files = noted(&args.dir());
        let measured = peers::peers(program, &args.peers(), &tell).await;
        leftovers::unless_ending().await;
        measured.map_err(failed)?
    };
    if show.json {
        return show.object(&object(&[], measured.json(), args.size()));
    }
    show.table(&measured.table())?;
    measured.notes().into_iter().try_for_each(|note| show.note(note))
}

fn noted(dir: &Path) -> leftovers::Leftover {
    leftovers::note(dir, format!("epitome-bench-{}-", std::process::id()))
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(format!("bench: {error}"))
}

fn object(lines: &[Line], figures: Value, size: &str) -> Value {
    let met = lines.iter().all(|line| line.met != Some(false));
    let mut object = json!({"version": env!("CARGO_PKG_VERSION"), "size": size, "met": met});
    if let (Value::Object(object), Value::Object(figures)) = (&mut object, figures) {
        object.extend(figures);
        object.insert("lines".to_owned(), json!(lines));
    }
    object
}

fn table(lines: Vec<Line>) -> Table {
    let mut table = Table::new(&["what", "figure", "target", ""]);
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
