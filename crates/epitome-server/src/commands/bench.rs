//! `epitome bench`: measures, and shows a table.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use epitome::bench::{self, Options, Progress, Report};
use serde_json::json;

use super::Answer;

const EXAMPLES: &str = "\
Examples:
  epitome bench                       everything but the million messages: a minute or two
  epitome bench --full --dir /data    all of it, on the disk that will be used
  epitome bench --quick --json        for a script

Appends and contexts are compared within the run, with a bare SQLite loop and with a short session:
those ratios mean the same on every machine. Files are made in DIR and removed afterwards.";

/// The numbers in the README, on this machine
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A look, in some ten seconds
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Everything, with a database of a million messages
    #[arg(long)]
    full: bool,
    /// Where to measure (the temporary folder)
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The messages of the database whose memory is measured
    #[arg(long, value_name = "N")]
    messages: Option<u64>,
    /// The messages of the long session
    #[arg(long, value_name = "N", hide = true)]
    long: Option<u64>,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

impl Args {
    fn options(&self) -> Options {
        let dir = self.dir.clone().unwrap_or_else(std::env::temp_dir);
        let sized = match (self.quick, self.full) {
            (true, _) => Options::quick(&dir),
            (_, true) => Options::full(&dir),
            _ => Options::standard(&dir),
        };
        Options {
            messages: self.messages.unwrap_or(sized.messages),
            long: self.long.unwrap_or(sized.long),
            ..sized
        }
    }

    fn size(&self) -> &'static str {
        match (self.quick, self.full) {
            (true, _) => "quick",
            (_, true) => "full",
            _ => "standard",
        }
    }
}

pub(super) async fn run(args: &Args, watched: bool) -> Answer {
    let line = StatusLine::new(watched);
    let measured = bench::run(&args.options(), &|progress| line.show(progress)).await;
    line.clear();
    match measured {
        Ok(report) if args.json => Answer::good(object(&report, args.size())),
        Ok(report) => Answer::good(table(&report)),
        Err(error) => Answer::failed(&format!("bench: {error}")),
    }
}

fn object(report: &Report, size: &str) -> String {
    let object = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "size": size,
        "met": report.met(),
        "appends": report.appends,
        "contexts": report.contexts,
        "batches": report.batches,
        "memory": report.memory,
        "lines": report.lines(),
    });
    format!("{object:#}\n")
}

/// Columns as wide as what stands in them.
fn table(report: &Report) -> String {
    let head = ["what", "figure", "target", ""].map(str::to_owned);
    let met = |met: Option<bool>| match met {
        Some(true) => "met",
        Some(false) => "missed",
        None => "unknown",
    };
    let lines = report.lines().into_iter();
    let rows: Vec<[String; 4]> = std::iter::once(head)
        .chain(lines.map(|line| [line.name, line.figure, line.target, met(line.met).to_owned()]))
        .collect();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths = [width(0), width(1), width(2), 0];
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// One line on standard error that is written over, where somebody watches.
struct StatusLine {
    watched: bool,
    shown: Mutex<Option<Instant>>,
}

impl StatusLine {
    fn new(watched: bool) -> Self {
        Self { watched, shown: Mutex::new(None) }
    }

    fn show(&self, progress: Progress) {
        if !self.watched {
            return;
        }
        let Ok(mut shown) = self.shown.lock() else { return };
        if shown.is_some_and(|shown| shown.elapsed() < Duration::from_millis(50)) {
            return;
        }
        *shown = Some(Instant::now());
        let Progress { stage, done, of } = progress;
        // Nobody is left to be told when this fails.
        let _ = write!(std::io::stderr(), "\r\u{1b}[K{stage}: {done} of {of}");
    }

    fn clear(&self) {
        if self.watched {
            let _ = write!(std::io::stderr(), "\r\u{1b}[K");
        }
    }
}
