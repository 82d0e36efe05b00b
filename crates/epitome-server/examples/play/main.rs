//! Plays recorded conversations through the proxy, call by call, and reports their cost.
//!
//! ```text
//! cargo run --release --example play -- [--shape openai|responses|anthropic] [--chain N] [--trigger T] [--keep K]
//!     [--strategy S] [--window N] [--set KEY=VALUE]... [--named] [--at-once N] [--log-to DIR] FILE.jsonl...
//! ```
//!
//! A file has one conversation per line, `{"id", "messages": [...]}`, in OpenAI's chat format. Before each reply of a
//! recording, the program sends a request with all messages before it; every other request is streamed. Then it adds
//! the recorded reply to the history and ignores the response. If a conversation has no replies, it sends a request
//! after each message. `--chain 5` joins five conversations into one history.
//!
//! The server is a child process of `epitome serve`. The upstream on loopback (`epitome_testkit::upstream`) rejects
//! the same requests as real providers do. Each file is played twice, untouched (`x-epitome: off`) and condensed.
//! `--log-requests` writes the sent requests to `FILE.untouched.jsonl` and `FILE.condensed.jsonl`, in a temporary
//! folder or in the folder of `--log-to`. The exit code is 1 if a request was rejected or failed.
//!
//! | column | meaning |
//! |---|---|
//! | runs, requests | played histories, and their requests |
//! | swaps | how often a list was condensed; between two swaps, the sent list only grows |
//! | refused | requests that the upstream rejected, in both passes: must be 0 |
//! | faults | responses that were incomplete, or were errors |
//! | sent of whole | tokens, condensed and untouched |
//! | plain, cached | cost of the condensed requests divided by the cost of the untouched ones: if input costs 1; and if the beginning that a request shares with the previous one costs 0.1 and everything else 1.25. Both include the cost of summaries |

#![allow(
    dead_code,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    unreachable_pub,
    reason = "it prints its results and stops at an error; indexing JSON gives null; a test runs a part of it"
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

use child::{RequestResult, Serving, Talk};
use cost::Cost;
use recorded::Run;
use upstream::{Manner, Upstream};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The API key of the requests to the upstream.
const KEY: &str = "sk-play";

/// The options of the command line.
pub struct Options {
    shape: Dialect,
    chain: usize,
    /// `KEY=VALUE` for `--set`.
    settings: Vec<String>,
    /// The upstream's context window, in tokens of o200k.
    window: u64,
    named: bool,
    at_once: usize,
    logs: Option<PathBuf>,
    files: Vec<PathBuf>,
}

/// The upstream counts a third of the bytes as tokens. This share of that count is about what tokenizers count.
const SKEW: f64 = 0.8;

impl Options {
    /// Parses the command line.
    pub fn read(mut args: impl Iterator<Item = String>) -> Result<Self, Error> {
        let mut options = Self {
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
            let mut value = || args.next().ok_or_else(|| format!("{arg} requires a value"));
            match arg.as_str() {
                "--shape" => options.shape = value()?.parse().map_err(|error| format!("--shape: {error}"))?,
                "--chain" => options.chain = value()?.parse::<usize>()?.max(1),
                "--trigger" => options.settings.push(format!("condense.trigger={}", value()?)),
                "--keep" => options.settings.push(format!("condense.keep={}", value()?)),
                "--strategy" => options.settings.push(format!("condense.strategy={}", value()?)),
                "--window" => options.window = value()?.parse()?,
                "--set" => options.settings.push(value()?),
                "--named" => options.named = true,
                "--at-once" => options.at_once = value()?.parse::<usize>()?.max(1),
                "--log-to" => options.logs = Some(value()?.into()),
                flag if flag.starts_with("--") => return Err(format!("no such flag: {flag}").into()),
                _ => options.files.push(arg.into()),
            }
        }
        if options.files.is_empty() {
            return Err("no files; see the comment at the top of examples/play/main.rs".into());
        }
        options.settings.push(format!("condense.window={}", options.window));
        Ok(options)
    }
}

/// The results of one pass.
#[derive(Debug, Default)]
struct Pass {
    requests: usize,
    swaps: usize,
    refused: Vec<String>,
    faults: Vec<String>,
    cost: Cost,
}

fn main() -> ExitCode {
    match Options::read(std::env::args().skip(1)).and_then(|options| play(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("play: {error}");
            ExitCode::from(2)
        }
    }
}

/// Plays every file. Returns whether no request was rejected and none failed.
pub fn play(options: &Options) -> Result<bool, Error> {
    let binary = child::binary()?;
    let folder = tempfile::tempdir()?;
    let logs = options.logs.clone().unwrap_or_else(|| folder.path().to_owned());
    std::fs::create_dir_all(&logs)?;
    let mut well = true;
    println!("{}; {}; chain of {}", options.shape, options.settings.join(", "), options.chain);
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
    for file in &options.files {
        let start = Instant::now();
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let runs =
            recorded::runs(file, options.chain).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut passes = Vec::new();
        for (pass, off) in [("untouched", true), ("condensed", false)] {
            let log = logs.join(format!("{name}.{pass}.jsonl"));
            passes.push(Pass::play(options, &runs, &binary, &log, off)?);
        }
        let [untouched, condensed] = &passes[..] else { unreachable!() };
        let (plain, cached) = condensed.cost.relative_to(&untouched.cost);
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
    /// Plays all runs of a file through one server, several runs at once, each call by call.
    fn play(options: &Options, runs: &[Run], binary: &Path, log: &Path, off: bool) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let manner = Manner {
            window: if off { u64::MAX } else { options.window },
            skew: SKEW,
            key: Some(KEY),
            keeps: 0,
            ..Manner::default()
        };
        let upstream = runtime.block_on(Upstream::start(manner));
        if log.exists() {
            std::fs::remove_file(log)?;
        }
        let serving = Serving::start(binary, &upstream.origin(), &options.settings, log)?;
        let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..options.at_once.min(runs.len()) {
                scope.spawn(|| {
                    while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                        // The server cannot recognise an untouched run, so each request carries the run's name.
                        let mut talk = Talk::new(
                            &serving,
                            options.shape,
                            off,
                            (off || options.named).then_some(&run.id),
                        );
                        let played: Vec<RequestResult> = run
                            .calls()
                            .enumerate()
                            .map(|(at, messages)| {
                                talk.send(&run.request(options.shape, messages, at % 2 == 1))
                            })
                            .collect();
                        results.lock().unwrap().extend(played);
                    }
                });
            }
        });
        serving.end()?;
        let mut pass = Self { cost: Cost::of(log)?, ..Self::default() };
        for result in results.into_inner().unwrap() {
            pass.requests += 1;
            pass.swaps += usize::from(result.condensed);
            pass.faults.extend(result.fault);
        }
        pass.refused = upstream.refused().iter().map(|refusal| format!("refused: {refusal:?}")).collect();
        Ok(pass)
    }
}
