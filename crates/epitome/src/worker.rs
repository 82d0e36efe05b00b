//! The background worker. It leases a slot, plans the summary, calls a model, inspects the summary and commits it.
//!
//! A worker leases one due slot at a time ([`crate::store::Store::lease`]), writes the due summaries of the slot in
//! order, and releases the slot. While a model writes, the worker uses no connection and no lock, and only renews the
//! lease. Every commit carries the lease's fencing token. If the worker has lost the lease, or if the slot's summary
//! was undone in the meantime, the token is outdated and the store rejects the commit.
//!
//! Workers need no notification, because they poll the store. After a notification, a worker polls at once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant as Monotonic};

use tokio::sync::watch;
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::context::prepare;
use crate::error::Error;
use crate::lock::lock;
use crate::shared::Shared;
use crate::store::{Lease, LeaseRequest, Load, SessionKey, SlotRow};
use crate::time::millis_between;

mod commit;
mod job;

use crate::model_permits::DEFERRED_GRACE;
use job::Job;

/// Runs until `stop` is set, or until the last clone of the engine is dropped.
pub(crate) async fn run(shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let mut jobs = Jobs { shared: &shared, running: JoinSet::new(), leases: HashMap::new() };
    // The workspace whose slot was leased last. Slots of other workspaces are leased before the next slot of this
    // workspace.
    let mut last: Option<Arc<str>> = None;
    let max_jobs = max_jobs(shared.pace.workers);
    while !*stop.borrow() {
        // This time is read before the store is queried, so that a slot that becomes ready in between is not missed.
        let next_deferred = shared.models.permits.next_deferred();
        while jobs.running.len() < max_jobs {
            // The task counts as active before the slot is leased. So a due slot always counts as either waiting or in
            // progress.
            let active = ActiveTask::new(&shared);
            let full =
                full_workspaces(shared.pace.workers, jobs.leases.values().map(|lease| &lease.key.workspace));
            let request =
                LeaseRequest { after: last.clone(), full_workspaces: full, ..lease_request(&shared, None) };
            let requested = Monotonic::now();
            let leased = shared.store.lease(request).await;
            *lock(&shared.health.lease_error) = leased.as_ref().err().cloned();
            match leased {
                Ok(Some(lease)) => {
                    last = Some(Arc::clone(&lease.key.workspace));
                    jobs.start(active, lease, requested);
                }
                Ok(None) => {
                    drop(active);
                    shared.notify_slot_changed();
                    break;
                }
                Err(_) => break,
            }
        }
        let free = jobs.running.len() < max_jobs;
        tokio::select! {
            () = shared.signals.wake.notified(), if free => {}
            () = shared.store.wait_for_hint(), if free => {}
            () = sleep(shared.pace.poll) => {}
            () = sleep_until(next_deferred.unwrap_or_else(Monotonic::now).into()), if free && next_deferred.is_some() => {}
            Some(ended) = jobs.running.join_next_with_id() => jobs.ended(ended).await,
            // The last clone of the engine was dropped, so no caller waits for the summaries in progress.
            changed = stop.changed() => if changed.is_err() { return jobs.finish(Duration::ZERO).await },
        }
    }
    jobs.finish(shared.pace.grace).await;
}

/// Returns the maximum number of jobs at the same time: `workers` plus a third. One workspace or one model may use at
/// most `workers` jobs. The other jobs are reserved for other workspaces and models, so that a slow model does not
/// delay them. With one worker there is one job.
fn max_jobs(workers: usize) -> usize {
    if workers > 1 { workers.saturating_add(workers.div_ceil(3)) } else { workers }
}

/// Returns the maximum number of jobs of one workspace, which is also the maximum number of jobs that wait for one
/// model. `None` if there is no such limit, because at most one job runs.
fn share(workers: usize) -> Option<usize> {
    (workers > 1).then_some(workers)
}

/// Returns the workspaces that have their maximum number of jobs. `jobs` contains the workspace of each job.
fn full_workspaces<'a>(workers: usize, jobs: impl Iterator<Item = &'a Arc<str>>) -> HashSet<Arc<str>> {
    let Some(most) = share(workers) else { return HashSet::new() };
    let mut counts: HashMap<&Arc<str>, usize> = HashMap::new();
    for workspace in jobs {
        *counts.entry(workspace).or_default() += 1;
    }
    counts.into_iter().filter(|(_, count)| *count >= most).map(|(name, _)| Arc::clone(name)).collect()
}

/// Appends per second above which the worker pauses between summaries.
const BUSY_APPENDS_PER_SECOND: f64 = 200.0;

/// The pause during many appends, as a multiple of the time that the last summary took.
const PAUSE_FACTOR: u32 = 7;

/// Longest pause. Without this limit, the pause after a summary by a slow remote model would be long, although the call
/// used little processor time.
const MAX_PAUSE: Duration = Duration::from_millis(150);

/// Returns how long the worker pauses after a summary, to leave the processors to requests. `took` is how long the
/// summary took, and `appends` is the number of appends in this time. If the trigger fires many times during the pause,
/// one summary can handle several trigger events (`catch_up`).
fn pause_after(took: Duration, appends: u64) -> Duration {
    match appends as f64 > BUSY_APPENDS_PER_SECOND * took.as_secs_f64() {
        true => took.saturating_mul(PAUSE_FACTOR).min(MAX_PAUSE),
        false => Duration::ZERO,
    }
}

type Ended = Result<(Id, Result<(), Error>), tokio::task::JoinError>;

/// The summaries in progress in the background, and their leases.
struct Jobs<'a> {
    shared: &'a Arc<Shared>,
    running: JoinSet<Result<(), Error>>,
    leases: HashMap<Id, Lease>,
}

impl Jobs<'_> {
    fn start(&mut self, active: ActiveTask, lease: Lease, requested: Monotonic) {
        let (shared, leased) = (Arc::clone(self.shared), lease.clone());
        let task = self.running.spawn(async move {
            let (key, started) = (leased.key.clone(), Instant::now());
            let before = shared.activity.appends.load(Ordering::Relaxed);
            if active.work(leased, requested, share(shared.pace.workers)).await? > 0 {
                prepare(&shared, &key).await;
            }
            let appends = shared.activity.appends.load(Ordering::Relaxed).saturating_sub(before);
            sleep(pause_after(started.elapsed(), appends)).await;
            Ok(())
        });
        self.leases.insert(task.id(), lease);
    }

    async fn ended(&mut self, ended: Ended) {
        let (id, panicked) = match &ended {
            Ok((id, _)) => (*id, false),
            Err(error) => (error.id(), error.is_panic()),
        };
        let lease = self.leases.remove(&id);
        if let Some(lease) = lease.filter(|_| panicked) {
            let slot = self.shared.log_hash(&lease).await;
            tracing::error!(slot, "a summary task panicked; a worker retries when the lease expires");
        }
        let problem = match ended {
            Ok((_, result)) => result.err().map(|error| error.to_string()),
            Err(_) => Some("a summary task panicked; a worker retries when the lease expires".to_owned()),
        };
        if problem.is_some() {
            *lock(&self.shared.health.worker_problem) = problem;
        }
        self.shared.notify_slot_changed();
    }

    /// Waits up to `grace` for the summaries in progress. Then it aborts the unfinished summaries and releases their
    /// leases.
    async fn finish(mut self, grace: Duration) {
        self.join(grace).await;
        let unfinished: Vec<Lease> = self.leases.values().cloned().collect();
        // The aborted tasks record the cost of their model calls. The second `join` waits until they have done so.
        self.shared.signals.abort.send_replace(true);
        self.join(RECORD_TIMEOUT).await;
        self.running.shutdown().await;
        for lease in unfinished {
            // If this fails, the lease expires by itself.
            let _ = Job::new(self.shared, lease, Monotonic::now(), None).release_unchanged().await;
        }
    }

    async fn join(&mut self, timeout: Duration) {
        let until = Instant::now() + timeout;
        while let Ok(Some(ended)) = timeout_at(until, self.running.join_next_with_id()).await {
            self.ended(ended).await;
        }
    }
}

/// How long the shutdown waits until aborted tasks have recorded the cost of their model calls.
const RECORD_TIMEOUT: Duration = Duration::from_secs(1);

/// Writes the summaries that are due now, in one session, or in all sessions if `session` is `None`. Also waits for the
/// summaries that other tasks of this engine are writing.
pub(crate) async fn until_idle(shared: &Arc<Shared>, session: Option<SessionKey>) -> Result<(), Error> {
    let mut slot_changed = shared.signals.slot_changed.subscribe();
    loop {
        let released = loop {
            // The counter is read before a slot is leased. If another task releases a slot after this, the slot may
            // still be due. The counter then shows the release, and the store is queried again.
            let released = shared.activity.released.load(Ordering::Acquire);
            // The task counts as active before the slot is leased. So a due slot always counts as either waiting or in
            // progress.
            let active = ActiveTask::new(shared);
            let requested = Monotonic::now();
            match shared.store.lease(lease_request(shared, session.clone())).await? {
                Some(lease) => drop(active.work(lease, requested, None).await?),
                None => break released,
            }
        };
        slot_changed.mark_unchanged();
        if others_are_working(shared, session.as_ref()).await? {
            let _ = tokio::time::timeout(shared.pace.poll, slot_changed.changed()).await;
        } else if shared.activity.released.load(Ordering::Acquire) == released {
            return Ok(());
        }
    }
}

/// Returns whether summaries of the session are in progress in any engine. Without a session, returns whether summaries
/// are in progress in this engine. A slot that was set aside because too many workers wait for the same model also
/// counts as in progress.
async fn others_are_working(shared: &Shared, session: Option<&SessionKey>) -> Result<bool, Error> {
    let Some(key) = session else {
        return Ok(
            shared.activity.working.load(Ordering::Acquire) > 0 || shared.models.permits.has_deferred()
        );
    };
    let state = shared.store.session_state(key, Load::default()).await?;
    let leased = |until| until > state.now;
    let deferred = |until| Duration::from_millis(millis_between(until, state.now)) < DEFERRED_GRACE;
    let busy = |row: &SlotRow| row.work.until.is_some_and(leased) || row.work.aside.is_some_and(deferred);
    Ok(state.slots.iter().any(|row| row.state.due.is_some() && busy(row)))
}

fn lease_request(shared: &Shared, session: Option<SessionKey>) -> LeaseRequest {
    LeaseRequest {
        owner: shared.owner.clone(),
        duration: shared.pace.lease,
        session,
        excluded: shared.caches.foreign_slots(),
        after: None,
        full_workspaces: Default::default(),
    }
}

/// Counts a task as active until this value is dropped. If the task has leased a slot, dropping the value also counts
/// the slot as released.
struct ActiveTask {
    shared: Arc<Shared>,
    leased: bool,
}

impl ActiveTask {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.activity.working.fetch_add(1, Ordering::AcqRel);
        Self { shared: Arc::clone(shared), leased: false }
    }

    /// Works on one slot whose lease was requested at `requested`. `share` is how many workers may wait for one model;
    /// `None` in a caller's task. Returns how many summaries were stored.
    async fn work(
        mut self,
        lease: Lease,
        requested: Monotonic,
        share: Option<usize>,
    ) -> Result<usize, Error> {
        self.leased = true;
        Job::new(&self.shared, lease, requested, share).run().await
    }
}

impl Drop for ActiveTask {
    fn drop(&mut self) {
        // The release is counted first. So a reader that sees no active task also sees the new number of releases.
        self.shared.activity.released.fetch_add(u64::from(self.leased), Ordering::AcqRel);
        self.shared.activity.working.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worker_pauses_only_during_many_appends() {
        let millis = Duration::from_millis;
        assert_eq!(pause_after(millis(5), 0), Duration::ZERO);
        assert_eq!(pause_after(millis(5), 1), Duration::ZERO);
        assert_eq!(pause_after(millis(5), 2), millis(35));
        assert_eq!(pause_after(millis(100), 500), MAX_PAUSE);
        assert_eq!(pause_after(Duration::from_secs(60), 12_000), Duration::ZERO);
        assert_eq!(pause_after(Duration::from_secs(60), 12_001), MAX_PAUSE);
    }

    #[test]
    fn one_workspace_cannot_have_all_jobs() {
        assert_eq!([0, 1, 2, 3, 4, 16].map(max_jobs), [0, 1, 3, 4, 6, 22]);
        assert_eq!((share(0), share(1), share(2)), (None, None, Some(2)));
        assert!((2..1_000).all(|workers| share(workers).is_some_and(|most| most < max_jobs(workers))));
    }

    #[test]
    fn a_workspace_is_full_when_it_has_its_maximum_number_of_jobs() {
        let names: Vec<Arc<str>> = ["a", "b", "a", "a"].map(Arc::from).to_vec();
        let full_of = |workers| full_workspaces(workers, names.iter()).into_iter().collect::<Vec<_>>();
        assert_eq!(full_of(3), [Arc::from("a")]);
        assert_eq!(full_of(4), [] as [Arc<str>; 0]);
        // With one worker, any workspace may use it.
        assert_eq!(full_of(1), [] as [Arc<str>; 0]);
    }
}
