//! What this node remembers of sessions it wrote to or looked at. Nothing of it is taken for true: whoever uses it has the
//! database check, by the session's number and its version, that it still is.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::super::changes::{Changes, Standing};
use super::super::directory::Membership;
use super::super::rows::{SessionId, SessionKey, SessionRow, SlotRow};
use super::counts::Counts;

/// So many sessions are remembered, of a few kilobytes each.
const MOST: usize = 4_096;

/// And of so many only the number.
const MOST_NUMBERS: usize = 65_536;

/// Where a session stood when it was last seen.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) workspace_settings: String,
    pub(super) session: SessionRow,
    pub(super) slots: Vec<SlotRow>,
    pub(super) stamp: Stamp,
    /// What the slots counted since their rows were written.
    pub(super) counts: Counts,
    /// Some of those who belonged to it.
    pub(super) members: HashSet<Arc<str>>,
}

/// As of when: whoever finds another one in the database has been told something that is not so any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    /// How often the session had been written to.
    pub(super) version: i64,
    /// How often its workspace's settings had been changed.
    pub(super) revision: i64,
}

impl Stamp {
    /// After it was written to once more.
    pub(super) fn written(self) -> Self {
        Self { version: self.version.saturating_add(1), ..self }
    }
}

/// So many members of a session are remembered.
const MOST_MEMBERS: usize = 64;

/// Those who belong to a session after these changes, as far as that shows in them.
fn joined(changes: &[Membership]) -> HashSet<Arc<str>> {
    let mut joined = HashSet::new();
    for change in changes {
        match change {
            Membership::Join(name, _) => joined.insert(Arc::clone(name)),
            Membership::Leave(name) => joined.remove(name),
            Membership::LeaveAll => {
                joined.clear();
                false
            }
        };
    }
    if joined.len() > MOST_MEMBERS { HashSet::new() } else { joined }
}

/// A session's number, and how many messages its last window held; 0 before the first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbered {
    pub(super) id: SessionId,
    pub(super) held: usize,
}

/// What is remembered.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    seen: HashMap<SessionKey, Seen>,
    numbers: HashMap<SessionKey, Numbered>,
}

impl Known {
    /// The number a session of that name had, and how many messages its last window held.
    pub(super) fn number(&self, key: &SessionKey) -> Option<Numbered> {
        self.lock().numbers.get(key).copied()
    }

    /// A window of a session held so many messages.
    pub(super) fn held(&self, key: &SessionKey, messages: usize) {
        if let Some(numbered) = self.lock().numbers.get_mut(key) {
            numbered.held = messages;
        }
    }

    pub(super) fn named(&self, key: &SessionKey, id: SessionId) {
        let mut inner = self.lock();
        if inner.numbers.len() >= MOST_NUMBERS {
            inner.numbers.clear();
        }
        match inner.numbers.get_mut(key) {
            Some(numbered) if numbered.id == id => {}
            _ => {
                inner.numbers.insert(key.clone(), Numbered { id, held: 0 });
            }
        }
    }

    /// Where a session stood. It is forgotten until it is kept again.
    pub(super) fn take(&self, key: &SessionKey) -> Option<Seen> {
        self.lock().seen.remove(key)
    }

    pub(super) fn forget(&self, key: &SessionKey) {
        let mut inner = self.lock();
        inner.seen.remove(key);
        inner.numbers.remove(key);
    }

    pub(super) fn forget_all(&self) {
        self.lock().seen.clear();
    }

    /// Remembers where a session stands after these changes, where that is plain to see.
    pub(super) fn keep(
        &self,
        key: &SessionKey,
        standing: &Standing,
        changes: Option<&Changes>,
        (stamp, counts): (Stamp, Counts),
    ) {
        let Some(before) = &standing.session else { return };
        let (mut session, mut slots) = (before.clone(), standing.slots.clone());
        if let Some(changes) = changes {
            if changes.summary.is_some() || !changes.states.is_empty() {
                return;
            }
            if let Some(changed) = &changes.session {
                session = SessionRow { id: before.id, ..changed.clone() };
            }
            for slot in &changes.slots {
                match slots.iter_mut().find(|row| row.scope == slot.scope && row.name == slot.name) {
                    Some(row) => *row = slot.clone(),
                    // It would have to be put in its place.
                    None => return,
                }
            }
        }
        let workspace_settings = standing.workspace_settings.clone();
        let members = changes.map(|changes| joined(&changes.members)).unwrap_or_default();
        self.put(key, Seen { workspace_settings, session, slots, stamp, counts, members });
    }

    /// Remembers where a session stands after an append to where it stood.
    pub(super) fn grew(&self, key: &SessionKey, mut seen: Seen, changes: Changes, counts: Counts) {
        if let Some(row) = changes.session {
            seen.session = SessionRow { id: seen.session.id, ..row };
        }
        for slot in changes.slots {
            if let Some(row) =
                seen.slots.iter_mut().find(|row| row.scope == slot.scope && row.name == slot.name)
            {
                *row = slot;
            }
        }
        seen.stamp = seen.stamp.written();
        seen.counts = counts;
        self.put(key, seen);
    }

    fn put(&self, key: &SessionKey, seen: Seen) {
        self.named(key, seen.session.id);
        if !seen.session.takes_little(&seen.workspace_settings) {
            return;
        }
        let mut inner = self.lock();
        if inner.seen.len() >= MOST {
            inner.seen.clear();
        }
        inner.seen.insert(key.clone(), seen);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
