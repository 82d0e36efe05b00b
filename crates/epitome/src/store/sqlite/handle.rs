//! The store itself: one connection that writes, and a few that read.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use epitome_core::message::Timestamp;
use rusqlite::Connection;

use super::super::error::StoreError;
use super::super::lease::Place;
use super::known::Known;
use super::open;
use super::options::SqliteOptions;
use super::readers::Readers;
use super::writer::Writer;

/// Sessions in SQLite.
pub struct Sqlite {
    pub(super) path: PathBuf,
    pub(super) clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    pub(super) writer: Writer,
    pub(super) known: Known,
    pub(super) walked: Place,
    /// A store in memory has a single connection, the writer's.
    pub(super) readers: Option<Readers>,
    pub(super) options: SqliteOptions,
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Sqlite {
    /// Opens a file, making it where there is none. Blocks for as long as that takes.
    ///
    /// A file of up to 64 MiB is looked through for damage. Of a larger one only the header, the schema, the
    /// length and the newest rows are; [`super::super::Maintenance::verify`] looks at all of it.
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

    /// A store that is gone with the process.
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
        Ok(Self {
            path,
            clock: Arc::clone(&options.clock),
            writer,
            known,
            walked: Place::default(),
            readers,
            options,
        })
    }
}
