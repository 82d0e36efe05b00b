//! The stores of the tests: SQLite, or PostgreSQL when the suite runs on it.

use std::sync::Arc;

use epitome::rules::message::Timestamp;
use epitome::store::{Postgres, PostgresOptions, SessionKey, SlotRow, Sqlite, SqliteOptions, Store};
use epitome::{Builder, Engine};
use epitome_testkit::both_stores::on_postgres;
use epitome_testkit::budget;
use epitome_testkit::postgres_server::{Database, server};

use crate::support::Clock;

/// A database of its own.
pub(crate) struct Home {
    pub(crate) clock: Clock,
    location: StoreLocation,
}

enum StoreLocation {
    Memory,
    /// A file that is removed with this.
    File(tempfile::TempDir),
    /// It is removed with its cluster and not before: an engine may outlive its home, and dropping a database costs
    /// more than creating one.
    Postgres(&'static Database),
}

impl Home {
    /// In memory; on PostgreSQL the same as [`Home::file`].
    pub(crate) fn memory() -> Self {
        if on_postgres() { Self::postgres() } else { Self::at(StoreLocation::Memory) }
    }

    pub(crate) fn file() -> Self {
        if on_postgres() {
            Self::postgres()
        } else {
            Self::at(StoreLocation::File(tempfile::tempdir().unwrap()))
        }
    }

    /// On PostgreSQL, in either run.
    pub(crate) fn postgres() -> Self {
        Self::at(StoreLocation::Postgres(Box::leak(Box::new(database()))))
    }

    fn at(location: StoreLocation) -> Self {
        Self { clock: Clock::new(), location }
    }

    pub(crate) async fn open(&self, builder: Builder) -> Engine {
        match &self.location {
            StoreLocation::Memory => builder.sqlite(sqlite_options(&self.clock)).memory().await.unwrap(),
            StoreLocation::File(dir) => {
                let builder = builder.sqlite(sqlite_options(&self.clock));
                builder.open(dir.path().join("agent.db")).await.unwrap()
            }
            StoreLocation::Postgres(database) => {
                builder.postgres(postgres_options(&self.clock)).open_postgres(&database.url()).await.unwrap()
            }
        }
    }

    /// Changes what is stored behind the engine's back.
    pub(crate) fn sql(&self, sql: &str) {
        match &self.location {
            StoreLocation::Memory => panic!("only files can be changed from outside"),
            StoreLocation::File(dir) => {
                let path = dir.path().join("agent.db");
                rusqlite::Connection::open(path).unwrap().execute(sql, []).unwrap();
            }
            StoreLocation::Postgres(database) => {
                database.psql(&format!("SET search_path = epitome; {sql}"));
            }
        }
    }

    /// A slot of session `s` as it is stored, read by another connection.
    pub(crate) async fn row(&self, slot: &str) -> SlotRow {
        let store: Box<dyn Store> = match &self.location {
            StoreLocation::Memory => panic!("only files can be read from outside"),
            StoreLocation::File(dir) => {
                Box::new(Sqlite::open(dir.path().join("agent.db"), sqlite_options(&self.clock)).unwrap())
            }
            StoreLocation::Postgres(database) => {
                Box::new(Postgres::open(&database.url(), postgres_options(&self.clock)).await.unwrap())
            }
        };
        let standing =
            store.session_state(&SessionKey::new("default", "s"), Default::default()).await.unwrap();
        store.close().await;
        standing.slots.into_iter().find(|row| row.name == slot).unwrap()
    }

    /// The PostgreSQL database of [`Home::postgres`].
    pub(crate) fn database(&self) -> &'static Database {
        match &self.location {
            StoreLocation::Postgres(database) => database,
            _ => panic!("this home is not on PostgreSQL"),
        }
    }
}

/// A database with the tables in it already.
fn database() -> Database {
    server().template("tables", |url| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime
            .block_on(async { Postgres::open(url, PostgresOptions::default()).await.unwrap().close().await });
    })
}

pub(crate) fn sqlite_options(clock: &Clock) -> SqliteOptions {
    let clock = clock.clone();
    SqliteOptions { clock: Arc::new(move || clock.now()), ..SqliteOptions::default() }
}

pub(crate) fn postgres_options(clock: &Clock) -> PostgresOptions {
    let clock = clock.clone();
    let clock: Arc<dyn Fn() -> Timestamp + Send + Sync> = Arc::new(move || clock.now());
    PostgresOptions { clock: Some(clock), connections: 8, ..PostgresOptions::default() }
}

/// One of each kind there is.
pub(crate) fn homes() -> Vec<Home> {
    if on_postgres() { vec![Home::postgres()] } else { vec![Home::memory(), Home::file()] }
}

/// How often something is done that only shows when it is done often. Less often on PostgreSQL, where each time takes
/// longer and differs more from the one before.
pub(crate) fn times(most: usize) -> usize {
    if on_postgres() { (most / 8).max(1) } else { most }
}

/// The same in every kind of home.
pub(crate) async fn on_every_store(test: impl AsyncFn(Home)) {
    for home in homes() {
        test(home).await;
    }
}

/// How many cases are drawn where the gate draws `gate` of them on SQLite. Few on PostgreSQL: each has a database of its
/// own, and on SQLite all of them are tried.
pub(crate) fn cases(gate: u32) -> u32 {
    budget::cases(if on_postgres() { (gate / 40).max(4) } else { gate })
}
