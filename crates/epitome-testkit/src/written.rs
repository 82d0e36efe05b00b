//! What a command wrote, without a process.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use epitome_terminal::show::Show;

/// What was written, for tests of commands.
#[derive(Debug, Clone, Default)]
pub struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    /// A [`Show`] without a process, and what it writes to standard output and to standard error.
    pub fn show(json: bool) -> (Show, Self, Self) {
        let (out, errors) = (Self::default(), Self::default());
        (Show::plain(Box::new(out.clone()), Box::new(errors.clone()), json), out, errors)
    }

    /// All of it so far.
    pub fn text(&self) -> String {
        let written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&written).into_owned()
    }
}

impl Write for Written {
    fn write(&mut self, words: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(words)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
