//! `epitome list`: the sessions there are.

use epitome::Next;
use serde_json::json;

use crate::database::Database;
use crate::failure::Failure;
use crate::settings::Loaded;
use crate::show::{Show, Table, ago, grouped, tame};

const EXAMPLES: &str = "\
Examples:
  epitome list
  epitome list --limit 20 --after support-41     the next page
  epitome list --json | jq -r .name              one session a line

With --json each line is a session: name, messages, turns, tokens, updated (milliseconds since 1970)
and its slots with the last message each summary covers.";

/// The sessions there are
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = super::whole, allow_negative_numbers = true)]
    limit: u64,
    /// Only those after this name
    #[arg(long, value_name = "SESSION")]
    after: Option<String>,
}

/// So many are read at once.
const PAGE: u64 = 100;

pub(super) async fn run(args: &Args, loaded: &Loaded, show: &mut Show) -> Result<(), Failure> {
    let database = Database::existing(loaded).await?;
    let mut table = Table::new(&["session", "messages>", "turns>", "tokens>", "updated", "summaries"]);
    let mut after = args.after.clone();
    let mut left = args.limit;
    let mut more = false;
    let mut shown = 0u64;
    while left > 0 {
        let asked = left.min(PAGE);
        // One more than is shown, to know whether there are more.
        let wanted = usize::try_from(asked.saturating_add(1)).unwrap_or(1_000);
        let page = database.workspace.sessions(after.as_deref(), wanted).await?;
        more = page.len() as u64 > asked;
        for info in page.into_iter().take(usize::try_from(asked).unwrap_or(usize::MAX)) {
            after = Some(info.name.to_string());
            // Somebody may delete it meanwhile: then it is not there any more.
            let explained = match database.workspace.session(info.name.as_ref()).explain().await {
                Err(error) if error.next() == Next::Look => continue,
                explained => explained?,
            };
            shown += 1;
            if show.json {
                let slots: Vec<_> = explained
                    .slots
                    .iter()
                    .map(|slot| {
                        json!({
                            "slot": slot.slot,
                            "scope": slot.scope.as_deref(),
                            "covered": slot.covered,
                            "status": slot.status,
                        })
                    })
                    .collect();
                let mut line = serde_json::to_value(&info).unwrap_or_default();
                if let Some(line) = line.as_object_mut() {
                    line.insert("slots".to_owned(), slots.into());
                }
                show.json(&line)?;
                continue;
            }
            let covers: Vec<String> = explained
                .slots
                .iter()
                .filter(|slot| slot.covered > 0)
                .map(|slot| match &slot.scope {
                    Some(author) => format!("{}({author}) 1-{}", slot.slot, slot.covered),
                    None => format!("{} 1-{}", slot.slot, slot.covered),
                })
                .collect();
            table.row([
                tame(&info.name),
                grouped(info.messages),
                grouped(info.turns),
                grouped(info.tokens),
                ago(show.now, info.updated),
                tame(&covers.join(", ")),
            ]);
        }
        show.flush()?;
        left -= asked;
        if !more {
            break;
        }
    }
    if !show.json && shown > 0 {
        show.table(&table)?;
    }
    if shown == 0 && !show.json {
        show.note(format!("no sessions in {}", database.place()))?;
    }
    if let Some(last) = after.filter(|_| more && !show.json) {
        show.note(format!("there are more: --after {last:?}"))?;
    }
    database.close().await;
    Ok(())
}
