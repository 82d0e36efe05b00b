//! `epitome bench`: measures, and shows a table.

use std::path::PathBuf;

use epitome::bench::{self, Options, Report};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::leftovers;
use crate::show::{Show, Table};

const EXAMPLES: &str = "\
Examples:
  epitome bench                       everything but the million messages: a minute or two
  epitome bench --full --dir /data    all of it, on the disk that will be used
  epitome bench --quick --json        for a script

Appends and contexts are compared within the run, with a bare SQLite loop and with a short session:
those ratios mean the same on every machine. Files are made in DIR and removed afterwards. --json is
one object.";

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
    #[arg(long, value_name = "N", value_parser = super::whole, allow_negative_numbers = true)]
    messages: Option<u64>,
    /// The messages of the long session
    #[arg(long, value_name = "N", hide = true)]
    long: Option<u64>,
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

pub(super) async fn run(args: &Args, show: &mut Show) -> Result<(), Failure> {
    let measured = {
        let progress = show.progress("", Some(0));
        let options = args.options();
        let _files = leftovers::note(&options.dir, format!("epitome-bench-{}-", std::process::id()));
        bench::run(&options, &|now| {
            progress.stage(now.stage);
            progress.set_of(now.of);
            progress.set(now.done);
        })
        .await
    };
    let report = measured.map_err(|error| Failure::Failed(format!("bench: {error}")))?;
    if show.json { show.object(&object(&report, args.size())) } else { show.table(&table(&report)) }
}

fn object(report: &Report, size: &str) -> Value {
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "size": size,
        "met": report.met(),
        "appends": report.appends,
        "contexts": report.contexts,
        "batches": report.batches,
        "memory": report.memory,
        "lines": report.lines(),
    })
}

fn table(report: &Report) -> Table {
    let mut table = Table::new(&["what", "figure", "target", ""]);
    for line in report.lines() {
        let met = match line.met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "unknown",
        };
        table.row([line.name, line.figure, line.target, met.to_owned()]);
    }
    table
}
