//! The engine: sessions that summarize themselves.
//!
//! An [`Engine`] holds a store, models and a worker. Messages are appended to a [`Session`]; summaries of the
//! older ones appear in the background; a context is there at once, in as many tokens as are asked for.
//!
//! ```
//! # async fn try_it() -> Result<(), epitome::Error> {
//! use epitome::{Engine, Message};
//!
//! let engine = Engine::memory().await?; // `Engine::open("agent.db")` keeps it
//! let session = engine.session("ann");
//! for n in 1..=30 {
//!     session.append([
//!         Message::user(format!("Please look at order {n}0071, it has not arrived.")),
//!         Message::assistant(format!("Order {n}0071 was sent yesterday and arrives on Monday.")),
//!     ]).await?;
//! }
//! engine.work().await?; // a worker does this in the background; here we wait for it
//!
//! let context = session.context(2_000).await?;
//! assert!(context.report.exhaustive && context.report.tokens.total() <= 2_000);
//! assert_eq!(context.report.covers.unwrap().through, 60);
//! # Ok(())
//! # }
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(try_it()).unwrap();
//! ```
//!
//! Nothing here waits for a model, [`Session::summarize`] with `wait` and [`Engine::work`] excepted. What is
//! decided is decided in `epitome_core`; what is written goes through [`crate::store::Store::change`].

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use epitome_core::message::{Seq, Timestamp, Tokens};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::error::Error;
use crate::hidden::Hidden;
use crate::hook::{Hook, Hooks};
use crate::inline::{MOST_THREADS, Threads};
use crate::lock::lock;
use crate::model::{self, Local, Model};
pub(crate) use crate::pace::Pace;
use crate::settings::{Patch, Settings, SettingsError};
use crate::shared::{Models, Shared, Told, owner};
use crate::store::{Fault, Listing, SessionId, SessionRow, Store};
#[cfg(feature = "sqlite")]
use crate::store::{Sqlite, SqliteOptions, StoreError};
use crate::worker;

pub use crate::context::{Context, ShownSummary};
pub use crate::request::ContextRequest;
pub use crate::shared::{Listener, Unready};
pub use crate::store::QueueCounts as Backlog;

mod append;
mod checks;
mod directory;
mod explain;
mod fork;
mod found;
mod keys;
mod session;
mod summaries;
mod workspace;

pub use append::{Appended, Batch};
pub use directory::{Attributes, Notes, Written};
pub use explain::{Explanation, Queue, QueueEntry, SlotExplanation, SlotStatus};
pub use fork::{Fork, ForkKind};
pub use found::{Found, HitCursor, SEARCH_BYTES};
pub use keys::Keys;
pub use session::{Flags, Page, Session};
pub use summaries::{Summarize, Summarized};
pub use workspace::Workspace;

/// The workspace of whoever names none.
const DEFAULT_WORKSPACE: &str = "default";

/// Keeps sessions, and summarizes them in the background.
///
/// Cheap to clone; all clones are one engine. It needs a tokio runtime with time enabled, of either kind.
///
/// When the last one is dropped its worker gives back what it holds, which costs nothing but the calls under way;
/// [`Engine::close`] lets them finish first. Where the runtime ends with it, as it does when a process dies, what
/// it held is free once the lease has run out ([`Pace::lease`]).
#[derive(Debug, Clone)]
pub struct Engine {
    inner: Hidden<Arc<Inner>>,
}

/// Ends the worker when the last engine goes.
struct Inner {
    shared: Arc<Shared>,
    /// Conversations that pass through.
    threads: Arc<Threads>,
    /// Closed, and so told to the worker, by being dropped.
    stop: watch::Sender<bool>,
    worker: Mutex<Option<JoinHandle<()>>>,
}

/// What is known of a session beside its messages.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SessionInfo {
    /// Its name.
    pub name: Arc<str>,
    /// Its number in the store: for the program that embeds the engine, to know a session again that was deleted and made
    /// anew. It is the store's own, counted over all workspaces, so it is to be shown to no tenant, and is not serialized.
    #[serde(skip)]
    pub id: SessionId,
    /// How many messages it holds: the place of the newest.
    pub messages: Seq,
    /// How many turns.
    pub turns: u64,
    /// How many tokens.
    pub tokens: Tokens,
    /// How these are counted.
    pub encoding: String,
    /// How many messages are skipped, by whole call batches.
    pub skipped: u64,
    /// The caller's notes.
    pub metadata: Map<String, Value>,
    /// What other APIs keep of it: one object per API, by its name.
    #[serde(skip)]
    pub attributes: Map<String, Value>,
    /// When it came to be.
    pub created: Timestamp,
    /// When it was last written to.
    pub updated: Timestamp,
}

impl SessionInfo {
    fn new(name: Arc<str>, row: SessionRow) -> Self {
        Self {
            name,
            id: row.id,
            messages: row.tracker.head(),
            turns: row.tracker.turns(),
            tokens: row.tracker.tokens(),
            encoding: row.encoding,
            skipped: row.skipped,
            metadata: row.metadata,
            attributes: row.attributes,
            created: row.created,
            updated: row.updated,
        }
    }
}

/// Makes an engine.
///
/// ```
/// # async fn try_it() -> Result<(), epitome::Error> {
/// use epitome::Engine;
/// use epitome::model::Local;
///
/// let engine = Engine::builder()
///     .model("main", Local)
///     .settings(r#"{
///         "slot": [{"name": "notes", "trigger": "turns(10)", "keep": "turns(2)", "max_chars": 1500}],
///         "summarize": {"models": ["main"], "stand_in_after": "5m"}
///     }"#)
///     .memory()
///     .await?;
/// assert_eq!(engine.settings().slots[0].slot.name, "notes");
/// # engine.close().await; Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(try_it()).unwrap();
/// ```
#[derive(Default)]
#[must_use = "a builder does nothing until it opens a store"]
pub struct Builder {
    models: BTreeMap<String, Arc<dyn Model>>,
    hooks: Hooks,
    settings: Option<Result<Patch, SettingsError>>,
    pace: Pace,
    #[cfg(feature = "sqlite")]
    sqlite: SqliteOptions,
    #[cfg(feature = "postgres")]
    postgres: crate::store::PostgresOptions,
    conversations: Option<usize>,
}

impl Builder {
    /// Names a model, so that settings can choose it. `local` is always there, and so are those of `models` in
    /// the settings; one of the same name that is given here goes before them.
    pub fn model(mut self, name: impl Into<String>, model: impl Model) -> Self {
        self.models.insert(name.into(), Arc::new(model));
        self
    }

    /// Has a hook told before and after every summary.
    pub fn hook(mut self, hook: impl Hook) -> Self {
        self.hooks = self.hooks.with(hook);
        self
    }

    /// How long hooks are waited for, in place of [`crate::hook::TIME_OUT`].
    pub fn hook_time_out(mut self, time_out: Duration) -> Self {
        self.hooks = self.hooks.with_time_out(time_out);
        self
    }

    /// Changes the defaults. Takes [`Settings`], a [`Patch`], or a JSON or TOML document of the settings that differ.
    /// Workspaces and sessions may change them further.
    pub fn settings<S: TryInto<Patch>>(mut self, settings: S) -> Self
    where
        SettingsError: From<S::Error>,
    {
        self.settings = Some(settings.try_into().map_err(SettingsError::from));
        self
    }

    /// How the worker goes about it.
    pub fn pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// How many summaries are written at once: see [`Pace::workers`].
    pub fn workers(mut self, workers: usize) -> Self {
        self.pace.workers = workers;
        self
    }

    /// Writes no summary for the slots of sessions, not even one that somebody waits for: other engines on the same store
    /// do that.
    pub fn leaves_summaries(mut self) -> Self {
        (self.pace.workers, self.pace.on_demand) = (0, false);
        self
    }

    /// How many conversations that [pass through](crate::inline) are held in memory, 4,096 unless told. What was done to
    /// the others is read from the store when they go on.
    pub fn conversations(mut self, most: usize) -> Self {
        self.conversations = Some(most);
        self
    }

    /// Works on a store that is open already.
    pub fn store(self, store: Arc<dyn Store>) -> Result<Engine, Error> {
        let mut models = self.models;
        models.entry("local".to_owned()).or_insert_with(|| Arc::new(Local));
        let settings = match self.settings {
            Some(patch) => Settings::default().with(&patch?)?,
            None => Settings::default(),
        };
        for (name, model) in &settings.models {
            // What the program brought itself goes first.
            if !models.contains_key(name) {
                models.insert(name.clone(), model::of_settings(name, model)?);
            }
        }
        let shared = Shared {
            store,
            models: Models { named: models, hooks: self.hooks, ..Models::default() },
            settings,
            pace: self.pace,
            owner: owner(),
            caches: Default::default(),
            health: Default::default(),
            signals: Default::default(),
            activity: Default::default(),
        };
        shared.check(&shared.settings)?;
        if shared.pace.workers > 0 {
            // Whoever writes no summaries spends nothing.
            shared.check_prices(&shared.settings)?;
        }
        let shared = Arc::new(shared);
        let stop = watch::Sender::new(false);
        let worker = (shared.pace.workers > 0)
            .then(|| tokio::spawn(worker::run(Arc::clone(&shared), stop.subscribe())));
        let threads = Arc::new(Threads::at_most(self.conversations.unwrap_or(MOST_THREADS)));
        let inner = Inner { shared, threads, stop, worker: Mutex::new(worker) };
        Ok(Engine { inner: Hidden(Arc::new(inner)) })
    }
}

impl Engine {
    /// To set models, hooks and settings first.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A session of the default workspace. Nothing is read or written yet.
    pub fn session(&self, name: impl Into<Arc<str>>) -> Session {
        self.workspace(DEFAULT_WORKSPACE).session(name)
    }

    /// A workspace. Nothing is read or written yet.
    pub fn workspace(&self, name: impl Into<Arc<str>>) -> Workspace {
        Workspace { engine: self.clone(), name: name.into() }
    }

    /// The workspaces there are, by name: those after this one, at most so many. For whoever runs the engine; no
    /// workspace is shown another.
    pub async fn workspaces(&self, after: Option<&str>, limit: usize) -> Result<Vec<Arc<str>>, Error> {
        let page = Listing::by_name(after, limit.min(1_000));
        Ok(self.shared().store.workspaces(page).await?.map(|row| row.name).items)
    }

    /// The settings under those of workspaces and sessions.
    pub fn settings(&self) -> &Settings {
        &self.shared().settings
    }

    /// Works off what is due now, here and in this task, and returns when nothing is. What failed and waits
    /// to be tried again is left, and so is what another engine holds.
    pub async fn work(&self) -> Result<(), Error> {
        worker::until_idle(self.shared(), None).await
    }

    /// Looks the whole store through. Nothing wrong is an empty list.
    pub async fn verify(&self) -> Result<Vec<Fault>, Error> {
        Ok(self.shared().store.verify().await?)
    }

    /// Copies the whole store into a new file, while it goes on being used.
    pub async fn backup(&self, to: impl AsRef<Path>) -> Result<(), Error> {
        Ok(self.shared().store.backup(to.as_ref()).await?)
    }

    /// Takes no more work, waits for the summaries that are being written (for [`Pace::grace`] at most), gives
    /// back what is not finished, and lets go of the store.
    pub async fn close(&self) {
        self.inner.stop.send_replace(true);
        let worker = lock(&self.inner.worker).take();
        if let Some(worker) = worker {
            // A worker that panicked has nothing left to finish.
            let _ = worker.await;
        }
        // What was done to lists is soon written down; a store that hangs is not waited for.
        let _ = tokio::time::timeout(self.shared().pace.grace, self.inner.threads.settled()).await;
        self.shared().store.close().await;
    }

    /// Gives up the summaries that are being written, here and in the background, and gives back what is held
    /// for them, so that another process can write them at once. What was spent is written down. Waits for a
    /// second at most: this is for a program that is told to end. No summary is begun on this engine afterwards.
    pub async fn give_up(&self) {
        let shared = self.shared();
        shared.signals.give_up.send_replace(true);
        let until = tokio::time::Instant::now() + Duration::from_secs(1);
        // Twice in a row: between two slots nobody works for a moment.
        let mut idle = 0;
        while idle < 2 && tokio::time::Instant::now() < until {
            idle = if shared.activity.working.load(Ordering::Acquire) == 0 { idle + 1 } else { 0 };
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Forgets the rendered summaries it keeps in memory, so that a benchmark sees what the first context costs.
    #[doc(hidden)]
    pub fn forget_rendered(&self) {
        self.shared().caches.forget_rendered();
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }
}

#[cfg(feature = "sqlite")]
impl Builder {
    /// How the SQLite file is used.
    pub fn sqlite(mut self, options: SqliteOptions) -> Self {
        self.sqlite = options;
        self
    }

    /// Opens a SQLite file, which is created where it is missing.
    pub async fn open(self, path: impl AsRef<Path>) -> Result<Engine, Error> {
        let path = path.as_ref().to_owned();
        self.open_sqlite(move |options| Sqlite::open(&path, options)).await
    }

    /// Keeps everything in memory, for tests and trials.
    pub async fn memory(self) -> Result<Engine, Error> {
        self.open_sqlite(Sqlite::memory).await
    }

    async fn open_sqlite(
        mut self,
        open: impl FnOnce(SqliteOptions) -> Result<Sqlite, StoreError> + Send + 'static,
    ) -> Result<Engine, Error> {
        let options = std::mem::take(&mut self.sqlite);
        let opened = tokio::task::spawn_blocking(move || open(options)).await;
        let store = opened.map_err(|_| Error::Closed)??;
        self.store(Arc::new(store))
    }
}

#[cfg(feature = "sqlite")]
impl Engine {
    /// Opens a SQLite file with the defaults: no key, no network, summaries by `local`.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder().open(path).await
    }

    /// Keeps everything in memory, for tests and trials.
    pub async fn memory() -> Result<Self, Error> {
        Self::builder().memory().await
    }
}

#[cfg(feature = "postgres")]
impl Builder {
    /// How the PostgreSQL database is used.
    pub fn postgres(mut self, options: crate::store::PostgresOptions) -> Self {
        self.postgres = options;
        self
    }

    /// Opens a PostgreSQL database, `postgres://user:password@host:port/database`, which any number of engines may share:
    /// see [`Postgres::open`](crate::store::Postgres::open).
    pub async fn open_postgres(mut self, url: &str) -> Result<Engine, Error> {
        let options = std::mem::take(&mut self.postgres);
        let store = crate::store::Postgres::open(url, options).await?;
        self.store(Arc::new(store))
    }
}

/// How the engine fares, for whoever runs it: what is left to do, whether it can do it, and what troubles it. Nothing here
/// names a workspace or a session; what is due in one workspace is told by `explain.rs`.
impl Engine {
    /// What is left to do in all workspaces together. No names are in it, so it may be shown where anybody can look. Cheap: only slots with something to do are read, however many
    /// sessions there are.
    pub async fn backlog(&self) -> Result<Backlog, Error> {
        Ok(self.shared().store.queue(None, 0).await?.0)
    }

    /// Whether it can do what it is there for: the store can be read and could be written to lately, and its worker, where it has one, looks for work.
    /// If not, each reason. It reads a single row, and waits for no model.
    ///
    /// A hook that fails, or a slot, is no reason: everything else goes on.
    pub async fn ready(&self) -> Result<(), Vec<Unready>> {
        if *self.inner.stop.borrow() {
            return Err(vec![Unready::from("the engine is closed")]);
        }
        let shared = self.shared();
        let unreadable = shared.store.workspaces(Listing::by_name(None, 1)).await.err();
        let failing = unreadable.or_else(|| shared.health.unwritable());
        let mut reasons: Vec<Unready> = failing.iter().map(Unready::from).collect();
        if *shared.signals.give_up.borrow() {
            reasons.push(Unready::from("the engine gave its work up, and begins no more summaries"));
        } else if lock(&self.inner.worker).as_ref().is_some_and(JoinHandle::is_finished) {
            reasons.push(Unready::from("the worker ended; open the engine again"));
        }
        // Where reading fails, looking for work fails for the same reason.
        let blind = lock(&shared.health.blind).as_ref().map(Unready::from);
        reasons.extend(blind.filter(|reason| !reasons.contains(reason)));
        if reasons.is_empty() { Ok(()) } else { Err(reasons) }
    }

    /// What troubles the worker, where that is no single session's matter: the store cannot be reached, say, or a
    /// hook fails. What troubles one slot is told by [`Session::explain`].
    pub fn trouble(&self) -> Option<String> {
        self.shared().health.trouble()
    }
}
