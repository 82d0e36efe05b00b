//! Runs all writes on one thread (group commit).
//!
//! A caller sends a job and waits. The thread takes the jobs that are waiting, runs them in one transaction and makes
//! them durable with one sync, so that many small writes cost little more than one. Each job has its own savepoint: a
//! job that fails is rolled back alone. A job is answered only after the whole transaction is durable.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use super::super::error::StoreError;
use super::chores;
use super::error::{Outcome, Trouble, refused};
use super::known::Known;
use super::options::{SqliteOptions, WriteStage};

/// Maximum number of jobs in the queue. Further callers wait for a permit, without blocking a thread.
const QUEUE: usize = 1_024;

/// Maximum number of jobs in one transaction, so that the first job does not wait long for the last.
const MOST_TOGETHER: usize = 128;

/// Pause between two maintenance steps while no job arrives, because other processes may want to write.
const BETWEEN: Duration = Duration::from_millis(2);

/// Longest time that a transaction waits for more jobs before it is committed.
const MOST_PATIENCE: Duration = Duration::from_millis(1);

/// Interval between maintenance steps under constant load.
const AT_LEAST_EVERY: Duration = Duration::from_secs(1);

/// Interval between checks for maintenance work after a check found none. Other processes may have left some.
const WHEN_QUIET: Duration = Duration::from_secs(60);

/// An operation on a connection.
pub(super) type Work = Box<dyn FnOnce(&mut Connection) -> Outcome<()> + Send>;

/// Sends jobs to the thread.
pub(super) struct Writer {
    jobs: Mutex<Option<SyncSender<Job>>>,
    places: Arc<Semaphore>,
    /// Its sender is dropped when the thread ends.
    ended: watch::Receiver<()>,
}

impl Writer {
    /// Starts the thread, which then owns the connection.
    pub(super) fn start(
        db: Connection,
        path: PathBuf,
        options: SqliteOptions,
        known: Known,
    ) -> Result<Self, StoreError> {
        let (jobs, waiting) = sync_channel(QUEUE);
        let (ends, ended) = watch::channel(());
        let desk = Desk { db, path, options, known, rhythm: Rhythm::default() };
        let work = move || {
            desk.work(&waiting);
            drop(ends);
        };
        std::thread::Builder::new()
            .name("epitome-sqlite".to_owned())
            .spawn(work)
            .map_err(|error| StoreError::Failed { reason: format!("cannot start writer thread: {error}") })?;
        Ok(Self { jobs: Mutex::new(Some(jobs)), places: Arc::new(Semaphore::new(QUEUE)), ended })
    }

    /// Runs a job in a transaction shared with other jobs, or outside any transaction if `alone`. When this returns
    /// `Ok`, the job's writes are durable.
    pub(super) async fn run(&self, work: Work, alone: bool) -> Result<(), StoreError> {
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let (reply, answer) = oneshot::channel();
        let job = Job { work, reply, alone, place };
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
        let _ = self.places.acquire().await;
        self.places.close();
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _ = self.ended.clone().changed().await;
    }
}

/// The result of a job.
type Answer = Result<(), StoreError>;

/// A job for the thread.
struct Job {
    work: Work,
    reply: oneshot::Sender<Answer>,
    /// Whether the job runs outside any transaction.
    alone: bool,
    /// The job's queue permit, released when the job is answered.
    place: OwnedSemaphorePermit,
}

/// State of the thread.
struct Desk {
    db: Connection,
    path: PathBuf,
    options: SqliteOptions,
    known: Known,
    rhythm: Rhythm,
}

/// The number of jobs in recent transactions, and how long the last commit took. Callers that were just answered often
/// write again at once. Waiting briefly for them costs less than one sync for every few jobs.
#[derive(Clone, Copy, Default)]
struct Rhythm {
    together: usize,
    sync: Duration,
}

impl Rhythm {
    /// Returns the total time to wait for more jobs.
    fn patience(self) -> Duration {
        self.sync.min(MOST_PATIENCE)
    }

    /// Updates the expected number of jobs. It falls slowly, only after several smaller transactions.
    fn then(self, together: usize, sync: Duration) -> Self {
        Self { together: together.max(self.together * 7 / 8), sync }
    }
}

impl Desk {
    fn work(mut self, waiting: &Receiver<Job>) {
        let mut pause = self.options.index_pause;
        let mut last_chore = Instant::now();
        loop {
            match waiting.recv_timeout(pause) {
                Ok(job) if job.alone => self.alone(job),
                Ok(job) => {
                    pause = self.options.index_pause;
                    if let Some(next) = self.together(job, waiting) {
                        self.alone(next);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    pause = if self.chore() { BETWEEN } else { WHEN_QUIET };
                    last_chore = Instant::now();
                }
                Err(RecvTimeoutError::Disconnected) => return self.end(),
            }
            if last_chore.elapsed() >= AT_LEAST_EVERY.max(self.options.index_pause) && pause < WHEN_QUIET {
                self.chore();
                last_chore = Instant::now();
            }
        }
    }

    /// Writes this job and the jobs waiting behind it in one transaction. Returns the next job if it must run outside a
    /// transaction.
    fn together(&mut self, first: Job, waiting: &Receiver<Job>) -> Option<Job> {
        self.tell(WriteStage::Begun);
        let mut done = Vec::new();
        let mut outside = None;
        let mut next = Some(first);
        let rhythm = self.rhythm;
        let mut until = None;
        let mut outcome = self.say("BEGIN IMMEDIATE");
        let begun = outcome.is_ok();
        if begun {
            outcome = self.known.begin(&self.db);
        }
        while let Some(job) = next.take() {
            if job.alone {
                outside = Some(job);
                break;
            }
            let mut answer = Ok(());
            if outcome.is_ok() {
                outcome = self.one(job.work).map(|done| answer = done);
            }
            done.push((job.reply, answer, job.place));
            if done.len() < MOST_TOGETHER {
                next = waiting.try_recv().ok();
            }
            if next.is_none() && outcome.is_ok() && done.len() < rhythm.together {
                let until = *until.get_or_insert_with(|| Instant::now() + rhythm.patience());
                next = waiting.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
            }
        }
        if begun && outcome.is_ok() {
            let started = Instant::now();
            outcome = self.say("COMMIT");
            self.rhythm = rhythm.then(done.len(), started.elapsed());
        }
        if !self.db.is_autocommit() {
            let _ = self.db.execute_batch("ROLLBACK");
        }
        let outcome = outcome.map_err(|trouble| trouble.at(&self.path));
        if outcome.is_err() {
            self.known.forget_all();
        }
        self.tell(WriteStage::Ended);
        for (reply, answer, _place) in done {
            // The job's own error says more than the transaction's. The caller may be gone.
            let _ = reply.send(answer.and(outcome.clone()));
        }
        outside
    }

    /// Runs a job in its savepoint. An `Err` means that the whole transaction has failed and ended.
    fn one(&mut self, work: Work) -> Outcome<Answer> {
        self.say("SAVEPOINT job")?;
        let answer = self.run(work);
        if self.db.is_autocommit() {
            // Errors like a full disk roll back the whole transaction, not only the savepoint. Then every job fails for
            // this reason.
            let unknown = StoreError::Failed { reason: "the transaction was rolled back".to_owned() };
            return Err(Trouble::Said(answer.err().unwrap_or(unknown)));
        }
        if answer.is_err() {
            self.known.forget_all();
            self.say("ROLLBACK TO job")?;
        }
        self.say("RELEASE job")?;
        Ok(answer)
    }

    /// Runs an operation. If it fails, the caller must roll back its writes.
    fn run(&mut self, work: Work) -> Answer {
        // A panic in one caller's operation must not stop the writer for all others.
        let answer = catch_unwind(AssertUnwindSafe(|| work(&mut self.db)));
        answer
            .unwrap_or_else(|_| Err(refused("a write operation panicked")))
            .map_err(|trouble| trouble.at(&self.path))
    }

    /// Runs a frequent statement without parameters.
    fn say(&self, sql: &str) -> Outcome<()> {
        self.db.prepare_cached(sql)?.execute([])?;
        Ok(())
    }

    fn alone(&mut self, job: Job) {
        let answer = self.run(job.work);
        let _ = job.reply.send(answer);
    }

    /// Copies the log into the file, and closes it.
    fn end(self) {
        // If another connection still reads or writes, the log is copied only in part. That is harmless, so do not
        // wait.
        let _ = self.db.busy_timeout(Duration::ZERO);
        let _ = self.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    }

    /// Does one bounded maintenance step. Returns true if there may be more.
    fn chore(&mut self) -> bool {
        let now = (self.options.clock)();
        let more = catch_unwind(AssertUnwindSafe(|| {
            let Some(chore) = chores::find(&self.db, now)? else { return Ok(false) };
            self.known.forget_all();
            self.tell(WriteStage::Begun);
            // If another process is writing, give up at once: maintenance can wait, but jobs and a shutdown that arrive
            // meanwhile should not.
            self.db.busy_timeout(Duration::ZERO)?;
            let done = self.db.execute_batch("BEGIN IMMEDIATE").map_err(Trouble::from);
            self.db.busy_timeout(self.options.busy)?;
            let done = done.and_then(|()| chore.run(&mut self.db, &self.known, now));
            let done = done.and_then(|()| Ok(self.db.execute_batch("COMMIT")?));
            if !self.db.is_autocommit() {
                let _ = self.db.execute_batch("ROLLBACK");
            }
            self.tell(WriteStage::Ended);
            done.map(|()| true)
        }));
        // A failed step is retried later. Nothing depends on it.
        matches!(more, Ok(Ok::<_, Trouble>(true)))
    }

    fn tell(&self, stage: WriteStage) {
        if let Some(told) = &self.options.on_write {
            told(stage);
        }
    }
}
