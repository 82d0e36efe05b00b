//! What this node remembers of sessions it looked at. Nothing of it is taken for true: whoever uses it has the database check
//! that it still is.

use quick_cache::sync::Cache;

use super::super::rows::{SessionId, SessionKey};
use super::super::window::Numbered;

/// So many sessions are remembered.
const MOST: usize = 65_536;

/// Numbers of sessions by their names.
#[derive(Debug)]
pub(super) struct Known(Cache<SessionKey, Numbered>);

impl Default for Known {
    fn default() -> Self {
        Self(Cache::new(MOST))
    }
}

impl Known {
    pub(super) fn number(&self, key: &SessionKey) -> Option<Numbered> {
        self.0.get(key)
    }

    pub(super) fn keep(&self, key: &SessionKey, id: SessionId, held: usize) {
        self.0.insert(key.clone(), Numbered { id, held });
    }

    pub(super) fn forget(&self, key: &SessionKey) {
        self.0.remove(key);
    }
}
