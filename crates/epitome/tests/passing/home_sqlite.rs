//! Where engines keep what they know when that is SQLite. `home_postgres.rs` has the same for PostgreSQL.

use std::sync::Arc;

use epitome::store::{Sqlite, SqliteOptions, Store};
use epitome::{Builder, Engine};

/// A file that goes when this does.
pub(crate) struct Home {
    pub(crate) dir: tempfile::TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) async fn open(&self, builder: Builder) -> Engine {
        builder.open(self.dir.path().join("a.db")).await.unwrap()
    }

    /// Meddles with what is stored, and tells how many rows that changed.
    pub(crate) fn change(&self, sql: &str) -> usize {
        rusqlite::Connection::open(self.dir.path().join("a.db")).unwrap().execute(sql, []).unwrap()
    }

    /// How many rows there are of lists that passed through, and how long the longest is.
    pub(crate) fn rows(&self) -> (i64, i64) {
        let db = rusqlite::Connection::open(self.dir.path().join("a.db")).unwrap();
        let sql = "SELECT count(*), max(length(kept)) FROM inline";
        db.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    }
}

/// An engine that nobody opens again.
pub(crate) async fn alone(builder: Builder) -> Engine {
    builder.memory().await.unwrap()
}

/// A store that many engines can be opened on, one after the other.
pub(crate) async fn store() -> Arc<dyn Store> {
    Arc::new(Sqlite::memory(SqliteOptions::default()).unwrap())
}

/// Sixteen bytes of nothing.
pub(crate) const ZEROS: &str = "zeroblob(16)";

/// At least this many worlds are drawn; `PROPTEST_CASES` asks for more.
pub(crate) const WORLDS: u32 = 1_000;
