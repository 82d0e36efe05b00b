//! The state of a message list that grows at its end.
//!
//! A [`List`] reads each message once. Until the first condensation it stores only outlines and sums; afterwards
//! it also stores the view, to which later messages are added one by one. A turn in which nothing is condensed
//! therefore costs only as much as its new messages, and the caller's history is never copied.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::sheet::Sheet;
use crate::cut::Cuts;
use crate::message::{Message, Role, Seq, Timestamp, Tokens};
use crate::outline::{Outline, Totals};
use crate::tokens::Counter;
use crate::track::Tracker;
use crate::view;

/// A summary contained in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prior {
    /// Text of the summary, without its frame.
    pub text: String,
    /// Last message that the summary covers: it covers `1..=through` of the conversation.
    pub through: Seq,
    /// Whether the summary is a system message instead of a user message.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub system: bool,
}

impl Prior {
    pub(super) fn message(&self) -> Message {
        let mut message = view::summary(&self.text, self.through);
        if self.system {
            message.role = Role::System;
        }
        message
    }
}

/// What was done to a list: everything needed to rebuild the condensed list after a restart, except the message texts.
///
/// Positions refer to the caller's messages, counted from 1.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The current summary, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Prior>,
    /// The messages shown before the summary, in order.
    pub kept: Vec<Seq>,
    /// Every message after this position is shown. Of the messages up to it, only those in `kept` are shown.
    pub from: Seq,
    /// Tool outputs up to this position are masked.
    pub masked: Seq,
    /// Whether the cut at `from` lies inside a tool loop, after the reasoning that opened the loop.
    pub stripped: bool,
    /// Whether a placeholder user message opens the list; `None` before the first condensation.
    pub note: Option<bool>,
    /// Number of condensations.
    pub rounds: u64,
    /// Length of the list when it was last condensed.
    pub seen: Seq,
    /// Position up to which summaries by Epitome were searched for: the list's length at the first condensation.
    pub looked: Seq,
    /// Time of the last condensation.
    pub at: Timestamp,
}

/// The state of a message list that grows at its end.
///
/// ```
/// use epitome_core::condense::{Decision, Facts, List, Policy};
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
/// let facts = Facts::at(Timestamp(0));
/// let Decision::Done(done) = list.decide(&history, &policy, &facts, &counter) else { panic!("due") };
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
    /// Tokens of all messages taken in, before any condensation.
    untouched: Tokens,
    /// Outlines of the messages shown before the summary. Before the first condensation: outlines of the messages
    /// before a summary that was found in the caller's list.
    pub(super) front: Vec<Outline>,
    /// Outlines of all messages after `front`.
    pub(super) tail: Vec<Outline>,
    pub(super) frames: Frames,
    pub(super) totals: Totals,
    pub(super) standing: Standing,
    /// The view; `None` before the first condensation.
    pub(super) sheet: Option<Sheet>,
}

impl List {
    /// Takes in the messages that are new. `messages` is the whole list: the messages already taken in, unchanged, and
    /// the new ones at the end.
    pub fn advance(&mut self, messages: &[Message], counter: &Counter) {
        for message in messages.get(self.len()..).unwrap_or_default() {
            self.take(message, counter);
        }
        if let Some(sheet) = &mut self.sheet {
            sheet.count(counter);
        }
    }

    /// Returns the number of messages taken in.
    pub fn len(&self) -> usize {
        usize::try_from(self.tracker.head()).unwrap_or(usize::MAX)
    }

    /// Returns whether no message was taken in yet.
    pub fn is_empty(&self) -> bool {
        self.tracker.head() == 0
    }

    /// Returns the tokens of the list that would be sent now, without tool definitions.
    pub fn tokens(&self) -> Tokens {
        self.sheet.as_ref().map_or(self.untouched, Sheet::tokens)
    }

    /// Returns the tokens of all messages taken in: the size of the list if nothing had been condensed.
    pub fn untouched(&self) -> Tokens {
        self.untouched
    }

    /// Returns the approximate memory use in bytes, for caches that hold many lists. The caller's own messages are not
    /// included.
    pub fn bytes(&self) -> usize {
        let outlines = self.front.capacity().saturating_add(self.tail.capacity());
        let places = self.standing.kept.capacity().saturating_add(self.frames.found.capacity());
        let summary = self.standing.summary.as_ref().map_or(0, |prior| prior.text.len());
        let shown = self.sheet.as_ref().map_or(0, |sheet| sheet.bytes);
        [
            outlines.saturating_mul(size_of::<Outline>()),
            places.saturating_mul(size_of::<Seq>()),
            summary,
            shown,
        ]
        .into_iter()
        .fold(size_of::<Self>(), usize::saturating_add)
    }

    /// Returns the list that would be sent now. Before the first condensation these are the caller's own messages,
    /// unchanged; afterwards it is a list that every provider accepts.
    pub fn shown<'a>(&'a self, messages: &'a [Message]) -> Cow<'a, [Message]> {
        self.sheet.as_ref().map_or(Cow::Borrowed(messages), Sheet::shown)
    }

    /// Returns the same messages as [`List::shown`], for use after the list is dropped; `None` before the first
    /// condensation, because the caller owns that list. Messages are copied only if some wait for a tool result, or if
    /// the caller still holds the `Arc` when the list grows.
    pub fn shared(&self) -> Option<Arc<Vec<Message>>> {
        self.sheet.as_ref().map(Sheet::shared)
    }

    /// Returns the number of messages that would be sent now.
    pub fn shown_len(&self) -> usize {
        self.sheet.as_ref().map_or(self.len(), Sheet::len)
    }

    /// Returns what was done to the list: the input of [`List::resume`].
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Returns the summary in the list, whether this list made it or found it.
    pub fn summary(&self) -> Option<&Prior> {
        self.standing.summary.as_ref()
    }

    /// Returns the totals of the messages since the last condensation.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Returns the cuts of the messages after the summary.
    pub(super) fn cuts<'a>(&self, tail: &'a [Outline]) -> Cuts<'a> {
        Cuts::new(tail, self.tracker.cut_at_end())
    }

    fn take(&mut self, message: &Message, counter: &Counter) {
        let tokens = counter.message(message);
        self.untouched = self.untouched.saturating_add(tokens);
        // After the first condensation, a summary frame in a new message can only be a quotation.
        if self.standing.rounds == 0
            && let Some((found, rest)) = view::split(message)
        {
            self.found(message, found, rest.as_ref(), counter);
            return;
        }
        if self.standing.rounds == 0 && self.opens_with(message) {
            // The placeholder has no content; whether the list needs one is decided again.
            self.tracker.push_sized(message, tokens);
            self.frames.shift = self.frames.shift.saturating_sub(1);
            return;
        }
        let outline = self.tracker.push_sized(message, tokens);
        self.totals.add(&outline);
        self.tail.push(outline);
        if let Some(sheet) = &mut self.sheet {
            sheet.push(Cow::Borrowed(message));
        }
    }

    /// Returns whether this message is the placeholder that opens a list condensed by Epitome.
    fn opens_with(&self, message: &Message) -> bool {
        let begun = !self.front.is_empty() || self.tail.iter().any(|outline| !outline.leading);
        !begun && message.role == Role::User && message.parts == view::note().parts
    }

    /// Handles a summary found in the caller's list: the list was condensed before, so all messages before the summary
    /// belong to the front.
    fn found(&mut self, message: &Message, found: view::Found, rest: Option<&Message>, counter: &Counter) {
        self.front.append(&mut self.tail);
        self.totals.restart(message.at);
        // The user message closes all open calls: no message after a summary answers a call before it. The placeholder
        // is not shown and not added to the totals.
        let outline = self.tracker.push(rest.unwrap_or(&view::note()), counter);
        let place = outline.seq;
        self.frames.found.push(place);
        self.standing.from = place;
        if rest.is_some() {
            self.standing.from = place.saturating_sub(1);
            self.totals.add(&outline);
            self.tail.push(outline);
        }
        self.frames.shift = difference(found.through, self.standing.from);
        self.standing.summary = Some(Prior {
            text: view::joined(self.standing.summary.take().map(|prior| prior.text), found.text),
            through: found.through,
            system: message.role.is_system(),
        });
        self.standing.kept = self.front.iter().map(|outline| outline.seq).collect();
    }
}

/// Summaries by Epitome that were found in a list, and the resulting offset between the positions in the list and in
/// the conversation.
#[derive(Debug, Clone, Default)]
pub(super) struct Frames {
    /// Positions of the messages in which a summary was found.
    found: Vec<Seq>,
    /// Number added to a position in the list to get the position in the conversation.
    shift: i64,
}

impl Frames {
    /// Returns the position in the conversation. It differs from the position in the list if the caller's list begins
    /// with a summary.
    pub(super) fn original(&self, place: Seq) -> Seq {
        place.saturating_add_signed(self.shift)
    }

    /// Returns the message at this position, without the summary found in it.
    pub(super) fn piece<'a>(&self, messages: &'a [Message], place: Seq) -> Option<Cow<'a, Message>> {
        let message = messages.get(usize::try_from(place).ok()?.checked_sub(1)?)?;
        match self.found.binary_search(&place) {
            Ok(_) => view::split(message)?.1.map(Cow::Owned),
            Err(_) => Some(Cow::Borrowed(message)),
        }
    }
}

fn difference(a: Seq, b: Seq) -> i64 {
    let signed = |n: Seq| i64::try_from(n).unwrap_or(i64::MAX);
    signed(a).saturating_sub(signed(b))
}
