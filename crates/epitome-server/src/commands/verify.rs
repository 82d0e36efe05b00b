//! `epitome verify`: checks the whole database for faults.

use super::prelude::*;

const EXAMPLES: &str = "\
Examples:
  epitome verify
  epitome verify --db backup.db --json

Reads all data of all workspaces, and changes nothing. The exit code is 1 if there is a fault.
--json prints one object: `ok`, and the list `faults`. In each fault, `at` is the place and `what`
is the problem.";

/// Checks the whole database for faults
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {}

pub(super) async fn run(database: &Database, show: &mut Show) -> Result<(), Failure> {
    let faults = {
        let _progress = show.progress(&format!("checking {}", database.location()), None);
        database.engine.verify().await?
    };
    if show.json {
        show.object(&json!({"ok": faults.is_empty(), "faults": faults}))?;
    } else if faults.is_empty() {
        let well = show.style.green("no faults");
        show.line(format!("{}: {well}", database.location()))?;
    } else {
        for fault in &faults {
            show.line(format!("{}: {}", show.style.bold(&printable(&fault.at)), printable(&fault.what)))?;
        }
    }
    show.flush()?;
    match faults.len() as u64 {
        0 => Ok(()),
        _ if show.json => Err(Failure::Reported(1)),
        many => Err(Failure::Failed(format!(
            "{}: {}; make a copy of the database, then restore a backup",
            database.location(),
            count(many, "fault")
        ))),
    }
}
