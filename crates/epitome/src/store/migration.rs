//! Migrates a SQLite file into PostgreSQL: copies all rows with their ids, then compares both sides row by row.
//!
//! Rows are copied in pieces. Each piece is written in one transaction together with a checkpoint. So a migration that
//! was interrupted continues from its last checkpoint when it is started again. No client can use the database until
//! all rows are copied and the comparison has found no difference.
//!
//! Sessions that are being deleted, unfinished copies and the search index are not migrated. PostgreSQL's search index
//! is built again after the migration.
//!
//! ```no_run
//! # async fn try_it() -> Result<(), epitome::store::MigrateError> {
//! use epitome::store::{MigrateOptions, migrate_to_postgres};
//!
//! let options = MigrateOptions::default();
//! let to = "postgres://epitome@127.0.0.1/epitome";
//! let migrated = migrate_to_postgres("epitome.db", to, options, &|_| {}).await?;
//! assert_eq!(migrated.tables[0].name, "workspaces");
//! # Ok(())
//! # }
//! ```

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::contract::{Store, run};
use super::error::StoreError;
use super::executor::{AccessMode, Op};
use super::postgres::{Postgres, PostgresOptions};
use source::{Contents, Source};
use tables::{Cell, Cells, PieceRequest, SPECS, Table};

mod source;
mod tables;
mod target;

/// Options of a migration.
#[derive(Debug, Clone)]
pub struct MigrateOptions {
    /// Whether to discard the rows that an unfinished migration left in the database, and to start from the beginning.
    pub restart: bool,
    /// Whether to copy nothing, and only compare the file with the database.
    pub only_compare: bool,
    /// Options of the PostgreSQL store.
    pub postgres: PostgresOptions,
    /// Maximum number of rows in one piece.
    pub rows: usize,
    /// Maximum size of one piece in bytes; a single row may be larger.
    pub bytes: usize,
}

impl Default for MigrateOptions {
    fn default() -> Self {
        let statement = Duration::from_secs(120);
        let postgres = PostgresOptions { connections: 2, statement, ..PostgresOptions::default() };
        Self { restart: false, only_compare: false, postgres, rows: 5_000, bytes: 4 << 20 }
    }
}

/// The progress of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigrateProgress {
    /// The current stage.
    pub stage: MigrateStage,
    /// The current table.
    pub table: &'static str,
    /// Number of rows, of all tables, that were copied or compared so far in this stage.
    pub rows: u64,
    /// Approximate number of rows of all tables.
    pub of: u64,
}

/// A stage of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrateStage {
    /// Rows are copied.
    Copying,
    /// The rows of the file and of the database are read and compared.
    Comparing,
}

/// The result of a migration. The comparison of the file with the database found no difference.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migrated {
    /// The tables, in the order in which they were migrated.
    pub tables: Vec<MigratedTable>,
    /// Number of rows that were not migrated, because their key contains the character U+0000, which PostgreSQL cannot
    /// store. Such a row is either an idempotency key, which expires within a week, or the proxy usage of a model name
    /// that no provider has.
    pub left_out: u64,
}

/// A migrated table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MigratedTable {
    /// The table's name.
    pub name: &'static str,
    /// Number of rows.
    pub rows: u64,
    /// The hash of all rows in order of their keys. It is the same for the file and the database.
    pub checksum: String,
}

/// Why a migration failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum MigrateError {
    /// The file cannot be read.
    #[error(transparent)]
    Source(StoreError),
    /// The database cannot be used.
    #[error(transparent)]
    Target(StoreError),
    /// The database contains data already.
    #[error("the database already contains data; nothing was changed; use an empty database")]
    Occupied,
    /// The database contains an unfinished migration of another file.
    #[error(
        "the database contains an unfinished migration of another file; finish that migration, or start over"
    )]
    OtherFile,
    /// The file was migrated before.
    #[error(
        "the file was already migrated into this database, which may have been used since; nothing was changed"
    )]
    Finished,
    /// Another migration writes to the database.
    #[error(
        "another migration is writing to the same database; wait until it ends, then start this migration again"
    )]
    Concurrent,
    /// The file was written to during the migration.
    #[error(
        "the file was written to during the migration; stop the processes that use it, then start the migration again"
    )]
    SourceChanged,
    /// The file and the database differ.
    #[error(
        "table {table} differs between the file and the database: {what}{}; if the file was used after the migration began, stop the \
         processes that use it and start over",
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
    /// A value has the wrong type, or is too large for PostgreSQL.
    #[error(
        "the file contains an invalid value in table {table}, column {column} ({key}); `epitome verify` reports details"
    )]
    InvalidValue {
        /// The table.
        table: &'static str,
        /// The key of the value's row.
        key: String,
        /// The value's column.
        column: String,
    },
}

/// The progress of a migration: the current table, how many of its rows are copied, and the key of the last copied row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Checkpoint {
    table: usize,
    rows: u64,
    last: Option<Cells>,
}

impl Checkpoint {
    /// Returns the name of the current table; empty after the last table.
    fn step(&self) -> &'static str {
        SPECS.get(self.table).map_or("", |table| table.name)
    }
}

/// Formats a key for the checkpoint.
fn key_json(key: &[Cell]) -> String {
    serde_json::json!(key).to_string()
}

/// Migrates a whole file into an empty database, or continues an unfinished migration, and then compares both sides.
///
/// The file is only read. Other processes must not write to the file during the migration. After the migration, clients
/// should use only the database. `on_progress` is called for each piece.
pub async fn migrate_to_postgres(
    from: impl AsRef<Path>,
    to: &str,
    options: MigrateOptions,
    on_progress: &(dyn Fn(MigrateProgress) + Send + Sync),
) -> Result<Migrated, MigrateError> {
    let source = Source::open(from.as_ref()).await?;
    let mut postgres = options.postgres.clone();
    postgres.must_exist |= options.only_compare;
    let target = Postgres::open_for_migration(to, postgres).await.map_err(MigrateError::Target)?;
    let migrated = match target::tables(&target).await {
        Ok(tables) => Migration { source, target: target.clone(), tables, options, on_progress }.run().await,
        Err(error) => Err(error),
    };
    target.close().await;
    migrated
}

/// The operation that reads a piece of a table, from the file or from the database.
const READ: Op<PieceRequest, Result<Vec<Cells>, MigrateError>> =
    |piece, db| Box::pin(piece.table.read(db, piece));

struct Migration<'a> {
    source: Source,
    target: Postgres,
    tables: Vec<Arc<Table>>,
    options: MigrateOptions,
    on_progress: &'a (dyn Fn(MigrateProgress) + Send + Sync),
}

impl Migration<'_> {
    async fn run(&self) -> Result<Migrated, MigrateError> {
        let Contents { version, secret, row_counts, left_out, largest_ids } = self.source.contents().await?;
        if self.options.only_compare {
            return Ok(Migrated { tables: self.compare(&row_counts).await?, left_out });
        }
        let begin = target::write(&self.target, (secret, self.options.restart), |(secret, restart), db| {
            Box::pin(target::begin(db, secret, *restart))
        });
        let mut checkpoint = begin.await?;
        while let Some(table) = self.tables.get(checkpoint.table) {
            checkpoint = self.table(table, checkpoint, &row_counts).await?;
        }
        let tables = self.compare(&row_counts).await?;
        if self.source.newest().await? != version {
            return Err(MigrateError::SourceChanged);
        }
        let end = target::write(&self.target, (checkpoint, largest_ids), |(checkpoint, largest_ids), db| {
            Box::pin(target::end(db, checkpoint, largest_ids))
        });
        end.await?;
        target::analyze(&self.target).await;
        Ok(Migrated { tables, left_out })
    }

    /// Reads the next piece of the file's rows, after the key `after`.
    async fn read_source(
        &self,
        table: &Arc<Table>,
        after: Option<Cells>,
    ) -> Result<Vec<Cells>, MigrateError> {
        let (rows, bytes) = (self.options.rows.max(1), self.options.bytes.max(1));
        let piece = PieceRequest { table: Arc::clone(table), after, through: None, rows, bytes };
        self.source.run(piece, READ).await?
    }

    fn report(&self, stage: MigrateStage, table: usize, rows: u64, row_counts: &[u64]) {
        let name = SPECS.get(table).map_or("", |table| table.name);
        let before: u64 = row_counts.iter().take(table).sum();
        (self.on_progress)(MigrateProgress {
            stage,
            table: name,
            rows: before + rows,
            of: row_counts.iter().sum(),
        });
    }

    /// Copies the rest of a table. Returns the checkpoint at which the next table starts.
    async fn table(
        &self,
        table: &Arc<Table>,
        mut checkpoint: Checkpoint,
        row_counts: &[u64],
    ) -> Result<Checkpoint, MigrateError> {
        loop {
            self.report(MigrateStage::Copying, checkpoint.table, checkpoint.rows, row_counts);
            let rows = self.read_source(table, checkpoint.last.clone()).await?;
            let next = match rows.last() {
                None => Checkpoint { table: checkpoint.table + 1, ..Checkpoint::default() },
                Some(last) => Checkpoint {
                    table: checkpoint.table,
                    rows: checkpoint.rows + u64::try_from(rows.len()).unwrap_or(0),
                    last: Some(table.key_of(last)),
                },
            };
            let done = rows.is_empty();
            let params = (Arc::clone(table), rows, (checkpoint, next.clone()));
            let insert_rows = target::write(&self.target, params, |(table, rows, marks), db| {
                Box::pin(target::insert_rows(db, table, rows, marks))
            });
            insert_rows.await?;
            if done {
                return Ok(next);
            }
            checkpoint = next;
        }
    }

    /// Compares the file with the database, row by row in order of the keys. Returns each table's row count and hash.
    async fn compare(&self, row_counts: &[u64]) -> Result<Vec<MigratedTable>, MigrateError> {
        let mut tables = Vec::new();
        for (at, table) in self.tables.iter().enumerate() {
            let (mut rows, mut hasher) = (0, blake3::Hasher::new());
            let (mut after, mut more) = (None, true);
            while more {
                self.report(MigrateStage::Comparing, at, rows, row_counts);
                let ours = self.read_source(table, after.clone()).await?;
                let through = ours.last().map(|row| table.key_of(row));
                more = through.is_some();
                let theirs = PieceRequest {
                    table: Arc::clone(table),
                    after,
                    through: through.clone(),
                    rows: ours.len() + 1,
                    bytes: usize::MAX,
                };
                let theirs = run(&self.target, AccessMode::ReadCommitted, theirs, READ)
                    .await
                    .map_err(MigrateError::Target)??;
                if ours != theirs {
                    return Err(difference(table, &ours, &theirs));
                }
                rows += u64::try_from(ours.len()).unwrap_or(0);
                // Rows are hashed as JSON, so that rows with different values never have the same bytes.
                ours.iter().for_each(|row| {
                    hasher.update(key_json(row).as_bytes());
                });
                after = through;
            }
            let checksum = hasher.finalize().to_hex().to_string();
            tables.push(MigratedTable { name: table.spec.name, rows, checksum });
        }
        Ok(tables)
    }
}

/// Returns the error for the first row that differs.
fn difference(table: &Table, ours: &[Cells], theirs: &[Cells]) -> MigrateError {
    let same = ours.iter().zip(theirs).take_while(|(one, other)| one == other).count();
    let key = |row: &Cells| table.key_of(row);
    let (key, what) = match (ours.get(same), theirs.get(same)) {
        (Some(our_row), Some(their_row)) if key(our_row) == key(their_row) => {
            let columns = table.columns.iter().zip(our_row.iter().zip(their_row));
            let differing =
                columns.filter(|(_, (one, other))| one != other).map(|(column, _)| column.name.as_str());
            (key(our_row), format!("a row differs in {}", differing.collect::<Vec<_>>().join(", ")))
        }
        // The keys differ, so one of the two rows is missing on the other side. Each database has its own order of
        // keys, so the order does not show which row is missing. If the file's key occurs anywhere in the database's
        // piece, the database's row is missing in the file.
        (our_row, Some(their_row))
            if our_row.is_none_or(|ours| theirs.iter().any(|row| key(row) == key(ours))) =>
        {
            (key(their_row), "a row of the database is not in the file".to_owned())
        }
        (our_row, _) => {
            (our_row.map(key).unwrap_or_default(), "a row of the file is not in the database".to_owned())
        }
    };
    MigrateError::Differs { table: table.spec.name, key: table.display_key(&key), what }
}
