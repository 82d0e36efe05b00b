//! `epitome backup`: copies the database while it is in use.

use super::prelude::*;

const EXAMPLES: &str = "\
Examples:
  epitome backup epitome-2026-03-14.db
  epitome verify --db epitome-2026-03-14.db

FILE must not exist yet; it is created only when the copy is complete. --json prints one object:
from, to, bytes. This command copies SQLite files; copy a PostgreSQL database with pg_dump.";

/// Copies the database into a new file, even while the database is in use
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// New file to write
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(super) async fn run(args: &Args, database: &Database, show: &mut Show) -> Result<(), Failure> {
    if matches!(database.location(), DbLocation::Postgres(_)) {
        let problem = "`backup` copies SQLite files; copy a PostgreSQL database with pg_dump --format=custom \
                       --schema=epitome --file=FILE, and restore it with pg_restore";
        return Err(Failure::Setting(problem.to_owned()));
    }
    {
        let _progress = show.progress(&format!("copying to {}", args.file.display()), None);
        // The store first writes a file next to the target. The name of this file is the target's name and this
        // process's id.
        let _half = cleanup::register_next_to(&args.file, &format!(".{}-", std::process::id()));
        database.engine.backup(&args.file).await?;
    }
    let size = std::fs::metadata(&args.file).map_or(0, |file| file.len());
    let (from, to) = (database.location().to_string(), args.file.display().to_string());
    let line = format!("{from} copied to {to}, {}", bytes(size));
    show.answer(&json!({"from": from, "to": to, "bytes": size}), line)
}
