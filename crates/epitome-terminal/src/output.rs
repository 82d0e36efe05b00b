//! Writes files that appear only when they are complete.
//!
//! A file is first written under a temporary name, in the folder of its final path. When the file is complete, it is
//! moved to its final path. After a signal, the temporary file is removed ([`crate::cleanup`]). Nothing here depends on
//! the content of a file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::cleanup::{self, CleanupGuard};
use crate::failure::Failure;

/// A file that is being written. Open it before the content is computed, so that an error about the path is reported
/// early.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    /// The path of the temporary file; `None` for a pipe, a terminal or a device, to which the content is written
    /// directly.
    temporary: Option<PathBuf>,
    /// Whether the file replaces an existing file.
    replaces: bool,
    to: BufWriter<File>,
    _cleanup: Option<CleanupGuard>,
}

impl Output {
    /// Opens a file. When it is complete, it replaces a file that exists at its path.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        if path.is_dir() {
            return Err(not_writable(path, &io::ErrorKind::IsADirectory.into()));
        }
        match std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            true => {
                let file =
                    File::options().write(true).open(path).map_err(|error| not_writable(path, &error))?;
                Ok(Self {
                    path: path.to_owned(),
                    temporary: None,
                    replaces: true,
                    to: writer(file),
                    _cleanup: None,
                })
            }
            false => Self::next_to(path, true),
        }
    }

    /// Opens a new file. An existing file is never replaced.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        match path.symlink_metadata() {
            Ok(_) => Err(already_exists(path)),
            Err(_) => Self::next_to(path, false),
        }
    }

    fn next_to(path: &Path, replaces: bool) -> Result<Self, Failure> {
        let ending = format!(".{}.part", cleanup::random_suffix());
        let cleanup = Some(cleanup::register_next_to(path, &ending));
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(ending);
        let temporary = PathBuf::from(temporary);
        let file = File::create_new(&temporary).map_err(|error| not_writable(path, &error))?;
        let (path, to) = (path.to_owned(), writer(file));
        Ok(Self { path, temporary: Some(temporary), replaces, to, _cleanup: cleanup })
    }

    /// Writes a part of the content.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.to.write_all(bytes).map_err(|error| not_writable(&self.path, &error))
    }

    /// Moves the file to its final path.
    pub fn finish(mut self) -> Result<(), Failure> {
        let failed = |error: io::Error| not_writable(&self.path, &error);
        self.to.flush().map_err(failed)?;
        let Some(temporary) = &self.temporary else { return Ok(()) };
        if !self.replaces {
            self.to.get_ref().sync_all().map_err(failed)?;
            // A hard link fails if another process has created a file at the final path in the meantime. On a file
            // system without hard links, the file is renamed instead.
            match std::fs::hard_link(temporary, &self.path) {
                Ok(()) => return Ok(()),
                Err(_) if self.path.symlink_metadata().is_ok() => return Err(already_exists(&self.path)),
                Err(_) => {}
            }
        }
        std::fs::rename(temporary, &self.path).map_err(failed)?;
        self.temporary = None;
        Ok(())
    }

    /// Writes the whole content, and moves the file to its final path.
    pub fn say(mut self, text: &str) -> Result<(), Failure> {
        self.put(text.as_bytes())?;
        self.finish()
    }

    /// Returns the final path.
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
        if let Some(temporary) = &self.temporary {
            // The content already has a link at its final path, or is not needed.
            let _ = std::fs::remove_file(temporary);
        }
    }
}

fn writer(file: File) -> BufWriter<File> {
    BufWriter::with_capacity(1 << 16, file)
}

fn already_exists(path: &Path) -> Failure {
    let path = path.display();
    Failure::Failed(format!("{path}: the file exists already and is not replaced; choose another name"))
}

/// Returns the failure for a file that cannot be written.
pub fn not_writable(path: &Path, error: &io::Error) -> Failure {
    Failure::Failed(format!("{} cannot be written: {error}", path.display()))
}
