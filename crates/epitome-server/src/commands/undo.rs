//! `epitome undo`: takes a summary back.

use epitome::Summary;

use super::messages::{facts, reach};
use super::prelude::*;

const EXAMPLES: &str = "\
Examples:
  epitome undo ann --slot short
  epitome undo ann --summary 42

The one before it stands again and counting starts anew; no message is touched. With one summary
standing, neither --slot nor --summary is needed. --json is one object: undone and stands.";

/// Takes a summary back; the one before it stands again
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) session: SessionArgs,
    #[command(flatten)]
    which: Which,
}

/// Which summary.
#[derive(clap::Args)]
pub(super) struct Which {
    /// The summary, by its number
    #[arg(long, value_name = "ID", conflicts_with_all = ["slot", "scope"])]
    summary: Option<i64>,
    /// The one that stands in this slot
    #[arg(long, value_name = "NAME")]
    slot: Option<String>,
    /// Of this author's slot
    #[arg(long, value_name = "AUTHOR")]
    scope: Option<String>,
}

impl Which {
    /// The number that is meant. Where none is named, the only one that stands.
    pub(super) async fn id(&self, session: &Session) -> Result<i64, Failure> {
        if let Some(id) = self.summary {
            return Ok(id);
        }
        let meant = |summary: &&Summary| {
            self.slot.as_ref().is_none_or(|slot| *slot == summary.slot)
                && self.scope.as_ref().is_none_or(|scope| summary.scope.as_deref() == Some(scope))
        };
        let standing = session.summaries().await?;
        let found: Vec<&Summary> = standing.iter().filter(meant).collect();
        let one =
            |summary: &Summary| format!("{} ({}, {})", summary.id, summary.slot, reach(summary.through));
        match found.as_slice() {
            [summary] => Ok(summary.id),
            [] if standing.is_empty() => Err(Failure::Failed("no summary stands in this session".to_owned())),
            [] => {
                let all: Vec<String> = standing.iter().map(one).collect();
                Err(Failure::Failed(format!("no such summary stands; there are {}", all.join(", "))))
            }
            several => {
                let all: Vec<String> = several.iter().map(|summary| one(summary)).collect();
                Err(Failure::Misused(format!(
                    "which summary? say --slot or --summary; there are {}",
                    all.join(", ")
                )))
            }
        }
    }
}

pub(super) async fn run(args: &Args, database: &Database, show: &mut Show) -> Result<(), Failure> {
    let (session, _) = database.session(args.session.name()?).await?;
    let id = args.which.id(&session).await?;
    let stands = session.undo(id).await?;
    let now = match &stands {
        Some(summary) => format!("{} stands again", facts(summary)),
        None => "its slot has no summary now".to_owned(),
    };
    let line = tame(&format!("summary {id} is undone; {now}"));
    show.answer(&json!({"undone": id, "stands": stands}), line)
}
