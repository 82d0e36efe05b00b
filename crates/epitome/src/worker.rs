//! The background worker: lease, plan, call a model, inspect, commit.
//!
//! A worker leases one due slot at a time ([`crate::store::Store::lease`]), writes its due summaries in order, and releases
//! it. While a model writes, the worker occupies no connection and no lock; it only renews the lease. Every commit carries
//! the lease's fencing token. So a worker that stalled, or whose base was undone, changes nothing.
//!
//! Workers need no notification: they poll the store. A notification only shortens the wait.

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
use crate::store::{Lease, Load, SessionKey, SlotRow, Want};
use crate::time::millis_between;

mod commit;
mod job;

use crate::seats::SURELY_TAKEN;
use job::Job;

/// Runs until `stop` is set, or until the last engine is dropped.
pub(crate) async fn run(shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let mut jobs = Jobs { shared: &shared, running: JoinSet::new(), held: HashMap::new() };
    // The workspace that was served last: other workspaces are served before it.
    let mut last: Option<Arc<str>> = None;
    let places = places(shared.pace.workers);
    while !*stop.borrow() {
        // Read before the store is queried, so that a slot which becomes ready in between is not missed.
        let next_look = shared.models.seats.next_look();
        while jobs.running.len() < places {
            // Created before the slot is leased, so that a due slot is never seen as neither waiting nor in progress.
            let working = Working::new(&shared);
            let full = full(shared.pace.workers, jobs.held.values().map(|lease| &lease.key.workspace));
            let want = Want { after: last.clone(), full, ..want(&shared, None) };
            let asked = Monotonic::now();
            let leased = shared.store.lease(want).await;
            *lock(&shared.health.blind) = leased.as_ref().err().cloned();
            match leased {
                Ok(Some(lease)) => {
                    last = Some(Arc::clone(&lease.key.workspace));
                    jobs.start(working, lease, asked);
                }
                Ok(None) => {
                    drop(working);
                    shared.tell_moved();
                    break;
                }
                Err(_) => break,
            }
        }
        let free = jobs.running.len() < places;
        tokio::select! {
            () = shared.signals.wake.notified(), if free => {}
            () = shared.store.nudged(), if free => {}
            () = sleep(shared.pace.poll) => {}
            () = sleep_until(next_look.unwrap_or_else(Monotonic::now).into()), if free && next_look.is_some() => {}
            Some(ended) = jobs.running.join_next_with_id() => jobs.ended(ended),
            // The last engine is dropped: no caller waits for the summaries in progress.
            told = stop.changed() => if told.is_err() { return jobs.finish(Duration::ZERO).await },
        }
    }
    jobs.finish(shared.pace.grace).await;
}

/// Returns how many summaries are written at the same time in total. One workspace, or one model, may use `workers` of these
/// places; another third is reserved for others, so that slow ones do not delay them. With one worker there is one place.
fn places(workers: usize) -> usize {
    if workers > 1 { workers.saturating_add(workers.div_ceil(3)) } else { workers }
}

/// Returns how many places one workspace may use, and how many may wait for one model; `None` if there is only one place.
fn share(workers: usize) -> Option<usize> {
    (workers > 1).then_some(workers)
}

/// Returns the workspaces that use all the places they may. `held` contains one entry per place in use.
fn full<'a>(workers: usize, held: impl Iterator<Item = &'a Arc<str>>) -> HashSet<Arc<str>> {
    let Some(most) = share(workers) else { return HashSet::new() };
    let mut counts: HashMap<&Arc<str>, usize> = HashMap::new();
    for workspace in held {
        *counts.entry(workspace).or_default() += 1;
    }
    counts.into_iter().filter(|(_, count)| *count >= most).map(|(name, _)| Arc::clone(name)).collect()
}

/// Appends per second above which the worker pauses between summaries.
const MANY: f64 = 200.0;

/// How long the worker pauses during many appends: this many times the duration of the last summary.
const RESTS: u32 = 7;

/// Longest pause. A summary that a remote model wrote took long, but cost this machine little.
const LONGEST_REST: Duration = Duration::from_millis(150);

/// Returns how long to leave the processors to requests, after a summary that took `took` and during which there were
/// `appends` appends. What becomes due in the pause is merged into one summary: less to write, and nothing is left out.
fn rest(took: Duration, appends: u64) -> Duration {
    match appends as f64 > MANY * took.as_secs_f64() {
        true => took.saturating_mul(RESTS).min(LONGEST_REST),
        false => Duration::ZERO,
    }
}

type Ended = Result<(Id, Result<(), Error>), tokio::task::JoinError>;

/// The summaries in progress in the background, and their leases.
struct Jobs<'a> {
    shared: &'a Arc<Shared>,
    running: JoinSet<Result<(), Error>>,
    held: HashMap<Id, Lease>,
}

impl Jobs<'_> {
    fn start(&mut self, working: Working, lease: Lease, asked: Monotonic) {
        let (shared, taken) = (Arc::clone(self.shared), lease.clone());
        let started = self.running.spawn(async move {
            let (key, begun) = (taken.key.clone(), Instant::now());
            let before = shared.activity.appends.load(Ordering::Relaxed);
            if working.work(taken, asked, share(shared.pace.workers)).await? > 0 {
                prepare(&shared, &key).await;
            }
            let meanwhile = shared.activity.appends.load(Ordering::Relaxed).saturating_sub(before);
            sleep(rest(begun.elapsed(), meanwhile)).await;
            Ok(())
        });
        self.held.insert(started.id(), lease);
    }

    fn ended(&mut self, ended: Ended) {
        let (id, trouble) = match ended {
            Ok((id, result)) => (id, result.err().map(|error| error.to_string())),
            // Its lease expires by itself, and then a worker retries.
            Err(panicked) => (panicked.id(), Some("a summary task panicked; the worker retries".to_owned())),
        };
        self.held.remove(&id);
        if trouble.is_some() {
            *lock(&self.shared.health.trouble) = trouble;
        }
        self.shared.tell_moved();
    }

    /// Waits for the summaries in progress, then releases the leases of the rest.
    async fn finish(mut self, grace: Duration) {
        self.join(grace).await;
        let unfinished: Vec<Lease> = self.held.values().cloned().collect();
        // The tasks record what they spent.
        self.shared.signals.give_up.send_replace(true);
        self.join(LAST_WORDS).await;
        self.running.shutdown().await;
        for lease in unfinished {
            // If this fails, the lease expires by itself.
            let _ = Job::new(self.shared, lease, Monotonic::now(), None).give_back().await;
        }
    }

    async fn join(&mut self, most: Duration) {
        let until = Instant::now() + most;
        while let Ok(Some(ended)) = timeout_at(until, self.running.join_next_with_id()).await {
            self.ended(ended);
        }
    }
}

/// How long tasks may take to record what they spent, after they were stopped.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Writes what is due now, in one session or in all, and waits for what other tasks of this engine are writing.
pub(crate) async fn until_idle(shared: &Arc<Shared>, session: Option<SessionKey>) -> Result<(), Error> {
    let mut moved = shared.signals.moved.subscribe();
    loop {
        let given_back = loop {
            // Read before the lease: a task that released a slot since then may have left some of its work.
            let given_back = shared.activity.given_back.load(Ordering::Acquire);
            // Created before the slot is leased, so that a due slot is never seen as neither waiting nor in progress.
            let working = Working::new(shared);
            let asked = Monotonic::now();
            match shared.store.lease(want(shared, session.clone())).await? {
                Some(lease) => drop(working.work(lease, asked, None).await?),
                None => break given_back,
            }
        };
        moved.mark_unchanged();
        if others_work(shared, session.as_ref()).await? {
            let _ = tokio::time::timeout(shared.pace.poll, moved.changed()).await;
        } else if shared.activity.given_back.load(Ordering::Acquire) == given_back {
            return Ok(());
        }
    }
}

/// Returns whether a worker has leased a slot of the session, or, without a session, whether this engine has leased any.
/// Slots that were set aside because too many workers wait for the same model count too.
async fn others_work(shared: &Shared, session: Option<&SessionKey>) -> Result<bool, Error> {
    let Some(key) = session else {
        return Ok(shared.activity.working.load(Ordering::Acquire) > 0 || shared.models.seats.any_aside());
    };
    let standing = shared.store.standing(key, Load::default()).await?;
    let held = |until| until > standing.now;
    let aside = |then| Duration::from_millis(millis_between(then, standing.now)) < SURELY_TAKEN;
    let busy = |row: &SlotRow| row.work.until.is_some_and(held) || row.work.aside.is_some_and(aside);
    Ok(standing.slots.iter().any(|row| row.state.due.is_some() && busy(row)))
}

fn want(shared: &Shared, session: Option<SessionKey>) -> Want {
    Want {
        owner: shared.owner.clone(),
        hold: shared.pace.lease,
        session,
        except: shared.caches.not_ours(),
        after: None,
        full: Default::default(),
    }
}

/// Counts the tasks that write summaries, and how often a slot was released.
struct Working {
    shared: Arc<Shared>,
    leased: bool,
}

impl Working {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.activity.working.fetch_add(1, Ordering::AcqRel);
        Self { shared: Arc::clone(shared), leased: false }
    }

    /// Works on one slot whose lease was requested at `asked`: as one of several workers, or in a caller's task. Returns how
    /// many summaries were stored.
    async fn work(mut self, lease: Lease, asked: Monotonic, share: Option<usize>) -> Result<usize, Error> {
        self.leased = true;
        Job::new(&self.shared, lease, asked, share).run().await
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        // Before the task is no longer counted: a reader that sees no task in progress must see this count too.
        self.shared.activity.given_back.fetch_add(u64::from(self.leased), Ordering::AcqRel);
        self.shared.activity.working.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_writes_summaries_rests_only_while_others_are_many() {
        let millis = Duration::from_millis;
        assert_eq!(rest(millis(5), 0), Duration::ZERO);
        assert_eq!(rest(millis(5), 1), Duration::ZERO);
        assert_eq!(rest(millis(5), 2), millis(35));
        assert_eq!(rest(millis(100), 500), LONGEST_REST);
        assert_eq!(rest(Duration::from_secs(60), 12_000), Duration::ZERO);
        assert_eq!(rest(Duration::from_secs(60), 12_001), LONGEST_REST);
    }

    #[test]
    fn nobody_holds_all_places_where_there_are_two_workers() {
        assert_eq!([0, 1, 2, 3, 4, 16].map(places), [0, 1, 3, 4, 6, 22]);
        assert_eq!((share(0), share(1), share(2)), (None, None, Some(2)));
        assert!((2..1_000).all(|workers| share(workers).is_some_and(|most| most < places(workers))));
    }

    #[test]
    fn a_workspace_is_full_when_it_holds_its_share() {
        let names: Vec<Arc<str>> = ["a", "b", "a", "a"].map(Arc::from).to_vec();
        let full_of = |workers| full(workers, names.iter()).into_iter().collect::<Vec<_>>();
        assert_eq!(full_of(3), [Arc::from("a")]);
        assert_eq!(full_of(4), [] as [Arc<str>; 0]);
        // With one worker, any workspace may use it.
        assert_eq!(full_of(1), [] as [Arc<str>; 0]);
    }
}
