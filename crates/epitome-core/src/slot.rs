//! Defines slots and their state. A slot is a permanent request for summaries of a session.
//!
//! A [`Slot`] defines when a summary is due, which recent messages stay out of it and how large it may be. Its
//! [`SlotState`] is a cursor, not a list of jobs. It contains the end of the coverage, the first pending trigger event,
//! and the totals since the newest event. Later events are recomputed from the outlines. So adding a hundred messages
//! updates only one row, and deduplication, ordering and crash safety need no extra code.
//!
//! Messages are counted one by one, no matter how many are added at once. Counting starts at the message at which the
//! slot last fired, not at the end of its coverage.

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
    /// One author's messages, with the results of that author's calls. A message that answers calls of two authors
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
    /// In tokens. A model's summary with more tokens is rejected.
    Tokens(Tokens),
    /// In characters. A longer summary is cut at this length.
    Chars(u64),
}

/// What a slot does when many trigger events are pending.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CatchUp {
    /// If more than ten windows are pending, joins as many of them as fit the model's input.
    #[default]
    Join,
    /// Writes a separate summary for every window, regardless of the number.
    Step,
}

/// A permanent request for a summary.
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
    /// Whether the trigger fires automatically. If false, only [`SlotState::force`] fires it.
    pub auto: bool,
    /// What the slot does when many trigger events are pending.
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

    /// Returns the slot of the short summary that every session has: at most 1,000 tokens, after every 20 messages.
    pub fn short() -> Self {
        Self { trigger: Trigger::Messages(20), ..Self::new("short", Limit::Tokens(1_000)) }
    }

    /// Returns the slot of the detailed summary that every session has: at most 4,000 tokens, after every 60 messages.
    pub fn long() -> Self {
        Self { trigger: Trigger::Messages(60), ..Self::new("long", Limit::Tokens(4_000)) }
    }

    /// Returns an error that names the invalid field if the slot can never work. `room` is the model's window minus its
    /// output reserve, or `None` if unknown.
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

/// Maximum number of pending events that were forced by callers. Above it, a new event replaces the last event.
const MOST_FORCED: usize = 64;

/// A trigger event: the point at which a slot became due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Firing {
    /// The message at which the slot fired.
    pub seq: Seq,
    /// The totals directly after this event. Later events are recomputed from them.
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
    /// The last message covered: the summary covers its scope's messages `1..=covered`.
    pub covered: Seq,
    /// The last completed trigger event.
    pub fired: Seq,
    /// The first pending trigger event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Firing>,
    /// The newest trigger event, pending or completed. It stays even if flags of messages are changed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<Firing>,
    /// Pending events that callers forced, in order. They cannot be recomputed from the counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forced: Vec<Firing>,
    /// Totals since the newest trigger event.
    pub since: Totals,
    /// When the slot fires if no further message arrives; `None` if it fires only at a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
}

impl SlotState {
    /// Counts the next message of the log. Returns true if the slot fired: at this message, or at the previous message
    /// because a time limit expired in between. [`SlotState::due`] is the first pending event.
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

    /// Fires the slot if its time limit has expired. Returns whether it fired.
    pub fn tick(&mut self, now: Timestamp) -> bool {
        match self.due_at {
            Some(at) if at <= now => {
                self.fire(at);
                true
            }
            _ => false,
        }
    }

    /// Fires the slot at the newest message, regardless of the trigger. Returns false if the coverage already includes
    /// that message. If an event is already pending at that message, no second event is added.
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

    /// Returns the first trigger event after `due`, recomputed from the messages after it. `newest` is returned even if
    /// flags of messages were changed later in a way that would delay it.
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

    /// Completes the trigger events up to and including `firing`. Either a summary up to `covered` is stored, or there
    /// was nothing to summarize and `covered` is unchanged. `log` contains the messages after the event, at least up to
    /// the next event. If `log` ends before the next event, all events up to the newest event are merged into one.
    pub fn settle(&mut self, slot: &Slot, covered: Seq, firing: Seq, log: &[Outline], room: Option<Tokens>) {
        self.cover(covered);
        while let Some(due) = self.due.filter(|due| due.seq <= firing) {
            self.due = self.next_firing(slot, &due, log, room);
            self.fired = due.seq;
        }
        self.forced.retain(|forced| forced.seq > self.fired);
    }

    /// Advances the coverage but leaves the trigger event pending, because only a part of its window is summarized.
    pub fn cover(&mut self, covered: Seq) {
        self.covered = self.covered.max(covered);
    }

    /// Resets the coverage to `parent`, the coverage of the parent summary. Pending events are removed and counting
    /// restarts at `head`. So the summary that was undone is not written again immediately.
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
