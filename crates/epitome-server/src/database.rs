//! Opens the database that a command works on.

use std::io::{self, Write as _, stderr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use epitome::store::{PostgresOptions, SqliteOptions, StoreError};
use epitome::{Builder, Engine, Next, Pace, Session, SessionInfo, Workspace};

use crate::failure::Failure;
use crate::near::near;
use crate::settings::{Loaded, Place, Role};

/// Maximum number of session names that are searched for a similar name.
const LOOKED_THROUGH: usize = 5_000;

/// Minimum timeout of a statement.
const SHORTEST: Duration = Duration::from_secs(5);

/// An open database, and the workspace that the settings name.
///
/// A command starts no workers: it does its own work and leaves other sessions to the server. [`Session::work`] writes
/// the summaries that are due in a session that the command appended to or summarized.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) engine: Engine,
    pub(crate) workspace: Workspace,
    place: Place,
}

/// The open engine. An interrupted command must release its leases, because it will not write those summaries.
static OPEN: Mutex<Option<Engine>> = Mutex::new(None);

fn note(engine: Option<Engine>) -> Option<Engine> {
    OPEN.lock().ok().and_then(|mut open| std::mem::replace(&mut *open, engine))
}

impl Drop for Database {
    /// Clears `OPEN` too, so that nothing holds the engine any more.
    fn drop(&mut self) {
        note(None);
    }
}

/// Stops the summaries in progress and releases their leases.
pub(crate) async fn give_up() {
    if let Some(engine) = note(None) {
        engine.give_up().await;
    }
}

/// Prints a line to standard error.
pub(crate) fn say_so(text: &str) {
    // A write error is ignored: there is no other place to report it.
    let _ = writeln!(stderr(), "{text}");
}

/// Creates the folder of the database file, if it is missing.
fn make_folder(loaded: &Loaded) -> Result<(), Failure> {
    let folder = loaded.db.file().and_then(|file| file.parent());
    let Some(folder) = folder.filter(|folder| !folder.as_os_str().is_empty()) else {
        return Ok(());
    };
    let failed = |error| Failure::Failed(format!("cannot create the folder {}: {error}", folder.display()));
    private_folder(folder, true).map_err(failed)
}

/// Creates a folder that only this user can access, because it will contain conversations.
pub(crate) fn private_folder(folder: &Path, with_parents: bool) -> io::Result<()> {
    let mut making = std::fs::DirBuilder::new();
    making.recursive(with_parents);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        making.mode(0o700);
    }
    making.create(folder)
}

impl Database {
    /// Opens an existing database; never creates one.
    pub(crate) async fn existing(loaded: &Loaded) -> Result<Self, Failure> {
        if loaded.db.is_missing() {
            return Err(Failure::Failed(format!(
                "no database at {}; `epitome import` creates one, `epitome demo` shows an example",
                loaded.db
            )));
        }
        Self::open(loaded, true).await
    }

    /// Opens the database if it exists.
    pub(crate) async fn there(loaded: &Loaded) -> Result<Option<Self>, Failure> {
        if loaded.db.is_missing() {
            return Ok(None);
        }
        match Self::open(loaded, true).await {
            Err(Failure::Engine(epitome::Error::Store(StoreError::Empty { .. }))) => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Opens the database. Creates it and its folder if they are missing.
    pub(crate) async fn created(loaded: &Loaded) -> Result<Self, Failure> {
        make_folder(loaded)?;
        Self::open(loaded, false).await
    }

    /// Opens or creates the database for a server, with workers unless its role leaves summaries to other nodes.
    pub(crate) async fn serving(loaded: &Loaded, pace: Pace) -> Result<Self, Failure> {
        make_folder(loaded)?;
        let builder = Engine::builder().pace(pace);
        let builder = match loaded.server.role {
            Role::Api => builder.leaves_summaries(),
            Role::Worker | Role::All => builder,
        };
        let waits = Arc::new(|text: &str| tracing::warn!("{text}"));
        Self::build(loaded, builder, PostgresOptions { waits: Some(waits), ..PostgresOptions::default() })
            .await
    }

    /// `must_exist` refuses a PostgreSQL database without Epitome's tables.
    async fn open(loaded: &Loaded, must_exist: bool) -> Result<Self, Failure> {
        // Accepts read-only files: many commands only read, and a backup may be write-protected.
        let sqlite = SqliteOptions { read_only_too: true, ..SqliteOptions::default() };
        let postgres =
            PostgresOptions { must_exist, waits: Some(Arc::new(say_so)), ..PostgresOptions::default() };
        Self::build(loaded, Engine::builder().workers(0).sqlite(sqlite), postgres).await
    }

    async fn build(loaded: &Loaded, builder: Builder, usual: PostgresOptions) -> Result<Self, Failure> {
        let builder = builder.settings(loaded.patch.clone());
        let opened = match &loaded.db {
            Place::Sqlite(path) => builder.open(path).await,
            Place::Postgres(address) => {
                let (connections, patience) = (loaded.server.connections, loaded.server.patience);
                // Leaves time for a second attempt if a connection stops responding.
                let statement = usual.statement.min(patience / 2).max(SHORTEST);
                let options = PostgresOptions { connections, patience, statement, ..usual };
                builder.postgres(options).open_postgres(address.whole()).await
            }
        };
        let engine = opened.map_err(|error| match error {
            // Only the settings can be invalid here: nothing else was requested yet.
            epitome::Error::Invalid(problem) => Failure::Setting(problem),
            other => Failure::Engine(other),
        })?;
        let workspace = engine.workspace(loaded.server.workspace.as_str());
        note(Some(engine.clone()));
        Ok(Self { engine, workspace, place: loaded.db.clone() })
    }

    /// Returns an existing session. If there is none, the error suggests similar names.
    pub(crate) async fn session(&self, name: &str) -> Result<(Session, SessionInfo), Failure> {
        let session = self.workspace.session(name);
        match session.info().await {
            Ok(info) => Ok((session, info)),
            Err(error) if error.next() == Next::Look => Err(self.unknown(name).await?),
            Err(error) => Err(error.into()),
        }
    }

    async fn unknown(&self, name: &str) -> Result<Failure, Failure> {
        let mut names: Vec<String> = Vec::new();
        while names.len() < LOOKED_THROUGH {
            let page = self.workspace.sessions(names.last().map(String::as_str), 1_000).await?;
            if page.is_empty() {
                break;
            }
            names.extend(page.into_iter().map(|info| info.name.to_string()));
        }
        let meant = near(name, names.iter().map(String::as_str), 3);
        let hint = match meant.as_slice() {
            [] if names.is_empty() => "there are no sessions yet".to_owned(),
            [] => "`epitome list` shows all sessions".to_owned(),
            near => format!("similar names: {}", near.join(", ")),
        };
        let workspace = self.workspace.name();
        let whose =
            if workspace == "default" { String::new() } else { format!(" in the workspace \"{workspace}\"") };
        Ok(Failure::Failed(format!("there is no session \"{name}\"{whose}; {hint}")))
    }

    /// Closes the database.
    pub(crate) async fn close(self) {
        self.engine.close().await;
    }

    /// Returns where the database is.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }
}
