//! How values stand in columns, the same in every database.

use std::borrow::Cow;

use epitome_core::message::Role;
use epitome_core::outline::{Cut, Outline};
use epitome_core::slot::Scope;

use super::rows::SummaryState;

const LEADING: i16 = 1;
/// As in the index `messages_openers`.
const OPENS_TURN: i16 = 2;
const THINKING: i16 = 4;
const STRAY: i16 = 8;

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

pub(super) fn role_number(role: Role) -> i16 {
    match role {
        Role::System => 0,
        Role::Developer => 1,
        Role::User => 2,
        Role::Assistant => 3,
        Role::Tool => 4,
        Role::Peer => 5,
    }
}

pub(super) fn role_of(number: i16) -> Option<Role> {
    let all = [Role::System, Role::Developer, Role::User, Role::Assistant, Role::Tool, Role::Peer];
    all.into_iter().find(|role| role_number(*role) == number)
}

pub(super) fn cut_number(cut: Cut) -> i16 {
    match cut {
        Cut::InCall => 0,
        Cut::InLoop => 1,
        Cut::Legal => 2,
    }
}

pub(super) fn cut_of(number: i16) -> Option<Cut> {
    [Cut::InCall, Cut::InLoop, Cut::Legal].into_iter().find(|cut| cut_number(*cut) == number)
}

/// What a message is, in bits.
pub(super) fn shape_bits(outline: &Outline) -> i16 {
    let bit = |set: bool, bit: i16| if set { bit } else { 0 };
    bit(outline.leading, LEADING)
        | bit(outline.opens_turn, OPENS_TURN)
        | bit(outline.thinking, THINKING)
        | bit(outline.stray, STRAY)
}

/// The same again: leading, opens a turn, thinking, stray.
pub(super) fn shape_of(bits: i16) -> (bool, bool, bool, bool) {
    (bits & LEADING != 0, bits & OPENS_TURN != 0, bits & THINKING != 0, bits & STRAY != 0)
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
