//! `epitome migrate`: a SQLite file moved into PostgreSQL.

use std::sync::{Mutex, PoisonError};

use epitome::store::{
    MoveError, MoveOptions, MoveProgress, MoveStage, Moved, PostgresOptions, move_to_postgres,
};
use tokio::time::{Instant, timeout};

use super::prelude::*;
use crate::database::say_so;
use crate::settings::{Address, read_place};

const EXAMPLES: &str = "\
Examples:
  epitome migrate --from sqlite:epitome.db --to postgres://epitome@db.example/epitome
  EPITOME_DB=postgres://… epitome migrate --from epitome.db    and no password in sight
  epitome migrate --from epitome.db --to postgres://… --verify-only

Everything is moved, with all its numbers: sessions, messages, summaries, keys, authors, usage,
events, what the proxy keeps. Sessions that were being deleted stay behind, and so do forks that
were not finished. Stop the server that uses the file first: the file is only read, and a move
during which it was written to is not finished. The database must be there and hold nothing of
ours; its tables are made. Interrupted or killed, the same command goes on from there. At the end
both sides are read and compared row by row, and only then the database can be used. Searches
find everything at once, and are quick again when the index of words was made anew.

--json is one object: from, to, rows, left_out, and of each table its rows and their checksum. The
exit code is 1 where it was not done, or not to its end.";

/// Moves a SQLite file into PostgreSQL, and compares both
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The file
    #[arg(long, value_name = "sqlite:PATH")]
    from: String,
    /// The database (the one of the settings)
    #[arg(long, value_name = "postgres://…")]
    pub(super) to: Option<String>,
    /// Throws away what an unfinished move left there, and begins again
    #[arg(long, conflicts_with = "verify_only")]
    anew: bool,
    /// Moves nothing, and only compares
    #[arg(long)]
    verify_only: bool,
    /// So many rows go over at once, for tests
    #[arg(long, value_name = "N", hide = true, value_parser = super::whole)]
    piece: Option<u64>,
}

/// How often it is shown how far it is: where it is shown in place, and where each time is another line.
const TICK: Duration = Duration::from_millis(100);
const LINE: Duration = Duration::from_secs(10);

pub(super) async fn run(args: &Args, loaded: &Loaded, world: &World, show: &mut Show) -> Result<(), Failure> {
    let (from, to) = (file(args, world)?, address(args, loaded)?);
    let patience = loaded.server.patience;
    let mut options =
        MoveOptions { anew: args.anew, only_compare: args.verify_only, ..MoveOptions::default() };
    options.postgres = PostgresOptions { patience, waits: Some(Arc::new(say_so)), ..options.postgres };
    if let Some(rows) = args.piece {
        options.rows = usize::try_from(rows).unwrap_or(usize::MAX);
    }
    leftovers::say(Some("interrupted: what was moved stays, and the same command goes on from there"));
    let moved = watched(&from, &to, options, show).await.map_err(|error| refused(&error))?;
    tell(args, &from, &to, &moved, show)
}

fn file(args: &Args, world: &World) -> Result<PathBuf, Failure> {
    let wanted =
        || Failure::Setting("--from: a SQLite file is wanted; give its path, or sqlite:PATH".to_owned());
    match read_place(&args.from, world, Path::new("")) {
        Ok(Place::Sqlite(path)) => Ok(path),
        Ok(Place::Postgres(_)) => Err(wanted()),
        Err(problem) => Err(Failure::Setting(format!("--from: {problem}"))),
    }
}

fn address(args: &Args, loaded: &Loaded) -> Result<Address, Failure> {
    let wanted = "postgres://USER:PASSWORD@HOST:PORT/DATABASE is wanted";
    match (&args.to, &loaded.db) {
        (Some(to), _) => Address::of(to).ok_or_else(|| Failure::Setting(format!("--to: {wanted}"))),
        (None, Place::Postgres(address)) => Ok(address.clone()),
        (None, Place::Sqlite(_)) => Err(Failure::Misused(format!(
            "--to is missing: {wanted}, there or as the database of the settings"
        ))),
    }
}

/// Moves it, and shows meanwhile how far it is.
async fn watched(
    from: &Path,
    to: &Address,
    options: MoveOptions,
    show: &mut Show,
) -> Result<Moved, MoveError> {
    let progress = show.progress("opening", Some(1));
    let latest: Arc<Mutex<Option<MoveProgress>>> = Arc::default();
    let noting = Arc::clone(&latest);
    let note = move |now| *noting.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    let work = move_to_postgres(from, to.whole(), options, &note);
    tokio::pin!(work);
    let mut told: Option<(MoveStage, Instant)> = None;
    loop {
        if let Ok(done) = timeout(TICK, &mut work).await {
            return done;
        }
        let now = *latest.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(MoveProgress { stage, table, rows, of }) = now else { continue };
        let doing = match stage {
            MoveStage::Moving => "moving",
            MoveStage::Comparing => "comparing",
        };
        progress.bar.set_prefix(doing);
        progress.bar.set_length(of);
        progress.bar.set_position(rows.min(of));
        progress.bar.set_message(format!("rows ({table})"));
        // Where nobody watches, a line now and then.
        let due = told.is_none_or(|(before, at)| before != stage || at.elapsed() >= LINE);
        if !show.watched && !show.json && due {
            told = Some((stage, Instant::now()));
            // Who cannot be told is told at the end.
            let _ = show.note(format!("{doing} {table}: {} of {} rows in all", grouped(rows), grouped(of)));
        }
    }
}

fn refused(error: &MoveError) -> Failure {
    let hint = match error {
        MoveError::Another | MoveError::Differs { .. } => " (--anew)",
        _ => "",
    };
    Failure::Failed(format!("{error}{hint}"))
}

fn tell(args: &Args, from: &Path, to: &Address, moved: &Moved, show: &mut Show) -> Result<(), Failure> {
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
        show.line(format!("left out: {left} whose key PostgreSQL cannot keep (U+0000)"))?;
    }
    let (from, rows) = (from.display(), count(rows, "row"));
    match args.verify_only {
        true => show.line(format!("{from} and {to} are the same: {rows}")),
        false => show.line(format!("{from} was moved to {to}: {rows}, the same on both sides")),
    }
}
