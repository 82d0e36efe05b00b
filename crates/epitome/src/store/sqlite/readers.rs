//! Runs reads on a few connections.
//!
//! Each read is one transaction, so it sees a single state. In WAL mode, a read does not wait for the writer, and the
//! writer does not wait for a read.
//!
//! Reads run on a few blocking threads of the runtime. A thread that has finished a read takes the next waiting read.
//! So under load no thread is put to sleep and woken between two reads. Small reads of cached data run on the caller's
//! thread, because waking another thread would take longer than the read.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::super::error::StoreError;
use super::error::{OpError, OpResult, rejected};
use super::open;
use super::options::SqliteOptions;
use super::writer::ConnectionOp;

/// A few connections that only read. Each is opened when it is first needed.
#[derive(Clone)]
pub(super) struct Readers {
    path: Arc<PathBuf>,
    options: SqliteOptions,
    /// Whether the file was opened as immutable, because no process changes it.
    pub(super) immutable: bool,
    /// A permit is taken or released only while this queue is locked. So for every waiting read there is a thread that
    /// will run it.
    queue: Arc<Mutex<ReadQueue>>,
    /// One permit for each thread that reads.
    permits: Arc<Semaphore>,
}

#[derive(Default)]
struct ReadQueue {
    /// Open connections that are not in use.
    idle: Vec<Connection>,
    /// Reads that wait for a thread.
    waiting: VecDeque<Read>,
}

/// A read. It sends its result to the caller.
type Read = Box<dyn FnOnce(&Readers) + Send>;

impl Readers {
    pub(super) fn new(path: &Path, options: &SqliteOptions, immutable: bool) -> Self {
        Self {
            path: Arc::new(path.to_owned()),
            options: options.clone(),
            immutable,
            queue: Arc::default(),
            permits: Arc::new(Semaphore::new(options.readers.max(1))),
        }
    }

    /// Runs a read in one transaction. If `new_connection` is set, the read runs on a new connection, which
    /// `integrity_check` needs. FTS5, the full-text index, caches a snapshot of the index in every connection. Queries
    /// refresh this snapshot, but `integrity_check` does not. So on an old connection, `integrity_check` would report
    /// index segments as damaged that were merged after the snapshot.
    pub(super) async fn read(&self, new_connection: bool, op: ConnectionOp) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        let read = move |readers: &Self| {
            // The caller may have stopped waiting.
            if reply.is_closed() {
                return;
            }
            let read = catch_unwind(AssertUnwindSafe(|| readers.run(new_connection, op)));
            let _ = reply.send(readers.to_caller_result(read));
        };
        self.enqueue(Box::new(read))?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Converts the result of a read for the caller.
    fn to_caller_result(&self, read: std::thread::Result<OpResult<()>>) -> Result<(), StoreError> {
        read.unwrap_or_else(|_| Err(rejected("a read panicked")))
            .map_err(|error| error.into_store_error(&*self.path))
    }

    /// Queues a read, and starts another thread if a permit is free.
    fn enqueue(&self, read: Read) -> Result<(), StoreError> {
        let mut queue = self.lock();
        if self.permits.is_closed() {
            return Err(StoreError::Closed);
        }
        queue.waiting.push_back(read);
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            self.start(permit);
        }
        Ok(())
    }

    /// Starts a thread that runs reads until none is waiting.
    fn start(&self, permit: OwnedSemaphorePermit) {
        let this = self.clone();
        tokio::task::spawn_blocking(move || {
            loop {
                let mut queue = this.lock();
                let Some(read) = queue.waiting.pop_front() else {
                    // Release the permit while the queue is still locked.
                    drop(permit);
                    return;
                };
                drop(queue);
                read(&this);
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, ReadQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a small read of cached data on the caller's thread if a connection is free, otherwise on a reader thread.
    pub(super) async fn read_inline(&self, op: ConnectionOp) -> Result<(), StoreError> {
        let Some(permit) = self.try_permit() else { return self.read(false, op).await };
        let read = catch_unwind(AssertUnwindSafe(|| self.run(false, op)));
        self.release(permit);
        self.to_caller_result(read)
    }

    /// Takes a permit if one is free, no read is waiting, and an open connection is idle.
    fn try_permit(&self) -> Option<OwnedSemaphorePermit> {
        let queue = self.lock();
        let free = queue.waiting.is_empty() && !queue.idle.is_empty();
        free.then(|| Arc::clone(&self.permits).try_acquire_owned().ok()).flatten()
    }

    /// Releases a permit. If reads are waiting by now, starts a thread with this permit instead.
    fn release(&self, permit: OwnedSemaphorePermit) {
        let queue = self.lock();
        // The permit is released while `queue` is locked, so that a read that is queued later finds a free permit.
        if queue.waiting.is_empty() { drop(permit) } else { self.start(permit) }
    }

    fn run(&self, new_connection: bool, op: ConnectionOp) -> OpResult<()> {
        let idle = self.lock().idle.pop_if(|_| !new_connection);
        let mut db = match idle {
            Some(db) => db,
            None if self.immutable => open::immutable(&self.path, &self.options)?,
            None => open::reader(&self.path, &self.options)?,
        };
        db.prepare_cached("BEGIN DEFERRED")?.execute([])?;
        let result = op(&mut db);
        let ended = db.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([]));
        // A connection whose read failed or panicked is not used again, because its state is unclear.
        if !new_connection && ended.is_ok() && !matches!(result, Err(OpError::Sqlite(_))) {
            self.lock().idle.push(db);
        }
        result
    }

    /// Waits for the running reads, and closes all connections.
    pub(super) async fn close(&self) {
        let all = u32::try_from(self.options.readers.max(1)).unwrap_or(u32::MAX);
        let permits = self.permits.acquire_many(all).await;
        let mut queue = self.lock();
        self.permits.close();
        // Reads that are still queued are dropped, and their callers get [`StoreError::Closed`].
        *queue = ReadQueue::default();
        drop(permits);
    }
}
