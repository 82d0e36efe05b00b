//! Defines the shape of a message without its text, and sums over shapes.
//!
//! The shape contains everything that is needed to divide a log correctly: call pairs, order and sizes. Planning
//! therefore reads [`Outline`]s and never text. A store can plan for a long session without loading its messages. A
//! test can describe an outline in a short text. [`crate::track::Tracker`] creates the outline when a message is added,
//! and the store saves the outline with the message.

use serde::{Deserialize, Serialize};

use crate::message::{Author, Role, Seq, Timestamp, Tokens};

/// What a cut at a position would separate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// The cut separates a call from its result. Such a cut is never allowed, because every provider rejects the
    /// remaining messages.
    InCall,
    /// The cut separates a tool loop from the reasoning that started the loop. Such a cut is allowed only if no other
    /// cut fits. If it is used, the reasoning of the loop is removed from the view.
    InLoop,
    /// The cut separates nothing that belongs together.
    Legal,
}

// fields: stores save one row per message with these columns; nested structs would have to be flattened again.
/// The shape of a message, without its text. Outlines are the input of planning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outline {
    /// Position of the message in the session.
    pub seq: Seq,
    /// Role of the message.
    pub role: Role,
    /// Author of the message. A result belongs to the author of its call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<Author>,
    /// The turn that contains the message; 0 before the first user message.
    pub turn: u64,
    /// Number of tokens of the message as it is sent to the agent, message overhead included.
    pub tokens: Tokens,
    /// Number of tokens of all earlier messages in the log.
    pub before: Tokens,
    /// Number of characters of the text, calls and results. Reasoning and media are not counted.
    pub chars: u64,
    /// Number of characters of the longest part, without spaces at its ends.
    pub longest: u64,
    /// Number of calls that the message opens.
    pub calls: u32,
    /// Number of calls that the message answers. A batch may contain more calls than answers: when it is shown, each
    /// unanswered call gets a placeholder result.
    pub answers: u32,
    /// Number of calls that the message answers and that its own author made.
    pub own_answers: u32,
    /// Number of open calls after this message, in the whole log.
    pub open: u32,
    /// Number of open calls of the message's author after this message.
    pub own_open: u32,
    /// Whether the message is a leading message: one of the system and developer messages at the start of the session.
    /// Leading messages are always shown.
    pub leading: bool,
    /// Whether the message starts a turn.
    pub opens_turn: bool,
    /// Whether the message contains reasoning.
    pub thinking: bool,
    /// Whether no part of the message can be shown, because it only repeats calls or answers calls that do not exist.
    pub stray: bool,
    /// Whether the message is always shown.
    pub pinned: bool,
    /// Whether the message is never summarized and never counted by triggers.
    pub skip: bool,
    /// What a cut directly before this message separates, in the whole log.
    pub cut: Cut,
    /// What a cut directly before this message separates among the messages of its author.
    pub own_cut: Cut,
    /// When the message was sent.
    pub at: Timestamp,
}

/// Sums over the messages since some position, updated in O(1) per message.
///
/// ```
/// use epitome_testkit::drawing::outlines;
/// use epitome_core::outline::Totals;
///
/// let mut totals = Totals::default();
/// for outline in outlines("u a u~ a(x) r(x)").unwrap() {
///     totals.add(&outline);
/// }
/// assert_eq!((totals.messages, totals.turns), (4, 2)); // `u~` is skipped, but its turn continues
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "TotalsRow")]
pub struct Totals {
    /// Number of messages.
    pub messages: u64,
    /// Number of turns with at least one counted message.
    pub turns: u64,
    /// Number of tokens, message overhead included.
    pub tokens: Tokens,
    /// Number of characters, as in [`Outline::chars`].
    pub chars: u64,
    /// Length of the longest part, in characters.
    pub longest: u64,
    /// Position of the last counted message.
    pub last_seq: Seq,
    /// Timestamp of the last counted message.
    pub last_at: Timestamp,
    /// Timestamp from which the trigger `every` measures: the last restart or, without a restart, the first message.
    /// `None` before the first message.
    pub since: Option<Timestamp>,
    /// Number of the last counted turn. With this number, a turn is counted only once, even if counting restarts inside
    /// the turn.
    pub last_turn: u64,
}

/// The serialized form of [`Totals`]: an array without field names. The form is short because totals are stored for
/// each slot on every append.
type TotalsRow = (u64, u64, Tokens, u64, u64, Seq, Timestamp, Option<Timestamp>, u64);

impl From<Totals> for TotalsRow {
    fn from(totals: Totals) -> Self {
        let Totals { messages, turns, tokens, chars, longest, last_seq, last_at, since, last_turn } = totals;
        (messages, turns, tokens, chars, longest, last_seq, last_at, since, last_turn)
    }
}

impl Totals {
    /// Adds one message. A message flagged `skip` is not counted.
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

    /// Restarts counting at the timestamp `at`. The current turn is not counted a second time.
    pub fn restart(&mut self, at: Timestamp) {
        *self = Self {
            last_seq: self.last_seq,
            last_at: self.last_at,
            last_turn: self.last_turn,
            since: Some(at),
            ..Self::default()
        };
    }

    /// Returns whether no message was counted since the last restart.
    pub fn is_empty(&self) -> bool {
        self.messages == 0
    }
}
