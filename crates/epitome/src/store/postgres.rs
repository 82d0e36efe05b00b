//! Sessions in PostgreSQL, shared by any number of nodes.
//!
//! Nodes keep nothing that the database does not: it has the data, the order and the leases, and any of them may be
//! killed at any time. What a node remembers of a session only saves it a question, and is checked when it is used.
//!
//! What is written is written once. Where the connection breaks in the middle, the database is asked what became of the
//! transaction, and it is done again only where it was not done. So callers notice a restart, or a cut wire, as a delay.
//!
//! Behind a pooler that hands out backends by the transaction it works the same, a little slower: statements are then
//! sent with their text, and nothing is told between nodes, who look by themselves each second.

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

/// Does it until it is done, or until it is not worth another try.
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

/// Who is told something, in words for people.
type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// How a PostgreSQL store is run.
#[derive(Clone)]
pub struct PostgresOptions {
    /// What time it is; the database's own clock unless told.
    pub clock: Option<Arc<dyn Fn() -> Timestamp + Send + Sync>>,
    /// How many connections this node has at most.
    pub connections: usize,
    /// For how long it is tried again while the database cannot be reached.
    pub patience: Duration,
    /// How long one statement may take. A connection that falls silent is given up a little later: where this is less than
    /// half of `patience`, there is time for another try on a new one.
    pub statement: Duration,
    /// How long the index of words waits for others to write.
    pub index_pause: Duration,
    /// Whether a database without tables of ours is refused, in place of making them: for whoever only wants to look.
    pub must_exist: bool,
    /// Told once while it is opened, when the database is waited for longer than a second: for which, and why.
    pub waits: Option<Tell>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            clock: None,
            connections: 16,
            patience: Duration::from_secs(30),
            // Longer than a transaction is held that nobody goes on with.
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

/// Sessions in PostgreSQL.
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
    /// For people: neither user nor password.
    place: Arc<str>,
    options: PostgresOptions,
    noticed: Arc<Noticed>,
    /// When the last move into it began, as it was opened.
    moved: Option<i64>,
    /// What is set at the beginning of each transaction where nothing stays set.
    limits: String,
    /// The numbers of sessions this node looked at. Nothing of it is taken for true: whoever uses it has the database check
    /// that it still is.
    recent: Arc<Recent>,
    behind: Arc<Behind>,
    /// Wakes whoever removes what was deleted.
    chores: Arc<Notify>,
    hints: Arc<Hints>,
    /// Where the search for whose turn it is goes on.
    walked: Arc<Place>,
    /// Sessions share them.
    turns: Arc<[Mutex<()>]>,
    /// None while the store is being opened, and in the background tasks themselves.
    background: Option<Arc<Background>>,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Postgres {
    /// Opens `postgres://user:password@host:port/database`, and makes the tables there where they are missing, in a
    /// schema of their own. Waits for a database that is not up yet, and not for one that will not be any other.
    ///
    /// `sslmode` is `disable`, `prefer` (which it is unless told), `require`, or `verify-full`, which alone looks whose
    /// certificate it is: by the system's roots, or those of `sslrootcert=FILE`. A pooler that hands out backends by the
    /// transaction is noticed; `pooler=transaction` says that there is one.
    ///
    /// One into which a file is being moved is not opened before that is done.
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

    /// The store, for whoever moves a file into it: nothing runs beside it, and what is half moved is no hindrance.
    #[cfg(feature = "sqlite")]
    pub(super) async fn open_to_move(url: &str, options: PostgresOptions) -> Result<Self, StoreError> {
        Self::reach(url, options).await.map(|(store, _)| store)
    }

    /// Makes the tables, and gives a store beside which nothing runs yet.
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

    /// The moment, where the database says it is this.
    fn moment(&self, now: i64) -> Timestamp {
        self.options.clock.as_ref().map_or(Timestamp(now), |clock| clock())
    }

    /// A connection.
    async fn link(&self) -> Outcome<Link> {
        if self.noticed.moved.load(Ordering::Acquire) {
            return Err(Trouble::Moving);
        }
        // What the database gives up on it is heard of a moment later.
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

    /// Changes of one session, one after the other: whoever waits for its row would hold a connection for as long.
    async fn turn(
        &self,
        key: &SessionKey,
        until: tokio::time::Instant,
    ) -> Outcome<Option<MutexGuard<'_, ()>>> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
        let at = usize::try_from(hash % (TURNS as u64)).unwrap_or(0);
        let Some(turn) = self.turns.get(at) else { return Ok(None) };
        let late = |_| Trouble::Lost("who wrote to the same session before has no answer yet".to_owned());
        timeout_at(until, turn.lock()).await.map(Some).map_err(late)
    }

    /// A change was decided, and written if it has a session here: what follows from it and can wait.
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
        // Whoever waits for a turn is waiting: all that write to a session lose patience each by itself, not in turn.
        let until = self.tries().until();
        // The turn is let go of before the next try, so that a caller who pauses keeps no other from going on.
        again!(self.tries(), async {
            let _turn = self.turn(key, until).await?;
            self.change_in_group(&change).await
        })
    }

    async fn nudged(&self) {
        // Behind a pooler there is nothing to hear.
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
        // Whoever has a connection gives it back when they are done; that is not waited for without end.
        let until = Instant::now() + WAIT;
        while self.pool.status().size > self.pool.status().available && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The store's side of its background tasks.
struct Background {
    /// Ends them, at the latest when the last handle of the store is dropped.
    stop: watch::Sender<bool>,
    /// Where changes wait for others to share a transaction with.
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

/// So many turns to change a session.
const TURNS: usize = 1_024;

/// A transaction nobody goes on with is given up after this: whoever began it is gone or frozen, and others wait.
const IDLE: Duration = Duration::from_secs(10);

/// How long is waited for one of this node's connections at a time.
const WAIT: Duration = Duration::from_secs(5);

/// A connection of one's own, to measure against.
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
