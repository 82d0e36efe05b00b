//! A session's summaries: reads, requests, undoes, rebuilds and expands them.

use epitome_core::message::{Author, Message, Seq, Timestamp};
use epitome_core::slot::Scope;
use serde::{Deserialize, Serialize};

use super::Shared;
use super::append::slots;
use super::session::{Page, Session};
use crate::error::Error;
use crate::event::Happened;
use crate::store::{
    Changes, Load, PickSummaries, Portion, SessionId, SessionRow, SlotRow, Standing, SummaryId, SummaryRow,
    SummaryState,
};
use crate::summary::Summary;
use crate::worker;

/// A request to write a summary now.
///
/// ```
/// use epitome::Summarize;
///
/// let wish = Summarize { focus: Some("open questions".into()), ..Summarize::slot("short") };
/// assert!(wish.wait);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Summarize {
    /// The slot; by default the first one of the scope.
    pub slot: Option<String>,
    /// The author whose messages to summarize; `None` for all messages.
    pub scope: Option<Author>,
    /// What the summary should pay attention to most.
    pub focus: Option<String>,
    /// Whether to wait until it is written.
    #[serde(skip)]
    pub wait: bool,
}

impl Default for Summarize {
    fn default() -> Self {
        Self { slot: None, scope: None, focus: None, wait: true }
    }
}

impl Summarize {
    /// Requests this slot's summary, and waits for it.
    pub fn slot(name: impl Into<String>) -> Self {
        Self { slot: Some(name.into()), ..Self::default() }
    }
}

/// The result of a request to write a summary.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Summarized {
    /// There are no new messages, or all new messages stay verbatim. The current summary stays, and no model was called.
    NothingNew {
        /// The current summary, if there is one.
        summary: Option<Summary>,
    },
    /// A new summary was written.
    Written {
        /// The new summary.
        summary: Summary,
    },
    /// It will be written.
    Pending {
        /// Why it is not written yet, if there is a reason: no legal cut, for example.
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
        self.read_summaries(PickSummaries::Standing).await
    }

    /// Returns all summaries, superseded and undone ones too, newest first: at most `limit` of those before `before`.
    pub async fn history(&self, before: Option<SummaryId>, limit: usize) -> Result<Vec<Summary>, Error> {
        let limit = limit.min(1_000);
        self.read_summaries(PickSummaries::History { slot: None, before, limit }).await
    }

    async fn read_summaries(&self, pick: PickSummaries) -> Result<Vec<Summary>, Error> {
        let (_, row) = self.standing().await?;
        let rows = self.shared().store.summaries(row.id, pick).await?;
        Ok(rows.into_iter().map(Summary::from).collect())
    }

    pub(super) async fn summary_row(&self, session: SessionId, id: SummaryId) -> Result<SummaryRow, Error> {
        let rows = self.shared().store.summaries(session, PickSummaries::Ids(vec![id])).await?;
        rows.into_iter().next().ok_or_else(|| Error::NotFound { what: format!("summary {id}") })
    }

    /// Has a summary written now, without waiting for the trigger. If there is nothing new, returns the current summary and
    /// calls no model.
    pub async fn summarize(&self, wish: Summarize) -> Result<Summarized, Error> {
        let shared = self.shared();
        let (name, focus) = (wish.slot.clone(), wish.focus.clone());
        let whose = Scope::from(wish.scope.clone());
        let (before, _) = self.standing().await?;
        let stand = before.slots.iter().filter_map(|row| row.active).collect();
        let load = Load { summaries: stand, ..Load::default() };
        let forced = self
            .change(load, move |engine, standing, _| {
                let mut row = find_slot(engine, standing, &whose, name.as_deref())?;
                let before = row.active;
                let fires = row.state.force(standing.now)
                    || stands_in(standing, &row) && force_again(&mut row, standing.now);
                let waits = Forced {
                    slot: row.name.clone(),
                    fires,
                    before,
                    at: row.state.newest.map_or(0, |firing| firing.seq),
                };
                if !fires {
                    return Ok((None, waits));
                }
                if focus.is_some() && row.work.owner.is_some() {
                    // The summary in progress does not use the focus, so it is written again.
                    take_away(&mut row);
                }
                row.work.focus = focus.clone().or(row.work.focus);
                ready_now(&mut row, standing.now);
                Ok((Some(Changes { slots: vec![row], ..Changes::default() }), waits))
            })
            .await?;
        let whose = wish.scope.into();
        if !forced.fires {
            let summary = self.standing_summary(&whose, &forced.slot).await?;
            return Ok(Summarized::NothingNew { summary });
        }
        shared.signals.wake.notify_one();
        if !wish.wait {
            return Ok(Summarized::Pending { reason: None });
        }
        self.wait_for(&whose, &forced).await
    }

    /// Waits until a trigger event is done, by this engine or another one.
    async fn wait_for(&self, whose: &Scope, forced: &Forced) -> Result<Summarized, Error> {
        let shared = self.shared();
        let mut moved = shared.signals.moved.subscribe();
        loop {
            moved.mark_unchanged();
            let (standing, _) = self.standing().await?;
            let Some(row) = standing.slot(whose, &forced.slot) else {
                return Err(Error::no_session(&self.key.session));
            };
            let done = row.state.due.is_none_or(|due| due.seq > forced.at);
            if done {
                let summary = self.standing_summary(whose, &forced.slot).await?;
                return Ok(match summary {
                    Some(summary) if Some(summary.id) != forced.before => Summarized::Written { summary },
                    summary => Summarized::NothingNew { summary },
                });
            }
            if row.work.parked {
                return Ok(Summarized::Pending {
                    reason: Some("no legal cut yet: a tool call or loop is in progress".to_owned()),
                });
            }
            // The request cleared `not_before`, so a new value was set by a failure since then.
            if row.work.not_before.is_some() && row.work.owner.is_none() {
                let reason = row.work.last_error.clone().unwrap_or_else(|| "the model failed".to_owned());
                return Err(Error::Model { reason });
            }
            if shared.pace.workers == 0 && shared.pace.on_demand {
                // There may be no other engine to write it.
                worker::until_idle(shared, Some(self.key.clone())).await?;
            }
            // Another process may write it without notifying this one. An engine without workers polls more often.
            let often = if shared.pace.workers == 0 { 5 } else { 1 };
            let _ = tokio::time::timeout(shared.pace.poll / often, moved.changed()).await;
        }
    }

    async fn standing_summary(&self, whose: &Scope, slot: &str) -> Result<Option<Summary>, Error> {
        let (standing, row) = self.standing().await?;
        match standing.slot(whose, slot).and_then(|slot| slot.active) {
            Some(active) => Ok(Some(self.summary_row(row.id, active).await?.into())),
            None => Ok(None),
        }
    }

    /// Undoes the current summary of a slot. The previous summary becomes current again, a summary in progress is discarded
    /// when it is ready, and the trigger starts counting again at the newest message.
    pub async fn undo(&self, summary: SummaryId) -> Result<Option<Summary>, Error> {
        let (_, session) = self.standing().await?;
        let undone = self.summary_row(session.id, summary).await?;
        let load =
            Load { summaries: undone.parent.into_iter().chain([summary]).collect(), ..Load::default() };
        let decide = move |_: &Shared, standing: &Standing, session: SessionRow| {
            let find = |id: SummaryId| standing.summaries.iter().find(|row| row.id == id);
            let undone = find(summary);
            let row = undone.and_then(|row| standing.slot(&row.scope, &row.slot));
            let Some(mut row) = row.filter(|row| row.active == Some(summary)).cloned() else {
                return Err(Error::Conflict(format!(
                    "summary {summary} is not the current one; undo that first"
                )));
            };
            let parent = undone.and_then(|row| row.parent).and_then(find);
            row.state.undo(parent.map_or(0, |parent| parent.through), session.tracker.head(), standing.now);
            row.active = parent.map(|parent| parent.id);
            // A worker that writes the next summary now started from the one that is undone.
            row.fence = row.fence.saturating_add(1);
            row.work = crate::store::Work::default();
            row.mark(standing.now);
            let mut states = vec![(summary, SummaryState::Undone)];
            states.extend(parent.map(|parent| (parent.id, SummaryState::Standing)));
            let moved = |undone| Happened::moved(undone, SummaryState::Undone, row.active);
            let events = undone.map(moved).into_iter().collect();
            let changes = Changes { slots: vec![row], states, events, ..Changes::default() };
            Ok((Some(changes), parent.cloned()))
        };
        let parent = self.change(load, decide).await?;
        self.shared().tell_moved();
        let stands = |row: SummaryRow| SummaryRow { state: SummaryState::Standing, ..row }.into();
        Ok(parent.map(stands))
    }

    /// Has a slot's summary written again from the first message on, with the current settings. The current summary stays in
    /// use until the new one is ready. Returns false if there is nothing to summarize.
    pub async fn rebuild(&self, whose: Option<Author>, slot: &str) -> Result<bool, Error> {
        let (name, whose) = (slot.to_owned(), whose.into());
        let fires = self
            .change(Load::default(), move |engine, standing, _| {
                let mut row = find_slot(engine, standing, &whose, Some(&name))?;
                let fires = force_again(&mut row, standing.now);
                row.work.rebuild = true;
                // A summary in progress builds on the current one, and would be stored in place of the rebuilt one.
                take_away(&mut row);
                ready_now(&mut row, standing.now);
                let changes = fires.then(|| Changes { slots: vec![row], ..Changes::default() });
                Ok((changes, fires))
            })
            .await?;
        if fires {
            self.shared().signals.wake.notify_one();
        }
        Ok(fires)
    }

    /// Returns a page of the messages that a summary covers: those of its scope up to its last one.
    pub async fn expand(&self, summary: SummaryId, page: Page) -> Result<Portion<Message>, Error> {
        let (_, row) = self.standing().await?;
        let summary = self.summary_row(row.id, summary).await?;
        let page = Page { scope: summary.scope.into(), ..page };
        self.page(row.id, page, summary.through).await
    }
}

/// What the caller of a forced summary waits for.
struct Forced {
    slot: String,
    fires: bool,
    /// The summary that was current before.
    before: Option<SummaryId>,
    /// The trigger event to wait for.
    at: Seq,
}

/// Returns whether the slot's current summary is a fallback summary.
fn stands_in(standing: &Standing, row: &SlotRow) -> bool {
    standing.summaries.iter().any(|summary| Some(summary.id) == row.active && summary.facts.stand_in)
}

/// Revokes the lease of the worker that has the slot, so that its summary is discarded.
fn take_away(row: &mut SlotRow) {
    row.fence = row.fence.saturating_add(1);
    (row.work.owner, row.work.until) = (None, None);
}

/// Makes the slot ready at once: the caller does not want to wait for the time of the next attempt.
fn ready_now(row: &mut SlotRow, now: Timestamp) {
    (row.work.not_before, row.work.aside) = (None, None);
    row.work.parked = false;
    row.mark(now);
}

/// Fires the trigger as if nothing were covered. The coverage itself is not reduced.
fn force_again(row: &mut SlotRow, now: Timestamp) -> bool {
    let covered = std::mem::take(&mut row.state.covered);
    let fires = row.state.force(now);
    row.state.covered = covered;
    fires
}

/// Returns a slot by its name, or the first one of its scope. If it was never stored, returns a new row.
fn find_slot(
    shared: &Shared,
    standing: &Standing,
    whose: &Scope,
    name: Option<&str>,
) -> Result<SlotRow, Error> {
    let settings = shared.settings_at(standing)?;
    let mut orders = settings.slots.iter().filter(|order| order.slot.scope == *whose);
    let order = orders.find(|order| name.is_none_or(|name| order.slot.name == name));
    if let Some(lacks) = order.and_then(|order| shared.lacking(&settings, order)) {
        return Err(Error::Conflict(lacks));
    }
    let row = order.map(|order| &order.slot).and_then(|slot| {
        let rows = slots(standing, &settings);
        rows.into_iter().find(|row| row.scope == slot.scope && row.name == slot.name)
    });
    row.ok_or_else(|| {
        let named = name.map_or("a slot".to_owned(), |name| format!("slot `{name}`"));
        let of = match whose {
            Scope::Session => "of the whole session".to_owned(),
            Scope::Author(author) => format!("with the scope `{author}`"),
        };
        let there = settings.slots.iter().filter(|order| order.slot.scope == *whose);
        let there: Vec<&str> = there.map(|order| order.slot.name.as_str()).collect();
        let there =
            if there.is_empty() { String::new() } else { format!(" (there are: {})", there.join(", ")) };
        Error::NotFound { what: format!("{named} {of}{there}") }
    })
}
