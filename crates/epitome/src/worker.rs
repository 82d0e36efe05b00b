//! Has summaries written: lease, plan, ask, inspect, commit.
//!
//! A worker takes one due slot at a time ([`crate::store::Store::lease`]), works its firings off in order, and
//! gives it back. While a model writes, no connection and no lock is held; only the lease is renewed. What is
//! committed carries the lease's fence, so a worker that stalled, or whose ground was taken away by an undo,
//! changes nothing.
//!
//! Nobody has to tell a worker anything: it looks for itself every so often. Being told only shortens the wait.

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

/// Works until told to stop, or until the engine is gone.
pub(crate) async fn run(shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let mut jobs = Jobs { shared: &shared, running: JoinSet::new(), held: HashMap::new() };
    // The workspace that was served last: the others go before it.
    let mut last: Option<Arc<str>> = None;
    let places = places(shared.pace.workers);
    while !*stop.borrow() {
        // From before it is looked, so that whatever is not ready then is looked for when it is.
        let next_look = shared.models.seats.next_look();
        while jobs.running.len() < places {
            // From before the slot is taken on, so that nobody finds it neither due nor worked on.
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
            // The last engine is gone: nobody waits for what is being written.
            told = stop.changed() => if told.is_err() { return jobs.finish(Duration::ZERO).await },
        }
    }
    jobs.finish(shared.pace.grace).await;
}

/// How many summaries are written at a time in all. One workspace, or one model, has as many as there are workers; a third
/// more is for whoever else comes meanwhile, however slow those are. With one worker it is whose turn it is.
fn places(workers: usize) -> usize {
    if workers > 1 { workers.saturating_add(workers.div_ceil(3)) } else { workers }
}

/// How many of the places one workspace may hold, or one model keep waiting; nothing where there is only one.
fn share(workers: usize) -> Option<usize> {
    (workers > 1).then_some(workers)
}

/// The workspaces that hold as many of the places as they may. `held` names one for each that is taken.
fn full<'a>(workers: usize, held: impl Iterator<Item = &'a Arc<str>>) -> HashSet<Arc<str>> {
    let Some(most) = share(workers) else { return HashSet::new() };
    let mut counts: HashMap<&Arc<str>, usize> = HashMap::new();
    for workspace in held {
        *counts.entry(workspace).or_default() += 1;
    }
    counts.into_iter().filter(|(_, count)| *count >= most).map(|(name, _)| Arc::clone(name)).collect()
}

/// More appends a second than this are many.
const MANY: f64 = 200.0;

/// So many times as long as a summary took, whoever wrote it rests where there are many appends meanwhile.
const RESTS: u32 = 7;

/// It rests no longer than this: one that a model wrote elsewhere took long and cost this machine little.
const LONGEST_REST: Duration = Duration::from_millis(150);

/// How long to leave the processors to whoever waits for an answer, after a summary that took so long while there were so
/// many appends. What becomes due meanwhile joins, so that there is less to write and nothing is left out.
fn rest(took: Duration, appends: u64) -> Duration {
    match appends as f64 > MANY * took.as_secs_f64() {
        true => took.saturating_mul(RESTS).min(LONGEST_REST),
        false => Duration::ZERO,
    }
}

type Ended = Result<(Id, Result<(), Error>), tokio::task::JoinError>;

/// What is being written in the background, and the leases it is written under.
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
            // Its lease runs out by itself, and somebody tries again.
            Err(panicked) => (panicked.id(), Some("a summary's task panicked; it is tried again".to_owned())),
        };
        self.held.remove(&id);
        if trouble.is_some() {
            *lock(&self.shared.health.trouble) = trouble;
        }
        self.shared.tell_moved();
    }

    /// Waits for what is being written, then gives back the rest.
    async fn finish(mut self, grace: Duration) {
        self.join(grace).await;
        let unfinished: Vec<Lease> = self.held.values().cloned().collect();
        // They write down what they spent.
        self.shared.signals.give_up.send_replace(true);
        self.join(LAST_WORDS).await;
        self.running.shutdown().await;
        for lease in unfinished {
            // Where this fails the lease runs out by itself.
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

/// How long those who were told to stop may take to say what they spent.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Works off what is ready now, of one session or of all, and waits for what others of this engine work on.
pub(crate) async fn until_idle(shared: &Arc<Shared>, session: Option<SessionKey>) -> Result<(), Error> {
    let mut moved = shared.signals.moved.subscribe();
    loop {
        let given_back = loop {
            // From before it is asked: whoever held a slot then and has it no more may have left some of it.
            let given_back = shared.activity.given_back.load(Ordering::Acquire);
            // From before the slot is taken on, so that nobody finds it neither due nor worked on.
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

/// Whether somebody works on the session now, or this engine on any; or would, were there not so many already who wait for
/// the same model.
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

/// Counts who works, and how often a slot was given back.
struct Working {
    shared: Arc<Shared>,
    leased: bool,
}

impl Working {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.activity.working.fetch_add(1, Ordering::AcqRel);
        Self { shared: Arc::clone(shared), leased: false }
    }

    /// Works one slot off that was asked for at that moment, as one of several workers or in somebody's own task. Tells how
    /// many summaries were kept.
    async fn work(mut self, lease: Lease, asked: Monotonic, share: Option<usize>) -> Result<usize, Error> {
        self.leased = true;
        Job::new(&self.shared, lease, asked, share).run().await
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        // Before it is no longer counted: whoever sees that nobody works sees this too.
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
        // Whoever has one worker works for whoever's turn it is.
        assert_eq!(full_of(1), [] as [Arc<str>; 0]);
    }
}
