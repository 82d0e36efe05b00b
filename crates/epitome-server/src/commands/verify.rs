//! `epitome verify`: looks the whole database through.

use serde_json::json;

use crate::database::Database;
use crate::failure::Failure;
use crate::settings::Loaded;
use crate::show::{Show, count, tame};

const EXAMPLES: &str = "\
Examples:
  epitome verify
  epitome verify --db backup.db --json

Reads everything, of all workspaces, and changes nothing. The exit code is 1 where something is
wrong. --json is one object: ok, and faults with where (at) and what.";

/// Looks the whole database through
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {}

pub(super) async fn run(_args: &Args, loaded: &Loaded, show: &mut Show) -> Result<(), Failure> {
    let database = Database::existing(loaded).await?;
    let faults = {
        let _progress = show.progress(&format!("looking {} through", database.place()), None);
        database.engine.verify().await?
    };
    if show.json {
        show.object(
            &json!({"ok": faults.is_empty(), "faults": serde_json::to_value(&faults).unwrap_or_default()}),
        )?;
    } else if faults.is_empty() {
        let well = show.style.green("all is well");
        show.line(format!("{}: {well}", database.place()))?;
    } else {
        for fault in &faults {
            show.line(format!("{}: {}", show.style.bold(&tame(&fault.at)), tame(&fault.what)))?;
        }
    }
    show.flush()?;
    let place = database.place().clone();
    database.close().await;
    match faults.len() as u64 {
        0 => Ok(()),
        _ if show.json => Err(Failure::Told(1)),
        many => Err(Failure::Failed(format!(
            "{place}: {}; keep a copy of it, and restore a backup",
            count(many, "fault")
        ))),
    }
}
