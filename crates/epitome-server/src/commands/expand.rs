//! `epitome expand`: shows the original messages that a summary covers.

use super::messages::show_message;
use super::prelude::*;
use super::undo::SummarySelector;
use crate::http::wire::MessageOut;

const EXAMPLES: &str = "\
Examples:
  epitome expand ann --slot short | less
  epitome expand ann --summary 42 --after 100 --limit 20

With --summary, you can also expand a summary that is undone or no longer current. With --json, each
line is one message.";

/// Shows the original messages that a summary covers
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) session: SessionArgs,
    #[command(flatten)]
    selector: SummarySelector,
    /// Shows only messages after the message with this number
    #[arg(long, value_name = "SEQ")]
    after: Option<u64>,
    /// Maximum number of messages [default: all]
    #[arg(long, value_name = "N", value_parser = super::whole, allow_negative_numbers = true)]
    limit: Option<u64>,
}

/// Number of messages per query to the store.
const PAGE: u64 = 50;

pub(super) async fn run(args: &Args, database: &Database, show: &mut Show) -> Result<(), Failure> {
    let (session, _) = database.session(args.session.name()?).await?;
    let id = args.selector.id(&session).await?;
    let mut after = args.after;
    let mut left = args.limit.unwrap_or(u64::MAX);
    loop {
        let limit = usize::try_from(left.min(PAGE)).unwrap_or(1);
        let page = session.expand(id, Page { after, limit, ..Page::default() }).await?;
        after = page.last().map(|last| last.seq);
        left = left.saturating_sub(page.len() as u64);
        let more = page.more;
        for message in page.items {
            if show.json {
                show.json(&MessageOut::new(message))?;
            } else {
                show_message(show, &message)?;
            }
        }
        show.flush()?;
        if left == 0 || !more {
            return Ok(());
        }
    }
}
