//! A message's shape without its words, and sums over shapes.
//!
//! Everything that must be got right when a log is divided (pairs, order, room) is in the shape,
//! so planning sees [`Outline`]s and never text. A store can plan a long session without loading
//! it, and a test can draw one in a line. Outlines are made by [`crate::track::Tracker`] when a
//! message is added, and kept beside it.

use serde::{Deserialize, Serialize};

use crate::message::{Author, Role, Seq, Timestamp, Tokens};

/// What dividing the log at some place would part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// A call from its result. Never allowed: every provider refuses what remains.
    InCall,
    /// A tool loop from the reasoning that opened it. Allowed only where nothing else fits, and
    /// then the loop's reasoning leaves the view.
    InLoop,
    /// Nothing that belongs together.
    Legal,
}

// fields: one row that stores keep and read for every message; parts would be flattened again in every column list.
/// A message without its words: what planning needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outline {
    /// Its place in the session.
    pub seq: Seq,
    /// In which role it was said.
    pub role: Role,
    /// Whose it is. A result belongs to its call's author.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<Author>,
    /// The turn it stands in; 0 before the first user message.
    pub turn: u64,
    /// Its size as handed out, overhead included.
    pub tokens: Tokens,
    /// The tokens of all messages before it in the log.
    pub before: Tokens,
    /// The characters of its text, calls and results; reasoning and media not included.
    pub chars: u64,
    /// The characters of its longest part, trimmed.
    pub longest: u64,
    /// How many calls it opens.
    pub calls: u32,
    /// How many calls it answers. What a batch leaves unanswered gets a marked result when shown.
    pub answers: u32,
    /// How many of those were its author's.
    pub own_answers: u32,
    /// How many calls wait for their result after it, in the whole log.
    pub open: u32,
    /// The same among its author's messages only.
    pub own_open: u32,
    /// Whether it belongs to the system and developer messages at the head, which always stay.
    pub leading: bool,
    /// Whether it starts a turn.
    pub opens_turn: bool,
    /// Whether it carries reasoning.
    pub thinking: bool,
    /// Whether nothing of it can be shown: it only repeats or answers what is not there.
    pub stray: bool,
    /// Always shown.
    pub pinned: bool,
    /// Never summarized, never counted.
    pub skip: bool,
    /// What a cut just before this message parts, in the whole log.
    pub cut: Cut,
    /// The same among its author's messages only.
    pub own_cut: Cut,
    /// When it was said.
    pub at: Timestamp,
}

/// Sums over messages since some place, kept up to date in O(1) a message.
///
/// ```
/// use epitome_testkit::drawing::outlines;
/// use epitome_core::outline::Totals;
///
/// let mut totals = Totals::default();
/// for outline in outlines("u a u~ a(x) r(x)").unwrap() {
///     totals.add(&outline);
/// }
/// assert_eq!((totals.messages, totals.turns), (4, 2)); // `u~` is skipped, but its turn goes on
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Row")]
pub struct Totals {
    /// Messages.
    pub messages: u64,
    /// Turns in which something was said.
    pub turns: u64,
    /// Tokens, message overhead included.
    pub tokens: Tokens,
    /// Characters.
    pub chars: u64,
    /// The longest part's characters.
    pub longest: u64,
    /// The last message counted.
    pub last_seq: Seq,
    /// When the last message counted was said.
    pub last_at: Timestamp,
    /// From when time is counted: the last restart, or the first message where there was none.
    pub since: Option<Timestamp>,
    /// The last turn counted, so that a turn is counted once even when a restart falls inside it.
    pub last_turn: u64,
}

/// Totals as a short list: they are written with every append, for each slot.
type Row = (u64, u64, Tokens, u64, u64, Seq, Timestamp, Option<Timestamp>, u64);

impl From<Totals> for Row {
    fn from(totals: Totals) -> Self {
        let Totals { messages, turns, tokens, chars, longest, last_seq, last_at, since, last_turn } = totals;
        (messages, turns, tokens, chars, longest, last_seq, last_at, since, last_turn)
    }
}

impl Totals {
    /// Counts one more message; one flagged `skip` counts for nothing.
    pub fn add(&mut self, outline: &Outline) {
        if outline.skip {
            return;
        }
        self.messages = self.messages.saturating_add(1);
        self.tokens = self.tokens.saturating_add(outline.tokens);
        self.chars = self.chars.saturating_add(outline.chars);
        self.longest = self.longest.max(outline.longest);
        if outline.turn > self.last_turn {
            self.turns = self.turns.saturating_add(1);
            self.last_turn = outline.turn;
        }
        self.last_seq = outline.seq;
        self.last_at = outline.at;
        self.since.get_or_insert(outline.at);
    }

    /// Starts counting anew at the moment `at`. The turn under way was counted already.
    pub fn restart(&mut self, at: Timestamp) {
        *self = Self {
            last_seq: self.last_seq,
            last_at: self.last_at,
            last_turn: self.last_turn,
            since: Some(at),
            ..Self::default()
        };
    }

    /// Whether nothing was counted since the last restart.
    pub fn is_empty(&self) -> bool {
        self.messages == 0
    }
}
