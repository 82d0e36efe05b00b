//! What a store may be asked for, and what it answers.

use std::ops::Deref;
use std::sync::Arc;

use epitome_core::message::{Message, Seq, Span, Timestamp, Tokens};
use epitome_core::outline::{Cut, Outline};
use epitome_core::slot::Scope;

use super::changes::Standing;
use super::rows::{SessionId, SummaryId, SummaryRow};
use crate::search::Query;

/// How far a context may look, once it is known whose it is.
#[derive(Debug, Clone, Copy)]
pub struct Reach {
    /// The budget: the newest messages are read until they are more than this.
    pub tokens: Tokens,
    /// Whether messages that a summary covers may be shown too. Otherwise none is read from before
    /// where the oldest standing summary's coverage ends, nor are the words of any that the newest one
    /// covers.
    pub deep: bool,
}

/// Says how far a context looks, from where the session stands (without its slots). A store may ask again.
pub type Look = Arc<dyn Fn(&Standing) -> Option<Reach> + Send + Sync>;

/// Which part of a session a context is made from.
#[derive(Debug, Clone)]
pub struct View {
    /// Whose messages.
    pub scope: Scope,
    /// As if the log ended here.
    pub as_of: Option<Seq>,
    /// Whether little of it was read lately, so that it is in memory: a store may read it then and there, on the
    /// caller's own thread, which is sooner done than another one is woken.
    pub at_hand: bool,
}

/// One consistent state of a session, as much as a context needs: see `epitome_core::context::Scene`.
#[derive(Debug, Clone)]
pub struct Window {
    /// The session and its workspace's settings; slots, log and the like are left empty.
    pub standing: Standing,
    /// The system and developer messages at the head.
    pub leading: Vec<Outline>,
    /// Pinned messages, whole batches, oldest first, neither leading nor strays.
    pub pinned: Vec<Outline>,
    /// The message that opened the turn `tail` starts in, where it lies before it.
    pub opener: Option<Outline>,
    /// The newest messages, oldest first: enough that no earlier one could fit the budget beside them.
    pub tail: Vec<Outline>,
    /// All the scope's messages from this one on are in `tail`.
    pub from: Seq,
    /// What a cut after the last of them parts.
    pub end: Cut,
    /// How many calls are open there.
    pub open_calls: u32,
    /// How many messages are skipped, by whole batches.
    pub skipped: u64,
    /// One a slot: the one that stands, or with `as_of` the one that reaches furthest up to there. Without their
    /// sources, which are seldom needed.
    pub summaries: Vec<SummaryRow>,
    /// The words of `leading`, `pinned`, `opener` and those of `tail` likely to be shown, by seq.
    pub words: Vec<Message>,
}

/// What lies ahead of a slot's coverage.
#[derive(Debug, Clone)]
pub struct Ahead {
    /// The scope's messages, oldest first.
    pub log: Vec<Outline>,
    /// What a cut after the last of them parts; `None` when more messages follow.
    pub end: Option<Cut>,
}

/// Which messages are to be read.
#[derive(Debug, Clone)]
pub enum Pick {
    /// These, ascending.
    Seqs(Vec<Seq>),
    /// A page: the scope's messages after (or, in reverse, before) a place, until one of both bounds is reached.
    Page {
        /// Whose messages.
        scope: Scope,
        /// Nothing outside of this.
        within: Span,
        /// Newest first.
        reverse: bool,
        /// At most so many.
        limit: usize,
        /// Until they are so many bytes or more, as they are kept: how large messages are is only known when they are
        /// read. One is read in any case.
        bytes: Option<u64>,
    },
}

/// As much as was to be read of something longer.
///
/// It may hold less than the limit and not be the end: what is large is cut short. `more` says which it is. It is read like
/// a list.
///
/// ```
/// let portion = epitome::Portion { items: vec!["one", "two"], more: true };
/// assert_eq!((portion.len(), portion.last()), (2, Some(&"two")));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Portion<T> {
    /// What was read.
    pub items: Vec<T>,
    /// Whether there is another one after the last of them.
    pub more: bool,
}

impl<T> Default for Portion<T> {
    fn default() -> Self {
        Self { items: Vec::new(), more: false }
    }
}

impl<T> Portion<T> {
    /// The same, each of them made into something else.
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

/// Takes in what is read until there is enough of it: for stores, so that all of them mean the same by enough.
#[derive(Debug)]
pub(crate) struct Filling<T> {
    portion: Portion<T>,
    limit: usize,
    /// So many bytes are left.
    room: u64,
}

impl<T> Filling<T> {
    pub(crate) fn new(limit: usize, bytes: Option<u64>) -> Self {
        Self { portion: Portion::default(), limit, room: bytes.map_or(u64::MAX, |bytes| bytes.max(1)) }
    }

    /// Takes one more, of so many bytes. Where there was enough it is let go again, and nothing more need be read.
    pub(crate) fn take(&mut self, item: T, bytes: u64) {
        self.portion.more = self.portion.len() >= self.limit || self.room == 0;
        if !self.portion.more {
            self.room = self.room.saturating_sub(bytes);
            self.portion.items.push(item);
        }
    }

    /// Whether there was one more than is wanted.
    pub(crate) fn is_over(&self) -> bool {
        self.portion.more
    }

    pub(crate) fn done(self) -> Portion<T> {
        self.portion
    }
}

/// Which summaries are to be read.
#[derive(Debug, Clone)]
pub enum PickSummaries {
    /// Those that stand.
    Standing,
    /// These.
    Ids(Vec<SummaryId>),
    /// All, undone ones too, newest first, of one slot or of all; those before this id, at most so many.
    History {
        /// Only this slot's.
        slot: Option<(Scope, String)>,
        /// Only those with a smaller id.
        before: Option<SummaryId>,
        /// At most so many.
        limit: usize,
    },
}

/// A message found by its words.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// The session's name.
    pub session: Arc<str>,
    /// The session's number.
    pub id: SessionId,
    /// The message.
    pub message: Message,
}

/// What is searched.
#[derive(Debug, Clone)]
pub struct Search {
    /// Whose workspace. Nothing outside of it is looked at.
    pub workspace: Arc<str>,
    /// Only in this session, and there only in these messages.
    pub session: Option<(SessionId, Span)>,
    /// Only these messages.
    pub scope: Scope,
    /// What is looked for.
    pub query: Query,
    /// Newest session first, newest message first: only those after this one of this session.
    pub after: Option<(SessionId, Seq)>,
    /// At most so many.
    pub limit: usize,
    /// Until those that were found are so many bytes or more, as they are kept. One is given in any case.
    pub bytes: Option<u64>,
}

/// Whose usage is asked for. Rows are added up by session, slot, model and outcome.
#[derive(Debug, Clone)]
pub struct UsageQuery {
    /// Whose.
    pub workspace: Arc<str>,
    /// Only this session's, by its name.
    pub session: Option<Arc<str>>,
    /// Only calls from this moment on.
    pub since: Timestamp,
    /// Apart by session, of which there may be very many; otherwise together, and the sums name none.
    pub by_session: bool,
}
