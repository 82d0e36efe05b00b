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
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::super::error::StoreError;
use super::error::{Outcome, Trouble};
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
    idle: Arc<Mutex<Vec<Connection>>>,
    /// Reads that wait. A place is taken, and given back, only by who holds this: so nothing is put here that nobody
    /// takes out.
    waiting: Arc<Mutex<VecDeque<Read>>>,
    /// One for each thread that reads.
    places: Arc<Semaphore>,
}

/// A read, which answers by itself.
type Read = Box<dyn FnOnce(&Readers) + Send>;

impl Readers {
    pub(super) fn new(path: &Path, options: &SqliteOptions, lasting: bool) -> Self {
        Self {
            path: Arc::new(path.to_owned()),
            options: options.clone(),
            lasting,
            idle: Arc::default(),
            waiting: Arc::default(),
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
        match read {
            Ok(done) => done.map_err(|trouble| trouble.at(self.path.as_path())),
            Err(_) => Err(StoreError::Failed { reason: "a read panicked".to_owned() }),
        }
    }

    /// Has it read by a thread that reads already, or by one more where there may be.
    fn hand_in(&self, read: Read) -> Result<(), StoreError> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.places.is_closed() {
            return Err(StoreError::Closed);
        }
        waiting.push_back(read);
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            let this = self.clone();
            tokio::task::spawn_blocking(move || this.work_off(place));
        }
        Ok(())
    }

    /// Reads for as long as somebody waits.
    fn work_off(&self, place: OwnedSemaphorePermit) {
        loop {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(read) = waiting.pop_front() else {
                drop(place);
                return;
            };
            drop(waiting);
            read(self);
        }
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
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).len();
        let free = waiting.is_empty() && idle > 0;
        free.then(|| Arc::clone(&self.places).try_acquire_owned().ok()).flatten()
    }

    /// Gives a place back, or to those who have come to wait for one.
    fn leave(&self, place: OwnedSemaphorePermit) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.is_empty() {
            drop(place);
            return;
        }
        let this = self.clone();
        tokio::task::spawn_blocking(move || this.work_off(place));
    }

    fn now(&self, afresh: bool, work: Work) -> Outcome<()> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop_if(|_| !afresh);
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
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(db);
        }
        result
    }

    /// Waits for the reads under way and closes all connections.
    pub(super) async fn close(&self) {
        let all = u32::try_from(self.options.readers.max(1)).unwrap_or(u32::MAX);
        let places = self.places.acquire_many(all).await;
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.places.close();
        // Those that came too late are told so.
        waiting.clear();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
        drop(places);
    }
}
