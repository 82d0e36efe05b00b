//! Finds PostgreSQL's programs, and installs them if they are missing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Returns the path of a program that the tests with PostgreSQL need, such as `postgres`, `psql` or `pgbouncer`.
/// Installs the program if it is missing.
pub fn program(name: &str) -> PathBuf {
    static FOUND: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut programs = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = programs.get(name).cloned().or_else(|| find(name)) {
        programs.insert(name.to_owned(), found.clone());
        return found;
    }
    let package = if matches!(name, "pgbouncer" | "openssl") { name } else { "postgresql" };
    let error = install(name, package);
    find(name).unwrap_or_else(|| {
        panic!(
            "this test needs the program {name}. It is not in PATH, not in /usr/lib/postgresql/*/bin, and not in the \
             directory that pg_config reports. Installing the package {package} failed: {error}. Install it by hand: \
             on Debian and Ubuntu with `apt-get install {package}`. On other systems, install PostgreSQL 15 or later \
             and its client programs"
        )
    })
}

/// Returns the ids of the user and the group that run PostgreSQL. `None` means the current user. If the current user
/// is root, another user is needed, because PostgreSQL refuses to run as root.
pub fn user() -> Option<(u32, u32)> {
    static USER: OnceLock<Option<(u32, u32)>> = OnceLock::new();
    *USER.get_or_init(|| {
        let ours = super::new_directory();
        let root = fs::metadata(&ours).is_ok_and(|file| file.uid() == 0);
        let _ = fs::remove_dir(&ours);
        if !root {
            return None;
        }
        let people = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let who = |name: &str| {
            let line = people.lines().find(|line| line.split(':').next() == Some(name))?;
            let mut fields = line.split(':').skip(2);
            Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
        };
        let found = who("postgres").or_else(|| who("nobody"));
        assert!(
            found.is_some(),
            "PostgreSQL refuses to run as root, and there is no user `postgres` or `nobody`"
        );
        found
    })
}

/// Finds a program. The directory of the server is searched first, because Debian's `/usr/bin/psql` is a script that
/// searches for the real program on every call.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let with_server = path.iter().filter(|folder| runs(&folder.join("postgres"))).cloned();
    // Debian installs servers in `sbin`, which is not in every user's PATH.
    let others = path.iter().cloned().chain([PathBuf::from("/usr/sbin")]);
    with_server
        .chain(folders_of_debian())
        .chain(folder_of_pg_config())
        .chain(others)
        .map(|folder| folder.join(name))
        .find(|file| runs(file))
}

fn runs(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

fn folder_of_pg_config() -> Option<PathBuf> {
    let printed = Command::new("pg_config").arg("--bindir").stdin(Stdio::null()).output().ok()?;
    Some(PathBuf::from(String::from_utf8(printed.stdout).ok()?.trim()))
}

/// Returns Debian's program directories, newest version first.
fn folders_of_debian() -> Vec<PathBuf> {
    let Ok(versions) = fs::read_dir("/usr/lib/postgresql") else { return Vec::new() };
    let mut versions: Vec<(u32, PathBuf)> = versions
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort();
    versions.into_iter().rev().map(|(_, folder)| folder).collect()
}

/// Installs a Debian package. Only one process installs at a time. Returns errors as text instead of panicking,
/// because another process may have installed the package in the meantime. The text is empty if there was no error.
fn install(name: &str, package: &str) -> String {
    let lock = std::env::temp_dir().join("epitome-tests-install.lock");
    // The file stays locked until it is closed.
    let _one_at_a_time = File::options()
        .create(true)
        .append(true)
        .open(&lock)
        .and_then(|file| file.lock().map(|()| file))
        .map_err(|error| eprintln!("{}: {error}; installing without a lock", lock.display()));
    if find(name).is_some() {
        return String::new();
    }
    eprintln!("{name} is missing: installing the package {package}");
    let steps: [&[&str]; 2] = [&["update"], &["install", "-y", "--no-install-recommends", package]];
    for step in steps {
        let done = Command::new("apt-get")
            .args(step)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .output();
        match done {
            Ok(done) if done.status.success() => {}
            Ok(done) => {
                let said = String::from_utf8_lossy(&done.stderr);
                return format!("apt-get {}: {}", step.join(" "), said.trim());
            }
            Err(error) => return format!("apt-get cannot be run: {error}"),
        }
    }
    String::new()
}
