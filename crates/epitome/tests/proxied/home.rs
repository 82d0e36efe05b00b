//! Creates test databases: SQLite, or PostgreSQL when the suite runs on it.

use std::sync::Arc;

use epitome::store::{Postgres, PostgresOptions, Sqlite, SqliteOptions, Store};
use epitome::{Builder, Engine};
use epitome_testkit::both_stores::on_postgres;
use epitome_testkit::postgres_server::{Database, server};

/// A test database.
pub(crate) enum Home {
    /// A SQLite file, deleted when this is dropped.
    File(tempfile::TempDir),
    /// A PostgreSQL database. It is deleted with its cluster, because an engine may outlive this value.
    Postgres(&'static Database),
}

impl Home {
    pub(crate) fn new() -> Self {
        if on_postgres() { Self::postgres() } else { Self::sqlite() }
    }

    /// Creates a SQLite file in any run.
    pub(crate) fn sqlite() -> Self {
        Self::File(tempfile::tempdir().unwrap())
    }

    /// Creates a PostgreSQL database in any run.
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

    /// Changes stored rows without the engine, and returns how many rows changed.
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

    /// Returns the number of stored proxy states, and the length of the longest.
    pub(crate) fn rows(&self) -> (i64, i64) {
        match self {
            Self::File(dir) => {
                let db = rusqlite::Connection::open(dir.path().join("a.db")).unwrap();
                let sql = "SELECT count(*), max(length(kept)) FROM inline";
                db.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
            }
            Self::Postgres(database) => {
                let printed = database
                    .psql("SELECT count(*), coalesce(max(octet_length(kept)), 0) FROM epitome.inline");
                let (rows, longest) = printed.trim().split_once('|').unwrap();
                (rows.parse().unwrap(), longest.parse().unwrap())
            }
        }
    }
}

fn few() -> PostgresOptions {
    PostgresOptions { connections: 8, ..PostgresOptions::default() }
}

/// Opens an engine that is not opened again.
pub(crate) async fn alone(builder: Builder) -> Engine {
    if on_postgres() { Home::postgres().open(builder).await } else { builder.memory().await.unwrap() }
}

/// Creates a store on which several engines can be opened, one after the other.
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

/// Number of random cases. Few on PostgreSQL, because SQLite runs all of them.
pub(crate) fn world_count() -> u32 {
    if on_postgres() { 60 } else { 1_000 }
}
