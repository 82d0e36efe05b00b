//! Connections that only read.
//!
//! Each read is one transaction, so it sees one state, and in WAL mode it neither waits for the writer nor
//! keeps it waiting.
//!
//! Reads are handed to a few threads of the runtime's. One that is done with a read goes on with the next that waits:
//! where many read at once, none of them sleeps and is woken in between. What is small and in
//! memory is read by whoever asks: that is sooner done than a thread is woken.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::super::error::StoreError;
use super::error::{Outcome, Trouble, refused};
use super::open;
use super::options::SqliteOptions;
use super::writer::Work;

/// A few connections, opened when first needed.
#[derive(Clone)]
pub(super) struct Readers {
    path: Arc<PathBuf>,
    options: SqliteOptions,
    /// Whether nobody changes the file.
    pub(super) lasting: bool,
    /// A place is taken, and given back, only while this is locked: so no read waits that no thread takes.
    desk: Arc<Mutex<Desk>>,
    /// One for each thread that reads.
    places: Arc<Semaphore>,
}

#[derive(Default)]
struct Desk {
    /// Connections that are open and not in use.
    idle: Vec<Connection>,
    /// Reads that wait.
    waiting: VecDeque<Read>,
}

/// A read, which answers by itself.
type Read = Box<dyn FnOnce(&Readers) + Send>;

impl Readers {
    pub(super) fn new(path: &Path, options: &SqliteOptions, lasting: bool) -> Self {
        Self {
            path: Arc::new(path.to_owned()),
            options: options.clone(),
            lasting,
            desk: Arc::default(),
            places: Arc::new(Semaphore::new(options.readers.max(1))),
        }
    }

    /// Reads in one transaction; if told, on a connection of its own. FTS5 keeps a picture of its index with every
    /// connection, which queries bring up to date and `integrity_check` does not: on an old connection it takes what was
    /// merged since for damage.
    pub(super) async fn read(&self, afresh: bool, work: Work) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        let read = move |readers: &Self| {
            // Whoever asked may have gone.
            if reply.is_closed() {
                return;
            }
            let read = catch_unwind(AssertUnwindSafe(|| readers.now(afresh, work)));
            let _ = reply.send(readers.told(read));
        };
        self.hand_in(Box::new(read))?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// What is told of a read.
    fn told(&self, read: std::thread::Result<Outcome<()>>) -> Result<(), StoreError> {
        read.unwrap_or_else(|_| Err(refused("a read panicked"))).map_err(|trouble| trouble.at(&*self.path))
    }

    /// Has it read by a thread that reads already, or by one more where there may be.
    fn hand_in(&self, read: Read) -> Result<(), StoreError> {
        let mut desk = self.lock();
        if self.places.is_closed() {
            return Err(StoreError::Closed);
        }
        desk.waiting.push_back(read);
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            self.start(place);
        }
        Ok(())
    }

    /// Has a thread read for as long as a read waits.
    fn start(&self, place: OwnedSemaphorePermit) {
        let this = self.clone();
        tokio::task::spawn_blocking(move || {
            loop {
                let mut desk = this.lock();
                let Some(read) = desk.waiting.pop_front() else {
                    // While nothing can be put there.
                    drop(place);
                    return;
                };
                drop(desk);
                read(&this);
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads on the caller's own thread, where a connection is free for that: for what is small and in memory.
    pub(super) async fn read_here(&self, work: Work) -> Result<(), StoreError> {
        let Some(place) = self.place() else { return self.read(false, work).await };
        let read = catch_unwind(AssertUnwindSafe(|| self.now(false, work)));
        self.leave(place);
        self.told(read)
    }

    /// A place among those who read, where nobody waits for one and a connection is open already.
    fn place(&self) -> Option<OwnedSemaphorePermit> {
        let desk = self.lock();
        let free = desk.waiting.is_empty() && !desk.idle.is_empty();
        free.then(|| Arc::clone(&self.places).try_acquire_owned().ok()).flatten()
    }

    /// Gives a place back, or to those who have come to wait for one.
    fn leave(&self, place: OwnedSemaphorePermit) {
        let desk = self.lock();
        // Given back while the desk is locked: a read that is handed in after that finds the place free.
        if desk.waiting.is_empty() { drop(place) } else { self.start(place) }
    }

    fn now(&self, afresh: bool, work: Work) -> Outcome<()> {
        let idle = self.lock().idle.pop_if(|_| !afresh);
        let mut db = match idle {
            Some(db) => db,
            None if self.lasting => open::unchanging(&self.path, &self.options)?,
            None => open::reader(&self.path, &self.options)?,
        };
        db.prepare_cached("BEGIN DEFERRED")?.execute([])?;
        let result = work(&mut db);
        let ended = db.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([]));
        // One that failed or panicked is not used again: who knows what it is in the middle of.
        if !afresh && ended.is_ok() && !matches!(result, Err(Trouble::Sql(_))) {
            self.lock().idle.push(db);
        }
        result
    }

    /// Waits for the reads under way and closes all connections.
    pub(super) async fn close(&self) {
        let all = u32::try_from(self.options.readers.max(1)).unwrap_or(u32::MAX);
        let places = self.places.acquire_many(all).await;
        let mut desk = self.lock();
        self.places.close();
        // Those that came too late are told so.
        *desk = Desk::default();
        drop(places);
    }
}
