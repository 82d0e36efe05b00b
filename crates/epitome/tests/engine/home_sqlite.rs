//! Where a test's sessions are kept when it is SQLite that keeps them. `home_postgres.rs` has the same for PostgreSQL.

use std::sync::Arc;

use epitome::store::{SessionKey, SlotRow, Sqlite, SqliteOptions, Store};
use epitome::{Builder, Engine};
use proptest::test_runner::Config;

use crate::support::Clock;

/// Memory, or a file that goes when this does.
pub(crate) struct Home {
    pub(crate) clock: Clock,
    dir: Option<tempfile::TempDir>,
}

impl Home {
    pub(crate) fn memory() -> Self {
        Self { clock: Clock::new(), dir: None }
    }

    pub(crate) fn file() -> Self {
        Self { clock: Clock::new(), dir: Some(tempfile::tempdir().unwrap()) }
    }

    pub(crate) async fn open(&self, builder: Builder) -> Engine {
        let builder = builder.sqlite(options(&self.clock));
        match &self.dir {
            Some(dir) => builder.open(dir.path().join("agent.db")).await.unwrap(),
            None => builder.memory().await.unwrap(),
        }
    }

    /// Meddles with what is stored.
    pub(crate) fn sql(&self, sql: &str) {
        let path = self.dir.as_ref().expect("only files can be meddled with").path().join("agent.db");
        rusqlite::Connection::open(path).unwrap().execute(sql, []).unwrap();
    }

    /// A slot of session `s` as it is stored, seen by somebody else.
    pub(crate) async fn row(&self, slot: &str) -> SlotRow {
        let path = self.dir.as_ref().expect("only files can be seen by others").path().join("agent.db");
        let store = Sqlite::open(path, options(&self.clock)).unwrap();
        let standing = store.standing(&SessionKey::new("default", "s"), Default::default()).await.unwrap();
        store.close().await;
        standing.slots.into_iter().find(|row| row.name == slot).unwrap()
    }
}

pub(crate) fn options(clock: &Clock) -> SqliteOptions {
    let clock = clock.clone();
    SqliteOptions { clock: Arc::new(move || clock.now()), ..SqliteOptions::default() }
}

/// One of each kind there is.
pub(crate) fn homes() -> Vec<Home> {
    vec![Home::memory(), Home::file()]
}

/// How often something is done that only shows when it is done often.
pub(crate) fn times(most: usize) -> usize {
    most
}

/// The same in memory and in a file.
pub(crate) async fn everywhere(test: impl AsyncFn(Home)) {
    test(Home::memory()).await;
    test(Home::file()).await;
}

/// How many cases are drawn: as many as `PROPTEST_CASES` says, and never more than `most`.
pub(crate) fn cases(most: u32) -> u32 {
    Config::default().cases.min(most)
}
