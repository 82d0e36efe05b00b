//! Stores sessions in PostgreSQL, shared by any number of nodes.
//!
//! The data, the order of changes and the leases are stored only in the database, so any node can be killed at any
//! time. A node's caches save queries. Cached values are checked when they are used.
//!
//! Each change is written exactly once. If the connection breaks in the middle of a change, the node queries whether
//! the transaction was committed, and repeats the transaction only if it was not. So callers notice a restart of the
//! database or a broken network connection only as a delay.
//!
//! The store also works behind a connection pooler in transaction mode, but is a little slower. Statements are then not
//! prepared, and nodes do not notify each other but poll once per second.

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

/// Repeats an operation until it succeeds, or until a retry cannot help or the time limit is reached.
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

/// A callback that receives a message for the operator.
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
    /// Timeout for one statement. A connection that has not answered is closed two seconds after this timeout. Choose
    /// less than half of `patience`, so that there is time for a retry on a new connection.
    pub statement: Duration,
    /// A node adds messages to the search index when it has not written for this duration.
    pub index_pause: Duration,
    /// If true, opening fails if the database has no Epitome tables. If false, the tables are created. Commands that
    /// only read set this option to true.
    pub must_exist: bool,
    /// Called once if the database has not answered for one second while the store is opened. The message contains the
    /// database's address and the reason.
    pub on_wait: Option<OnMessage>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            clock: None,
            connections: 16,
            patience: Duration::from_secs(30),
            // This is longer than `IDLE_IN_TRANSACTION`, after which the database ends an abandoned transaction and
            // releases its locks.
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
    /// When the last migration of a file into the database began; `None` if there was none. Read when the store was
    /// opened.
    migration_began: Option<i64>,
    /// The statement that sets the timeouts. Behind a pooler, settings end with the transaction, so each transaction
    /// starts with this statement.
    limits: String,
    /// Windows that this node read recently. They may be outdated, so the node queries the database for changes before
    /// it uses a cached window.
    window_cache: Arc<WindowCache>,
    index_backlog: Arc<IndexBacklog>,
    /// Wakes the task that removes deleted sessions.
    maintenance: Arc<Notify>,
    notifications: Arc<Notifications>,
    /// Where the round-robin search for ready slots continues.
    walk_position: Arc<WalkPosition>,
    /// With these locks, changes of the same session run one after the other on this node. The hash of a session's name
    /// selects its lock, so several sessions may share a lock.
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
    /// Opens `postgres://user:password@host:port/database`, and creates missing tables there in the schema `epitome`.
    /// Waits for a database that is still starting. Fails at once if a retry cannot help.
    ///
    /// `sslmode` is `disable`, `prefer` (the default), `require`, or `verify-full`. Only `verify-full` checks the
    /// server's certificate, either with the system's root certificates or with the certificates in `sslrootcert=FILE`.
    /// A pooler in transaction mode is detected. With `pooler=transaction`, a pooler is assumed without detection.
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

    /// Returns the store's current time. This is `now`, the time of the database's clock, unless the options contain
    /// another clock.
    fn store_time(&self, now: i64) -> Timestamp {
        self.options.clock.as_ref().map_or(Timestamp(now), |clock| clock())
    }

    /// Takes a connection from the pool.
    async fn connection(&self) -> OpResult<PooledConnection> {
        if self.server.migrating.load(Ordering::Acquire) {
            return Err(OpError::Migrating);
        }
        // This limit is longer than the database's own timeout, so that the database's error can arrive first.
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

    /// Locks a session on this node, so that the session's changes run one after the other. Without this lock, each
    /// change that waits for the session's row would occupy a connection.
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

    /// Called after a change was decided. `written` is the session's id if the change was written. In that case, adds
    /// the session to the indexing backlog if it has new messages, and notifies other nodes if a slot became ready.
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
        // The wait for the lock is limited too. Each change of a session has its own deadline, independent of the
        // changes before it.
        let until = self.retries().until();
        // The lock is released between two attempts, so that a caller in backoff does not block other callers.
        retry!(self.retries(), async {
            let _turn = self.lock_session(key, until).await?;
            self.change_in_group(&change).await
        })
    }

    async fn wait_for_hint(&self) {
        // Behind a pooler no notification arrives, and this method never returns.
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
            "Epitome does not back up PostgreSQL; use pg_dump for this database, or pg_basebackup for the whole server".to_owned();
        Err(StoreError::Failed { reason })
    }

    async fn close(&self) {
        if let Some(background) = &self.background {
            background.stop.send_replace(true);
        }
        self.pool.close();
        // Wait until running operations have returned their connections, but not longer than `CONNECT_TIMEOUT`.
        let until = Instant::now() + CONNECT_TIMEOUT;
        while self.pool.status().size > self.pool.status().available && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The store's handles of its background tasks.
struct Background {
    /// Sending `true` stops the tasks. When the last handle of the store is dropped, this sender is dropped too, which
    /// also stops the tasks.
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

/// Number of locks that the sessions of a node share.
const SESSION_LOCKS: usize = 1_024;

/// Time after which the database ends an idle transaction. The client of such a transaction is gone or frozen, and
/// other transactions may wait for its locks.
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
