//! Reads the file that is moved: from one snapshot, and without writing.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use epitome_core::message::Timestamp;
use rusqlite::Connection;

use super::super::ask::{self, Ask, Batch, Op};
use super::super::error::StoreError;
use super::super::sql::Sql;
use super::super::sqlite::{Known, Lent, SqliteOptions, done, open_source};
use super::super::trouble::{Outcome, nonsense};
use super::MoveError;
use super::tables::{NUMBERED, SPECS, Spec};

/// A file being moved. Everything is read from one snapshot. What is written meanwhile is not seen, but detected.
#[derive(Debug, Clone)]
pub(super) struct Source {
    path: PathBuf,
    db: Arc<Mutex<Connection>>,
}

/// What is read from the file before it is moved.
pub(super) struct Contents {
    /// Changes when another process writes to the file.
    pub(super) version: i64,
    pub(super) secret: Vec<u8>,
    /// Approximate number of rows of each table.
    pub(super) counts: Vec<u64>,
    /// Number of rows that PostgreSQL cannot store.
    pub(super) left_out: u64,
    /// The largest id that was ever assigned, for each table with numbered rows.
    pub(super) numbers: Vec<i64>,
}

impl Source {
    /// Opens the file. Nothing is created or changed, so its schema must be current.
    pub(super) async fn open(path: &Path) -> Result<Self, MoveError> {
        let path = path.to_owned();
        blocking(move || {
            let db = open_source(&path, &SqliteOptions::default())?;
            Ok(Self { path, db: Arc::new(Mutex::new(db)) })
        })
        .await
    }

    /// Begins a snapshot, and returns what the file contains.
    pub(super) async fn contents(&self) -> Result<Contents, MoveError> {
        self.run((), |(), ask| Box::pin(contents(ask))).await
    }

    /// Begins a new snapshot of the newest state, and returns its version.
    pub(super) async fn newest(&self) -> Result<i64, MoveError> {
        self.run((), |(), ask| {
            Box::pin(async move {
                ask.ask(Batch::new().run(Sql::new("COMMIT", []))).await?;
                begin(ask).await
            })
        })
        .await
    }

    /// Runs an operation that reads.
    pub(super) async fn run<A: Send + Sync + 'static, T: Send + 'static>(
        &self,
        args: A,
        op: Op<A, T>,
    ) -> Result<T, MoveError> {
        let source = self.clone();
        blocking(move || {
            let mut db = source.db.lock().unwrap_or_else(PoisonError::into_inner);
            let mut lent = Lent { db: &mut db, known: &Known::default(), now: Timestamp::default() };
            done(op(&args, &mut lent)).map_err(|trouble| trouble.at(&source.path))
        })
        .await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, MoveError> {
    let panicked = |_| Err(StoreError::Failed { reason: "reading the file failed".to_owned() });
    tokio::task::spawn_blocking(work).await.unwrap_or_else(panicked).map_err(MoveError::Source)
}

/// Begins a snapshot, and returns its version.
async fn begin(ask: &mut dyn Ask) -> Outcome<i64> {
    // SQLite takes the snapshot with the first read.
    let look = Sql::new("SELECT count(*) FROM sqlite_schema", []);
    ask.ask(Batch::new().run(Sql::new("BEGIN", [])).run(look)).await?;
    ask::number(ask, Sql::new("PRAGMA data_version", [])).await
}

async fn contents(ask: &mut dyn Ask) -> Outcome<Contents> {
    let version = begin(ask).await?;
    let secret = Sql::new("SELECT secret FROM epitome.secrets", []);
    let secret = ask::first(ask, secret, |row| row.bytes(0).map(<[u8]>::to_vec)).await?;
    let left_out = "SELECT (SELECT count(*) FROM epitome.idempotency WHERE instr(key, char(0)) > 0) \
         + (SELECT count(*) FROM epitome.passed WHERE instr(model, char(0)) > 0)";
    let left_out = count(ask, left_out.to_owned()).await?;
    let (mut counts, mut numbers) = (Vec::new(), Vec::new());
    for Spec { name, only, .. } in SPECS {
        let sql = match *name {
            // The sessions contain these numbers, and counting would take long.
            "messages" => {
                "SELECT coalesce(sum(head), 0) FROM epitome.sessions WHERE state = 'open'".to_owned()
            }
            name => format!("SELECT count(*) FROM epitome.\"{name}\" AS moved WHERE {only}"),
        };
        counts.push(count(ask, sql).await?);
    }
    for (table, column) in NUMBERED {
        // `sqlite_sequence` has the largest id even if its row was deleted.
        let sql = format!(
            "SELECT max(coalesce((SELECT max({column}) FROM epitome.{table}), 0), \
             coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{table}'), 0))"
        );
        numbers.push(ask::number(ask, Sql::new(sql, [])).await?);
    }
    let secret = secret.ok_or_else(|| nonsense("a row is missing"))?;
    Ok(Contents { version, secret, counts, left_out, numbers })
}

async fn count(ask: &mut dyn Ask, sql: String) -> Outcome<u64> {
    Ok(u64::try_from(ask::number(ask, Sql::new(sql, [])).await?).unwrap_or(0))
}
