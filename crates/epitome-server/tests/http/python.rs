//! Programs from PyPI that ask a server from outside: each is installed once, under the target directory, from whatever
//! registry pip is set up for.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The virtual environment of this name, with what `requirements` (a file) lists and nothing else. Whoever comes first
/// makes it, and the others wait.
pub fn installed(name: &str, requirements: &Path) -> PathBuf {
    let wanted = fs::read_to_string(requirements).unwrap();
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let (lock, ready) = (File::create(place.with_extension("lock")).unwrap(), place.join("requirements.txt"));
    lock.lock().unwrap();
    if fs::read_to_string(&ready).is_ok_and(|there| there == wanted) {
        return place;
    }
    let run = |command: &mut Command| {
        let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let errors = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{command:?}: {errors}");
    };
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&place));
    let mut install = Command::new(place.join("bin/pip"));
    install.args(["install", "--quiet", "--disable-pip-version-check", "--no-deps", "-r"]);
    run(install.arg(requirements));
    fs::write(&ready, wanted).unwrap();
    place
}
