//! What troubles an engine, noted where it happens and told to whoever runs it.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::lock::lock;
use crate::store::StoreError;

/// For so long a store that could not be written to is taken for one that cannot. Longer, and nobody would try.
const LATELY: Duration = Duration::from_secs(10);

/// What was wrong lately.
#[derive(Default)]
pub(crate) struct Health {
    /// Why the worker cannot look for work.
    pub(crate) blind: Mutex<Option<StoreError>>,
    /// What else troubles the worker, where that is no single slot's matter. It stays until the next summary is begun.
    pub(crate) trouble: Mutex<Option<String>>,
    /// Why the store could not be written to when that last failed, and when: for a while it counts as not ready.
    unwritable: Mutex<Option<(Instant, StoreError)>>,
    /// What was wrong with hooks when they last ran: the first of it.
    pub(crate) hook_trouble: Mutex<Option<String>>,
}

impl Health {
    /// Notes a write that failed, where that says something of the store itself.
    pub(crate) fn note_write(&self, error: &StoreError) {
        if let StoreError::Full { .. } | StoreError::ReadOnly { .. } | StoreError::Damaged { .. } = error {
            *lock(&self.unwritable) = Some((Instant::now(), error.clone()));
        }
    }

    /// Why the store could not be written to lately.
    pub(crate) fn unwritable(&self) -> Option<StoreError> {
        let noted = lock(&self.unwritable).clone();
        noted.filter(|(when, _)| when.elapsed() < LATELY).map(|(_, error)| error)
    }

    /// What troubles the worker most.
    pub(crate) fn trouble(&self) -> Option<String> {
        let others = [&self.trouble, &self.hook_trouble];
        let blind = lock(&self.blind).as_ref().map(ToString::to_string);
        blind.or_else(|| others.into_iter().find_map(|trouble| lock(trouble).clone()))
    }
}

/// Why an engine cannot be used now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unready {
    /// For anybody who asks: it names no file.
    pub short: String,
    /// For whoever runs it: where, and what to do.
    pub whole: String,
}

impl From<&str> for Unready {
    fn from(reason: &str) -> Self {
        Self { short: reason.to_owned(), whole: reason.to_owned() }
    }
}

impl From<&StoreError> for Unready {
    fn from(error: &StoreError) -> Self {
        let short = match error {
            StoreError::Busy => "the store is busy",
            StoreError::Unavailable { .. } => "the store cannot be reached",
            StoreError::Moving { .. } => "a file is being moved into the store",
            StoreError::Full { .. } => "the store's disk is full",
            StoreError::ReadOnly { .. } => "the store cannot be written",
            StoreError::Unreachable { .. } | StoreError::Empty { .. } => "the store cannot be opened",
            StoreError::Foreign { .. } | StoreError::Newer { .. } => "the store is not of this release",
            StoreError::Damaged { .. } => "the store is damaged",
            StoreError::Closed => "the store is closed",
            StoreError::Failed { .. } => "the store failed",
        };
        Self { short: short.to_owned(), whole: error.to_string() }
    }
}
