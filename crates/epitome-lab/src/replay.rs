//! `epitome replay`: measures how much of recorded conversations each policy retains, and what the policy costs.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use epitome::dialect::Dialect;
use epitome::rules::message::Tokens;
use epitome::settings::{Patch, Settings};
use epitome_terminal::failure::Failure;
use epitome_terminal::show::Show;

use crate::play::{ListMethod, PlayOptions, Policy};

mod chart;
mod dumps;
mod page;
mod paths;
mod policies;
mod read;
mod results;
mod run;
mod tables;

use dumps::DumpFiles;
use epitome_terminal::output::{Output, not_writable};
use paths::check_distinct;
use results::Results;

const EXAMPLES: &str = "\
Examples:
  epitome replay traces/*.jsonl                 shows what each policy retains, and what it costs
  epitome replay traces/ --html report.html     also writes a page with charts
  epitome replay chat.jsonl --policy slots --budget 4000
  epitome replay runs.jsonl --policy economic --policy 'inline trigger=tokens(60000) keep=turns(3)'
  epitome replay runs.jsonl --policy 'slots slot.short.max_tokens=500 name=small'
  epitome replay runs.jsonl --policy 'inline config=epitome.toml' --window 200000
  epitome replay runs.jsonl --policy slots --policy 'slots model=main config=epitome.toml'

A policy is a way to build the list that the agent's model receives. It starts with one of these
words:
  whole      all messages in each request; the other policies are compared with this baseline
  recent     the newest messages that fit the budget
  slots      a context from the engine: the slots' summaries, then the newest messages
  steady     like slots, but the list's beginning changes as rarely as possible, for prompt caches
  inline     the agent's list, shortened as in the proxy and in `epitome condense`
  economic   like inline, but the list is shortened when that costs least with a prompt cache
  mask       like inline, but only old tool outputs are left out
The default policies are slots, steady, recent and economic. After the word, a policy can have any
number of settings (KEY=VALUE):
  name=NAME       the policy's name in the tables
  config=FILE     the settings file for this policy
  window=N        the window of the agent's model for this policy, in tokens
  model=NAME      the model that writes summaries; [models.NAME] in the settings file defines it
  slot.NAME.KEY   the key KEY of the slot NAME
  fill, fit, steady
                  options of a context for slots, steady and recent; true or false
  trigger, keep, keep_first, strategy, max_tokens, wait
                  keys of the table [condense] for inline, economic and mask
  TABLE.KEY       any other key of the settings file, for example context.max_tokens

A file has one conversation per line: {\"id\", \"messages\", \"pinned\", \"qa\"}. `pinned` (optional) is
the number of messages at the beginning that always stay. `qa` (optional) is a list of questions:
[{\"question\", \"answer\", \"evidence\"}]. Every file that `epitome import` reads is accepted. Nothing
is stored. Without models in the settings, no data leaves this machine. docs/fidelity.md describes
the measures and the method.";

/// Measures how much of recorded conversations each policy retains, and what the policy costs
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Recordings, or folders that contain them
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Policy that builds the message list (see below); the flag can be repeated
    #[arg(long, value_name = "POLICY")]
    policy: Vec<String>,
    /// Budgets of contexts, in tokens [default: 1000,2000,4000,8000]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = epitome_terminal::flags::whole)]
    budget: Vec<u64>,
    /// Window of the agent's model in tokens, for inline lists
    #[arg(long, value_name = "N", value_parser = epitome_terminal::flags::whole, default_value_t = 128_000)]
    window: u64,
    /// Number of first messages that always stay, if a recording does not set it
    #[arg(long, value_name = "N")]
    pinned: Option<usize>,
    #[arg(long, value_name = "FORMAT", help = format!("{} [default: detected]", Dialect::names(&Dialect::all())))]
    format: Option<Dialect>,
    /// Writes a page with charts to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Writes each chart as an SVG file into this folder
    #[arg(long, value_name = "DIR")]
    charts: Option<PathBuf>,
    /// Writes the contexts of the first policy that builds contexts to this file
    #[arg(long, value_name = "FILE")]
    contexts: Option<PathBuf>,
    /// Writes every request of the first policy to this file
    #[arg(long, value_name = "FILE", conflicts_with = "no_cost")]
    requests: Option<PathBuf>,
    /// Measures only what the lists retain, and not the cost; this is faster
    #[arg(long)]
    no_cost: bool,
    /// Number of conversations played at a time [default: number of processors]
    #[arg(long, value_name = "N", value_parser = epitome_terminal::flags::whole)]
    jobs: Option<u64>,
}

/// Default policies.
const DEFAULT_POLICIES: [&str; 4] = ["slots", "steady", "recent", "economic"];

/// Function that loads the settings. The first argument is the settings file of a policy; `None` uses the command's
/// settings file. The second argument is a list of `KEY=VALUE` settings, which override the file.
pub type Load<'a> = &'a (dyn Fn(Option<&Path>, &[String]) -> Result<(Settings, Patch), String> + Sync);

/// Plays the recordings through each policy and shows the results.
pub async fn run(args: &Args, load: Load<'_>, show: &mut Show) -> Result<(), Failure> {
    let specs: Vec<&str> = match args.policy.as_slice() {
        [] => DEFAULT_POLICIES.to_vec(),
        specs => specs.iter().map(String::as_str).collect(),
    };
    let mut policies = Vec::new();
    for spec in specs {
        policies.push(policies::read(spec, args.window, load).map_err(Failure::Setting)?);
    }
    policies::distinct(&policies).map_err(Failure::Misused)?;
    if !args.no_cost && policies.iter().all(|policy| policy.method != ListMethod::Whole) {
        // The cost of all other policies is compared with this baseline.
        policies.push(Policy::whole());
    }
    let options = PlayOptions { budgets: budgets(args), costs: !args.no_cost };
    let files = read::files(&args.files)?;
    let outputs = [("--html", &args.html), ("--contexts", &args.contexts), ("--requests", &args.requests)];
    check_distinct(&outputs.map(|(flag, path)| (flag, path.as_deref())), &files)?;
    let page = args.html.as_deref().map(Output::open).transpose()?;
    if let Some(folder) = &args.charts {
        std::fs::create_dir_all(folder).map_err(|error| not_writable(folder, &error))?;
    }
    let dumps = DumpFiles::open(args.contexts.as_deref(), args.requests.as_deref(), &policies)?;
    let jobs = args.jobs.and_then(|jobs| usize::try_from(jobs).ok());
    let job = run::ReplayJob {
        files,
        dialect: args.format,
        pinned: args.pinned,
        policies: Arc::new(policies),
        options: Arc::new(options),
        jobs: jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(2, NonZeroUsize::get)),
    };
    let results: Results = run::run(job, dumps, show).await?;
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
    // The exit code reports faults to scripts.
    if results.faulty() > 0 { Err(Failure::Reported(1)) } else { Ok(()) }
}

fn budgets(args: &Args) -> Vec<Tokens> {
    let mut budgets = args.budget.clone();
    if budgets.is_empty() {
        budgets = PlayOptions::default().budgets;
    }
    budgets.sort_unstable();
    budgets.dedup();
    budgets
}
