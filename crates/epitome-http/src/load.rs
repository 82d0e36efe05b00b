//! Limits how much may be in progress at once. Requests over a limit are refused at once with a `retry-after`, so that
//! memory, queues and waiting times cannot grow.

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};

use crate::bounds::{Bounds, Places};
use crate::problem::Problem;

/// Maximum number of pages that are read and rendered at once. More would not be faster, because processors are limited.
const PAGING: usize = 8;

/// Maximum number of contexts that are built at once, in addition to one per processor. A context with images can take a
/// hundred megabytes until it is rendered, and more at once would not be faster.
const MORE_CONTEXTS: usize = 2;

/// Maximum number of sessions that are copied at once, because one small request can cause many writes.
const FORKS: usize = 2;

/// How often a request that waits for memory checks again.
const MOMENT: Duration = Duration::from_millis(10);

fn processors() -> usize {
    std::thread::available_parallelism().map_or(2, NonZero::get)
}

/// What is in progress.
pub struct Load {
    /// Requests in progress.
    pub requests: Pool,
    /// Requests that wait for a summary.
    pub waiting: Pool,
    /// Connections that listen to events.
    pub listening: Pool,
    /// Proxied requests.
    pub forwarding: Pool,
    /// Memory for request bodies and for responses.
    pub memory: Pool,
    /// Memory for bodies of proxied requests, until the response begins.
    pub passing: Pool,
    /// Permits to read and render pages of messages. Each page takes some megabytes, and never long.
    pub paging: Semaphore,
    /// Permits to build contexts.
    pub contexts: Semaphore,
    /// Permits to copy sessions.
    pub forks: Semaphore,
}

impl Load {
    /// Returns a load with nothing in progress.
    pub fn new(bounds: &Bounds) -> Self {
        Self {
            requests: Pool::new(bounds.requests, "requests are in progress"),
            waiting: Pool::new(bounds.waiting, "requests wait for a summary"),
            listening: Pool::new(bounds.listening, "connections listen to events"),
            forwarding: Pool::new(bounds.forwarding, "proxied requests are in progress"),
            memory: Pool::memory(bounds.memory_kib),
            passing: Pool::memory(bounds.passing_kib),
            paging: Semaphore::new(PAGING),
            contexts: Semaphore::new(processors().saturating_add(MORE_CONTEXTS)),
            forks: Semaphore::new(FORKS),
        }
    }

    /// Reserves memory for a response; none if it is not free now.
    pub fn set_aside(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        self.memory.take(bytes.div_ceil(1 << 10))
    }
}

/// A resource with a total limit and a limit per workspace: permits for requests, or memory in KiB.
pub struct Pool {
    all: Arc<Semaphore>,
    of_one: usize,
    /// How much each workspace has taken. Workspaces without a share have no entry.
    by: Arc<Mutex<HashMap<Arc<str>, usize>>>,
    what: &'static str,
}

/// A workspace's share of a pool: a permit for a request, or reserved memory. Released when dropped.
pub struct Share {
    _all: OwnedSemaphorePermit,
    by: Arc<Mutex<HashMap<Arc<str>, usize>>>,
    workspace: Arc<str>,
    amount: usize,
}

impl Pool {
    fn new(Places { all, of_one }: Places, what: &'static str) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), of_one, by: Arc::default(), what }
    }

    /// Returns a pool of memory. One workspace may have half of it.
    fn memory(kib: usize) -> Self {
        Self::new(Places { all: kib, of_one: kib / 2 }, "bodies are in memory")
    }

    /// Takes an amount that counts for no workspace.
    fn take(&self, amount: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.all).try_acquire_many_owned(u32::try_from(amount).unwrap_or(u32::MAX)).ok()
    }

    fn share(&self, workspace: &Arc<str>, amount: usize) -> Result<Share, Problem> {
        let (most, what) = (self.of_one, self.what);
        let full = || Problem::busy(format!("too many {what}; try again"));
        let all = self.take(amount).ok_or_else(full)?;
        let mut by = lock(&self.by);
        let has = by.get(workspace).copied().unwrap_or(0).saturating_add(amount);
        if has > most {
            let detail = format!("{most} {what} for this workspace already; try again");
            return Err(Problem::too_many(detail));
        }
        by.insert(Arc::clone(workspace), has);
        Ok(Share { _all: all, by: Arc::clone(&self.by), workspace: Arc::clone(workspace), amount })
    }

    /// Returns how much is taken.
    pub fn taken(&self) -> usize {
        lock(&self.by).values().sum()
    }

    /// Takes a permit for a workspace.
    pub fn enter(&self, workspace: &Arc<str>) -> Result<Share, Problem> {
        self.share(workspace, 1)
    }

    /// Reserves bytes for a workspace; none if they are not free now.
    pub fn take_for(&self, workspace: &Arc<str>, bytes: usize) -> Option<Share> {
        self.share(workspace, bytes.div_ceil(1 << 10)).ok()
    }

    /// Reserves bytes for a workspace, and waits up to `most` for them: most holders release theirs soon. None if they are
    /// still not free then, or exceed the workspace's limit.
    pub async fn wait_for(&self, workspace: &Arc<str>, bytes: usize, most: Duration) -> Option<Share> {
        if bytes.div_ceil(1 << 10) > self.of_one {
            return None;
        }
        let until = Instant::now() + most;
        loop {
            let taken = self.take_for(workspace, bytes);
            if taken.is_some() || Instant::now() >= until {
                return taken;
            }
            sleep(MOMENT).await;
        }
    }
}

fn lock(by: &Mutex<HashMap<Arc<str>, usize>>) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
    by.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut by = lock(&self.by);
        if let Some(has) = by.get_mut(&self.workspace) {
            *has = has.saturating_sub(self.amount);
            if *has == 0 {
                by.remove(&self.workspace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_given_back_and_one_workspace_cannot_take_them_all() {
        let lane = Pool::new(Places { all: 3, of_one: 2 }, "things");
        let (one, two): (Arc<str>, Arc<str>) = ("one".into(), "two".into());
        let first = lane.enter(&one).unwrap();
        let _second = lane.enter(&one).unwrap();
        assert_eq!(lane.enter(&one).err().unwrap().status.as_u16(), 429);
        let third = lane.enter(&two).unwrap();
        assert_eq!(lane.enter(&two).err().unwrap().status.as_u16(), 503);
        drop((first, third));
        assert_eq!(lane.taken(), 1);
        assert!(lane.enter(&one).is_ok() && lane.enter(&two).is_ok());
    }

    #[tokio::test]
    async fn memory_that_others_give_back_is_waited_for_and_what_can_never_be_is_not() {
        let (memory, one): (_, Arc<str>) = (Pool::memory(100), "one".into());
        let long = Duration::from_secs(600);
        let first = memory.take_for(&one, 40 << 10);
        assert!(memory.wait_for(&one, 51 << 10, long).await.is_none(), "half of it is a workspace's");
        assert!(memory.wait_for(&one, 40 << 10, Duration::ZERO).await.is_none());
        let given_back = async {
            sleep(MOMENT).await;
            drop(first);
        };
        let (waited, ()) = tokio::join!(memory.wait_for(&one, 40 << 10, long), given_back);
        assert!(waited.is_some());
    }
}
