//! Types of the store's queries and of their results.

use std::ops::Deref;
use std::sync::Arc;

use epitome_core::message::{Message, Seq, Span, Timestamp, Tokens};
use epitome_core::outline::{Cut, Outline};
use epitome_core::slot::Scope;

use super::changes::SessionState;
use super::rows::{SessionId, SummaryId, SummaryRow};
use crate::search::Query;

/// How many messages a window reads. [`DecideReach`] decides this after the session's state was read.
#[derive(Debug, Clone, Copy)]
pub struct Reach {
    /// The budget in tokens. The newest messages are read until they exceed this budget.
    pub tokens: Tokens,
    /// Whether the context may also show messages that a summary covers. If false, messages that all current summaries
    /// cover are not read. Text is then read only for messages that no current summary covers.
    pub deep: bool,
}

/// Decides from the session's state (without its slots) how many messages a window reads. Returns `None` if no window
/// is needed. A store may call the function several times.
pub type DecideReach = Arc<dyn Fn(&SessionState) -> Option<Reach> + Send + Sync>;

/// Selects the part of a session from which a context is built.
#[derive(Debug, Clone)]
pub struct WindowQuery {
    /// The scope whose messages are read.
    pub scope: Scope,
    /// If set, the session is read as if this message were its last message.
    pub as_of: Option<Seq>,
    /// Whether a small context of this session was read recently, so that its data is likely in memory. The store may
    /// then read the window on the caller's thread, which is faster than waking another thread.
    pub recently_read: bool,
}

/// One consistent state of a session, limited to what a context needs: see `epitome_core::context::SessionShape`.
#[derive(Debug, Clone)]
pub struct Window {
    /// The session and its workspace's settings. The lists of this state, such as `slots` and `log`, are empty.
    pub state: SessionState,
    /// The system and developer messages at the start of the session.
    pub leading: Vec<Outline>,
    /// The call batches that contain pinned messages, oldest first. Leading messages and strays (messages of which no
    /// part can be shown) are left out.
    pub pinned: Vec<Outline>,
    /// The message that opened the turn in which `tail` starts, if that message is not in `tail`.
    pub opener: Option<Outline>,
    /// The newest messages, sorted oldest first. They fill the budget: no earlier message would fit.
    pub tail: Vec<Outline>,
    /// From this message number on, `tail` contains all of the scope's messages.
    pub from: Seq,
    /// What a cut after the last message in `tail` would separate.
    pub end: Cut,
    /// Number of tool calls that have no result yet after the last message in `tail`.
    pub open_calls: u32,
    /// Number of messages in skipped call batches.
    pub skipped: u64,
    /// One summary per slot. Without `as_of`, it is the current summary. With `as_of`, it is the summary that covers
    /// the most messages, but no message after `as_of`. The sources are left out, because they are rarely needed.
    pub summaries: Vec<SummaryRow>,
    /// The full messages of `leading`, `pinned` and `opener`, and of the part of `tail` that is likely to be shown.
    /// They are ordered by seq.
    pub messages: Vec<Message>,
}

/// The outlines of a scope's messages after a certain message, such as the last message that a slot covers.
#[derive(Debug, Clone)]
pub struct OutlinesAfter {
    /// The outlines, oldest first.
    pub log: Vec<Outline>,
    /// What a cut after the last message in `log` would separate; `None` if more messages follow or may follow.
    pub end: Option<Cut>,
}

/// Which messages to read.
#[derive(Debug, Clone)]
pub enum PickMessages {
    /// The messages with these numbers, ascending.
    Seqs(Vec<Seq>),
    /// A page: the first messages of a range, or the last messages if `reverse` is set. `limit` and `bytes` limit its
    /// size.
    Page {
        /// The scope whose messages are read.
        scope: Scope,
        /// The range of message numbers.
        within: Span,
        /// Whether to read the range from its end, newest first.
        reverse: bool,
        /// Maximum number of messages.
        limit: usize,
        /// Size in stored bytes at which the page ends; `None` for no such limit. The message that reaches this size is
        /// included, because a message's size is unknown before it is read. So a page has at least one message.
        bytes: Option<u64>,
    },
}

/// Part of a longer list.
///
/// A portion may contain fewer items than the limit although more items follow, because its size in bytes is limited
/// too. Only `more` shows whether items follow. A portion can be used like a slice.
///
/// ```
/// let portion = epitome::Portion { items: vec!["one", "two"], more: true };
/// assert_eq!((portion.len(), portion.last()), (2, Some(&"two")));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Portion<T> {
    /// The items of this portion.
    pub items: Vec<T>,
    /// Whether further items follow.
    pub more: bool,
}

impl<T> Default for Portion<T> {
    fn default() -> Self {
        Self { items: Vec::new(), more: false }
    }
}

impl<T> Portion<T> {
    /// Converts each item with `make`.
    pub fn map<U>(self, make: impl FnMut(T) -> U) -> Portion<U> {
        Portion { items: self.items.into_iter().map(make).collect(), more: self.more }
    }
}

impl<T> Deref for Portion<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<T> IntoIterator for Portion<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a Portion<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

/// Collects items until a limit is reached. All stores use this type, so limits have the same meaning in every store.
#[derive(Debug)]
pub(crate) struct PortionBuilder<T> {
    portion: Portion<T>,
    limit: usize,
    bytes_left: u64,
}

impl<T> PortionBuilder<T> {
    pub(crate) fn new(limit: usize, bytes: Option<u64>) -> Self {
        Self { portion: Portion::default(), limit, bytes_left: bytes.map_or(u64::MAX, |bytes| bytes.max(1)) }
    }

    /// Adds an item of this size in bytes. If a limit was reached before, drops the item and records that more items
    /// follow.
    pub(crate) fn push(&mut self, item: T, bytes: u64) {
        self.portion.more = self.portion.len() >= self.limit || self.bytes_left == 0;
        if !self.portion.more {
            self.bytes_left = self.bytes_left.saturating_sub(bytes);
            self.portion.items.push(item);
        }
    }

    /// Whether an item was dropped, so that no further items need to be read.
    pub(crate) fn is_full(&self) -> bool {
        self.portion.more
    }

    pub(crate) fn build(self) -> Portion<T> {
        self.portion
    }
}

/// Which summaries to read.
#[derive(Debug, Clone)]
pub enum PickSummaries {
    /// The current summary of each slot.
    Current,
    /// The summaries with these ids.
    Ids(Vec<SummaryId>),
    /// All summaries of one slot or of all slots, including undone summaries, newest first.
    History {
        /// If set, only summaries of this slot are read.
        slot: Option<(Scope, String)>,
        /// If set, only summaries with a smaller id are read.
        before: Option<SummaryId>,
        /// Maximum number of summaries.
        limit: usize,
    },
}

/// A message found by a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// The session's name.
    pub session: Arc<str>,
    /// The session's id.
    pub id: SessionId,
    /// The message.
    pub message: Message,
}

/// A search request.
#[derive(Debug, Clone)]
pub struct Search {
    /// The workspace. Messages of other workspaces are never read.
    pub workspace: Arc<str>,
    /// If set, only this range of messages of this session is searched.
    pub session: Option<(SessionId, Span)>,
    /// The scope whose messages are searched.
    pub scope: Scope,
    /// The search terms.
    pub query: Query,
    /// The cursor: the session and the number of the last hit that the caller already has. The search continues with
    /// older messages of this session, and then with older sessions.
    pub after: Option<(SessionId, Seq)>,
    /// Maximum number of hits.
    pub limit: usize,
    /// Total size of the hits, in stored bytes, at which the search ends; `None` for no such limit. If there are hits,
    /// at least one is returned.
    pub bytes: Option<u64>,
}

/// A usage query. Rows are summed by session, slot, model and outcome.
#[derive(Debug, Clone)]
pub struct UsageQuery {
    /// The workspace.
    pub workspace: Arc<str>,
    /// If set, only calls for the session with this name are summed.
    pub session: Option<Arc<str>>,
    /// Only calls that ended at this time or later are summed.
    pub since: Timestamp,
    /// Whether to return separate sums for each session, of which there may be very many. If false, the sums contain no
    /// session name.
    pub by_session: bool,
}
