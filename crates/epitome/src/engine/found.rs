//! Searching a session or a workspace: what is found, and where it goes on. How words are found is `crate::search`'s matter.

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

/// A search gives no more messages at once than come to about so many bytes: 4 MiB. They are held in memory together, and
/// words that are in every message are easily looked for.
pub const SEARCH_BYTES: u64 = 4 << 20;

/// A message found by its words.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Found {
    /// The session's name.
    pub session: Arc<str>,
    /// The message.
    pub message: Message,
    /// The words around the first match.
    pub excerpt: String,
    /// Where the search goes on after this one.
    pub cursor: HitCursor,
}

/// Where a search goes on: after this message of this session. By name, as numbers of the store would tell of others.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HitCursor {
    /// The session's name.
    pub session: Arc<str>,
    /// The message's place in it.
    pub seq: Seq,
}

/// So many characters are shown on each side of a match.
const EXCERPT: usize = 60;

impl Session {
    /// Messages by their words, summarized or not, newest first: all words must be there, in any order, each
    /// also as part of a longer word; `"in quotes"` as one. Any script. A summary's number confines the
    /// search to what lies beneath it. With a cursor of this session it goes on after that.
    ///
    /// At most `limit` of them come, 1,000 at once, and fewer where they are large: no more is read once those found are
    /// [`SEARCH_BYTES`] or more. [`Portion::more`] says whether there are others, after the last one's cursor.
    pub async fn search(
        &self,
        words: &str,
        beneath: Option<SummaryId>,
        after: Option<HitCursor>,
        limit: usize,
    ) -> Result<Portion<Found>, Error> {
        let search = search(&self.key.workspace, words, limit)?;
        if let Some(after) = after.as_ref().filter(|after| after.session != self.key.session) {
            return Err(Error::invalid(format!(
                "after: is a place in session `{}`; this is `{}`",
                after.session, self.key.session
            )));
        }
        let (_, row) = self.standing().await?;
        let (scope, last) = match beneath {
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
    /// Messages of all its sessions by their words: see [`Session::search`]. Newest session first. Where the cursor's
    /// session is gone meanwhile, the search has to start again.
    pub async fn search(
        &self,
        words: &str,
        after: Option<HitCursor>,
        limit: usize,
    ) -> Result<Portion<Found>, Error> {
        let mut search = search(self.name(), words, limit)?;
        if let Some(after) = after {
            let key = SessionKey::new(self.name(), Arc::clone(&after.session));
            let session = self.shared().store.standing(&key, Load::default()).await?.session;
            // What comes after a session that is gone cannot be told.
            let lost = || {
                Error::Conflict(format!(
                    "session `{}`, where the search stood, is not there any more; search again from the start",
                    after.session
                ))
            };
            search.after = Some((session.ok_or_else(lost)?.id, after.seq));
        }
        find(self.shared(), search).await
    }
}

/// A search for these words in a whole workspace.
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

async fn find(shared: &Shared, search: Search) -> Result<Portion<Found>, Error> {
    let query = search.query.clone();
    let found = |Hit { session, message, .. }: Hit| {
        let excerpt = query.excerpt(&text_of(&message), EXCERPT);
        let cursor = HitCursor { session: Arc::clone(&session), seq: message.seq };
        Found { session, message, excerpt, cursor }
    };
    Ok(shared.store.search(search).await?.map(found))
}
