//! Where the database is: a file, or a PostgreSQL that many share.
//!
//! An address of PostgreSQL often holds a password. It is shown without: in errors, logs, JSON, everywhere.

use std::fmt;
use std::path::{Path, PathBuf};

use super::World;

/// Where the database is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// A SQLite file.
    Sqlite(PathBuf),
    /// A database of a PostgreSQL server.
    Postgres(Address),
}

impl Place {
    /// The file, where it is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::Sqlite(path) => Some(path),
            Self::Postgres(_) => None,
        }
    }

    /// Whether it is a file that is not there yet. Whether a server has such a database shows when it is asked.
    pub(crate) fn is_missing(&self) -> bool {
        self.file().is_some_and(|file| matches!(file.try_exists(), Ok(false)))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "{}", path.display()),
            Self::Postgres(address) => write!(f, "{address}"),
        }
    }
}

/// The address of a PostgreSQL database. Neither form of showing it shows a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address(String);

impl Address {
    /// What is written so; none where it is no such address.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let (scheme, _) = text.split_once("://")?;
        matches!(scheme, "postgres" | "postgresql").then(|| Self(text.to_owned()))
    }

    /// As it is, for whoever connects.
    pub(crate) fn whole(&self) -> &str {
        &self.0
    }
}

/// Reads what somebody wrote; a path is from this folder on.
pub(crate) fn read(text: &str, world: &World, base: &Path) -> Result<Place, String> {
    if let Some(address) = Address::of(text) {
        return Ok(Place::Postgres(address));
    }
    let path = match text.split_once(':') {
        Some(("sqlite", path)) => path.strip_prefix("//").unwrap_or(path),
        Some((_, rest)) if rest.starts_with("//") => {
            return Err(
                "no such database; give the path of a SQLite file, sqlite:PATH or postgres://…".to_owned()
            );
        }
        // Not taken for a file's name: there may be a password in it.
        Some(("postgres" | "postgresql", _)) => {
            return Err("an address of PostgreSQL is postgres://USER:PASSWORD@HOST:PORT/DATABASE".to_owned());
        }
        _ => text,
    };
    match path {
        ":memory:" => {
            Err("what is kept in memory is gone when the command ends; give the path of a file".to_owned())
        }
        empty if empty.trim().is_empty() => {
            Err("is empty; give the path of a SQLite file, or postgres://…".to_owned())
        }
        path => Ok(Place::Sqlite(world.meant(path, base))),
    }
}

/// What stands in place of a password.
const HIDDEN: &str = "***";

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("postgres", ""));
        // Parameters first: a password there may hold what ends the other one.
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
        // Up to the last `@`, whatever should have been written by its number before it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_ever_shown() {
        let check = |whole: &str, shown: &str| {
            let address = Address::of(whole).unwrap();
            assert_eq!((address.to_string(), format!("{address:?}")), (shown.to_owned(), shown.to_owned()));
            assert_eq!(address.whole(), whole);
        };
        check("postgres://ann:secret@db:5432/epitome", "postgres://ann:***@db:5432/epitome");
        check("postgresql://ann@db/epitome?sslmode=require", "postgresql://ann@db/epitome?sslmode=require");
        check("postgres://db:5432,other:5433/epitome", "postgres://db:5432,other:5433/epitome");
        check("postgres://ann:se:cr@t/x?y@db/epitome", "postgres://ann:***@db/epitome");
        check("postgres:///x?host=/run&password=a@b&user=c", "postgres:///x?host=/run&password=***&user=c");
        check("postgres://ann:secret@db/x?PassWord=secret", "postgres://ann:***@db/x?PassWord=***");
        check("postgres://", "postgres://");
        assert_eq!((Address::of("mysql://x"), Address::of("a.db")), (None, None));
    }
}
