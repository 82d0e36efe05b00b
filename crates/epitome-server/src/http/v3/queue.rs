//! How far the summaries are: what is waited for, and what was done lately.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use epitome::SlotStatus;
use serde::Serialize;
use serde_json::{Map, Value};

use super::gate::Reads;
use super::refusal::Refusal;
use super::sent::Pairs;
use crate::http::App;
use crate::http::reply::done;

/// So many sessions are told apart.
const MOST_SESSIONS: usize = 1_000;

#[derive(Debug, Default, Clone, Copy, Serialize)]
struct Work {
    #[serde(rename = "total_work_units")]
    total: u64,
    #[serde(rename = "completed_work_units")]
    completed: u64,
    #[serde(rename = "in_progress_work_units")]
    working: u64,
    #[serde(rename = "pending_work_units")]
    pending: u64,
}

impl Work {
    fn add(&mut self, completed: u64, working: u64, pending: u64) {
        self.completed = self.completed.saturating_add(completed);
        self.working = self.working.saturating_add(working);
        self.pending = self.pending.saturating_add(pending);
        self.total = self.completed.saturating_add(self.working).saturating_add(self.pending);
    }
}

#[derive(Serialize)]
struct Status {
    #[serde(flatten)]
    work: Work,
    sessions: Option<Map<String, Value>>,
}

#[derive(Serialize)]
struct Theirs<'a> {
    session_id: &'a str,
    #[serde(flatten)]
    work: Work,
}

/// What is due, being written, and was written lately: of a session where one is named, else of the workspace.
pub(super) async fn status(
    State(app): State<Arc<App>>,
    Reads(access): Reads,
    pairs: Pairs,
) -> Result<Response, Refusal> {
    let workspace = &access.workspace;
    let only = pairs.get("session_id").filter(|session| !session.is_empty());
    let queue = workspace.queue().await?;
    let mut by: BTreeMap<Arc<str>, Work> = BTreeMap::new();
    for (session, times) in workspace.condensed().await? {
        by.entry(session).or_default().add(times, 0, 0);
    }
    for entry in &queue.slots {
        let (working, pending) = match entry.status {
            SlotStatus::Working => (1, 0),
            // Nothing can be done before another message comes: whoever waits for the end would wait for ever.
            SlotStatus::Parked => (0, 0),
            _ => (0, 1),
        };
        by.entry(Arc::clone(&entry.session)).or_default().add(0, working, pending);
    }
    let mut work = Work::default();
    if let Some(only) = only {
        let theirs = by.get(only).copied().unwrap_or_default();
        return Ok(done(StatusCode::OK, &Status { work: theirs, sessions: None })?);
    }
    for theirs in by.values() {
        work.add(theirs.completed, 0, 0);
    }
    // Those that are not listed are counted too.
    work.add(0, queue.working, queue.due.saturating_add(queue.waiting));
    let ids = app.v3.ids(&app).await?;
    let mut sessions = Map::new();
    for (session, work) in by.iter().filter(|(_, work)| work.total > 0).take(MOST_SESSIONS) {
        let id = ids.session(workspace.name(), session);
        let theirs = serde_json::to_value(Theirs { session_id: &id, work: *work }).unwrap_or_default();
        sessions.insert(id, theirs);
    }
    let sessions = (!sessions.is_empty()).then_some(sessions);
    Ok(done(StatusCode::OK, &Status { work, sessions })?)
}
