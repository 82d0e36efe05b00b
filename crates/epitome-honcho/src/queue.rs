//! The progress of summaries: how many are pending, in progress, and recently written.

use std::collections::BTreeMap;

use epitome::{SlotStatus, Workspace, is_name};

use super::prelude::*;

/// Maximum number of sessions whose progress is listed separately.
const MOST_SESSIONS: usize = 1_000;

#[derive(Debug, Default, Clone, Copy)]
struct WorkCounts {
    completed: u64,
    working: u64,
    pending: u64,
}

impl WorkCounts {
    fn total(&self) -> u64 {
        self.completed.saturating_add(self.working).saturating_add(self.pending)
    }

    fn add(&mut self, completed: u64, working: u64, pending: u64) {
        self.completed = self.completed.saturating_add(completed);
        self.working = self.working.saturating_add(working);
        self.pending = self.pending.saturating_add(pending);
    }

    /// Renders the counts as JSON, with one more field of this name and value.
    fn render(&self, name: &str, value: &Value) -> Value {
        json!({
            "total_work_units": self.total(),
            "completed_work_units": self.completed,
            "in_progress_work_units": self.working,
            "pending_work_units": self.pending,
            name: value,
        })
    }

    /// Counts a slot by its status.
    fn slot(&mut self, status: SlotStatus) {
        match status {
            SlotStatus::Working => self.add(0, 1, 0),
            // A parked slot waits for another message. A retired slot waits for settings that define it again. These
            // slots do not count, because a client that waits until no work is left could wait forever.
            SlotStatus::Parked | SlotStatus::Retired => {}
            // An idle slot is listed only if its summary is due. No worker has started this summary yet.
            SlotStatus::Idle | SlotStatus::Due | SlotStatus::Waiting => self.add(0, 0, 1),
        }
    }
}

/// Returns the number of summaries that are due, in progress, and recently written. If the request names a session,
/// counts only the summaries of this session, otherwise the summaries of the workspace.
pub(super) async fn status(Authorized(access): CanRead, params: QueryParams) -> Answer {
    let workspace = &access.workspace;
    let name = params.get("session_id").filter(|session| !session.is_empty());
    if let Some(name) = name {
        return json_response(
            StatusCode::OK,
            &of_session(workspace, name).await?.render("sessions", &Value::Null),
        );
    }
    let queue = workspace.queue().await?;
    let mut by: BTreeMap<Arc<str>, WorkCounts> = BTreeMap::new();
    for (session, times) in workspace.condensed().await? {
        by.entry(session).or_default().add(times, 0, 0);
    }
    for entry in &queue.slots {
        by.entry(Arc::clone(&entry.session)).or_default().slot(entry.status);
    }
    let mut work = WorkCounts::default();
    for counts in by.values() {
        work.add(counts.completed, 0, 0);
    }
    // These sums also count slots that `queue.slots` does not list.
    work.add(0, queue.working, queue.due.saturating_add(queue.waiting));
    let ids = access.app.ids().await?;
    let mut sessions = Map::new();
    for (session, work) in by.iter().filter(|(_, work)| work.total() > 0).take(MOST_SESSIONS) {
        let id = ids.session(workspace.name(), session);
        sessions.insert(id.clone(), work.render("session_id", &id.into()));
    }
    let sessions = if sessions.is_empty() { Value::Null } else { sessions.into() };
    json_response(StatusCode::OK, &work.render("sessions", &sessions))
}

/// Returns the counts of one session. They are read from the session itself, because the list of the workspace's queue
/// may be incomplete. All counts are 0 if the session does not exist.
async fn of_session(workspace: &Workspace, name: &str) -> Result<WorkCounts, Problem> {
    let mut work = WorkCounts::default();
    let session = workspace.session(name);
    let explained = if is_name(name) { existing(session.explain().await)? } else { None };
    let Some(explained) = explained else { return Ok(work) };
    let now = now().millis();
    for slot in &explained.slots {
        // An idle slot does not count until its summary is due.
        if slot.status != SlotStatus::Idle || slot.due_at.is_some_and(|at| at.0 <= now) {
            work.slot(slot.status);
        }
    }
    let written = workspace.condensed().await?;
    let written = written.iter().filter(|(session, _)| **session == *name).map(|(_, times)| times).sum();
    work.add(written, 0, 0);
    Ok(work)
}
