//! `epitome explain`: shows what each summary covers, and why the next summary is due or not.

use epitome::settings::Money;
use epitome::store::UsageSum;
use epitome::{Explanation, LoggedSlot, Queue, SlotStatus, is_log_hash};

use super::prelude::*;
use crate::http::wire::{self, QueueOut, SessionOut, SessionWhole};
use crate::show::{Style, bar};

const EXAMPLES: &str = "\
Examples:
  epitome explain ann          each slot of a session: messages, next summary, failures
  epitome explain              the queue: the slots that are due, in all sessions
  epitome explain 5f0a2c1b-91d4e07b3c22-c3e1a0b2      the session and slot of a hash in the log
  epitome explain ann --json | jq .slots[].why

Logs contain no names. Instead of the names of a session and its slot, the worker's log shows a
hash. `explain` finds the session and the slot of this hash in all workspaces. You can leave out the
last part of the hash, which is the slot.

The table at the end shows the outcomes of model calls:
  kept, reused      the reply was stored as a summary; `reused` is an earlier reply, without a call
  unused            the reply was a good summary, but came too late
  dropped           the call was stopped
  busy              the provider was overloaded
  no_answer         the provider failed, or did not answer in time
  refused           the provider refused the request: wrong key, model or parameters
  too_long          the input was longer than the model accepts
With these outcomes, the reply was no summary:
  empty             the reply had no text
  cut_off           the reply was cut off before its end
  loops             the reply repeated itself
  too_long_answer   the reply was over the size limit of the summary
  not_smaller       the reply was not smaller than the text that it would replace
  same_as_before    the reply was the same as the previous summary
  goes_on           the reply continued the conversation
  declined          the model declined to write a summary
  error_page        the reply was the error page of a server

--json prints one object: the session's totals, slots, settings and usage. Without a session, the
object is the queue.";

/// Shows what each summary covers, and why the next summary is due or not
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArgs,
}

/// Width of a gauge's bar, in characters.
const BAR: usize = 16;

pub(super) async fn run(args: &Args, database: &Database, show: &mut Show) -> Result<(), Failure> {
    let Some(name) = args.session.optional() else { return queue(database, show).await };
    let session = match database.session(name).await {
        Ok((session, _)) => session,
        Err(_) if is_log_hash(name) => logged(database, name, show).await?,
        Err(failure) => return Err(failure),
    };
    explain(&session, show).await
}

/// Returns the session that the log shows as this hash, and prints the names of its workspace, session and slot.
async fn logged(database: &Database, hash: &str, show: &mut Show) -> Result<Session, Failure> {
    let LoggedSlot { workspace, session, slot, scope } = database.engine.find_logged(hash).await?;
    let slot = slot.map_or(String::new(), |slot| format!(", slot \"{slot}\""));
    let scope = scope.map_or(String::new(), |author| format!(" of {author}"));
    show.note(printable(&format!(
        "{hash} is session \"{session}\" of the workspace \"{workspace}\"{slot}{scope}"
    )))?;
    Ok(database.engine.workspace(workspace).session(session))
}

async fn explain(session: &Session, show: &mut Show) -> Result<(), Failure> {
    let explanation = session.explain().await?;
    let usage = session.usage().await?;
    if show.json {
        let settings = session.settings().await?.to_value();
        let nested = SessionOut::new(explanation.session.clone());
        let whole = SessionWhole::for_operator(explanation, settings);
        return show.object(&SessionObject { whole, usage: wire::usage(&usage), session: nested });
    }
    let Explanation { session: info, slots } = explanation;
    let style = show.style;
    show.line(format!(
        "{}: {}, {}, {}, updated {}",
        style.bold(&printable(&info.name)),
        count(info.messages, "message"),
        count(info.turns, "turn"),
        count(info.tokens, "token"),
        ago(show.now, info.updated)
    ))?;
    for slot in &slots {
        show.line("")?;
        show_slot(slot, info.messages, show)?;
    }
    show_usage(&usage, show)
}

/// The object that `--json` prints: the session, as in the HTTP API, and the usage of the session's model calls.
#[derive(Serialize)]
struct SessionObject {
    #[serde(flatten)]
    whole: SessionWhole,
    usage: Value,
    // Earlier releases had the session's fields only in this object. Programs may still read the fields here.
    session: SessionOut,
}

fn show_slot(slot: &SlotExplanation, messages: u64, show: &mut Show) -> Result<(), Failure> {
    let style = show.style;
    let scope = slot.scope.as_ref().map_or(String::new(), |author| format!(" of {}", printable(author)));
    let (status, paint) = status(slot.status);
    let painted = paint(style, status);
    show.line(format!("{}{scope}  {painted}  {}", style.bold(&printable(&slot.slot)), printable(&slot.why)))?;
    let covers = match (slot.covered, slot.summary) {
        (0, _) | (_, None) => "nothing yet".to_owned(),
        (covered, Some(id)) => format!("messages 1-{covered} of {messages}, summary {id}"),
    };
    show.line(format!("  covers   {covers}"))?;
    if let Some(trigger) = &slot.trigger {
        show.line(format!("  trigger  {}", printable(trigger)))?;
    }
    for gauge in &slot.gauges {
        let drawn = match (show.width, gauge.need) {
            (Some(_), Some(need)) => format!("{} ", style.cyan(&bar(gauge.have, need, BAR))),
            _ => String::new(),
        };
        show.line(format!("  gauge    {drawn}{gauge}"))?;
    }
    if !slot.models.is_empty() {
        show.line(format!("  models   {}", printable(&slot.models.join(", "))))?;
    }
    if let Some(error) = slot.last_error.as_ref().filter(|_| slot.attempts > 0) {
        let since =
            slot.failing_since.map_or(String::new(), |since| format!(", since {}", ago(show.now, since)));
        show.line(format!(
            "  failed   {}{since}: {}",
            count(slot.attempts.into(), "time"),
            style.red(&printable(error))
        ))?;
    }
    if let Some(then) = slot.not_before.filter(|_| slot.status == SlotStatus::Waiting) {
        show.line(format!("  retry    at {}", utc(then)))?;
    }
    if let Some(then) = slot.due_at.filter(|_| slot.status == SlotStatus::Idle) {
        show.line(format!("  due at   {} if no message is added before", utc(then)))?;
    }
    Ok(())
}

fn show_usage(usage: &[UsageSum], show: &mut Show) -> Result<(), Failure> {
    if usage.is_empty() {
        return Ok(());
    }
    let mut table =
        Table::new(&["model", "slot", "outcome", "calls>", "in>", "cached>", "out>", "cost>", "time>"]);
    for sum in usage {
        table.row([
            printable(&sum.model),
            printable(&sum.slot),
            printable(&sum.outcome),
            grouped(sum.calls),
            grouped(sum.input),
            grouped(sum.cached),
            grouped(sum.output),
            sum.cost.map_or("unknown".to_owned(), |cost| Money::millionths(cost).to_string()),
            format!("{} ms", grouped(sum.millis)),
        ]);
    }
    show.line("")?;
    show.table(&table)
}

async fn queue(database: &Database, show: &mut Show) -> Result<(), Failure> {
    let queue = database.workspace.queue().await?;
    if show.json {
        return show.object(&QueueOut::new(queue));
    }
    let Queue { due, working, waiting, parked, slots } = &queue;
    show.line(format!(
        "{due} due, {working} being written, {waiting} waiting to retry, {parked} parked until a tool call or \
         loop ends"
    ))?;
    if slots.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&["session", "slot", "status", "due since", "failed>", "last error"]);
    for entry in slots {
        table.row([
            printable(&entry.session),
            printable(&entry.slot),
            status(entry.status).0.to_owned(),
            entry.since.map_or(String::new(), |since| ago(show.now, since)),
            grouped(entry.attempts.into()),
            printable(entry.last_error.as_deref().unwrap_or_default()).replace('\n', " "),
        ]);
    }
    show.table(&table)
}

/// Returns the name and the colour of a status.
fn status(status: SlotStatus) -> (&'static str, fn(Style, &str) -> String) {
    match status {
        SlotStatus::Idle => ("idle", Style::green),
        SlotStatus::Due => ("due", Style::cyan),
        SlotStatus::Working => ("being written", Style::cyan),
        SlotStatus::Waiting => ("waiting", Style::yellow),
        SlotStatus::Parked => ("parked", Style::yellow),
        SlotStatus::Retired => ("retired", Style::dim),
    }
}
