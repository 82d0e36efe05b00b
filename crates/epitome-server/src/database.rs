//! Opens the database that a command works on.

use std::io::{self, Write as _, stderr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use epitome::store::{PostgresOptions, SqliteOptions, StoreError};
use epitome::{Builder, Engine, Pace, Remedy, Session, SessionInfo, Workspace};

use crate::failure::Failure;
use crate::settings::{DbLocation, Loaded, Role};
use crate::suggest::similar_names;

/// Maximum number of names that are compared with a mistyped name.
const MAX_COMPARED_NAMES: usize = 5_000;

/// Number of names per query to the store.
const PAGE: usize = 1_000;

/// The workspace that a command uses if neither `--workspace` nor a setting names another workspace.
const DEFAULT_WORKSPACE: &str = "default";

/// Minimum timeout of a PostgreSQL statement.
const MIN_STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);

/// An open database, and the workspace that the settings name.
///
/// A command starts no workers, so it writes no summaries of other sessions. To write the summaries that are due in one
/// session, a command calls [`Session::work`].
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) engine: Engine,
    pub(crate) workspace: Workspace,
    location: DbLocation,
}

/// The open engine. If a signal interrupts the command, [`abort`] releases the leases of this engine's unfinished
/// summaries. Another process can then write these summaries at once.
static OPEN_ENGINE: Mutex<Option<Engine>> = Mutex::new(None);

/// Stores an engine in [`OPEN_ENGINE`], and returns the previous engine.
fn replace_open_engine(engine: Option<Engine>) -> Option<Engine> {
    OPEN_ENGINE.lock().ok().and_then(|mut open| std::mem::replace(&mut *open, engine))
}

impl Drop for Database {
    /// Clears [`OPEN_ENGINE`], which would otherwise keep the engine alive.
    fn drop(&mut self) {
        replace_open_engine(None);
    }
}

/// Stops the summaries in progress and releases their leases.
pub(crate) async fn abort() {
    if let Some(engine) = replace_open_engine(None) {
        engine.abort().await;
    }
}

/// Prints a line to standard error.
pub(crate) fn print_to_stderr(text: &str) {
    // A write error is ignored, because there is no other place to report it.
    let _ = writeln!(stderr(), "{text}");
}

/// Creates the folder of the database file, if the folder does not exist.
fn create_database_folder(loaded: &Loaded) -> Result<(), Failure> {
    let folder = loaded.db.file().and_then(|file| file.parent());
    let Some(folder) = folder.filter(|folder| !folder.as_os_str().is_empty()) else {
        return Ok(());
    };
    let failed = |error| Failure::Failed(format!("cannot create the folder {}: {error}", folder.display()));
    private_folder(folder, true).map_err(failed)
}

/// Creates a folder that only this user can access, because the folder will contain conversations.
pub(crate) fn private_folder(folder: &Path, with_parents: bool) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(with_parents);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.create(folder)
}

impl Database {
    /// Opens an existing database; never creates one.
    pub(crate) async fn open_existing(loaded: &Loaded) -> Result<Self, Failure> {
        if loaded.db.is_missing_file() {
            return Err(Failure::Failed(format!(
                "there is no database at {}; `epitome import` creates one, and `epitome demo` shows an example",
                loaded.db
            )));
        }
        Self::open(loaded, true).await
    }

    /// Opens the database. Returns None if the database file does not exist, or if the PostgreSQL database has no
    /// tables of Epitome.
    pub(crate) async fn open_if_exists(loaded: &Loaded) -> Result<Option<Self>, Failure> {
        if loaded.db.is_missing_file() {
            return Ok(None);
        }
        match Self::open(loaded, true).await {
            Err(Failure::Engine(epitome::Error::Store(StoreError::Empty { .. }))) => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Opens the database. Creates the database and its folder, if they do not exist.
    pub(crate) async fn open_or_create(loaded: &Loaded) -> Result<Self, Failure> {
        create_database_folder(loaded)?;
        Self::open(loaded, false).await
    }

    /// Opens or creates the database for a server. Starts workers, except in the role `api`.
    pub(crate) async fn open_for_server(loaded: &Loaded, pace: Pace) -> Result<Self, Failure> {
        create_database_folder(loaded)?;
        let builder = Engine::builder().pace(pace);
        let builder = match loaded.server.role {
            Role::Api => builder.without_summaries(),
            Role::Worker | Role::All => builder,
        };
        let waits = Arc::new(|text: &str| tracing::warn!("{text}"));
        Self::build(loaded, builder, PostgresOptions { on_wait: Some(waits), ..PostgresOptions::default() })
            .await
    }

    /// Opens the database. With `must_exist`, refuses a PostgreSQL database without Epitome's tables.
    async fn open(loaded: &Loaded, must_exist: bool) -> Result<Self, Failure> {
        // Accepts read-only files, because many commands only read, and a backup may be write-protected.
        let sqlite = SqliteOptions { allow_read_only: true, ..SqliteOptions::default() };
        let postgres = PostgresOptions {
            must_exist,
            on_wait: Some(Arc::new(print_to_stderr)),
            ..PostgresOptions::default()
        };
        Self::build(loaded, Engine::builder().workers(0).sqlite(sqlite), postgres).await
    }

    async fn build(loaded: &Loaded, builder: Builder, usual: PostgresOptions) -> Result<Self, Failure> {
        let builder = builder.settings(loaded.patch.clone());
        let opened = match &loaded.db {
            DbLocation::Sqlite(path) => builder.open(path).await,
            DbLocation::Postgres(address) => {
                let (connections, patience) = (loaded.server.connections, loaded.server.patience);
                // A statement may take at most half of `patience`. If a connection stops responding, this leaves time
                // for a second attempt.
                let statement = usual.statement.min(patience / 2).max(MIN_STATEMENT_TIMEOUT);
                let options = PostgresOptions { connections, patience, statement, ..usual };
                builder.postgres(options).open_postgres(address.with_password()).await
            }
        };
        let engine = opened.map_err(|error| match error {
            // At this point, `Invalid` can only mean an invalid setting.
            epitome::Error::Invalid(problem) => Failure::Setting(problem),
            other => Failure::Engine(other),
        })?;
        let workspace = engine.workspace(loaded.server.workspace.as_str());
        replace_open_engine(Some(engine.clone()));
        Ok(Self { engine, workspace, location: loaded.db.clone() })
    }

    /// Returns an existing session. If the session does not exist, the error suggests similar names.
    pub(crate) async fn session(&self, name: &str) -> Result<(Session, SessionInfo), Failure> {
        let session = self.workspace.session(name);
        match session.info().await {
            Ok(info) => Ok((session, info)),
            Err(error) if error.remedy() == Remedy::CheckName => Err(self.no_such_session(name).await?),
            Err(error) => Err(error.into()),
        }
    }

    async fn no_such_session(&self, name: &str) -> Result<Failure, Failure> {
        let mut names: Vec<String> = Vec::new();
        while names.len() < MAX_COMPARED_NAMES {
            let page = self.workspace.sessions(names.last().map(String::as_str), PAGE).await?;
            if page.is_empty() {
                break;
            }
            names.extend(page.into_iter().map(|info| info.name.to_string()));
        }
        if names.is_empty() {
            return Ok(Failure::Failed(format!(
                "there is no session \"{name}\": {}",
                self.no_sessions().await?
            )));
        }
        let hint = similar_or(name, &names, "`epitome list` shows all sessions");
        let workspace = match self.workspace.name() {
            DEFAULT_WORKSPACE => String::new(),
            other => format!(" in the workspace \"{other}\""),
        };
        Ok(Failure::Failed(format!("there is no session \"{name}\"{workspace}; {hint}")))
    }

    /// Returns a text that says that the workspace has no sessions. The text suggests other workspaces with similar
    /// names.
    pub(crate) async fn no_sessions(&self) -> Result<String, Failure> {
        let name = self.workspace.name();
        let mut names: Vec<String> = Vec::new();
        while names.len() < MAX_COMPARED_NAMES {
            let page = self.engine.workspaces(names.last().map(String::as_str), PAGE).await?;
            if page.is_empty() {
                break;
            }
            names.extend(page.into_iter().map(|name| name.to_string()));
        }
        names.retain(|other| other != name);
        let place = &self.location;
        let (subject, hint) = match name {
            DEFAULT_WORKSPACE => (format!("there are no sessions in {place}"), String::new()),
            _ => {
                (format!("the workspace \"{name}\" has no sessions in {place}"), similar_or(name, &names, ""))
            }
        };
        Ok(if hint.is_empty() { subject } else { format!("{subject}; {hint}") })
    }

    /// Closes the database.
    pub(crate) async fn close(self) {
        self.engine.close().await;
    }

    /// Returns the location of the database.
    pub(crate) fn location(&self) -> &DbLocation {
        &self.location
    }
}

/// Returns a hint with the names that are similar to a mistyped name, or `otherwise` if no name is similar.
pub(crate) fn similar_or(mistyped: &str, names: &[String], otherwise: &str) -> String {
    match similar_names(mistyped, names.iter().map(String::as_str), 3).as_slice() {
        [] => otherwise.to_owned(),
        [name] => format!("did you mean {name}?"),
        names => format!("similar names: {}", names.join(", ")),
    }
}
