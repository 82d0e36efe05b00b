//! Copies the whole store into a new file.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::super::error::StoreError;
use super::error::{Outcome, Trouble};
use super::open::no_directory;

/// Copies the database of a connection. The target file appears when it is complete, or not at all.
pub(super) fn into(db: &Connection, to: &Path) -> Outcome<()> {
    let refused = |reason: String| StoreError::Unreachable { path: to.display().to_string(), reason };
    if to.exists() {
        return Err(refused("a file exists already; a backup never replaces one".to_owned()).into());
    }
    if let Some(why) = no_directory(to) {
        return Err(refused(why).into());
    }
    let beside = beside(to);
    let Some(name) = beside.to_str() else {
        return Err(refused("its name is not UTF-8".to_owned()).into());
    };
    let place = || -> std::io::Result<()> {
        File::open(&beside)?.sync_all()?;
        // A hard link fails if the target was created meanwhile; a rename would replace it. Not every file system
        // supports hard links.
        match std::fs::hard_link(&beside, to) {
            Err(_) if !to.exists() => std::fs::rename(&beside, to)?,
            linked => linked?,
        }
        match to.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    };
    let done = db.execute("VACUUM INTO ?1", [name]).map_err(Trouble::from);
    let done = done.and_then(|_| Ok(place().map_err(|error| refused(error.to_string()))?));
    // The temporary file may be missing: it was renamed, or never created. Both are fine.
    let _ = std::fs::remove_file(&beside);
    done.map_err(|trouble| trouble.at(to).into())
}

/// Returns a unique file name in the same directory.
fn beside(to: &Path) -> PathBuf {
    let mut name: OsString = to.file_name().unwrap_or_default().to_owned();
    let moment = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    name.push(format!(".{}-{}.part", std::process::id(), moment.as_nanos()));
    to.with_file_name(name)
}
