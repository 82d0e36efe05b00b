//! The SQLite store: one connection that writes, and a few that read.

use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::Connection;

use super::super::ask::{Task, Way};
use super::super::contract::Store;
use super::super::error::StoreError;
use super::super::lease::Place;
use super::super::recent::Recent;
use super::known::Known;
use super::lent::{Lent, done};
use super::options::SqliteOptions;
use super::readers::Readers;
use super::writer::Writer;
use super::{backup, open};

/// A store for sessions in SQLite.
pub struct Sqlite {
    path: PathBuf,
    writer: Writer,
    known: Known,
    walked: Arc<Place>,
    recent: Recent,
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
    /// All of a file of up to 64 MiB is checked for damage. Of a larger file only the header, the schema, the length
    /// and the newest rows are checked; [`Store::verify`] checks all of it.
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, StoreError> {
        let path = path.as_ref().to_owned();
        let (db, lasting) = match open::writer(&path, &options) {
            Ok(db) => (db, false),
            Err(error @ StoreError::ReadOnly { .. }) if options.read_only_too => {
                (open::lasting(&path, &options, error)?, true)
            }
            Err(error) => return Err(error),
        };
        let readers = Some(Readers::new(&path, &options, lasting));
        Self::start(db, path, readers, options)
    }

    /// Opens a store in memory, which is lost when the process ends.
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
        let known = Known::default();
        let writer = Writer::start(db, path.clone(), options.clone(), known.clone())?;
        Ok(Self { path, writer, known, walked: Arc::default(), recent: Recent::default(), readers, options })
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
    async fn run(&self, way: Way, task: Task) -> Result<(), StoreError> {
        let (clock, known) = (Arc::clone(&self.options.clock), self.known.clone());
        let work = Box::new(move |db: &mut Connection| {
            if way == Way::Writes {
                known.forget_all();
            }
            done(task.on(&mut Lent { db, known: &known, now: clock() }))
        });
        match (way, &self.readers) {
            (Way::Reads | Way::Looks, Some(readers)) => readers.read(false, work).await,
            (Way::ReadsHere | Way::LooksHere, Some(readers)) => readers.read_here(work).await,
            (Way::ReadsAll, Some(readers)) => readers.read(true, work).await,
            _ => self.writer.run(work, false).await,
        }
    }

    fn walked(&self) -> Arc<Place> {
        Arc::clone(&self.walked)
    }

    fn recent(&self) -> &Recent {
        &self.recent
    }

    async fn backup(&self, to: &Path) -> Result<(), StoreError> {
        let to = to.to_owned();
        match &self.readers {
            None => self.writer.run(Box::new(move |db| backup::into(db, &to)), true).await,
            Some(readers) => {
                let (path, options, lasting) = (self.path.clone(), self.options.clone(), readers.lasting);
                let task = tokio::task::spawn_blocking(move || {
                    // Uses its own connection, so that neither reads nor writes wait for the backup.
                    let open = if lasting { open::unchanging } else { open::plain };
                    let copied = open(&path, &options).and_then(|db| backup::into(&db, &to));
                    copied.map_err(|trouble| trouble.at(&path))
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
