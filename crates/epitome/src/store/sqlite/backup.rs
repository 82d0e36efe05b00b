//! Copying the whole store into a new file.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::super::error::StoreError;
use super::error::Outcome;

/// Copies what a connection has open. The target appears when it is whole, or not at all.
pub(super) fn into(db: &Connection, to: &Path) -> Outcome<()> {
    let said = || to.display().to_string();
    if to.exists() {
        let reason = "there is a file already; a backup never replaces one".to_owned();
        return Err(StoreError::Unreachable { path: said(), reason }.into());
    }
    if let Some(parent) = to.parent().filter(|parent| !parent.as_os_str().is_empty() && !parent.is_dir()) {
        let reason = format!("there is no directory {}; make it first", parent.display());
        return Err(StoreError::Unreachable { path: said(), reason }.into());
    }
    let beside = beside(to);
    let Some(name) = beside.to_str() else {
        let reason = "its name is not UTF-8".to_owned();
        return Err(StoreError::Unreachable { path: said(), reason }.into());
    };
    let done = db.execute("VACUUM INTO ?1", [name]).map_err(super::error::Trouble::from).and_then(|_| {
        let settled = File::open(&beside).and_then(|file| file.sync_all());
        // A hard link refuses a target that came to be meanwhile, where renaming would replace it.
        // Not every file system has them.
        let placed = settled.and_then(|()| match std::fs::hard_link(&beside, to) {
            Err(_) if !to.exists() => std::fs::rename(&beside, to),
            linked => linked,
        });
        let placed =
            placed.and_then(|()| match to.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                Some(parent) => File::open(parent)?.sync_all(),
                None => Ok(()),
            });
        let failed =
            |error: std::io::Error| StoreError::Unreachable { path: said(), reason: error.to_string() };
        Ok(placed.map_err(failed)?)
    });
    // Gone already, or never there: either way it is not in the way.
    let _ = std::fs::remove_file(&beside);
    done.map_err(|trouble| trouble.at(to).into())
}

/// A name that nobody else uses, in the same directory.
fn beside(to: &Path) -> PathBuf {
    let mut name: OsString = to.file_name().unwrap_or_default().to_owned();
    let moment = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    name.push(format!(".{}-{}.part", std::process::id(), moment.as_nanos()));
    to.with_file_name(name)
}
