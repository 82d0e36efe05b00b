//! `epitome context`: a session in so many tokens.

use std::str::FromStr;

use epitome::dialect::Dialect;
use epitome::rules::context::{Empty, Oversize};
use epitome::{Context, ContextRequest};
use serde_json::Value;

use super::SessionArgs;
use super::messages::show_message;
use crate::database::Database;
use crate::failure::Failure;
use crate::settings::Loaded;
use crate::show::{Show, ago, count, grouped};

const EXAMPLES: &str = "\
Examples:
  epitome context ann --tokens 8000
  epitome context ann --tokens 8000 --format anthropic | jq '. + {model: \"...\", max_tokens: 1024}'
  epitome context ann --as-of 120 --no-summary

Text is for reading, and says on standard error what is in it. The other formats are one JSON
object, ready to be sent: openai (chat completions), responses, anthropic, epitome. --json is the
context with its whole report. Where nothing fits, nothing is printed and the exit code is 1.";

/// A session in so many tokens, ready to be sent
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArgs,
    /// The budget (context.max_tokens of the settings)
    #[arg(long, value_name = "N", value_parser = super::whole, allow_negative_numbers = true)]
    tokens: Option<u64>,
    /// Messages only
    #[arg(long)]
    no_summary: bool,
    /// As if the session ended with this message
    #[arg(long, value_name = "SEQ", value_parser = super::whole, allow_negative_numbers = true)]
    as_of: Option<u64>,
    /// Only this author's messages and summaries
    #[arg(long, value_name = "NAME")]
    scope: Option<String>,
    /// Who is the assistant among peers
    #[arg(long, value_name = "NAME")]
    assistant: Option<String>,
    /// Spends what is left of the budget on older messages
    #[arg(long, conflicts_with = "steady")]
    fill: bool,
    /// Moves the start in steps, for prompt caches
    #[arg(long)]
    steady: bool,
    /// A newest message over the budget: empty, or clip
    #[arg(long, value_name = "HOW", default_value = "empty")]
    #[arg(value_parser = ["empty", "clip"], hide_possible_values = true)]
    oversize: String,
    /// text, openai, responses, anthropic or epitome
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
}

/// How it is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Text,
    Wire(Dialect),
}

impl FromStr for Format {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if name == "text" {
            return Ok(Self::Text);
        }
        name.parse().map(Self::Wire).map_err(|_: epitome::dialect::DialectError| {
            format!("no such format; there are text, {}", Dialect::names(&Dialect::all()))
        })
    }
}

pub(super) async fn run(args: &Args, loaded: &Loaded, show: &mut Show) -> Result<(), Failure> {
    if show.json && args.format.is_some() {
        let problem = "--json is the context with its report, --format what is sent: give one of them";
        return Err(Failure::Misused(problem.to_owned()));
    }
    let name = args.session.name()?;
    let database = Database::existing(loaded).await?;
    let (session, info) = database.session(name).await?;
    if let Some(seq) = args.as_of.filter(|seq| *seq > info.messages) {
        return Err(Failure::Failed(match info.messages {
            0 => format!("--as-of {seq}: there are no messages yet"),
            newest => format!("--as-of {seq}: the newest message is {newest}"),
        }));
    }
    let context = session
        .context(ContextRequest {
            tokens: args.tokens,
            summary: !args.no_summary,
            scope: args.scope.as_deref().map(Into::into),
            as_of: args.as_of,
            assistant: args.assistant.as_deref().map(Into::into),
            oversize: if args.oversize == "clip" { Oversize::Clip } else { Oversize::Empty },
            fill: args.fill,
            steady: args.steady,
            ..ContextRequest::default()
        })
        .await?;
    if show.json {
        show.object(&serde_json::to_value(&context).unwrap_or_default())?;
    } else if let Some(empty) = context.report.empty {
        let budget = grouped(context.report.budget);
        let hint = match empty {
            Empty::NoMessages if info.messages == 0 => {
                return Err(Failure::Failed("there is nothing to show: no messages yet".to_owned()));
            }
            Empty::NoMessages => {
                let told = "there is nothing to be answered yet: no model takes standing orders, empty messages or \
                            results without their calls alone";
                return Err(Failure::Failed(told.to_owned()));
            }
            Empty::NewestOverBudget if args.oversize != "clip" => "; --oversize clip shows an excerpt of it",
            _ => "; give it more --tokens",
        };
        return Err(Failure::Failed(format!("nothing fits in {budget} tokens: {empty}{hint}")));
    } else {
        match args.format.unwrap_or(Format::Text) {
            Format::Wire(dialect) => show.object(&Value::Object(dialect.write(&context.messages)))?,
            Format::Text => {
                show.note(header(&context, show))?;
                for message in &context.messages {
                    show_message(show, message)?;
                }
            }
        }
    }
    database.close().await;
    Ok(())
}

/// What it did, on a line.
fn header(context: &Context, show: &Show) -> String {
    let report = &context.report;
    let mut words = vec![
        format!("{} of {} tokens", grouped(report.tokens.total()), grouped(report.budget)),
        count(context.messages.len() as u64, "message"),
    ];
    if let Some(covers) = report.covers {
        let slot =
            context.summary.as_ref().and_then(|summary| summary.slot.as_deref()).unwrap_or("on the spot");
        let fitted = if report.fitted { ", shortened to fit" } else { "" };
        let created = context.summary.as_ref().and_then(|summary| summary.created);
        let age = created.map_or(String::new(), |created| format!(", {}", ago(show.now, created)));
        words.push(format!("summary of {}-{} ({slot}{age}{fitted})", covers.from, covers.through));
    }
    match report.gap {
        Some(gap) => words.push(format!("not exhaustive: {}-{} is missing", gap.from, gap.through)),
        None if report.exhaustive => words.push("exhaustive".to_owned()),
        None => {}
    }
    if report.skipped > 0 {
        words.push(format!("{} skipped", grouped(report.skipped)));
    }
    words.join(" · ")
}
