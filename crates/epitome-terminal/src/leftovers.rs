//! What must not be left behind when a command is interrupted, and what is to be said then.
//!
//! Whoever writes something that is only of use when it is whole notes by which name it can be found. A signal
//! removes all that is noted, and ends the processes that were started; whoever ends otherwise does so himself.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};

/// So often something that is still being written to is removed.
const TRIES: usize = 5;

/// What is noted.
struct Noted {
    /// Where to look, by what its name begins with, and by which number it is taken out again.
    places: Vec<(u64, PathBuf, String)>,
    /// Processes that were started and are to end with this one, by the same kind of number.
    processes: Vec<(u64, Arc<Mutex<Child>>)>,
    next: u64,
    line: Option<String>,
    /// Whether the program was told to end.
    ending: bool,
}

static NOTED: Mutex<Noted> = Mutex::new(Noted::new());

/// Keeps it noted, as long as this is there.
#[derive(Debug)]
pub struct Leftover(u64);

impl Drop for Leftover {
    fn drop(&mut self) {
        if let Ok(mut noted) = NOTED.lock() {
            noted.places.retain(|(number, ..)| *number != self.0);
            noted.processes.retain(|(number, _)| *number != self.0);
        }
    }
}

/// Has everything removed that stands in this folder under a name that begins so.
#[must_use = "it is noted only as long as this is kept"]
pub fn note(folder: &Path, prefix: String) -> Leftover {
    NOTED.lock().map_or(Leftover(0), |mut noted| Leftover(noted.add(folder, prefix)))
}

/// The same for what stands beside a file, under its name and what follows it.
#[must_use = "it is noted only as long as this is kept"]
pub fn note_beside(file: &Path, ending: &str) -> Leftover {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    note(folder_of(file), format!("{name}{ending}"))
}

/// Starts a process that is to end with this one.
pub fn start(command: &mut Command) -> io::Result<(Arc<Mutex<Child>>, Leftover)> {
    // Whoever is told to end waits for this, so that none is started that nobody ends.
    let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    if noted.ending {
        return Err(io::ErrorKind::Interrupted.into());
    }
    let process = Arc::new(Mutex::new(command.spawn()?));
    let number = noted.number();
    noted.processes.push((number, Arc::clone(&process)));
    Ok((process, Leftover(number)))
}

/// What is to be said from now on when it is interrupted: one line, or nothing.
pub fn say(line: Option<&str>) {
    if let Ok(mut noted) = NOTED.lock() {
        noted.line = line.map(str::to_owned);
    }
}

/// Removes what is noted, and tells what is to be said.
pub fn interrupted() -> Option<String> {
    NOTED.lock().ok().and_then(|mut noted| noted.interrupted())
}

/// Goes on only where the program was not told to end: what fails then fails because of that, and need not be told.
pub async fn unless_ending() {
    if NOTED.lock().is_ok_and(|noted| noted.ending) {
        std::future::pending::<()>().await;
    }
}

/// The folder a file stands in.
pub fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// An ending that nobody can know beforehand, so that nobody can have put something there.
pub fn unforeseen() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("{}-{:016x}", std::process::id(), RandomState::new().hash_one(std::process::id()))
}

impl Noted {
    const fn new() -> Self {
        Self { places: Vec::new(), processes: Vec::new(), next: 1, line: None, ending: false }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn add(&mut self, folder: &Path, prefix: String) -> u64 {
        let number = self.number();
        self.places.push((number, folder.to_owned(), prefix));
        number
    }

    fn interrupted(&mut self) -> Option<String> {
        self.ending = true;
        // Before what they write to is removed.
        for (_, process) in std::mem::take(&mut self.processes) {
            if let Ok(mut process) = process.lock() {
                let _ = process.kill();
                let _ = process.wait();
            }
        }
        for (_, folder, prefix) in std::mem::take(&mut self.places) {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                let name = entry.file_name();
                if name.to_string_lossy().starts_with(&prefix) {
                    remove(&entry.path());
                }
            }
        }
        self.line.take()
    }
}

/// It is only clutter; that it stays is no reason to say anything.
fn remove(path: &Path) {
    for _ in 0..TRIES {
        let folder = std::fs::symlink_metadata(path).is_ok_and(|there| there.is_dir());
        // Whoever fills a folder goes on doing so until the process is gone.
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
        assert!(file("copy.db.7-123.part").exists(), "nothing is under way");
        noted.add(folder.path(), "copy.db.7-".to_owned());
        noted.add(folder.path(), "bench-7-".to_owned());
        noted.line = Some("said".to_owned());
        assert_eq!(noted.interrupted().as_deref(), Some("said"));
        assert!(!file("copy.db.7-123.part").exists() && !file("bench-7-0").exists());
        assert_eq!(folder.path().read_dir().unwrap().count(), 2, "what is not ours stays");
    }

    #[test]
    fn what_stands_beside_a_file_is_noted_as_long_as_it_is_wanted() {
        let is_noted = || {
            let noted = NOTED.lock().unwrap();
            let place = (Path::new("."), "beside.db.7-");
            noted.places.iter().any(|(_, folder, prefix)| (folder.as_path(), prefix.as_str()) == place)
        };
        let half = note_beside(Path::new("beside.db"), ".7-");
        assert!(is_noted());
        drop(half);
        assert!(!is_noted());
    }
}
