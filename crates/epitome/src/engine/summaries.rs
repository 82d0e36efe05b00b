//! Reads, requests, undoes, rebuilds and expands the summaries of a session.

use epitome_core::message::{Author, Message, Seq, Timestamp};
use epitome_core::slot::Scope;
use epitome_core::suggest::did_you_mean;
use serde::{Deserialize, Serialize};

use super::Shared;
use super::append::session_slots;
use super::session::{Page, Session};
use crate::error::Error;
use crate::event::EventBody;
use crate::store::{
    Changes, Load, PickSummaries, Portion, SessionId, SessionRow, SessionState, SlotRow, SummaryId,
    SummaryRow, SummaryState,
};
use crate::summary::Summary;
use crate::worker;

/// A request to write a summary now.
///
/// ```
/// use epitome::Summarize;
///
/// let request = Summarize { focus: Some("open questions".into()), ..Summarize::slot("short") };
/// assert!(request.wait);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Summarize {
    /// Name of the slot; by default the first slot of the scope.
    pub slot: Option<String>,
    /// The author whose messages are summarized; `None` for all messages.
    pub scope: Option<Author>,
    /// The topic on which the summary should focus; `None` for no special topic.
    pub focus: Option<String>,
    /// Whether the call waits until the summary is written.
    #[serde(skip)]
    pub wait: bool,
}

impl Default for Summarize {
    fn default() -> Self {
        Self { slot: None, scope: None, focus: None, wait: true }
    }
}

impl Summarize {
    /// Creates a request for this slot's summary. The call waits until the summary is written.
    pub fn slot(name: impl Into<String>) -> Self {
        Self { slot: Some(name.into()), ..Self::default() }
    }
}

/// The result of a request to write a summary.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Summarized {
    /// There are no new messages, or all new messages stay verbatim. The current summary stays in use, and no model was
    /// called.
    NothingNew {
        /// The current summary, if there is one.
        summary: Option<Summary>,
    },
    /// A new summary was written.
    Written {
        /// The new summary.
        summary: Summary,
    },
    /// The summary is not written yet. A worker will write it.
    Pending {
        /// Why the worker cannot write it yet, for example because a tool call is in progress; `None` if there is no
        /// such reason.
        reason: Option<String>,
    },
}

impl Summarized {
    /// Returns the summary, if there is one.
    pub fn summary(&self) -> Option<&Summary> {
        match self {
            Self::NothingNew { summary } => summary.as_ref(),
            Self::Written { summary } => Some(summary),
            Self::Pending { .. } => None,
        }
    }
}

impl Session {
    /// Returns the current summaries, one for each slot.
    pub async fn summaries(&self) -> Result<Vec<Summary>, Error> {
        self.read_summaries(PickSummaries::Current).await
    }

    /// Returns summaries, newest first, including superseded and undone summaries. Returns only summaries with an id
    /// below `before`, or all summaries if `before` is `None`. Returns at most `limit` summaries, and never more than
    /// 1,000.
    pub async fn history(&self, before: Option<SummaryId>, limit: usize) -> Result<Vec<Summary>, Error> {
        let limit = limit.min(1_000);
        self.read_summaries(PickSummaries::History { slot: None, before, limit }).await
    }

    async fn read_summaries(&self, pick: PickSummaries) -> Result<Vec<Summary>, Error> {
        let (_, row) = self.state().await?;
        let rows = self.shared().store.summaries(row.id, pick).await?;
        Ok(rows.into_iter().map(Summary::from).collect())
    }

    pub(super) async fn summary_row(&self, session: SessionId, id: SummaryId) -> Result<SummaryRow, Error> {
        let rows = self.shared().store.summaries(session, PickSummaries::Ids(vec![id])).await?;
        rows.into_iter().next().ok_or_else(|| Error::not_found(format_args!("summary {id}")))
    }

    /// Writes a summary now, without waiting for the trigger. If there are no new messages, returns the current summary
    /// and calls no model.
    pub async fn summarize(&self, request: Summarize) -> Result<Summarized, Error> {
        let shared = self.shared();
        let (name, focus) = (request.slot.clone(), request.focus.clone());
        let scope = Scope::from(request.scope.clone());
        let (before, _) = self.state().await?;
        let current = before.slots.iter().filter_map(|row| row.active).collect();
        let load = Load { summaries: current, ..Load::default() };
        let forced = self
            .change(load, move |engine, state, _| {
                let mut row = find_slot(engine, state, &scope, name.as_deref())?;
                let before = row.active;
                let fires = row.state.force(state.now)
                    || is_fallback(state, &row) && force_rebuild(&mut row, state.now);
                let forced = ForcedTrigger {
                    slot: row.name.clone(),
                    fires,
                    before,
                    at: row.state.newest.map_or(0, |firing| firing.seq),
                };
                if !fires {
                    return Ok((None, forced));
                }
                if focus.is_some() && row.work.owner.is_some() {
                    // The summary in progress does not use the new focus, so its lease is revoked and the summary is
                    // written again.
                    revoke_lease(&mut row);
                }
                row.work.focus = focus.clone().or(row.work.focus);
                ready_now(&mut row, state.now);
                Ok((Some(Changes { slots: vec![row], ..Changes::default() }), forced))
            })
            .await?;
        let scope = request.scope.into();
        if !forced.fires {
            let summary = self.current_summary(&scope, &forced.slot).await?;
            return Ok(Summarized::NothingNew { summary });
        }
        shared.signals.wake.notify_one();
        if !request.wait {
            return Ok(Summarized::Pending { reason: None });
        }
        self.wait_for(&scope, &forced).await
    }

    /// Waits until this engine or another engine has handled the trigger event.
    async fn wait_for(&self, scope: &Scope, forced: &ForcedTrigger) -> Result<Summarized, Error> {
        let shared = self.shared();
        let mut moved = shared.signals.slot_changed.subscribe();
        loop {
            moved.mark_unchanged();
            let (state, _) = self.state().await?;
            let Some(row) = state.slot(scope, &forced.slot) else {
                return Err(Error::no_session(&self.key.session));
            };
            let done = row.state.due.is_none_or(|due| due.seq > forced.at);
            if done {
                let summary = self.current_summary(scope, &forced.slot).await?;
                return Ok(match summary {
                    Some(summary) if Some(summary.id) != forced.before => Summarized::Written { summary },
                    summary => Summarized::NothingNew { summary },
                });
            }
            if row.work.parked {
                return Ok(Summarized::Pending {
                    reason: Some("the worker waits until the tool call or loop in progress ends".to_owned()),
                });
            }
            // The request cleared `not_before`. If `not_before` is set again, an attempt has failed in the meantime.
            if row.work.not_before.is_some() && row.work.owner.is_none() {
                let reason = row.work.last_error.clone().unwrap_or_else(|| "the model failed".to_owned());
                return Err(Error::Model { reason });
            }
            if shared.pace.workers == 0 && shared.pace.on_demand {
                // This engine has no worker, and there may be no other engine. So this task writes the summary.
                worker::until_idle(shared, Some(self.key.clone())).await?;
            }
            // Another process may write the summary without a notification to this process, so the loop also polls.
            let often = if shared.pace.workers == 0 { 5 } else { 1 };
            let _ = tokio::time::timeout(shared.pace.poll / often, moved.changed()).await;
        }
    }

    async fn current_summary(&self, scope: &Scope, slot: &str) -> Result<Option<Summary>, Error> {
        let (state, row) = self.state().await?;
        match state.slot(scope, slot).and_then(|slot| slot.active) {
            Some(active) => Ok(Some(self.summary_row(row.id, active).await?.into())),
            None => Ok(None),
        }
    }

    /// Undoes the current summary of a slot. The previous summary becomes current again and is returned; `None` if
    /// there was no previous summary. If a worker is writing the next summary, that summary is discarded. The trigger
    /// starts counting again at the newest message.
    pub async fn undo(&self, summary: SummaryId) -> Result<Option<Summary>, Error> {
        let (_, session) = self.state().await?;
        let undone = self.summary_row(session.id, summary).await?;
        let load =
            Load { summaries: undone.parent.into_iter().chain([summary]).collect(), ..Load::default() };
        let decide = move |_: &Shared, state: &SessionState, session: SessionRow| {
            let find = |id: SummaryId| state.summaries.iter().find(|row| row.id == id);
            let undone = find(summary);
            let row = undone.and_then(|row| state.slot(&row.scope, &row.slot));
            let Some(mut row) = row.filter(|row| row.active == Some(summary)).cloned() else {
                return Err(Error::Conflict(format!(
                    "summary {summary} is not the current summary of its slot; undo the current one first"
                )));
            };
            let parent = undone.and_then(|row| row.parent).and_then(find);
            row.state.undo(parent.map_or(0, |parent| parent.through), session.tracker.head(), state.now);
            row.active = parent.map(|parent| parent.id);
            // If a worker is writing the next summary, this summary builds on the undone one. The new fencing token
            // makes the worker's commit fail.
            row.fence = row.fence.saturating_add(1);
            row.work = crate::store::SlotWork::default();
            row.update_waiting_since(state.now);
            let mut states = vec![(summary, SummaryState::Undone)];
            states.extend(parent.map(|parent| (parent.id, SummaryState::Current)));
            let moved = |undone| EventBody::summary_changed(undone, SummaryState::Undone, row.active);
            let events = undone.map(moved).into_iter().collect();
            let changes = Changes { slots: vec![row], states, events, ..Changes::default() };
            Ok((Some(changes), parent.cloned()))
        };
        let parent = self.change(load, decide).await?;
        self.shared().notify_slot_changed();
        let current = |row: SummaryRow| SummaryRow { state: SummaryState::Current, ..row }.into();
        Ok(parent.map(current))
    }

    /// Requests that a worker writes a slot's summary again from the first message on, with the current settings. The
    /// current summary stays in use until the new summary is ready. Returns false if there are no messages to
    /// summarize.
    pub async fn rebuild(&self, scope: Option<Author>, slot: &str) -> Result<bool, Error> {
        let (name, scope) = (slot.to_owned(), scope.into());
        let fires = self
            .change(Load::default(), move |engine, state, _| {
                let mut row = find_slot(engine, state, &scope, Some(&name))?;
                let fires = force_rebuild(&mut row, state.now);
                row.work.rebuild = true;
                // A summary in progress builds on the current summary. If its lease were not revoked, it would be
                // stored in place of the rebuilt summary.
                revoke_lease(&mut row);
                ready_now(&mut row, state.now);
                let changes = fires.then(|| Changes { slots: vec![row], ..Changes::default() });
                Ok((changes, fires))
            })
            .await?;
        if fires {
            self.shared().signals.wake.notify_one();
        }
        Ok(fires)
    }

    /// Returns a page of the messages that a summary covers: the messages of the summary's scope, up to the last
    /// covered message.
    pub async fn expand(&self, summary: SummaryId, page: Page) -> Result<Portion<Message>, Error> {
        let (_, row) = self.state().await?;
        let summary = self.summary_row(row.id, summary).await?;
        let page = Page { scope: summary.scope.into(), ..page };
        self.page(row.id, page, summary.through).await
    }
}

/// The trigger event of a summary that a caller requested. The caller may wait until the trigger event is handled.
struct ForcedTrigger {
    slot: String,
    /// Whether the trigger fired; false if there are no new messages.
    fires: bool,
    /// The summary that was current before the request.
    before: Option<SummaryId>,
    /// The message at which the trigger event happened.
    at: Seq,
}

/// Returns whether the slot's current summary is a fallback summary.
fn is_fallback(state: &SessionState, row: &SlotRow) -> bool {
    state.summaries.iter().any(|summary| Some(summary.id) == row.active && summary.facts.stand_in)
}

/// Revokes the slot's lease. The summary of the worker that had the lease is discarded.
fn revoke_lease(row: &mut SlotRow) {
    row.fence = row.fence.saturating_add(1);
    (row.work.owner, row.work.until) = (None, None);
}

/// Makes the slot ready at once, without waiting for the time of the next attempt.
fn ready_now(row: &mut SlotRow, now: Timestamp) {
    (row.work.not_before, row.work.aside) = (None, None);
    row.work.parked = false;
    row.update_waiting_since(now);
}

/// Fires the trigger as if no message were covered. The stored coverage does not change. Returns false if there are no
/// messages to summarize.
fn force_rebuild(row: &mut SlotRow, now: Timestamp) -> bool {
    let covered = std::mem::take(&mut row.state.covered);
    let fires = row.state.force(now);
    row.state.covered = covered;
    fires
}

/// Returns the row of the slot with this name, or of the first slot of the scope if `name` is `None`. A slot that was
/// never stored gets a new row.
fn find_slot(
    shared: &Shared,
    state: &SessionState,
    scope: &Scope,
    name: Option<&str>,
) -> Result<SlotRow, Error> {
    let settings = shared.settings_at(state)?;
    let mut configs = settings.slots.iter().filter(|config| config.slot.scope == *scope);
    let config = configs.find(|config| name.is_none_or(|name| config.slot.name == name));
    if let Some(lacks) = config.and_then(|config| shared.missing_model(&settings, config)) {
        return Err(Error::Conflict(lacks));
    }
    let row = config.map(|config| &config.slot).and_then(|slot| {
        let rows = session_slots(state, &settings);
        rows.into_iter().find(|row| row.scope == slot.scope && row.name == slot.name)
    });
    row.ok_or_else(|| {
        let what = match (name, scope) {
            (Some(name), Scope::Session) => format!("slot `{name}`"),
            (Some(name), Scope::Author(author)) => format!("slot `{name}` with the scope `{author}`"),
            (None, Scope::Session) => "a slot of the whole session".to_owned(),
            (None, Scope::Author(author)) => format!("a slot with the scope `{author}`"),
        };
        let there = settings.slots.iter().filter(|config| config.slot.scope == *scope);
        let there: Vec<&str> = there.map(|config| config.slot.name.as_str()).collect();
        let similar = name.map(|name| did_you_mean(name, there.iter().copied())).unwrap_or_default();
        let hint = match there.as_slice() {
            [] => String::new(),
            there => format!("{similar}there are: {}", there.join(", ")),
        };
        Error::NotFound { what, hint }
    })
}
