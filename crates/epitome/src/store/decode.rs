//! Rows of either database as values, and values as columns hold them, the same in every database.
//!
//! Columns are read by their place, so each list of columns stands right next to the function that reads it.

use std::borrow::Cow;
use std::sync::Arc;

use epitome_core::message::{Message, Role, Timestamp};
use epitome_core::outline::{Cut, Outline};
use epitome_core::slot::Scope;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::directory::{AuthorRow, MemberRow, WorkspaceRow};
use super::rows::{Facts, SessionRow, SlotRow, SummaryRow, SummaryState, message};
use super::trouble::{NOT_OF_ITS_KIND, Outcome, nonsense};
use crate::event::{Event, Happened};

/// A row that a database returned.
pub(super) trait ReadRow {
    /// A whole number or a truth (0 or 1) at that place; `None` where there is nothing.
    fn maybe_int(&self, at: usize) -> Outcome<Option<i64>>;

    /// A text at that place.
    fn maybe_text(&self, at: usize) -> Outcome<Option<&str>>;

    /// Bytes at that place.
    fn bytes(&self, at: usize) -> Outcome<&[u8]>;

    fn int(&self, at: usize) -> Outcome<i64> {
        self.maybe_int(at)?.ok_or_else(|| nonsense(NOT_OF_ITS_KIND))
    }

    /// A number that is never negative.
    fn uint(&self, at: usize) -> Outcome<u64> {
        u64::try_from(self.int(at)?).map_err(|_| nonsense("a stored number is negative"))
    }

    fn small(&self, at: usize) -> Outcome<u32> {
        u32::try_from(self.int(at)?).map_err(|_| nonsense(NOT_OF_ITS_KIND))
    }

    fn flag(&self, at: usize) -> Outcome<bool> {
        Ok(self.int(at)? != 0)
    }

    fn time(&self, at: usize) -> Outcome<Timestamp> {
        self.int(at).map(Timestamp)
    }

    fn text(&self, at: usize) -> Outcome<&str> {
        self.maybe_text(at)?.ok_or_else(|| nonsense(NOT_OF_ITS_KIND))
    }

    fn string(&self, at: usize) -> Outcome<String> {
        self.text(at).map(str::to_owned)
    }

    fn name(&self, at: usize) -> Outcome<Arc<str>> {
        self.text(at).map(Arc::from)
    }
}

/// A row that was found.
pub(super) type Found<'a> = &'a dyn ReadRow;

/// A value as it is written into a column. What is written here can always be written.
pub(super) fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Somebody's notes as they are written into a column: `''` for none.
pub(super) fn notes_text(notes: &Map<String, Value>) -> String {
    if notes.is_empty() { String::new() } else { json(notes) }
}

/// Whose messages are meant: all of a session, or one author's.
pub(super) fn author_of(scope: &Scope) -> Option<&str> {
    match scope {
        Scope::Session => None,
        Scope::Author(author) => Some(author),
    }
}

/// `''` for the whole session.
pub(super) fn scope_text(scope: &Scope) -> &str {
    author_of(scope).unwrap_or_default()
}

pub(super) fn scope_of(text: &str) -> Scope {
    if text.is_empty() { Scope::Session } else { Scope::Author(text.into()) }
}

/// Roles by their numbers in columns.
pub(super) const ROLES: [Role; 6] =
    [Role::System, Role::Developer, Role::User, Role::Assistant, Role::Tool, Role::Peer];

/// The same for cuts.
pub(super) const CUTS: [Cut; 3] = [Cut::InCall, Cut::InLoop, Cut::Legal];

pub(super) fn number_of<T: PartialEq>(all: &[T], value: &T) -> usize {
    all.iter().position(|one| one == value).unwrap_or(all.len())
}

/// What a message is, in bits from the lowest: leading, opens a turn (as in the index `messages_openers`), thinking, stray.
pub(super) fn shape_bits(outline: &Outline) -> i64 {
    let bits = [outline.leading, outline.opens_turn, outline.thinking, outline.stray];
    bits.into_iter().rev().fold(0, |bits, set| bits << 1 | i64::from(set))
}

pub(super) fn state_text(state: SummaryState) -> &'static str {
    match state {
        SummaryState::Standing => "standing",
        SummaryState::Superseded => "superseded",
        SummaryState::Undone => "undone",
    }
}

fn state_of(text: &str) -> Option<SummaryState> {
    let all = [SummaryState::Standing, SummaryState::Superseded, SummaryState::Undone];
    all.into_iter().find(|state| state_text(*state) == text)
}

/// Words that are no JSON, as a column can hold them. U+0000, which PostgreSQL has no place for, is written as U+2400,
/// the sign that stands for it: nobody says it, but a program's output may hold it.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{2400}")) } else { Cow::Borrowed(text) }
}

/// A document that is written as JSON.
fn read_json<T: DeserializeOwned>(row: Found<'_>, at: usize) -> Outcome<T> {
    serde_json::from_str(row.text(at)?).map_err(|_| nonsense("a stored document cannot be read"))
}

/// Somebody's notes; `''` stands for none.
pub(super) fn notes(row: Found<'_>, at: usize) -> Outcome<Map<String, Value>> {
    if row.text(at)?.is_empty() { Ok(Map::new()) } else { read_json(row, at) }
}

/// The one of these that has the number at that place.
fn one_of<T: Copy>(all: &[T], row: Found<'_>, at: usize, none: &str) -> Outcome<T> {
    let number = usize::try_from(row.int(at)?).unwrap_or(usize::MAX);
    all.get(number).copied().ok_or_else(|| nonsense(none))
}

/// What [`outline`] reads.
pub(super) const OUTLINE: &str = "seq, role, author, turn, tokens, before, chars, longest, calls, answers, \
     own_answers, open, own_open, shape, pinned, skip, cut, own_cut, at";

/// The place after [`OUTLINE`].
pub(super) const AFTER_OUTLINE: usize = 19;

pub(super) fn outline(row: Found<'_>) -> Outcome<Outline> {
    let shape = row.int(13)?;
    let [leading, opens_turn, thinking, stray] = [1, 2, 4, 8].map(|bit| shape & bit != 0);
    let cut = |at: usize| one_of(&CUTS, row, at, "a stored cut is none");
    Ok(Outline {
        seq: row.uint(0)?,
        role: one_of(&ROLES, row, 1, "a stored role is none")?,
        author: row.maybe_text(2)?.map(Into::into),
        turn: row.uint(3)?,
        tokens: row.uint(4)?,
        before: row.uint(5)?,
        chars: row.uint(6)?,
        longest: row.uint(7)?,
        calls: row.small(8)?,
        answers: row.small(9)?,
        own_answers: row.small(10)?,
        open: row.small(11)?,
        own_open: row.small(12)?,
        leading,
        opens_turn,
        thinking,
        stray,
        pinned: row.flag(14)?,
        skip: row.flag(15)?,
        cut: cut(16)?,
        own_cut: cut(17)?,
        at: row.time(18)?,
    })
}

/// The message of a row that holds [`OUTLINE`] and the body, and the body's bytes.
pub(super) fn words(row: Found<'_>) -> Outcome<(Message, u64)> {
    with_words(&outline(row)?, row, AFTER_OUTLINE)
}

/// The message of this shape, with the words at that place of a row, and how many bytes they are there.
pub(super) fn with_words(shape: &Outline, row: Found<'_>, at: usize) -> Outcome<(Message, u64)> {
    let body = row.text(at)?;
    let message = message(shape, body)
        .map_err(|_| nonsense(format!("the words of message {} cannot be read", shape.seq)))?;
    Ok((message, body.len() as u64))
}

/// What [`session`] reads, and the name and the workspace.
pub(super) const SESSION: &str = "id, encoding, tracker, opener, batch_from, batch_skipped, skipped, settings, metadata, \
     created, updated, name, workspace, attributes";

/// The place after [`SESSION`].
pub(super) const AFTER_SESSION: usize = 14;

/// Where a session's name stands in its columns, and its workspace's.
pub(super) const SESSION_NAME: usize = 11;
pub(super) const SESSION_WORKSPACE: usize = 12;

pub(super) fn session(row: Found<'_>) -> Outcome<SessionRow> {
    session_at(row, 0)
}

/// The same where its columns come after so many others.
pub(super) fn session_at(row: Found<'_>, at: usize) -> Outcome<SessionRow> {
    Ok(SessionRow {
        id: row.int(at)?,
        encoding: row.string(at + 1)?,
        tracker: read_json(row, at + 2)?,
        opener: row.uint(at + 3)?,
        batch_from: row.uint(at + 4)?,
        batch_skipped: row.flag(at + 5)?,
        skipped: row.uint(at + 6)?,
        settings: row.string(at + 7)?,
        metadata: notes(row, at + 8)?,
        attributes: notes(row, at + 13)?,
        created: row.time(at + 9)?,
        updated: row.time(at + 10)?,
    })
}

/// A session with its name.
pub(super) fn named_session(row: Found<'_>) -> Outcome<(Arc<str>, SessionRow)> {
    Ok((row.name(SESSION_NAME)?, session(row)?))
}

/// What [`slot`] reads, where the table is called `s`.
pub(super) const SLOT: &str = "s.scope, s.name, s.state, s.active, s.fence, s.work";

pub(super) fn slot(row: Found<'_>) -> Outcome<SlotRow> {
    Ok(SlotRow {
        scope: scope_of(row.text(0)?),
        name: row.string(1)?,
        state: read_json(row, 2)?,
        active: row.maybe_int(3)?,
        fence: row.uint(4)?,
        work: read_json(row, 5)?,
    })
}

/// What [`summary`] reads.
pub(super) const SUMMARY: &str = "id, scope, slot, through, state, parent, text, sources, facts, created";

/// The same without what it was made of, which is much.
pub(super) const SUMMARY_TEXT: &str = "id, scope, slot, through, state, parent, text, \
     CASE WHEN sources IS NULL THEN NULL ELSE '' END, facts, created";

pub(super) fn summary(row: Found<'_>) -> Outcome<SummaryRow> {
    let sources = row.maybe_text(7)?;
    let mut facts: Facts = read_json(row, 8)?;
    facts.elastic &= sources.is_some();
    Ok(SummaryRow {
        id: row.int(0)?,
        scope: scope_of(row.text(1)?),
        slot: row.string(2)?,
        through: row.uint(3)?,
        state: state_of(row.text(4)?).ok_or_else(|| nonsense("a stored summary has no state"))?,
        parent: row.maybe_int(5)?,
        text: row.string(6)?,
        sources: sources.unwrap_or_default().to_owned(),
        facts,
        created: row.time(9)?,
    })
}

/// What [`workspace`] reads.
pub(super) const WORKSPACE: &str = "name, settings, metadata, attributes, created";

pub(super) fn workspace(row: Found<'_>) -> Outcome<WorkspaceRow> {
    Ok(WorkspaceRow {
        name: row.name(0)?,
        settings: row.string(1)?,
        metadata: notes(row, 2)?,
        attributes: notes(row, 3)?,
        created: row.time(4)?,
    })
}

/// What [`author`] reads, where the table is called `a`.
pub(super) const AUTHOR: &str = "a.name, a.metadata, a.attributes, a.created";

pub(super) fn author(row: Found<'_>) -> Outcome<AuthorRow> {
    Ok(AuthorRow {
        name: row.name(0)?,
        metadata: notes(row, 1)?,
        attributes: notes(row, 2)?,
        created: row.time(3)?,
    })
}

/// A row of [`AUTHOR`] and what is kept of them in the session.
pub(super) fn member(row: Found<'_>) -> Outcome<MemberRow> {
    Ok(MemberRow { author: author(row)?, attributes: notes(row, 4)? })
}

/// An event's row: `id, session, at, kind, data`.
pub(super) fn event(row: Found<'_>) -> Outcome<Event> {
    let what = Happened::read(row.text(3)?, row.text(4)?);
    Ok(Event {
        id: row.uint(0)?,
        session: row.name(1)?,
        at: row.time(2)?,
        what: what.ok_or_else(|| nonsense("an event is not as events are written"))?,
    })
}
