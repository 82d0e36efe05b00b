//! Moves a SQLite file into PostgreSQL: all rows with their ids, and compares both sides row by row afterwards.
//!
//! Rows are copied in pieces. Each piece is written in one transaction with a mark of the progress, so a move that was
//! interrupted continues from there when it is started again. No client can use the database until the move is
//! finished and both sides were found to be the same.
//!
//! Not moved are sessions that are being deleted, unfinished copies, and the search index, which is built again.
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

/// Options of a move.
#[derive(Debug, Clone)]
pub struct MoveOptions {
    /// Discards what an unfinished move left in the database, and starts from the beginning.
    pub anew: bool,
    /// Moves nothing, and only compares both sides.
    pub only_compare: bool,
    /// Options of the PostgreSQL store.
    pub postgres: PostgresOptions,
    /// Maximum number of rows in one piece.
    pub rows: usize,
    /// Maximum size of one piece in bytes; a single row may be larger.
    pub bytes: usize,
}

impl Default for MoveOptions {
    fn default() -> Self {
        let statement = Duration::from_secs(120);
        let postgres = PostgresOptions { connections: 2, statement, ..PostgresOptions::default() };
        Self { anew: false, only_compare: false, postgres, rows: 5_000, bytes: 4 << 20 }
    }
}

/// The progress of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MoveProgress {
    /// The current stage.
    pub stage: MoveStage,
    /// The current table.
    pub table: &'static str,
    /// Number of rows that are done, of all tables.
    pub rows: u64,
    /// Approximate number of rows of all tables.
    pub of: u64,
}

/// A stage of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveStage {
    /// Rows are copied.
    Moving,
    /// Both sides are read and compared.
    Comparing,
}

/// The result of a move, found to be the same on both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moved {
    /// The tables, in the order in which they were moved.
    pub tables: Vec<MovedTable>,
    /// Number of rows that PostgreSQL cannot store, because their key contains a U+0000: idempotency keys, which expire
    /// within a week, and request totals of a model name that no provider has.
    pub left_out: u64,
}

/// A moved table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MovedTable {
    /// Its name.
    pub name: &'static str,
    /// Number of rows.
    pub rows: u64,
    /// The hash of all rows in order, the same on both sides.
    pub checksum: String,
}

/// Why a move failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum MoveError {
    /// The file cannot be read.
    #[error(transparent)]
    Source(StoreError),
    /// The database cannot be used.
    #[error(transparent)]
    Target(StoreError),
    /// The database contains data already.
    #[error("the database is in use already; nothing was changed; use one that is empty")]
    Occupied,
    /// The database contains an unfinished move of another file.
    #[error("another file's move into the database is not finished; finish that one, or start over")]
    Another,
    /// The file was moved before.
    #[error("the file was moved there already; the database may have been used since; nothing was changed")]
    Finished,
    /// Another move writes to the database.
    #[error("another move writes to the same database; let that one end, then start this one again")]
    Contended,
    /// The file was written to during the move.
    #[error("the file was written to while it was moved; stop what uses the file, then start the move again")]
    Written,
    /// Both sides differ.
    #[error(
        "{table} is not the same on both sides: {what}{}; if the file was used after the move began, stop what uses \
         it and start over",
        if key.is_empty() { String::new() } else { format!(" ({key})") }
    )]
    Differs {
        /// The table.
        table: &'static str,
        /// The key of the first row that differs.
        key: String,
        /// What differs.
        what: String,
    },
    /// PostgreSQL cannot store a value.
    #[error("{table}.{column} holds a value of the wrong type ({key}); `epitome verify` reports details")]
    Unfit {
        /// The table.
        table: &'static str,
        /// The key of its row.
        key: String,
        /// Its column.
        column: String,
    },
}

/// The progress of a move: the current table, how many of its rows are copied, and the key of the last one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Mark {
    table: usize,
    rows: u64,
    last: Option<Cells>,
}

impl Mark {
    /// Returns the table's name, empty after the last table.
    fn step(&self) -> &'static str {
        SPECS.get(self.table).map_or("", |table| table.name)
    }
}

/// Formats a key for the progress mark.
fn noted(key: &[Cell]) -> String {
    serde_json::json!(key).to_string()
}

/// Moves all of a file into an empty database, or continues an unfinished move, and then compares both sides.
///
/// The file is only read. It must not be used during the move, and after it only the database should be used. `tell` is
/// called with the progress now and then.
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

    /// Returns the file's rows after this key.
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

    /// Moves the rest of one table, and returns the mark after it.
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

    /// Reads both sides in order, and returns each table's row count and hash, which are the same on both.
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
                // As JSON, so that rows with different values never have the same bytes.
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

/// Returns the error for the first row that differs.
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
        // The row with the smaller key is missing on the other side. Only the databases define the order of keys, so
        // this looks for a key that does not occur in the other side's piece at all.
        (ours, Some(theirs)) if ours.is_none_or(|ours| there.iter().any(|row| key(row) == key(ours))) => {
            (key(theirs), "a row of the database is not in the file".to_owned())
        }
        (ours, _) => {
            (ours.map(key).unwrap_or_default(), "a row of the file is not in the database".to_owned())
        }
    };
    MoveError::Differs { table: table.spec.name, key: table.shown(&key), what }
}
