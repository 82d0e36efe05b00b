//! `epitome condense`: a request in, the same request with a shorter list out.
//!
//! A filter, for any program that can start another: JSON on standard input, JSON on standard output, and no database.
//! Where nothing is due the very same bytes come out. What is decided is the condenser's matter; reading, writing and what
//! is said about it stand here, and `--explain` in `explain.rs`.

use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use epitome::Condenser;
use epitome::dialect::Dialect;

use crate::condensing::{Outcome, Request, Wish};
use crate::failure::Failure;
use crate::leftovers;
use crate::settings::Loaded;
use crate::show::{Show, bytes};

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

Strategies: noop, recent, mask, summarize, amortized, pipeline(.., ..). Triggers: tokens(n),
window(fraction), messages(n), turns(n), chars(n), economic, any(.., ..), all(.., ..).

A message with \"epitome\": {\"pinned\": true} always stays, one with {\"skip\": true} is never summed up.
These flags stay in the output, so that a later pass still knows; --strip removes them.

Exit code 0: done, or nothing to do, or the model failed (then the list is as it was, and a line on
standard error and the report say so). 2: what was given is wrong, and nothing is on standard
output.";

/// A request in, the same with a shorter list out
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The request, or the list of messages (standard input)
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// By which means (condense.strategy, summarize)
    #[arg(long, value_name = "S")]
    strategy: Option<String>,
    /// How many of the newest messages stay
    #[arg(long, value_name = "N", group = "keep", allow_negative_numbers = true)]
    keep_messages: Option<u64>,
    /// How many of the newest turns stay
    #[arg(long, value_name = "N", group = "keep", allow_negative_numbers = true)]
    keep_turns: Option<u64>,
    /// How many tokens of the newest messages stay
    #[arg(long, value_name = "N", group = "keep", allow_negative_numbers = true)]
    keep_tokens: Option<u64>,
    /// How many messages stay after the leading system ones
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    keep_first: Option<u64>,
    /// When it is due (condense.trigger, any(tokens(170000), window(0.75)))
    #[arg(long, value_name = "EXPR")]
    trigger: Option<String>,
    /// The window of the model the list is for, in tokens
    #[arg(long, value_name = "N", value_parser = super::whole, allow_negative_numbers = true)]
    window: Option<u64>,
    /// The tokens of the request by the provider's own count, which then decides
    #[arg(long, value_name = "N", value_parser = super::whole, allow_negative_numbers = true)]
    counted: Option<u64>,
    /// Condenses though nothing is due
    #[arg(long)]
    force: bool,
    /// Who writes the summary: local, or one of `models` of the settings
    #[arg(long, value_name = "M")]
    model: Option<String>,
    /// openai, responses or anthropic (told from what is given)
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    format: Option<Dialect>,
    /// Removes our flags from the messages
    #[arg(long)]
    strip: bool,
    /// Says what would leave, what would stay and why, and does nothing
    #[arg(long, conflicts_with_all = ["strip", "report"])]
    explain: bool,
    /// Writes what was done to FILE, as JSON (-: to standard error)
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

fn format(name: &str) -> Result<Dialect, String> {
    name.parse().map_err(|_| {
        let foreign: Vec<Dialect> =
            Dialect::all().into_iter().filter(|dialect| !dialect.format().about().is_native).collect();
        format!("no such format; there are {}", Dialect::names(&foreign))
    })
}

impl Args {
    /// Its flags that are settings: flag, key, value.
    pub(super) fn settings(&self) -> Vec<(&'static str, &'static str, String)> {
        let keep = |flag, unit: &str, number: Option<u64>| {
            number.map(|number| (flag, "condense.keep", format!("{unit}({number})")))
        };
        let text = |flag, key, text: &Option<String>| text.clone().map(|text| (flag, key, text));
        let given = [
            text("--strategy", "condense.strategy", &self.strategy),
            keep("--keep-messages", "messages", self.keep_messages),
            keep("--keep-turns", "turns", self.keep_turns),
            keep("--keep-tokens", "tokens", self.keep_tokens),
            self.keep_first.map(|first| ("--keep-first", "condense.keep_first", first.to_string())),
            text("--trigger", "condense.trigger", &self.trigger),
            text("--model", "condense.model", &self.model),
        ];
        given.into_iter().flatten().collect()
    }
}

pub(super) async fn run(args: &Args, loaded: &Loaded, show: &mut Show) -> Result<(), Failure> {
    let most = loaded.settings.limits.body;
    let given = match args.file.as_deref().filter(|file| *file != Path::new("-")) {
        Some(file) => from_file(file, most)?,
        None => from_stdin(most)?,
    };
    let wish = Wish {
        dialect: args.format,
        window: args.window,
        counted: args.counted,
        force: args.force,
        strip: args.strip,
    };
    let request = Request::read(&given, wish).map_err(Failure::Input)?;
    let condenser = condenser(loaded, &request)?;
    if args.explain {
        return explain::show(&request, &request.forecast(&condenser), show);
    }
    let report = args.report.as_deref().map(Slip::open).transpose()?;
    let done = {
        let waits = show.progress("condensing", None);
        let done = request.condense(&condenser).await;
        drop(waits);
        done
    };
    tell(&done, report, show)?;
    match &done.text {
        Some(text) => show.raw(text.as_bytes())?,
        None => show.raw(given.as_bytes())?,
    }
    show.flush()
}

fn condenser(loaded: &Loaded, request: &Request) -> Result<Condenser, Failure> {
    request.condenser(Condenser::builder().patch(loaded.patch.clone())).map_err(|error| match error {
        // Nothing else was asked for yet.
        epitome::Error::Invalid(problem) => Failure::Setting(problem),
        other => Failure::Engine(other),
    })
}

/// What is said beside the answer.
fn tell(done: &Outcome, report: Option<Slip>, show: &mut Show) -> Result<(), Failure> {
    let report_text = serde_json::to_string(&done.report).unwrap_or_default();
    match report {
        Some(Slip::Errors) => show.error(&report_text)?,
        Some(slip) => slip.write(&report_text)?,
        None => {}
    }
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

fn from_file(file: &Path, most: u64) -> Result<String, Failure> {
    let name = file.display();
    let cannot = |error: std::io::Error| Failure::Input(format!("{name} cannot be read: {error}"));
    let opened = std::fs::File::open(file).map_err(cannot)?;
    read(opened, most, &name.to_string()).map_err(cannot)?
}

fn from_stdin(most: u64) -> Result<String, Failure> {
    let input = std::io::stdin();
    if input.is_terminal() {
        return Err(Failure::Misused(
            "nothing is piped in; give a FILE, or say `epitome condense < request.json`".to_owned(),
        ));
    }
    let cannot = |error| Failure::Input(format!("standard input cannot be read: {error}"));
    read(input.lock(), most, "standard input").map_err(cannot)?
}

/// All of it, where that is no more than `limits.body`.
fn read(from: impl Read, most: u64, name: &str) -> std::io::Result<Result<String, Failure>> {
    let refused = |problem: String| Ok(Err(Failure::Input(format!("{name}: {problem}"))));
    let mut all = Vec::new();
    from.take(most.saturating_add(1)).read_to_end(&mut all)?;
    if all.len() as u64 > most {
        return refused(format!("over {} (limits.body); raise it with --set limits.body=N", bytes(most)));
    }
    if all.iter().all(u8::is_ascii_whitespace) {
        return refused("is empty; a request or a list of messages is wanted, as JSON".to_owned());
    }
    match String::from_utf8(all) {
        Ok(text) => Ok(Ok(text)),
        Err(_) => refused("is not UTF-8 text".to_owned()),
    }
}

/// Where the report goes. It is opened before anything is done, so that a place that cannot be written to is told in time.
enum Slip {
    /// Standard error.
    Errors,
    /// What is no plain file is written to as it is: a pipe, a terminal.
    Open(PathBuf, std::fs::File),
    /// A file is there as a whole or not at all: it is written beside its place, then moved there.
    Beside { place: PathBuf, part: PathBuf, file: std::fs::File, _leftover: leftovers::Leftover },
}

impl Slip {
    fn open(place: &Path) -> Result<Self, Failure> {
        if place == Path::new("-") {
            return Ok(Self::Errors);
        }
        let cannot = |error| cannot_write(place, &error);
        if std::fs::metadata(place).is_ok_and(|there| !there.is_file()) {
            let file = std::fs::OpenOptions::new().write(true).open(place).map_err(cannot)?;
            return Ok(Self::Open(place.to_owned(), file));
        }
        let ending = format!(".{}", leftovers::unforeseen());
        let leftover = leftovers::note_beside(place, &ending);
        let mut part = place.as_os_str().to_owned();
        part.push(format!("{ending}.part"));
        let part = PathBuf::from(part);
        let file = std::fs::File::create_new(&part).map_err(cannot)?;
        Ok(Self::Beside { place: place.to_owned(), part, file, _leftover: leftover })
    }

    fn write(self, text: &str) -> Result<(), Failure> {
        match self {
            Self::Errors => Ok(()),
            Self::Open(place, mut file) => {
                writeln!(file, "{text}").map_err(|error| cannot_write(&place, &error))
            }
            Self::Beside { place, part, mut file, .. } => {
                let written = writeln!(file, "{text}").and_then(|()| std::fs::rename(&part, &place));
                written.map_err(|error| {
                    let _ = std::fs::remove_file(&part);
                    cannot_write(&place, &error)
                })
            }
        }
    }
}

fn cannot_write(place: &Path, error: &std::io::Error) -> Failure {
    Failure::Input(format!("--report: {} cannot be written: {error}", place.display()))
}
