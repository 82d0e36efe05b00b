//! Limits how much may be in progress at once. A request over a limit is refused immediately with a `retry-after`, so
//! that memory, queues and waiting times cannot grow.

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};

use crate::limits::{Limits, PoolLimit};
use crate::problem::Problem;

/// Maximum number of pages that are read and rendered at the same time. Processors are limited, so more would not be
/// faster.
const MAX_PAGES: usize = 8;

/// Maximum number of contexts that are built at once, in addition to one per processor. A context with images can take a
/// hundred megabytes until it is rendered, and more at once would not be faster.
const EXTRA_CONTEXTS: usize = 2;

/// Maximum number of sessions that are copied at once, because one small request can cause many writes.
const MAX_FORKS: usize = 2;

/// How often a request that waits for memory checks again.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

fn processors() -> usize {
    std::thread::available_parallelism().map_or(2, NonZero::get)
}

/// The pools and semaphores that limit what is in progress.
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
    /// Permits to read and render pages of messages. Each page takes some megabytes, but never long.
    pub pages: Semaphore,
    /// Permits to build contexts.
    pub contexts: Semaphore,
    /// Permits to copy sessions.
    pub forks: Semaphore,
}

impl Permits {
    /// Returns permits of which none is in use.
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

    /// Reserves memory for a response; none if it is not free now.
    pub fn reserve_response(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        self.memory.acquire_untracked(bytes.div_ceil(1 << 10))
    }
}

/// A resource with a total limit and a limit per workspace: permits for requests, or memory in KiB.
pub struct Pool {
    semaphore: Arc<Semaphore>,
    limit: PoolLimit,
    in_use: Arc<Mutex<Usage>>,
    /// What the pool limits, for errors.
    what: &'static str,
}

/// How much each workspace uses of a pool. Workspaces that use nothing have no entry.
type Usage = HashMap<Arc<str>, usize>;

/// What a workspace uses of a pool: a permit for a request, or reserved memory. Released when dropped.
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

    /// Returns a pool of memory. One workspace may have half of it.
    fn memory(kib: usize) -> Self {
        Self::new(PoolLimit { total: kib, per_workspace: kib / 2 }, "KiB of bodies in memory")
    }

    /// Takes an amount that counts for no workspace.
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

    /// Returns how much is in use.
    pub fn in_use(&self) -> usize {
        lock(&self.in_use).values().sum()
    }

    /// Takes a permit for a workspace.
    pub fn acquire(&self, workspace: &Arc<str>) -> Result<Permit, Problem> {
        self.acquire_many(workspace, 1)
    }

    /// Reserves bytes for a workspace; none if they are not free now.
    pub fn reserve(&self, workspace: &Arc<str>, bytes: usize) -> Option<Permit> {
        self.acquire_many(workspace, bytes.div_ceil(1 << 10)).ok()
    }

    /// Reserves bytes for a workspace, and waits up to `timeout` for them: most holders release theirs soon. Returns none
    /// if they are still not free then, or exceed the workspace's limit.
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
