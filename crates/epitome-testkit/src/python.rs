//! Programs from PyPI that call a server from outside: each is installed once, under the target directory, from the
//! registry that pip is configured for.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the virtual environment of this name below `scratch` (the test's `CARGO_TARGET_TMPDIR`), with exactly the
/// packages that the file `requirements` lists. The first caller creates it; concurrent callers wait.
pub fn installed(name: &str, requirements: &Path, scratch: &Path) -> PathBuf {
    let required = fs::read_to_string(requirements).unwrap();
    let environment = scratch.join(name);
    let (lock, ready) =
        (File::create(environment.with_extension("lock")).unwrap(), environment.join("requirements.txt"));
    lock.lock().unwrap();
    if fs::read_to_string(&ready).is_ok_and(|installed| installed == required) {
        return environment;
    }
    let run = |command: &mut Command| {
        let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let errors = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{command:?}: {errors}");
    };
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment));
    let mut install = Command::new(environment.join("bin/pip"));
    install.args(["install", "--quiet", "--disable-pip-version-check", "--no-deps", "-r"]);
    run(install.arg(requirements));
    fs::write(&ready, required).unwrap();
    environment
}
