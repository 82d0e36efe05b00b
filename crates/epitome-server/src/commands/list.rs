//! `epitome list`: lists the stored sessions.

use epitome::{Remedy, SessionInfo};

use super::prelude::*;
use crate::http::wire::{SessionOut, SlotOut};

const EXAMPLES: &str = "\
Examples:
  epitome list
  epitome list --limit 20 --after support-41     the next page
  epitome list --json | jq -r .name              one session name per line

With --json, each line is one session: name, messages, turns, tokens, created_at, updated_at, and
slots. In each slot, `covered` is the last message that the slot's summary covers.";

/// Lists the stored sessions
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Maximum number of sessions
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = super::whole, allow_negative_numbers = true)]
    limit: u64,
    /// Lists only sessions whose names come after this name alphabetically
    #[arg(long, value_name = "SESSION")]
    after: Option<String>,
}

/// Number of sessions per query to the store.
const PAGE: u64 = 100;

/// One line of JSON output: a session, and the messages that its summaries cover.
#[derive(Serialize)]
struct SessionLine {
    #[serde(flatten)]
    session: SessionOut,
    slots: Vec<SlotOut>,
}

pub(super) async fn run(args: &Args, database: &Database, show: &mut Show) -> Result<(), Failure> {
    let mut table = Table::new(&["session", "messages>", "turns>", "tokens>", "updated", "summaries"]);
    let (mut after, mut left, mut more, mut shown) = (args.after.clone(), args.limit, false, 0);
    while left > 0 {
        let limit = left.min(PAGE);
        // Reads one session more than the page shows, to find out whether more sessions exist.
        let with_next = usize::try_from(limit.saturating_add(1)).unwrap_or(1_000);
        let page = database.workspace.sessions(after.as_deref(), with_next).await?;
        more = page.len() as u64 > limit;
        for info in page.into_iter().take(usize::try_from(limit).unwrap_or(usize::MAX)) {
            after = Some(info.name.to_string());
            // Skips a session that was deleted in the meantime.
            let slots = match database.workspace.session(info.name.as_ref()).explain().await {
                Err(error) if error.remedy() == Remedy::CheckName => continue,
                explained => explained?.slots,
            };
            shown += 1;
            if show.json {
                let slots = slots.into_iter().map(SlotOut::new).collect();
                show.json(&SessionLine { session: SessionOut::new(info), slots })?;
            } else {
                table.row(row(&info, &slots, show));
            }
        }
        show.flush()?;
        left -= limit;
        if !more {
            break;
        }
    }
    if show.json {
        return Ok(());
    }
    match shown {
        0 => show.note(database.no_sessions().await?)?,
        _ => show.table(&table)?,
    }
    match after.filter(|_| more) {
        Some(last) => show.note(format!("there are more sessions; use --after {last:?}")),
        None => Ok(()),
    }
}

fn row(info: &SessionInfo, slots: &[SlotExplanation], show: &Show) -> [String; 6] {
    let covered = slots.iter().filter(|slot| slot.covered > 0);
    let covered = covered.map(|slot| match &slot.scope {
        Some(author) => format!("{}({author}) 1-{}", slot.slot, slot.covered),
        None => format!("{} 1-{}", slot.slot, slot.covered),
    });
    [
        printable(&info.name),
        grouped(info.messages),
        grouped(info.turns),
        grouped(info.tokens),
        ago(show.now, info.updated),
        printable(&covered.collect::<Vec<_>>().join(", ")),
    ]
}
