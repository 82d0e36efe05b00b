//! How much may be under way at once. What is over it is refused at once, with the time to try again, so that
//! nothing grows: not memory, not queues, not the time others wait.

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};

use crate::bounds::{Bounds, Places};
use crate::problem::Problem;

/// So many pages are read and written out at once. More would not be faster: there are only so many processors.
const PAGING: usize = 8;

/// So many contexts are made at once, beyond one for each processor. Pictures take few tokens and many bytes, so that each
/// may hold a hundred megabytes until it is written out; and more at once would not be faster.
const MORE_CONTEXTS: usize = 2;

/// So many sessions are copied at once: one small request has very much written.
const FORKS: usize = 2;

/// Who waits for memory looks again after this.
const MOMENT: Duration = Duration::from_millis(10);

fn processors() -> usize {
    std::thread::available_parallelism().map_or(2, NonZero::get)
}

/// What is under way.
pub struct Load {
    /// Requests that are worked on.
    pub requests: Lane,
    /// Requests that wait for a summary.
    pub waiting: Lane,
    /// Connections that listen to events.
    pub listening: Lane,
    /// Requests that are passed on.
    pub forwarding: Lane,
    /// For bodies that are read and answers that are sent.
    pub memory: Memory,
    /// For bodies that are passed on, until their answer begins.
    pub passing: Memory,
    /// Who reads messages by the page, and writes them out: each holds some megabytes until it is done. A turn is never long.
    pub paging: Semaphore,
    /// Who makes contexts.
    pub contexts: Semaphore,
    /// Who copies sessions.
    pub forks: Semaphore,
}

impl Load {
    /// With everything free.
    pub fn new(bounds: &Bounds) -> Self {
        let lane = Lane::new;
        Self {
            requests: lane(bounds.requests, "requests are being worked on"),
            waiting: lane(bounds.waiting, "requests wait for a summary"),
            listening: lane(bounds.listening, "connections listen to events"),
            forwarding: lane(bounds.forwarding, "requests are being passed on"),
            memory: Memory::new(bounds.memory_kib),
            passing: Memory::new(bounds.passing_kib),
            paging: Semaphore::new(PAGING),
            contexts: Semaphore::new(processors().saturating_add(MORE_CONTEXTS)),
            forks: Semaphore::new(FORKS),
        }
    }

    /// Sets so many bytes aside for whoever reads; none where there is no room for them now.
    pub fn set_aside(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        self.memory.0.take(bytes.div_ceil(1 << 10))
    }
}

/// Something of which there is so much in all, and so much for one workspace.
struct Pool {
    all: Arc<Semaphore>,
    of_one: usize,
    /// How much each workspace has; none is kept that has nothing.
    by: Arc<Mutex<HashMap<Arc<str>, usize>>>,
}

/// A workspace's share of a pool, until it is dropped: a place among requests, or memory set aside.
pub struct Share {
    _all: OwnedSemaphorePermit,
    by: Arc<Mutex<HashMap<Arc<str>, usize>>>,
    workspace: Arc<str>,
    amount: usize,
}

/// Why there is no share.
enum Full {
    ForAll,
    ForThis,
}

impl Pool {
    fn new(all: usize, of_one: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), of_one, by: Arc::default() }
    }

    /// So much of it, for nobody.
    fn take(&self, amount: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.all).try_acquire_many_owned(u32::try_from(amount).unwrap_or(u32::MAX)).ok()
    }

    fn take_for(&self, workspace: &Arc<str>, amount: usize) -> Result<Share, Full> {
        let all = self.take(amount).ok_or(Full::ForAll)?;
        let mut by = lock(&self.by);
        let has = by.get(workspace).copied().unwrap_or(0).saturating_add(amount);
        if has > self.of_one {
            return Err(Full::ForThis);
        }
        by.insert(Arc::clone(workspace), has);
        Ok(Share { _all: all, by: Arc::clone(&self.by), workspace: Arc::clone(workspace), amount })
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

/// Memory for one purpose. It is counted in KiB, and a workspace may have half of it.
pub struct Memory(Pool);

impl Memory {
    fn new(kib: usize) -> Self {
        Self(Pool::new(kib, kib / 2))
    }

    /// So many bytes for a workspace; none where there is no room for them now.
    pub fn take_for(&self, workspace: &Arc<str>, bytes: usize) -> Option<Share> {
        self.0.take_for(workspace, bytes.div_ceil(1 << 10)).ok()
    }

    /// The same, waited for: most who have some give it back soon. None where there is still no room after so long, or could
    /// never be.
    pub async fn wait_for(&self, workspace: &Arc<str>, bytes: usize, most: Duration) -> Option<Share> {
        if bytes.div_ceil(1 << 10) > self.0.of_one {
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

/// Things of one kind: so many in all, so many of one workspace's.
pub struct Lane {
    pool: Pool,
    what: &'static str,
}

impl Lane {
    fn new(Places { all, of_one }: Places, what: &'static str) -> Self {
        Self { pool: Pool::new(all, of_one), what }
    }

    /// How many there are.
    pub fn taken(&self) -> usize {
        lock(&self.pool.by).values().sum()
    }

    /// Takes a place for a workspace until it is dropped.
    pub fn enter(&self, workspace: &Arc<str>) -> Result<Share, Problem> {
        let (most, what) = (self.pool.of_one, self.what);
        self.pool.take_for(workspace, 1).map_err(|full| match full {
            Full::ForAll => Problem::busy(format!("too many {what}; try again")),
            Full::ForThis => {
                Problem::too_many(format!("{most} {what} for this workspace already; try again"))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_given_back_and_one_workspace_cannot_take_them_all() {
        let lane = Lane::new(Places { all: 3, of_one: 2 }, "things");
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
        let (memory, one): (_, Arc<str>) = (Memory::new(100), "one".into());
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
