//! A file that is there when it is whole, or not at all.
//!
//! It is written beside its place under another name, and put there at the end. What is left of it after a signal is
//! removed ([`crate::leftovers`]). What the file is for is not known here.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::leftovers::{self, Leftover};

/// A file that is being written. It is opened early, so that a place that cannot be written to is told in time.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    /// Where it is written until it is whole. What is no plain file, a pipe or a terminal, is written to as it is.
    part: Option<PathBuf>,
    /// Whether a file that is there is replaced.
    replaces: bool,
    to: BufWriter<File>,
    _half: Option<Leftover>,
}

impl Output {
    /// Opens a file that takes the place of what is there.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        if path.is_dir() {
            return Err(unwritten(path, &io::ErrorKind::IsADirectory.into()));
        }
        match std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            true => {
                let file = File::options().write(true).open(path).map_err(|error| unwritten(path, &error))?;
                Ok(Self { path: path.to_owned(), part: None, replaces: true, to: writer(file), _half: None })
            }
            false => Self::beside(path, true),
        }
    }

    /// Opens a new file: one that is there is never replaced.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        match path.symlink_metadata() {
            Ok(_) => Err(taken(path)),
            Err(_) => Self::beside(path, false),
        }
    }

    fn beside(path: &Path, replaces: bool) -> Result<Self, Failure> {
        let ending = format!(".{}.part", leftovers::unforeseen());
        let half = leftovers::note_beside(path, &ending);
        let mut part = path.as_os_str().to_owned();
        part.push(ending);
        let part = PathBuf::from(part);
        let file = File::create_new(&part).map_err(|error| unwritten(path, &error))?;
        Ok(Self { path: path.to_owned(), part: Some(part), replaces, to: writer(file), _half: Some(half) })
    }

    /// Writes some of it.
    pub fn put(&mut self, words: &[u8]) -> Result<(), Failure> {
        self.to.write_all(words).map_err(|error| unwritten(&self.path, &error))
    }

    /// Puts it in its place.
    pub fn finish(mut self) -> Result<(), Failure> {
        let failed = |error: io::Error| unwritten(&self.path, &error);
        self.to.flush().map_err(failed)?;
        let Some(part) = &self.part else { return Ok(()) };
        if !self.replaces {
            self.to.get_ref().sync_all().map_err(failed)?;
            // A link is refused where somebody has put a file meanwhile; a file system without links has only moving.
            match std::fs::hard_link(part, &self.path) {
                Ok(()) => return Ok(()),
                Err(_) if self.path.symlink_metadata().is_ok() => return Err(taken(&self.path)),
                Err(_) => {}
            }
        }
        std::fs::rename(part, &self.path).map_err(failed)?;
        self.part = None;
        Ok(())
    }

    /// Writes all of it at once.
    pub fn say(mut self, text: &str) -> Result<(), Failure> {
        self.put(text.as_bytes())?;
        self.finish()
    }

    /// Returns where it will be.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            // It has its place by another name, or nobody wants it.
            let _ = std::fs::remove_file(part);
        }
    }
}

fn writer(file: File) -> BufWriter<File> {
    BufWriter::with_capacity(1 << 16, file)
}

fn taken(path: &Path) -> Failure {
    let path = path.display();
    Failure::Failed(format!("{path}: there is a file already, which is not replaced; name another"))
}

/// Says that a file cannot be written.
pub fn unwritten(path: &Path, error: &io::Error) -> Failure {
    Failure::Failed(format!("{} cannot be written: {error}", path.display()))
}
