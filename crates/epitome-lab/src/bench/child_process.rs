//! Starts this program again as a child process.

use std::io;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use epitome_terminal::cleanup::{self, CleanupGuard};

/// Starts a child process. As long as the guard exists, a signal that ends this program also kills the child process.
pub(super) fn start(command: &mut Command) -> io::Result<(Arc<Mutex<Child>>, CleanupGuard)> {
    cleanup::start(|| {
        let process = Arc::new(Mutex::new(command.spawn()?));
        let ended = Arc::clone(&process);
        let end: cleanup::Action = Box::new(move || {
            if let Ok(mut process) = ended.lock() {
                let _ = process.kill();
                let _ = process.wait();
            }
        });
        Ok((process, end))
    })
}

/// Returns a command that runs this program in a folder. The command does not see the user's settings: `HOME` is the
/// folder, and Epitome's environment variables are removed.
pub(super) fn own_command(folder: &Path) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.current_dir(folder).env("HOME", folder);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("EPITOME_") || text.starts_with("XDG_") {
            command.env_remove(&name);
        }
    }
    Ok(command)
}
