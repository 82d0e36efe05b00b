//! `epitome undo`: undoes a summary.

use epitome::Summary;

use super::messages::{covered, summary_line};
use super::prelude::*;
use crate::database::similar_or;
use crate::http::wire::undone;

const EXAMPLES: &str = "\
Examples:
  epitome undo ann --slot short
  epitome undo ann --summary 42

The previous summary of the slot becomes current again. The trigger then counts only messages that
are appended later. No message is changed. If the session has only one current summary, you need
neither --slot nor --summary. --json prints one object: `undone` is the id of the undone summary,
and `stands` is the summary that is now current, or null.";

/// Undoes a summary; the previous summary becomes current again
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) session: SessionArgs,
    #[command(flatten)]
    selector: SummarySelector,
}

/// Selects a summary.
#[derive(clap::Args)]
pub(super) struct SummarySelector {
    /// Selects the summary with this id
    #[arg(long, value_name = "ID", conflicts_with_all = ["slot", "scope"])]
    summary: Option<i64>,
    /// Selects the current summary of this slot
    #[arg(long, value_name = "NAME")]
    slot: Option<String>,
    /// Selects only slots that summarize this author's messages
    #[arg(long, value_name = "AUTHOR")]
    scope: Option<String>,
}

impl SummarySelector {
    /// Returns the id of the selected summary. Fails if the flags match no current summary, or more than one.
    pub(super) async fn id(&self, session: &Session) -> Result<i64, Failure> {
        if let Some(id) = self.summary {
            return Ok(id);
        }
        let matches = |summary: &&Summary| {
            self.slot.as_ref().is_none_or(|slot| *slot == summary.slot)
                && self.scope.as_ref().is_none_or(|scope| summary.scope.as_deref() == Some(scope))
        };
        let current = session.summaries().await?;
        let found: Vec<&Summary> = current.iter().filter(matches).collect();
        let describe =
            |summary: &Summary| format!("{} ({}, {})", summary.id, summary.slot, covered(summary.through));
        match found.as_slice() {
            [summary] => Ok(summary.id),
            [] if current.is_empty() => Err(Failure::Failed("the session has no current summary".to_owned())),
            [] => Err(self.no_summary(&current)),
            several => {
                let all: Vec<String> = several.iter().map(|summary| describe(summary)).collect();
                let all = all.join(", ");
                Err(Failure::Misused(format!(
                    "several summaries are current: {all}; select one with --slot or --summary"
                )))
            }
        }
    }

    /// Returns the error that no current summary matches the flags. Suggests a slot.
    fn no_summary(&self, current: &[Summary]) -> Failure {
        let mut slots: Vec<String> = current.iter().map(|summary| summary.slot.clone()).collect();
        slots.dedup();
        let all = format!("these slots have a summary: {}", slots.join(", "));
        let slot = self.slot.as_ref().map_or(String::new(), |slot| format!(" of the slot \"{slot}\""));
        let scope =
            self.scope.as_ref().map_or(String::new(), |author| format!(" of the author \"{author}\""));
        let hint = similar_or(self.slot.as_deref().unwrap_or_default(), &slots, &all);
        Failure::Failed(format!("there is no summary{slot}{scope}; {hint}"))
    }
}

pub(super) async fn run(args: &Args, database: &Database, show: &mut Show) -> Result<(), Failure> {
    let (session, _) = database.session(args.session.name()?).await?;
    let id = args.selector.id(&session).await?;
    let restored = session.undo(id).await?;
    let now = match &restored {
        Some(summary) => format!("{} is current again", summary_line(summary)),
        None => "its slot now has no summary".to_owned(),
    };
    let line = printable(&format!("summary {id} is undone; {now}"));
    show.answer(&undone(id, restored), line)
}
