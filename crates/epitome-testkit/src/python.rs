//! Installs programs from PyPI that call a server from outside. Each program is installed once, under the target
//! directory. The packages come from the registry that pip is configured for.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the path of the virtual environment with this name in the directory `scratch`, the test's
/// `CARGO_TARGET_TMPDIR`. The environment contains exactly the packages that the file `requirements` lists. The first
/// caller creates the environment, and concurrent callers wait.
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
