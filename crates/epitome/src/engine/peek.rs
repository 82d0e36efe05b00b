//! A look into a file from outside, where a workspace at a time is too little.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::Engine;
use crate::error::Error;
use crate::store::StoreError;

impl Engine {
    /// The names of all workspaces a SQLite file has ever had: for whoever wants to know, before a file is removed,
    /// whose it is. Nothing is written.
    pub async fn workspaces_in(path: impl AsRef<Path>) -> Result<Vec<String>, Error> {
        let path = path.as_ref().to_owned();
        tokio::task::spawn_blocking(move || names(&path)).await.map_err(|_| Error::Closed)?
    }
}

fn names(path: &Path) -> Result<Vec<String>, Error> {
    let read = || {
        let file = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let mut statement = file.prepare("SELECT name FROM workspaces ORDER BY name")?;
        let names = statement.query_map([], |row| row.get(0))?;
        names.collect::<rusqlite::Result<Vec<String>>>()
    };
    read().map_err(|error| {
        StoreError::Unreachable { path: path.display().to_string(), reason: error.to_string() }.into()
    })
}
