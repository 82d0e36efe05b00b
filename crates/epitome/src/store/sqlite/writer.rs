//! Runs all writes on one thread (group commit).
//!
//! A caller sends a job and waits. The thread takes the jobs that are waiting, runs them in one transaction and makes
//! them durable with one sync, so that many small writes cost little more than one. Each job has its own savepoint: a
//! job that fails is rolled back alone. A caller gets the result only after the whole transaction is durable.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use super::super::error::StoreError;
use super::error::{OpError, OpResult, rejected};
use super::maintenance;
use super::options::{SqliteOptions, WriteStage};
use super::session_cache::SessionCache;

/// Maximum number of jobs in the queue. Further callers wait for a permit, without blocking a thread.
const MAX_QUEUED: usize = 1_024;

/// Maximum number of jobs in one transaction, so that the first job does not wait long for the last.
const MAX_GROUP: usize = 128;

/// Pause between two maintenance steps while no job arrives, because other processes may want to write.
const STEP_PAUSE: Duration = Duration::from_millis(2);

/// Longest time that a transaction waits for more jobs before it is committed.
const MAX_GROUP_WAIT: Duration = Duration::from_millis(1);

/// Interval between maintenance steps under constant load.
const MAX_MAINTENANCE_INTERVAL: Duration = Duration::from_secs(1);

/// Interval between checks for maintenance work after a check found none. Work can appear later, because other
/// processes write to the file too.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// An operation on a connection.
pub(super) type ConnectionOp = Box<dyn FnOnce(&mut Connection) -> OpResult<()> + Send>;

/// Sends jobs to the writer's thread.
pub(super) struct WriterHandle {
    jobs: Mutex<Option<SyncSender<WriteJob>>>,
    permits: Arc<Semaphore>,
    /// Signals the end of the thread. When the thread ends, it drops the sender of this channel.
    ended: watch::Receiver<()>,
}

impl WriterHandle {
    /// Starts the thread, which then owns the connection.
    pub(super) fn start(
        db: Connection,
        path: PathBuf,
        options: SqliteOptions,
        cache: SessionCache,
    ) -> Result<Self, StoreError> {
        let (jobs, waiting) = sync_channel(MAX_QUEUED);
        let (ends, ended) = watch::channel(());
        let thread = WriterThread { db, path, options, cache, estimate: GroupEstimate::default() };
        let work = move || {
            thread.process(&waiting);
            drop(ends);
        };
        std::thread::Builder::new().name("epitome-sqlite".to_owned()).spawn(work).map_err(|error| {
            StoreError::Failed { reason: format!("the writer thread cannot be started: {error}") }
        })?;
        Ok(Self { jobs: Mutex::new(Some(jobs)), permits: Arc::new(Semaphore::new(MAX_QUEUED)), ended })
    }

    /// Runs a job in a transaction shared with other jobs, or outside any transaction if `alone`. When this returns
    /// `Ok`, the job's writes are durable.
    pub(super) async fn run(&self, work: ConnectionOp, alone: bool) -> Result<(), StoreError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let (reply, answer) = oneshot::channel();
        let job = WriteJob { work, reply, alone, permit };
        {
            let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            // The channel has one position per permit, so this never blocks.
            jobs.as_ref().ok_or(StoreError::Closed)?.send(job).map_err(|_| StoreError::Closed)?;
        }
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Ends the thread after it has written all waiting jobs, and waits until it has closed the file.
    pub(super) async fn close(&self) {
        // Permits are granted in order, so this waits for all earlier callers.
        let _ = self.permits.acquire().await;
        self.permits.close();
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _ = self.ended.clone().changed().await;
    }
}

/// The result of a job, as its caller gets it.
type JobResult = Result<(), StoreError>;

/// A job for the thread.
struct WriteJob {
    work: ConnectionOp,
    reply: oneshot::Sender<JobResult>,
    /// Whether the job runs outside any transaction.
    alone: bool,
    /// The job's queue permit, released when the job is answered.
    permit: OwnedSemaphorePermit,
}

/// State of the thread.
struct WriterThread {
    db: Connection,
    path: PathBuf,
    options: SqliteOptions,
    cache: SessionCache,
    estimate: GroupEstimate,
}

/// The number of jobs in recent transactions, and how long the last commit took. Callers that were just answered often
/// write again at once. So a transaction waits briefly until it has the expected number of jobs, which takes less time
/// than an additional sync.
#[derive(Clone, Copy, Default)]
struct GroupEstimate {
    jobs: usize,
    sync: Duration,
}

impl GroupEstimate {
    /// Returns the total time to wait for more jobs.
    fn max_wait(self) -> Duration {
        self.sync.min(MAX_GROUP_WAIT)
    }

    /// Updates the expected number of jobs. The number decreases slowly, only after several smaller transactions.
    fn update(self, jobs: usize, sync: Duration) -> Self {
        Self { jobs: jobs.max(self.jobs * 7 / 8), sync }
    }
}

impl WriterThread {
    fn process(mut self, waiting: &Receiver<WriteJob>) {
        let mut pause = self.options.index_pause;
        let mut last_maintenance = Instant::now();
        loop {
            match waiting.recv_timeout(pause) {
                Ok(job) if job.alone => self.run_alone(job),
                Ok(job) => {
                    pause = self.options.index_pause;
                    if let Some(next) = self.write_group(job, waiting) {
                        self.run_alone(next);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    pause = if self.maintain() { STEP_PAUSE } else { IDLE_CHECK_INTERVAL };
                    last_maintenance = Instant::now();
                }
                Err(RecvTimeoutError::Disconnected) => return self.shut_down(),
            }
            if last_maintenance.elapsed() >= MAX_MAINTENANCE_INTERVAL.max(self.options.index_pause)
                && pause < IDLE_CHECK_INTERVAL
            {
                self.maintain();
                last_maintenance = Instant::now();
            }
        }
    }

    /// Writes this job and the jobs waiting behind it in one transaction. Returns the next job if it must run outside a
    /// transaction.
    fn write_group(&mut self, first: WriteJob, waiting: &Receiver<WriteJob>) -> Option<WriteJob> {
        self.notify(WriteStage::Begun);
        let mut done = Vec::new();
        let mut outside = None;
        let mut next = Some(first);
        let estimate = self.estimate;
        let mut until = None;
        let mut outcome = self.execute("BEGIN IMMEDIATE");
        let begun = outcome.is_ok();
        if begun {
            outcome = self.cache.begin(&self.db);
        }
        while let Some(job) = next.take() {
            if job.alone {
                outside = Some(job);
                break;
            }
            let mut answer = Ok(());
            if outcome.is_ok() {
                outcome = self.run_in_savepoint(job.work).map(|done| answer = done);
            }
            done.push((job.reply, answer, job.permit));
            if done.len() < MAX_GROUP {
                next = waiting.try_recv().ok();
            }
            if next.is_none() && outcome.is_ok() && done.len() < estimate.jobs {
                let until = *until.get_or_insert_with(|| Instant::now() + estimate.max_wait());
                next = waiting.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
            }
        }
        if begun && outcome.is_ok() {
            let started = Instant::now();
            outcome = self.execute("COMMIT");
            self.estimate = estimate.update(done.len(), started.elapsed());
        }
        if !self.db.is_autocommit() {
            let _ = self.db.execute_batch("ROLLBACK");
        }
        let outcome = outcome.map_err(|error| error.into_store_error(&self.path));
        if outcome.is_err() {
            self.cache.clear();
        }
        self.notify(WriteStage::Ended);
        for (reply, answer, _permit) in done {
            // A job's own error is more specific than the transaction's error. Sending fails if the caller has stopped
            // waiting.
            let _ = reply.send(answer.and(outcome.clone()));
        }
        outside
    }

    /// Runs a job in its savepoint. The outer `Err` means that the whole transaction has failed and ended.
    fn run_in_savepoint(&mut self, work: ConnectionOp) -> OpResult<JobResult> {
        self.execute("SAVEPOINT job")?;
        let answer = self.run(work);
        if self.db.is_autocommit() {
            // An error such as a full disk rolls back the whole transaction, not only the savepoint. All jobs of the
            // transaction then fail with this error.
            let unknown = StoreError::Failed { reason: "the transaction was rolled back".to_owned() };
            return Err(OpError::Final(answer.err().unwrap_or(unknown)));
        }
        if answer.is_err() {
            self.cache.clear();
            self.execute("ROLLBACK TO job")?;
        }
        self.execute("RELEASE job")?;
        Ok(answer)
    }

    /// Runs an operation. If it fails, the caller must roll back its writes.
    fn run(&mut self, work: ConnectionOp) -> JobResult {
        // A panic in one caller's operation must not stop the writer for all others.
        let answer = catch_unwind(AssertUnwindSafe(|| work(&mut self.db)));
        answer
            .unwrap_or_else(|_| Err(rejected("a write operation panicked")))
            .map_err(|error| error.into_store_error(&self.path))
    }

    /// Runs a frequent statement without parameters.
    fn execute(&self, sql: &str) -> OpResult<()> {
        self.db.prepare_cached(sql)?.execute([])?;
        Ok(())
    }

    fn run_alone(&mut self, job: WriteJob) {
        let answer = self.run(job.work);
        let _ = job.reply.send(answer);
    }

    /// Copies SQLite's log into the file, and closes the file.
    fn shut_down(self) {
        // If another connection still reads or writes, the log is copied only in part. That is harmless, so do not
        // wait.
        let _ = self.db.busy_timeout(Duration::ZERO);
        let _ = self.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    }

    /// Does one bounded maintenance step. Returns true if there may be more work.
    fn maintain(&mut self) -> bool {
        let now = (self.options.clock)();
        let more = catch_unwind(AssertUnwindSafe(|| {
            let Some(step) = maintenance::next_step(&self.db, now)? else { return Ok(false) };
            self.cache.clear();
            self.notify(WriteStage::Begun);
            // If another process is writing, give up at once. Maintenance can wait, but a job or a shutdown that
            // arrives meanwhile must not wait for maintenance.
            self.db.busy_timeout(Duration::ZERO)?;
            let done = self.db.execute_batch("BEGIN IMMEDIATE").map_err(OpError::from);
            self.db.busy_timeout(self.options.busy)?;
            let done = done.and_then(|()| step.run(&mut self.db, &self.cache, now));
            let done = done.and_then(|()| Ok(self.db.execute_batch("COMMIT")?));
            if !self.db.is_autocommit() {
                let _ = self.db.execute_batch("ROLLBACK");
            }
            self.notify(WriteStage::Ended);
            done.map(|()| true)
        }));
        // A failed step is retried later. Nothing depends on it.
        matches!(more, Ok(Ok::<_, OpError>(true)))
    }

    fn notify(&self, stage: WriteStage) {
        if let Some(on_write) = &self.options.on_write {
            on_write(stage);
        }
    }
}
