//! `epitome migrate`: moves a SQLite file into PostgreSQL.

use std::sync::{Mutex, PoisonError};

use epitome::store::{
    MigrateError, MigrateOptions, MigrateProgress, MigrateStage, Migrated, PostgresOptions,
    migrate_to_postgres,
};
use tokio::time::{Instant, timeout};

use super::prelude::*;
use crate::database::print_to_stderr;
use crate::settings::{Address, parse_location};

const EXAMPLES: &str = "\
Examples:
  epitome migrate --from sqlite:epitome.db --to postgres://epitome@db.example/epitome
  EPITOME_DB=postgres://… epitome migrate --from epitome.db  hides the password from other users
  epitome migrate --from epitome.db --to postgres://… --verify-only

The command copies all data with its ids: sessions, messages, summaries, keys, authors, usage,
events, and the proxy's conversations. It copies neither sessions that are being deleted nor forks
that are not finished. The file is not changed.

First stop the server that uses the file: the move fails if another process writes to the file. The
PostgreSQL database must exist and have no tables of Epitome; the command creates these tables. If
the command is interrupted, run it again, and it resumes the move. At the end, the command compares
the file and the PostgreSQL database row by row. Servers can use the PostgreSQL database only after
this comparison. Until the search index is rebuilt, searches are slower, but find all messages.

--json prints one object: from, to, moved, rows, left_out, and tables. `tables` has the name, the
rows and the checksum of each table. The exit code is 1 if the move failed or was not completed.";

/// Moves a SQLite database into PostgreSQL, and checks that no data differs
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// SQLite file to move
    #[arg(long, value_name = "sqlite:PATH")]
    from: String,
    /// PostgreSQL database to move into [default: the setting server.db]
    #[arg(long, value_name = "postgres://…")]
    pub(super) to: Option<String>,
    /// Discards the rows of an unfinished move, and starts again
    #[arg(long, alias = "anew", conflicts_with = "verify_only")]
    restart: bool,
    /// Only compares the file with the database, and moves nothing
    #[arg(long)]
    verify_only: bool,
    /// Number of rows per batch, for tests
    #[arg(long, value_name = "N", hide = true, value_parser = super::whole)]
    piece: Option<u64>,
}

/// Time between two updates of the progress on a terminal.
const TICK: Duration = Duration::from_millis(100);

/// Time between two progress lines if the output is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

pub(super) async fn run(
    args: &Args,
    loaded: &Loaded,
    environment: &Environment,
    show: &mut Show,
) -> Result<(), Failure> {
    let (from, to) = (source_file(args, environment)?, target_address(args, loaded)?);
    let patience = loaded.server.patience;
    let mut options =
        MigrateOptions { restart: args.restart, only_compare: args.verify_only, ..MigrateOptions::default() };
    options.postgres =
        PostgresOptions { patience, on_wait: Some(Arc::new(print_to_stderr)), ..options.postgres };
    if let Some(rows) = args.piece {
        options.rows = usize::try_from(rows).unwrap_or(usize::MAX);
    }
    cleanup::set_message(Some(
        "interrupted: the rows moved so far stay; run the same command to resume the move",
    ));
    let moved = move_with_progress(&from, &to, options, show).await.map_err(|error| move_failure(&error))?;
    report(args, &from, &to, &moved, show)
}

fn source_file(args: &Args, environment: &Environment) -> Result<PathBuf, Failure> {
    let expected =
        || Failure::Setting("--from: expected the path of a SQLite file, or sqlite:PATH".to_owned());
    match parse_location(&args.from, environment, Path::new("")) {
        Ok(DbLocation::Sqlite(path)) => Ok(path),
        Ok(DbLocation::Postgres(_)) => Err(expected()),
        Err(problem) => Err(Failure::Setting(format!("--from: {problem}"))),
    }
}

fn target_address(args: &Args, loaded: &Loaded) -> Result<Address, Failure> {
    let expected = "expected postgres://USER:PASSWORD@HOST:PORT/DATABASE";
    match (&args.to, &loaded.db) {
        (Some(to), _) => Address::parse(to).ok_or_else(|| Failure::Setting(format!("--to: {expected}"))),
        (None, DbLocation::Postgres(address)) => Ok(address.clone()),
        (None, DbLocation::Sqlite(_)) => Err(Failure::Misused(format!(
            "no PostgreSQL database to move into; add --to, or set server.db: {expected}"
        ))),
    }
}

/// Moves the database and shows the progress.
async fn move_with_progress(
    from: &Path,
    to: &Address,
    options: MigrateOptions,
    show: &mut Show,
) -> Result<Migrated, MigrateError> {
    let progress = show.progress("opening", Some(1));
    let latest: Arc<Mutex<Option<MigrateProgress>>> = Arc::default();
    let reported = Arc::clone(&latest);
    let note = move |now| *reported.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    let work = migrate_to_postgres(from, to.with_password(), options, &note);
    tokio::pin!(work);
    let mut last_line: Option<(MigrateStage, Instant)> = None;
    loop {
        if let Ok(done) = timeout(TICK, &mut work).await {
            return done;
        }
        let now = *latest.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(MigrateProgress { stage, table, rows, of }) = now else { continue };
        let action = match stage {
            MigrateStage::Copying => "moving",
            MigrateStage::Comparing => "comparing",
        };
        progress.bar.set_prefix(action);
        progress.bar.set_length(of);
        progress.bar.set_position(rows.min(of));
        progress.bar.set_message(format!("rows ({table})"));
        // Without a terminal, prints one line at the start of each stage and then every 10 seconds.
        let due = last_line.is_none_or(|(before, at)| before != stage || at.elapsed() >= LINE_INTERVAL);
        if !show.watched && !show.json && due {
            last_line = Some((stage, Instant::now()));
            // A write error is ignored here, because printing the result at the end fails with the same error.
            let _ =
                show.note(format!("{action} {table}: {} of {} rows in total", grouped(rows), grouped(of)));
        }
    }
}

fn move_failure(error: &MigrateError) -> Failure {
    let hint = match error {
        MigrateError::OtherFile | MigrateError::Differs { .. } => {
            "; `--restart` discards the unfinished move and starts again"
        }
        _ => "",
    };
    Failure::Failed(format!("{error}{hint}"))
}

fn report(args: &Args, from: &Path, to: &Address, moved: &Migrated, show: &mut Show) -> Result<(), Failure> {
    let rows: u64 = moved.tables.iter().map(|table| table.rows).sum();
    if show.json {
        let tables = moved.tables.iter();
        let tables: Vec<_> = tables
            .map(|table| json!({"table": table.name, "rows": table.rows, "checksum": table.checksum}))
            .collect();
        return show.object(&json!({
            "from": from.display().to_string(),
            "to": to.to_string(),
            "moved": !args.verify_only,
            "rows": rows,
            "left_out": moved.left_out,
            "tables": tables,
        }));
    }
    let mut table = Table::new(&["table", "rows", "checksum"]);
    for moved in &moved.tables {
        let short: String = moved.checksum.chars().take(16).collect();
        table.row([moved.name.to_owned(), grouped(moved.rows), short]);
    }
    show.table(&table)?;
    if moved.left_out > 0 {
        let left = count(moved.left_out, "row");
        show.line(format!("not copied: {left} whose key contains U+0000, which PostgreSQL cannot store"))?;
    }
    let (from, rows) = (from.display(), count(rows, "row"));
    match args.verify_only {
        true => show.line(format!("{from} and {to} are identical: {rows}")),
        false => show.line(format!("{from} was moved to {to}: {rows}, identical on both sides")),
    }
}
