//! Where everything stands, and why: for people, and for programs that watch.

use std::sync::Arc;

use epitome_core::message::{Author, Seq, Timestamp};
use epitome_core::slot::Limit;
use epitome_core::trigger::{self, Facts};
use serde::Serialize;

use super::SessionInfo;
use super::append::slots;
use super::session::Session;
use super::workspace::Workspace;
use crate::error::Error;
use crate::store::{QueueCounts, SlotRow, SummaryId};

/// A session and its slots.
#[derive(Debug, Clone, Serialize)]
pub struct Explanation {
    /// The session.
    pub session: SessionInfo,
    /// Its slots.
    pub slots: Vec<SlotExplanation>,
}

// fields: one flat record, printed and served as it is.
/// Where a slot stands, and why it is due or not.
#[derive(Debug, Clone, Serialize)]
pub struct SlotExplanation {
    /// The slot's name.
    pub slot: String,
    /// Whose messages it covers; everybody's where nobody is named.
    pub scope: Option<Author>,
    /// What it does now.
    pub status: SlotStatus,
    /// The same in words.
    pub why: String,
    /// The summary that stands.
    pub summary: Option<SummaryId>,
    /// Up to which message it stands.
    pub covered: Seq,
    /// The first firing to be worked off.
    pub due: Option<Seq>,
    /// When it fires if nobody says anything more.
    pub due_at: Option<Timestamp>,
    /// Its trigger, as it is written; nothing where the settings do not know the slot any more.
    pub trigger: Option<String>,
    /// How far each of the trigger's conditions is.
    pub gauges: Vec<trigger::Gauge>,
    /// What stays out of the summary, as it is written.
    pub keep: Option<String>,
    /// How large the summary may be, in tokens.
    pub max_tokens: Option<u64>,
    /// The same in characters.
    pub max_chars: Option<u64>,
    /// Who writes it, first choice first.
    pub models: Vec<String>,
    /// Which process works on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// How often in a row it failed.
    pub attempts: u32,
    /// Since when it fails.
    pub failing_since: Option<Timestamp>,
    /// When it is tried again.
    pub not_before: Option<Timestamp>,
    /// What failed last.
    pub last_error: Option<String>,
}

/// What a slot does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotStatus {
    /// Nothing is due.
    Idle,
    /// A summary is due, and will be taken up.
    Due,
    /// A summary is being written.
    Working,
    /// It failed, and is tried again later.
    Waiting,
    /// It is due, but nothing can be cut yet: a tool call is open.
    Parked,
    /// The settings do not know it any more; its last summary stands.
    Retired,
}

/// What is due in a workspace.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Queue {
    /// Due, and not yet taken up.
    pub due: u64,
    /// Being written.
    pub working: u64,
    /// Failed, and tried again later.
    pub waiting: u64,
    /// Due, but nothing can be cut yet.
    pub parked: u64,
    /// The slots, those waiting longest first; 1,000 of them at most.
    pub slots: Vec<QueueEntry>,
}

/// A slot with something to do.
#[derive(Debug, Clone, Serialize)]
pub struct QueueEntry {
    /// Which session.
    pub session: Arc<str>,
    /// Which slot.
    pub slot: String,
    /// Whose messages it covers; everybody's where nobody is named.
    pub scope: Option<Author>,
    /// What it does now.
    pub status: SlotStatus,
    /// The first firing to be worked off.
    pub due: Option<Seq>,
    /// Since when.
    pub since: Option<Timestamp>,
    /// How often in a row it failed.
    pub attempts: u32,
    /// When it is tried again.
    pub not_before: Option<Timestamp>,
    /// What failed last.
    pub last_error: Option<String>,
}

/// So many slots of a queue are listed.
const MOST_LISTED: usize = 1_000;

impl Session {
    /// Where every slot stands, and why it is due or not.
    pub async fn explain(&self) -> Result<Explanation, Error> {
        let (shared, (standing, row)) = (self.shared(), self.standing().await?);
        let settings = shared.settings_at(&standing)?;
        let explained = slots(&standing, &settings).into_iter().map(|row| {
            let order = settings.slot(&row.scope, &row.name);
            let room = order.and_then(|order| shared.room(&settings, order));
            let facts = Facts { room, ..Facts::new(&row.state.since, standing.now) };
            let gauges = order.map(|order| order.slot.trigger.standing(&facts));
            let status = if order.is_some() { status(&row, standing.now) } else { SlotStatus::Retired };
            let off = order.is_some_and(|order| !order.slot.auto);
            let (max_tokens, max_chars) = match order.map(|order| order.slot.limit) {
                Some(Limit::Tokens(tokens)) => (Some(tokens), None),
                Some(Limit::Chars(chars)) => (None, Some(chars)),
                None => (None, None),
            };
            let told = why(&row, status, gauges.as_ref(), off);
            let why = match order.and_then(|order| shared.lacking(&settings, order)) {
                Some(lacking) => format!("{told}; {lacking}"),
                None => told,
            };
            SlotExplanation {
                why,
                status,
                summary: row.active,
                covered: row.state.covered,
                due: row.state.due.map(|firing| firing.seq),
                due_at: row.state.due_at,
                trigger: order.map(|order| order.slot.trigger.to_string()),
                gauges: gauges.map(|standing| standing.gauges).unwrap_or_default(),
                keep: order.map(|order| order.slot.keep.to_string()),
                max_tokens,
                max_chars,
                models: order.map(|order| settings.models_of(order).to_vec()).unwrap_or_default(),
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

/// What a slot does.
fn status(row: &SlotRow, now: Timestamp) -> SlotStatus {
    let held = row.work.owner.is_some() && row.work.until.is_some_and(|until| until > now);
    match row.state.due {
        None => SlotStatus::Idle,
        Some(_) if held => SlotStatus::Working,
        Some(_) if row.work.parked => SlotStatus::Parked,
        Some(_) if row.work.not_before.is_some_and(|then| then > now) => SlotStatus::Waiting,
        Some(_) => SlotStatus::Due,
    }
}

fn why(row: &SlotRow, status: SlotStatus, gauges: Option<&trigger::Standing>, off: bool) -> String {
    let due = row.state.due.map_or(0, |firing| firing.seq);
    match status {
        SlotStatus::Idle if off => "it is written only when asked for".to_owned(),
        SlotStatus::Idle => {
            gauges.map(|gauges| format!("not due: {gauges}{}", failed(row))).unwrap_or_default()
        }
        SlotStatus::Due => format!("due since message {due}{}", failed(row)),
        SlotStatus::Working => format!("due since message {due}, and being written{}", failed(row)),
        SlotStatus::Waiting => format!("due since message {due}{}; it is tried again", failed(row)),
        SlotStatus::Parked => {
            format!("due since message {due}; no legal cut yet: a tool call or loop is under way")
        }
        SlotStatus::Retired => "the settings do not name it any more; its last summary stands".to_owned(),
    }
}

/// How often it failed since it last went well, and how last.
fn failed(row: &SlotRow) -> String {
    let error = row.work.last_error.as_deref().unwrap_or("no answer");
    match row.work.attempts {
        0 => row.work.last_error.as_ref().map_or_else(String::new, |error| format!("; {error}")),
        1 => format!("; failed once: {error}"),
        times => format!("; failed {times} times: {error}"),
    }
}

impl Workspace {
    /// What is due in it, and how the work on that goes.
    pub async fn queue(&self) -> Result<Queue, Error> {
        let (QueueCounts { working, parked, waiting, due, .. }, rows) =
            self.shared().store.queue(Some(self.name()), MOST_LISTED).await?;
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
