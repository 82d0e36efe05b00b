//! The one thread that writes.
//!
//! Whoever wants to write hands in a job and waits. The thread takes the jobs that are waiting, runs them in
//! one transaction and makes them durable with one sync, so that many small writes cost little more than one.
//! Each job has its own savepoint: one that fails is undone alone. Nobody is answered before all is durable.

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

/// So many may wait to be written. Those beyond wait for their turn to wait, without holding a thread.
const QUEUE: usize = 1_024;

/// So many become durable together at most, so that the first need not wait long for the last.
const MOST_TOGETHER: usize = 128;

/// Between one chore and the next, while nobody writes: other processes may want to.
const BETWEEN: Duration = Duration::from_millis(2);

/// Nobody is waited for longer than this before a transaction is made durable.
const MOST_PATIENCE: Duration = Duration::from_millis(1);

/// Under constant load, chores get their turn this often.
const AT_LEAST_EVERY: Duration = Duration::from_secs(1);

/// When nothing was left to do, chores are asked for this often: other processes may have left some.
const WHEN_QUIET: Duration = Duration::from_secs(60);

/// Something to be done with a connection.
pub(super) type Work = Box<dyn FnOnce(&mut Connection) -> Outcome<()> + Send>;

/// Hands jobs to the thread.
pub(super) struct Writer {
    jobs: Mutex<Option<SyncSender<Job>>>,
    places: Arc<Semaphore>,
    /// Fails once the thread has ended.
    ended: watch::Receiver<()>,
}

impl Writer {
    /// Starts the thread, which owns the connection from then on.
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
            .map_err(|error| StoreError::Failed { reason: format!("no thread could be started: {error}") })?;
        Ok(Self { jobs: Mutex::new(Some(jobs)), places: Arc::new(Semaphore::new(QUEUE)), ended })
    }

    /// Runs a job in a transaction with others, or outside of any if it is to be alone. When this returns `Ok`, what it wrote is
    /// durable.
    pub(super) async fn run(&self, work: Work, alone: bool) -> Result<(), StoreError> {
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let (reply, answer) = oneshot::channel();
        let job = Job { work, reply, alone, place };
        {
            let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            // There are as many places in the channel as there are permits, so this never blocks.
            jobs.as_ref().ok_or(StoreError::Closed)?.send(job).map_err(|_| StoreError::Closed)?;
        }
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Ends the thread once what is waiting is written, and waits until it has closed the file.
    pub(super) async fn close(&self) {
        // Whoever waits for a place came before.
        let _ = self.places.acquire().await;
        self.places.close();
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _ = self.ended.clone().changed().await;
    }
}

/// What a job comes to.
type Answer = Result<(), StoreError>;

/// Something to be run by the thread.
struct Job {
    work: Work,
    reply: oneshot::Sender<Answer>,
    /// Whether it is run outside of any transaction.
    alone: bool,
    /// Its place in the queue, given back when it is answered.
    place: OwnedSemaphorePermit,
}

/// The thread's own.
struct Desk {
    db: Connection,
    path: PathBuf,
    options: SqliteOptions,
    known: Known,
    rhythm: Rhythm,
}

/// How many came together lately, and how long it took to make them durable. Those who were just answered
/// often want to write again at once: waiting a moment for them costs less than a sync for each few of them.
#[derive(Clone, Copy, Default)]
struct Rhythm {
    together: usize,
    sync: Duration,
}

impl Rhythm {
    /// For how long more are waited for, all in all.
    fn patience(self) -> Duration {
        self.sync.min(MOST_PATIENCE)
    }

    /// Fewer are expected only when fewer came several times.
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

    /// Writes this job and those that wait behind it. Gives back one that must be run outside.
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
            // Its own reason tells more than that of the whole. Whoever asked may have gone.
            let _ = reply.send(answer.and(outcome.clone()));
        }
        outside
    }

    /// Runs a job in its savepoint. An error is the whole transaction's, and its end.
    fn one(&mut self, work: Work) -> Outcome<Answer> {
        self.say("SAVEPOINT job")?;
        let answer = self.run(work);
        if self.db.is_autocommit() {
            // A full disk and the like undo everything, not the last step only, and for the same reason.
            let unknown = StoreError::Failed { reason: "the transaction was undone".to_owned() };
            return Err(Trouble::Said(answer.err().unwrap_or(unknown)));
        }
        if answer.is_err() {
            self.known.forget_all();
            self.say("ROLLBACK TO job")?;
        }
        self.say("RELEASE job")?;
        Ok(answer)
    }

    /// When it fails, what it wrote is to be undone.
    fn run(&mut self, work: Work) -> Answer {
        // One caller's fault must not take the store from all others.
        let answer = catch_unwind(AssertUnwindSafe(|| work(&mut self.db)));
        answer
            .unwrap_or_else(|_| Err(refused("a decision panicked")))
            .map_err(|trouble| trouble.at(&self.path))
    }

    /// Something without values that is said often.
    fn say(&self, sql: &str) -> Outcome<()> {
        self.db.prepare_cached(sql)?.execute([])?;
        Ok(())
    }

    fn alone(&mut self, job: Job) {
        let answer = self.run(job.work);
        let _ = job.reply.send(answer);
    }

    /// Takes the log into the file, and closes it.
    fn end(self) {
        // Whoever still reads or writes keeps it from being complete, which is no harm; nobody waits for them.
        let _ = self.db.busy_timeout(Duration::ZERO);
        let _ = self.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    }

    /// A bounded piece of what can wait. True when there may be more of it.
    fn chore(&mut self) -> bool {
        let now = (self.options.clock)();
        let more = catch_unwind(AssertUnwindSafe(|| {
            let Some(chore) = chores::find(&self.db, now)? else { return Ok(false) };
            self.known.forget_all();
            self.tell(WriteStage::Begun);
            // Where somebody else writes it can wait, and so can not those who want to write or close meanwhile.
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
        // What failed is tried again later: nothing depends on it.
        matches!(more, Ok(Ok::<_, Trouble>(true)))
    }

    fn tell(&self, stage: WriteStage) {
        if let Some(told) = &self.options.on_write {
            told(stage);
        }
    }
}
