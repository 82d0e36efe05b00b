//! Runs reads on a few connections.
//!
//! Each read is one transaction, so it sees a single state. In WAL mode a read neither waits for the writer nor blocks
//! it.
//!
//! Reads run on a few blocking threads of the runtime. A thread that has finished a read takes the next one that waits.
//! So under load no thread is put to sleep and woken between two reads. Small reads of cached data run on the caller's
//! thread, because waking another thread would take longer than the read.

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

/// A few connections, opened on first use.
#[derive(Clone)]
pub(super) struct Readers {
    path: Arc<PathBuf>,
    options: SqliteOptions,
    /// Whether no process changes the file.
    pub(super) lasting: bool,
    /// A permit is taken or released only while this is locked. So every waiting read has a thread that will take it.
    desk: Arc<Mutex<Desk>>,
    /// One permit for each thread that reads.
    places: Arc<Semaphore>,
}

#[derive(Default)]
struct Desk {
    /// Open connections that are not in use.
    idle: Vec<Connection>,
    /// Reads that wait for a thread.
    waiting: VecDeque<Read>,
}

/// A read. It sends its result to the caller.
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

    /// Runs a read in one transaction, if `afresh` on a new connection. FTS5 caches a snapshot of its index in every
    /// connection. Queries refresh the snapshot, but `integrity_check` does not: on an old connection it reports index
    /// segments that were merged since then as damage.
    pub(super) async fn read(&self, afresh: bool, work: Work) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        let read = move |readers: &Self| {
            // The caller may be gone.
            if reply.is_closed() {
                return;
            }
            let read = catch_unwind(AssertUnwindSafe(|| readers.now(afresh, work)));
            let _ = reply.send(readers.told(read));
        };
        self.hand_in(Box::new(read))?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Converts the result of a read for the caller.
    fn told(&self, read: std::thread::Result<Outcome<()>>) -> Result<(), StoreError> {
        read.unwrap_or_else(|_| Err(refused("a read panicked"))).map_err(|trouble| trouble.at(&*self.path))
    }

    /// Queues a read, and starts another thread if a permit is free.
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

    /// Starts a thread that runs reads until none is waiting.
    fn start(&self, place: OwnedSemaphorePermit) {
        let this = self.clone();
        tokio::task::spawn_blocking(move || {
            loop {
                let mut desk = this.lock();
                let Some(read) = desk.waiting.pop_front() else {
                    // Release the permit while the queue is still locked.
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

    /// Runs a small read of cached data on the caller's thread if a connection is free, otherwise on a reader thread.
    pub(super) async fn read_here(&self, work: Work) -> Result<(), StoreError> {
        let Some(place) = self.place() else { return self.read(false, work).await };
        let read = catch_unwind(AssertUnwindSafe(|| self.now(false, work)));
        self.leave(place);
        self.told(read)
    }

    /// Takes a permit if no read is waiting and an open connection is idle.
    fn place(&self) -> Option<OwnedSemaphorePermit> {
        let desk = self.lock();
        let free = desk.waiting.is_empty() && !desk.idle.is_empty();
        free.then(|| Arc::clone(&self.places).try_acquire_owned().ok()).flatten()
    }

    /// Releases a permit, or starts a thread with it if reads are waiting by now.
    fn leave(&self, place: OwnedSemaphorePermit) {
        let desk = self.lock();
        // Released while `desk` is locked: a read that is queued later finds the permit free.
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
        // A connection whose read failed or panicked is not used again, because its state is unclear.
        if !afresh && ended.is_ok() && !matches!(result, Err(Trouble::Sql(_))) {
            self.lock().idle.push(db);
        }
        result
    }

    /// Waits for the running reads, and closes all connections.
    pub(super) async fn close(&self) {
        let all = u32::try_from(self.options.readers.max(1)).unwrap_or(u32::MAX);
        let places = self.places.acquire_many(all).await;
        let mut desk = self.lock();
        self.places.close();
        // Reads that are still queued are dropped, and their callers get [`StoreError::Closed`].
        *desk = Desk::default();
        drop(places);
    }
}
