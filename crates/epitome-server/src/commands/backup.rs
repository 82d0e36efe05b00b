//! `epitome backup`: a copy, while the database is used.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde_json::json;

use crate::database::Database;
use crate::failure::Failure;
use crate::settings::Loaded;
use crate::show::{Show, bytes};

const EXAMPLES: &str = "\
Examples:
  epitome backup epitome-2026-03-14.db
  epitome verify --db epitome-2026-03-14.db

A file that is there is never replaced, and the copy appears when it is whole or not at all. --json
is one object: from, to, bytes.";

/// Copies the database into a new file, while it is used
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The new file
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// What is being written now: Ctrl-C must not leave half of it behind.
static UNDER_WAY: Mutex<Option<PathBuf>> = Mutex::new(None);

pub(super) async fn run(args: &Args, loaded: &Loaded, show: &mut Show) -> Result<(), Failure> {
    let database = Database::existing(loaded).await?;
    {
        let _progress = show.progress(&format!("copying to {}", args.file.display()), None);
        note(Some(args.file.clone()));
        let copied = database.engine.backup(&args.file).await;
        note(None);
        copied?;
    }
    let size = std::fs::metadata(&args.file).map_or(0, |file| file.len());
    let (from, to) = (database.path().display().to_string(), args.file.display().to_string());
    if show.json {
        show.object(&json!({"from": from, "to": to, "bytes": size}))?;
    } else {
        show.line(format!("{from} copied to {to}, {}", bytes(size)))?;
    }
    database.close().await;
    Ok(())
}

fn note(file: Option<PathBuf>) {
    if let Ok(mut under_way) = UNDER_WAY.lock() {
        *under_way = file;
    }
}

/// Removes what a copy that is not finished has written so far. The store writes it beside its target, under
/// the target's name and this process's number.
pub(crate) fn interrupted() {
    let Some(file) = UNDER_WAY.lock().ok().and_then(|mut file| file.take()) else { return };
    let Some(name) = file.file_name().and_then(|name| name.to_str()) else { return };
    let ours = format!("{name}.{}-", std::process::id());
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let beside = entry.file_name();
        if beside.to_str().is_some_and(|beside| beside.starts_with(&ours)) {
            // It is only clutter; that it stays is no reason to say anything now.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_copy_is_not_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: String| folder.path().join(name);
        let ours = file(format!("copy.db.{}-123.part", std::process::id()));
        for path in [&ours, &file("copy.db".to_owned()), &file("copy.db.1-123.part".to_owned())] {
            std::fs::write(path, "").unwrap();
        }
        interrupted();
        assert!(ours.exists(), "nothing is under way");
        note(Some(file("copy.db".to_owned())));
        interrupted();
        assert!(!ours.exists());
        assert_eq!(folder.path().read_dir().unwrap().count(), 2, "what is not ours stays");
    }
}
