//! Plays recorded conversations through the proxy, call by call, and says what that cost.
//!
//! ```text
//! cargo run --release --example play -- [--shape openai|responses|anthropic] [--chain N] [--trigger T] [--keep K]
//!     [--strategy S] [--window N] [--set KEY=VALUE]... [--named] [--at-once N] [--log-to DIR] FILE.jsonl...
//! ```
//!
//! A file has one conversation a line, `{"id", "messages": [...]}` with messages as OpenAI's chat has them. Before each reply
//! of a recording a request with all messages before it is sent, every other one streamed; then the recorded reply goes into
//! the history, whatever was answered. Where nobody replies, a request follows each message. `--chain 5` joins five
//! conversations into one history.
//!
//! Everything between is real: a child process of `epitome serve`, HTTP, and an upstream on loopback that refuses what real
//! ones refuse (`epitome_testkit::upstream`). Each file is played twice, untouched (`x-epitome: off`) and condensed, and
//! what was sent is written to `FILE.untouched.jsonl` and `FILE.condensed.jsonl` by `--log-requests`, in a temporary folder
//! or in the one that `--log-to` names. It ends with 1 if anything was refused or went wrong.
//!
//! | column | meaning |
//! |---|---|
//! | runs, requests | histories that were played, and what was sent for them |
//! | swaps | how often a list was condensed; in between, what was handed out only grows |
//! | refused | by the upstream, in the condensed pass or in the other: must be 0 |
//! | faults | answers that did not come to their end, or were errors |
//! | sent of whole | tokens, condensed and untouched |
//! | plain, cached | what is paid for the condensed requests, by what is paid for the untouched ones: where input costs 1; and where beginnings of the request before cost 0.1 and everything else 1.25. What summaries cost is in both |

#![allow(
    dead_code,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    unreachable_pub,
    reason = "it prints what it finds, and stops where it cannot go on; indexing JSON gives null; a test runs a part of it"
)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use epitome::dialect::Dialect;

mod child;
pub mod cost;
mod recorded;

use epitome_testkit::upstream;

use child::{Serving, Talk, Told};
use cost::Cost;
use recorded::Run;
use upstream::{Manner, Upstream};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// What callers of the upstream come with.
const KEY: &str = "sk-play";

/// What is wanted.
pub struct Wish {
    shape: Dialect,
    chain: usize,
    /// `KEY=VALUE` for `--set`.
    settings: Vec<String>,
    /// How much the upstream reads, in tokens of o200k.
    window: u64,
    named: bool,
    at_once: usize,
    logs: Option<PathBuf>,
    files: Vec<PathBuf>,
}

/// The upstream counts a third of the bytes, whatever they say. So much of that is about what tokenizers count.
const SKEW: f64 = 0.8;

impl Wish {
    /// As the command line says it.
    pub fn read(mut args: impl Iterator<Item = String>) -> Result<Self, Error> {
        let mut wish = Self {
            shape: Dialect::OPENAI,
            chain: 1,
            settings: Vec::new(),
            window: 128_000,
            named: false,
            at_once: 4,
            logs: None,
            files: Vec::new(),
        };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} wants a value"));
            match arg.as_str() {
                "--shape" => wish.shape = value()?.parse().map_err(|error| format!("--shape: {error}"))?,
                "--chain" => wish.chain = value()?.parse::<usize>()?.max(1),
                "--trigger" => wish.settings.push(format!("condense.trigger={}", value()?)),
                "--keep" => wish.settings.push(format!("condense.keep={}", value()?)),
                "--strategy" => wish.settings.push(format!("condense.strategy={}", value()?)),
                "--window" => wish.window = value()?.parse()?,
                "--set" => wish.settings.push(value()?),
                "--named" => wish.named = true,
                "--at-once" => wish.at_once = value()?.parse::<usize>()?.max(1),
                "--log-to" => wish.logs = Some(value()?.into()),
                flag if flag.starts_with("--") => return Err(format!("no such flag: {flag}").into()),
                _ => wish.files.push(arg.into()),
            }
        }
        if wish.files.is_empty() {
            return Err("which files? See the head of examples/play/main.rs".into());
        }
        wish.settings.push(format!("condense.window={}", wish.window));
        Ok(wish)
    }
}

/// What one pass came to.
#[derive(Debug, Default)]
struct Pass {
    requests: usize,
    swaps: usize,
    refused: Vec<String>,
    faults: Vec<String>,
    cost: Cost,
}

fn main() -> ExitCode {
    match Wish::read(std::env::args().skip(1)).and_then(|wish| play(&wish)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("play: {error}");
            ExitCode::from(2)
        }
    }
}

/// Plays every file; whether nothing was refused and nothing went wrong.
pub fn play(wish: &Wish) -> Result<bool, Error> {
    let binary = child::binary()?;
    let folder = tempfile::tempdir()?;
    let logs = wish.logs.clone().unwrap_or_else(|| folder.path().to_owned());
    std::fs::create_dir_all(&logs)?;
    let mut well = true;
    println!("{}; {}; chain of {}", wish.shape, wish.settings.join(", "), wish.chain);
    println!(
        "{:<16} {:>5} {:>8} {:>6} {:>7} {:>6} {:>12} {:>12} {:>6} {:>6} {:>7}",
        "file",
        "runs",
        "requests",
        "swaps",
        "refused",
        "faults",
        "sent",
        "of whole",
        "plain",
        "cached",
        "seconds"
    );
    for file in &wish.files {
        let start = Instant::now();
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let runs =
            recorded::runs(file, wish.chain).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut passes = Vec::new();
        for (pass, off) in [("untouched", true), ("condensed", false)] {
            let log = logs.join(format!("{name}.{pass}.jsonl"));
            passes.push(Pass::play(wish, &runs, &binary, &log, off)?);
        }
        let [untouched, condensed] = &passes[..] else { unreachable!() };
        let (plain, cached) = condensed.cost.beside(&untouched.cost);
        let (refused, faults) = passes.iter().fold((0, 0), |(refused, faults), pass| {
            (refused + pass.refused.len(), faults + pass.faults.len())
        });
        println!(
            "{name:<16} {:>5} {:>8} {:>6} {refused:>7} {faults:>6} {:>12} {:>12} {plain:>6.3} {cached:>6.3} {:>7.1}",
            runs.len(),
            condensed.requests,
            condensed.swaps,
            condensed.cost.sum.plain,
            untouched.cost.sum.plain,
            start.elapsed().as_secs_f64(),
        );
        for wrong in passes.iter().flat_map(|pass| pass.refused.iter().chain(&pass.faults)).take(5) {
            println!("  {wrong}");
        }
        well &= refused + faults == 0;
    }
    Ok(well)
}

impl Pass {
    /// All runs of a file through a server of their own, several at once, each call by call.
    fn play(wish: &Wish, runs: &[Run], binary: &Path, log: &Path, off: bool) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let manner = Manner {
            window: if off { u64::MAX } else { wish.window },
            skew: SKEW,
            key: Some(KEY),
            keeps: 0,
            ..Manner::default()
        };
        let upstream = runtime.block_on(Upstream::start(manner));
        if log.exists() {
            std::fs::remove_file(log)?;
        }
        let serving = Serving::start(binary, &upstream.origin(), &wish.settings, log)?;
        let (next, told) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..wish.at_once.min(runs.len()) {
                scope.spawn(|| {
                    while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                        // An untouched run is told by its name: nobody else knows which one a request is of.
                        let mut talk =
                            Talk::new(&serving, wish.shape, off, (off || wish.named).then_some(&run.id));
                        let heard: Vec<Told> = run
                            .calls()
                            .enumerate()
                            .map(|(at, messages)| talk.say(&run.request(wish.shape, messages, at % 2 == 1)))
                            .collect();
                        told.lock().unwrap().extend(heard);
                    }
                });
            }
        });
        serving.end()?;
        let mut pass = Self { cost: Cost::of(log)?, ..Self::default() };
        for told in told.into_inner().unwrap() {
            pass.requests += 1;
            pass.swaps += usize::from(told.condensed);
            pass.faults.extend(told.fault);
        }
        pass.refused = upstream.refused().iter().map(|refusal| format!("refused: {refusal:?}")).collect();
        Ok(pass)
    }
}
