//! One session: its log, its summaries, its settings.

use std::sync::Arc;
use std::time::Instant;

use epitome_core::message::{Author, Message, Seq, Span, Timestamp};
use epitome_core::tokens::Encoding;
use metrics::{counter, histogram};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::append::{self, Appended, Batch, new_session, slots};
use super::checks::{check_metadata, check_sessions, merged};
use super::explain::{self, Explanation};
use super::fork::{self, Fork};
use super::{Engine, SessionInfo, Shared};
use crate::context::{self, Context};
use crate::error::{Error, check_name};
use crate::measure::{CONTEXT_SECONDS, CONTEXT_TOKENS, CONTEXTS};
use crate::request::ContextRequest;
use crate::settings::{Patch, Settings};
use crate::store::{
    Changes, Load, Log, Pick, Portion, SessionKey, SessionRow, SlotRow, Stamp, Standing, UsageQuery, UsageSum,
};
use crate::worker;

/// A session. A handle: making one reads and writes nothing; the first append creates the session.
#[derive(Debug, Clone)]
pub struct Session {
    pub(super) engine: Engine,
    pub(super) key: SessionKey,
}

/// Which messages are to be read: a page of them.
///
/// ```
/// use epitome::Page;
///
/// let newest = Page { reverse: true, limit: 10, ..Page::default() };
/// let next = Page { before: Some(91), ..newest.clone() }; // where the oldest of the ten was message 91
/// assert_eq!(next.limit, 10);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Only those after this one.
    pub after: Option<Seq>,
    /// Only those before this one.
    pub before: Option<Seq>,
    /// Only this author's, with the results of their calls.
    pub scope: Option<Author>,
    /// Newest first.
    pub reverse: bool,
    /// At most so many; 1,000 at once are the most.
    pub limit: usize,
    /// Until they are so many bytes or more, as they are kept; one comes in any case. For whoever does not know how large
    /// they are and has to hold them: see [`Portion::more`].
    pub bytes: Option<u64>,
}

impl Default for Page {
    fn default() -> Self {
        Self { after: None, before: None, scope: None, reverse: false, limit: 100, bytes: None }
    }
}

impl Page {
    /// The part of `1..=last` it may hold.
    pub(super) fn within(&self, last: Seq) -> Option<Span> {
        let from = self.after.map_or(1, |after| after.saturating_add(1));
        let through = self.before.map_or(last, |before| before.saturating_sub(1).min(last));
        Span::new(from, through)
    }

    pub(super) fn pick(&self, within: Span) -> Pick {
        let (limit, bytes) = (self.limit.min(1_000), self.bytes);
        Pick::Page { scope: self.scope.clone().into(), within, reverse: self.reverse, limit, bytes }
    }
}

/// Flags to be set on a message; those left out stay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flags {
    /// Always shown word for word.
    pub pinned: Option<bool>,
    /// Never summarized, counted by no trigger.
    pub skip: Option<bool>,
}

impl Session {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.key.session
    }

    /// Another session of its workspace.
    #[must_use]
    pub fn beside(&self, name: impl Into<Arc<str>>) -> Self {
        let workspace = Arc::clone(&self.key.workspace);
        Self { engine: self.engine.clone(), key: SessionKey { workspace, session: name.into() } }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        self.engine.shared()
    }

    pub(super) fn check_names(&self) -> Result<(), Error> {
        check_name("workspace", &self.key.workspace)?;
        check_name("session", &self.key.session)
    }

    pub(super) async fn standing(&self) -> Result<(Standing, SessionRow), Error> {
        let standing = self.shared().store.standing(&self.key, Load::default()).await?;
        let row = standing.session.clone().ok_or_else(|| Error::no_session(&self.key.session))?;
        Ok((standing, row))
    }

    /// Adds messages to the log: one transaction, durable when it returns. It never waits for a model.
    pub async fn append(&self, batch: impl Into<Batch>) -> Result<Appended, Error> {
        self.check_names()?;
        append::append(self.shared(), &self.key, batch.into()).await
    }

    /// What is known of it.
    pub async fn info(&self) -> Result<SessionInfo, Error> {
        let (_, row) = self.standing().await?;
        Ok(SessionInfo::new(Arc::clone(&self.key.session), row))
    }

    /// Messages, word for word.
    pub async fn messages(&self, page: Page) -> Result<Portion<Message>, Error> {
        let (_, row) = self.standing().await?;
        match page.within(row.tracker.head()) {
            Some(within) => Ok(self.shared().store.messages(row.id, page.pick(within)).await?),
            None => Ok(Portion::default()),
        }
    }

    /// The conversation in so many tokens. It is there at once, whatever the summaries' state.
    pub async fn context(&self, request: impl Into<ContextRequest>) -> Result<Context, Error> {
        let begun = Instant::now();
        let context = context::context(self.shared(), &self.key, request.into()).await?;
        counter!(CONTEXTS).increment(1);
        histogram!(CONTEXT_TOKENS).record(context.report.tokens.total() as f64);
        histogram!(CONTEXT_SECONDS).record(begun.elapsed());
        Ok(context)
    }

    /// Where it is, as far as contexts go. Whoever kept a context, and the stamp read before it was made, need not ask
    /// for it again while the stamp is the same.
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

    /// A new session from this one.
    pub async fn fork(&self, fork: Fork) -> Result<Session, Error> {
        self.check_names()?;
        check_name("session", &fork.name)?;
        let key = fork::fork(self.shared(), &self.key, fork).await?;
        Ok(Self { engine: self.engine.clone(), key })
    }

    /// Deletes it with all that was made from it. False when there was none. What its summaries cost stays in
    /// the workspace's usage.
    pub async fn delete(&self) -> Result<bool, Error> {
        let deleted = self.shared().store.delete(&self.key).await?;
        self.shared().tell_moved();
        Ok(deleted)
    }

    /// Sets a message's flags, whole call batches being pinned or skipped with it. Firings that were counted
    /// already stay. One that was skipped cannot be taken back beneath a summary that does not tell it.
    pub async fn flag(&self, seq: Seq, flags: Flags) -> Result<(), Error> {
        let load = Load { log: Log::Batch(seq), ..Load::default() };
        let name = Arc::clone(&self.key.session);
        self.shared()
            .change(&self.key, load, move |standing| {
                let session = standing.session.clone().ok_or_else(|| Error::no_session(&name))?;
                let message = standing.log.iter().find(|outline| outline.seq == seq);
                let message = message.ok_or_else(|| Error::NotFound { what: format!("message {seq}") })?;
                let pinned = flags.pinned.unwrap_or(message.pinned);
                let skip = flags.skip.unwrap_or(message.skip);
                if (pinned, skip) == (message.pinned, message.skip) {
                    return Ok((None, ()));
                }
                let others = standing.log.iter().any(|outline| outline.seq != seq && outline.skip);
                let (was, is) = (others || message.skip, others || skip);
                // A summary that was written without it would be said to tell it.
                let covered = |row: &SlotRow| row.scope.holds(message) && row.state.covered >= message.seq;
                if let Some(row) = standing.slots.iter().find(|row| was && !is && covered(row)) {
                    return Err(Error::Conflict(format!(
                        "message {seq} was skipped when slot `{}` was summarized up to message {}, which does not \
                         tell it; undo those summaries first, or pin the message to have it shown",
                        row.name, row.state.covered
                    )));
                }
                let mut session = session;
                let batch = standing.log.len() as u64;
                session.skipped = match (was, is) {
                    (false, true) => session.skipped.saturating_add(batch),
                    (true, false) => session.skipped.saturating_sub(batch),
                    _ => session.skipped,
                };
                if standing.log.first().is_some_and(|first| first.seq == session.batch_from) {
                    session.batch_skipped = is;
                }
                session.updated = standing.now;
                let flags = vec![(seq, pinned, skip)];
                Ok((Some(Changes { session: Some(session), flags, ..Changes::default() }), ()))
            })
            .await
    }

    /// The settings that hold in it.
    pub async fn settings(&self) -> Result<Arc<Settings>, Error> {
        let (standing, _) = self.standing().await?;
        self.shared().settings_at(&standing)
    }

    /// Changes settings of this session alone: what the patch names, and nothing else. A null takes a change
    /// back. Creates the session where there is none. How tokens are counted cannot be changed any more.
    pub async fn set(&self, patch: &Patch) -> Result<Arc<Settings>, Error> {
        self.put(Some(patch), None).await
    }

    /// Replaces the caller's notes on it. Creates the session where there is none.
    pub async fn set_metadata(&self, metadata: Map<String, Value>) -> Result<(), Error> {
        self.put(None, Some(metadata)).await.map(|_| ())
    }

    /// Changes settings and replaces the caller's notes, as [`Session::set`] and [`Session::set_metadata`] do: both or
    /// neither. Creates the session where there is none.
    pub async fn put(
        &self,
        patch: Option<&Patch>,
        metadata: Option<Map<String, Value>>,
    ) -> Result<Arc<Settings>, Error> {
        self.check_names()?;
        let patch = patch.cloned().unwrap_or_default();
        check_sessions(&patch)?;
        let engine = Arc::clone(self.shared());
        self.shared()
            .change(&self.key, Load::default(), move |standing| {
                let stored = standing.session.as_ref().map_or("", |row| &row.settings);
                let (document, settings) = merged(&engine, &standing.workspace_settings, stored, &patch)?;
                let mut session =
                    standing.session.clone().unwrap_or_else(|| new_session(settings.encoding, standing.now));
                let named = patch.entries().contains_key("encoding");
                let fixed = session.encoding.parse::<Encoding>();
                if named && fixed.is_ok_and(|fixed| fixed != settings.encoding) {
                    return Err(Error::Conflict(format!(
                        "encoding: the session is counted with {}, which is fixed when it is created",
                        session.encoding
                    )));
                }
                if let Some(metadata) = &metadata {
                    check_metadata(metadata, &settings)?;
                    session.metadata = metadata.clone();
                }
                session.updated = standing.now;
                let mut changes = Changes::default();
                if !patch.is_empty() {
                    session.settings = document;
                    changes.slots = slots(standing, &settings);
                }
                changes.session = Some(session);
                Ok((Some(changes), settings))
            })
            .await
    }

    /// Works off what is due in it now, here and in this task, and returns when nothing is.
    pub async fn work(&self) -> Result<(), Error> {
        worker::until_idle(self.shared(), Some(self.key.clone())).await
    }

    /// Where every slot stands, and why it is due or not.
    pub async fn explain(&self) -> Result<Explanation, Error> {
        let (standing, row) = self.standing().await?;
        explain::explain(self.shared(), &self.key, &standing, row)
    }

    /// Every call of a model for it, failed ones too, added up by slot, model and outcome.
    pub async fn usage(&self) -> Result<Vec<UsageSum>, Error> {
        let query = UsageQuery {
            workspace: Arc::clone(&self.key.workspace),
            session: Some(Arc::clone(&self.key.session)),
            since: Timestamp(0),
            by_session: true,
        };
        Ok(self.shared().store.usage(query).await?)
    }
}
