//! Reports the state of sessions and slots, and the reasons for this state, to people and monitoring programs.

use std::sync::Arc;

use epitome_core::message::{Author, Seq, Timestamp};
use epitome_core::slot::Limit;
use epitome_core::trigger::{self, TriggerFacts};
use serde::Serialize;

use super::SessionInfo;
use super::append::session_slots;
use super::session::Session;
use super::workspace::Workspace;
use crate::error::Error;
use crate::store::{QueueCounts, SlotRow, SummaryId};

/// A session and its slots.
#[derive(Debug, Clone, Serialize)]
pub struct Explanation {
    /// The session.
    pub session: SessionInfo,
    /// The session's slots.
    pub slots: Vec<SlotExplanation>,
}

// fields: one flat record, printed and served as it is.
/// The state of a slot, and why a summary is due or not.
#[derive(Debug, Clone, Serialize)]
pub struct SlotExplanation {
    /// The slot's name.
    pub slot: String,
    /// The author whose messages the slot covers; `None` for all messages.
    pub scope: Option<Author>,
    /// The slot's status.
    pub status: SlotStatus,
    /// The status and its reason, as text.
    pub why: String,
    /// The slot's current summary; `None` if the slot has no summary.
    pub summary: Option<SummaryId>,
    /// The last message that the slot's summary covers; 0 if the slot has no summary.
    pub covered: Seq,
    /// The message at which the slot became due; `None` if the slot is not due.
    pub due: Option<Seq>,
    /// The time at which the slot's trigger fires even if no further message is added; `None` if the trigger fires only
    /// when a message is added.
    pub due_at: Option<Timestamp>,
    /// The slot's trigger, written as in the settings; `None` if the settings no longer define the slot.
    pub trigger: Option<String>,
    /// The progress of each condition of the trigger.
    pub gauges: Vec<trigger::Gauge>,
    /// Which of the newest messages stay verbatim and are not summarized, written as in the settings; `None` if the
    /// settings no longer define the slot.
    pub keep: Option<String>,
    /// Maximum size of the summary, in tokens; `None` if the slot limits the characters instead.
    pub max_tokens: Option<u64>,
    /// Maximum size of the summary, in characters; `None` if the slot limits the tokens instead.
    pub max_chars: Option<u64>,
    /// The models that write the slot's summaries, in order of preference.
    pub models: Vec<String>,
    /// Id of the engine that has leased the slot; `None` if the slot is not leased.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// How many attempts to write the summary have failed in a row.
    pub attempts: u32,
    /// Time of the first failure since a configured model last wrote a summary; `None` if there was no failure since
    /// then.
    pub failing_since: Option<Timestamp>,
    /// Earliest time of the next attempt; `None` if there is no such limit.
    pub not_before: Option<Timestamp>,
    /// The last error; `None` if there was no error in the last attempt.
    pub last_error: Option<String>,
}

/// The status of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotStatus {
    /// No summary is due.
    Idle,
    /// A summary is due, and no worker has started it yet.
    Due,
    /// A summary is being written.
    Working,
    /// The last attempt failed. A worker will retry.
    Waiting,
    /// A summary is due, but a tool call or loop is in progress. The log cannot be cut inside a tool call or loop, so
    /// the worker waits until the call or loop ends.
    Parked,
    /// The settings no longer define the slot. Its last summary stays in use.
    Retired,
}

/// The due slots of a workspace, and their number by status.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Queue {
    /// Number of slots that are due and not started yet.
    pub due: u64,
    /// Number of slots whose summary is being written.
    pub working: u64,
    /// Number of slots that failed and will be retried.
    pub waiting: u64,
    /// Number of slots that are due, but wait until a tool call or loop ends.
    pub parked: u64,
    /// The slots, at most 1,000. The slot that has waited longest comes first.
    pub slots: Vec<QueueEntry>,
}

/// A slot whose next summary is due.
#[derive(Debug, Clone, Serialize)]
pub struct QueueEntry {
    /// The session.
    pub session: Arc<str>,
    /// The slot.
    pub slot: String,
    /// The author whose messages the slot covers; `None` for all messages.
    pub scope: Option<Author>,
    /// The slot's status.
    pub status: SlotStatus,
    /// The message at which the slot became due; `None` if the slot is not due.
    pub due: Option<Seq>,
    /// The time at which the slot became due.
    pub since: Option<Timestamp>,
    /// How many attempts to write the summary have failed in a row.
    pub attempts: u32,
    /// Earliest time of the next attempt; `None` if there is no such limit.
    pub not_before: Option<Timestamp>,
    /// The last error; `None` if there was no error in the last attempt.
    pub last_error: Option<String>,
}

/// Maximum number of slots in a queue listing.
const MAX_QUEUE_ENTRIES: usize = 1_000;

impl Session {
    /// Returns the state of every slot, and why a summary is due or not.
    pub async fn explain(&self) -> Result<Explanation, Error> {
        let (shared, (state, row)) = (self.shared(), self.state().await?);
        let settings = shared.settings_at(&state)?;
        let explained = session_slots(&state, &settings).into_iter().map(|row| {
            let config = settings.slot(&row.scope, &row.name);
            let room = config.and_then(|config| shared.room(&settings, config));
            let facts = TriggerFacts { room, ..TriggerFacts::new(&row.state.since, state.now) };
            let gauges = config.map(|config| config.slot.trigger.progress(&facts));
            let status = if config.is_some() { status(&row, state.now) } else { SlotStatus::Retired };
            let off = config.is_some_and(|config| !config.slot.auto);
            let (max_tokens, max_chars) = match config.map(|config| config.slot.limit) {
                Some(Limit::Tokens(tokens)) => (Some(tokens), None),
                Some(Limit::Chars(chars)) => (None, Some(chars)),
                None => (None, None),
            };
            let reason = reason(&row, status, gauges.as_ref(), off);
            let why = match config.and_then(|config| shared.missing_model(&settings, config)) {
                Some(missing) => format!("{reason}; {missing}"),
                None => reason,
            };
            SlotExplanation {
                why,
                status,
                summary: row.active,
                covered: row.state.covered,
                due: row.state.due.map(|firing| firing.seq),
                due_at: row.state.due_at,
                trigger: config.map(|config| config.slot.trigger.to_string()),
                gauges: gauges.map(|progress| progress.gauges).unwrap_or_default(),
                keep: config.map(|config| config.slot.keep.to_string()),
                max_tokens,
                max_chars,
                models: config.map(|config| settings.models_of(config).to_vec()).unwrap_or_default(),
                owner: row.work.owner.clone(),
                attempts: row.work.attempts,
                failing_since: row.work.failing_since,
                not_before: row.work.not_before,
                last_error: row.work.last_error.clone(),
                slot: row.name,
                scope: row.scope.into(),
            }
        });
        let slots = explained.collect();
        Ok(Explanation { session: SessionInfo::new(Arc::clone(&self.key.session), row), slots })
    }
}

/// Returns the status of a slot.
fn status(row: &SlotRow, now: Timestamp) -> SlotStatus {
    let leased = row.work.owner.is_some() && row.work.until.is_some_and(|until| until > now);
    match row.state.due {
        None => SlotStatus::Idle,
        Some(_) if leased => SlotStatus::Working,
        Some(_) if row.work.parked => SlotStatus::Parked,
        Some(_) if row.work.not_before.is_some_and(|then| then > now) => SlotStatus::Waiting,
        Some(_) => SlotStatus::Due,
    }
}

/// Returns the status as text, with the reason.
fn reason(row: &SlotRow, status: SlotStatus, gauges: Option<&trigger::TriggerProgress>, off: bool) -> String {
    let due = row.state.due.map_or(0, |firing| firing.seq);
    match status {
        SlotStatus::Idle if off => "summarized only on request".to_owned(),
        SlotStatus::Idle => {
            gauges.map(|gauges| format!("not due: {gauges}{}", failures(row))).unwrap_or_default()
        }
        SlotStatus::Due => format!("due since message {due}{}", failures(row)),
        SlotStatus::Working => format!("due since message {due}, and being written{}", failures(row)),
        SlotStatus::Waiting => format!("due since message {due}{}; it will be retried", failures(row)),
        SlotStatus::Parked => {
            format!("due since message {due}; waits until the tool call or loop in progress ends")
        }
        SlotStatus::Retired => "the settings no longer define it; its last summary stays in use".to_owned(),
    }
}

/// Returns a text with the number of failures since the last success, and with the last error. Empty if there was no
/// error.
fn failures(row: &SlotRow) -> String {
    let error = row.work.last_error.as_deref().unwrap_or("no answer");
    match row.work.attempts {
        0 => row.work.last_error.as_ref().map_or_else(String::new, |error| format!("; {error}")),
        1 => format!("; failed once: {error}"),
        times => format!("; failed {times} times: {error}"),
    }
}

impl Workspace {
    /// Returns the due slots of the workspace, and the progress of their summaries.
    pub async fn queue(&self) -> Result<Queue, Error> {
        let (QueueCounts { working, parked, waiting, due, .. }, rows) =
            self.shared().store.queue(Some(self.name()), MAX_QUEUE_ENTRIES).await?;
        let mut queue = Queue { due, working, waiting, parked, slots: Vec::new() };
        for row in rows {
            let status = status(&row.slot, row.now);
            queue.slots.push(QueueEntry {
                session: row.session,
                slot: row.slot.name,
                scope: row.slot.scope.into(),
                status,
                due: row.slot.state.due.map(|firing| firing.seq),
                since: row.slot.work.waiting_since,
                attempts: row.slot.work.attempts,
                not_before: row.slot.work.not_before,
                last_error: row.slot.work.last_error,
            });
        }
        Ok(queue)
    }
}
