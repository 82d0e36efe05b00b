//! Reads the file that is migrated. All reads use one snapshot, and nothing is written.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use epitome_core::message::Timestamp;
use rusqlite::Connection;

use super::super::error::StoreError;
use super::super::executor::{self, Executor, Op, SqlBatch};
use super::super::op_error::{OpResult, damaged};
use super::super::sql::Sql;
use super::super::sqlite::{SessionCache, SqliteExecutor, SqliteOptions, open_source, ready_result};
use super::MigrateError;
use super::tables::{NUMBERED_TABLES, SPECS, TableSpec};

/// A file being migrated. Everything is read from one snapshot. The snapshot does not contain later writes by other
/// processes, but such writes are detected.
#[derive(Debug, Clone)]
pub(super) struct Source {
    path: PathBuf,
    db: Arc<Mutex<Connection>>,
}

/// Facts about the file, read before the migration.
pub(super) struct Contents {
    /// SQLite's `data_version`. It changes when another process writes to the file.
    pub(super) version: i64,
    pub(super) secret: Vec<u8>,
    /// Approximate number of rows of each table.
    pub(super) row_counts: Vec<u64>,
    /// Number of rows that PostgreSQL cannot store.
    pub(super) left_out: u64,
    /// For each table in [`NUMBERED_TABLES`]: the largest row number that was ever assigned.
    pub(super) largest_ids: Vec<i64>,
}

impl Source {
    /// Opens the file. Nothing is created or changed, so the file's schema must be current already.
    pub(super) async fn open(path: &Path) -> Result<Self, MigrateError> {
        let path = path.to_owned();
        blocking(move || {
            let db = open_source(&path, &SqliteOptions::default())?;
            Ok(Self { path, db: Arc::new(Mutex::new(db)) })
        })
        .await
    }

    /// Begins a snapshot, and returns facts about the file.
    pub(super) async fn contents(&self) -> Result<Contents, MigrateError> {
        self.run((), |(), db| Box::pin(contents(db))).await
    }

    /// Begins a new snapshot of the newest state, and returns the file's `data_version`.
    pub(super) async fn newest(&self) -> Result<i64, MigrateError> {
        self.run((), |(), db| {
            Box::pin(async move {
                db.run(SqlBatch::new().add(Sql::new("COMMIT", []))).await?;
                begin(db).await
            })
        })
        .await
    }

    /// Runs an operation on the snapshot. The operation must only read.
    pub(super) async fn run<A: Send + Sync + 'static, T: Send + 'static>(
        &self,
        args: A,
        op: Op<A, T>,
    ) -> Result<T, MigrateError> {
        let source = self.clone();
        blocking(move || {
            let mut db = source.db.lock().unwrap_or_else(PoisonError::into_inner);
            let mut executor =
                SqliteExecutor { db: &mut db, cache: &SessionCache::default(), now: Timestamp::default() };
            ready_result(op(&args, &mut executor)).map_err(|error| error.into_store_error(&source.path))
        })
        .await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, MigrateError> {
    let panicked = |_| Err(StoreError::Failed { reason: "reading the file failed".to_owned() });
    tokio::task::spawn_blocking(work).await.unwrap_or_else(panicked).map_err(MigrateError::Source)
}

/// Begins a snapshot, and returns the file's `data_version`.
async fn begin(db: &mut dyn Executor) -> OpResult<i64> {
    // SQLite takes the snapshot with the first read.
    let first_read = Sql::new("SELECT count(*) FROM sqlite_schema", []);
    db.run(SqlBatch::new().add(Sql::new("BEGIN", [])).add(first_read)).await?;
    executor::number(db, Sql::new("PRAGMA data_version", [])).await
}

async fn contents(db: &mut dyn Executor) -> OpResult<Contents> {
    let version = begin(db).await?;
    let secret = Sql::new("SELECT secret FROM epitome.secrets", []);
    let secret = executor::first(db, secret, |row| row.bytes(0).map(<[u8]>::to_vec)).await?;
    let left_out = "SELECT (SELECT count(*) FROM epitome.idempotency WHERE instr(key, char(0)) > 0) \
         + (SELECT count(*) FROM epitome.passed WHERE instr(model, char(0)) > 0)";
    let left_out = count(db, left_out.to_owned()).await?;
    let (mut row_counts, mut largest_ids) = (Vec::new(), Vec::new());
    for TableSpec { name, condition, .. } in SPECS {
        let sql = match *name {
            // Each session's row contains its number of messages. Counting the messages would take long.
            "messages" => {
                "SELECT coalesce(sum(head), 0) FROM epitome.sessions WHERE state = 'open'".to_owned()
            }
            name => format!("SELECT count(*) FROM epitome.\"{name}\" AS moved WHERE {condition}"),
        };
        row_counts.push(count(db, sql).await?);
    }
    for (table, column) in NUMBERED_TABLES {
        // `sqlite_sequence` contains the largest id even if the row with this id was deleted.
        let sql = format!(
            "SELECT max(coalesce((SELECT max({column}) FROM epitome.{table}), 0), \
             coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{table}'), 0))"
        );
        largest_ids.push(executor::number(db, Sql::new(sql, [])).await?);
    }
    let secret = secret.ok_or_else(|| damaged("a row is missing"))?;
    Ok(Contents { version, secret, row_counts, left_out, largest_ids })
}

async fn count(db: &mut dyn Executor, sql: String) -> OpResult<u64> {
    Ok(u64::try_from(executor::number(db, Sql::new(sql, [])).await?).unwrap_or(0))
}
