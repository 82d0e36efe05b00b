//! What a store may be asked for, and what it answers.

use std::sync::Arc;

use epitome_core::message::{Message, Seq, Span, Timestamp, Tokens};
use epitome_core::outline::{Cut, Outline};
use epitome_core::slot::Scope;

use super::{SessionId, Standing, SummaryId, SummaryRow};
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

/// Says how far a context looks, from where the session stands (without its slots).
pub type Look = Box<dyn FnOnce(&Standing) -> Option<Reach> + Send>;

/// Which part of a session a context is made from.
#[derive(Debug, Clone)]
pub struct View {
    /// Whose messages.
    pub scope: Scope,
    /// As if the log ended here.
    pub as_of: Option<Seq>,
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
    /// A page: the scope's messages after (or, in reverse, before) a place, at most so many.
    Page {
        /// Whose messages.
        scope: Scope,
        /// Nothing outside of this.
        within: Span,
        /// Newest first.
        reverse: bool,
        /// At most so many.
        limit: usize,
    },
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
