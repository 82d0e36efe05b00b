//! `epitome condense`: a request in, the same request with a shorter list out.
//!
//! A filter, for any program that can start another: JSON on standard input, JSON on standard output, and no database.
//! Where nothing is due the very same bytes come out. What is decided is the condenser's matter; reading, writing and what
//! is said about it stand here, and `--explain` in `explain.rs`.

use std::io::{IsTerminal, Read};

use epitome::Condenser;
use epitome::rules::strategy::Strategy;
use epitome::rules::trigger::Trigger;

use super::prelude::*;
use crate::condensing::{Outcome, Request, Wish};
use crate::settings::OwnFlag;

mod explain;

const EXAMPLES: &str = "\
Examples:
  epitome condense < request.json > shorter.json
  epitome condense --strategy recent --keep-messages 20 --force request.json
  epitome condense --trigger 'window(0.5)' --window 128000 --report report.json < messages.json
  epitome condense --explain request.json                what would leave, what would stay, and why

It takes a whole request or a bare list of messages of OpenAI's chat completions, OpenAI's Responses
or Anthropic's messages, and gives the same back with a shorter list; all other fields stay as they
are. Where nothing is due the same bytes come out. The window is that of the request's model, where
it is known; --window goes before it. Summaries are written by `local`, without a key or a network,
unless --model or the settings name another.

Strategies: {STRATEGIES}. Each may say what it keeps,
as in recent(messages(50)); pipeline(mask, summarize) runs several, one after the other.
Triggers:
{TRIGGERS}.

A message with \"epitome\": {\"pinned\": true} always stays, one with {\"skip\": true} is never summed up.
These flags stay in the output, so that a later pass still knows; --strip removes them.

Exit code 0: done, or nothing to do, or the model failed (then the list is as it was, and a line on
standard error and the report say so). 2: what was given is wrong, and nothing is on standard
output.";

/// A request in, the same with a shorter list out
#[derive(clap::Args)]
#[command(after_help = EXAMPLES.replace("{STRATEGIES}", Strategy::NAMES).replace("{TRIGGERS}", Trigger::INLINE))]
pub(crate) struct Args {
    /// The request, or the list of messages (standard input)
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    wish: Wish,
    /// Writes what was done to FILE, as JSON (-: to standard error)
    #[arg(long, value_name = "FILE", conflicts_with = "explain")]
    report: Option<PathBuf>,
}

impl Args {
    /// Its flags that are settings.
    pub(super) fn settings(&self) -> Result<Vec<OwnFlag>, Failure> {
        self.wish.settings().map_err(Failure::Misused)
    }
}

pub(super) async fn run(args: &Args, loaded: &Loaded, show: &mut Show) -> Result<(), Failure> {
    let file = args.file.as_deref().filter(|file| *file != Path::new("-"));
    let given = read(file, loaded.settings.limits.body)?;
    let request = Request::read(&given, args.wish.clone()).map_err(Failure::Input)?;
    let condenser = condenser(loaded, &request)?;
    if args.wish.explain {
        return explain::show(&request, &request.forecast(&condenser), show);
    }
    // It is opened before anything is done, so that a place that cannot be written to is told in time.
    let report = match args.report.as_deref() {
        Some(place) if place != Path::new("-") => Some(Output::open(place).map_err(unreported)?),
        _ => None,
    };
    let done = {
        let _waits = show.progress("condensing", None);
        request.condense(&condenser).await
    };
    if args.report.is_some() {
        let text = serde_json::to_string(&done.report).unwrap_or_default();
        match report {
            Some(output) => output.say(&format!("{text}\n")).map_err(unreported)?,
            None => show.error(text)?,
        }
    }
    tell(&done, show)?;
    show.raw(done.text.as_ref().unwrap_or(&given).as_bytes())?;
    show.flush()
}

fn condenser(loaded: &Loaded, request: &Request) -> Result<Condenser, Failure> {
    request.condenser(Condenser::builder().settings(loaded.patch.clone())).map_err(|error| match error {
        // Nothing else was asked for yet.
        epitome::Error::Invalid(problem) => Failure::Setting(problem),
        other => Failure::Engine(other),
    })
}

/// What is said beside the answer.
fn tell(done: &Outcome, show: &mut Show) -> Result<(), Failure> {
    if done.has_failed() {
        let why = done.report.problems.last().map_or("it gave no summary", String::as_str);
        let what =
            if done.report.condensed { "only what needs no model was done" } else { "the list is as it was" };
        return show.error(format_args!("epitome: the model failed, and {what}: {why}"));
    }
    if show.watched {
        show.note(&done.report.notice)?;
    }
    Ok(())
}

/// All of it, where that is no more than `limits.body`.
fn read(file: Option<&Path>, most: u64) -> Result<String, Failure> {
    let name = file.map_or_else(|| "standard input".to_owned(), |file| file.display().to_string());
    let cannot = |error: std::io::Error| Failure::Input(format!("{name} cannot be read: {error}"));
    let from: Box<dyn Read> = match file {
        Some(file) => Box::new(std::fs::File::open(file).map_err(cannot)?),
        None if std::io::stdin().is_terminal() => {
            return Err(Failure::Misused(
                "nothing is piped in; give a FILE, or say `epitome condense < request.json`".to_owned(),
            ));
        }
        None => Box::new(std::io::stdin().lock()),
    };
    let refused = |problem: &str| Err(Failure::Input(format!("{name}: {problem}")));
    let mut all = Vec::new();
    from.take(most.saturating_add(1)).read_to_end(&mut all).map_err(cannot)?;
    if all.len() as u64 > most {
        return refused(&format!("over {} (limits.body); raise it with --set limits.body=N", bytes(most)));
    }
    if all.iter().all(u8::is_ascii_whitespace) {
        return refused("is empty; a request or a list of messages is wanted, as JSON");
    }
    String::from_utf8(all).or_else(|_| refused("is not UTF-8 text"))
}

/// The flag is wrong, and nothing was done.
fn unreported(failure: Failure) -> Failure {
    match failure {
        Failure::Failed(problem) => Failure::Input(format!("--report: {problem}")),
        other => other,
    }
}
