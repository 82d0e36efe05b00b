//! What must not be left behind when a command is interrupted, and what is to be said then.
//!
//! Whoever writes something that is only of use when it is whole notes by which name it can be found. A signal
//! removes all that is noted, and ends the processes that were started; whoever ends otherwise does so himself.

use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// So often something that is still being written to is removed.
const TRIES: usize = 5;

/// How something is undone.
pub type Undo = Box<dyn FnOnce() + Send>;

/// What is noted.
struct Noted {
    /// What is to be undone, and by which number it is taken out again.
    undone: Vec<(u64, Undo)>,
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
            noted.undone.retain(|(number, _)| *number != self.0);
        }
    }
}

/// Has everything removed that stands in this folder under a name that begins so.
#[must_use = "it is noted only as long as this is kept"]
pub fn note(folder: &Path, prefix: String) -> Leftover {
    let undo = removal(folder, prefix);
    NOTED.lock().map_or(Leftover(0), |mut noted| Leftover(noted.add(undo)))
}

/// The same for what stands beside a file, under its name and what follows it.
#[must_use = "it is noted only as long as this is kept"]
pub fn note_beside(file: &Path, ending: &str) -> Leftover {
    let (folder, prefix) = beside(file, ending);
    note(folder, prefix)
}

/// The folder it stands in, and what its name begins with.
fn beside<'a>(file: &'a Path, ending: &str) -> (&'a Path, String) {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    (folder_of(file), format!("{name}{ending}"))
}

/// Begins something that is to end with this process: a process of its own, say.
pub fn begin<T>(begin: impl FnOnce() -> io::Result<(T, Undo)>) -> io::Result<(T, Leftover)> {
    // Whoever is told to end waits for this, so that nothing is begun that nobody ends.
    let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    if noted.ending {
        return Err(io::ErrorKind::Interrupted.into());
    }
    let (begun, undo) = begin()?;
    Ok((begun, Leftover(noted.add(undo))))
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
