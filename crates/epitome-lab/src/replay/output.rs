//! A file that is there when it is whole, or not at all.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use epitome_terminal::failure::Failure;
use epitome_terminal::leftovers::{self, Leftover};

/// It is opened before anything is played, so that a place that cannot be written to is told in time.
pub(super) struct Output {
    path: PathBuf,
    /// Where it is written until it is whole. What is no plain file, a pipe or a terminal, is written to as it is.
    part: Option<PathBuf>,
    to: BufWriter<File>,
    _half: Option<Leftover>,
}

impl Output {
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let failed = |error: io::Error| unwritten(path, &error);
        if path.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        let (part, file, half) = match std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            true => (None, File::options().write(true).open(path).map_err(failed)?, None),
            false => {
                let ending = format!(".{}.part", leftovers::unforeseen());
                let half = leftovers::note_beside(path, &ending);
                let mut part = path.as_os_str().to_owned();
                part.push(ending);
                let part = PathBuf::from(part);
                let file = File::create_new(&part).map_err(failed)?;
                (Some(part), file, Some(half))
            }
        };
        Ok(Self { path: path.to_owned(), part, to: BufWriter::with_capacity(1 << 16, file), _half: half })
    }

    /// Puts it in its place.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        let mut done = self.to.flush();
        if let Some(part) = self.part.as_ref().filter(|_| done.is_ok()) {
            done = std::fs::rename(part, &self.path);
        }
        if done.is_ok() {
            self.part = None;
        }
        done.map_err(|error| unwritten(&self.path, &error))
    }

    /// All of it at once.
    pub(super) fn say(mut self, text: &str) -> Result<(), Failure> {
        let written = self.to.write_all(text.as_bytes());
        written.map_err(|error| unwritten(&self.path, &error))?;
        self.finish()
    }

    pub(super) fn path(&self) -> &Path {
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
            // Nobody wants half of it.
            let _ = std::fs::remove_file(part);
        }
    }
}

pub(super) fn unwritten(path: &Path, error: &io::Error) -> Failure {
    Failure::Failed(format!("{} cannot be written: {error}", path.display()))
}

/// No two flags may name one file, nor one of those that are read.
pub(super) fn apart(outputs: &[(&str, Option<&Path>)], inputs: &[PathBuf]) -> Result<(), Failure> {
    let place = |path: &Path| {
        let folder = leftovers::folder_of(path).canonicalize().ok()?;
        path.canonicalize().ok().or_else(|| Some(folder.join(path.file_name()?)))
    };
    let is_device = |path: &Path| std::fs::metadata(path).is_ok_and(|there| !there.is_file());
    let mut seen: Vec<(&str, PathBuf)> =
        inputs.iter().filter_map(|path| Some(("a recording", place(path)?))).collect();
    for (flag, path) in outputs.iter().filter_map(|(flag, path)| Some((*flag, (*path)?))) {
        let Some(own) = place(path).filter(|_| !is_device(path)) else { continue };
        if let Some((other, _)) = seen.iter().find(|(_, there)| *there == own) {
            let told = format!("{flag}: {} is {other}'s file as well; name another", path.display());
            return Err(Failure::Misused(told.replace("a recording's file as well", "a recording")));
        }
        seen.push((flag, own));
    }
    Ok(())
}
