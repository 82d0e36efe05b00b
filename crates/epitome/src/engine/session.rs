//! One session: its log, its summaries, its settings.

use std::sync::Arc;

use epitome_core::message::{Author, Message, Seq, Span, Timestamp, Tokens};
use epitome_core::slot::{Scope, SlotState};
use epitome_core::tokens::Encoding;
use serde::Serialize;
use serde_json::{Map, Value};

use super::append::{self, Appended, Batch, new_session, slots};
use super::context::{self, Context, ContextRequest, scope};
use super::explain::{self, Explanation};
use super::fork::{self, Fork};
use super::{Engine, Shared};
use crate::error::Error;
use crate::search::{Query, text_of};
use crate::settings::{Patch, Settings};
use crate::store::{
    Changes, Hit, HitCursor, Load, Log, Pick, PickSummaries, Search, SessionId, SessionKey, SessionRow,
    SlotRow, Standing, SummaryId, SummaryRow, SummaryState, UsageQuery, UsageSum,
};
use crate::summary::Summary;
use crate::worker;

/// A session. A handle: making one reads and writes nothing; the first append creates the session.
#[derive(Debug, Clone)]
pub struct Session {
    engine: Engine,
    key: SessionKey,
}

/// What is known of a session beside its messages.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SessionInfo {
    /// Its name.
    pub name: Arc<str>,
    /// Its number in the store.
    pub id: SessionId,
    /// How many messages it holds: the place of the newest.
    pub messages: Seq,
    /// How many turns.
    pub turns: u64,
    /// How many tokens.
    pub tokens: Tokens,
    /// How these are counted.
    pub encoding: String,
    /// How many messages are skipped, by whole call batches.
    pub skipped: u64,
    /// The caller's notes.
    pub metadata: Map<String, Value>,
    /// When it came to be.
    pub created: Timestamp,
    /// When it was last written to.
    pub updated: Timestamp,
}

impl SessionInfo {
    pub(super) fn new(name: Arc<str>, row: SessionRow) -> Self {
        Self {
            name,
            id: row.id,
            messages: row.tracker.head(),
            turns: row.tracker.turns(),
            tokens: row.tracker.tokens(),
            encoding: row.encoding,
            skipped: row.skipped,
            metadata: row.metadata,
            created: row.created,
            updated: row.updated,
        }
    }
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
}

impl Default for Page {
    fn default() -> Self {
        Self { after: None, before: None, scope: None, reverse: false, limit: 100 }
    }
}

impl Page {
    /// The part of `1..=last` it may hold.
    fn within(&self, last: Seq) -> Option<Span> {
        let from = self.after.map_or(1, |after| after.saturating_add(1));
        let through = self.before.map_or(last, |before| before.saturating_sub(1).min(last));
        Span::new(from, through)
    }

    fn pick(&self, within: Span) -> Pick {
        let limit = self.limit.clamp(1, 1_000);
        Pick::Page { scope: scope(self.scope.as_ref()), within, reverse: self.reverse, limit }
    }
}

/// Flags to be set on a message; those left out stay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags {
    /// Always shown word for word.
    pub pinned: Option<bool>,
    /// Never summarized, counted by no trigger.
    pub skip: Option<bool>,
}

/// A summary wanted now.
///
/// ```
/// use epitome::Summarize;
///
/// let wish = Summarize { focus: Some("open questions".into()), ..Summarize::slot("short") };
/// assert!(wish.wait);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summarize {
    /// Which slot; the first of that scope where none is named.
    pub slot: Option<String>,
    /// Whose messages; everybody's where nobody is named.
    pub scope: Option<Author>,
    /// What to pay attention to most.
    pub focus: Option<String>,
    /// Whether to wait until it is written.
    pub wait: bool,
}

impl Default for Summarize {
    fn default() -> Self {
        Self { slot: None, scope: None, focus: None, wait: true }
    }
}

impl Summarize {
    /// This slot's summary, and wait for it.
    #[must_use]
    pub fn slot(name: impl Into<String>) -> Self {
        Self { slot: Some(name.into()), ..Self::default() }
    }
}

/// What came of a wish for a summary now.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Summarized {
    /// Nothing new was said, or all that is new is kept verbatim: this one stands, and no model was asked.
    NothingNew {
        /// The standing summary, where there is one.
        summary: Option<Summary>,
    },
    /// It was written.
    Written {
        /// The new one.
        summary: Summary,
    },
    /// It will be written.
    Pending {
        /// Why it is not yet, where that is known: no legal cut, say.
        reason: Option<String>,
    },
}

impl Summarized {
    /// The summary, where there is one.
    #[must_use]
    pub fn summary(&self) -> Option<&Summary> {
        match self {
            Self::NothingNew { summary } => summary.as_ref(),
            Self::Written { summary } => Some(summary),
            Self::Pending { .. } => None,
        }
    }
}

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

impl Found {
    pub(super) fn new(hit: Hit, query: &Query) -> Self {
        let excerpt = query.excerpt(&text_of(&hit.message), EXCERPT);
        Self { session: hit.session, cursor: (hit.id, hit.message.seq), excerpt, message: hit.message }
    }
}

/// So many characters are shown on each side of a match.
const EXCERPT: usize = 60;

/// Refuses names that cannot be told apart or shown.
pub(super) fn check_name(what: &str, name: &str) -> Result<(), Error> {
    if name.is_empty() || name.len() > 512 || name.chars().any(char::is_control) {
        return Err(Error::invalid(format!("{what}: a name has 1 to 512 bytes and no control characters")));
    }
    Ok(())
}

impl Session {
    pub(super) fn new(engine: Engine, key: SessionKey) -> Self {
        Self { engine, key }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.key.session
    }

    fn shared(&self) -> &Arc<Shared> {
        self.engine.shared()
    }

    fn check_names(&self) -> Result<(), Error> {
        check_name("workspace", &self.key.workspace)?;
        check_name("session", &self.key.session)
    }

    async fn standing(&self) -> Result<(Standing, SessionRow), Error> {
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
    pub async fn messages(&self, page: Page) -> Result<Vec<Message>, Error> {
        let (_, row) = self.standing().await?;
        match page.within(row.tracker.head()) {
            Some(within) => Ok(self.shared().store.messages(row.id, page.pick(within)).await?),
            None => Ok(Vec::new()),
        }
    }

    /// The conversation in so many tokens. It is there at once, whatever the summaries' state.
    pub async fn context(&self, request: impl Into<ContextRequest>) -> Result<Context, Error> {
        context::context(self.shared(), &self.key, request.into()).await
    }

    /// The summaries that stand, one a slot.
    pub async fn summaries(&self) -> Result<Vec<Summary>, Error> {
        self.read_summaries(PickSummaries::Standing).await
    }

    /// All summaries there ever were, undone ones too, newest first: those before this one, at most so many.
    pub async fn history(&self, before: Option<SummaryId>, limit: usize) -> Result<Vec<Summary>, Error> {
        let limit = limit.clamp(1, 1_000);
        self.read_summaries(PickSummaries::History { slot: None, before, limit }).await
    }

    async fn read_summaries(&self, pick: PickSummaries) -> Result<Vec<Summary>, Error> {
        let (_, row) = self.standing().await?;
        let rows = self.shared().store.summaries(row.id, pick).await?;
        Ok(rows.into_iter().map(Summary::from).collect())
    }

    async fn summary_row(&self, session: SessionId, id: SummaryId) -> Result<SummaryRow, Error> {
        let rows = self.shared().store.summaries(session, PickSummaries::Ids(vec![id])).await?;
        rows.into_iter().next().ok_or_else(|| Error::NotFound { what: format!("summary {id}") })
    }

    /// Has a summary written now, whatever the trigger says. With nothing new the standing one is given back,
    /// and no model is asked.
    pub async fn summarize(&self, wish: Summarize) -> Result<Summarized, Error> {
        let shared = self.shared();
        let engine = Arc::clone(shared);
        let (name, whose, focus) = (wish.slot.clone(), scope(wish.scope.as_ref()), wish.focus.clone());
        let session_name = Arc::clone(&self.key.session);
        let (before, _) = self.standing().await?;
        let stand = before.slots.iter().filter_map(|row| row.active).collect();
        let load = Load { summaries: stand, ..Load::default() };
        let forced = shared
            .change(&self.key, load, move |standing| {
                let (mut row, _) = find_slot(&engine, standing, &session_name, &whose, name.as_deref())?;
                let before = row.active;
                let fires = row.state.force(standing.now)
                    || stands_in(standing, &row) && force_again(&mut row, standing.now);
                let waits = Forced { slot: row.name.clone(), fires, before, at: newest(&row.state) };
                if !fires {
                    return Ok((None, waits));
                }
                row.work.focus = focus.clone().or(row.work.focus);
                // Whoever asks for it now does not want to wait for the next attempt's time.
                row.work.not_before = None;
                row.work.parked = false;
                row.mark(standing.now);
                Ok((Some(Changes { slots: vec![row], ..Changes::default() }), waits))
            })
            .await?;
        let whose = scope(wish.scope.as_ref());
        if !forced.fires {
            let summary = self.standing_summary(&whose, &forced.slot).await?;
            return Ok(Summarized::NothingNew { summary });
        }
        shared.wake.notify_one();
        if !wish.wait {
            return Ok(Summarized::Pending { reason: None });
        }
        self.wait_for(&whose, &forced).await
    }

    /// Waits until a firing is worked off, whoever does that.
    async fn wait_for(&self, whose: &Scope, forced: &Forced) -> Result<Summarized, Error> {
        let shared = self.shared();
        let mut moved = shared.moved.subscribe();
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
                    reason: Some("no legal cut yet: a tool call or loop is under way".to_owned()),
                });
            }
            // Asking for it took the waiting time away, so a new one comes of a failure since.
            if row.work.not_before.is_some() && row.work.owner.is_none() {
                let reason = row.work.last_error.clone().unwrap_or_else(|| "the model failed".to_owned());
                return Err(Error::Model { reason });
            }
            if shared.pace.workers == 0 {
                // Nobody else may be there to do it.
                worker::until_idle(shared, Some(self.key.clone())).await?;
            }
            // Another process may do it, of whom nobody tells us.
            let _ = tokio::time::timeout(shared.pace.poll, moved.changed()).await;
        }
    }

    async fn standing_summary(&self, whose: &Scope, slot: &str) -> Result<Option<Summary>, Error> {
        let (standing, row) = self.standing().await?;
        match standing.slot(whose, slot).and_then(|slot| slot.active) {
            Some(active) => Ok(Some(self.summary_row(row.id, active).await?.into())),
            None => Ok(None),
        }
    }

    /// Takes back the summary that stands in its slot. The one before it stands again, what is being written
    /// is refused when it comes, and counting starts anew at the newest message.
    pub async fn undo(&self, summary: SummaryId) -> Result<Option<Summary>, Error> {
        let (_, session) = self.standing().await?;
        let undone = self.summary_row(session.id, summary).await?;
        let load =
            Load { summaries: undone.parent.into_iter().chain([summary]).collect(), ..Load::default() };
        let parent = self
            .shared()
            .change(&self.key, load, move |standing| {
                let find = |id: SummaryId| standing.summaries.iter().find(|row| row.id == id);
                let head = standing.session.as_ref().map_or(0, |row| row.tracker.head());
                let row = find(summary).and_then(|row| standing.slot(&row.scope, &row.slot));
                let Some(mut row) = row.filter(|row| row.active == Some(summary)).cloned() else {
                    return Err(Error::Conflict(format!(
                        "summary {summary} does not stand any more; undo the one that does"
                    )));
                };
                let parent = find(summary).and_then(|row| row.parent).and_then(find);
                row.state.undo(parent.map_or(0, |parent| parent.through), head, standing.now);
                row.active = parent.map(|parent| parent.id);
                // Whoever writes the next one started from what is undone.
                row.fence = row.fence.saturating_add(1);
                row.work = crate::store::Work::default();
                row.mark(standing.now);
                let mut states = vec![(summary, SummaryState::Undone)];
                states.extend(parent.map(|parent| (parent.id, SummaryState::Standing)));
                Ok((Some(Changes { slots: vec![row], states, ..Changes::default() }), parent.cloned()))
            })
            .await?;
        self.shared().tell_moved();
        let stands = |row: SummaryRow| SummaryRow { state: SummaryState::Standing, ..row }.into();
        Ok(parent.map(stands))
    }

    /// Has a slot's summary written again from the first message on, with today's settings. What stands goes on
    /// standing until the new one is there. False when there is nothing to summarize.
    pub async fn rebuild(&self, whose: Option<Author>, slot: &str) -> Result<bool, Error> {
        let shared = Arc::clone(self.shared());
        let (name, whose) = (slot.to_owned(), scope(whose.as_ref()));
        let session_name = Arc::clone(&self.key.session);
        let fires = self
            .shared()
            .change(&self.key, Load::default(), move |standing| {
                let (mut row, _) = find_slot(&shared, standing, &session_name, &whose, Some(&name))?;
                let fires = force_again(&mut row, standing.now);
                row.work.rebuild = true;
                // Whoever writes now builds on what stands. That would be kept in place of what is wanted.
                row.fence = row.fence.saturating_add(1);
                (row.work.owner, row.work.until) = (None, None);
                row.work.not_before = None;
                row.work.parked = false;
                row.mark(standing.now);
                let changes = fires.then(|| Changes { slots: vec![row], ..Changes::default() });
                Ok((changes, fires))
            })
            .await?;
        if fires {
            self.shared().wake.notify_one();
        }
        Ok(fires)
    }

    /// The originals beneath a summary: its scope's messages up to where it reaches, a page of them.
    pub async fn expand(&self, summary: SummaryId, page: Page) -> Result<Vec<Message>, Error> {
        let (_, row) = self.standing().await?;
        let summary = self.summary_row(row.id, summary).await?;
        let page = Page { scope: summary.scope.into(), ..page };
        match page.within(summary.through) {
            Some(within) => Ok(self.shared().store.messages(row.id, page.pick(within)).await?),
            None => Ok(Vec::new()),
        }
    }

    /// Messages by their words, summarized or not, newest first: all words must be there, in any order, each
    /// also as part of a longer word; `"in quotes"` as one. Any script. A summary's number confines the
    /// search to what lies beneath it.
    pub async fn search(
        &self,
        words: &str,
        beneath: Option<SummaryId>,
        after: Option<HitCursor>,
        limit: usize,
    ) -> Result<Vec<Found>, Error> {
        let query = Query::parse(words).map_err(Error::invalid)?;
        let (_, row) = self.standing().await?;
        let last = match beneath {
            Some(summary) => self.summary_row(row.id, summary).await?.through,
            None => row.tracker.head(),
        };
        let Some(span) = Span::new(1, last) else {
            return Ok(Vec::new());
        };
        let search = Search {
            workspace: Arc::clone(&self.key.workspace),
            session: Some((row.id, span)),
            query: query.clone(),
            after,
            limit: limit.clamp(1, 1_000),
        };
        let hits = self.shared().store.search(search).await?;
        Ok(hits.into_iter().map(|hit| Found::new(hit, &query)).collect())
    }

    /// A new session from this one.
    pub async fn fork(&self, fork: Fork) -> Result<Session, Error> {
        self.check_names()?;
        check_name("session", &fork.name)?;
        let key = fork::fork(self.shared(), &self.key, fork).await?;
        Ok(Self::new(self.engine.clone(), key))
    }

    /// Deletes it with all that was made from it. False when there was none. What its summaries cost stays in
    /// the workspace's usage.
    pub async fn delete(&self) -> Result<bool, Error> {
        let deleted = self.shared().store.delete(&self.key).await?;
        self.shared().tell_moved();
        Ok(deleted)
    }

    /// Sets a message's flags, whole call batches being pinned or skipped with it. Firings that were counted
    /// already stay.
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
        self.check_names()?;
        let (engine, patch) = (Arc::clone(self.shared()), patch.clone());
        self.shared()
            .change(&self.key, Load::default(), move |standing| {
                let before = match standing.session.as_ref().map_or("", |row| &row.settings) {
                    "" => Patch::default(),
                    document => Patch::parse(document)?,
                };
                let document = before.merged(&patch).document();
                let settings = engine.settings_of(&standing.workspace_settings, &document)?;
                engine.check(&settings)?;
                let mut session =
                    standing.session.clone().unwrap_or_else(|| new_session(settings.encoding, standing.now));
                if session.encoding.parse::<Encoding>().is_ok_and(|known| known != settings.encoding) {
                    return Err(Error::Conflict(format!(
                        "encoding: the session is counted with {}, which is fixed when it is created",
                        session.encoding
                    )));
                }
                session.settings = document;
                session.updated = standing.now;
                let slots = slots(standing, &settings);
                Ok((Some(Changes { session: Some(session), slots, ..Changes::default() }), settings))
            })
            .await
    }

    /// Replaces the caller's notes on it. Creates the session where there is none.
    pub async fn set_metadata(&self, metadata: Map<String, Value>) -> Result<(), Error> {
        self.check_names()?;
        let engine = Arc::clone(self.shared());
        self.shared()
            .change(&self.key, Load::default(), move |standing| {
                let settings = engine.settings_at(standing)?;
                let bytes = serde_json::to_vec(&metadata).map_or(u64::MAX, |json| json.len() as u64);
                if bytes > settings.limits.metadata {
                    let most = settings.limits.metadata;
                    return Err(Error::invalid(format!(
                        "metadata: {bytes} bytes; at most {most} are allowed"
                    )));
                }
                let mut session =
                    standing.session.clone().unwrap_or_else(|| new_session(settings.encoding, standing.now));
                session.metadata = metadata.clone();
                session.updated = standing.now;
                Ok((Some(Changes { session: Some(session), ..Changes::default() }), ()))
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
        };
        self.engine.usage(query).await
    }
}

/// What a forced summary waits for.
struct Forced {
    slot: String,
    fires: bool,
    /// The summary that stood before.
    before: Option<SummaryId>,
    /// The firing to be worked off.
    at: Seq,
}

fn newest(state: &SlotState) -> Seq {
    state.newest.map_or(0, |firing| firing.seq)
}

/// Whether the slot's summary only stands in for a model's.
fn stands_in(standing: &Standing, row: &SlotRow) -> bool {
    standing.summaries.iter().any(|summary| Some(summary.id) == row.active && summary.facts.stand_in)
}

/// Fires as if nothing were covered; the coverage itself never goes back.
fn force_again(row: &mut SlotRow, now: Timestamp) -> bool {
    let covered = std::mem::take(&mut row.state.covered);
    let fires = row.state.force(now);
    row.state.covered = covered;
    fires
}

/// A slot by its name, or the first of its scope; its row is made up where it was never stored.
fn find_slot(
    shared: &Shared,
    standing: &Standing,
    session: &str,
    whose: &Scope,
    name: Option<&str>,
) -> Result<(SlotRow, Arc<Settings>), Error> {
    if standing.session.is_none() {
        return Err(Error::no_session(session));
    }
    let settings = shared.settings_at(standing)?;
    let mut orders = settings.slots.iter().map(|order| &order.slot).filter(|slot| slot.scope == *whose);
    let order = orders.find(|slot| name.is_none_or(|name| slot.name == name));
    let row = order.and_then(|slot| {
        let rows = slots(standing, &settings);
        rows.into_iter().find(|row| row.scope == slot.scope && row.name == slot.name)
    });
    match row {
        Some(row) => Ok((row, settings)),
        None => Err(Error::NotFound { what: format!("slot `{}`", name.unwrap_or("of that scope")) }),
    }
}
