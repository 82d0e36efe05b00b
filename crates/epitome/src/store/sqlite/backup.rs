//! Copies the whole store into a new file.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::super::error::StoreError;
use super::error::{OpError, OpResult};
use super::open::missing_directory;

/// Copies the database of a connection into the file `to`. The file appears only when the copy is complete.
pub(super) fn copy_into(db: &Connection, to: &Path) -> OpResult<()> {
    let rejected = |reason: String| StoreError::Unreachable { path: to.display().to_string(), reason };
    if to.exists() {
        return Err(rejected(
            "a file exists already, and a backup never replaces a file; use another path".to_owned(),
        )
        .into());
    }
    if let Some(why) = missing_directory(to) {
        return Err(rejected(why).into());
    }
    let temporary = temporary(to);
    let Some(name) = temporary.to_str() else {
        return Err(rejected("its path is not valid UTF-8; use another path".to_owned()).into());
    };
    let publish = || -> std::io::Result<()> {
        File::open(&temporary)?.sync_all()?;
        // A hard link fails if another process has created the target since the first check. A rename would replace the
        // target, so a rename is used only if the file system does not support hard links.
        match std::fs::hard_link(&temporary, to) {
            Err(_) if !to.exists() => std::fs::rename(&temporary, to)?,
            linked => linked?,
        }
        match to.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    };
    let done = db.execute("VACUUM INTO ?1", [name]).map_err(OpError::from);
    let done = done.and_then(|_| Ok(publish().map_err(|error| rejected(error.to_string()))?));
    // The error is ignored: the temporary file may be missing, because it was renamed or never created.
    let _ = std::fs::remove_file(&temporary);
    done.map_err(|error| error.into_store_error(to).into())
}

/// Returns a unique file name in the directory of `to`.
fn temporary(to: &Path) -> PathBuf {
    let mut name: OsString = to.file_name().unwrap_or_default().to_owned();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    name.push(format!(".{}-{}.part", std::process::id(), now.as_nanos()));
    to.with_file_name(name)
}
