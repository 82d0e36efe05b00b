//! The SQLite store: one connection that writes, and a few that read.

use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::Connection;

use super::super::contract::Store;
use super::super::error::StoreError;
use super::super::executor::{AccessMode, ErasedOp};
use super::super::lease::WalkPosition;
use super::super::window_cache::WindowCache;
use super::executor::{SqliteExecutor, ready_result};
use super::options::SqliteOptions;
use super::readers::Readers;
use super::session_cache::SessionCache;
use super::writer::WriterHandle;
use super::{backup, open};

/// A store for sessions in SQLite.
pub struct Sqlite {
    path: PathBuf,
    writer: WriterHandle,
    cache: SessionCache,
    walk_position: Arc<WalkPosition>,
    window_cache: WindowCache,
    /// `None` for a store in memory, which uses the writer's connection for everything.
    readers: Option<Readers>,
    options: SqliteOptions,
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Sqlite {
    /// Opens a file, and creates it if it does not exist. Blocks until the file is open.
    ///
    /// A file of up to 64 MiB is checked completely for damage. For a larger file, only the header, the schema, the
    /// length and the newest rows are checked. A file that can only be read is opened without these checks.
    /// [`crate::Engine::verify`] checks a file of any size completely.
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, StoreError> {
        let path = path.as_ref().to_owned();
        let (db, immutable) = match open::writer(&path, &options) {
            Ok(db) => (db, false),
            Err(error @ StoreError::ReadOnly { .. }) if options.allow_read_only => {
                (open::checked_immutable(&path, &options, error)?, true)
            }
            Err(error) => return Err(error),
        };
        let readers = Some(Readers::new(&path, &options, immutable));
        Self::start(db, path, readers, options)
    }

    /// Opens a store in memory. Its data is lost when the store is closed or the process ends.
    pub fn memory(options: SqliteOptions) -> Result<Self, StoreError> {
        let db = open::memory(&options)?;
        Self::start(db, PathBuf::from(":memory:"), None, options)
    }

    fn start(
        db: Connection,
        path: PathBuf,
        readers: Option<Readers>,
        options: SqliteOptions,
    ) -> Result<Self, StoreError> {
        let cache = SessionCache::default();
        let writer = WriterHandle::start(db, path.clone(), options.clone(), cache.clone())?;
        Ok(Self {
            path,
            writer,
            cache,
            walk_position: Arc::default(),
            window_cache: WindowCache::default(),
            readers,
            options,
        })
    }
}

impl Deref for Sqlite {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        self
    }
}

#[async_trait]
impl Store for Sqlite {
    async fn run(&self, mode: AccessMode, op: ErasedOp) -> Result<(), StoreError> {
        let (clock, cache) = (Arc::clone(&self.options.clock), self.cache.clone());
        let work = Box::new(move |db: &mut Connection| {
            if mode == AccessMode::Write {
                cache.clear();
            }
            ready_result(op.run_on(&mut SqliteExecutor { db, cache: &cache, now: clock() }))
        });
        match (mode, &self.readers) {
            (AccessMode::Snapshot | AccessMode::ReadCommitted, Some(readers)) => {
                readers.read(false, work).await
            }
            (AccessMode::SnapshotInline | AccessMode::ReadCommittedInline, Some(readers)) => {
                readers.read_inline(work).await
            }
            (AccessMode::FullScan, Some(readers)) => readers.read(true, work).await,
            _ => self.writer.run(work, false).await,
        }
    }

    fn walk_position(&self) -> Arc<WalkPosition> {
        Arc::clone(&self.walk_position)
    }

    fn window_cache(&self) -> &WindowCache {
        &self.window_cache
    }

    async fn backup(&self, to: &Path) -> Result<(), StoreError> {
        let to = to.to_owned();
        match &self.readers {
            None => self.writer.run(Box::new(move |db| backup::copy_into(db, &to)), true).await,
            Some(readers) => {
                let (path, options, immutable) = (self.path.clone(), self.options.clone(), readers.immutable);
                let task = tokio::task::spawn_blocking(move || {
                    // The backup uses its own connection, so that neither reads nor writes wait for it.
                    let open = if immutable { open::immutable } else { open::plain };
                    let copied = open(&path, &options).and_then(|db| backup::copy_into(&db, &to));
                    copied.map_err(|error| error.into_store_error(&path))
                });
                task.await
                    .unwrap_or_else(|_| Err(StoreError::Failed { reason: "the backup panicked".to_owned() }))
            }
        }
    }

    async fn close(&self) {
        if let Some(readers) = &self.readers {
            readers.close().await;
        }
        self.writer.close().await;
    }
}
