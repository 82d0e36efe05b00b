//! Searches a session or a workspace, page by page. `crate::search` decides what matches.

use std::sync::Arc;

use epitome_core::message::{Message, Seq, Span};
use epitome_core::slot::Scope;
use serde::{Deserialize, Serialize};

use super::Shared;
use super::session::Session;
use super::workspace::Workspace;
use crate::error::Error;
use crate::search::{Query, text_of};
use crate::store::{Hit, Load, Portion, Search, SessionKey, SummaryId};

/// Approximate maximum size of the messages in one page of results, in bytes: 4 MiB. A common word may match every
/// message, and all messages of a page are in memory at the same time.
pub const SEARCH_BYTES: u64 = 4 << 20;

/// A message that matches a search.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SearchHit {
    /// The session's name.
    pub session: Arc<str>,
    /// The message.
    pub message: Message,
    /// The text around the first match.
    pub excerpt: String,
    /// The cursor to continue the search after this message.
    pub cursor: HitCursor,
}

/// The position at which a search continues: after this message of this session. A cursor contains the session's name
/// and not the session's id in the store, because the id would reveal facts about other tenants.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HitCursor {
    /// The session's name.
    pub session: Arc<str>,
    /// The message's sequence number.
    pub seq: Seq,
}

/// Number of characters shown on each side of a match.
const EXCERPT: usize = 60;

impl Session {
    /// Searches the messages of the session, newest first. Messages that a summary covers are searched too. A message
    /// matches if it contains all `words`, in any order. A word also matches inside a longer word, and a `"quoted
    /// phrase"` counts as one word. The search works in any script. With `covered_by`, only the messages that this
    /// summary covers are searched. With `after`, a cursor of this session, the search continues after that message.
    ///
    /// Returns at most `limit` messages, and never more than 1,000. Large messages make the page shorter: the page ends
    /// when its messages have [`SEARCH_BYTES`] or more. [`Portion::more`] is true if there are matches after the last
    /// cursor.
    pub async fn search(
        &self,
        words: &str,
        covered_by: Option<SummaryId>,
        after: Option<HitCursor>,
        limit: usize,
    ) -> Result<Portion<SearchHit>, Error> {
        let search = search(&self.key.workspace, words, limit)?;
        if let Some(after) = after.as_ref().filter(|after| after.session != self.key.session) {
            return Err(Error::invalid(format!(
                "after: the cursor belongs to session `{}`, not to `{}`; search again without a cursor",
                after.session, self.key.session
            )));
        }
        let (_, row) = self.state().await?;
        let (scope, last) = match covered_by {
            Some(summary) => {
                let summary = self.summary_row(row.id, summary).await?;
                (summary.scope, summary.through)
            }
            None => (Scope::Session, row.tracker.head()),
        };
        let Some(span) = Span::new(1, last) else {
            return Ok(Portion::default());
        };
        let after = after.map(|after| (row.id, after.seq));
        let search = Search { session: Some((row.id, span)), scope, after, ..search };
        find(self.shared(), search).await
    }
}

impl Workspace {
    /// Searches the messages of all sessions of the workspace, newest session first. [`Session::search`] describes the
    /// arguments. If the session of the cursor was deleted in the meantime, the search fails with a conflict and must
    /// start again.
    pub async fn search(
        &self,
        words: &str,
        after: Option<HitCursor>,
        limit: usize,
    ) -> Result<Portion<SearchHit>, Error> {
        let mut search = search(self.name(), words, limit)?;
        if let Some(after) = after {
            let key = SessionKey::new(self.name(), Arc::clone(&after.session));
            let session = self.shared().store.session_state(&key, Load::default()).await?.session;
            // Without the session, the position of the cursor is lost.
            let lost = || {
                Error::Conflict(format!(
                    "after: session `{}` of the cursor was deleted; search again from the start",
                    after.session
                ))
            };
            search.after = Some((session.ok_or_else(lost)?.id, after.seq));
        }
        find(self.shared(), search).await
    }
}

/// Returns a search for these words in a whole workspace.
fn search(workspace: &str, words: &str, limit: usize) -> Result<Search, Error> {
    Ok(Search {
        workspace: workspace.into(),
        session: None,
        scope: Scope::Session,
        query: Query::parse(words).map_err(Error::invalid)?,
        after: None,
        limit: limit.min(1_000),
        bytes: Some(SEARCH_BYTES),
    })
}

async fn find(shared: &Shared, search: Search) -> Result<Portion<SearchHit>, Error> {
    let query = search.query.clone();
    let found = |Hit { session, message, .. }: Hit| {
        let excerpt = query.excerpt(&text_of(&message), EXCERPT);
        let cursor = HitCursor { session: Arc::clone(&session), seq: message.seq };
        SearchHit { session, message, excerpt, cursor }
    };
    Ok(shared.store.search(search).await?.map(found))
}
