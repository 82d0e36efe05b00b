//! Stores sessions in PostgreSQL, shared by any number of nodes.
//!
//! A node stores nothing that the database does not have. The data, the order of changes and the leases are in the
//! database, so any node may be killed at any time. What a node caches about a session only saves a query, and is
//! checked when it is used.
//!
//! Each change is written exactly once. If the connection breaks in the middle, the node queries whether the
//! transaction was committed, and repeats it only if it was not. So callers notice a restart of the database or a
//! broken network connection only as a delay.
//!
//! Behind a connection pooler in transaction mode the store works the same, a little slower: statements are sent with
//! their text, and nodes do not notify each other but poll once per second.

use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use deadpool_postgres::{HookError, Pool, PoolError, TimeoutType};
use epitome_core::message::Timestamp;
use tokio::sync::{Mutex, MutexGuard, Notify, watch};
use tokio::time::timeout_at;

use super::changes::{Changes, Decide, Load, SessionState};
use super::contract::Store;
use super::error::StoreError;
use super::executor::{AccessMode, ErasedOp};
use super::lease::WalkPosition;
use super::rows::{SessionId, SessionKey, SlotRow};
use super::window_cache::WindowCache;
use address::Address;
use connection::{PooledConnection, ServerFlags};
use error::{OpError, OpResult, Retries, no_answer};
use group_commit::ChangeQueue;
use indexing::IndexBacklog;
use notifications::Notifications;
use transaction::PgTransaction;

mod address;
mod connect;
mod connection;
mod error;
mod group_commit;
mod indexing;
mod maintenance;
mod notifications;
mod schema;
mod transaction;
mod values;

/// Repeats an operation until it succeeds, or until another try cannot help.
macro_rules! retry {
    ($retries:expr, $once:expr) => {{
        let mut retries = $retries;
        loop {
            match $once.await {
                Ok(done) => break Ok(done),
                Err(error) => {
                    if let Err(error) = retries.after(error).await {
                        break Err(error);
                    }
                }
            }
        }
    }};
}
use retry;

/// Receives a message for the operator.
type OnMessage = Arc<dyn Fn(&str) + Send + Sync>;

/// Options of a PostgreSQL store.
#[derive(Clone)]
pub struct PostgresOptions {
    /// Returns the current time; `None` uses the database's clock.
    pub clock: Option<Arc<dyn Fn() -> Timestamp + Send + Sync>>,
    /// Maximum number of connections of this node.
    pub connections: usize,
    /// How long an operation is retried while the database cannot be reached.
    pub patience: Duration,
    /// Timeout for one statement. A connection that stops answering is closed a little later. If this is less than half
    /// of `patience`, there is time for another try on a new connection.
    pub statement: Duration,
    /// How long this node must not have written before it adds messages to the search index.
    pub index_pause: Duration,
    /// Whether to refuse a database without Epitome tables instead of creating them: for commands that only read.
    pub must_exist: bool,
    /// Called once if the database has not answered for one second while the store is opened. The message contains its
    /// address and the reason.
    pub on_wait: Option<OnMessage>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            clock: None,
            connections: 16,
            patience: Duration::from_secs(30),
            // Longer than `IDLE_IN_TRANSACTION`, after which the database ends an abandoned transaction and releases
            // its locks.
            statement: Duration::from_secs(15),
            index_pause: Duration::from_millis(20),
            must_exist: false,
            on_wait: None,
        }
    }
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("connections", &self.connections)
            .field("patience", &self.patience)
            .field("statement", &self.statement)
            .finish_non_exhaustive()
    }
}

/// A store for sessions in PostgreSQL.
///
/// ```no_run
/// # async fn try_it() -> Result<(), epitome::store::StoreError> {
/// use epitome::store::{Postgres, PostgresOptions, Store};
///
/// let store = Postgres::open("postgres://localhost/epitome", PostgresOptions::default()).await?;
/// assert_eq!(store.verify().await?, []);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Postgres {
    pool: Pool,
    /// The address shown in messages, without user and password.
    address_text: Arc<str>,
    options: PostgresOptions,
    server: Arc<ServerFlags>,
    /// When the last migration of a file into the database began, read when the store was opened.
    migration_began: Option<i64>,
    /// The statement that sets the timeouts at the start of each transaction, for a connection behind a pooler, which
    /// keeps no settings.
    limits: String,
    /// Windows that this node read recently. They may be outdated: code that uses one has the database check it.
    window_cache: Arc<WindowCache>,
    index_backlog: Arc<IndexBacklog>,
    /// Wakes the task that removes deleted sessions.
    maintenance: Arc<Notify>,
    notifications: Arc<Notifications>,
    /// Where the round-robin search for ready slots continues.
    walk_position: Arc<WalkPosition>,
    /// Locks under which changes of one session run one after the other. Sessions share them by hash.
    session_locks: Arc<[Mutex<()>]>,
    /// `None` while the store is being opened, and in the clones that the background tasks own.
    background: Option<Arc<Background>>,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("place", &self.address_text).finish_non_exhaustive()
    }
}

impl Postgres {
    /// Opens `postgres://user:password@host:port/database`, and creates missing tables there in a schema of their own.
    /// Waits for a database that is not up yet, but fails at once if a retry cannot help.
    ///
    /// `sslmode` is `disable`, `prefer` (the default), `require`, or `verify-full`. Only `verify-full` checks the
    /// server's certificate: against the system's roots, or those of `sslrootcert=FILE`. A pooler in transaction mode
    /// is detected; `pooler=transaction` declares one.
    ///
    /// A database into which a file is being migrated cannot be opened until the migration is finished.
    pub async fn open(url: &str, options: PostgresOptions) -> Result<Self, StoreError> {
        let (store, address) = Self::open_pool(url, options).await?;
        let migration_began = store.refuse_unfinished_migration().await?;
        let store = Self { migration_began, ..store };
        let stop = watch::Sender::new(false);
        spawn(maintenance::run(store.clone()), &stop);
        spawn(indexing::run(store.clone()), &stop);
        if !store.server.pooler.load(Ordering::Acquire) {
            let node = format!("{:016x}", random());
            spawn(notifications::run(address, Arc::clone(&store.notifications), node), &stop);
        }
        let queue = group_commit::start(&store, &stop);
        Ok(Self { background: Some(Arc::new(Background { stop, queue })), ..store })
    }

    /// Opens the store to migrate a file into it: without background tasks, and even if a migration is unfinished.
    #[cfg(feature = "sqlite")]
    pub(super) async fn open_for_migration(url: &str, options: PostgresOptions) -> Result<Self, StoreError> {
        Self::open_pool(url, options).await.map(|(store, _)| store)
    }

    /// Creates missing tables, and returns a store without background tasks.
    async fn open_pool(url: &str, options: PostgresOptions) -> Result<(Self, Address), StoreError> {
        let address = Address::read(url)?;
        let retries = Retries::opening(&address.address_text, &options);
        let pooler: Result<_, StoreError> = retry!(retries, connect::prepare(&address, options.must_exist));
        let pooler = pooler?;
        let server = Arc::new(ServerFlags { pooler: pooler.into(), ..ServerFlags::default() });
        let address_text: Arc<str> = address.address_text.as_str().into();
        let pool =
            connect::pool(&address, &options, &server).map_err(|reason| StoreError::Failed { reason })?;
        let statement = options.statement.as_millis();
        let limits = format!(
            "SELECT set_config('statement_timeout', '{statement}', true), \
             set_config('idle_in_transaction_session_timeout', '{}', true)",
            IDLE_IN_TRANSACTION.as_millis()
        );
        let store = Self {
            pool,
            address_text,
            options,
            server,
            migration_began: None,
            limits,
            window_cache: Arc::default(),
            index_backlog: Arc::default(),
            maintenance: Arc::default(),
            notifications: Arc::default(),
            walk_position: Arc::default(),
            session_locks: (0..SESSION_LOCKS).map(|_| Mutex::new(())).collect(),
            background: None,
        };
        Ok((store, address))
    }

    fn retries(&self) -> Retries<'_> {
        Retries::new(&self.address_text, self.options.patience)
    }

    /// Returns the current time, where the database's clock says `now`.
    fn store_time(&self, now: i64) -> Timestamp {
        self.options.clock.as_ref().map_or(Timestamp(now), |clock| clock())
    }

    /// Takes a connection from the pool.
    async fn connection(&self) -> OpResult<PooledConnection> {
        if self.server.migrating.load(Ordering::Acquire) {
            return Err(OpError::Migrating);
        }
        // Longer than the database's own timeout, so that its error can arrive.
        let limit = self.options.statement.saturating_add(Duration::from_secs(2));
        match self.pool.get().await {
            Ok(object) => Ok(PooledConnection::new(object, &self.server, limit)),
            Err(PoolError::Backend(error)) => Err(error.into()),
            Err(PoolError::Timeout(TimeoutType::Wait)) => Err(OpError::ConnectionLost(format!(
                "all {} connections of this node are in use",
                self.options.connections
            ))),
            Err(PoolError::Timeout(_)) => Err(no_answer(CONNECT_TIMEOUT)),
            Err(PoolError::Closed) => Err(OpError::Final(StoreError::Closed)),
            Err(PoolError::PostCreateHook(HookError::Backend(error))) => Err(error.into()),
            Err(other) => Err(OpError::ConnectionLost(other.to_string())),
        }
    }

    /// Waits for a session's lock, under which its changes run one after the other. Otherwise each change that waits
    /// for the session's row would occupy a connection.
    async fn lock_session(
        &self,
        key: &SessionKey,
        until: tokio::time::Instant,
    ) -> OpResult<Option<MutexGuard<'_, ()>>> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
        let at = usize::try_from(hash % (SESSION_LOCKS as u64)).unwrap_or(0);
        let Some(lock) = self.session_locks.get(at) else { return Ok(None) };
        let timed_out =
            |_| OpError::ConnectionLost("an earlier change of the same session has no answer yet".to_owned());
        timeout_at(until, lock.lock()).await.map(Some).map_err(timed_out)
    }

    /// Called after a change was decided. If it was written (`written` is its session), records the work that can wait:
    /// messages to index, and a hint to other nodes about ready slots.
    fn on_decided(&self, before: &SessionState, changes: Option<Changes>, written: Option<SessionId>) {
        let (Some(changes), Some(id)) = (changes, written) else { return };
        self.index_backlog.writes.fetch_add(1, Ordering::Relaxed);
        if !changes.messages.is_empty() {
            self.index_backlog.add(id);
        }
        let became_ready = |slot: &SlotRow| {
            let ready_at = before.slot(&slot.scope, &slot.name).and_then(SlotRow::ready_at);
            slot.ready_at().is_some_and(|at| Some(at) != ready_at)
        };
        if changes.slots.iter().any(became_ready) {
            self.notifications.outgoing.notify_one();
        }
    }
}

impl Deref for Postgres {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        self
    }
}

#[async_trait]
impl Store for Postgres {
    async fn run(&self, mode: AccessMode, op: ErasedOp) -> Result<(), StoreError> {
        retry!(self.retries(), async {
            let mut tx = match mode {
                AccessMode::ReadCommitted | AccessMode::ReadCommittedInline => {
                    PgTransaction::autocommit(self)
                }
                AccessMode::Snapshot | AccessMode::SnapshotInline | AccessMode::FullScan => {
                    PgTransaction::snapshot(self)
                }
                AccessMode::Write | AccessMode::WriteKeepCache => PgTransaction::read_write(self),
            };
            if mode == AccessMode::FullScan {
                tx.disable_timeout().await?;
            }
            let result = op.run_on(&mut tx).await;
            tx.end(result).await
        })
    }

    async fn change(
        &self,
        key: &SessionKey,
        load: Load,
        decide: Decide,
    ) -> Result<Option<SessionId>, StoreError> {
        let change = Arc::new((key.clone(), load, decide));
        // The wait for the lock counts too: each change of a session has its own deadline, independent of the changes
        // before it.
        let until = self.retries().until();
        // The lock is released before the next try, so that a caller in backoff does not block others.
        retry!(self.retries(), async {
            let _turn = self.lock_session(key, until).await?;
            self.change_in_group(&change).await
        })
    }

    async fn wait_for_hint(&self) {
        // Behind a pooler there are no notifications.
        self.notifications.received.notified().await;
    }

    async fn number_events(&self, workspace: &str) -> Result<(), StoreError> {
        retry!(self.retries(), self.number_pending_events(workspace))
    }

    fn walk_position(&self) -> Arc<WalkPosition> {
        Arc::clone(&self.walk_position)
    }

    fn window_cache(&self) -> &WindowCache {
        &self.window_cache
    }

    fn on_deleted(&self) {
        self.maintenance.notify_one();
    }

    fn on_copy_visible(&self, copy: SessionId) {
        self.index_backlog.add(copy);
        self.notifications.outgoing.notify_one();
    }

    async fn backup(&self, _: &Path) -> Result<(), StoreError> {
        let reason =
            "a PostgreSQL database is backed up with pg_dump, or as a whole with pg_basebackup".to_owned();
        Err(StoreError::Failed { reason })
    }

    async fn close(&self) {
        if let Some(background) = &self.background {
            background.stop.send_replace(true);
        }
        self.pool.close();
        // Operations return their connections when they end. The wait for them is limited.
        let until = Instant::now() + CONNECT_TIMEOUT;
        while self.pool.status().size > self.pool.status().available && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The store's handles of its background tasks.
struct Background {
    /// Stops the tasks, at the latest when the last handle of the store is dropped.
    stop: watch::Sender<bool>,
    /// The queue of changes that wait to share a transaction.
    queue: ChangeQueue,
}

/// Runs a background task until the store is closed.
fn spawn(task: impl Future<Output = ()> + Send + 'static, stop: &watch::Sender<bool>) {
    let mut stop = stop.subscribe();
    tokio::spawn(async move {
        tokio::select! {
            () = task => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    });
}

/// Number of locks under which sessions are changed.
const SESSION_LOCKS: usize = 1_024;

/// Timeout for an idle transaction: its client is gone or frozen, and other transactions wait for its locks.
const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(10);

/// Timeout for getting or opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens a plain connection, as a baseline for benchmarks.
pub async fn client(url: &str) -> Result<tokio_postgres::Client, StoreError> {
    let address = address::Address::read(url)?;
    let (client, connection) = address.config.connect(address.tls).await.map_err(|error| {
        StoreError::Unreachable { path: address.address_text, reason: error::reason_of(&error) }
    })?;
    tokio::spawn(connection);
    Ok(client)
}

fn random() -> u64 {
    getrandom::u64().unwrap_or_else(|_| u64::from(std::process::id()))
}
