//! Rows of tables, and what they mean.
//!
//! Columns are read by their place, so each list of columns stands right beside the function that reads it.

use std::borrow::Cow;

use epitome_core::message::{Message, Timestamp};
use epitome_core::outline::Outline;
use epitome_core::slot::Scope;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use super::super::columns;
use super::super::{Facts, NewMessage, SessionId, SessionRow, SlotRow, SummaryId, SummaryRow, message};
use super::error::{Outcome, nonsense};
use super::given::{Given, int};
use super::pipe::Pipe;

/// A column.
pub(super) fn get<'r, T: FromSql<'r>>(row: &'r Row, at: usize) -> Outcome<T> {
    row.try_get(at).map_err(|_| nonsense("a stored value is not of its kind"))
}

/// A number that is never negative.
pub(super) fn uint(row: &Row, at: usize) -> Outcome<u64> {
    u64::try_from(get::<i64>(row, at)?).map_err(|_| nonsense("a stored number is negative"))
}

fn small(row: &Row, at: usize) -> Outcome<u32> {
    u32::try_from(get::<i32>(row, at)?).map_err(|_| nonsense("a stored number is negative"))
}

/// A value as it is written into a column.
pub(super) fn json<T: Serialize>(value: &T) -> Outcome<String> {
    serde_json::to_string(value).map_err(|_| nonsense("a value cannot be written as JSON"))
}

/// A column's value again.
fn parsed<T: DeserializeOwned>(row: &Row, at: usize) -> Outcome<T> {
    serde_json::from_str(get(row, at)?).map_err(|_| nonsense("a stored document cannot be read"))
}

/// Somebody's notes as they are written into a column: `''` for none.
pub(super) fn notes_text(notes: &Map<String, Value>) -> Outcome<String> {
    if notes.is_empty() { Ok(String::new()) } else { json(notes) }
}

/// The notes again.
pub(super) fn notes(row: &Row, at: usize) -> Outcome<Map<String, Value>> {
    if get::<&str>(row, at)?.is_empty() { Ok(Map::new()) } else { parsed(row, at) }
}

/// Words that are no JSON, as a column can hold them. U+0000, which PostgreSQL has no place for, is written as U+2400,
/// the sign that stands for it: nobody says it, but a program's output may hold it.
pub(in crate::store) fn plain(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{2400}")) } else { Cow::Borrowed(text) }
}

/// What [`outline`] reads.
pub(super) const OUTLINE: &str = "seq, role, author, turn, tokens, before, chars, longest, calls, answers, \
     own_answers, open, own_open, shape, pinned, skip, cut, own_cut, at";

/// How many columns that is: the next one's place.
pub(super) const AFTER_OUTLINE: usize = 19;

pub(super) fn outline(row: &Row) -> Outcome<Outline> {
    let (leading, opens_turn, thinking, stray) = columns::shape_of(get(row, 13)?);
    let cut = |at: usize| columns::cut_of(get(row, at)?).ok_or_else(|| nonsense("a stored cut is none"));
    Ok(Outline {
        seq: uint(row, 0)?,
        role: columns::role_of(get(row, 1)?).ok_or_else(|| nonsense("a stored role is none"))?,
        author: get::<Option<&str>>(row, 2)?.map(Into::into),
        turn: uint(row, 3)?,
        tokens: uint(row, 4)?,
        before: uint(row, 5)?,
        chars: uint(row, 6)?,
        longest: uint(row, 7)?,
        calls: small(row, 8)?,
        answers: small(row, 9)?,
        own_answers: small(row, 10)?,
        open: small(row, 11)?,
        own_open: small(row, 12)?,
        leading,
        opens_turn,
        thinking,
        stray,
        pinned: get(row, 14)?,
        skip: get(row, 15)?,
        cut: cut(16)?,
        own_cut: cut(17)?,
        at: Timestamp(get(row, 18)?),
    })
}

/// The message of a row that holds [`OUTLINE`] and the body, and the body's bytes.
pub(super) fn words(row: &Row) -> Outcome<(Message, u64)> {
    with_words(&outline(row)?, row, AFTER_OUTLINE)
}

/// The message of this shape, with the words that stand at that place of a row, and how many bytes they are there.
pub(super) fn with_words(shape: &Outline, row: &Row, at: usize) -> Outcome<(Message, u64)> {
    let body: &str = get(row, at)?;
    let message = message(shape, body)
        .map_err(|_| nonsense(format!("the words of message {} cannot be read", shape.seq)))?;
    Ok((message, body.len() as u64))
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
        let kinds = [
            columns::role_number(o.role),
            columns::shape_bits(o),
            columns::cut_number(o.cut),
            columns::cut_number(o.own_cut),
        ];
        for (column, value) in self.kinds.iter_mut().zip(kinds) {
            column.push(value);
        }
        for (column, value) in self.flags.iter_mut().zip([o.pinned, o.skip]) {
            column.push(value);
        }
        self.authors.push(o.author.as_deref().map(plain));
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

/// What [`session`] reads.
pub(super) const SESSION: &str = "id, encoding, tracker, opener, batch_from, batch_skipped, skipped, settings, \
     metadata, created, updated, name, workspace, configuration, version, counts";

/// How many columns that is: the next one's place.
pub(super) const AFTER_SESSION: usize = 16;

pub(super) fn session(row: &Row) -> Outcome<SessionRow> {
    session_at(row, 0)
}

/// The same where its columns come after so many others.
pub(super) fn session_at(row: &Row, at: usize) -> Outcome<SessionRow> {
    Ok(SessionRow {
        id: get(row, at)?,
        encoding: get(row, at + 1)?,
        tracker: parsed(row, at + 2)?,
        opener: uint(row, at + 3)?,
        batch_from: uint(row, at + 4)?,
        batch_skipped: get(row, at + 5)?,
        skipped: uint(row, at + 6)?,
        settings: get(row, at + 7)?,
        metadata: notes(row, at + 8)?,
        configuration: notes(row, at + 13)?,
        created: Timestamp(get(row, at + 9)?),
        updated: Timestamp(get(row, at + 10)?),
    })
}

/// Where in [`SESSION`] the name stands.
pub(super) const SESSION_NAME: usize = 11;

/// How often it was written to.
pub(super) const SESSION_VERSION: usize = 14;

/// And what its slots counted.
pub(super) const SESSION_COUNTS: usize = 15;

/// Writes what every message changes, and nothing else.
pub(super) fn grow_session<'a>(pipe: &mut Pipe<'a>, id: SessionId, row: &'a SessionRow) -> Outcome<()> {
    let sql = "UPDATE epitome.sessions SET tracker = $2, head = $3, turns = $4, tokens = $5, opener = $6, \
         batch_from = $7, batch_skipped = $8, skipped = $9, updated = $10, version = version + 1 WHERE id = $1";
    let tracker = &row.tracker;
    let given = [
        id.into(),
        json(tracker)?.into(),
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
    Ok(())
}

/// Writes a session's row over the one it has. Which messages can be searched is not the caller's to say.
pub(super) fn update_session<'a>(pipe: &mut Pipe<'a>, id: SessionId, row: &'a SessionRow) -> Outcome<()> {
    grow_session(pipe, id, row)?;
    let sql = "UPDATE epitome.sessions SET encoding = $2, settings = $3, metadata = $4, configuration = $5, created = $6 \
         WHERE id = $1";
    let (metadata, configuration) = (notes_text(&row.metadata)?, notes_text(&row.configuration)?);
    let given = [
        id.into(),
        row.encoding.as_str().into(),
        row.settings.as_str().into(),
        metadata.into(),
        configuration.into(),
        row.created.into(),
    ];
    pipe.push(sql, given);
    Ok(())
}

/// What [`slot`] reads, where the table is called `s`.
pub(super) const SLOT: &str = "s.scope, s.name, s.state, s.active, s.fence, s.work";

pub(super) fn slot(row: &Row) -> Outcome<SlotRow> {
    Ok(SlotRow {
        scope: columns::scope_of(get(row, 0)?),
        name: get(row, 1)?,
        state: parsed(row, 2)?,
        active: get(row, 3)?,
        fence: uint(row, 4)?,
        work: parsed(row, 5)?,
    })
}

pub(super) fn put_slot<'a>(
    pipe: &mut Pipe<'a>,
    (session, workspace): (SessionId, &'a str),
    slot: &'a SlotRow,
    active: Option<SummaryId>,
) -> Outcome<()> {
    let sql = "INSERT INTO epitome.slots (session, scope, name, workspace, state, covered, due, active, ready_at, work, fence) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (session, scope, name) DO UPDATE SET \
         state = excluded.state, covered = excluded.covered, due = excluded.due, active = excluded.active, \
         ready_at = excluded.ready_at, work = excluded.work, fence = excluded.fence";
    let given = [
        session.into(),
        columns::scope_text(&slot.scope).into(),
        slot.name.as_str().into(),
        workspace.into(),
        json(&slot.state)?.into(),
        slot.state.covered.into(),
        slot.state.due.map(|due| int(due.seq)).into(),
        active.into(),
        slot.ready_at().map(|at| at.0).into(),
        json(&slot.work)?.into(),
        slot.fence.into(),
    ];
    pipe.push(sql, given);
    Ok(())
}

/// What [`summary`] reads.
pub(super) const SUMMARY: &str = "id, scope, slot, through, state, parent, text, sources, facts, created";

/// The same without what it was made of, which is much.
pub(super) const SUMMARY_TEXT: &str = "id, scope, slot, through, state, parent, text, \
     CASE WHEN sources IS NULL THEN NULL ELSE '' END, facts, created";

pub(super) fn summary(row: &Row) -> Outcome<SummaryRow> {
    let sources: Option<String> = get(row, 7)?;
    let mut facts: Facts = parsed(row, 8)?;
    facts.elastic &= sources.is_some();
    Ok(SummaryRow {
        id: get(row, 0)?,
        scope: columns::scope_of(get(row, 1)?),
        slot: get(row, 2)?,
        through: uint(row, 3)?,
        state: columns::state_of(get(row, 4)?).ok_or_else(|| nonsense("a stored summary has no state"))?,
        parent: get(row, 5)?,
        text: get(row, 6)?,
        sources: sources.unwrap_or_default(),
        facts,
        created: Timestamp(get(row, 9)?),
    })
}

/// Keeps a summary under this number.
pub(super) fn insert_summary<'a>(
    pipe: &mut Pipe<'a>,
    session: SessionId,
    id: SummaryId,
    row: &'a SummaryRow,
) -> Outcome<()> {
    let sql = "INSERT INTO epitome.summaries (session, id, scope, slot, through, state, parent, text, sources, facts, \
         created, asked) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
    let sources = (!row.sources.is_empty()).then_some(row.sources.as_str());
    let given = [
        session.into(),
        id.into(),
        columns::scope_text(&row.scope).into(),
        row.slot.as_str().into(),
        row.through.into(),
        columns::state_text(row.state).into(),
        row.parent.into(),
        Given::Text(Some(plain(&row.text))),
        sources.into(),
        json(&row.facts)?.into(),
        row.created.into(),
        row.facts.asked.as_deref().into(),
    ];
    pipe.push(sql, given);
    Ok(())
}

/// Whose messages are read: all of a session, or one author's.
pub(super) fn author_of(scope: &Scope) -> Option<&str> {
    match scope {
        Scope::Session => None,
        Scope::Author(author) => Some(author),
    }
}
