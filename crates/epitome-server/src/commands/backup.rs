//! `epitome backup`: a copy, while the database is used.

use super::prelude::*;

const EXAMPLES: &str = "\
Examples:
  epitome backup epitome-2026-03-14.db
  epitome verify --db epitome-2026-03-14.db

A file that is there is never replaced, and the copy appears when it is whole or not at all. --json
is one object: from, to, bytes. A database in PostgreSQL is copied by pg_dump.";

/// Copies the database into a new file, while it is used
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The new file
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(super) async fn run(args: &Args, database: &Database, show: &mut Show) -> Result<(), Failure> {
    if matches!(database.place(), Place::Postgres(_)) {
        let problem = "PostgreSQL has its own way to be copied while it is used: pg_dump --format=custom \
                       --schema=epitome --file=FILE, and pg_restore; `backup` copies SQLite files";
        return Err(Failure::Setting(problem.to_owned()));
    }
    {
        let _progress = show.progress(&format!("copying to {}", args.file.display()), None);
        // The store writes it beside its target, under the target's name and this process's number.
        let _half = leftovers::note_beside(&args.file, &format!(".{}-", std::process::id()));
        database.engine.backup(&args.file).await?;
    }
    let size = std::fs::metadata(&args.file).map_or(0, |file| file.len());
    let (from, to) = (database.place().to_string(), args.file.display().to_string());
    let line = format!("{from} copied to {to}, {}", bytes(size));
    show.answer(&json!({"from": from, "to": to, "bytes": size}), line)
}
