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

use crate::keep::{Keep, KeepError};
use crate::message::{Author, Seq, Timestamp, Tokens};
use crate::outline::{Outline, Totals};
use crate::trigger::{Facts, Trigger, TriggerError, Use, When};

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
    fn is_session(&self) -> bool {
        *self == Self::Session
    }

    /// Whether this message is covered.
    #[must_use]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum Limit {
    /// In tokens.
    #[serde(rename = "max_tokens")]
    Tokens(Tokens),
    /// In characters; whoever writes the summary cuts there.
    #[serde(rename = "max_chars")]
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
/// let slot: Slot = serde_json::from_str(r#"{
///     "name": "short", "trigger": "messages(20)", "keep": "messages(0)", "max_tokens": 1000
/// }"#).unwrap();
/// assert_eq!(slot, Slot::short());
///
/// // What is wrong is refused when it is read; only whether a window is known is left to `check`.
/// let wrong = serde_json::from_str::<Slot>(r#"{"name": "x", "max_words": 5}"#).unwrap_err();
/// assert!(wrong.to_string().contains("unknown field `max_words`"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Written")]
pub struct Slot {
    /// What it is called; unique within its scope.
    pub name: String,
    /// Whose messages it covers.
    #[serde(skip_serializing_if = "Scope::is_session")]
    pub scope: Scope,
    /// When it is due.
    pub trigger: Trigger,
    /// What stays out of the summary, as recent messages.
    pub keep: Keep,
    /// How large the summary may be.
    #[serde(flatten)]
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
    #[must_use]
    pub fn short() -> Self {
        Self { trigger: Trigger::Messages(20), ..Self::new("short", Limit::Tokens(1_000)) }
    }

    /// The detailed summary every session has: every 60 messages, 4,000 tokens.
    #[must_use]
    pub fn long() -> Self {
        Self { trigger: Trigger::Messages(60), ..Self::new("long", Limit::Tokens(4_000)) }
    }

    /// Refuses a slot that could never work, by the name of what is wrong. `room` is the model's
    /// window less its output reserve, where that is known.
    pub fn check(&self, room: Option<Tokens>) -> Result<(), SlotError> {
        let named = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if self.name.is_empty() || self.name.len() > 64 || !self.name.chars().all(named) {
            return Err(SlotError::Name { given: self.name.chars().take(80).collect() });
        }
        if let Scope::Author(author) = &self.scope
            && author.is_empty()
        {
            return Err(SlotError::Scope { slot: self.name.clone() });
        }
        let (field, size) = match self.limit {
            Limit::Tokens(tokens) => ("max_tokens", tokens),
            Limit::Chars(chars) => ("max_chars", chars),
        };
        if size < MIN_LIMIT {
            return Err(SlotError::Limit { slot: self.name.clone(), field, given: size });
        }
        let slot = || self.name.clone();
        self.trigger
            .check(Use::Slot { room })
            .map_err(|source| SlotError::Trigger { slot: slot(), source })?;
        self.keep.check(room).map_err(|source| SlotError::Keep { slot: slot(), source })
    }
}

/// Below this a summary cannot say anything.
const MIN_LIMIT: u64 = 16;

/// A slot as it is written in a settings file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    #[serde(default)]
    scope: Scope,
    #[serde(default)]
    trigger: Trigger,
    #[serde(default)]
    keep: Keep,
    max_tokens: Option<u64>,
    max_chars: Option<u64>,
    #[serde(default = "yes")]
    auto: bool,
    #[serde(default)]
    catch_up: CatchUp,
}

fn yes() -> bool {
    true
}

impl TryFrom<Written> for Slot {
    type Error = SlotError;

    fn try_from(written: Written) -> Result<Self, SlotError> {
        let limit = match (written.max_tokens, written.max_chars) {
            (Some(_), Some(_)) => return Err(SlotError::TwoLimits { slot: written.name }),
            (Some(tokens), None) => Limit::Tokens(tokens),
            (None, Some(chars)) => Limit::Chars(chars),
            (None, None) => Limit::Tokens(1_000),
        };
        let slot = Self {
            name: written.name,
            scope: written.scope,
            trigger: written.trigger,
            keep: written.keep,
            limit,
            auto: written.auto,
            catch_up: written.catch_up,
        };
        // The model is not known yet; everything else can be judged.
        slot.check(Some(Tokens::MAX))?;
        Ok(slot)
    }
}

/// Why a slot was refused. All of these mean: mend the setting.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SlotError {
    /// A name that cannot stand in an address.
    #[error("slot name: {given:?}; 1 to 64 letters, digits, `_` or `-` are allowed")]
    Name {
        /// What was given, its beginning.
        given: String,
    },
    /// A scope that names nobody.
    #[error("slot `{slot}`: scope is empty; name an author, or leave it out for the whole session")]
    Scope {
        /// Which slot.
        slot: String,
    },
    /// Too small to say anything.
    #[error("slot `{slot}`: {field} = {given}; at least {MIN_LIMIT} is needed")]
    Limit {
        /// Which slot.
        slot: String,
        /// Which of the two limits.
        field: &'static str,
        /// What was given.
        given: u64,
    },
    /// Both limits at once.
    #[error("slot `{slot}`: max_tokens and max_chars are both set; set one of them")]
    TwoLimits {
        /// Which slot.
        slot: String,
    },
    /// A trigger that cannot be met.
    #[error("slot `{slot}`: trigger: {source}")]
    Trigger {
        /// Which slot.
        slot: String,
        /// What is wrong with it.
        source: TriggerError,
    },
    /// A keep that cannot be measured.
    #[error("slot `{slot}`: keep: {source}")]
    Keep {
        /// Which slot.
        slot: String,
        /// What is wrong with it.
        source: KeepError,
    },
}

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
            When::Now(_) | When::Never => None,
        };
        if matches!(when, When::Now(_)) {
            self.fire(outline.at);
            return true;
        }
        by_time
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
