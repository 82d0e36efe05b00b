//! Where engines keep what they know when that is PostgreSQL. `home_sqlite.rs` has the same for SQLite.

use std::sync::Arc;

use epitome::store::{Postgres, PostgresOptions, Store};
use epitome::{Builder, Engine};

use crate::postgres_server::{Database, server};

/// A database of its own.
pub(crate) struct Home {
    /// It goes with its cluster and not before: an engine may outlive its home.
    pub(crate) database: &'static Database,
}

impl Home {
    pub(crate) fn new() -> Self {
        let database = server().template("tables", |url| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { Postgres::open(url, few()).await.unwrap().close().await });
        });
        Self { database: Box::leak(Box::new(database)) }
    }

    pub(crate) async fn open(&self, builder: Builder) -> Engine {
        builder.postgres(few()).open_postgres(&self.database.url()).await.unwrap()
    }

    /// Meddles with what is stored, and tells how many rows that changed.
    pub(crate) fn change(&self, sql: &str) -> usize {
        let sql = format!(
            "SET search_path = epitome; WITH changed AS ({sql} RETURNING 1) SELECT count(*) FROM changed"
        );
        self.database.psql(&sql).trim().parse().unwrap()
    }

    /// How many rows there are of lists that passed through, and how long the longest is.
    pub(crate) fn rows(&self) -> (i64, i64) {
        let told =
            self.database.psql("SELECT count(*), coalesce(max(octet_length(kept)), 0) FROM epitome.inline");
        let (rows, longest) = told.trim().split_once('|').unwrap();
        (rows.parse().unwrap(), longest.parse().unwrap())
    }
}

fn few() -> PostgresOptions {
    PostgresOptions { connections: 8, ..PostgresOptions::default() }
}

/// An engine that nobody opens again.
pub(crate) async fn alone(builder: Builder) -> Engine {
    Home::new().open(builder).await
}

/// A store that many engines can be opened on, one after the other.
pub(crate) async fn store() -> Arc<dyn Store> {
    Arc::new(Postgres::open(&Home::new().database.url(), few()).await.unwrap())
}

/// Sixteen bytes of nothing.
pub(crate) const ZEROS: &str = "decode(repeat('00', 16), 'hex')";

/// At least this many worlds are drawn; `PROPTEST_CASES` asks for more. All the others were tried on SQLite.
pub(crate) const WORLDS: u32 = 60;
