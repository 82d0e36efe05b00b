//! How much may be under way at once. What is over it is refused at once, with the time to try again, so that
//! nothing grows: not memory, not queues, not the time others wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::Problem;

/// So many requests are worked on at once.
const REQUESTS: usize = 1_024;

/// So many of them may be one workspace's.
const REQUESTS_OF_ONE: usize = 256;

/// So many requests may wait for a summary, which takes as long as a model does.
const WAITING: usize = 256;

/// So many of them may be one workspace's.
const WAITING_OF_ONE: usize = 64;

/// So many listen to events.
const LISTENING: usize = 1_024;

/// So many of them may be one workspace's.
const LISTENING_OF_ONE: usize = 256;

/// So many KiB of bodies are read at once, and what they become.
const MEMORY_KIB: usize = 128 << 10;

/// What is under way.
pub(crate) struct Load {
    pub(crate) requests: Lane,
    pub(crate) waiting: Lane,
    pub(crate) listening: Lane,
    /// In KiB.
    pub(crate) memory: Arc<Semaphore>,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            requests: Lane::new(REQUESTS, REQUESTS_OF_ONE, "requests are being worked on"),
            waiting: Lane::new(WAITING, WAITING_OF_ONE, "requests wait for a summary"),
            listening: Lane::new(LISTENING, LISTENING_OF_ONE, "connections listen to events"),
            memory: Arc::new(Semaphore::new(MEMORY_KIB)),
        }
    }
}

/// Things of one kind: so many in all, so many of one workspace's.
pub(crate) struct Lane {
    all: Arc<Semaphore>,
    of_one: usize,
    counts: Arc<Mutex<HashMap<Arc<str>, usize>>>,
    what: &'static str,
}

/// A place in a lane, until it is dropped.
pub(crate) struct Place {
    _all: OwnedSemaphorePermit,
    counts: Arc<Mutex<HashMap<Arc<str>, usize>>>,
    workspace: Arc<str>,
}

impl Lane {
    fn new(all: usize, of_one: usize, what: &'static str) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), of_one, counts: Arc::default(), what }
    }

    /// How many there are.
    pub(crate) fn taken(&self) -> usize {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }

    pub(crate) fn enter(&self, workspace: &Arc<str>) -> Result<Place, Problem> {
        let full = |_| Problem::busy(format!("too many {}; try again", self.what));
        let all = Arc::clone(&self.all).try_acquire_owned().map_err(full)?;
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(Arc::clone(workspace)).or_default();
        if *count >= self.of_one {
            let most = self.of_one;
            return Err(Problem::too_many(format!(
                "{most} {} for this workspace already; try again",
                self.what
            )));
        }
        *count += 1;
        Ok(Place { _all: all, counts: Arc::clone(&self.counts), workspace: Arc::clone(workspace) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.workspace) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.workspace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_given_back_and_one_workspace_cannot_take_them_all() {
        let lane = Lane::new(3, 2, "things");
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
}
