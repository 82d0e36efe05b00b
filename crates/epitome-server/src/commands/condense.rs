//! `epitome condense`: shortens the message list of one request.
//!
//! The command reads JSON from standard input, writes JSON to standard output, and opens no database, so any program
//! can use it. If the trigger is not met, the output is the input, byte for byte. The condenser decides what to do.
//! This module reads the input, and writes the output and the report. `explain.rs` implements `--explain`.

use std::io::{IsTerminal, Read};

use epitome::Condenser;
use epitome::rules::strategy::Strategy;
use epitome::rules::trigger::Trigger;

use super::prelude::*;
use crate::condensing::{CondenseOptions, CondenseOutcome, CondenseRequest};
use crate::settings::OwnFlag;

mod explain;

const EXAMPLES: &str = "\
Examples:
  epitome condense < request.json > shorter.json
  epitome condense --strategy recent --keep-messages 20 --force request.json
  epitome condense --trigger 'window(0.5)' --window 128000 --report report.json < messages.json
  epitome condense --explain request.json                show what would be removed and what stays

The input is a whole request or only its list of messages, in the format of OpenAI's chat
completions, OpenAI's Responses or Anthropic's Messages. The output has the same format, with a
shorter list; all other fields are unchanged. If the trigger is not met, the output is the input,
byte for byte. The window is the context window of the request's model, if Epitome recognises that
model; --window overrides it. By default the built-in extractive summarizer `local` makes the
summaries, without a key or a network. --model or the settings select another model.

Strategies: {STRATEGIES}.
recent(messages(50)) also sets which of the newest messages stay verbatim. mask, summarize and
amortized can set this in the same way. pipeline(mask, summarize) runs several strategies in turn.
Triggers:
{TRIGGERS}.

A message with \"epitome\": {\"pinned\": true} always stays. A message with \"epitome\": {\"skip\": true}
is never summarized. The output contains these flags, so that the next run sees the flags too.
--strip removes the flags.

Exit code 0: the output is a valid request. If the model failed, the list is unchanged or was
shortened without a model. A line on standard error and the report say that the model failed.
Exit code 2: the input or a flag is invalid, and nothing is written to standard output.";

/// Shortens the message list of one request; needs no database
#[derive(clap::Args)]
#[command(after_help = EXAMPLES.replace("{STRATEGIES}", Strategy::NAMES).replace("{TRIGGERS}", Trigger::INLINE))]
pub(crate) struct Args {
    /// Request or list of messages [default: standard input]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    wish: CondenseOptions,
    /// Writes a report to FILE, as JSON (- is standard error)
    #[arg(long, value_name = "FILE", conflicts_with = "explain")]
    report: Option<PathBuf>,
}

impl Args {
    /// Returns the flags that are settings.
    pub(super) fn settings(&self) -> Result<Vec<OwnFlag>, Failure> {
        self.wish.settings().map_err(Failure::Misused)
    }
}

pub(super) async fn run(args: &Args, loaded: &Loaded, show: &mut Show) -> Result<(), Failure> {
    let file = args.file.as_deref().filter(|file| *file != Path::new("-"));
    let input = read(file, loaded.settings.limits.body)?;
    let request = CondenseRequest::read(&input, args.wish.clone()).map_err(Failure::Input)?;
    let condenser = condenser(loaded, &request)?;
    if args.wish.explain {
        return explain::show(&request, &request.forecast(&condenser), show);
    }
    // Opens the report file first, so that a path that cannot be written fails before any work is done.
    let report = match args.report.as_deref() {
        Some(place) if place != Path::new("-") => Some(Output::open(place).map_err(report_not_writable)?),
        _ => None,
    };
    let done = {
        let _progress = show.progress("condensing", None);
        request.condense(&condenser).await
    };
    if args.report.is_some() {
        let text = serde_json::to_string(&done.report).unwrap_or_default();
        match report {
            Some(output) => output.say(&format!("{text}\n")).map_err(report_not_writable)?,
            None => show.error(text)?,
        }
    }
    report_outcome(&done, show)?;
    show.raw(done.text.as_ref().unwrap_or(&input).as_bytes())?;
    show.flush()
}

fn condenser(loaded: &Loaded, request: &CondenseRequest) -> Result<Condenser, Failure> {
    request.condenser(Condenser::builder().settings(loaded.patch.clone())).map_err(|error| match error {
        // At this point, `Invalid` can only mean an invalid setting.
        epitome::Error::Invalid(problem) => Failure::Setting(problem),
        other => Failure::Engine(other),
    })
}

/// If the model failed, prints this to standard error. Otherwise, on a terminal, prints what was condensed.
fn report_outcome(done: &CondenseOutcome, show: &mut Show) -> Result<(), Failure> {
    if done.has_failed() {
        let why = done.report.problems.last().map_or("the model returned no summary", String::as_str);
        let what = if done.report.condensed {
            "only the steps without a model were done"
        } else {
            "the list is unchanged"
        };
        return show.error(format_args!("epitome: the model failed, and {what}: {why}"));
    }
    if show.watched {
        show.note(&done.report.notice)?;
    }
    Ok(())
}

/// Reads the whole input. Refuses more than `limits.body` bytes.
fn read(file: Option<&Path>, max_bytes: u64) -> Result<String, Failure> {
    let name = file.map_or_else(|| "standard input".to_owned(), |file| file.display().to_string());
    let cannot = |error: std::io::Error| Failure::Input(format!("{name} cannot be read: {error}"));
    let from: Box<dyn Read> = match file {
        Some(file) => Box::new(std::fs::File::open(file).map_err(cannot)?),
        None if std::io::stdin().is_terminal() => {
            return Err(Failure::Misused(
                "no input; give a FILE, or pipe a request in: `epitome condense < request.json`".to_owned(),
            ));
        }
        None => Box::new(std::io::stdin().lock()),
    };
    let refused = |problem: &str| Err(Failure::Input(format!("{name}: {problem}")));
    let mut all = Vec::new();
    from.take(max_bytes.saturating_add(1)).read_to_end(&mut all).map_err(cannot)?;
    if all.len() as u64 > max_bytes {
        return refused(&format!(
            "is larger than {} (limits.body); raise the limit with --set limits.body=N",
            bytes(max_bytes)
        ));
    }
    if all.iter().all(u8::is_ascii_whitespace) {
        return refused("is empty; expected a request or a list of messages, as JSON");
    }
    String::from_utf8(all).or_else(|_| refused("is not UTF-8 text"))
}

/// Converts the error for a `--report` file that cannot be written: the flag is invalid (exit code 2).
fn report_not_writable(failure: Failure) -> Failure {
    match failure {
        Failure::Failed(problem) => Failure::Input(format!("--report: {problem}")),
        other => other,
    }
}
