//! Converts between database rows and Rust values, in the same way for every database.
//!
//! Columns are read by position, so each list of columns is defined right next to the function that reads it.

use std::borrow::Cow;
use std::sync::Arc;

use epitome_core::message::{Message, Role, Timestamp};
use epitome_core::outline::{Cut, Outline};
use epitome_core::slot::Scope;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::directory::{AuthorRow, MemberRow, WorkspaceRow};
use super::op_error::{OpResult, WRONG_TYPE, damaged};
use super::rows::{Facts, SessionRow, SlotRow, SummaryRow, SummaryState, restore_message};
use crate::event::{Event, EventBody};

/// A row that a database returned.
pub(super) trait ReadRow {
    /// Returns the integer or boolean (0 or 1) at this position; `None` for NULL.
    fn maybe_int(&self, at: usize) -> OpResult<Option<i64>>;

    /// Returns the text at this position; `None` for NULL.
    fn maybe_text(&self, at: usize) -> OpResult<Option<&str>>;

    /// Returns the bytes at this position.
    fn bytes(&self, at: usize) -> OpResult<&[u8]>;

    fn int(&self, at: usize) -> OpResult<i64> {
        self.maybe_int(at)?.ok_or_else(|| damaged(WRONG_TYPE))
    }

    /// Returns an integer that must not be negative.
    fn uint(&self, at: usize) -> OpResult<u64> {
        u64::try_from(self.int(at)?).map_err(|_| damaged("a stored number is negative"))
    }

    fn small(&self, at: usize) -> OpResult<u32> {
        u32::try_from(self.int(at)?).map_err(|_| damaged(WRONG_TYPE))
    }

    fn flag(&self, at: usize) -> OpResult<bool> {
        Ok(self.int(at)? != 0)
    }

    fn time(&self, at: usize) -> OpResult<Timestamp> {
        self.int(at).map(Timestamp)
    }

    fn text(&self, at: usize) -> OpResult<&str> {
        self.maybe_text(at)?.ok_or_else(|| damaged(WRONG_TYPE))
    }

    fn string(&self, at: usize) -> OpResult<String> {
        self.text(at).map(str::to_owned)
    }

    fn name(&self, at: usize) -> OpResult<Arc<str>> {
        self.text(at).map(Arc::from)
    }
}

/// A row passed to a reading function.
pub(super) type RowRef<'a> = &'a dyn ReadRow;

/// Serializes a value for a JSON column. Serialization cannot fail for the types that are used here.
pub(super) fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Serializes metadata or attributes for a column. Empty metadata is stored as `''`.
pub(super) fn notes_text(notes: &Map<String, Value>) -> String {
    if notes.is_empty() { String::new() } else { json(notes) }
}

/// Returns the author of a scope; `None` for the whole session.
pub(super) fn author_of(scope: &Scope) -> Option<&str> {
    match scope {
        Scope::Session => None,
        Scope::Author(author) => Some(author),
    }
}

/// Returns the scope as stored in a column: the author's name, or `''` for the whole session.
pub(super) fn scope_text(scope: &Scope) -> &str {
    author_of(scope).unwrap_or_default()
}

pub(super) fn scope_of(text: &str) -> Scope {
    if text.is_empty() { Scope::Session } else { Scope::Author(text.into()) }
}

/// All roles. A column stores a role as its index in this list.
pub(super) const ROLES: [Role; 6] =
    [Role::System, Role::Developer, Role::User, Role::Assistant, Role::Tool, Role::Peer];

/// All cuts. A column stores a cut as its index in this list.
pub(super) const CUTS: [Cut; 3] = [Cut::InCall, Cut::InLoop, Cut::Legal];

pub(super) fn number_of<T: PartialEq>(all: &[T], value: &T) -> usize {
    all.iter().position(|one| one == value).unwrap_or(all.len())
}

/// Packs an outline's flags into one number. Bit 0 is `leading`, bit 1 is `opens_turn`, bit 2 is `thinking`, and bit 3
/// is `stray`. The index `messages_openers` uses bit 1.
pub(super) fn shape_bits(outline: &Outline) -> i64 {
    let bits = [outline.leading, outline.opens_turn, outline.thinking, outline.stray];
    bits.into_iter().rev().fold(0, |bits, set| bits << 1 | i64::from(set))
}

pub(super) fn state_text(state: SummaryState) -> &'static str {
    match state {
        SummaryState::Current => "standing",
        SummaryState::Superseded => "superseded",
        SummaryState::Undone => "undone",
    }
}

fn state_of(text: &str) -> Option<SummaryState> {
    let all = [SummaryState::Current, SummaryState::Superseded, SummaryState::Undone];
    all.into_iter().find(|state| state_text(*state) == text)
}

/// Converts plain text (not JSON) for storage. PostgreSQL cannot store the character U+0000, which tool output may
/// contain. This function replaces it with its printable symbol, U+2400.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{2400}")) } else { Cow::Borrowed(text) }
}

/// Reads a JSON document.
fn read_json<T: DeserializeOwned>(row: RowRef<'_>, at: usize) -> OpResult<T> {
    serde_json::from_str(row.text(at)?).map_err(|_| damaged("a stored document cannot be read"))
}

/// Reads metadata or attributes; `''` means empty.
pub(super) fn notes(row: RowRef<'_>, at: usize) -> OpResult<Map<String, Value>> {
    if row.text(at)?.is_empty() { Ok(Map::new()) } else { read_json(row, at) }
}

/// Returns the element of `all` whose index is stored at this position. `none` is the error text if there is no such
/// element.
fn one_of<T: Copy>(all: &[T], row: RowRef<'_>, at: usize, none: &str) -> OpResult<T> {
    let number = usize::try_from(row.int(at)?).unwrap_or(usize::MAX);
    all.get(number).copied().ok_or_else(|| damaged(none))
}

/// The columns that [`outline`] reads.
pub(super) const OUTLINE: &str = "seq, role, author, turn, tokens, before, chars, longest, calls, answers, \
     own_answers, open, own_open, shape, pinned, skip, cut, own_cut, at";

/// The position of the first column after those of [`OUTLINE`].
pub(super) const AFTER_OUTLINE: usize = 19;

pub(super) fn outline(row: RowRef<'_>) -> OpResult<Outline> {
    let shape = row.int(13)?;
    let [leading, opens_turn, thinking, stray] = [1, 2, 4, 8].map(|bit| shape & bit != 0);
    let cut = |at: usize| one_of(&CUTS, row, at, "a stored cut has an unknown number");
    Ok(Outline {
        seq: row.uint(0)?,
        role: one_of(&ROLES, row, 1, "a stored role has an unknown number")?,
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

/// Reads a message from a row with the columns of [`OUTLINE`] and then the body. Also returns the body's size in bytes.
pub(super) fn message_row(row: RowRef<'_>) -> OpResult<(Message, u64)> {
    message_at(&outline(row)?, row, AFTER_OUTLINE)
}

/// Reads a message from its outline and from the body at this position of the row. Also returns the body's size in
/// bytes.
pub(super) fn message_at(shape: &Outline, row: RowRef<'_>, at: usize) -> OpResult<(Message, u64)> {
    let body = row.text(at)?;
    let message = restore_message(shape, body)
        .map_err(|_| damaged(format!("the content of message {} cannot be read", shape.seq)))?;
    Ok((message, body.len() as u64))
}

/// The columns that [`session`] reads, and the names of the session and of its workspace.
pub(super) const SESSION: &str = "id, encoding, tracker, opener, batch_from, batch_skipped, skipped, settings, metadata, \
     created, updated, name, workspace, attributes";

/// The position of the first column after those of [`SESSION`].
pub(super) const AFTER_SESSION: usize = 14;

/// The positions of the session's name and the workspace's name in [`SESSION`].
pub(super) const SESSION_NAME: usize = 11;
pub(super) const SESSION_WORKSPACE: usize = 12;

pub(super) fn session(row: RowRef<'_>) -> OpResult<SessionRow> {
    session_at(row, 0)
}

/// Like [`session`], for columns that start at this position.
pub(super) fn session_at(row: RowRef<'_>, at: usize) -> OpResult<SessionRow> {
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

/// Reads a session with its name.
pub(super) fn named_session(row: RowRef<'_>) -> OpResult<(Arc<str>, SessionRow)> {
    Ok((row.name(SESSION_NAME)?, session(row)?))
}

/// The columns that [`slot`] reads, with `s` as the alias of the table.
pub(super) const SLOT: &str = "s.scope, s.name, s.state, s.active, s.fence, s.work";

pub(super) fn slot(row: RowRef<'_>) -> OpResult<SlotRow> {
    Ok(SlotRow {
        scope: scope_of(row.text(0)?),
        name: row.string(1)?,
        state: read_json(row, 2)?,
        active: row.maybe_int(3)?,
        fence: row.uint(4)?,
        work: read_json(row, 5)?,
    })
}

/// The columns that [`summary`] reads.
pub(super) const SUMMARY: &str = "id, scope, slot, through, state, parent, text, sources, facts, created";

/// Like [`SUMMARY`], but without the text of the sources, which is long. The column `sources` is NULL if the sources
/// were deleted, and empty otherwise.
pub(super) const SUMMARY_TEXT: &str = "id, scope, slot, through, state, parent, text, \
     CASE WHEN sources IS NULL THEN NULL ELSE '' END, facts, created";

pub(super) fn summary(row: RowRef<'_>) -> OpResult<SummaryRow> {
    let sources = row.maybe_text(7)?;
    let mut facts: Facts = read_json(row, 8)?;
    facts.elastic &= sources.is_some();
    Ok(SummaryRow {
        id: row.int(0)?,
        scope: scope_of(row.text(1)?),
        slot: row.string(2)?,
        through: row.uint(3)?,
        state: state_of(row.text(4)?).ok_or_else(|| damaged("a stored summary has an unknown state"))?,
        parent: row.maybe_int(5)?,
        text: row.string(6)?,
        sources: sources.unwrap_or_default().to_owned(),
        facts,
        created: row.time(9)?,
    })
}

/// The columns that [`workspace`] reads.
pub(super) const WORKSPACE: &str = "name, settings, metadata, attributes, created";

pub(super) fn workspace(row: RowRef<'_>) -> OpResult<WorkspaceRow> {
    Ok(WorkspaceRow {
        name: row.name(0)?,
        settings: row.string(1)?,
        metadata: notes(row, 2)?,
        attributes: notes(row, 3)?,
        created: row.time(4)?,
    })
}

/// The columns that [`author`] reads, with `a` as the alias of the table.
pub(super) const AUTHOR: &str = "a.name, a.metadata, a.attributes, a.created";

pub(super) fn author(row: RowRef<'_>) -> OpResult<AuthorRow> {
    Ok(AuthorRow {
        name: row.name(0)?,
        metadata: notes(row, 1)?,
        attributes: notes(row, 2)?,
        created: row.time(3)?,
    })
}

/// Reads a member: the columns of [`AUTHOR`], then the member's attributes in the session.
pub(super) fn member(row: RowRef<'_>) -> OpResult<MemberRow> {
    Ok(MemberRow { author: author(row)?, attributes: notes(row, 4)? })
}

/// Reads an event from the columns `id, session, at, kind, data`.
pub(super) fn event(row: RowRef<'_>) -> OpResult<Event> {
    let body = EventBody::read(row.text(3)?, row.text(4)?);
    Ok(Event {
        id: row.uint(0)?,
        session: row.name(1)?,
        at: row.time(2)?,
        body: body.ok_or_else(|| damaged("a stored event has an unknown kind or invalid data"))?,
    })
}
