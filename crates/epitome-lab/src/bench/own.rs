//! This very program, started once more.

use std::io;
use std::path::Path;
use std::process::Command;

/// Away from whatever settings there are, in a folder.
pub(super) fn own(folder: &Path) -> io::Result<Command> {
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
