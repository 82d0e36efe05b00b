//! Limits how many requests may be in progress, and how much memory they may use. A request over a limit is refused
//! immediately, with a `retry-after` header. So memory, queues and waiting times cannot grow without limit.

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};

use crate::limits::{Limits, PoolLimit};
use crate::problem::Problem;

/// Maximum number of pages that are read and rendered at the same time. More pages would not be faster, because the
/// number of processors is limited.
const MAX_PAGES: usize = 8;

/// The maximum number of contexts that are built at the same time is the number of processors plus this number. More
/// contexts would not be faster. A context with images can take a hundred megabytes until it is rendered.
const EXTRA_CONTEXTS: usize = 2;

/// Maximum number of sessions that are copied at the same time. A small request for a copy can cause many writes.
const MAX_FORKS: usize = 2;

/// Interval at which a request that waits for memory tries again.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

fn processors() -> usize {
    std::thread::available_parallelism().map_or(2, NonZero::get)
}

/// The pools and semaphores that limit requests and memory.
pub struct Permits {
    /// Requests in progress.
    pub requests: Pool,
    /// Requests that wait for a summary.
    pub summary_waits: Pool,
    /// Connections that listen to events.
    pub event_streams: Pool,
    /// Proxied requests.
    pub proxied_requests: Pool,
    /// Memory for request bodies and for responses.
    pub memory: Pool,
    /// Memory for bodies of proxied requests, until the response begins.
    pub proxy_memory: Pool,
    /// Permits to read and render pages of messages. Each page takes some megabytes for a short time.
    pub pages: Semaphore,
    /// Permits to build contexts.
    pub contexts: Semaphore,
    /// Permits to copy sessions.
    pub forks: Semaphore,
}

impl Permits {
    /// Returns pools and semaphores of which nothing is in use.
    pub fn new(limits: &Limits) -> Self {
        Self {
            requests: Pool::new(limits.requests, "requests in progress"),
            summary_waits: Pool::new(limits.summary_waits, "requests that wait for a summary"),
            event_streams: Pool::new(limits.event_streams, "connections that listen to events"),
            proxied_requests: Pool::new(limits.proxied_requests, "proxied requests in progress"),
            memory: Pool::memory(limits.memory_kib),
            proxy_memory: Pool::memory(limits.proxy_memory_kib),
            pages: Semaphore::new(MAX_PAGES),
            contexts: Semaphore::new(processors().saturating_add(EXTRA_CONTEXTS)),
            forks: Semaphore::new(MAX_FORKS),
        }
    }

    /// Reserves memory for a response of this size in bytes. Returns `None` if this memory is not free now.
    pub fn reserve_response(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        self.memory.acquire_untracked(bytes.div_ceil(1 << 10))
    }
}

/// A resource with a total limit and a limit per workspace. The resource is permits for requests, or memory in KiB.
pub struct Pool {
    semaphore: Arc<Semaphore>,
    limit: PoolLimit,
    in_use: Arc<Mutex<Usage>>,
    /// What the pool limits, in the words of error texts.
    what: &'static str,
}

/// The amount of a pool that each workspace uses. Workspaces that use nothing have no entry.
type Usage = HashMap<Arc<str>, usize>;

/// An amount of a pool that a workspace uses: a permit for a request, or reserved memory. Dropping the `Permit`
/// releases the amount.
pub struct Permit {
    _permit: OwnedSemaphorePermit,
    in_use: Arc<Mutex<Usage>>,
    workspace: Arc<str>,
    amount: usize,
}

impl Pool {
    fn new(limit: PoolLimit, what: &'static str) -> Self {
        Self { semaphore: Arc::new(Semaphore::new(limit.total)), limit, in_use: Arc::default(), what }
    }

    /// Returns a pool of memory. One workspace may use at most half of the pool.
    fn memory(kib: usize) -> Self {
        Self::new(PoolLimit { total: kib, per_workspace: kib / 2 }, "KiB of bodies in memory")
    }

    /// Takes an amount that counts towards the total limit, but not towards the limit of a workspace. Returns `None` if
    /// this amount is not free now.
    fn acquire_untracked(&self, amount: usize) -> Option<OwnedSemaphorePermit> {
        let amount = u32::try_from(amount).unwrap_or(u32::MAX);
        Arc::clone(&self.semaphore).try_acquire_many_owned(amount).ok()
    }

    fn acquire_many(&self, workspace: &Arc<str>, amount: usize) -> Result<Permit, Problem> {
        let (PoolLimit { total, per_workspace }, what) = (self.limit, self.what);
        let full = || Problem::busy(format!("the server's limit of {total} {what} is reached; try again"));
        let permit = self.acquire_untracked(amount).ok_or_else(full)?;
        let mut in_use = lock(&self.in_use);
        let sum = in_use.get(workspace).copied().unwrap_or(0).saturating_add(amount);
        if sum > per_workspace {
            let detail = format!("this workspace's limit of {per_workspace} {what} is reached; try again");
            return Err(Problem::too_many(detail));
        }
        in_use.insert(Arc::clone(workspace), sum);
        let (in_use, workspace) = (Arc::clone(&self.in_use), Arc::clone(workspace));
        Ok(Permit { _permit: permit, in_use, workspace, amount })
    }

    /// Returns the amount that all workspaces use together.
    pub fn in_use(&self) -> usize {
        lock(&self.in_use).values().sum()
    }

    /// Takes a permit for a workspace.
    pub fn acquire(&self, workspace: &Arc<str>) -> Result<Permit, Problem> {
        self.acquire_many(workspace, 1)
    }

    /// Reserves bytes for a workspace. Returns `None` if these bytes are not free now.
    pub fn reserve(&self, workspace: &Arc<str>, bytes: usize) -> Option<Permit> {
        self.acquire_many(workspace, bytes.div_ceil(1 << 10)).ok()
    }

    /// Reserves bytes for a workspace. If the bytes are not free, waits for at most `timeout`, because most requests
    /// release their memory soon. Returns `None` if the bytes are still not free after this time. Returns `None`
    /// immediately if they exceed the workspace's limit.
    pub async fn reserve_within(
        &self,
        workspace: &Arc<str>,
        bytes: usize,
        timeout: Duration,
    ) -> Option<Permit> {
        if bytes.div_ceil(1 << 10) > self.limit.per_workspace {
            return None;
        }
        let end = Instant::now() + timeout;
        loop {
            let permit = self.reserve(workspace, bytes);
            if permit.is_some() || Instant::now() >= end {
                return permit;
            }
            sleep(RETRY_INTERVAL).await;
        }
    }
}

fn lock(in_use: &Mutex<Usage>) -> MutexGuard<'_, Usage> {
    in_use.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut in_use = lock(&self.in_use);
        if let Some(sum) = in_use.get_mut(&self.workspace) {
            *sum = sum.saturating_sub(self.amount);
            if *sum == 0 {
                in_use.remove(&self.workspace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_workspace_cannot_use_all_permits_and_dropped_permits_are_free_again() {
        let pool = Pool::new(PoolLimit { total: 3, per_workspace: 2 }, "things");
        let (one, two): (Arc<str>, Arc<str>) = ("one".into(), "two".into());
        let first = pool.acquire(&one).unwrap();
        let _second = pool.acquire(&one).unwrap();
        assert_eq!(pool.acquire(&one).err().unwrap().status.as_u16(), 429);
        let third = pool.acquire(&two).unwrap();
        assert_eq!(pool.acquire(&two).err().unwrap().status.as_u16(), 503);
        drop((first, third));
        assert_eq!(pool.in_use(), 1);
        assert!(pool.acquire(&one).is_ok() && pool.acquire(&two).is_ok());
    }

    #[tokio::test]
    async fn a_reservation_waits_for_memory_unless_it_exceeds_the_workspaces_limit() {
        let (memory, one): (_, Arc<str>) = (Pool::memory(100), "one".into());
        let long = Duration::from_secs(600);
        let first = memory.reserve(&one, 40 << 10);
        assert!(memory.reserve_within(&one, 51 << 10, long).await.is_none(), "a workspace may reserve half");
        assert!(memory.reserve_within(&one, 40 << 10, Duration::ZERO).await.is_none());
        let release = async {
            sleep(RETRY_INTERVAL).await;
            drop(first);
        };
        let (waited, ()) = tokio::join!(memory.reserve_within(&one, 40 << 10, long), release);
        assert!(waited.is_some());
    }
}
