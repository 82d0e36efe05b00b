//! How values stand in columns, the same in every database.

use std::borrow::Cow;

use epitome_core::message::Role;
use epitome_core::outline::{Cut, Outline};
use epitome_core::slot::Scope;
use serde::Serialize;
use serde_json::{Map, Value};

use super::rows::SummaryState;

/// A value as it is written into a column. What is written here can always be written.
pub(super) fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Somebody's notes as they are written into a column: `''` for none.
pub(super) fn notes_text(notes: &Map<String, Value>) -> String {
    if notes.is_empty() { String::new() } else { json(notes) }
}

/// `''` for the whole session.
pub(super) fn scope_text(scope: &Scope) -> &str {
    match scope {
        Scope::Session => "",
        Scope::Author(author) => author,
    }
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

/// The same again.
pub(super) fn shape_of(bits: i64) -> [bool; 4] {
    [1, 2, 4, 8].map(|bit| bits & bit != 0)
}

pub(super) fn state_text(state: SummaryState) -> &'static str {
    match state {
        SummaryState::Standing => "standing",
        SummaryState::Superseded => "superseded",
        SummaryState::Undone => "undone",
    }
}

pub(super) fn state_of(text: &str) -> Option<SummaryState> {
    let all = [SummaryState::Standing, SummaryState::Superseded, SummaryState::Undone];
    all.into_iter().find(|state| state_text(*state) == text)
}

/// Words that are no JSON, as a column can hold them. U+0000, which PostgreSQL has no place for, is written as U+2400,
/// the sign that stands for it: nobody says it, but a program's output may hold it.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{2400}")) } else { Cow::Borrowed(text) }
}
