//! `epitome context`: prints the context of a session, within a token budget.

use epitome::rules::context::Empty;
use epitome::{Context, ContextRequest};

use super::messages::show_message;
use super::prelude::*;
use crate::format::unknown_format;
use crate::http::wire::ContextOut;
use crate::http::{ContextQuery, OversizeIn};

const EXAMPLES: &str = "\
Examples:
  epitome context ann --tokens 8000
  epitome context ann --tokens 8000 --format anthropic | jq '. + {model: \"...\", max_tokens: 1024}'
  epitome context ann --as-of 120 --no-summary

The default format, text, is for people. A line on standard error then says what the context
contains. Every other --format prints one JSON object that can be sent to a provider. --json prints
the context with its full report. If no message fits, no context is printed and the exit code is 1.";

/// Prints a session's context: the conversation in at most N tokens, for a model
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) session: SessionArgs,
    #[command(flatten)]
    query: ContextQuery,
    /// Prints only messages, without a summary
    #[arg(long)]
    no_summary: bool,
    #[arg(long, value_name = "FORMAT", value_parser = format, help = formats())]
    format: Option<Format>,
}

/// The provider's format to print. None means text.
type Format = Option<Dialect>;

const TEXT: &str = "text";

fn format(name: &str) -> Result<Format, String> {
    if name == TEXT {
        return Ok(None);
    }
    let names: Vec<&str> = [TEXT].into_iter().chain(Dialect::all().into_iter().map(Dialect::name)).collect();
    name.parse().map(Some).map_err(|_: epitome::dialect::DialectError| unknown_format(name, &names))
}

fn formats() -> String {
    format!("Output format: {TEXT}, {}", Dialect::names(&Dialect::all()))
}

pub(super) async fn run(args: &Args, database: &Database, show: &mut Show) -> Result<(), Failure> {
    if show.json && args.format.is_some() {
        let problem =
            "--json prints the context with its report, and --format prints a request; use only one of them";
        return Err(Failure::Misused(problem.to_owned()));
    }
    let (session, info) = database.session(args.session.name()?).await?;
    if let Some(seq) = args.query.as_of.filter(|seq| *seq > info.messages) {
        return Err(Failure::Failed(match info.messages {
            0 => format!("--as-of {seq}: the session has no messages yet"),
            newest => format!("--as-of {seq}: the session's newest message is {newest}"),
        }));
    }
    let request = ContextRequest { summary: !args.no_summary, ..args.query.request() };
    let context = session.context(request).await?;
    if show.json {
        let (through, encoding) = (context.through, context.encoding.clone());
        show.object(&ContextLine { context: ContextOut::new(context), through, encoding })?;
    } else if let Some(empty) = context.report.empty {
        let budget = grouped(context.report.budget);
        let hint = match empty {
            Empty::NoMessages if info.messages == 0 => {
                return Err(Failure::Failed("the session has no messages yet".to_owned()));
            }
            Empty::NoMessages => {
                let problem = "the session has no message that a model could answer: it has only system messages, \
                               empty messages, or tool results without their calls";
                return Err(Failure::Failed(problem.to_owned()));
            }
            Empty::NewestOverBudget if args.query.oversize != Some(OversizeIn::Clip) => {
                "; increase --tokens, or use --oversize clip to show an excerpt of the newest message"
            }
            _ => "; increase --tokens",
        };
        return Err(Failure::Failed(format!("nothing fits in {budget} tokens: {empty}{hint}")));
    } else {
        if let Some(dialect) = args.format.flatten() {
            return show.object(&dialect.write(&context.messages));
        }
        show.note(header(&context, show))?;
        for message in &context.messages {
            show_message(show, message)?;
        }
    }
    Ok(())
}

/// The object that `--json` prints: the object of the HTTP API, with two more fields, `through` and `encoding`.
#[derive(Serialize)]
struct ContextLine {
    #[serde(flatten)]
    context: ContextOut,
    // Earlier releases had the next two fields here and not in the report. Programs may still read the fields here.
    through: u64,
    encoding: String,
}

/// Describes the context in one line.
fn header(context: &Context, show: &Show) -> String {
    let report = &context.report;
    let mut words = vec![
        format!("{} of {} tokens", grouped(report.tokens.total()), grouped(report.budget)),
        count(context.messages.len() as u64, "message"),
    ];
    if let Some(covers) = report.covers {
        let slot =
            context.summary.as_ref().and_then(|summary| summary.slot.as_deref()).unwrap_or("extracted now");
        let fitted = if report.fitted { ", shortened to fit" } else { "" };
        let created = context.summary.as_ref().and_then(|summary| summary.created);
        let age = created.map_or(String::new(), |created| format!(", {}", ago(show.now, created)));
        words.push(format!("summary of messages {}-{} ({slot}{age}{fitted})", covers.from, covers.through));
    }
    match report.gap {
        Some(gap) => words.push(format!("not exhaustive: messages {}-{} are missing", gap.from, gap.through)),
        None if report.exhaustive => words.push("exhaustive".to_owned()),
        None => {}
    }
    if report.skipped > 0 {
        words.push(format!("skipped messages: {}", grouped(report.skipped)));
    }
    words.join(" · ")
}
