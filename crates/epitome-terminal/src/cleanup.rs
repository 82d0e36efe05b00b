//! Cleans up when a command is interrupted by a signal.
//!
//! A command that writes a file in several steps registers an action that removes the incomplete file. A command that
//! starts a process registers an action that ends this process. After a signal, all registered actions run. A command
//! that ends without a signal cleans up by itself.

use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Maximum number of attempts to remove a file or a folder. An attempt can fail while a process still writes to the
/// folder.
const MAX_ATTEMPTS: usize = 5;

/// A cleanup action.
pub type Action = Box<dyn FnOnce() + Send>;

/// The registered actions.
struct Registry {
    /// The actions. Each action has a number, with which its [`CleanupGuard`] removes the action.
    actions: Vec<(u64, Action)>,
    next_number: u64,
    /// The line to print when the command is interrupted, if any.
    message: Option<String>,
    /// Whether the program has received a signal to end.
    ending: bool,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry::new());

/// Removes a cleanup action from the registry when the guard is dropped.
#[derive(Debug)]
pub struct CleanupGuard(u64);

impl Drop for CleanupGuard {
    fn drop(&mut self) {
        if let Ok(mut registry) = REGISTRY.lock() {
            registry.actions.retain(|(number, _)| *number != self.0);
        }
    }
}

/// Registers the removal of everything in this folder whose name starts with this prefix.
#[must_use = "the removal is registered only until this guard is dropped"]
pub fn register(folder: &Path, prefix: String) -> CleanupGuard {
    let action = removal(folder, prefix);
    REGISTRY.lock().map_or(CleanupGuard(0), |mut registry| CleanupGuard(registry.add(action)))
}

/// Registers the removal of temporary files of a file. A temporary file is in the same folder, and its name starts with
/// the file's name followed by this ending.
#[must_use = "the removal is registered only until this guard is dropped"]
pub fn register_next_to(file: &Path, ending: &str) -> CleanupGuard {
    let (folder, prefix) = next_to(file, ending);
    register(folder, prefix)
}

/// Returns the folder of a file, and the file's name followed by this ending.
fn next_to<'a>(file: &'a Path, ending: &str) -> (&'a Path, String) {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    (parent_folder(file), format!("{name}{ending}"))
}

/// Starts something that must end with this process, such as a child process. `start` also returns the action that ends
/// it.
pub fn start<T>(start: impl FnOnce() -> io::Result<(T, Action)>) -> io::Result<(T, CleanupGuard)> {
    // The signal handler waits for this lock. So it also runs the action of everything that is started while the signal
    // arrives.
    let mut registry = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    if registry.ending {
        return Err(io::ErrorKind::Interrupted.into());
    }
    let (started, action) = start()?;
    Ok((started, CleanupGuard(registry.add(action))))
}

/// Sets the line that is printed when the command is interrupted. With `None`, no line is printed.
pub fn set_message(line: Option<&str>) {
    if let Ok(mut registry) = REGISTRY.lock() {
        registry.message = line.map(str::to_owned);
    }
}

/// Runs all registered actions, and returns the line to print, if any.
pub fn run() -> Option<String> {
    REGISTRY.lock().ok().and_then(|mut registry| registry.run())
}

/// Returns at once if the program is not ending. If the program is ending, never returns. A command waits here before
/// it reports a failure, because a failure while the program ends is only a consequence of the end.
pub async fn unless_ending() {
    if REGISTRY.lock().is_ok_and(|registry| registry.ending) {
        std::future::pending::<()>().await;
    }
}

/// Returns the folder of a file.
pub fn parent_folder(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns a random suffix for a file name. Because it is random, no other program can have created a file of that
/// name.
pub fn random_suffix() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("{}-{:016x}", std::process::id(), RandomState::new().hash_one(std::process::id()))
}

impl Registry {
    const fn new() -> Self {
        Self { actions: Vec::new(), next_number: 1, message: None, ending: false }
    }

    fn add(&mut self, action: Action) -> u64 {
        self.next_number += 1;
        self.actions.push((self.next_number - 1, action));
        self.next_number - 1
    }

    fn run(&mut self) -> Option<String> {
        self.ending = true;
        // The newest action runs first. So a process ends before the folder to which it writes is removed.
        std::mem::take(&mut self.actions).into_iter().rev().for_each(|(_, action)| action());
        self.message.take()
    }
}

fn removal(folder: &Path, prefix: String) -> Action {
    let folder = folder.to_owned();
    Box::new(move || {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                remove(&entry.path());
            }
        }
    })
}

/// Removes a path. Failures are not reported, because an incomplete file does no harm.
fn remove(path: &Path) {
    for _ in 0..MAX_ATTEMPTS {
        let is_folder = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir());
        // A process that is ending may still write to the folder. Then the removal fails and is tried again.
        let removed = if is_folder { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        if removed.is_ok() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registered_files_are_removed_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        for name in ["copy.db.7-123.part", "copy.db", "copy.db.1-123.part"] {
            std::fs::write(file(name), "").unwrap();
        }
        std::fs::create_dir(file("bench-7-0")).unwrap();
        std::fs::write(file("bench-7-0").join("a.db"), "").unwrap();
        let mut registry = Registry::new();
        assert_eq!(registry.run(), None);
        assert!(file("copy.db.7-123.part").exists(), "nothing is registered");
        registry.add(removal(folder.path(), "copy.db.7-".to_owned()));
        registry.add(removal(folder.path(), "bench-7-".to_owned()));
        registry.message = Some("said".to_owned());
        assert_eq!(registry.run().as_deref(), Some("said"));
        assert!(!file("copy.db.7-123.part").exists() && !file("bench-7-0").exists());
        assert_eq!(folder.path().read_dir().unwrap().count(), 2, "other files stay");
    }

    #[test]
    fn a_removal_is_registered_until_its_guard_is_dropped() {
        assert_eq!(next_to(Path::new("file.db"), ".7-"), (Path::new("."), "file.db.7-".to_owned()));
        let guard = register_next_to(Path::new("file.db"), ".7-");
        let number = guard.0;
        let is_registered = || REGISTRY.lock().unwrap().actions.iter().any(|(own, _)| *own == number);
        assert!(is_registered());
        drop(guard);
        assert!(!is_registered());
    }
}
