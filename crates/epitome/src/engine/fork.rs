//! Creates a new session from the messages of another session, up to a certain message.

use std::sync::Arc;

use epitome_core::message::{Seq, Span, Tokens};
use epitome_core::outline::{Outline, Totals};
use epitome_core::slot::{Firing, Scope, Slot, SlotState};
use epitome_core::track::Tracker;
use epitome_core::view::recognise;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Shared;
use super::append::create;
use super::checks::check_metadata;
use super::session::Session;
use crate::context;
use crate::error::{Error, check_name};
use crate::event::EventBody;
use crate::request::ContextRequest;
use crate::store::{
    CopiedSession, Load, PickMessages, PickSummaries, SessionId, SessionRow, SlotRow, SummaryRow,
    SummaryState,
};

/// How to create a new session from another one.
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
    /// Name of the new session. It must not exist yet.
    pub name: Arc<str>,
    /// The last message to copy; by default the newest.
    pub at: Option<Seq>,
    /// What to copy.
    #[serde(default)]
    pub kind: ForkKind,
    /// Metadata of the new session. By default the metadata of the original session, plus `forked_from` with its name
    /// and the last copied message.
    #[serde(skip)]
    pub metadata: Option<Map<String, Value>>,
}

/// What a fork copies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ForkKind {
    /// Every message, and the summaries that were current at that point.
    #[default]
    Whole,
    /// The messages that a context would contain: the summary and the messages after it. In the new session, the
    /// summary is a pinned message after the system messages. This kind is for a sub-agent that needs the facts but not
    /// the whole history.
    Condensed,
}

impl Fork {
    /// Creates a fork that copies every message.
    pub fn whole(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), at: None, kind: ForkKind::Whole, metadata: None }
    }

    /// Creates a fork that copies the summary and the messages that a context would contain.
    pub fn condensed(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), at: None, kind: ForkKind::Condensed, metadata: None }
    }
}

/// Number of messages that are processed at a time.
const CHUNK: usize = 500;

/// A fork in progress.
struct Forking<'a> {
    from: &'a Session,
    row: SessionRow,
    to: Session,
    /// The last message to copy.
    at: Seq,
    metadata: Map<String, Value>,
}

impl Session {
    /// Creates a new session from this session.
    pub async fn fork(&self, fork: Fork) -> Result<Session, Error> {
        self.check_names()?;
        check_name("session", &fork.name)?;
        let (shared, (state, row)) = (self.shared(), self.state().await?);
        let head = row.tracker.head();
        let at = fork.at.unwrap_or(head);
        if head == 0 {
            return Err(Error::Conflict(
                "the session has no messages yet, so there is nothing to fork".to_owned(),
            ));
        }
        let missing = format!("at: there is no message {at}; the session has messages 1 to {head}");
        match at {
            0 => return Err(Error::Invalid(missing)),
            // This is a conflict and not an invalid request, because the message may exist later.
            _ if at > head => return Err(Error::Conflict(missing)),
            _ => {}
        }
        let to = self.sibling(fork.name);
        let exists = format!("session `{}` exists already; choose another name", to.name());
        if shared.store.session_state(&to.key, Load::default()).await?.session.is_some() {
            return Err(Error::Conflict(exists));
        }
        if let Some(metadata) = fork.metadata.as_ref().filter(|metadata| **metadata != row.metadata) {
            check_metadata(metadata, &*shared.settings_at(&state)?)?;
        }
        let metadata = fork.metadata.unwrap_or_else(|| {
            let mut metadata = row.metadata.clone();
            metadata.insert("forked_from".to_owned(), json!({"session": self.name(), "at": at}));
            metadata
        });
        let forking = Forking { from: self, row, to, at, metadata };
        let created = match fork.kind {
            ForkKind::Whole => forking.whole(state.slots).await,
            ForkKind::Condensed => forking.condensed().await,
        };
        match created {
            // The session may have been deleted in the meantime. The store reports a deletion only as a general
            // failure, so this code checks whether the session still exists.
            Err(Error::Store(error)) => Err(match self.state().await {
                Err(missing @ Error::NotFound { .. }) => missing,
                Ok((_, now)) if now.id != forking.row.id => Error::no_session(self.name()),
                _ => Error::Store(error),
            }),
            Err(error) => Err(error),
            Ok(false) => Err(Error::Conflict(exists)),
            Ok(true) => {
                shared.signals.wake.notify_one();
                Ok(forking.to)
            }
        }
    }
}

impl Forking<'_> {
    /// Creates the session from the messages that a context would contain. Returns false if a session of that name
    /// exists.
    async fn condensed(&self) -> Result<bool, Error> {
        let (shared, from, at) = (self.from.shared(), &self.from.key, self.at);
        let request = ContextRequest { as_of: Some(at), ..ContextRequest::default() };
        let mut context = context::context(shared, from, request.clone()).await?;
        if !context.report.exhaustive {
            // The summary does not cover all older messages, so the context is built again with a digest of the other
            // messages.
            context = context::context(shared, from, ContextRequest { fill: true, ..request }).await?;
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
                "cannot make a condensed fork: the context at this message is empty".to_owned(),
            ));
        }
        create(shared, &self.to.key, messages, &self.row, self.metadata.clone()).await
    }

    /// Creates the session from every message and from the summaries that were current at that point. Returns false if
    /// a session of that name exists.
    async fn whole(&self, slots: Vec<SlotRow>) -> Result<bool, Error> {
        let Self { from, row, to: Session { key, .. }, at, .. } = self;
        let shared = from.shared();
        let state = shared.store.session_state(key, Load::default()).await?;
        let settings = shared.settings_of(&state.workspace_settings, &row.settings)?;
        let copied = shared.store.copy(row.id, *at).await?;
        let (mut forked, mut summaries) = (Vec::new(), Vec::new());
        for slot in slots {
            let Some(config) = settings.slot(&slot.scope, &slot.name) else { continue };
            let lineage = lineage(shared, row.id, &slot, *at).await?;
            let first = lineage.first();
            let mut copy = SlotRow::new(slot.scope, slot.name);
            copy.active = first.map(|summary| summary.id);
            let unchanged = *at == row.tracker.head() && slot.active == copy.active;
            copy.state = if unchanged {
                // The fork ends where the session ends, so the state is copied unchanged. An earlier undo stays in
                // effect.
                slot.state
            } else {
                let fired = first.map_or(0, |summary| summary.facts.firing.min(*at));
                SlotState {
                    covered: first.map_or(0, |summary| summary.through),
                    fired,
                    ..SlotState::default()
                }
            };
            let room = shared.room(&settings, config);
            forked.push(ForkedSlot { row: copy, slot: &config.slot, room, unchanged });
            summaries.extend(lineage.into_iter().rev());
        }
        let mut copy = self.recompute(copied, &mut forked).await?;
        copy.metadata = self.metadata.clone();
        (copy.created, copy.updated) = (state.now, state.now);
        forked.iter_mut().for_each(|slot| slot.row.update_waiting_since(state.now));
        let slots = forked.into_iter().map(|slot| slot.row).collect();
        let events = vec![EventBody::Message(Span { from: 1, through: *at })];
        let copy = CopiedSession { id: copied, row: copy, slots, summaries, events };
        let revealed = shared.store.reveal(key, copy).await?;
        if revealed {
            shared.signals.listeners.wake(&key.workspace);
        }
        Ok(revealed)
    }

    /// Computes the row of a copied session, and the state of its slots, from its messages.
    async fn recompute(&self, copied: SessionId, slots: &mut [ForkedSlot<'_>]) -> Result<SessionRow, Error> {
        let (shared, from, at) = (self.from.shared(), &self.row, self.at);
        let mut row = SessionRow {
            id: copied,
            opener: 0,
            batch_from: 1,
            batch_skipped: false,
            skipped: 0,
            ..from.clone()
        };
        // The tracker's state is stored only for the newest message. For an earlier message it is computed again.
        let replay = from.tracker.head() != at;
        if replay {
            row.tracker = Tracker::default();
        }
        let mut after = 0;
        while after < at {
            let log = shared.store.outlines_after(copied, &Scope::Session, after, CHUNK).await?.log;
            let Some(last) = log.last() else { break };
            after = last.seq;
            if replay {
                let seqs = log.iter().map(|outline| outline.seq).collect();
                let words = shared.store.messages(copied, PickMessages::Seqs(seqs)).await?;
                for (message, outline) in words.iter().zip(&log) {
                    row.tracker.push_sized(message, outline.tokens);
                }
            }
            for outline in &log {
                if outline.opens_turn {
                    row.opener = outline.seq;
                }
                row.count_skipped(outline);
                slots.iter_mut().filter(|slot| !slot.unchanged).for_each(|slot| slot.count(outline));
            }
        }
        Ok(row)
    }
}

/// A slot of the new session. If the state of the slot is not copied unchanged, the messages after the slot's last
/// trigger event are counted again.
struct ForkedSlot<'a> {
    row: SlotRow,
    slot: &'a Slot,
    room: Option<Tokens>,
    unchanged: bool,
}

impl ForkedSlot<'_> {
    fn count(&mut self, outline: &Outline) {
        let state = &mut self.row.state;
        if outline.seq == state.fired {
            let (last_seq, last_at, since) = (outline.seq, outline.at, Some(outline.at));
            state.since = Totals { last_seq, last_at, since, ..Totals::default() };
            state.newest = Some(Firing { seq: outline.seq, restart: state.since });
        } else if outline.seq > state.fired && self.slot.scope.holds(outline) {
            if state.since.last_turn == 0 && state.fired > 0 && !outline.opens_turn {
                // The turn in progress at the trigger event was counted before the event.
                state.since.last_turn = outline.turn;
            }
            state.advance(self.slot, outline, self.room);
        }
    }
}

/// Returns the newest summary of the slot that covers only messages up to `at`, and the summary before it. The fork
/// needs both summaries, so that the newest one can be undone in the fork too.
async fn lineage(
    shared: &Shared,
    session: SessionId,
    slot: &SlotRow,
    at: Seq,
) -> Result<Vec<SummaryRow>, Error> {
    let key = Some((slot.scope.clone(), slot.name.clone()));
    let (mut found, mut before): (Vec<SummaryRow>, _) = (Vec::new(), None);
    while found.len() < 2 {
        let pick = PickSummaries::History { slot: key.clone(), before, limit: CHUNK };
        let page = shared.store.summaries(session, pick).await?;
        let Some(last) = page.last() else { break };
        before = Some(last.id);
        for mut row in page {
            let usable = row.state != SummaryState::Undone && row.through <= at;
            let further = found.last().is_none_or(|newer| row.through < newer.through);
            if found.len() == 2 || !usable || !further {
                continue;
            }
            row.state = SummaryState::Current;
            // The new session's slot starts with a new fencing token.
            (row.parent, row.facts.built_on, row.facts.fence) = (None, None, 0);
            if let Some(newer) = found.last_mut() {
                row.state = SummaryState::Superseded;
                (newer.parent, newer.facts.built_on) = (Some(row.id), Some(row.id));
            }
            found.push(row);
        }
    }
    Ok(found)
}
