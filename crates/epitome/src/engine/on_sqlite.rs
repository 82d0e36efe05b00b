//! Engines on a SQLite file, or in memory.

use std::path::Path;
use std::sync::Arc;

use super::{Builder, Engine};
use crate::error::Error;
use crate::store::{Sqlite, SqliteOptions, StoreError};

impl Builder {
    /// How the SQLite file is used.
    pub fn sqlite(mut self, options: SqliteOptions) -> Self {
        self.sqlite = options;
        self
    }

    /// Opens a SQLite file, which is created where it is missing.
    pub async fn open(self, path: impl AsRef<Path>) -> Result<Engine, Error> {
        let path = path.as_ref().to_owned();
        self.open_sqlite(move |options| Sqlite::open(&path, options)).await
    }

    /// Keeps everything in memory, for tests and trials.
    pub async fn memory(self) -> Result<Engine, Error> {
        self.open_sqlite(Sqlite::memory).await
    }

    async fn open_sqlite(
        mut self,
        open: impl FnOnce(SqliteOptions) -> Result<Sqlite, StoreError> + Send + 'static,
    ) -> Result<Engine, Error> {
        let options = std::mem::take(&mut self.sqlite);
        let opened = tokio::task::spawn_blocking(move || open(options)).await;
        let store = opened.map_err(|_| Error::Closed)??;
        self.store(Arc::new(store))
    }
}

impl Engine {
    /// Opens a SQLite file with the defaults: no key, no network, summaries by `local`.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder().open(path).await
    }

    /// Keeps everything in memory, for tests and trials.
    pub async fn memory() -> Result<Self, Error> {
        Self::builder().memory().await
    }
}
