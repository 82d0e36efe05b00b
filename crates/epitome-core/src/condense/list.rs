//! The state of a message list that grows at its end.
//!
//! A [`List`] reads each message once. Before the first condensation, it stores only outlines and sums. After the first
//! condensation, it also stores the view, and adds each later message to the view. A turn without a condensation
//! therefore costs only as much as its new messages.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::list_view::ListView;
use crate::cut::Cuts;
use crate::message::{Message, Role, Seq, Timestamp, Tokens};
use crate::outline::{Outline, Totals};
use crate::tokens::Counter;
use crate::track::Tracker;
use crate::view;

/// The summary that a list contains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListSummary {
    /// Text of the summary, without its frame.
    pub text: String,
    /// Position of the last message that the summary covers. The summary covers the messages `1..=through` of the
    /// conversation.
    pub through: Seq,
    /// Whether the summary is a system message instead of a user message.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub system: bool,
}

impl ListSummary {
    pub(super) fn message(&self) -> Message {
        let mut message = view::summary(&self.text, self.through);
        if self.system {
            message.role = Role::System;
        }
        message
    }
}

/// The combined effect of all condensations of a list. This state and the message texts are enough to rebuild the
/// condensed list after a restart.
///
/// Positions refer to the caller's messages, counted from 1.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListState {
    /// The current summary; `None` if the list has no summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<ListSummary>,
    /// Positions of the messages that are shown before the summary, in order.
    #[serde(rename = "kept")]
    pub front: Vec<Seq>,
    /// Every message after this position is shown. Of the other messages, only those in `front` are shown.
    pub from: Seq,
    /// Tool outputs up to this position are masked.
    pub masked: Seq,
    /// Whether the cut at `from` lies inside a tool loop, after the reasoning that opened the loop.
    pub stripped: bool,
    /// Whether the list starts with a placeholder user message; `None` before the first condensation.
    pub note: Option<bool>,
    /// Number of condensations.
    pub rounds: u64,
    /// Length of the list when it was last condensed.
    #[serde(rename = "seen")]
    pub length: Seq,
    /// Position of the last message that was searched for a summary by Epitome. Later messages are not searched. The
    /// value is the length of the list at the first condensation.
    #[serde(rename = "looked")]
    pub searched: Seq,
    /// Time of the last condensation.
    pub at: Timestamp,
}

/// The state of a message list that grows at its end.
///
/// ```
/// use epitome_core::condense::{Decision, RequestFacts, List, Policy};
/// use epitome_testkit::drawing::{draw, messages, word_counter};
/// use epitome_core::message::Timestamp;
///
/// let counter = word_counter();
/// let policy = Policy {
///     trigger: "tokens(100)".parse().unwrap(),
///     strategy: "recent(messages(2))".parse().unwrap(),
///     ..Policy::default()
/// };
/// let mut history = messages("s u:30 a:30 u:30 a:30").unwrap();
/// let mut list = List::default();
/// list.advance(&history, &counter);
/// let facts = RequestFacts::at(Timestamp(0));
/// let Decision::Apply(done) = list.decide(&history, &policy, &facts, &counter) else { panic!("due") };
/// done.apply(&mut list).unwrap();
/// assert_eq!(draw(&list.shown(&history)), "s u:30 a:30");
///
/// // From here on the list only grows at its end.
/// history.extend(messages("u:5").unwrap());
/// list.advance(&history, &counter);
/// assert_eq!((draw(&list.shown(&history)), list.tokens()), ("s u:30 a:30 u:5".to_owned(), 66));
/// ```
#[derive(Debug, Clone, Default)]
pub struct List {
    tracker: Tracker,
    /// Number of tokens of all messages added so far, in their original form.
    uncondensed: Tokens,
    /// Outlines of the messages shown before the summary. Before the first condensation, these are the messages before
    /// a summary that was found in the caller's list.
    pub(super) front: Vec<Outline>,
    /// Outlines of all messages after `front`.
    pub(super) tail: Vec<Outline>,
    pub(super) frames: Frames,
    pub(super) totals: Totals,
    pub(super) state: ListState,
    /// The view; `None` before the first condensation.
    pub(super) view: Option<ListView>,
}

impl List {
    /// Adds the new messages to the list. `messages` is the caller's whole list: the messages that were added before,
    /// unchanged, and the new messages at the end.
    pub fn advance(&mut self, messages: &[Message], counter: &Counter) {
        for message in messages.get(self.len()..).unwrap_or_default() {
            self.take(message, counter);
        }
        if let Some(view) = &mut self.view {
            view.count(counter);
        }
    }

    /// Returns the number of messages added so far.
    pub fn len(&self) -> usize {
        usize::try_from(self.tracker.head()).unwrap_or(usize::MAX)
    }

    /// Returns whether no message was added yet.
    pub fn is_empty(&self) -> bool {
        self.tracker.head() == 0
    }

    /// Returns the tokens of the list that would be sent now, without tool definitions.
    pub fn tokens(&self) -> Tokens {
        self.view.as_ref().map_or(self.uncondensed, ListView::tokens)
    }

    /// Returns the tokens of all messages added so far: the size that the list would have without condensations.
    pub fn uncondensed(&self) -> Tokens {
        self.uncondensed
    }

    /// Returns the approximate memory use in bytes, for caches that hold many lists. The caller's own messages are not
    /// included.
    pub fn bytes(&self) -> usize {
        let outlines = self.front.capacity().saturating_add(self.tail.capacity());
        let positions = self.state.front.capacity().saturating_add(self.frames.summaries.capacity());
        let summary = self.state.summary.as_ref().map_or(0, |summary| summary.text.len());
        let shown = self.view.as_ref().map_or(0, |view| view.bytes);
        [
            outlines.saturating_mul(size_of::<Outline>()),
            positions.saturating_mul(size_of::<Seq>()),
            summary,
            shown,
        ]
        .into_iter()
        .fold(size_of::<Self>(), usize::saturating_add)
    }

    /// Returns the messages that would be sent now. Before the first condensation, these are the caller's own messages,
    /// unchanged. After the first condensation, they form a list that every provider accepts.
    pub fn shown<'a>(&'a self, messages: &'a [Message]) -> Cow<'a, [Message]> {
        self.view.as_ref().map_or(Cow::Borrowed(messages), ListView::shown)
    }

    /// Returns the same messages as [`List::shown`]. The result stays valid after the list is dropped. Before the first
    /// condensation, the result is `None`, because the caller then owns the messages that are sent. Messages are copied
    /// only in two cases: some messages wait for a tool result, or the list grows while the caller still holds the
    /// `Arc`.
    pub fn shared(&self) -> Option<Arc<Vec<Message>>> {
        self.view.as_ref().map(ListView::shared)
    }

    /// Returns the number of messages that would be sent now.
    pub fn shown_len(&self) -> usize {
        self.view.as_ref().map_or(self.len(), ListView::len)
    }

    /// Returns the effect of all condensations of the list: the input of [`List::resume`].
    pub fn state(&self) -> &ListState {
        &self.state
    }

    /// Returns the current summary. It was either added by a condensation of this list or found in the caller's
    /// messages.
    pub fn summary(&self) -> Option<&ListSummary> {
        self.state.summary.as_ref()
    }

    /// Returns the totals of the messages since the last condensation.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Returns the possible cuts between the messages of `tail`.
    pub(super) fn cuts<'a>(&self, tail: &'a [Outline]) -> Cuts<'a> {
        Cuts::new(tail, self.tracker.cut_at_end())
    }

    fn take(&mut self, message: &Message, counter: &Counter) {
        let tokens = counter.message(message);
        self.uncondensed = self.uncondensed.saturating_add(tokens);
        // After the first condensation, a summary frame in a new message can only be a quotation.
        if self.state.rounds == 0
            && let Some((found, rest)) = view::split(message)
        {
            self.take_summary(message, found, rest.as_ref(), counter);
            return;
        }
        if self.state.rounds == 0 && self.is_opening_note(message) {
            // The placeholder has no content. The next condensation decides again whether the list needs a placeholder.
            self.tracker.push_sized(message, tokens);
            self.frames.shift = self.frames.shift.saturating_sub(1);
            return;
        }
        let outline = self.tracker.push_sized(message, tokens);
        self.totals.add(&outline);
        self.tail.push(outline);
        if let Some(view) = &mut self.view {
            view.push(Cow::Borrowed(message));
        }
    }

    /// Returns whether this message is the placeholder that opens a list condensed by Epitome.
    fn is_opening_note(&self, message: &Message) -> bool {
        let begun = !self.front.is_empty() || self.tail.iter().any(|outline| !outline.leading);
        !begun && message.role == Role::User && message.parts == view::note().parts
    }

    /// Handles a summary that was found in the caller's list. Such a list was condensed before. All messages before the
    /// summary therefore belong to the front.
    fn take_summary(
        &mut self,
        message: &Message,
        found: view::FramedSummary,
        rest: Option<&Message>,
        counter: &Counter,
    ) {
        self.front.append(&mut self.tail);
        self.totals.restart(message.at);
        // No message after a summary answers a call before the summary, so all open calls must be closed. A user
        // message closes them. The tracker therefore receives the rest of this message or, if there is no rest, a
        // placeholder user message. The placeholder is not shown and not added to the totals.
        let outline = self.tracker.push(rest.unwrap_or(&view::note()), counter);
        let position = outline.seq;
        self.frames.summaries.push(position);
        self.state.from = position;
        if rest.is_some() {
            self.state.from = position.saturating_sub(1);
            self.totals.add(&outline);
            self.tail.push(outline);
        }
        self.frames.shift = signed_difference(found.through, self.state.from);
        self.state.summary = Some(ListSummary {
            text: view::joined(self.state.summary.take().map(|summary| summary.text), found.text),
            through: found.through,
            system: message.role.is_system(),
        });
        self.state.front = self.front.iter().map(|outline| outline.seq).collect();
    }
}

/// The summaries by Epitome that were found in a list. Each of these summaries replaces earlier messages of the
/// conversation. The position of a message in the list therefore differs from its position in the conversation. The
/// difference is `shift`.
#[derive(Debug, Clone, Default)]
pub(super) struct Frames {
    /// Positions of the messages in which a summary was found.
    summaries: Vec<Seq>,
    /// The position of a message in the conversation minus its position in the list.
    shift: i64,
}

impl Frames {
    /// Converts a position in the list into a position in the conversation. The two positions differ if the caller's
    /// list contains a summary.
    pub(super) fn original(&self, position: Seq) -> Seq {
        position.saturating_add_signed(self.shift)
    }

    /// Returns the message at this position, without the summary found in it.
    pub(super) fn message<'a>(&self, messages: &'a [Message], position: Seq) -> Option<Cow<'a, Message>> {
        let message = messages.get(usize::try_from(position).ok()?.checked_sub(1)?)?;
        match self.summaries.binary_search(&position) {
            Ok(_) => view::split(message)?.1.map(Cow::Owned),
            Err(_) => Some(Cow::Borrowed(message)),
        }
    }
}

fn signed_difference(a: Seq, b: Seq) -> i64 {
    let signed = |n: Seq| i64::try_from(n).unwrap_or(i64::MAX);
    signed(a).saturating_sub(signed(b))
}
