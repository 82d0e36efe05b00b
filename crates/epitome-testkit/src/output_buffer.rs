//! Captures the output of a command without a process.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use epitome_terminal::show::Show;

/// A buffer for the output of a command under test.
#[derive(Debug, Clone, Default)]
pub struct OutputBuffer(Arc<Mutex<Vec<u8>>>);

impl OutputBuffer {
    /// Returns a [`Show`] that writes to two buffers, and these buffers: standard output and standard error.
    pub fn show(json: bool) -> (Show, Self, Self) {
        let (out, errors) = (Self::default(), Self::default());
        (Show::plain(Box::new(out.clone()), Box::new(errors.clone()), json), out, errors)
    }

    /// Returns the output so far.
    pub fn text(&self) -> String {
        let written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&written).into_owned()
    }
}

impl Write for OutputBuffer {
    fn write(&mut self, words: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(words)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
