//! `epitome summarize`: summarizes a session now.

use std::future::Future;

use epitome::rules::message::Author;
use epitome::{SlotStatus, Summarize, Summarized};

use super::messages::{report_overdue, summary_line};
use super::prelude::*;
use crate::database::similar_or;
use crate::http::wire::summarized;

const EXAMPLES: &str = "\
Examples:
  epitome summarize ann
  epitome summarize ann --slot long --focus \"open questions\"
  epitome summarize ann --slot long --rebuild        rewrite the summary from the first message on

If there are no new messages, the command prints the current summary and calls no model. It also
writes the session's other summaries that are due, except with --no-wait. The exit code is 1 if the
summary could not be written. --json prints one object: `status` (written, nothing_new or pending),
`summary`, and after an error the `reason`.";

/// Summarizes a session now
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) session: SessionArgs,
    /// Slot whose summary is written [default: the first slot]
    #[arg(long, value_name = "NAME")]
    slot: Option<String>,
    /// Author whose messages are summarized [default: all authors]
    #[arg(long, value_name = "AUTHOR")]
    scope: Option<String>,
    /// Topic to focus on; only a configured model uses it, `local` ignores it
    #[arg(long, value_name = "TEXT", conflicts_with = "rebuild")]
    focus: Option<String>,
    /// Rewrites the summary from the first message on, with the current settings
    #[arg(long)]
    rebuild: bool,
    /// Does not wait: a server or a later command writes the summary
    #[arg(long)]
    no_wait: bool,
}

pub(super) async fn run(args: &Args, database: &Database, show: &mut Show) -> Result<(), Failure> {
    let name = args.session.name()?;
    let (session, info) = database.session(name).await?;
    let scope: Option<Author> = args.scope.as_deref().map(Into::into);
    let outcome = {
        let progress = show.progress(&format!("summarizing {}", printable(name)), Some(info.messages));
        let work = async {
            if args.rebuild {
                rebuild(args, &session, scope).await
            } else {
                summarize(args, &session, scope).await
            }
        };
        with_progress(work, &session, &progress).await
    };
    let outcome = match outcome {
        Err(Failure::Engine(epitome::Error::NotFound { .. })) => return Err(no_slot(args, &session).await),
        outcome => outcome?,
    };
    if show.json {
        let failed = matches!(outcome, Summarized::Pending { reason: Some(_) });
        show.object(&summarized(outcome))?;
        if failed {
            return Err(Failure::Reported(1));
        }
    } else {
        match &outcome {
            Summarized::Written { summary } => {
                show.note(summary_line(summary))?;
                show.line(printable(&summary.text))?;
            }
            Summarized::NothingNew { summary: Some(summary) } => {
                show.note(format!("no new messages; the current summary is {}", summary_line(summary)))?;
                show.line(printable(&summary.text))?;
            }
            Summarized::NothingNew { summary: None } => show.note("there is nothing to summarize yet")?,
            Summarized::Pending { reason: Some(reason) } => {
                return Err(Failure::Failed(format!("not written yet: {reason}")));
            }
            Summarized::Pending { reason: None } => {
                show.note("the summary is requested; the server or a later command writes it")?;
            }
        }
    }
    if !args.no_wait {
        // The command has also written the session's other summaries that were due, and these may have failed.
        report_overdue(&database.workspace, &[session.name()].into(), show).await?;
    }
    Ok(())
}

async fn summarize(args: &Args, session: &Session, scope: Option<Author>) -> Result<Summarized, Failure> {
    let request =
        Summarize { slot: args.slot.clone(), scope, focus: args.focus.clone(), wait: !args.no_wait };
    let outcome = session.summarize(request).await?;
    if !args.no_wait {
        session.work().await?;
    }
    Ok(outcome)
}

async fn rebuild(args: &Args, session: &Session, scope: Option<Author>) -> Result<Summarized, Failure> {
    let slot = match &args.slot {
        Some(slot) => slot.clone(),
        None => {
            let slots = session.explain().await?.slots;
            let in_scope =
                |slot: &&SlotExplanation| slot.scope == scope && slot.status != SlotStatus::Retired;
            let first = slots.iter().find(in_scope).map(|slot| slot.slot.clone());
            match first {
                Some(slot) => slot,
                None => return Err(no_slot(args, session).await),
            }
        }
    };
    if !session.rebuild(scope.clone(), &slot).await? {
        return Ok(Summarized::NothingNew { summary: None });
    }
    if args.no_wait {
        return Ok(Summarized::Pending { reason: None });
    }
    session.work().await?;
    let slots = session.explain().await?.slots;
    let current = slots.into_iter().find(|explained| explained.slot == slot && explained.scope == scope);
    match current {
        Some(SlotExplanation { due: Some(_), why, .. }) => {
            Err(Failure::Failed(format!("not written yet: {why}")))
        }
        Some(SlotExplanation { summary: Some(id), .. }) => {
            let found = session.summaries().await?.into_iter().find(|summary| summary.id == id);
            Ok(found
                .map_or(Summarized::NothingNew { summary: None }, |summary| Summarized::Written { summary }))
        }
        _ => Ok(Summarized::NothingNew { summary: None }),
    }
}

/// Returns the error that the session has no such slot. Suggests a slot.
async fn no_slot(args: &Args, session: &Session) -> Failure {
    let slots = session.explain().await.map(|explanation| explanation.slots).unwrap_or_default();
    let in_scope = slots
        .into_iter()
        .filter(|slot| slot.scope.as_deref() == args.scope.as_deref() && slot.status != SlotStatus::Retired);
    let names: Vec<String> = in_scope.map(|slot| slot.slot).collect();
    let scope = args.scope.as_ref().map_or(String::new(), |author| format!(" for the author \"{author}\""));
    let slot = args.slot.as_ref().map_or(String::new(), |slot| format!(" \"{slot}\""));
    let hint = match (names.is_empty(), &args.slot) {
        (true, _) => "the setting `slot` defines a session's slots".to_owned(),
        (false, slot) => {
            let all = format!("the session's slots are {}", names.join(", "));
            similar_or(slot.as_deref().unwrap_or_default(), &names, &all)
        }
    };
    Failure::Failed(format!("there is no slot{slot}{scope}; {hint}"))
}

/// Waits for the summary, and shows the last message that is summarized so far.
async fn with_progress<T>(
    work: impl Future<Output = Result<T, Failure>>,
    session: &Session,
    progress: &Progress,
) -> Result<T, Failure> {
    let update = || async {
        // An error here is ignored: it concerns the progress display only.
        let Ok(explained) = session.explain().await else { return };
        if let Some(slot) = explained.slots.iter().find(|slot| slot.status == SlotStatus::Working) {
            progress.bar.set_position(slot.covered);
            progress.bar.set_message(printable(&slot.slot));
        }
    };
    Progress::during(work, Duration::from_millis(250), update).await
}
