//! The engine: stores sessions and summarizes them in the background.
//!
//! An [`Engine`] owns a store, models and a worker. Callers append messages to a [`Session`]. The worker writes
//! summaries of the older messages in the background. A caller gets a context at once, with at most the requested
//! number of tokens.
//!
//! ```
//! # async fn try_it() -> Result<(), epitome::Error> {
//! use epitome::{Engine, Message};
//!
//! let engine = Engine::memory().await?; // `Engine::open("agent.db")` stores sessions in a file
//! let session = engine.session("ann");
//! for n in 1..=30 {
//!     session.append([
//!         Message::user(format!("Please look at order {n}0071, it has not arrived.")),
//!         Message::assistant(format!("Order {n}0071 was sent yesterday and arrives on Monday.")),
//!     ]).await?;
//! }
//! engine.work().await?; // the worker writes summaries in the background; the example waits for them
//!
//! let context = session.context(2_000).await?;
//! assert!(context.report.exhaustive && context.report.tokens.total() <= 2_000);
//! assert_eq!(context.report.covers.unwrap().through, 60);
//! # Ok(())
//! # }
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(try_it()).unwrap();
//! ```
//!
//! No call waits for a model, except [`Session::summarize`] with `wait`, [`Session::work`] and [`Engine::work`]. Pure
//! functions of `epitome_core` make all decisions. The engine and the worker change sessions through
//! [`crate::store::Store::change`].

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
use crate::inline::{MAX_THREADS, ThreadCache};
use crate::lock::lock;
use crate::model::{self, Local, Model};
pub(crate) use crate::pace::Pace;
use crate::settings::{Patch, Settings, SettingsError};
use crate::shared::{Models, OutCell, Shared, owner};
use crate::store::{Listing, SessionId, SessionRow, Store, StoreFault};
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
mod keys;
mod logged;
mod search;
mod session;
mod summaries;
mod workspace;

pub use append::{Appended, Batch};
pub use directory::{Attributes, Update, Upserted};
pub use explain::{Explanation, Queue, QueueEntry, SlotExplanation, SlotStatus};
pub use fork::{Fork, ForkKind};
pub use keys::Keys;
pub use logged::LoggedSlot;
pub use search::{HitCursor, SEARCH_BYTES, SearchHit};
pub use session::{Flags, Page, Session};
pub use summaries::{Summarize, Summarized};
pub use workspace::Workspace;

/// Name of the workspace that is used by default.
const DEFAULT_WORKSPACE: &str = "default";

/// Stores sessions, and summarizes them in the background.
///
/// A clone is cheap, and all clones share one store and one worker. An engine needs a tokio runtime with time enabled.
/// The runtime may be current-thread or multi-thread.
///
/// When the last clone is dropped, the worker aborts its model calls and releases its leases. To let the calls finish
/// first, use [`Engine::close`]. If the runtime ends at the same time, for example because the process dies, the leases
/// expire after [`Pace::lease`].
#[derive(Debug, Clone)]
pub struct Engine {
    inner: Hidden<Arc<Inner>>,
}

/// The parts that all clones of an [`Engine`] share. When the last clone is dropped, the worker stops.
struct Inner {
    shared: Arc<Shared>,
    /// The cached state of proxied conversations.
    threads: Arc<ThreadCache>,
    /// Dropping this sender stops the worker.
    stop: watch::Sender<bool>,
    worker: Mutex<Option<JoinHandle<()>>>,
}

/// Everything stored about a session except its messages.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SessionInfo {
    /// The session's name.
    pub name: Arc<str>,
    /// The session's id in the store. A program can use the id to distinguish this session from a later session with
    /// the same name. The store counts ids over all workspaces, so an id reveals how many sessions other tenants have.
    /// Do not show the id to tenants. The field is not serialized.
    #[serde(skip)]
    pub id: SessionId,
    /// Number of messages. It is also the sequence number of the newest message.
    pub messages: Seq,
    /// Number of turns.
    pub turns: u64,
    /// Number of tokens of all messages.
    pub tokens: Tokens,
    /// The tokenizer encoding with which the tokens are counted.
    pub encoding: String,
    /// Number of skipped messages. A call batch is a message with tool calls and the results of these calls. If one
    /// message of a call batch is skipped, all messages of the batch count as skipped.
    pub skipped: u64,
    /// Metadata that callers store for the session.
    pub metadata: Map<String, Value>,
    /// Data that other APIs, such as Honcho's, store about the session. Maps the name of each API to a JSON object.
    #[serde(skip)]
    pub attributes: Map<String, Value>,
    /// When the session was created.
    pub created: Timestamp,
    /// When the session was last changed.
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

/// Configures and opens an [`Engine`].
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
    /// Registers a model. Settings such as `summarize.models` refer to the model by this name. `local` and the models
    /// in the settings are registered automatically. A model that is registered here replaces a model with the same
    /// name in the settings.
    pub fn model(mut self, name: impl Into<String>, model: impl Model) -> Self {
        self.models.insert(name.into(), Arc::new(model));
        self
    }

    /// Adds a hook. The engine calls the hook before and after every summary.
    pub fn hook(mut self, hook: impl Hook) -> Self {
        self.hooks = self.hooks.with(hook);
        self
    }

    /// Sets the timeout of hooks. The default is [`crate::hook::DEFAULT_TIMEOUT`].
    pub fn hook_timeout(mut self, timeout: Duration) -> Self {
        self.hooks = self.hooks.with_timeout(timeout);
        self
    }

    /// Sets the engine's settings. Accepts [`Settings`], a [`Patch`], or a JSON or TOML document with the settings that
    /// differ from the defaults. Workspaces and sessions may override these settings.
    pub fn settings<S: TryInto<Patch>>(mut self, settings: S) -> Self
    where
        SettingsError: From<S::Error>,
    {
        self.settings = Some(settings.try_into().map_err(SettingsError::from));
        self
    }

    /// Sets the concurrency, the intervals and the timeouts of the background worker.
    pub fn pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// Sets how many summaries are written at the same time. See [`Pace::workers`].
    pub fn workers(mut self, workers: usize) -> Self {
        self.pace.workers = workers;
        self
    }

    /// Configures an engine that writes no summaries for slots, even if a caller waits for a summary. Another engine on
    /// the same store must write the summaries.
    pub fn without_summaries(mut self) -> Self {
        (self.pace.workers, self.pace.on_demand) = (0, false);
        self
    }

    /// Sets the maximum number of [proxied conversations](crate::inline) whose state is cached in memory. The default
    /// is 4,096. For any other conversation, the engine reads the state from the store when the next request arrives.
    pub fn conversations(mut self, most: usize) -> Self {
        self.conversations = Some(most);
        self
    }

    /// Opens the engine on a store that is already open.
    pub fn store(self, store: Arc<dyn Store>) -> Result<Engine, Error> {
        let mut models = self.models;
        models.entry("local".to_owned()).or_insert_with(|| Arc::new(Local));
        let settings = match self.settings {
            Some(patch) => Settings::default().with(&patch?)?,
            None => Settings::default(),
        };
        for (name, model) in &settings.models {
            // A model that the program registered itself takes precedence.
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
            log_hasher: Default::default(),
        };
        shared.check(&shared.settings)?;
        if shared.pace.workers > 0 {
            // An engine without workers calls no model in the background, so it can start without prices.
            shared.check_prices(&shared.settings)?;
        }
        let shared = Arc::new(shared);
        let stop = watch::Sender::new(false);
        let worker = (shared.pace.workers > 0)
            .then(|| tokio::spawn(worker::run(Arc::clone(&shared), stop.subscribe())));
        let threads = Arc::new(ThreadCache::with_limit(self.conversations.unwrap_or(MAX_THREADS)));
        let inner = Inner { shared, threads, stop, worker: Mutex::new(worker) };
        Ok(Engine { inner: Hidden(Arc::new(inner)) })
    }
}

impl Engine {
    /// Returns a builder, to configure models, hooks and settings before opening.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns a handle for a session of the default workspace. Nothing is read or written yet.
    pub fn session(&self, name: impl Into<Arc<str>>) -> Session {
        self.workspace(DEFAULT_WORKSPACE).session(name)
    }

    /// Returns a handle for a workspace. Nothing is read or written yet.
    pub fn workspace(&self, name: impl Into<Arc<str>>) -> Workspace {
        Workspace { engine: self.clone(), name: name.into() }
    }

    /// Lists the names of workspaces in order, starting after the name `after`. Returns at most `limit` names, and
    /// never more than 1,000.
    ///
    /// For the operator only, because a tenant must not see the names of other workspaces.
    pub async fn workspaces(&self, after: Option<&str>, limit: usize) -> Result<Vec<Arc<str>>, Error> {
        let page = Listing::by_name(after, limit.min(1_000));
        Ok(self.shared().store.workspaces(page).await?.map(|row| row.name).items)
    }

    /// Returns the engine's settings, which workspaces and sessions may override.
    pub fn settings(&self) -> &Settings {
        &self.shared().settings
    }

    /// Writes all summaries that are due now, in the calling task, and returns when no summary is due. Skips slots that
    /// wait for a retry, and slots that another engine has leased.
    pub async fn work(&self) -> Result<(), Error> {
        worker::until_idle(self.shared(), None).await
    }

    /// Checks the whole store, and returns the faults that it finds.
    pub async fn verify(&self) -> Result<Vec<StoreFault>, Error> {
        Ok(self.shared().store.verify().await?)
    }

    /// Copies the whole store into a new file while the store stays in use.
    pub async fn backup(&self, to: impl AsRef<Path>) -> Result<(), Error> {
        Ok(self.shared().store.backup(to.as_ref()).await?)
    }

    /// Closes the engine. The engine starts no more summaries, and waits up to [`Pace::grace`] for the summaries in
    /// progress. Then it releases the leases of unfinished summaries and closes the store.
    pub async fn close(&self) {
        self.inner.stop.send_replace(true);
        let worker = lock(&self.inner.worker).take();
        if let Some(worker) = worker {
            // An error means that the worker panicked, so there is nothing to wait for.
            let _ = worker.await;
        }
        // Waits until the state of proxied conversations is stored. The timeout limits the wait if the store hangs.
        let _ = tokio::time::timeout(self.shared().pace.grace, self.inner.threads.settled()).await;
        self.shared().store.close().await;
    }

    /// Aborts the summaries in progress, both in the background and in callers' tasks, and releases their leases.
    /// Another process can then write these summaries at once. The engine records what the aborted summaries have cost,
    /// and starts no summaries afterwards.
    ///
    /// The call takes at most one second, because it is meant for a program that must exit.
    pub async fn abort(&self) {
        let shared = self.shared();
        shared.signals.abort.send_replace(true);
        let until = tokio::time::Instant::now() + Duration::from_secs(1);
        // The engine must be idle in two checks in a row, because it also looks idle for a short time between two
        // slots.
        let mut idle = 0;
        while idle < 2 && tokio::time::Instant::now() < until {
            idle = if shared.activity.working.load(Ordering::Acquire) == 0 { idle + 1 } else { 0 };
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Clears the cached renderings of summaries, so that a benchmark measures the cost of the first context.
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
    /// Sets the options of the SQLite store.
    pub fn sqlite(mut self, options: SqliteOptions) -> Self {
        self.sqlite = options;
        self
    }

    /// Opens the engine on a SQLite file. Creates the file if it is missing.
    pub async fn open(self, path: impl AsRef<Path>) -> Result<Engine, Error> {
        let path = path.as_ref().to_owned();
        self.open_sqlite(move |options| Sqlite::open(&path, options)).await
    }

    /// Opens the engine on a store in memory, for tests and experiments.
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
    /// Opens an engine with the default settings on a SQLite file. `local` writes the summaries, without an API key and
    /// without a network.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder().open(path).await
    }

    /// Opens an engine with the default settings on a store in memory, for tests and experiments.
    pub async fn memory() -> Result<Self, Error> {
        Self::builder().memory().await
    }
}

#[cfg(feature = "postgres")]
impl Builder {
    /// Sets the options of the PostgreSQL store.
    pub fn postgres(mut self, options: crate::store::PostgresOptions) -> Self {
        self.postgres = options;
        self
    }

    /// Opens the engine on a PostgreSQL database, such as `postgres://user:password@host:port/database`. Any number of
    /// engines may share one database: see [`Postgres::open`](crate::store::Postgres::open).
    pub async fn open_postgres(mut self, url: &str) -> Result<Engine, Error> {
        let options = std::mem::take(&mut self.postgres);
        let store = crate::store::Postgres::open(url, options).await?;
        self.store(Arc::new(store))
    }
}

/// Health of the engine, for the operator: the remaining work, and the problems that prevent this work. The results
/// contain no name of a workspace or a session. The functions in `explain.rs` report the remaining work of one
/// workspace.
impl Engine {
    /// Counts the slots that are due, in progress, failing or parked, in all workspaces together. The result contains
    /// no names, so it may be public. The call is cheap even with many sessions, because it reads only the rows of
    /// these slots.
    pub async fn backlog(&self) -> Result<Backlog, Error> {
        Ok(self.shared().store.queue(None, 0).await?.0)
    }

    /// Checks that the engine works: the store can be read, no recent write failed, and the worker (if the engine has
    /// one) can look for work. If the engine does not work, returns every reason. Reads a single row, and waits for no
    /// model.
    ///
    /// An engine with a failing hook or a failing slot is still ready, because everything else continues.
    pub async fn ready(&self) -> Result<(), Vec<Unready>> {
        if *self.inner.stop.borrow() {
            return Err(vec![Unready::from("the engine is closed")]);
        }
        let shared = self.shared();
        let unreadable = shared.store.workspaces(Listing::by_name(None, 1)).await.err();
        let failing = unreadable.or_else(|| shared.health.recent_write_error());
        let mut reasons: Vec<Unready> = failing.iter().map(Unready::from).collect();
        if *shared.signals.abort.borrow() {
            reasons.push(Unready::from("the engine is shutting down and starts no more summaries"));
        } else if lock(&self.inner.worker).as_ref().is_some_and(JoinHandle::is_finished) {
            reasons.push(Unready::from("the worker ended; open the engine again"));
        }
        // If the store cannot be read, the worker has the same error. The error is listed only once.
        let lease_error = lock(&shared.health.lease_error).as_ref().map(Unready::from);
        reasons.extend(lease_error.filter(|reason| !reasons.contains(reason)));
        if reasons.is_empty() { Ok(()) } else { Err(reasons) }
    }

    /// Returns the worker's current problem, for example that the store cannot be reached or that a hook fails. Returns
    /// `None` if the worker has no problem. [`Session::explain`] reports the problems of single slots.
    pub fn worker_problem(&self) -> Option<String> {
        self.shared().health.problem()
    }
}
