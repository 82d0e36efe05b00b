//! What is known of a list that grows at its end.
//!
//! A [`List`] takes in each message once. Until something is condensed it holds shapes and sums
//! only; from then on it also holds the view, which later messages are added to one by one. So a
//! turn on which nothing happens costs what is new in it, and the caller's history is never copied.

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

/// A summary that stands in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prior {
    /// What it says, without its frame.
    pub text: String,
    /// It stands for the messages `1..=through` of the conversation.
    pub through: Seq,
    /// Whether it is a system message rather than the user's.
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

/// What was done to a list: all that must survive a restart, without a word of the history.
///
/// Places count the caller's messages from 1.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The summary, where one stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Prior>,
    /// The messages shown before the summary, in order.
    pub kept: Vec<Seq>,
    /// Everything after this place is shown, and of what is before it only what is `kept`.
    pub from: Seq,
    /// Tool outputs up to this place are masked.
    pub masked: Seq,
    /// Whether the loop after `from` was entered past its reasoning.
    pub stripped: bool,
    /// Whether a note of ours opens the list; not decided before the first condensation.
    pub note: Option<bool>,
    /// How often the list was condensed.
    pub rounds: u64,
    /// How long the list was when it was last condensed.
    pub seen: Seq,
    /// Up to where summaries of ours were looked for: the list's length at the first condensation.
    pub looked: Seq,
    /// When it was last condensed.
    pub at: Timestamp,
}

/// What is known of a list of messages that grows at its end.
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
    /// The tokens of all messages taken in, as they came.
    untouched: Tokens,
    /// What is shown before the summary; before anything was condensed, what came before one that
    /// was found.
    pub(super) front: Vec<Outline>,
    /// Everything after that.
    pub(super) tail: Vec<Outline>,
    pub(super) frames: Frames,
    pub(super) totals: Totals,
    pub(super) standing: Standing,
    /// The view, once something was condensed.
    pub(super) sheet: Option<Sheet>,
}

impl List {
    /// Takes in the messages it has not seen. `messages` is the whole list, as it was before and
    /// with more at its end.
    pub fn advance(&mut self, messages: &[Message], counter: &Counter) {
        for message in messages.get(self.len()..).unwrap_or_default() {
            self.take(message, counter);
        }
        if let Some(sheet) = &mut self.sheet {
            sheet.count(counter);
        }
    }

    /// How many messages it has taken in.
    pub fn len(&self) -> usize {
        usize::try_from(self.tracker.head()).unwrap_or(usize::MAX)
    }

    /// Whether it has taken in none.
    pub fn is_empty(&self) -> bool {
        self.tracker.head() == 0
    }

    /// The size of what would be sent now, without tools.
    pub fn tokens(&self) -> Tokens {
        self.sheet.as_ref().map_or(self.untouched, Sheet::tokens)
    }

    /// The size of all messages as they came: what would be sent had nothing been condensed.
    pub fn untouched(&self) -> Tokens {
        self.untouched
    }

    /// About how many bytes of memory it holds, for who holds many. The caller's own list is not in it.
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

    /// What would be sent now. As long as nothing was condensed these are the caller's own messages,
    /// untouched; from then on a list that every provider accepts.
    pub fn shown<'a>(&'a self, messages: &'a [Message]) -> Cow<'a, [Message]> {
        self.sheet.as_ref().map_or(Cow::Borrowed(messages), Sheet::shown)
    }

    /// What [`List::shown`] shows, to be kept after the list is let go of; `None` as long as that is the caller's own
    /// list. It costs nothing, unless it is still held when the list goes on: then that makes a copy of its own.
    pub fn shared(&self) -> Option<Arc<Vec<Message>>> {
        self.sheet.as_ref().map(Sheet::shared)
    }

    /// How many messages would be sent now.
    pub fn shown_len(&self) -> usize {
        self.sheet.as_ref().map_or(self.len(), Sheet::len)
    }

    /// What was done to it so far: enough for [`List::resume`].
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// The summary in it, whether it was made here or found.
    pub fn summary(&self) -> Option<&Prior> {
        self.standing.summary.as_ref()
    }

    /// Sums over the messages since it was last condensed.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The cuts of the part after the summary.
    pub(super) fn cuts<'a>(&self, tail: &'a [Outline]) -> Cuts<'a> {
        Cuts::new(tail, self.tracker.cut_at_end())
    }

    fn take(&mut self, message: &Message, counter: &Counter) {
        let tokens = counter.message(message);
        self.untouched = self.untouched.saturating_add(tokens);
        // Once something was condensed here, a frame is somebody's quotation.
        if self.standing.rounds == 0
            && let Some((found, rest)) = view::split(message)
        {
            self.found(message, found, rest.as_ref(), counter);
            return;
        }
        if self.standing.rounds == 0 && self.opens_with(message) {
            // A note of ours says nothing; whether one is needed is decided anew.
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

    /// Whether this is the note that opens a list we handed out.
    fn opens_with(&self, message: &Message) -> bool {
        let begun = !self.front.is_empty() || self.tail.iter().any(|outline| !outline.leading);
        !begun && message.role == Role::User && message.parts == view::note().parts
    }

    /// The caller's list was condensed before: what is before its summary has been dealt with.
    fn found(&mut self, message: &Message, found: view::Found, rest: Option<&Message>, counter: &Counter) {
        self.front.append(&mut self.tail);
        self.totals.restart(message.at);
        // Nothing before it is answered after it. Shown to nobody, it opens no turn that counts.
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

/// Where summaries of ours were found in a list, and what places are in the conversation because of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Frames {
    /// The places of the messages in which one was found.
    found: Vec<Seq>,
    /// What a place in the list lacks to be a place in the conversation.
    shift: i64,
}

impl Frames {
    /// A place in the conversation. The two differ once the caller's list begins with a summary.
    pub(super) fn original(&self, place: Seq) -> Seq {
        place.saturating_add_signed(self.shift)
    }

    /// The message at this place, without the summary found in it.
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
