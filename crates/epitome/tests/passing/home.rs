//! Where engines store what they know: SQLite, or PostgreSQL when the suite runs on it.

use std::sync::Arc;

use epitome::store::{Postgres, PostgresOptions, Sqlite, SqliteOptions, Store};
use epitome::{Builder, Engine};
use epitome_testkit::both_stores::on_postgres;
use epitome_testkit::postgres_server::{Database, server};

/// A database of its own.
pub(crate) enum Home {
    /// A file that is removed with this.
    File(tempfile::TempDir),
    /// It is removed with its cluster and not before: an engine may outlive its home.
    Postgres(&'static Database),
}

impl Home {
    pub(crate) fn new() -> Self {
        if on_postgres() { Self::postgres() } else { Self::sqlite() }
    }

    /// On SQLite, in either run.
    pub(crate) fn sqlite() -> Self {
        Self::File(tempfile::tempdir().unwrap())
    }

    /// On PostgreSQL, in either run.
    pub(crate) fn postgres() -> Self {
        let database = server().template("tables", |url| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { Postgres::open(url, few()).await.unwrap().close().await });
        });
        Self::Postgres(Box::leak(Box::new(database)))
    }

    pub(crate) async fn open(&self, builder: Builder) -> Engine {
        match self {
            Self::File(dir) => builder.open(dir.path().join("a.db")).await.unwrap(),
            Self::Postgres(database) => builder.postgres(few()).open_postgres(&database.url()).await.unwrap(),
        }
    }

    /// Changes what is stored behind the engine's back, and returns how many rows that changed.
    pub(crate) fn change(&self, sql: &str) -> usize {
        match self {
            Self::File(dir) => {
                rusqlite::Connection::open(dir.path().join("a.db")).unwrap().execute(sql, []).unwrap()
            }
            Self::Postgres(database) => {
                let sql = format!(
                    "SET search_path = epitome; WITH changed AS ({sql} RETURNING 1) SELECT count(*) FROM changed"
                );
                database.psql(&sql).trim().parse().unwrap()
            }
        }
    }

    /// How many rows there are of lists that passed through, and how long the longest is.
    pub(crate) fn rows(&self) -> (i64, i64) {
        match self {
            Self::File(dir) => {
                let db = rusqlite::Connection::open(dir.path().join("a.db")).unwrap();
                let sql = "SELECT count(*), max(length(kept)) FROM inline";
                db.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
            }
            Self::Postgres(database) => {
                let told = database
                    .psql("SELECT count(*), coalesce(max(octet_length(kept)), 0) FROM epitome.inline");
                let (rows, longest) = told.trim().split_once('|').unwrap();
                (rows.parse().unwrap(), longest.parse().unwrap())
            }
        }
    }
}

fn few() -> PostgresOptions {
    PostgresOptions { connections: 8, ..PostgresOptions::default() }
}

/// An engine that is not opened again.
pub(crate) async fn alone(builder: Builder) -> Engine {
    if on_postgres() { Home::postgres().open(builder).await } else { builder.memory().await.unwrap() }
}

/// A store that many engines can be opened on, one after the other.
pub(crate) async fn store() -> Arc<dyn Store> {
    match Home::new() {
        Home::File(_) => Arc::new(Sqlite::memory(SqliteOptions::default()).unwrap()),
        Home::Postgres(database) => Arc::new(Postgres::open(&database.url(), few()).await.unwrap()),
    }
}

/// Sixteen zero bytes, in SQL.
pub(crate) fn zeros() -> &'static str {
    if on_postgres() { "decode(repeat('00', 16), 'hex')" } else { "zeroblob(16)" }
}

/// How many worlds the gate draws. Few on PostgreSQL: all of them are tried on SQLite.
pub(crate) fn world_count() -> u32 {
    if on_postgres() { 60 } else { 1_000 }
}
