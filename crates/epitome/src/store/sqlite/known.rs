//! Caches the state of sessions after the writer's last write, and the number of each workspace's last event.
//!
//! With it, most appends need not read that state again. The cache is valid only while no other connection writes. Each
//! transaction begins by reading SQLite's `data_version`: if another process or connection has written, the whole cache
//! is cleared. A rollback clears it too.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use epitome_core::message::Timestamp;
use rusqlite::Connection;

use super::super::changes::{Changes, Standing};
use super::super::directory::Membership;
use super::super::rows::{SessionId, SessionKey, SessionRow};
use super::error::Outcome;

/// Maximum number of sessions in the cache, of a few kilobytes each, and of workspaces whose last event number is
/// cached.
const MOST: usize = 256;

/// Maximum number of members in the cache.
const MOST_MEMBERS: usize = 4_096;

/// State that the writer need not read again. Clones share one cache.
#[derive(Clone, Default)]
pub(in crate::store) struct Known(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    version: i64,
    sessions: HashMap<SessionKey, Standing>,
    events: HashMap<Arc<str>, i64>,
    /// Members of sessions. Most messages come from an author who is a member already.
    members: HashSet<(SessionId, Arc<str>)>,
}

impl Known {
    /// Clears the cache if another connection has written. Called inside each transaction, before anything else.
    pub(super) fn begin(&self, db: &Connection) -> Outcome<()> {
        let version: i64 = db.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        let mut inner = self.lock();
        if inner.version != version {
            *inner = Inner { version, ..Inner::default() };
        }
        Ok(())
    }

    pub(super) fn forget_all(&self) {
        let mut inner = self.lock();
        *inner = Inner { version: inner.version, ..Inner::default() };
    }

    pub(super) fn forget(&self, key: &SessionKey) {
        self.lock().sessions.remove(key);
    }

    pub(super) fn is_member(&self, session: SessionId, name: &Arc<str>) -> bool {
        self.lock().members.contains(&(session, Arc::clone(name)))
    }

    /// Caches the members who joined a session. If a member left, clears all cached members.
    pub(super) fn keep_members(&self, session: SessionId, changes: &[Membership]) {
        let mut inner = self.lock();
        for change in changes {
            match change {
                Membership::Join(name, _) => {
                    if inner.members.len() >= MOST_MEMBERS {
                        inner.members.clear();
                    }
                    inner.members.insert((session, Arc::clone(name)));
                }
                Membership::Leave(_) | Membership::LeaveAll => return inner.members.clear(),
            }
        }
    }

    /// Returns the number of a workspace's next event. Reads the last number with `last` if it is not cached.
    pub(super) fn number_event(
        &self,
        workspace: &Arc<str>,
        last: impl FnOnce() -> Outcome<i64>,
    ) -> Outcome<i64> {
        let mut inner = self.lock();
        if let Some(number) = inner.events.get_mut(workspace) {
            *number = number.saturating_add(1);
            return Ok(*number);
        }
        let number = last()?.saturating_add(1);
        if inner.events.len() >= MOST {
            inner.events.clear();
        }
        inner.events.insert(Arc::clone(workspace), number);
        Ok(number)
    }

    /// Removes a session's state from the cache and returns it. [`Self::keep`] caches it again.
    pub(super) fn take(&self, key: &SessionKey, now: Timestamp) -> Option<Standing> {
        self.lock().sessions.remove(key).map(|standing| Standing { now, ..standing })
    }

    /// Caches a session's state after these changes, if it can be derived from them without a read.
    pub(super) fn keep(&self, key: &SessionKey, standing: Standing, changes: Option<Changes>) {
        let Standing { now, workspace_settings, session, mut slots, .. } = standing;
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
                    // A new slot would have to be inserted at its position.
                    None => return,
                }
            }
        }
        if !session.takes_little(&workspace_settings) {
            return;
        }
        let mut inner = self.lock();
        if inner.sessions.len() >= MOST {
            inner.sessions.clear();
        }
        let standing = Standing { slots, ..Standing::bare(now, workspace_settings, Some(session)) };
        inner.sessions.insert(key.clone(), standing);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
