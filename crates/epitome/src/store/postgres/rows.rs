//! Rows of PostgreSQL's tables, read and written.

use std::borrow::Cow;

use epitome_core::slot::Scope;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

use super::super::columns::{cut_number, role_number, shape_bits};
use super::super::decode::{NOT_OF_ITS_KIND, ReadRow, session_columns};
use super::super::given::{Given, int};
use super::super::rows::{NewMessage, SessionId, SessionRow};
use super::super::statements::{self, json};
use super::error::{Outcome, Trouble, nonsense};
use super::pipe::Pipe;

/// A column.
pub(super) fn get<'r, T: FromSql<'r>>(row: &'r Row, at: usize) -> Outcome<T> {
    row.try_get(at).map_err(|_| nonsense(NOT_OF_ITS_KIND))
}

impl ReadRow for Row {
    type Error = Trouble;

    fn maybe_int(&self, at: usize) -> Outcome<Option<i64>> {
        match self.columns().get(at).map(tokio_postgres::Column::type_) {
            Some(&Type::INT2) => Ok(get::<Option<i16>>(self, at)?.map(Into::into)),
            Some(&Type::INT4) => Ok(get::<Option<i32>>(self, at)?.map(Into::into)),
            Some(&Type::BOOL) => Ok(get::<Option<bool>>(self, at)?.map(Into::into)),
            _ => get(self, at),
        }
    }

    fn maybe_text(&self, at: usize) -> Outcome<Option<&str>> {
        get(self, at)
    }

    fn bytes(&self, at: usize) -> Outcome<&[u8]> {
        get(self, at)
    }

    fn nonsense(&self, what: &str) -> Trouble {
        nonsense(what)
    }
}

/// A row that was found.
pub(super) type Found<'a> = &'a dyn ReadRow<Error = Trouble>;

/// The first row of the first answer, read.
pub(super) fn first<T>(found: &[Vec<Row>], read: impl FnOnce(Found<'_>) -> Outcome<T>) -> Outcome<Option<T>> {
    found.first().and_then(|rows| rows.first()).map(|row| read(row)).transpose()
}

/// The columns of messages, in the order in which [`Columns`] gives them, but for the session.
pub(super) const MESSAGE: &str = "seq, turn, tokens, before, chars, longest, opener, at, calls, answers, own_answers, \
     open, own_open, role, shape, cut, own_cut, pinned, skip, author, body";

/// Messages column by column, as they are sent: many rows with one statement of one text.
#[derive(Debug, Default)]
pub(super) struct Columns<'a> {
    longs: [Vec<i64>; 8],
    counts: [Vec<i32>; 5],
    kinds: [Vec<i16>; 4],
    flags: [Vec<bool>; 2],
    authors: Vec<Option<Cow<'a, str>>>,
    bodies: Vec<Cow<'a, str>>,
}

impl<'a> Columns<'a> {
    pub(super) fn push(&mut self, message: &'a NewMessage) {
        let o = &message.outline;
        let longs = [o.seq, o.turn, o.tokens, o.before, o.chars, o.longest, message.opener].map(int);
        for (column, value) in self.longs.iter_mut().zip(longs.into_iter().chain([o.at.0])) {
            column.push(value);
        }
        let counts = [o.calls, o.answers, o.own_answers, o.open, o.own_open];
        for (column, value) in self.counts.iter_mut().zip(counts) {
            column.push(i32::try_from(value).unwrap_or(i32::MAX));
        }
        let kinds = [role_number(o.role), shape_bits(o), cut_number(o.cut), cut_number(o.own_cut)];
        for (column, value) in self.kinds.iter_mut().zip(kinds) {
            column.push(value);
        }
        for (column, value) in self.flags.iter_mut().zip([o.pinned, o.skip]) {
            column.push(value);
        }
        self.authors.push(o.author.as_deref().map(Cow::Borrowed));
        self.bodies.push(Cow::Borrowed(&message.body));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bodies.is_empty()
    }

    /// The arrays, as [`MESSAGE`] names them.
    pub(super) fn given(self) -> [Given<'a>; 21] {
        let [seq, turn, tokens, before, chars, longest, opener, at] = self.longs.map(Given::Ints);
        let [calls, answers, own_answers, open, own_open] = self.counts.map(Given::Middling);
        let [role, shape, cut, own_cut] = self.kinds.map(Given::Small);
        let [pinned, skip] = self.flags.map(Given::Bools);
        let (author, body) = (Given::MaybeTexts(self.authors), Given::Texts(self.bodies));
        [
            seq,
            turn,
            tokens,
            before,
            chars,
            longest,
            opener,
            at,
            calls,
            answers,
            own_answers,
            open,
            own_open,
            role,
            shape,
            cut,
            own_cut,
            pinned,
            skip,
            author,
            body,
        ]
    }
}

/// What is read of a session.
pub(super) const SESSION: &str = concat!(session_columns!(), ", version, counts");

/// The place after [`SESSION`].
pub(super) const AFTER_SESSION: usize = 16;

/// Where in [`SESSION`] it stands how often the session was written to.
pub(super) const SESSION_VERSION: usize = 14;

/// And what its slots counted.
pub(super) const SESSION_COUNTS: usize = 15;

/// Writes a session's row over the one it has. Which messages can be searched is not the caller's to say.
pub(super) fn update_session<'a>(
    pipe: &mut Pipe<'a>,
    id: SessionId,
    before: Option<&SessionRow>,
    row: &'a SessionRow,
) {
    grow_session(pipe, id, row);
    if !before.is_some_and(|before| row.only_grew_from(before)) {
        pipe.add(statements::update_session(id, row));
    }
}

/// Writes what every message changes, and nothing else.
fn grow_session<'a>(pipe: &mut Pipe<'a>, id: SessionId, row: &'a SessionRow) {
    let sql = "UPDATE epitome.sessions SET tracker = $2, head = $3, turns = $4, tokens = $5, opener = $6, \
         batch_from = $7, batch_skipped = $8, skipped = $9, updated = $10, version = version + 1 WHERE id = $1";
    let tracker = &row.tracker;
    let given = [
        id.into(),
        json(tracker).into(),
        tracker.head().into(),
        tracker.turns().into(),
        tracker.tokens().into(),
        row.opener.into(),
        row.batch_from.into(),
        row.batch_skipped.into(),
        row.skipped.into(),
        row.updated.into(),
    ];
    pipe.push(sql, given);
}

/// Whose messages are read: all of a session, or one author's.
pub(super) fn author_of(scope: &Scope) -> Option<&str> {
    match scope {
        Scope::Session => None,
        Scope::Author(author) => Some(author),
    }
}
