//! `epitome verify`: looks the whole database through.

use super::prelude::*;

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

pub(super) async fn run(database: &Database, show: &mut Show) -> Result<(), Failure> {
    let faults = {
        let _progress = show.progress(&format!("looking {} through", database.place()), None);
        database.engine.verify().await?
    };
    if show.json {
        show.object(&json!({"ok": faults.is_empty(), "faults": faults}))?;
    } else if faults.is_empty() {
        let well = show.style.green("all is well");
        show.line(format!("{}: {well}", database.place()))?;
    } else {
        for fault in &faults {
            show.line(format!("{}: {}", show.style.bold(&tame(&fault.at)), tame(&fault.what)))?;
        }
    }
    show.flush()?;
    match faults.len() as u64 {
        0 => Ok(()),
        _ if show.json => Err(Failure::Told(1)),
        many => Err(Failure::Failed(format!(
            "{}: {}; keep a copy of it, and restore a backup",
            database.place(),
            count(many, "fault")
        ))),
    }
}
