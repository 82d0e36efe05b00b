//! Standing orders for summaries, and where each of them stands.
//!
//! A [`Slot`] says when a summary is due, what stays out of it and how large it may be. Its
//! [`SlotState`] is a cursor, not a list of jobs: how far the coverage reaches, the first firing
//! still to be worked off, and the totals since the newest one. Later firings are found again from
//! the outlines, so a batch of a hundred messages leaves one row to update, and deduplication,
//! order and crash safety follow from the shape.
//!
//! Counting goes message by message, whatever the batches, and runs from the message at which the
//! slot last fired, not from where its coverage ends.

use serde::{Deserialize, Serialize};

use crate::keep::Keep;
use crate::message::{Author, Seq, Timestamp, Tokens};
use crate::outline::{Outline, Totals};
use crate::setting::SettingError;
use crate::trigger::{Facts, Trigger, Use, When};

/// Whose messages a slot covers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Option<Author>", into = "Option<Author>")]
pub enum Scope {
    /// Everybody's.
    #[default]
    Session,
    /// One author's, with the results of that author's calls. A message that answers two authors
    /// belongs to the first it answers.
    Author(Author),
}

impl Scope {
    /// Whether this message is covered.
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

/// How large a summary may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    /// In tokens.
    Tokens(Tokens),
    /// In characters; whoever writes the summary cuts there.
    Chars(u64),
}

/// What a slot does when it has fallen far behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CatchUp {
    /// More than ten windows behind, windows are joined up to the model's input.
    #[default]
    Join,
    /// Every window gets its own summary, however many there are.
    Step,
}

/// A standing order for a summary.
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
    /// What it is called; unique within its scope.
    pub name: String,
    /// Whose messages it covers.
    pub scope: Scope,
    /// When it is due.
    pub trigger: Trigger,
    /// What stays out of the summary, as recent messages.
    pub keep: Keep,
    /// How large the summary may be.
    pub limit: Limit,
    /// Whether it fires by itself. Otherwise only when told, by [`SlotState::force`].
    pub auto: bool,
    /// What it does when it has fallen far behind.
    pub catch_up: CatchUp,
}

impl Slot {
    /// A slot for the whole session with the default trigger, keeping nothing.
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

    /// The small summary every session has: every 20 messages, 1,000 tokens.
    pub fn short() -> Self {
        Self { trigger: Trigger::Messages(20), ..Self::new("short", Limit::Tokens(1_000)) }
    }

    /// The detailed summary every session has: every 60 messages, 4,000 tokens.
    pub fn long() -> Self {
        Self { trigger: Trigger::Messages(60), ..Self::new("long", Limit::Tokens(4_000)) }
    }

    /// Refuses a slot that could never work, by the name of what is wrong. `room` is the model's
    /// window less its output reserve, where that is known.
    pub fn check(&self, room: Option<Tokens>) -> Result<(), SettingError> {
        let named = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if self.name.is_empty() || self.name.len() > 64 || !self.name.chars().all(named) {
            let given: String = self.name.chars().take(80).collect();
            let problem = format!("{given:?} given; allowed are 1 to 64 letters, digits, `_` or `-`");
            return Err(SettingError::new("name", problem));
        }
        if self.scope == Scope::Author("".into()) {
            let problem = "is empty; name an author, or leave it out for the whole session";
            return Err(SettingError::new("scope", problem));
        }
        let (field, size) = match self.limit {
            Limit::Tokens(tokens) => ("max_tokens", tokens),
            Limit::Chars(chars) => ("max_chars", chars),
        };
        if size < MIN_LIMIT {
            let problem = format!("{size} given; a summary needs at least {MIN_LIMIT}");
            return Err(SettingError::new(field, problem));
        }
        self.trigger.check(Use::Slot, room).map_err(SettingError::of("trigger"))?;
        self.keep.check(room).map_err(SettingError::of("keep"))
    }
}

/// Below this a summary cannot say anything.
const MIN_LIMIT: u64 = 16;

/// More summaries than this are never asked for by hand and pending at once; the newest stands for
/// those beyond.
const MOST_FORCED: usize = 64;

/// A moment at which a slot became due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Firing {
    /// The message at which it fired.
    pub seq: Seq,
    /// The totals as they stood right after, so that later firings can be found again.
    pub restart: Totals,
}

/// Where a slot stands in a session.
///
/// ```
/// use epitome_testkit::drawing::outlines;
/// use epitome_core::slot::{Slot, SlotState};
///
/// let mut state = SlotState::default();
/// for outline in outlines(&"u a ".repeat(15)).unwrap() {
///     state.advance(&Slot::short(), &outline, None);
/// }
/// assert_eq!(state.due.unwrap().seq, 20);  // the firing to be worked off
/// assert_eq!(state.since.messages, 10);    // counted towards the next
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotState {
    /// Its summary stands for its scope's messages `1..=covered`.
    pub covered: Seq,
    /// The last firing that was worked off.
    pub fired: Seq,
    /// The first firing still to be worked off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Firing>,
    /// The newest firing, worked off or not. Flags changed later never undo it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<Firing>,
    /// Firings that were asked for and not yet worked off, in order: counting alone would not find
    /// them again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forced: Vec<Firing>,
    /// Totals since the newest firing.
    pub since: Totals,
    /// When it fires if nobody says anything more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
}

impl SlotState {
    /// Counts the next message of the log. True when the slot fired: at this message, or, where time
    /// ran out before it, at the one before. [`SlotState::due`] has the first that is to be worked
    /// off.
    pub fn advance(&mut self, slot: &Slot, outline: &Outline, room: Option<Tokens>) -> bool {
        if !slot.scope.holds(outline) {
            return false;
        }
        // Time may have run out between the last message and this one, with nobody there to see.
        let by_time = self.tick(outline.at);
        if outline.skip {
            return by_time;
        }
        self.since.add(outline);
        let facts = Facts { room, ..Facts::new(&self.since, outline.at) };
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

    /// Fires if the time has come. True when it did.
    pub fn tick(&mut self, now: Timestamp) -> bool {
        match self.due_at {
            Some(at) if at <= now => {
                self.fire(at);
                true
            }
            _ => false,
        }
    }

    /// Fires at the newest message, whatever the trigger says. False when its coverage reaches there
    /// already; a firing that is pending there is not repeated.
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

    /// The first firing after `due`, found again from the messages of the log after it. The newest
    /// firing counts even when flags changed since would have delayed it.
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

    /// Works off the firings up to and including `firing`: a summary through `covered` stands, or
    /// nothing was to be summarized and `covered` is as before. `log` holds the messages after the
    /// firing, at least up to the next one; where it ends earlier, the windows between there and the
    /// newest firing become one.
    pub fn settle(&mut self, slot: &Slot, covered: Seq, firing: Seq, log: &[Outline], room: Option<Tokens>) {
        self.cover(covered);
        while let Some(due) = self.due.filter(|due| due.seq <= firing) {
            self.due = self.next_firing(slot, &due, log, room);
            self.fired = due.seq;
        }
        self.forced.retain(|forced| forced.seq > self.fired);
    }

    /// Moves the coverage forward, while the firing stays due: a part of its window is done.
    pub fn cover(&mut self, covered: Seq) {
        self.covered = self.covered.max(covered);
    }

    /// Takes the coverage back to the parent's. Pending firings are struck, and counting restarts
    /// at the head, so that what was undone is not at once done again.
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
