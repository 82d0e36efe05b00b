//! One session: its messages, contexts, flags and settings.

use std::sync::Arc;
use std::time::Instant;

use epitome_core::message::{Author, Message, Seq, Span, Timestamp};
use metrics::{counter, histogram};
use serde::Deserialize;

use super::{Engine, SessionInfo, Shared};
use crate::context::{self, Context};
use crate::error::{Error, check_name};
use crate::metrics::{CONTEXT_DURATION, CONTEXT_TOKENS, CONTEXTS};
use crate::request::ContextRequest;
use crate::settings::Settings;
use crate::store::{
    Changes, Load, LoadLog, PickMessages, Portion, SessionId, SessionKey, SessionRow, SessionState, SlotRow,
    Stamp, UsageQuery, UsageSum,
};
use crate::worker;

/// A handle for a session. Creating the handle reads and writes nothing; the first append creates the session.
#[derive(Debug, Clone)]
pub struct Session {
    pub(super) engine: Engine,
    pub(super) key: SessionKey,
}

/// Selects a page of messages.
///
/// ```
/// use epitome::Page;
///
/// let newest = Page { reverse: true, limit: 10, ..Page::default() };
/// let next = Page { before: Some(91), ..newest.clone() }; // message 91 was the oldest of the ten
/// assert_eq!(next.limit, 10);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Only messages after this one.
    pub after: Option<Seq>,
    /// Only messages before this one.
    pub before: Option<Seq>,
    /// Only messages of this author, and the results of this author's tool calls.
    pub scope: Option<Author>,
    /// Whether the newest message comes first.
    pub reverse: bool,
    /// Maximum number of messages; at most 1,000.
    pub limit: usize,
    /// Maximum size of the page in stored bytes, for callers that need a bound on memory. The page ends with the
    /// message that reaches this size, so it has at least one message. [`Portion::more`] is true if messages are left.
    pub bytes: Option<u64>,
}

impl Default for Page {
    fn default() -> Self {
        Self { after: None, before: None, scope: None, reverse: false, limit: 100, bytes: None }
    }
}

/// Flags to set on a message; `None` leaves a flag unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flags {
    /// Whether every context shows the message verbatim.
    pub pinned: Option<bool>,
    /// Whether summaries leave the message out and triggers do not count it.
    pub skip: Option<bool>,
}

impl Session {
    /// The session's name.
    pub fn name(&self) -> &str {
        &self.key.session
    }

    /// Returns a handle for another session of the same workspace.
    pub fn sibling(&self, name: impl Into<Arc<str>>) -> Self {
        let key = SessionKey::new(Arc::clone(&self.key.workspace), name);
        Self { engine: self.engine.clone(), key }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        self.engine.shared()
    }

    pub(super) fn check_names(&self) -> Result<(), Error> {
        check_name("workspace", &self.key.workspace)?;
        check_name("session", &self.key.session)
    }

    /// Changes the session if it exists. `decide` receives the stored state, and returns the changes and a result for
    /// the caller. If `decide` fails, nothing is changed.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        load: Load,
        decide: impl Fn(&Shared, &SessionState, SessionRow) -> Result<(Option<Changes>, T), Error>
        + Send
        + Sync
        + 'static,
    ) -> Result<T, Error> {
        let (engine, name) = (Arc::clone(self.shared()), Arc::clone(&self.key.session));
        let decide = move |state: &SessionState| {
            let session = state.session.clone().ok_or_else(|| Error::no_session(&name))?;
            decide(&engine, state, session)
        };
        Ok(self.shared().change(&self.key, load, decide).await?.0)
    }

    pub(super) async fn state(&self) -> Result<(SessionState, SessionRow), Error> {
        let state = self.shared().store.session_state(&self.key, Load::default()).await?;
        let row = state.session.clone().ok_or_else(|| Error::no_session(&self.key.session))?;
        Ok((state, row))
    }

    /// Returns the session's counters and metadata.
    pub async fn info(&self) -> Result<SessionInfo, Error> {
        let (_, row) = self.state().await?;
        Ok(SessionInfo::new(Arc::clone(&self.key.session), row))
    }

    /// Returns a page of the messages, verbatim.
    pub async fn messages(&self, page: Page) -> Result<Portion<Message>, Error> {
        let (_, row) = self.state().await?;
        self.page(row.id, page, row.tracker.head()).await
    }

    /// Returns a page of the messages up to `last`.
    pub(super) async fn page(&self, id: SessionId, page: Page, last: Seq) -> Result<Portion<Message>, Error> {
        let from = page.after.map_or(1, |after| after.saturating_add(1));
        let through = page.before.map_or(last, |before| before.saturating_sub(1).min(last));
        let Some(within) = Span::new(from, through) else { return Ok(Portion::default()) };
        let Page { scope, reverse, limit, bytes, .. } = page;
        let pick =
            PickMessages::Page { scope: scope.into(), within, reverse, limit: limit.min(1_000), bytes };
        Ok(self.shared().store.messages(id, pick).await?)
    }

    /// Returns the conversation within a token budget. Never waits for a summary.
    pub async fn context(&self, request: impl Into<ContextRequest>) -> Result<Context, Error> {
        let begun = Instant::now();
        let context = context::context(self.shared(), &self.key, request.into()).await?;
        counter!(CONTEXTS).increment(1);
        histogram!(CONTEXT_TOKENS).record(context.report.tokens.total() as f64);
        histogram!(CONTEXT_DURATION).record(begun.elapsed());
        Ok(context)
    }

    /// Returns a stamp that changes whenever a context of the session may change. A caller can read the stamp, then
    /// request a context, and cache both. The caller can reuse the cached context as long as the stamp is the same.
    ///
    /// ```
    /// # async fn try_it() -> Result<(), epitome::Error> {
    /// # use epitome::{Engine, rules::message::Message};
    /// let engine = Engine::memory().await?;
    /// let session = engine.session("ann");
    /// session.append(Message::user("Hello.")).await?;
    /// let stamp = session.stamp().await?;
    /// assert_eq!(session.stamp().await?, stamp);
    /// session.append(Message::assistant("Good morning.")).await?;
    /// assert_ne!(session.stamp().await?, stamp);
    /// # engine.close().await; Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(try_it()).unwrap();
    /// ```
    pub async fn stamp(&self) -> Result<Stamp, Error> {
        let stamp = self.shared().store.stamp(&self.key).await?;
        stamp.ok_or_else(|| Error::no_session(&self.key.session))
    }

    /// Deletes the session with everything derived from it. Returns false if the session did not exist. The cost of the
    /// session's summaries stays in the workspace's usage.
    pub async fn delete(&self) -> Result<bool, Error> {
        let deleted = self.shared().store.delete(&self.key).await?;
        self.shared().notify_slot_changed();
        Ok(deleted)
    }

    /// Sets a message's flags. If one message of a call batch (a message with tool calls, and the results of these
    /// calls) is pinned or skipped, the whole batch is. A trigger that has already fired is not changed. The skip flag
    /// of a message cannot be removed while a summary covers its position, because that summary was written without the
    /// message.
    pub async fn flag(&self, seq: Seq, flags: Flags) -> Result<(), Error> {
        let load = Load { log: LoadLog::CallBatch(seq), ..Load::default() };
        self.change(load, move |_, state, mut session| {
                let message = state.log.iter().find(|outline| outline.seq == seq);
                let message = message.ok_or_else(|| Error::not_found(format_args!("message {seq}")))?;
                let pinned = flags.pinned.unwrap_or(message.pinned);
                let skip = flags.skip.unwrap_or(message.skip);
                if (pinned, skip) == (message.pinned, message.skip) {
                    return Ok((None, ()));
                }
                let others = state.log.iter().any(|outline| outline.seq != seq && outline.skip);
                let (was, is) = (others || message.skip, others || skip);
                // Without the flag, the message would count as summarized, but the summary was written without it.
                let covered = |row: &SlotRow| row.scope.holds(message) && row.state.covered >= message.seq;
                if let Some(row) = state.slots.iter().find(|row| was && !is && covered(row)) {
                    return Err(Error::Conflict(format!(
                        "skip: cannot be removed from message {seq}: slot `{}` was summarized up to message {}, without \
                         this message; undo the slot's summaries first, or pin the message so that it is shown",
                        row.name, row.state.covered
                    )));
                }
                let batch = state.log.len() as u64;
                session.skipped = match (was, is) {
                    (false, true) => session.skipped.saturating_add(batch),
                    (true, false) => session.skipped.saturating_sub(batch),
                    _ => session.skipped,
                };
                if state.log.first().is_some_and(|first| first.seq == session.batch_from) {
                    session.batch_skipped = is;
                }
                session.updated = state.now;
                let flags = vec![(seq, pinned, skip)];
                Ok((Some(Changes { session: Some(session), flags, ..Changes::default() }), ()))
            })
            .await
    }

    /// Returns the effective settings of the session: the engine's settings, changed first by the workspace's settings
    /// and then by the session's settings.
    pub async fn settings(&self) -> Result<Arc<Settings>, Error> {
        let (state, _) = self.state().await?;
        self.shared().settings_at(&state)
    }

    /// Writes all summaries of the session that are due now, in the calling task, and returns when no summary is due.
    pub async fn work(&self) -> Result<(), Error> {
        worker::until_idle(self.shared(), Some(self.key.clone())).await
    }

    /// Returns the session's model calls, including failed calls, summed by slot, model and outcome.
    pub async fn usage(&self) -> Result<Vec<UsageSum>, Error> {
        let (workspace, session) = (Arc::clone(&self.key.workspace), Some(Arc::clone(&self.key.session)));
        let query = UsageQuery { workspace, session, since: Timestamp(0), by_session: true };
        Ok(self.shared().store.usage(query).await?)
    }
}
