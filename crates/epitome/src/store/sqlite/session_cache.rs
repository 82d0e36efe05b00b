//! Caches the state of sessions after the writer's last write, and the number of each workspace's last event.
//!
//! With this cache, most appends need not read the session's state again. The cache is valid only while no other
//! connection writes. Each transaction begins by reading SQLite's `data_version`. If this version shows that another
//! process or connection has written, the whole cache is cleared. A rollback also clears the cache.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use epitome_core::message::Timestamp;
use rusqlite::Connection;

use super::super::changes::{Changes, SessionState};
use super::super::directory::Membership;
use super::super::rows::{SessionId, SessionKey, SessionRow};
use super::error::OpResult;

/// Maximum number of cached sessions, each of a few kilobytes. Also the maximum number of workspaces whose last event
/// number is cached.
const MAX_ENTRIES: usize = 256;

/// Maximum number of members in the cache.
const MAX_MEMBERS: usize = 4_096;

/// State that the writer need not read again. Clones share one cache.
#[derive(Clone, Default)]
pub(in crate::store) struct SessionCache(Arc<Mutex<CacheEntries>>);

#[derive(Default)]
struct CacheEntries {
    version: i64,
    sessions: HashMap<SessionKey, SessionState>,
    events: HashMap<Arc<str>, i64>,
    /// Members of sessions. Most messages come from an author who is a member already.
    members: HashSet<(SessionId, Arc<str>)>,
}

impl SessionCache {
    /// Clears the cache if another connection has written. Called inside each transaction, before anything else.
    pub(super) fn begin(&self, db: &Connection) -> OpResult<()> {
        let version: i64 = db.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        let mut entries = self.lock();
        if entries.version != version {
            *entries = CacheEntries { version, ..CacheEntries::default() };
        }
        Ok(())
    }

    pub(super) fn clear(&self) {
        let mut entries = self.lock();
        *entries = CacheEntries { version: entries.version, ..CacheEntries::default() };
    }

    pub(super) fn evict(&self, key: &SessionKey) {
        self.lock().sessions.remove(key);
    }

    pub(super) fn has_member(&self, session: SessionId, name: &Arc<str>) -> bool {
        self.lock().members.contains(&(session, Arc::clone(name)))
    }

    /// Caches the members who joined a session. If a member left, clears all cached members.
    pub(super) fn add_members(&self, session: SessionId, changes: &[Membership]) {
        let mut entries = self.lock();
        for change in changes {
            match change {
                Membership::Join(name, _) => {
                    if entries.members.len() >= MAX_MEMBERS {
                        entries.members.clear();
                    }
                    entries.members.insert((session, Arc::clone(name)));
                }
                Membership::Leave(_) | Membership::LeaveAll => return entries.members.clear(),
            }
        }
    }

    /// Returns the number of a workspace's next event. If the last number is not cached, calls `last` to read it.
    pub(super) fn next_event_number(
        &self,
        workspace: &Arc<str>,
        last: impl FnOnce() -> OpResult<i64>,
    ) -> OpResult<i64> {
        let mut entries = self.lock();
        if let Some(number) = entries.events.get_mut(workspace) {
            *number = number.saturating_add(1);
            return Ok(*number);
        }
        let number = last()?.saturating_add(1);
        if entries.events.len() >= MAX_ENTRIES {
            entries.events.clear();
        }
        entries.events.insert(Arc::clone(workspace), number);
        Ok(number)
    }

    /// Removes a session's state from the cache and returns it. [`Self::put`] caches it again.
    pub(super) fn take(&self, key: &SessionKey, now: Timestamp) -> Option<SessionState> {
        self.lock().sessions.remove(key).map(|state| SessionState { now, ..state })
    }

    /// Applies these changes to a session's state, and caches the new state. Caches nothing if the new state cannot be
    /// derived without a read.
    pub(super) fn put(&self, key: &SessionKey, state: SessionState, changes: Option<Changes>) {
        let SessionState { now, workspace_settings, session, mut slots, .. } = state;
        let Some(mut session) = session else { return };
        if let Some(changes) = changes {
            if changes.summary.is_some() || !changes.states.is_empty() {
                return;
            }
            if let Some(changed) = changes.session {
                session = SessionRow { id: session.id, ..changed };
            }
            for slot in changes.slots {
                match slots.iter_mut().find(|row| row.scope == slot.scope && row.name == slot.name) {
                    Some(row) => *row = slot,
                    // A new slot would have to be inserted at its position in the sorted list, so the state is not
                    // cached.
                    None => return,
                }
            }
        }
        if !session.is_cacheable(&workspace_settings) {
            return;
        }
        let mut entries = self.lock();
        if entries.sessions.len() >= MAX_ENTRIES {
            entries.sessions.clear();
        }
        let state = SessionState { slots, ..SessionState::bare(now, workspace_settings, Some(session)) };
        entries.sessions.insert(key.clone(), state);
    }

    fn lock(&self) -> MutexGuard<'_, CacheEntries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
