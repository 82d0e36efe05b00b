//! A SQLite file moved into PostgreSQL: everything, with all its numbers, and compared row by row afterwards.
//!
//! Rows go over in pieces. Each piece is written in one transaction with a mark that says how far it is, so a move that
//! was cut off anywhere goes on from there when it is started again. Until it is finished and everything was found
//! to be the same, nobody can use the database.
//!
//! What is not taken along: sessions that are being deleted, copies that were not finished, and the index of words, which
//! is made anew.
//!
//! ```no_run
//! # async fn try_it() -> Result<(), epitome::store::MoveError> {
//! use epitome::store::{MoveOptions, move_to_postgres};
//!
//! let options = MoveOptions::default();
//! let moved = move_to_postgres("epitome.db", "postgres://epitome@127.0.0.1/epitome", options, &|_| {}).await?;
//! assert_eq!(moved.tables[0].name, "workspaces");
//! # Ok(())
//! # }
//! ```

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::ask::{Op, Way};
use super::contract::{Store, run};
use super::error::StoreError;
use super::postgres::{Postgres, PostgresOptions};
use source::{Contents, Source};
use tables::{Cell, Cells, Piece, SPECS, Table};

mod source;
mod tables;
mod target;

/// How a move is done.
#[derive(Debug, Clone)]
pub struct MoveOptions {
    /// Throws away what a move that was not finished left there, and begins at the beginning.
    pub anew: bool,
    /// Moves nothing, and only compares.
    pub only_compare: bool,
    /// How the database is used.
    pub postgres: PostgresOptions,
    /// So many rows go over at once, at most.
    pub rows: usize,
    /// And so many bytes, or a single row.
    pub bytes: usize,
}

impl Default for MoveOptions {
    fn default() -> Self {
        let statement = Duration::from_secs(120);
        let postgres = PostgresOptions { connections: 2, statement, ..PostgresOptions::default() };
        Self { anew: false, only_compare: false, postgres, rows: 5_000, bytes: 4 << 20 }
    }
}

/// How far a move is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MoveProgress {
    /// What is being done.
    pub stage: MoveStage,
    /// With which table.
    pub table: &'static str,
    /// How many rows are done, of all tables.
    pub rows: u64,
    /// Of about so many.
    pub of: u64,
}

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveStage {
    /// Rows go over.
    Moving,
    /// Both sides are read and compared.
    Comparing,
}

/// What was moved, and found to be the same on both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moved {
    /// Table by table.
    pub tables: Vec<MovedTable>,
    /// Rows that PostgreSQL cannot keep (their key holds a U+0000): appends that were remembered for a week, and sums of
    /// requests for a model that is none.
    pub left_out: u64,
}

/// A table, moved.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MovedTable {
    /// Which one.
    pub name: &'static str,
    /// How many rows.
    pub rows: u64,
    /// The hash of all of them in order, the same on both sides.
    pub checksum: String,
}

/// Why a move was not done, or not to its end.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum MoveError {
    /// The file cannot be read.
    #[error(transparent)]
    Source(StoreError),
    /// The database cannot be used.
    #[error(transparent)]
    Target(StoreError),
    /// Somebody uses the database already.
    #[error("the database is in use already; nothing was changed; give one that is empty")]
    Occupied,
    /// It was begun from another file.
    #[error("another file's move into the database is not finished; finish that one, or begin anew")]
    Another,
    /// It was done before.
    #[error("the file was moved there already, and may have been used there since; nothing was changed")]
    Finished,
    /// Somebody else moves something there.
    #[error("another move into the same database came between; let one of them end, then start it again")]
    Contended,
    /// The file was written to.
    #[error("the file was written to while it was moved; stop what uses it, then start the move again")]
    Written,
    /// Both sides differ.
    #[error(
        "{table} is not the same on both sides: {what}{}; where the file was used after the move began, stop that and \
         begin anew",
        if key.is_empty() { String::new() } else { format!(" ({key})") }
    )]
    Differs {
        /// Which table.
        table: &'static str,
        /// What the first row that differs is known by.
        key: String,
        /// In what they differ.
        what: String,
    },
    /// A value has no place in PostgreSQL.
    #[error("{table}.{column} holds a value that is not of its kind ({key}); `epitome verify` says more")]
    Unfit {
        /// Which table.
        table: &'static str,
        /// What its row is known by.
        key: String,
        /// Which column.
        column: String,
    },
}

/// How far a move is: the table under way, how many of its rows are there, and the key of the last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Mark {
    table: usize,
    rows: u64,
    last: Option<Cells>,
}

impl Mark {
    /// The table's name; nothing after the last.
    fn step(&self) -> &'static str {
        SPECS.get(self.table).map_or("", |table| table.name)
    }
}

/// A key as it is noted beside what was moved.
fn noted(key: &[Cell]) -> String {
    serde_json::json!(key).to_string()
}

/// Moves everything of a file into a database that is empty, or goes on with that; then compares both sides.
///
/// The file is only read. It must not be used meanwhile, and what was moved is used where it is then. `tell` is told how
/// far it is, now and then.
pub async fn move_to_postgres(
    from: impl AsRef<Path>,
    to: &str,
    options: MoveOptions,
    tell: &(dyn Fn(MoveProgress) + Send + Sync),
) -> Result<Moved, MoveError> {
    let source = Source::open(from.as_ref()).await?;
    let mut postgres = options.postgres.clone();
    postgres.must_exist |= options.only_compare;
    let target = Postgres::open_to_move(to, postgres).await.map_err(MoveError::Target)?;
    let moved = match target::tables(&target).await {
        Ok(tables) => Moving { source, target: target.clone(), tables, options, tell }.run().await,
        Err(error) => Err(error),
    };
    target.close().await;
    moved
}

/// Reads a piece of either side.
const READ: Op<Piece, Result<Vec<Cells>, MoveError>> = |piece, ask| Box::pin(piece.table.read(ask, piece));

struct Moving<'a> {
    source: Source,
    target: Postgres,
    tables: Vec<Arc<Table>>,
    options: MoveOptions,
    tell: &'a (dyn Fn(MoveProgress) + Send + Sync),
}

impl Moving<'_> {
    async fn run(&self) -> Result<Moved, MoveError> {
        let Contents { version, secret, counts, left_out, numbers } = self.source.contents().await?;
        if self.options.only_compare {
            return Ok(Moved { tables: self.compare(&counts).await?, left_out });
        }
        let begin = target::write(&self.target, (secret, self.options.anew), |(secret, anew), ask| {
            Box::pin(target::begin(ask, secret, *anew))
        });
        let mut mark = begin.await?;
        while let Some(table) = self.tables.get(mark.table) {
            mark = self.table(table, mark, &counts).await?;
        }
        let tables = self.compare(&counts).await?;
        if self.source.newest().await? != version {
            return Err(MoveError::Written);
        }
        let end = target::write(&self.target, (mark, numbers), |(mark, numbers), ask| {
            Box::pin(target::end(ask, mark, numbers))
        });
        end.await?;
        target::analyze(&self.target).await;
        Ok(Moved { tables, left_out })
    }

    /// The file's rows after the one of this key.
    async fn here(&self, table: &Arc<Table>, after: Option<Cells>) -> Result<Vec<Cells>, MoveError> {
        let (rows, bytes) = (self.options.rows.max(1), self.options.bytes.max(1));
        let piece = Piece { table: Arc::clone(table), after, through: None, rows, bytes };
        self.source.run(piece, READ).await?
    }

    fn told(&self, stage: MoveStage, table: usize, rows: u64, counts: &[u64]) {
        let name = SPECS.get(table).map_or("", |table| table.name);
        let before: u64 = counts.iter().take(table).sum();
        (self.tell)(MoveProgress { stage, table: name, rows: before + rows, of: counts.iter().sum() });
    }

    /// What is left of one table, and the mark after it.
    async fn table(&self, table: &Arc<Table>, mut mark: Mark, counts: &[u64]) -> Result<Mark, MoveError> {
        loop {
            self.told(MoveStage::Moving, mark.table, mark.rows, counts);
            let rows = self.here(table, mark.last.clone()).await?;
            let next = match rows.last() {
                None => Mark { table: mark.table + 1, ..Mark::default() },
                Some(last) => Mark {
                    table: mark.table,
                    rows: mark.rows + u64::try_from(rows.len()).unwrap_or(0),
                    last: Some(table.key_of(last)),
                },
            };
            let done = rows.is_empty();
            let given = (Arc::clone(table), rows, (mark, next.clone()));
            let take_in = target::write(&self.target, given, |(table, rows, marks), ask| {
                Box::pin(target::take_in(ask, table, rows, marks))
            });
            take_in.await?;
            if done {
                return Ok(next);
            }
            mark = next;
        }
    }

    /// Reads both sides in order, and gives each table's count and hash, which are the same.
    async fn compare(&self, counts: &[u64]) -> Result<Vec<MovedTable>, MoveError> {
        let mut compared = Vec::new();
        for (at, table) in self.tables.iter().enumerate() {
            let (mut rows, mut hasher) = (0, blake3::Hasher::new());
            let (mut after, mut more) = (None, true);
            while more {
                self.told(MoveStage::Comparing, at, rows, counts);
                let here = self.here(table, after.clone()).await?;
                let through = here.last().map(|row| table.key_of(row));
                more = through.is_some();
                let there = Piece {
                    table: Arc::clone(table),
                    after,
                    through: through.clone(),
                    rows: here.len() + 1,
                    bytes: usize::MAX,
                };
                let there = run(&self.target, Way::Looks, there, READ).await.map_err(MoveError::Target)??;
                if here != there {
                    return Err(difference(table, &here, &there));
                }
                rows += u64::try_from(here.len()).unwrap_or(0);
                // As JSON, so that no two rows of different values give the same bytes.
                here.iter().for_each(|row| {
                    hasher.update(noted(row).as_bytes());
                });
                after = through;
            }
            let checksum = hasher.finalize().to_hex().to_string();
            compared.push(MovedTable { name: table.spec.name, rows, checksum });
        }
        Ok(compared)
    }
}

/// The first row that is not the same.
fn difference(table: &Table, here: &[Cells], there: &[Cells]) -> MoveError {
    let same = here.iter().zip(there).take_while(|(one, other)| one == other).count();
    let key = |row: &Cells| table.key_of(row);
    let (key, what) = match (here.get(same), there.get(same)) {
        (Some(ours), Some(theirs)) if key(ours) == key(theirs) => {
            let columns = table.columns.iter().zip(ours.iter().zip(theirs));
            let differing =
                columns.filter(|(_, (one, other))| one != other).map(|(column, _)| column.name.as_str());
            (key(ours), format!("a row differs in {}", differing.collect::<Vec<_>>().join(", ")))
        }
        // Of two keys the other side has no row of the smaller one. Which that is, only the databases know; where one
        // is not in the other's piece at all, it is the one.
        (ours, Some(theirs)) if ours.is_none_or(|ours| there.iter().any(|row| key(row) == key(ours))) => {
            (key(theirs), "a row of the database is not in the file".to_owned())
        }
        (ours, _) => {
            (ours.map(key).unwrap_or_default(), "a row of the file is not in the database".to_owned())
        }
    };
    MoveError::Differs { table: table.spec.name, key: table.shown(&key), what }
}
