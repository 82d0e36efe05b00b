//! A new session from a point of another.

use std::sync::Arc;

use epitome_core::message::{Message, Seq, Span, Timestamp, Tokens};
use epitome_core::outline::Totals;
use epitome_core::slot::{Firing, Slot, SlotState};
use epitome_core::track::Tracker;
use epitome_core::view::recognise;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Shared;
use super::append::create;
use super::checks::check_metadata;
use crate::context;
use crate::error::Error;
use crate::event::Happened;
use crate::request::ContextRequest;
use crate::store::{
    CopiedSession, Load, Pick, PickSummaries, SessionId, SessionKey, SessionRow, SlotRow, SummaryRow,
    SummaryState,
};

/// How a new session is made from another.
///
/// ```
/// use epitome::{Fork, ForkKind};
///
/// let fork = Fork { at: Some(40), ..Fork::condensed("helper") };
/// assert_eq!(fork.kind, ForkKind::Condensed);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fork {
    /// What it is called. There must be no such session yet.
    pub name: Arc<str>,
    /// The last message it takes over; the newest where none is named.
    pub at: Option<Seq>,
    /// Whole or condensed.
    #[serde(default)]
    pub kind: ForkKind,
    /// The caller's notes on it. Without them, those on the session it comes from, and from where in it that is.
    #[serde(skip)]
    pub metadata: Option<Map<String, Value>>,
}

/// What a fork takes over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ForkKind {
    /// Every message, and the summaries that stood there.
    #[default]
    Whole,
    /// What a context would hold: the summary, which becomes the pinned first message, and the messages
    /// after it. For a sub-agent that needs to know, not to remember.
    Condensed,
}

impl Fork {
    /// Takes over every message.
    pub fn whole(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), at: None, kind: ForkKind::Whole, metadata: None }
    }

    /// Takes over what a context would hold.
    pub fn condensed(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), at: None, kind: ForkKind::Condensed, metadata: None }
    }
}

/// So many messages are looked at at a time.
const CHUNK: usize = 500;

/// A fork that is being made.
struct Forking<'a> {
    shared: &'a Arc<Shared>,
    from: &'a SessionKey,
    row: SessionRow,
    /// The new session.
    key: SessionKey,
    /// The last message that it takes over.
    at: Seq,
    metadata: Map<String, Value>,
}

pub(super) async fn fork(shared: &Arc<Shared>, from: &SessionKey, fork: Fork) -> Result<SessionKey, Error> {
    let standing = shared.store.standing(from, Load::default()).await?;
    let row = standing.session.clone().ok_or_else(|| Error::no_session(&from.session))?;
    let head = row.tracker.head();
    let at = fork.at.unwrap_or(head);
    if head == 0 {
        return Err(Error::Conflict(
            "the session has no messages yet, so there is nothing to fork".to_owned(),
        ));
    }
    let missing = format!("at: {at}; the session has messages 1 to {head}");
    match at {
        0 => return Err(Error::Invalid(missing)),
        // It may have some day.
        _ if at > head => return Err(Error::Conflict(missing)),
        _ => {}
    }
    let key = SessionKey { workspace: Arc::clone(&from.workspace), session: Arc::clone(&fork.name) };
    if shared.store.standing(&key, Load::default()).await?.session.is_some() {
        return Err(taken(&key));
    }
    if let Some(given) = fork.metadata.as_ref().filter(|given| **given != row.metadata) {
        check_metadata(given, &*shared.settings_at(&standing)?)?;
    }
    let metadata = fork.metadata.unwrap_or_else(|| {
        let mut metadata = row.metadata.clone();
        metadata.insert("forked_from".to_owned(), json!({"session": &*from.session, "at": at}));
        metadata
    });
    let forking = Forking { shared, from, row, key, at, metadata };
    let made = match fork.kind {
        ForkKind::Whole => forking.whole(standing.slots).await,
        ForkKind::Condensed => forking.condensed().await,
    };
    match made {
        Err(error) => Err(told(shared, from, forking.row.id, error).await),
        Ok(false) => Err(taken(&forking.key)),
        Ok(true) => {
            shared.signals.wake.notify_one();
            Ok(forking.key)
        }
    }
}

/// Why there is no fork. A store cannot go on where the session was deleted meanwhile, and says that it failed; whoever asked
/// is told that there is no such session.
async fn told(shared: &Shared, from: &SessionKey, id: SessionId, error: Error) -> Error {
    if !matches!(error, Error::Store(_)) {
        return error;
    }
    match shared.store.standing(from, Load::default()).await {
        Ok(now) if now.session.as_ref().is_none_or(|row| row.id != id) => Error::no_session(&from.session),
        _ => error,
    }
}

fn taken(key: &SessionKey) -> Error {
    Error::Conflict(format!("session `{}` exists already; choose another name", key.session))
}

impl Forking<'_> {
    /// Makes it of what a context would hold. False when there is such a session already.
    async fn condensed(&self) -> Result<bool, Error> {
        let Self { shared, from, at, .. } = self;
        let asked = ContextRequest { as_of: Some(*at), ..ContextRequest::default() };
        let mut context = context::context(shared, from, asked.clone()).await?;
        if !context.report.exhaustive {
            // No summary reaches far enough yet: what is missing is digested on the spot.
            context = context::context(shared, from, ContextRequest { fill: true, ..asked }).await?;
        }
        let mut messages = context.messages;
        for message in &mut messages {
            message.seq = 0;
        }
        if let Some(found) = messages.iter().position(|message| recognise(message).is_some()) {
            let mut summary = messages.remove(found);
            summary.pinned = true;
            if let Some(shown) = &context.summary {
                summary
                    .metadata
                    .insert("epitome".to_owned(), json!({"summary": shown.id, "covers": [1, shown.through]}));
            }
            let leading = messages.iter().take_while(|message| message.role.is_system()).count();
            messages.insert(leading, summary);
        }
        if messages.is_empty() {
            return Err(Error::Conflict(
                "there is nothing to take over: no context could be made there".to_owned(),
            ));
        }
        create(shared, &self.key, messages, &self.row, self.metadata.clone()).await
    }

    /// Makes it of every message, and of the summaries that stood there. False when there is such a session already.
    async fn whole(&self, slots: Vec<SlotRow>) -> Result<bool, Error> {
        let Self { shared, row, key, at, .. } = self;
        let (shared, at): (&Shared, Seq) = (shared, *at);
        let standing = shared.store.standing(key, Load::default()).await?;
        let settings = shared.settings_of(&standing.workspace_settings, &row.settings)?;
        let copied = shared.store.copy(row.id, at).await?;
        let mut copy = follow(shared, copied, at, row).await?;
        copy.metadata = self.metadata.clone();
        (copy.created, copy.updated) = (standing.now, standing.now);
        let (mut rows, mut summaries) = (Vec::new(), Vec::new());
        for slot in slots {
            let Some(order) = settings.slot(&slot.scope, &slot.name) else { continue };
            let lineage = lineage(shared, row.id, &slot, at).await?;
            let first = lineage.first().map(|summary| summary.id);
            let state = if at == row.tracker.head() && slot.active == first {
                // As it stands: what an undo struck stays struck.
                slot.state.clone()
            } else {
                let room = shared.room(&settings, order);
                state(shared, copied, (&order.slot, room), lineage.first(), at, standing.now).await?
            };
            let mut row = SlotRow::new(slot.scope, slot.name);
            row.active = first;
            row.state = state;
            row.mark(standing.now);
            rows.push(row);
            summaries.extend(lineage.into_iter().rev());
        }
        let events = vec![Happened::Message(Span { from: 1, through: at })];
        let copy = CopiedSession { id: copied, row: copy, slots: rows, summaries, events };
        let revealed = shared.store.reveal(key, copy).await?;
        if revealed {
            shared.signals.listeners.wake(&key.workspace);
        }
        Ok(revealed)
    }
}

/// The row of a copied session, worked out from its messages.
async fn follow(shared: &Shared, copied: SessionId, at: Seq, from: &SessionRow) -> Result<SessionRow, Error> {
    let mut row =
        SessionRow { id: copied, opener: 0, batch_from: 1, batch_skipped: false, skipped: 0, ..from.clone() };
    // What the tracker knows at the head was stored; anywhere else it is worked out again.
    let replay = from.tracker.head() != at;
    let mut tracker = Tracker::default();
    let mut after = 0;
    while after < at {
        let ahead = shared.store.ahead(copied, &Default::default(), after, CHUNK).await?;
        let Some(last) = ahead.log.last() else { break };
        let words = if replay {
            let seqs = ahead.log.iter().map(|outline| outline.seq).collect();
            shared.store.messages(copied, Pick::Seqs(seqs)).await?.items
        } else {
            Vec::new()
        };
        after = last.seq;
        for (message, outline) in words.iter().zip(&ahead.log) {
            tracker.push_sized(message, outline.tokens);
        }
        for outline in &ahead.log {
            if outline.opens_turn {
                row.opener = outline.seq;
            }
            row.skip(outline);
        }
    }
    if replay {
        row.tracker = tracker;
    }
    Ok(row)
}

/// The summary a slot had at some message, and the one before it, so that it can be undone there too.
async fn lineage(
    shared: &Shared,
    session: SessionId,
    slot: &SlotRow,
    at: Seq,
) -> Result<Vec<SummaryRow>, Error> {
    let key = Some((slot.scope.clone(), slot.name.clone()));
    let (mut found, mut before): (Vec<SummaryRow>, _) = (Vec::new(), None);
    loop {
        let pick = PickSummaries::History { slot: key.clone(), before, limit: CHUNK };
        let page = shared.store.summaries(session, pick).await?;
        let Some(last) = page.last() else { break };
        before = Some(last.id);
        for mut row in page {
            let wanted = row.state != SummaryState::Undone && row.through <= at;
            let further = found.last().is_none_or(|newer| row.through < newer.through);
            if wanted && further {
                row.state = if found.is_empty() { SummaryState::Standing } else { SummaryState::Superseded };
                row.facts.built_on = None;
                // Its slot there starts with a fence of its own.
                row.facts.fence = 0;
                row.parent = None;
                if let Some(newer) = found.last_mut() {
                    newer.parent = Some(row.id);
                    newer.facts.built_on = Some(row.id);
                }
                found.push(row);
            }
            if found.len() == 2 {
                return Ok(found);
            }
        }
    }
    Ok(found)
}

/// Where a slot stands whose newest summary is this: what came after its firing is counted again.
async fn state(
    shared: &Shared,
    session: SessionId,
    (slot, room): (&Slot, Option<Tokens>),
    summary: Option<&SummaryRow>,
    at: Seq,
    now: Timestamp,
) -> Result<SlotState, Error> {
    let mut state = SlotState::default();
    let mut after = 0;
    if let Some(summary) = summary {
        let fired = summary.facts.firing.min(at);
        let message = shared.store.messages(session, Pick::Seqs(vec![fired])).await?;
        let moment = message.first().map_or(now, |message: &Message| message.at);
        let since = Totals { last_seq: fired, last_at: moment, since: Some(moment), ..Totals::default() };
        let firing = Firing { seq: fired, restart: since };
        state = SlotState { covered: summary.through, fired, newest: Some(firing), since, ..state };
        after = fired;
    }
    while after < at {
        let ahead = shared.store.ahead(session, &slot.scope, after, CHUNK).await?;
        let Some(last) = ahead.log.last() else { break };
        after = last.seq;
        for outline in &ahead.log {
            if state.since.last_turn == 0 && state.fired > 0 && !outline.opens_turn {
                // The turn under way at the firing was counted before it.
                state.since.last_turn = outline.turn;
            }
            state.advance(slot, outline, room);
        }
    }
    Ok(state)
}
