//! `epitome context`: prints the context of a session, within a token budget.

use epitome::rules::context::Empty;
use epitome::{Context, ContextRequest, Listing};

use super::messages::show_message;
use super::prelude::*;
use crate::database::similar_or;
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
    format: Option<OutputFormat>,
}

/// Maximum number of authors that are compared with a mistyped author.
const MAX_COMPARED_AUTHORS: usize = 1_000;

/// The provider's format to print. None means text.
type OutputFormat = Option<Dialect>;

const TEXT: &str = "text";

fn format(name: &str) -> Result<OutputFormat, String> {
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
                if let Some(author) = &args.query.scope {
                    check_author(&session, author, args.query.as_of).await?;
                }
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

/// Fails if the session has no message by this author up to the message `as_of`. The error suggests similar authors.
async fn check_author(session: &Session, author: &str, as_of: Option<u64>) -> Result<(), Failure> {
    let before = as_of.map(|seq| seq.saturating_add(1));
    let page = Page { before, scope: Some(author.into()), limit: 1, ..Page::default() };
    if !session.messages(page).await?.items.is_empty() {
        return Ok(());
    }
    let up_to = as_of.map_or(String::new(), |seq| format!(" up to message {seq}"));
    let problem = format!("no message of the session{up_to} is by `{author}`");
    let listing = Listing { limit: MAX_COMPARED_AUTHORS, ..Listing::default() };
    let authors = session.list_members(listing).await?.map(|member| member.author.name.to_string()).items;
    let hint = match authors.iter().any(|name| name == author) {
        true => String::new(),
        false => similar_or(author, &authors, ""),
    };
    Err(Failure::Failed(if hint.is_empty() { problem } else { format!("{problem}; {hint}") }))
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
