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

use super::ask::{Task, Way};
use super::changes::{Changes, Decide, Load, Standing};
use super::contract::Store;
use super::error::StoreError;
use super::lease::Place;
use super::recent::Recent;
use super::rows::{SessionId, SessionKey, SlotRow};
use asking::Asking;
use error::{Outcome, Tries, Trouble, silent};
use group::Queue;
use hint::Hints;
use indexing::Behind;
use link::{Link, Noticed};
use tls::Address;

mod asking;
mod chores;
mod error;
mod group;
mod hint;
mod indexing;
mod link;
mod opening;
mod rows;
mod schema;
mod tls;

/// Repeats an operation until it succeeds, or until another try makes no sense.
macro_rules! again {
    ($tries:expr, $once:expr) => {{
        let mut tries = $tries;
        loop {
            match $once.await {
                Ok(done) => break Ok(done),
                Err(trouble) => {
                    if let Err(error) = tries.after(trouble).await {
                        break Err(error);
                    }
                }
            }
        }
    }};
}
use again;

/// Receives a message for people.
type Tell = Arc<dyn Fn(&str) + Send + Sync>;

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
    pub waits: Option<Tell>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            clock: None,
            connections: 16,
            patience: Duration::from_secs(30),
            // Longer than `IDLE`, after which the database ends an abandoned transaction and releases its locks.
            statement: Duration::from_secs(15),
            index_pause: Duration::from_millis(20),
            must_exist: false,
            waits: None,
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
    /// The address for messages, without user and password.
    place: Arc<str>,
    options: PostgresOptions,
    noticed: Arc<Noticed>,
    /// When the last move of a file into the database began, read when the store was opened.
    moved: Option<i64>,
    /// The statement that sets the timeouts at the start of each transaction, for a connection that keeps no settings.
    limits: String,
    /// What this node read of sessions lately. It may be out of date: code that uses it has the database check it.
    recent: Arc<Recent>,
    behind: Arc<Behind>,
    /// Wakes the task that removes deleted sessions.
    chores: Arc<Notify>,
    hints: Arc<Hints>,
    /// Where the round-robin search for ready slots continues.
    walked: Arc<Place>,
    /// Locks under which changes of one session run one after the other. Sessions share them by hash.
    turns: Arc<[Mutex<()>]>,
    /// `None` while the store is being opened, and in the clones that the background tasks own.
    background: Option<Arc<Background>>,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("place", &self.place).finish_non_exhaustive()
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
    /// A database into which a file is being moved cannot be opened until the move is finished.
    pub async fn open(url: &str, options: PostgresOptions) -> Result<Self, StoreError> {
        let (store, address) = Self::reach(url, options).await?;
        let moved = store.refuse_half_moved().await?;
        let store = Self { moved, ..store };
        let stop = watch::Sender::new(false);
        spawn(chores::run(store.clone()), &stop);
        spawn(indexing::run(store.clone()), &stop);
        if !store.noticed.pooler.load(Ordering::Acquire) {
            let node = format!("{:016x}", random());
            spawn(hint::run(address, Arc::clone(&store.hints), node), &stop);
        }
        let queue = group::start(&store, &stop);
        Ok(Self { background: Some(Arc::new(Background { stop, queue })), ..store })
    }

    /// Opens the store to move a file into it: without background tasks, and even if a move is unfinished.
    #[cfg(feature = "sqlite")]
    pub(super) async fn open_to_move(url: &str, options: PostgresOptions) -> Result<Self, StoreError> {
        Self::reach(url, options).await.map(|(store, _)| store)
    }

    /// Creates missing tables, and returns a store without background tasks.
    async fn reach(url: &str, options: PostgresOptions) -> Result<(Self, Address), StoreError> {
        let address = Address::read(url)?;
        let tries = Tries::opening(&address.place, &options);
        let pooler: Result<_, StoreError> = again!(tries, opening::prepare(&address, options.must_exist));
        let pooler = pooler?;
        let noticed = Arc::new(Noticed { pooler: pooler.into(), ..Noticed::default() });
        let place: Arc<str> = address.place.as_str().into();
        let pool =
            opening::pool(&address, &options, &noticed).map_err(|reason| StoreError::Failed { reason })?;
        let statement = options.statement.as_millis();
        let limits = format!(
            "SELECT set_config('statement_timeout', '{statement}', true), \
             set_config('idle_in_transaction_session_timeout', '{}', true)",
            IDLE.as_millis()
        );
        let store = Self {
            pool,
            place,
            options,
            noticed,
            moved: None,
            limits,
            recent: Arc::default(),
            behind: Arc::default(),
            chores: Arc::default(),
            hints: Arc::default(),
            walked: Arc::default(),
            turns: (0..TURNS).map(|_| Mutex::new(())).collect(),
            background: None,
        };
        Ok((store, address))
    }

    fn tries(&self) -> Tries<'_> {
        Tries::new(&self.place, self.options.patience)
    }

    /// Returns the current time, where the database's clock says `now`.
    fn moment(&self, now: i64) -> Timestamp {
        self.options.clock.as_ref().map_or(Timestamp(now), |clock| clock())
    }

    /// Takes a connection from the pool.
    async fn link(&self) -> Outcome<Link> {
        if self.noticed.moved.load(Ordering::Acquire) {
            return Err(Trouble::Moving);
        }
        // Longer than the database's own timeout, so that its error can arrive.
        let limit = self.options.statement.saturating_add(Duration::from_secs(2));
        match self.pool.get().await {
            Ok(object) => Ok(Link::new(object, &self.noticed, limit)),
            Err(PoolError::Backend(error)) => Err(error.into()),
            Err(PoolError::Timeout(TimeoutType::Wait)) => Err(Trouble::Lost(format!(
                "all {} connections of this node are in use",
                self.options.connections
            ))),
            Err(PoolError::Timeout(_)) => Err(silent(WAIT)),
            Err(PoolError::Closed) => Err(Trouble::Said(StoreError::Closed)),
            Err(PoolError::PostCreateHook(HookError::Backend(error))) => Err(error.into()),
            Err(other) => Err(Trouble::Lost(other.to_string())),
        }
    }

    /// Waits for a session's lock, under which its changes run one after the other. Otherwise each change that waits
    /// for the session's row would occupy a connection.
    async fn turn(
        &self,
        key: &SessionKey,
        until: tokio::time::Instant,
    ) -> Outcome<Option<MutexGuard<'_, ()>>> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
        let at = usize::try_from(hash % (TURNS as u64)).unwrap_or(0);
        let Some(turn) = self.turns.get(at) else { return Ok(None) };
        let late = |_| Trouble::Lost("an earlier change of the same session has no answer yet".to_owned());
        timeout_at(until, turn.lock()).await.map(Some).map_err(late)
    }

    /// Called after a change was decided, and written if its session has an id here. Records what follows from it and
    /// can wait: messages to index, and a hint to other nodes about ready slots.
    fn decided(&self, standing: &Standing, changes: Option<Changes>, written: Option<SessionId>) {
        let (Some(changes), Some(id)) = (changes, written) else { return };
        self.behind.writes.fetch_add(1, Ordering::Relaxed);
        if !changes.messages.is_empty() {
            self.behind.add(id);
        }
        let ready = |slot: &SlotRow| {
            let before = standing.slot(&slot.scope, &slot.name).and_then(SlotRow::ready_at);
            slot.ready_at().is_some_and(|at| Some(at) != before)
        };
        if changes.slots.iter().any(ready) {
            self.hints.tell.notify_one();
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
    async fn run(&self, way: Way, task: Task) -> Result<(), StoreError> {
        again!(self.tries(), async {
            let mut asking = match way {
                Way::Looks | Way::LooksHere => Asking::alone(self),
                Way::Reads | Way::ReadsHere | Way::ReadsAll => Asking::reads(self),
                Way::Writes | Way::Notes => Asking::writes(self),
            };
            if way == Way::ReadsAll {
                asking.take_your_time().await?;
            }
            let done = task.on(&mut asking).await;
            asking.ended(done).await
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
        let until = self.tries().until();
        // The lock is released before the next try, so that a caller in backoff does not block others.
        again!(self.tries(), async {
            let _turn = self.turn(key, until).await?;
            self.change_in_group(&change).await
        })
    }

    async fn nudged(&self) {
        // Behind a pooler there are no notifications.
        self.hints.heard.notified().await;
    }

    async fn number_all(&self, workspace: &str) -> Result<(), StoreError> {
        again!(self.tries(), self.number_told(workspace))
    }

    fn walked(&self) -> Arc<Place> {
        Arc::clone(&self.walked)
    }

    fn recent(&self) -> &Recent {
        &self.recent
    }

    fn deleted(&self) {
        self.chores.notify_one();
    }

    fn revealed(&self, copy: SessionId) {
        self.behind.add(copy);
        self.hints.tell.notify_one();
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
        let until = Instant::now() + WAIT;
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
    queue: Queue,
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
const TURNS: usize = 1_024;

/// Timeout for an idle transaction: its client is gone or frozen, and other transactions wait for its locks.
const IDLE: Duration = Duration::from_secs(10);

/// Timeout for getting or opening a connection.
const WAIT: Duration = Duration::from_secs(5);

/// Opens a plain connection, as a baseline for benchmarks.
pub async fn client(url: &str) -> Result<tokio_postgres::Client, StoreError> {
    let address = tls::Address::read(url)?;
    let (client, connection) = address
        .config
        .connect(address.tls)
        .await
        .map_err(|error| StoreError::Unreachable { path: address.place, reason: error::reason_of(&error) })?;
    tokio::spawn(connection);
    Ok(client)
}

fn random() -> u64 {
    getrandom::u64().unwrap_or_else(|_| u64::from(std::process::id()))
}
