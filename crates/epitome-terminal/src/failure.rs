//! The failures of commands. Each failure has an exit code and an error text.

use std::io;

use epitome::store::StoreError;

/// The database that was open when a command failed. The line on standard error can contain its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenDatabase {
    /// The address of the database, without secrets.
    pub address: String,
    /// Whether the database is on a database server. Other programs normally use such a database too.
    pub shared: bool,
}

/// Why a command failed. Each failure has an exit code, and at most one line for standard error.
#[derive(Debug)]
pub enum Failure {
    /// The arguments are wrong, and nothing was done. The line refers to the help of the program. Exit code 2.
    Misused(String),
    /// The arguments of a command are wrong, and nothing was done. The fields are the command's name and the problem.
    /// The line refers to the command's own help. Exit code 2.
    MisusedIn(String, String),
    /// A setting is wrong, and nothing was done. Exit code 2.
    Setting(String),
    /// The input cannot be used, and nothing was done. Exit code 2.
    Input(String),
    /// The command failed. Exit code 1.
    Failed(String),
    /// The engine failed. [`Failure::line`] adds the name of the database. Exit code 1, or 2 if the request was
    /// invalid.
    Engine(epitome::Error),
    /// The error is already printed. The field is the exit code.
    Reported(u8),
    /// The program that reads the output has closed the pipe. Exit code 0.
    OutputClosed,
}

impl Failure {
    /// Converts [`Failure::Misused`] to [`Failure::MisusedIn`] if `command` is set. Returns every other failure
    /// unchanged.
    pub fn of(self, command: Option<&str>) -> Self {
        match (self, command) {
            (Self::Misused(problem), Some(command)) => Self::MisusedIn(command.to_owned(), problem),
            (other, _) => other,
        }
    }

    /// Returns the exit code.
    pub fn code(&self) -> u8 {
        match self {
            // A request that the engine refuses as invalid is a mistake in the arguments.
            Self::Misused(_)
            | Self::MisusedIn(..)
            | Self::Setting(_)
            | Self::Input(_)
            | Self::Engine(epitome::Error::Invalid(_)) => 2,
            Self::Failed(_) | Self::Engine(_) => 1,
            Self::Reported(code) => *code,
            Self::OutputClosed => 0,
        }
    }

    /// Returns the line for standard error, with its line end; `None` if nothing is to be printed. `database` is the
    /// database that was open when the command failed, if any.
    pub fn line(&self, database: Option<&OpenDatabase>) -> Option<String> {
        let problem = match self {
            Self::Misused(problem) => format!("{problem}; `epitome --help` lists the options"),
            Self::MisusedIn(command, problem) => {
                format!("{problem}; `epitome {command} --help` lists the options")
            }
            Self::Setting(problem) | Self::Input(problem) | Self::Failed(problem) => problem.clone(),
            Self::Engine(
                epitome::Error::Busy(StoreError::Busy) | epitome::Error::Store(StoreError::Busy),
            ) => {
                let address = database.map_or("the database", |database| &database.address);
                if database.is_some_and(|database| database.shared) {
                    format!("{address} is too busy; try again")
                } else {
                    format!("{address} is locked by another process; try again, or stop that process")
                }
            }
            Self::Engine(error) => error.to_string(),
            Self::Reported(_) | Self::OutputClosed => return None,
        };
        Some(format!("epitome: {}\n", one_line(&problem)))
    }
}

impl From<epitome::Error> for Failure {
    fn from(error: epitome::Error) -> Self {
        Self::Engine(error)
    }
}

impl From<io::Error> for Failure {
    /// Converts an error from a write to standard output. Errors of other files are not converted here: the code that
    /// uses these files reports the errors with the names of the files.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Failed(format!("cannot write to standard output: {error}")),
        }
    }
}

/// Returns a text on one line, with control characters escaped.
pub fn one_line(text: &str) -> String {
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ").chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_a_locked_database() {
        let busy = Failure::from(epitome::Error::from(StoreError::Busy));
        let database = OpenDatabase { address: "/data/a.db".to_owned(), shared: false };
        let line = busy.line(Some(&database)).unwrap();
        assert!(line.starts_with("epitome: /data/a.db is locked by another process; "), "{line}");
        assert_eq!(busy.code(), 1);
    }

    #[test]
    fn an_unreachable_database_is_not_reported_as_locked() {
        let error =
            StoreError::Unavailable { place: "db.example/epitome".to_owned(), reason: "refused".to_owned() };
        let gone = Failure::from(epitome::Error::from(error));
        let line = gone.line(None).unwrap();
        assert!(
            line.starts_with("epitome: the database at db.example/epitome cannot be reached: "),
            "{line}"
        );
        assert_eq!(gone.code(), 1);
    }

    #[test]
    fn a_closed_pipe_is_no_error() {
        let gone = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((gone.code(), gone.line(None)), (0, None));
        let full = Failure::from(io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(full.code(), 1);
        assert!(full.line(None).unwrap().starts_with("epitome: cannot write to standard output: "));
    }
}
