//! Where a test's sessions are kept when it is PostgreSQL that keeps them. `home_sqlite.rs` has the same for SQLite.

use std::sync::Arc;

use epitome::rules::message::Timestamp;
use epitome::store::{Postgres, PostgresOptions, SessionKey, SlotRow, Store};
use epitome::{Builder, Engine};
use proptest::test_runner::Config;

use crate::postgres_server::{Database, server};
use crate::support::Clock;

/// A database of its own.
pub(crate) struct Home {
    pub(crate) clock: Clock,
    /// It goes with its cluster and not before: an engine may outlive its home, and to drop one costs more than to
    /// make one.
    pub(crate) database: &'static Database,
}

impl Home {
    /// The same as [`Home::file`]: there is no PostgreSQL in memory.
    pub(crate) fn memory() -> Self {
        Self::file()
    }

    pub(crate) fn file() -> Self {
        Self { clock: Clock::new(), database: Box::leak(Box::new(database())) }
    }

    pub(crate) async fn open(&self, builder: Builder) -> Engine {
        builder.postgres(options(&self.clock)).open_postgres(&self.database.url()).await.unwrap()
    }

    /// Meddles with what is stored.
    pub(crate) fn sql(&self, sql: &str) {
        self.database.psql(&format!("SET search_path = epitome; {sql}"));
    }

    /// A slot of session `s` as it is stored, seen by somebody else.
    pub(crate) async fn row(&self, slot: &str) -> SlotRow {
        let store = Postgres::open(&self.database.url(), options(&self.clock)).await.unwrap();
        let standing = store.standing(&SessionKey::new("default", "s"), Default::default()).await.unwrap();
        store.close().await;
        standing.slots.into_iter().find(|row| row.name == slot).unwrap()
    }
}

/// One with the tables in it already.
fn database() -> Database {
    server().template("tables", |url| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime
            .block_on(async { Postgres::open(url, PostgresOptions::default()).await.unwrap().close().await });
    })
}

pub(crate) fn options(clock: &Clock) -> PostgresOptions {
    let clock = clock.clone();
    let clock: Arc<dyn Fn() -> Timestamp + Send + Sync> = Arc::new(move || clock.now());
    PostgresOptions { clock: Some(clock), connections: 8, ..PostgresOptions::default() }
}

/// One of each kind there is.
pub(crate) fn homes() -> Vec<Home> {
    vec![Home::file()]
}

/// How often something is done that only shows when it is done often. Less often here: each time takes longer, and is
/// less like the one before.
pub(crate) fn times(most: usize) -> usize {
    (most / 8).max(1)
}

/// There is one kind of place here.
pub(crate) async fn everywhere(test: impl AsyncFn(Home)) {
    test(Home::file()).await;
}

/// How many cases are drawn: as many as `PROPTEST_CASES` says, and never more than `most`. Unless it says so, it is few
/// of them: each has a database of its own, and on SQLite all of them were tried.
pub(crate) fn cases(most: u32) -> u32 {
    let cases = Config::default().cases.min(most);
    if std::env::var_os("PROPTEST_CASES").is_some() { cases } else { (cases / 40).max(4) }
}
