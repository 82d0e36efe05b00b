//! `epitome replay`: what policies keep of recorded conversations, and what they cost.

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

use epitome_terminal::output::{Output, unwritten};
use output::apart;
use results::Results;
use written::Written;

const EXAMPLES: &str = "\
Examples:
  epitome replay traces/*.jsonl                 what would be lost, what would be saved
  epitome replay traces/ --html report.html     the same as a page with charts, to be passed on
  epitome replay chat.jsonl --policy slots --budget 4000
  epitome replay runs.jsonl --policy economic --policy 'inline trigger=tokens(60000) keep=turns(3)'
  epitome replay runs.jsonl --policy 'slots slot.short.max_tokens=500 name=small'
  epitome replay runs.jsonl --policy 'inline config=epitome.toml' --window 200000
  epitome replay runs.jsonl --policy slots --policy 'slots model=main config=epitome.toml'

A policy is one of these words, then KEY=VALUE for any setting, name=… for what it is called:
  whole      everything, always: what it is compared with
  recent     the newest messages that fit the budget
  slots      a context of the engine's: summaries by its slots, the rest newest messages
  steady     the same with a start that stays where it is for as long as it can, for prompt caches
  inline     the list as the proxy and `condense` make it, by the settings
  economic   the same, cut where that costs least with a prompt cache
  mask       the same, old tool outputs left out
trigger, keep, keep_first, strategy and max_tokens are those of [condense]; fill, fit and steady are
those of a context; slot.NAME.KEY is one key of one slot; model is who writes summaries, by its name
in [models]; window=N and config=FILE are its own. Unless told otherwise: slots, steady, recent,
economic.

A file has a conversation a line, {\"id\", \"messages\", \"pinned\", \"qa\"}, the last two if there are any:
how many messages at its head always stay, and [{\"question\", \"answer\", \"evidence\"}]. Whatever
`epitome import` reads is read as well. Nothing is stored, and without models in the settings
nothing leaves this machine. docs/fidelity.md says what is measured and how.";

/// What policies keep of recorded conversations, and what they cost
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Recordings, or folders of them
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// How the list is made; may be given again (see below)
    #[arg(long, value_name = "POLICY")]
    policy: Vec<String>,
    /// The budgets of contexts, in tokens (1000,2000,4000,8000)
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = epitome_terminal::flags::whole)]
    budget: Vec<u64>,
    /// The window of the agent's model, for inline lists
    #[arg(long, value_name = "N", value_parser = epitome_terminal::flags::whole, default_value_t = 128_000)]
    window: u64,
    /// How many messages at the head always stay, where a recording does not say
    #[arg(long, value_name = "N")]
    pinned: Option<usize>,
    #[arg(long, value_name = "FORMAT", help = format!("{} (detected)", Dialect::names(&Dialect::all())))]
    format: Option<Dialect>,
    /// Writes a page with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Writes the charts, an SVG each
    #[arg(long, value_name = "DIR")]
    charts: Option<PathBuf>,
    /// Writes every context that was measured, of the first policy that makes any
    #[arg(long, value_name = "FILE")]
    contexts: Option<PathBuf>,
    /// Writes every request that was made, by the first policy
    #[arg(long, value_name = "FILE", conflicts_with = "no_cost")]
    requests: Option<PathBuf>,
    /// Measures only what survives, which is faster
    #[arg(long)]
    no_cost: bool,
    /// Conversations played at a time (as many as there are processors)
    #[arg(long, value_name = "N", value_parser = epitome_terminal::flags::whole)]
    jobs: Option<u64>,
}

/// Policies unless told otherwise.
const USUAL: [&str; 4] = ["slots", "steady", "recent", "economic"];

/// Reads the settings, from another file where one is named and with further `KEY=VALUE`s set.
pub type Load<'a> = &'a (dyn Fn(Option<&Path>, &[String]) -> Result<(Settings, Patch), String> + Sync);

/// Plays the recordings through each policy, and shows what came of it.
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
        // What everything else is compared with.
        policies.push(Policy::whole());
    }
    let options = Options { budgets: budgets(args), costs: !args.no_cost };
    let files = read::files(&args.files)?;
    let outputs = [("--html", &args.html), ("--contexts", &args.contexts), ("--requests", &args.requests)];
    apart(&outputs.map(|(flag, path)| (flag, path.as_deref())), &files)?;
    let page = args.html.as_deref().map(Output::open).transpose()?;
    if let Some(folder) = &args.charts {
        std::fs::create_dir_all(folder).map_err(|error| unwritten(folder, &error))?;
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
    // What was promised and not kept is a failure of ours, and scripts should see it.
    if results.faulty() > 0 { Err(Failure::Told(1)) } else { Ok(()) }
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
