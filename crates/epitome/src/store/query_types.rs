//! Types of the store's queries and of their results.

use std::ops::Deref;
use std::sync::Arc;

use epitome_core::message::{Message, Seq, Span, Timestamp, Tokens};
use epitome_core::outline::{Cut, Outline};
use epitome_core::slot::Scope;

use super::changes::SessionState;
use super::rows::{SessionId, SummaryId, SummaryRow};
use crate::search::Query;

/// How far back a context reads, decided once the session's state was read.
#[derive(Debug, Clone, Copy)]
pub struct Reach {
    /// The budget: the newest messages are read until they exceed it.
    pub tokens: Tokens,
    /// Whether the context may also show messages that a summary covers. If false, only messages after the shortest
    /// coverage of a current summary are read, and text is read only for messages that no current summary covers.
    pub deep: bool,
}

/// Decides how far back a context reads, from the session's state (without its slots); `None` if it reads nothing. A
/// store may call it again.
pub type DecideReach = Arc<dyn Fn(&SessionState) -> Option<Reach> + Send + Sync>;

/// Which part of a session a context is built from.
#[derive(Debug, Clone)]
pub struct WindowQuery {
    /// The scope whose messages are read.
    pub scope: Scope,
    /// If set, the session is read as if this were its last message.
    pub as_of: Option<Seq>,
    /// Whether a small context of this session was read recently, so that its data is likely in memory. The store may
    /// then read it on the caller's thread, which is faster than waking another thread.
    pub recently_read: bool,
}

/// One consistent state of a session, limited to what a context needs: see `epitome_core::context::SessionShape`.
#[derive(Debug, Clone)]
pub struct Window {
    /// The session and its workspace's settings; slots, log and the other lists are empty.
    pub state: SessionState,
    /// The system and developer messages at the start of the session.
    pub leading: Vec<Outline>,
    /// The call batches that contain pinned messages, oldest first, without leading messages and strays.
    pub pinned: Vec<Outline>,
    /// The message that opened the turn in which `tail` starts, if that message is not in `tail`.
    pub opener: Option<Outline>,
    /// The newest messages, oldest first: enough of them that no earlier message would also fit the budget.
    pub tail: Vec<Outline>,
    /// `tail` contains all of the scope's messages from this one on.
    pub from: Seq,
    /// What a cut after the last message in `tail` would separate.
    pub end: Cut,
    /// Number of tool calls without a result after that message.
    pub open_calls: u32,
    /// Number of messages in skipped call batches.
    pub skipped: u64,
    /// One summary per slot: the current one, or with `as_of` the one whose coverage reaches furthest up to that
    /// message. Without their sources, which are rarely needed.
    pub summaries: Vec<SummaryRow>,
    /// The full messages of `leading`, `pinned`, `opener`, and of the part of `tail` that is likely to be shown,
    /// ordered by seq.
    pub messages: Vec<Message>,
}

/// The messages after a slot's coverage.
#[derive(Debug, Clone)]
pub struct OutlinesAfter {
    /// The scope's messages, oldest first.
    pub log: Vec<Outline>,
    /// What a cut after the last message in `log` would separate; `None` if more messages follow.
    pub end: Option<Cut>,
}

/// Which messages to read.
#[derive(Debug, Clone)]
pub enum PickMessages {
    /// The messages with these numbers, ascending.
    Seqs(Vec<Seq>),
    /// A page: the first (or, in reverse, the last) messages of a range, up to the first of two limits.
    Page {
        /// The scope whose messages are read.
        scope: Scope,
        /// The range of message numbers.
        within: Span,
        /// Newest first.
        reverse: bool,
        /// Maximum number of messages.
        limit: usize,
        /// Size in stored bytes at which the page ends. The message that reaches it is included, because its size is
        /// not available before it is read. So a page has at least one message.
        bytes: Option<u64>,
    },
}

/// Part of a longer list.
///
/// A portion with fewer items than the limit need not be the last one, because there is also a size limit. `more` shows
/// whether it is the last. It can be used like a slice.
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

/// Collects items until a limit is reached. All stores use it, so that limits have the same meaning in each.
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

    /// Adds an item of this size in bytes. If a limit was reached before, drops the item and marks the portion as
    /// having more.
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
    /// All summaries, including undone ones, newest first, of one slot or of all.
    History {
        /// Only summaries of this slot.
        slot: Option<(Scope, String)>,
        /// Only summaries with a smaller id.
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
    /// Only this session, and only this range of its messages.
    pub session: Option<(SessionId, Span)>,
    /// Only messages of this scope.
    pub scope: Scope,
    /// The search terms.
    pub query: Query,
    /// Cursor: only hits after this message of this session, where newer sessions and newer messages come first.
    pub after: Option<(SessionId, Seq)>,
    /// Maximum number of hits.
    pub limit: usize,
    /// Total size of the hits in stored bytes at which the search ends. At least one hit is returned if there is any.
    pub bytes: Option<u64>,
}

/// A usage query. Rows are summed by session, slot, model and outcome.
#[derive(Debug, Clone)]
pub struct UsageQuery {
    /// The workspace.
    pub workspace: Arc<str>,
    /// Only calls for the session of this name.
    pub session: Option<Arc<str>>,
    /// Only calls that ended at this time or later.
    pub since: Timestamp,
    /// Whether to return separate sums per session, of which there may be very many. If false, sums name no session.
    pub by_session: bool,
}
