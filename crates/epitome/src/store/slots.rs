//! Slots with something to do: which of them a worker takes, and what waits.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use epitome_core::message::Timestamp;
use epitome_core::slot::Scope;

use super::rows::{SessionId, SessionKey, SlotRow};

/// A worker's hold on a slot.
#[derive(Debug, Clone, PartialEq)]
pub struct Lease {
    /// Which session.
    pub key: SessionKey,
    /// The session's number.
    pub id: SessionId,
    /// The slot as it was taken, with this worker's name and fence in it.
    pub slot: SlotRow,
    /// The moment it was taken.
    pub now: Timestamp,
}

/// What a worker is willing to take.
#[derive(Debug, Clone)]
pub struct Want {
    /// The worker's name.
    pub owner: String,
    /// For how long.
    pub hold: Duration,
    /// Only slots of this session.
    pub session: Option<SessionKey>,
    /// None of these.
    pub except: HashSet<(SessionId, Scope, String)>,
    /// The workspace that was served last. Turns go round by name: the next one after it that has something ready comes
    /// first, and after the last the first again. `None`: whoever waits longest, whosesoever it is.
    pub after: Option<Arc<str>>,
    /// Workspaces that hold enough workers already: they are passed over.
    pub full: HashSet<Arc<str>>,
}

impl Want {
    /// The slot in this worker's hold. Where time alone made it due, it fires now.
    pub(super) fn take(&self, mut slot: SlotRow, now: Timestamp) -> SlotRow {
        if slot.state.due.is_none() {
            slot.state.tick(now);
            slot.mark(now);
        }
        slot.fence = slot.fence.saturating_add(1);
        slot.work.owner = Some(self.owner.clone());
        let hold = i64::try_from(self.hold.as_millis()).unwrap_or(i64::MAX);
        slot.work.until = Some(Timestamp(now.0.saturating_add(hold)));
        slot
    }
}
