//! Cleans up when a command is interrupted, and reports what is left to do.
//!
//! Code that writes something which is useless until it is complete registers the name under which it can be found. A
//! signal removes everything that is registered, and ends the processes that were started. Code that ends otherwise
//! cleans up by itself.

use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Maximum number of attempts to remove something that is still being written to.
const TRIES: usize = 5;

/// A cleanup action.
pub type Undo = Box<dyn FnOnce() + Send>;

/// What is registered.
struct Noted {
    /// The cleanup actions, each with the number by which it is removed again.
    undone: Vec<(u64, Undo)>,
    next: u64,
    line: Option<String>,
    /// Whether the program has received a signal to end.
    ending: bool,
}

static NOTED: Mutex<Noted> = Mutex::new(Noted::new());

/// Keeps a cleanup action registered until this is dropped.
#[derive(Debug)]
pub struct Leftover(u64);

impl Drop for Leftover {
    fn drop(&mut self) {
        if let Ok(mut noted) = NOTED.lock() {
            noted.undone.retain(|(number, _)| *number != self.0);
        }
    }
}

/// Registers the removal of everything in this folder whose name starts with this prefix.
#[must_use = "it is registered only until this is dropped"]
pub fn note(folder: &Path, prefix: String) -> Leftover {
    let undo = removal(folder, prefix);
    NOTED.lock().map_or(Leftover(0), |mut noted| Leftover(noted.add(undo)))
}

/// Registers the removal of everything next to a file whose name starts with the file's name and this ending.
#[must_use = "it is registered only until this is dropped"]
pub fn note_beside(file: &Path, ending: &str) -> Leftover {
    let (folder, prefix) = beside(file, ending);
    note(folder, prefix)
}

/// Returns the folder of a file, and the file's name with this ending.
fn beside<'a>(file: &'a Path, ending: &str) -> (&'a Path, String) {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    (folder_of(file), format!("{name}{ending}"))
}

/// Starts something that must end with this process, such as a child process.
pub fn begin<T>(begin: impl FnOnce() -> io::Result<(T, Undo)>) -> io::Result<(T, Leftover)> {
    // The signal handler waits for this lock, so nothing is started that it does not end.
    let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    if noted.ending {
        return Err(io::ErrorKind::Interrupted.into());
    }
    let (begun, undo) = begin()?;
    Ok((begun, Leftover(noted.add(undo))))
}

/// Sets the line that is printed when the command is interrupted, if any.
pub fn say(line: Option<&str>) {
    if let Ok(mut noted) = NOTED.lock() {
        noted.line = line.map(str::to_owned);
    }
}

/// Cleans up everything that is registered, and returns the line to print.
pub fn interrupted() -> Option<String> {
    NOTED.lock().ok().and_then(|mut noted| noted.interrupted())
}

/// Returns only if the program is not ending. Otherwise a failure is a consequence of that, and need not be reported.
pub async fn unless_ending() {
    if NOTED.lock().is_ok_and(|noted| noted.ending) {
        std::future::pending::<()>().await;
    }
}

/// Returns the folder of a file.
pub fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns a name ending that cannot be predicted, so that no other program can have created a file of that name.
pub fn unforeseen() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("{}-{:016x}", std::process::id(), RandomState::new().hash_one(std::process::id()))
}

impl Noted {
    const fn new() -> Self {
        Self { undone: Vec::new(), next: 1, line: None, ending: false }
    }

    fn add(&mut self, undo: Undo) -> u64 {
        self.next += 1;
        self.undone.push((self.next - 1, undo));
        self.next - 1
    }

    fn interrupted(&mut self) -> Option<String> {
        self.ending = true;
        // The newest first: a process ends before the folder it writes to is removed.
        std::mem::take(&mut self.undone).into_iter().rev().for_each(|(_, undo)| undo());
        self.line.take()
    }
}

fn removal(folder: &Path, prefix: String) -> Undo {
    let folder = folder.to_owned();
    Box::new(move || {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                remove(&entry.path());
            }
        }
    })
}

/// Removes a path. If that fails, nothing is reported: what is left does no harm.
fn remove(path: &Path) {
    for _ in 0..TRIES {
        let folder = std::fs::symlink_metadata(path).is_ok_and(|there| there.is_dir());
        // A process may still be writing into the folder until it has ended.
        let removed = if folder { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        if removed.is_ok() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        for name in ["copy.db.7-123.part", "copy.db", "copy.db.1-123.part"] {
            std::fs::write(file(name), "").unwrap();
        }
        std::fs::create_dir(file("bench-7-0")).unwrap();
        std::fs::write(file("bench-7-0").join("a.db"), "").unwrap();
        let mut noted = Noted::new();
        assert_eq!(noted.interrupted(), None);
        assert!(file("copy.db.7-123.part").exists(), "nothing is registered");
        noted.add(removal(folder.path(), "copy.db.7-".to_owned()));
        noted.add(removal(folder.path(), "bench-7-".to_owned()));
        noted.line = Some("said".to_owned());
        assert_eq!(noted.interrupted().as_deref(), Some("said"));
        assert!(!file("copy.db.7-123.part").exists() && !file("bench-7-0").exists());
        assert_eq!(folder.path().read_dir().unwrap().count(), 2, "what is not ours stays");
    }

    #[test]
    fn what_stands_beside_a_file_is_noted_as_long_as_it_is_wanted() {
        assert_eq!(beside(Path::new("beside.db"), ".7-"), (Path::new("."), "beside.db.7-".to_owned()));
        let half = note_beside(Path::new("beside.db"), ".7-");
        let number = half.0;
        let is_noted = || NOTED.lock().unwrap().undone.iter().any(|(noted, _)| *noted == number);
        assert!(is_noted());
        drop(half);
        assert!(!is_noted());
    }
}
