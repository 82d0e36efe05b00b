//! `epitome replay`: measures how much of recorded conversations each policy retains, and what it costs.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use epitome::dialect::Dialect;
use epitome::rules::message::Tokens;
use epitome::settings::{Patch, Settings};
use epitome_terminal::failure::Failure;
use epitome_terminal::show::Show;

use crate::play::{Form, Options, Policy};

mod chart;
mod output;
mod page;
mod policies;
mod read;
mod results;
mod run;
mod tables;
mod written;

use epitome_terminal::output::{Output, not_writable};
use output::apart;
use results::Results;
use written::Written;

const EXAMPLES: &str = "\
Examples:
  epitome replay traces/*.jsonl                 what would be lost, and what would be saved
  epitome replay traces/ --html report.html     the same as a page with charts, to share
  epitome replay chat.jsonl --policy slots --budget 4000
  epitome replay runs.jsonl --policy economic --policy 'inline trigger=tokens(60000) keep=turns(3)'
  epitome replay runs.jsonl --policy 'slots slot.short.max_tokens=500 name=small'
  epitome replay runs.jsonl --policy 'inline config=epitome.toml' --window 200000
  epitome replay runs.jsonl --policy slots --policy 'slots model=main config=epitome.toml'

A policy is one of these words, then settings as KEY=VALUE; name=… sets the policy's name:
  whole      all messages, always: the baseline of every comparison
  recent     the newest messages that fit the budget
  slots      a context from the engine: the slots' summaries, then the newest messages
  steady     like slots, but its beginning changes as rarely as possible, for prompt caches
  inline     the list as the proxy and `condense` make it, with the settings in use
  economic   like inline, cut where that costs least with a prompt cache
  mask       like inline, with old tool outputs left out
trigger, keep, keep_first, strategy, max_tokens and wait are settings of [condense]; fill, fit and
steady are options of a context; slot.NAME.KEY is one key of one slot; model is the model that
writes summaries, by its name in [models]; window=N and config=FILE set the window and the settings
file for this policy alone. Default policies: slots, steady, recent, economic.

A file has one conversation per line: {\"id\", \"messages\", \"pinned\", \"qa\"}. `pinned` (optional) is
the number of messages at the beginning that always stay. `qa` (optional) is a list of questions:
[{\"question\", \"answer\", \"evidence\"}]. Every file that `epitome import` reads is accepted. Nothing
is stored, and without models in the settings no data leaves this machine. docs/fidelity.md says
what is measured and how.";

/// Measures what policies retain of recorded conversations, and what they cost
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Recordings, or folders that contain them
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Policy that makes the message list; may be repeated (see below)
    #[arg(long, value_name = "POLICY")]
    policy: Vec<String>,
    /// Budgets of contexts, in tokens (1000,2000,4000,8000)
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = epitome_terminal::flags::whole)]
    budget: Vec<u64>,
    /// Window of the agent's model, for inline lists, in tokens
    #[arg(long, value_name = "N", value_parser = epitome_terminal::flags::whole, default_value_t = 128_000)]
    window: u64,
    /// Number of messages at the beginning that always stay, if a recording does not set it
    #[arg(long, value_name = "N")]
    pinned: Option<usize>,
    #[arg(long, value_name = "FORMAT", help = format!("{} (detected)", Dialect::names(&Dialect::all())))]
    format: Option<Dialect>,
    /// Writes a page with charts to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Writes each chart as an SVG file into this folder
    #[arg(long, value_name = "DIR")]
    charts: Option<PathBuf>,
    /// Writes every measured context to this file; only of the first policy that makes contexts
    #[arg(long, value_name = "FILE")]
    contexts: Option<PathBuf>,
    /// Writes every request of the first policy to this file
    #[arg(long, value_name = "FILE", conflicts_with = "no_cost")]
    requests: Option<PathBuf>,
    /// Measures only what survives, not the cost; this is faster
    #[arg(long)]
    no_cost: bool,
    /// Number of conversations played at the same time (number of processors)
    #[arg(long, value_name = "N", value_parser = epitome_terminal::flags::whole)]
    jobs: Option<u64>,
}

/// Default policies.
const USUAL: [&str; 4] = ["slots", "steady", "recent", "economic"];

/// Loads the settings, from the file if one is passed, and applies the `KEY=VALUE` settings on top.
pub type Load<'a> = &'a (dyn Fn(Option<&Path>, &[String]) -> Result<(Settings, Patch), String> + Sync);

/// Plays the recordings through each policy and shows the results.
pub async fn run(args: &Args, load: Load<'_>, show: &mut Show) -> Result<(), Failure> {
    let told: Vec<&str> = match args.policy.as_slice() {
        [] => USUAL.to_vec(),
        told => told.iter().map(String::as_str).collect(),
    };
    let mut policies = Vec::new();
    for spec in told {
        policies.push(policies::read(spec, args.window, load).map_err(Failure::Setting)?);
    }
    policies::distinct(&policies).map_err(Failure::Misused)?;
    if !args.no_cost && policies.iter().all(|policy| policy.form != Form::Whole) {
        // The baseline that all other policies are compared with.
        policies.push(Policy::whole());
    }
    let options = Options { budgets: budgets(args), costs: !args.no_cost };
    let files = read::files(&args.files)?;
    let outputs = [("--html", &args.html), ("--contexts", &args.contexts), ("--requests", &args.requests)];
    apart(&outputs.map(|(flag, path)| (flag, path.as_deref())), &files)?;
    let page = args.html.as_deref().map(Output::open).transpose()?;
    if let Some(folder) = &args.charts {
        std::fs::create_dir_all(folder).map_err(|error| not_writable(folder, &error))?;
    }
    let written = Written::open(args.contexts.as_deref(), args.requests.as_deref(), &policies)?;
    let jobs = args.jobs.and_then(|jobs| usize::try_from(jobs).ok());
    let plan = run::Plan {
        files,
        dialect: args.format,
        pinned: args.pinned,
        policies: Arc::new(policies),
        options: Arc::new(options),
        jobs: jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(2, NonZeroUsize::get)),
    };
    let results: Results = run::run(plan, written, show).await?;
    if let Some(page) = page {
        page.say(&page::page(&results))?;
    }
    if let Some(folder) = &args.charts {
        for (name, chart) in chart::all(&results) {
            Output::open(&folder.join(name))?.say(&chart)?;
        }
    }
    tables::show(&results, show)?;
    if let Some(path) = &args.html {
        show.note(format!("the page is in {}", path.display()))?;
    }
    // A broken guarantee is a bug of Epitome; the exit code reports it to scripts.
    if results.faulty() > 0 { Err(Failure::Reported(1)) } else { Ok(()) }
}

fn budgets(args: &Args) -> Vec<Tokens> {
    let mut budgets = args.budget.clone();
    if budgets.is_empty() {
        budgets = Options::default().budgets;
    }
    budgets.sort_unstable();
    budgets.dedup();
    budgets
}
