//! Locates the database and the user's folders. The process environment is an argument, so that tests can set it.
//!
//! The database is a SQLite file, or a PostgreSQL database that several nodes share. A PostgreSQL address often
//! contains a password. Errors, logs and JSON output never show the password.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use crate::suggest::similar_names;

/// Where the database is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DbLocation {
    /// A SQLite file.
    Sqlite(PathBuf),
    /// A database of a PostgreSQL server.
    Postgres(Address),
}

impl DbLocation {
    /// Returns the path, if the database is a file.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::Sqlite(path) => Some(path),
            Self::Postgres(_) => None,
        }
    }

    /// Whether the database is a file that does not exist yet. A PostgreSQL database is checked only when it is opened.
    pub(crate) fn is_missing_file(&self) -> bool {
        self.file().is_some_and(|file| matches!(file.try_exists(), Ok(false)))
    }
}

impl fmt::Display for DbLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "{}", path.display()),
            Self::Postgres(address) => write!(f, "{address}"),
        }
    }
}

/// The address of a PostgreSQL database. Neither `Display` nor `Debug` shows its password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address(String);

impl Address {
    /// Recognises a PostgreSQL address by its scheme. Returns None for any other text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (scheme, _) = text.split_once("://")?;
        matches!(scheme, "postgres" | "postgresql").then(|| Self(text.to_owned()))
    }

    /// Returns the address with its password, to connect with.
    pub(crate) fn with_password(&self) -> &str {
        &self.0
    }
}

/// Parses a database location. A relative path starts at `base`.
pub(crate) fn parse_location(
    text: &str,
    environment: &Environment,
    base: &Path,
) -> Result<DbLocation, String> {
    if let Some(address) = Address::parse(text) {
        return Ok(DbLocation::Postgres(address));
    }
    let path = match text.split_once(':') {
        Some(("sqlite", path)) => path.strip_prefix("//").unwrap_or(path),
        Some((scheme, rest)) if rest.starts_with("//") => {
            // Shows no part of the text, because the text may contain a password.
            return Err(match similar_names(scheme, ["postgres", "postgresql", "sqlite"], 1).first() {
                Some(similar) => format!("is not a database; did you mean {similar}://?"),
                None => "is not a database; give the path of a SQLite file, sqlite:PATH or postgres://…"
                    .to_owned(),
            });
        }
        // Refuses a mistyped address. Otherwise messages would show the address as a file name, and the address may
        // contain a password.
        Some(("postgres" | "postgresql", _)) => {
            return Err("a PostgreSQL address is postgres://USER:PASSWORD@HOST:PORT/DATABASE".to_owned());
        }
        _ => text,
    };
    match path {
        ":memory:" => {
            Err("a database in memory is lost when the command ends; give the path of a file".to_owned())
        }
        empty if empty.trim().is_empty() => {
            Err("is empty; give the path of a SQLite file, or postgres://…".to_owned())
        }
        path => Ok(DbLocation::Sqlite(environment.resolve(path, base))),
    }
}

/// The text that is shown instead of a password.
const HIDDEN: &str = "***";

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("postgres", ""));
        // Splits off the parameters first, because a password among the parameters may contain `@`. The last `@` before
        // the parameters ends the user name and password.
        let (base, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let hidden = |parameter: &str| match parameter.split_once('=') {
            Some((name, _)) if name.to_ascii_lowercase().contains("pass") => format!("{name}={HIDDEN}"),
            _ => parameter.to_owned(),
        };
        let parameters: Vec<String> = parameters.split('&').map(hidden).collect();
        let whole = match parameters.join("&") {
            none if none.is_empty() => base.to_owned(),
            some => format!("{base}?{some}"),
        };
        // Splits at the last `@`, because a password may contain an `@` that is not percent-encoded.
        match whole.rsplit_once('@') {
            Some((who, place)) => match who.split_once(':') {
                Some((user, _)) => write!(f, "{scheme}://{user}:{HIDDEN}@{place}"),
                None => write!(f, "{scheme}://{who}@{place}"),
            },
            None => write!(f, "{scheme}://{whole}"),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Operating system whose folder conventions apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Os {
    /// `~/.config` and `~/.local/share`, or the folders in the XDG variables.
    Unix,
    /// `~/Library/Application Support`.
    Mac,
    /// `%APPDATA%`, `%LOCALAPPDATA%`.
    Windows,
}

/// The process's surroundings: environment, current folder and operating system.
#[derive(Debug, Clone)]
pub(crate) struct Environment {
    /// Environment variables.
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) current_folder: PathBuf,
    /// Operating system whose folder conventions apply.
    pub(crate) os: Os,
}

impl Environment {
    /// Returns the surroundings of this process.
    pub(crate) fn of_process() -> Self {
        let os = match std::env::consts::OS {
            "macos" => Os::Mac,
            "windows" => Os::Windows,
            _ => Os::Unix,
        };
        // If the current folder was deleted, `current_folder` is empty. Opening a relative path then fails with a clear
        // error.
        let current_folder = std::env::current_dir().unwrap_or_default();
        Self { env: std::env::vars_os().collect(), current_folder, os }
    }

    /// Returns a variable. An empty variable counts as not set.
    pub(crate) fn var(&self, name: &str) -> Option<&OsStr> {
        let found = self.env.iter().rev().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_os_str()).filter(|value| !value.is_empty())
    }

    /// Returns a variable, or None if it is not UTF-8 text.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.var(name).and_then(OsStr::to_str).map(str::to_owned)
    }

    /// Returns the user's home folder.
    pub(crate) fn home(&self) -> Option<PathBuf> {
        let name = if self.os == Os::Windows { "USERPROFILE" } else { "HOME" };
        self.var(name).map(PathBuf::from)
    }

    /// Returns the folder for Epitome's settings.
    pub(crate) fn config_folder(&self) -> Option<PathBuf> {
        self.folder("XDG_CONFIG_HOME", ".config", "APPDATA")
    }

    /// Returns the folder for Epitome's data.
    pub(crate) fn data_folder(&self) -> Option<PathBuf> {
        self.folder("XDG_DATA_HOME", ".local/share", "LOCALAPPDATA")
    }

    fn folder(&self, xdg: &str, under_home: &str, windows: &str) -> Option<PathBuf> {
        let base = match self.os {
            // Ignores relative paths, as the XDG specification requires.
            Os::Unix => match self.var(xdg).map(PathBuf::from).filter(|path| path.is_absolute()) {
                Some(path) => path,
                None => self.home()?.join(under_home),
            },
            Os::Mac => self.home()?.join("Library/Application Support"),
            Os::Windows => PathBuf::from(self.var(windows)?),
        };
        Some(base.join("epitome"))
    }

    /// Resolves a path: `~/` is the user's home folder, and a relative path starts at `base`.
    pub(crate) fn resolve(&self, path: &str, base: &Path) -> PathBuf {
        match (path.strip_prefix("~/"), self.home()) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => base.join(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_ever_shown() {
        let check = |written: &str, shown: &str| {
            let address = Address::parse(written).unwrap();
            assert_eq!((address.to_string(), format!("{address:?}")), (shown.to_owned(), shown.to_owned()));
            assert_eq!(address.with_password(), written);
        };
        check("postgres://ann:secret@db:5432/epitome", "postgres://ann:***@db:5432/epitome");
        check("postgresql://ann@db/epitome?sslmode=require", "postgresql://ann@db/epitome?sslmode=require");
        check("postgres://db:5432,other:5433/epitome", "postgres://db:5432,other:5433/epitome");
        check("postgres://ann:se:cr@t/x?y@db/epitome", "postgres://ann:***@db/epitome");
        check("postgres:///x?host=/run&password=a@b&user=c", "postgres:///x?host=/run&password=***&user=c");
        check("postgres://ann:secret@db/x?PassWord=secret", "postgres://ann:***@db/x?PassWord=***");
        check("postgres://", "postgres://");
        assert_eq!((Address::parse("mysql://x"), Address::parse("a.db")), (None, None));
    }
}

#[cfg(test)]
mod environment_tests {
    use super::*;

    fn environment(os: Os, env: &[(&str, &str)]) -> Environment {
        let env = env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect();
        Environment { env, current_folder: PathBuf::from("/here"), os }
    }

    #[test]
    fn each_system_has_its_own_folders() {
        let home = [("HOME", "/home/ann")];
        let plain = environment(Os::Unix, &home);
        assert_eq!(plain.config_folder(), Some("/home/ann/.config/epitome".into()));
        assert_eq!(plain.data_folder(), Some("/home/ann/.local/share/epitome".into()));
        let set = environment(
            Os::Unix,
            &[("HOME", "/home/ann"), ("XDG_DATA_HOME", "/data"), ("XDG_CONFIG_HOME", "c")],
        );
        assert_eq!(set.data_folder(), Some("/data/epitome".into()));
        assert_eq!(
            set.config_folder(),
            Some("/home/ann/.config/epitome".into()),
            "relative paths are ignored"
        );
        let mac = environment(Os::Mac, &home);
        assert_eq!(mac.data_folder(), Some("/home/ann/Library/Application Support/epitome".into()));
        let windows = environment(Os::Windows, &[("APPDATA", "/r"), ("LOCALAPPDATA", "/l")]);
        assert_eq!(
            (windows.config_folder(), windows.data_folder()),
            (Some("/r/epitome".into()), Some("/l/epitome".into()))
        );
        assert_eq!(environment(Os::Unix, &[("HOME", "")]).data_folder(), None);
    }

    #[test]
    fn a_tilde_is_the_home_folder_and_relative_paths_start_at_the_base() {
        let plain = environment(Os::Unix, &[("HOME", "/home/ann")]);
        let resolve = |path| plain.resolve(path, Path::new("/etc"));
        assert_eq!(resolve("~/a.db"), Path::new("/home/ann/a.db"));
        assert_eq!((resolve("a.db"), resolve("/a.db")), ("/etc/a.db".into(), "/a.db".into()));
    }
}
