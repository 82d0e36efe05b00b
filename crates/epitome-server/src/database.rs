//! The database a command works on.

use std::io::{self, Write as _, stderr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use epitome::store::{PostgresOptions, SqliteOptions, StoreError};
use epitome::{Builder, Engine, Next, Pace, Session, SessionInfo, Workspace};

use crate::failure::Failure;
use crate::near::near;
use crate::settings::{Loaded, Place, Role};

/// So many sessions are looked through for a name that was meant.
const LOOKED_THROUGH: usize = 5_000;

/// No statement has less time than this.
const SHORTEST: Duration = Duration::from_secs(5);

/// An open database, and the workspace the settings name.
///
/// It has no workers of its own: a command does what it is asked for and leaves the rest to others. What is
/// due in a session it appended to or summarized is worked off with [`Session::work`].
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) engine: Engine,
    pub(crate) workspace: Workspace,
    place: Place,
}

/// What is open now: whoever is interrupted must not leave summaries held that nobody writes any more.
static OPEN: Mutex<Option<Engine>> = Mutex::new(None);

fn note(engine: Option<Engine>) -> Option<Engine> {
    OPEN.lock().ok().and_then(|mut open| std::mem::replace(&mut *open, engine))
}

impl Drop for Database {
    /// A database that is let go of must be let go of altogether.
    fn drop(&mut self) {
        note(None);
    }
}

/// Gives up what is being written, and gives back what is held for it.
pub(crate) async fn give_up() {
    if let Some(engine) = note(None) {
        engine.give_up().await;
    }
}

/// A remark on standard error.
pub(crate) fn say_so(text: &str) {
    // Nobody is left to be told when this fails.
    let _ = writeln!(stderr(), "{text}");
}

/// Makes the folder it stands in, where that is missing.
fn make_folder(loaded: &Loaded) -> Result<(), Failure> {
    let folder = loaded.db.file().and_then(|file| file.parent());
    let Some(folder) = folder.filter(|folder| !folder.as_os_str().is_empty()) else {
        return Ok(());
    };
    let failed = |error| Failure::Failed(format!("{} cannot be made: {error}", folder.display()));
    private_folder(folder, true).map_err(failed)
}

/// Makes a folder for this user only: what is in it is somebody's conversations.
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
    /// Opens the one that is there; none is made.
    pub(crate) async fn existing(loaded: &Loaded) -> Result<Self, Failure> {
        if loaded.db.is_missing() {
            return Err(Failure::Failed(format!(
                "no database at {}; `epitome demo` shows what this is, `epitome import` makes one",
                loaded.db
            )));
        }
        Self::open(loaded, true).await
    }

    /// Opens the one that is there, if there is one.
    pub(crate) async fn there(loaded: &Loaded) -> Result<Option<Self>, Failure> {
        if loaded.db.is_missing() {
            return Ok(None);
        }
        match Self::open(loaded, true).await {
            Err(Failure::Engine(epitome::Error::Store(StoreError::Empty { .. }))) => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Opens it, and makes it with its folder where it is missing.
    pub(crate) async fn created(loaded: &Loaded) -> Result<Self, Failure> {
        make_folder(loaded)?;
        Self::open(loaded, false).await
    }

    /// The same for a server, with workers of its own unless its role leaves those to others.
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

    /// `must_exist` refuses a PostgreSQL that has no tables of ours.
    async fn open(loaded: &Loaded, must_exist: bool) -> Result<Self, Failure> {
        // Many commands only read, and a backup may well be protected.
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
                // So that there is time for another try where a connection falls silent.
                let statement = usual.statement.min(patience / 2).max(SHORTEST);
                let options = PostgresOptions { connections, patience, statement, ..usual };
                builder.postgres(options).open_postgres(address.whole()).await
            }
        };
        let engine = opened.map_err(|error| match error {
            // The request is the settings: nothing else was asked for yet.
            epitome::Error::Invalid(problem) => Failure::Setting(problem),
            other => Failure::Engine(other),
        })?;
        let workspace = engine.workspace(loaded.server.workspace.as_str());
        note(Some(engine.clone()));
        Ok(Self { engine, workspace, place: loaded.db.clone() })
    }

    /// A session that is there. Where there is none, near names are told.
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
            [] => "`epitome list` shows those there are".to_owned(),
            near => format!("near it: {}", near.join(", ")),
        };
        let workspace = self.workspace.name();
        let whose =
            if workspace == "default" { String::new() } else { format!(" in the workspace \"{workspace}\"") };
        Ok(Failure::Failed(format!("there is no session \"{name}\"{whose}; {hint}")))
    }

    /// Lets go of it.
    pub(crate) async fn close(self) {
        self.engine.close().await;
    }

    /// Where it is.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }
}
