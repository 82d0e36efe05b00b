//! The log of a session: its messages, what was made from them, and what happened.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use epitome_core::message::{Message, Seq};
use epitome_core::slot::Scope;

use super::asked::{Ahead, Hit, Look, Pick, PickSummaries, Portion, Search, View, Window};
use super::changes::{Decide, Load, Standing};
use super::error::StoreError;
use super::rows::{SessionId, SessionKey, SessionRow, SlotRow, Stamp, SummaryId, SummaryRow};
use crate::event::{Events, Happened};

/// A copied session as it is shown.
#[derive(Debug, Clone)]
pub struct CopiedSession {
    /// The copy's number, from [`SessionLog::copy`].
    pub id: SessionId,
    /// Its row.
    pub row: SessionRow,
    /// Its slots. `active` is a number of the original.
    pub slots: Vec<SlotRow>,
    /// Its summaries. `id` and `parent` are numbers of the original.
    pub summaries: Vec<SummaryRow>,
    /// The events that report it.
    pub events: Vec<Happened>,
}

impl CopiedSession {
    /// Numbers its summaries 1, 2, 3 … in the order of their old numbers.
    pub(super) fn renumber(&mut self) {
        // A parent has a smaller number than its child, so its new one is known by then.
        self.summaries.sort_by_key(|summary| summary.id);
        let mut renamed: HashMap<SummaryId, SummaryId> = HashMap::new();
        for (summary, number) in self.summaries.iter_mut().zip(1..) {
            let anew = |id: Option<SummaryId>| id.and_then(|id| renamed.get(&id).copied());
            summary.parent = anew(summary.parent);
            summary.facts.built_on = anew(summary.facts.built_on);
            renamed.insert(summary.id, number);
            summary.id = number;
        }
        for slot in &mut self.slots {
            slot.active = slot.active.and_then(|id| renamed.get(&id).copied());
        }
    }
}

/// Stores sessions with their messages, summaries and events.
#[async_trait]
pub trait SessionLog: Send + Sync {
    /// The only way to write to a session: reads where it stands, asks `decide`, and writes what it says;
    /// all of that as if nobody else were there, and durable when it returns. Gives the number of the session that
    /// was written to (0 where only what models cost was written down, and there is none); `None` when `decide`
    /// wanted nothing written.
    async fn change(
        &self,
        key: &SessionKey,
        load: Load,
        decide: Decide,
    ) -> Result<Option<SessionId>, StoreError>;

    /// Where a session stands.
    async fn standing(&self, key: &SessionKey, load: Load) -> Result<Standing, StoreError>;

    /// Whether anything changed that a context is made from: one row is read. `None` where there is no such session.
    async fn stamp(&self, key: &SessionKey) -> Result<Option<Stamp>, StoreError>;

    /// What a context is made from: one consistent state. `None` where there is no such session, or `look`
    /// wants nothing.
    async fn window(&self, key: &SessionKey, view: View, look: Look) -> Result<Option<Window>, StoreError>;

    /// The shapes of the scope's messages after this one, at most so many; of a session that is being copied,
    /// those that were, their end unknown.
    async fn ahead(
        &self,
        session: SessionId,
        scope: &Scope,
        after: Seq,
        limit: usize,
    ) -> Result<Ahead, StoreError>;

    /// Messages with their words. Those that do not exist are left out.
    async fn messages(&self, session: SessionId, pick: Pick) -> Result<Portion<Message>, StoreError>;

    /// Summaries.
    async fn summaries(&self, session: SessionId, pick: PickSummaries)
    -> Result<Vec<SummaryRow>, StoreError>;

    /// The text of a summary that was written to the very same question, by the hash of that
    /// ([`super::Facts::asked`]), in any session of the workspace, the newest. None is given that was undone in this
    /// session: whoever took it back wants another.
    async fn recall(
        &self,
        workspace: &str,
        session: SessionId,
        asked: &str,
    ) -> Result<Option<String>, StoreError>;

    /// Messages by their words, newest session and newest message first.
    async fn search(&self, search: Search) -> Result<Portion<Hit>, StoreError>;

    /// What happened in a workspace after the event of that number, in one session or in all: at most so many, oldest
    /// first. Numbers are dense inside a workspace and never given twice, whatever is deleted. The newest 10,000 of a
    /// workspace are kept, and not many more.
    async fn events(
        &self,
        workspace: &str,
        after: u64,
        session: Option<&str>,
        limit: usize,
    ) -> Result<Events, StoreError>;

    /// How often messages became a summary, by session, among the events that are kept. At most 10,000 or so are looked at.
    async fn condensed(&self, workspace: &str) -> Result<Vec<(Arc<str>, u64)>, StoreError>;

    /// Copies messages `1..=through` into a session that nobody sees yet, in pieces, so that no other
    /// writer waits long. Leftovers of a copy that was not finished are removed in time.
    async fn copy(&self, from: SessionId, through: Seq) -> Result<SessionId, StoreError>;

    /// Shows a copied session under this name. Returns false when the name is taken.
    async fn reveal(&self, key: &SessionKey, copy: CopiedSession) -> Result<bool, StoreError>;

    /// Deletes a session with all that was made from it and told of it; usage stays. Nobody sees it any more when this
    /// returns. False when there is none.
    async fn delete(&self, key: &SessionKey) -> Result<bool, StoreError>;
}
