//! Defines slots and their state. A slot is a permanent request for summaries of a session.
//!
//! A [`Slot`] defines when a summary is due, which recent messages stay out of the summary, and how large the summary
//! may be. Its [`SlotState`] is a cursor, not a list of jobs. The state contains the position of the last covered
//! message, the first pending trigger event, and the totals since the newest trigger event. Later pending events are
//! computed again from the outlines when they are needed. Therefore a hundred new messages update only one row of the
//! store. Deduplication, ordering and crash safety need no extra code.
//!
//! A slot counts messages one by one, even if many messages are added at once. Counting restarts at each trigger event,
//! not at the end of the coverage.

use serde::{Deserialize, Serialize};

use crate::keep::Keep;
use crate::message::{Author, Seq, Timestamp, Tokens};
use crate::outline::{Outline, Totals};
use crate::setting::SettingError;
use crate::trigger::{Trigger, TriggerFacts, Use, When};

/// The messages that a slot covers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Option<Author>", into = "Option<Author>")]
pub enum Scope {
    /// All messages.
    #[default]
    Session,
    /// The messages of one author, and the results of that author's calls. A message that answers calls of two authors
    /// belongs to the author of the first answered call.
    Author(Author),
}

impl Scope {
    /// Returns whether this message is in the scope.
    pub fn holds(&self, outline: &Outline) -> bool {
        match self {
            Self::Session => true,
            Self::Author(author) => outline.author.as_ref() == Some(author),
        }
    }
}

impl From<Option<Author>> for Scope {
    fn from(author: Option<Author>) -> Self {
        author.map_or(Self::Session, Self::Author)
    }
}

impl From<Scope> for Option<Author> {
    fn from(scope: Scope) -> Self {
        match scope {
            Scope::Session => None,
            Scope::Author(author) => Some(author),
        }
    }
}

/// Maximum size of a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Maximum number of tokens. If a model's summary has more tokens, it is rejected.
    Tokens(Tokens),
    /// Maximum number of characters. If a summary has more characters, it is cut at this length.
    Chars(u64),
}

/// How a slot reacts when many trigger events are pending.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CatchUp {
    /// If more than ten trigger events are pending, one summary handles as many events as fit the model's input.
    #[default]
    Join,
    /// Each trigger event gets a summary of its own, regardless of the number of events.
    Step,
}

/// A permanent request for summaries of a session.
///
/// ```
/// use epitome_core::slot::{Limit, Slot};
///
/// let slot = Slot { trigger: "messages(20)".parse()?, ..Slot::new("short", Limit::Tokens(1_000)) };
/// assert_eq!(slot, Slot::short());
/// assert!(slot.check(None).is_ok());
/// # Ok::<(), epitome_core::trigger::FormError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The slot's name, unique within its scope.
    pub name: String,
    /// The messages that the slot covers.
    pub scope: Scope,
    /// The condition under which a summary is due.
    pub trigger: Trigger,
    /// The recent messages that stay out of the summary.
    pub keep: Keep,
    /// Maximum size of the summary.
    pub limit: Limit,
    /// Whether the trigger creates trigger events. If false, only [`SlotState::force`] creates them.
    pub auto: bool,
    /// How the slot reacts when many trigger events are pending.
    pub catch_up: CatchUp,
}

impl Slot {
    /// Creates a slot for the whole session with the default trigger. All messages are summarized.
    pub fn new(name: impl Into<String>, limit: Limit) -> Self {
        Self {
            name: name.into(),
            scope: Scope::Session,
            trigger: Trigger::default(),
            keep: Keep::default(),
            limit,
            auto: true,
            catch_up: CatchUp::default(),
        }
    }

    /// Returns the slot of the short summary that every session has. The summary is due after every 20 messages and has
    /// at most 1,000 tokens.
    pub fn short() -> Self {
        Self { trigger: Trigger::Messages(20), ..Self::new("short", Limit::Tokens(1_000)) }
    }

    /// Returns the slot of the detailed summary that every session has. The summary is due after every 60 messages and
    /// has at most 4,000 tokens.
    pub fn long() -> Self {
        Self { trigger: Trigger::Messages(60), ..Self::new("long", Limit::Tokens(4_000)) }
    }

    /// Returns an error if the slot can never work. The error names the invalid field. `room` is the model's window
    /// minus its output reserve, in tokens; `None` if unknown.
    pub fn check(&self, room: Option<Tokens>) -> Result<(), SettingError> {
        let named = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if self.name.is_empty() || self.name.len() > 64 || !self.name.chars().all(named) {
            let name: String = self.name.chars().take(80).collect();
            let problem = format!("{name:?} is not a valid name; use 1 to 64 letters, digits, `_` or `-`");
            return Err(SettingError::new("name", problem));
        }
        if self.scope == Scope::Author("".into()) {
            let problem = "is empty; set it to an author, or leave it out to cover the whole session";
            return Err(SettingError::new("scope", problem));
        }
        let (field, size) = match self.limit {
            Limit::Tokens(tokens) => ("max_tokens", tokens),
            Limit::Chars(chars) => ("max_chars", chars),
        };
        if size < MIN_LIMIT {
            let problem = format!("{size} is too small; a summary needs at least {MIN_LIMIT}");
            return Err(SettingError::new(field, problem));
        }
        self.trigger.check(Use::Slot, room).map_err(SettingError::of("trigger"))?;
        self.keep.check(room).map_err(SettingError::of("keep"))
    }
}

/// Minimum size of a summary, in tokens or characters. A smaller summary contains nothing useful.
const MIN_LIMIT: u64 = 16;

/// Maximum number of pending events that callers forced. When it is reached, a new event replaces the last event.
const MOST_FORCED: usize = 64;

/// A trigger event. It identifies the message at which a slot became due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Firing {
    /// Position of the message at which the slot became due.
    pub seq: Seq,
    /// The totals directly after this event. Later events are computed from these totals.
    pub restart: Totals,
}

/// The state of a slot in a session.
///
/// ```
/// use epitome_testkit::drawing::outlines;
/// use epitome_core::slot::{Slot, SlotState};
///
/// let mut state = SlotState::default();
/// for outline in outlines(&"u a ".repeat(15)).unwrap() {
///     state.advance(&Slot::short(), &outline, None);
/// }
/// assert_eq!(state.due.unwrap().seq, 20);  // the pending trigger event
/// assert_eq!(state.since.messages, 10);    // counted towards the next event
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotState {
    /// Position of the last covered message. The summary covers the messages `1..=covered` of the slot's scope.
    pub covered: Seq,
    /// Position of the last completed trigger event.
    pub fired: Seq,
    /// The first pending trigger event; `None` if no event is pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Firing>,
    /// The newest trigger event, pending or completed. It does not change if the flags of messages are changed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<Firing>,
    /// Pending events that callers forced, in order. They cannot be recomputed from the counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forced: Vec<Firing>,
    /// Totals since the newest trigger event.
    pub since: Totals,
    /// The time at which the slot becomes due if no further message arrives. `None` if the slot can become due only at
    /// a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
}

impl SlotState {
    /// Counts the next message of the log. Returns true if the slot became due. The slot becomes due at this message,
    /// or at the previous message if a time limit expired between the two messages. Afterwards, [`SlotState::due`] is
    /// the first pending event.
    pub fn advance(&mut self, slot: &Slot, outline: &Outline, room: Option<Tokens>) -> bool {
        if !slot.scope.holds(outline) {
            return false;
        }
        // A time limit may have expired between the last message and this message, without a call of `tick`.
        let by_time = self.tick(outline.at);
        if outline.skip {
            return by_time;
        }
        self.since.add(outline);
        let facts = TriggerFacts { room, ..TriggerFacts::new(&self.since, outline.at) };
        let when = if slot.auto { slot.trigger.when(&facts) } else { When::Never };
        self.due_at = match when {
            When::At(at) => Some(at),
            When::Now | When::Never => None,
        };
        if when.is_now() {
            self.fire(outline.at);
        }
        by_time || when.is_now()
    }

    /// Creates a trigger event if the slot's time limit has expired. Returns whether an event was created.
    pub fn tick(&mut self, now: Timestamp) -> bool {
        match self.due_at {
            Some(at) if at <= now => {
                self.fire(at);
                true
            }
            _ => false,
        }
    }

    /// Creates a trigger event at the newest message, regardless of the trigger. Returns false if the summary already
    /// covers that message. If an event is already pending at that message, no second event is added.
    pub fn force(&mut self, now: Timestamp) -> bool {
        let head = self.since.last_seq;
        if head <= self.covered {
            return false;
        }
        if self.due.is_some() && self.newest.is_some_and(|newest| newest.seq == head) {
            return true;
        }
        self.fire(now);
        if self.forced.len() >= MOST_FORCED {
            self.forced.pop();
        }
        self.forced.extend(self.newest);
        true
    }

    fn fire(&mut self, at: Timestamp) {
        let seq = self.since.last_seq;
        self.since.restart(at);
        self.due_at = None;
        let firing = Firing { seq, restart: self.since };
        self.newest = Some(firing);
        self.due.get_or_insert(firing);
    }

    /// Returns the first trigger event after `due`, computed again from the messages after `due`. If the flags of
    /// messages were changed later, the computed event may come after `newest`. In this case, `newest` is returned.
    pub(crate) fn next_firing(
        &self,
        slot: &Slot,
        due: &Firing,
        log: &[Outline],
        room: Option<Tokens>,
    ) -> Option<Firing> {
        let newest = self.newest.filter(|newest| newest.seq > due.seq)?;
        let mut replay = Self { since: due.restart, ..Self::default() };
        let after = log.partition_point(|outline| outline.seq <= due.seq);
        for outline in log.iter().skip(after).take_while(|outline| outline.seq <= newest.seq) {
            replay.advance(slot, outline, room);
            if replay.due.is_some() {
                break;
            }
        }
        let between = |firing: &Firing| due.seq < firing.seq && firing.seq < newest.seq;
        let counted = replay.due.filter(between).unwrap_or(newest);
        let forced = self.forced.iter().find(|forced| forced.seq > due.seq);
        Some(forced.filter(|forced| forced.seq <= counted.seq).copied().unwrap_or(counted))
    }

    /// Completes the trigger events up to and including `firing`. If a summary was stored, `covered` is the last
    /// message that it covers. If there was nothing to summarize, `covered` is the unchanged coverage. `log` contains
    /// the messages after the event, at least up to the next event. If `log` ends before the next event, all events up
    /// to the newest event are merged into one.
    pub fn settle(&mut self, slot: &Slot, covered: Seq, firing: Seq, log: &[Outline], room: Option<Tokens>) {
        self.cover(covered);
        while let Some(due) = self.due.filter(|due| due.seq <= firing) {
            self.due = self.next_firing(slot, &due, log, room);
            self.fired = due.seq;
        }
        self.forced.retain(|forced| forced.seq > self.fired);
    }

    /// Advances the coverage, but leaves the trigger event pending. This is needed if only the first part of the
    /// event's messages is summarized.
    pub fn cover(&mut self, covered: Seq) {
        self.covered = self.covered.max(covered);
    }

    /// Resets the coverage to `parent`, the coverage of the parent summary. Pending events are removed, and counting
    /// restarts at `head`. The undone summary is therefore not written again immediately.
    pub fn undo(&mut self, parent: Seq, head: Seq, now: Timestamp) {
        self.covered = parent;
        self.since.last_seq = head;
        self.since.restart(now);
        self.due = None;
        self.due_at = None;
        self.forced.clear();
        self.fired = head;
        self.newest = Some(Firing { seq: head, restart: self.since });
    }
}
