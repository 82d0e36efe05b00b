//! Where sessions stood when the writer last wrote to them, and which number their workspace's last event got.
//!
//! Whoever appends to a session often need not read that again each time. What is remembered holds only as long as
//! nobody else wrote: SQLite's `data_version`, asked for inside of each transaction, tells whether another
//! process or connection did, and then everything is forgotten. So is it when anything is undone.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use epitome_core::message::Timestamp;
use rusqlite::Connection;

use super::super::changes::{Changes, Standing};
use super::super::directory::Membership;
use super::super::rows::{SessionId, SessionKey, SessionRow};
use super::error::Outcome;

/// So many sessions are remembered, of a few kilobytes each, and of so many workspaces the last event.
const MOST: usize = 256;

/// So many members are.
const MOST_MEMBERS: usize = 4_096;

/// What the writer knows without reading. Clones are one and the same.
#[derive(Clone, Default)]
pub(in crate::store) struct Known(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    version: i64,
    sessions: HashMap<SessionKey, Standing>,
    events: HashMap<Arc<str>, i64>,
    /// Who belongs to which session: most messages are by somebody who does.
    members: HashSet<(SessionId, Arc<str>)>,
}

impl Known {
    /// Called inside of each transaction, before anything else.
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

    /// Remembers who joined a session, unless somebody left too.
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

    /// Numbers a workspace's next event. Where the last one's number is not known, it is read.
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

    /// Where a session stands. It is forgotten until it is kept again.
    pub(super) fn take(&self, key: &SessionKey, now: Timestamp) -> Option<Standing> {
        self.lock().sessions.remove(key).map(|standing| Standing { now, ..standing })
    }

    /// Remembers where a session stands after these changes, where that is plain to see.
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
                    // It would have to be put in its place.
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
