//! Connections that only read.
//!
//! Each read is one transaction, so it sees one state, and in WAL mode it neither waits for the writer nor
//! keeps it waiting.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::super::StoreError;
use super::SqliteOptions;
use super::error::{Outcome, Trouble};
use super::open;

/// Asks for a connection that nobody used before.
#[derive(Clone, Copy)]
struct Fresh;

/// A few connections, opened when first needed.
#[derive(Clone)]
pub(super) struct Readers {
    path: Arc<PathBuf>,
    options: SqliteOptions,
    /// Whether nobody changes the file.
    pub(super) lasting: bool,
    idle: Arc<Mutex<Vec<Connection>>>,
    places: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(path: &Path, options: &SqliteOptions, lasting: bool) -> Self {
        Self {
            path: Arc::new(path.to_owned()),
            options: options.clone(),
            lasting,
            idle: Arc::default(),
            places: Arc::new(Semaphore::new(options.readers.max(1))),
        }
    }

    /// Reads in one transaction.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Outcome<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.read_on(None, work).await
    }

    /// The same on a connection of its own. FTS5 keeps a picture of its index with every connection, which queries
    /// bring up to date and `integrity_check` does not: on an old connection it takes what was merged since for
    /// damage.
    pub(super) async fn read_afresh<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Outcome<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.read_on(Some(Fresh), work).await
    }

    async fn read_on<T: Send + 'static>(
        &self,
        fresh: Option<Fresh>,
        work: impl FnOnce(&Connection) -> Outcome<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let this = self.clone();
        let task = tokio::task::spawn_blocking(move || {
            let _place = place;
            this.now(fresh, work).map_err(|trouble| trouble.at(&this.path))
        });
        task.await.unwrap_or_else(|_| Err(StoreError::Failed { reason: "a read panicked".to_owned() }))
    }

    fn now<T>(&self, fresh: Option<Fresh>, work: impl FnOnce(&Connection) -> Outcome<T>) -> Outcome<T> {
        let idle = match fresh {
            Some(Fresh) => None,
            None => self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop(),
        };
        let db = match idle {
            Some(db) => db,
            None if self.lasting => open::unchanging(&self.path, &self.options)?,
            None => open::reader(&self.path, &self.options)?,
        };
        db.prepare_cached("BEGIN DEFERRED")?.execute([])?;
        let result = work(&db);
        let ended = db.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([]));
        // One that failed or panicked is not used again: who knows what it is in the middle of.
        if fresh.is_none() && ended.is_ok() && !matches!(result, Err(Trouble::Sql(_))) {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(db);
        }
        result
    }

    /// Waits for the reads under way and closes all connections.
    pub(super) async fn close(&self) {
        let all = u32::try_from(self.options.readers.max(1)).unwrap_or(u32::MAX);
        let places = self.places.acquire_many(all).await;
        self.places.close();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
        drop(places);
    }
}
