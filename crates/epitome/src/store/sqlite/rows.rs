//! Rows of tables, and what they mean.
//!
//! Columns are read by their place, so each list of columns stands right beside the function that reads it.

use epitome_core::message::{Role, Seq, Timestamp};
use epitome_core::outline::{Cut, Outline};
use rusqlite::types::Type;
use rusqlite::{Connection, Row, params};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::super::columns;
pub(super) use super::super::columns::{only_grew, scope_of, scope_text, state_text};
use super::super::{Facts, NewMessage, SessionId, SessionRow, SlotRow, SummaryId, SummaryRow, with_metadata};
use super::error::{Outcome, nonsense};

/// A number as SQLite has it. What is too large stays the largest.
pub(super) fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// How many rows a caller wants at most.
pub(super) fn rows(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// A number that is never negative.
pub(super) fn uint(row: &Row<'_>, at: usize) -> rusqlite::Result<u64> {
    let value: i64 = row.get(at)?;
    u64::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(at, value))
}

fn odd(at: usize) -> rusqlite::Error {
    rusqlite::Error::InvalidColumnType(at, String::new(), Type::Integer)
}

/// A value as it is written into a column.
pub(super) fn json<T: Serialize>(value: &T) -> Outcome<String> {
    serde_json::to_string(value).map_err(|_| nonsense("a value cannot be written as JSON"))
}

/// A column's value again.
fn parsed<T: DeserializeOwned>(row: &Row<'_>, at: usize) -> rusqlite::Result<T> {
    let text = row.get_ref(at)?.as_str().map_err(|_| odd(at))?;
    serde_json::from_str(text)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(at, Type::Text, Box::new(error)))
}

/// Somebody's notes as they are written into a column: `''` for none.
pub(super) fn notes_text(notes: &Map<String, Value>) -> Outcome<String> {
    if notes.is_empty() { Ok(String::new()) } else { json(notes) }
}

/// The notes again.
pub(super) fn notes(row: &Row<'_>, at: usize) -> rusqlite::Result<Map<String, Value>> {
    let none = row.get_ref(at)?.as_str().is_ok_and(str::is_empty);
    if none { Ok(Map::new()) } else { parsed(row, at) }
}

/// From here on a call batch may begin.
pub(super) const IN_LOOP: i64 = columns::IN_LOOP as i64;

fn role(row: &Row<'_>, at: usize) -> rusqlite::Result<Role> {
    columns::role_of(row.get(at)?).ok_or_else(|| odd(at))
}

fn cut(row: &Row<'_>, at: usize) -> rusqlite::Result<Cut> {
    columns::cut_of(row.get(at)?).ok_or_else(|| odd(at))
}

/// What [`outline`] reads.
pub(super) const OUTLINE: &str = "seq, role, author, turn, tokens, before, chars, longest, calls, answers, \
     own_answers, open, own_open, shape, pinned, skip, cut, own_cut, at";

/// How many columns that is: the next one's place.
pub(super) const AFTER_OUTLINE: usize = 19;

pub(super) fn outline(row: &Row<'_>) -> rusqlite::Result<Outline> {
    let (leading, opens_turn, thinking, stray) = columns::shape_of(row.get(13)?);
    Ok(Outline {
        seq: uint(row, 0)?,
        role: role(row, 1)?,
        author: row.get::<_, Option<String>>(2)?.map(Into::into),
        turn: uint(row, 3)?,
        tokens: uint(row, 4)?,
        before: uint(row, 5)?,
        chars: uint(row, 6)?,
        longest: uint(row, 7)?,
        calls: row.get(8)?,
        answers: row.get(9)?,
        own_answers: row.get(10)?,
        open: row.get(11)?,
        own_open: row.get(12)?,
        leading,
        opens_turn,
        thinking,
        stray,
        pinned: row.get(14)?,
        skip: row.get(15)?,
        cut: cut(row, 16)?,
        own_cut: cut(row, 17)?,
        at: Timestamp(row.get(18)?),
    })
}

pub(super) fn insert_message(
    db: &Connection,
    session: SessionId,
    message: &NewMessage,
    now: Timestamp,
) -> Outcome<()> {
    let o = &message.outline;
    let sql = "INSERT INTO messages (session, seq, role, author, turn, tokens, before, chars, longest, calls, answers, \
         own_answers, open, own_open, shape, pinned, skip, cut, own_cut, opener, at, created, body) \
         VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19,?20,?21,?22,?23)";
    db.prepare_cached(sql)?.execute(params![
        session,
        int(o.seq),
        columns::role_number(o.role),
        o.author.as_deref(),
        int(o.turn),
        int(o.tokens),
        int(o.before),
        int(o.chars),
        int(o.longest),
        o.calls,
        o.answers,
        o.own_answers,
        o.open,
        o.own_open,
        columns::shape_bits(o),
        o.pinned,
        o.skip,
        columns::cut_number(o.cut),
        columns::cut_number(o.own_cut),
        int(message.opener),
        o.at.0,
        now.0,
        message.body,
    ])?;
    Ok(())
}

/// Replaces the caller's notes on a message; its words stay.
pub(super) fn set_metadata(
    db: &Connection,
    session: SessionId,
    seq: Seq,
    metadata: &Map<String, Value>,
) -> Outcome<()> {
    let sql = "SELECT body FROM messages WHERE session = ?1 AND seq = ?2";
    let body: String = db.prepare_cached(sql)?.query_row(params![session, int(seq)], |row| row.get(0))?;
    let body = with_metadata(&body, metadata).map_err(|_| nonsense("a message's words cannot be read"))?;
    let sql = "UPDATE messages SET body = ?3 WHERE session = ?1 AND seq = ?2";
    db.prepare_cached(sql)?.execute(params![session, int(seq), body])?;
    Ok(())
}

/// What [`session`] reads.
pub(super) const SESSION: &str = "id, encoding, tracker, opener, batch_from, batch_skipped, skipped, settings, \
     metadata, created, updated, name, workspace, configuration";

pub(super) fn session(row: &Row<'_>) -> rusqlite::Result<SessionRow> {
    Ok(SessionRow {
        id: row.get(0)?,
        encoding: row.get(1)?,
        tracker: parsed(row, 2)?,
        opener: uint(row, 3)?,
        batch_from: uint(row, 4)?,
        batch_skipped: row.get(5)?,
        skipped: uint(row, 6)?,
        settings: row.get(7)?,
        metadata: notes(row, 8)?,
        configuration: notes(row, 13)?,
        created: Timestamp(row.get(9)?),
        updated: Timestamp(row.get(10)?),
    })
}

/// Writes a session's row over the one it has. Which messages can be searched is not the caller's to say.
pub(super) fn update_session(db: &Connection, id: SessionId, row: &SessionRow) -> Outcome<()> {
    grow_session(db, id, row)?;
    let sql = "UPDATE sessions SET encoding = ?2, settings = ?3, metadata = ?4, configuration = ?5, created = ?6 \
         WHERE id = ?1";
    let (metadata, configuration) = (notes_text(&row.metadata)?, notes_text(&row.configuration)?);
    let given = params![id, row.encoding, row.settings, metadata, configuration, row.created.0];
    db.prepare_cached(sql)?.execute(given)?;
    Ok(())
}

/// Writes what every message changes, and nothing else.
pub(super) fn grow_session(db: &Connection, id: SessionId, row: &SessionRow) -> Outcome<()> {
    let sql = "UPDATE sessions SET tracker = ?2, head = ?3, turns = ?4, tokens = ?5, opener = ?6, \
         batch_from = ?7, batch_skipped = ?8, skipped = ?9, updated = ?10 WHERE id = ?1";
    db.prepare_cached(sql)?.execute(params![
        id,
        json(&row.tracker)?,
        int(row.tracker.head()),
        int(row.tracker.turns()),
        int(row.tracker.tokens()),
        int(row.opener),
        int(row.batch_from),
        row.batch_skipped,
        int(row.skipped),
        row.updated.0,
    ])?;
    Ok(())
}

/// What [`slot`] reads, where the table is called `s`.
pub(super) const SLOT: &str = "s.scope, s.name, s.state, s.active, s.fence, s.work";

pub(super) fn slot(row: &Row<'_>) -> rusqlite::Result<SlotRow> {
    Ok(SlotRow {
        scope: scope_of(row.get_ref(0)?.as_str().map_err(|_| odd(0))?),
        name: row.get(1)?,
        state: parsed(row, 2)?,
        active: row.get(3)?,
        fence: uint(row, 4)?,
        work: parsed(row, 5)?,
    })
}

pub(super) fn put_slot(
    db: &Connection,
    session: SessionId,
    slot: &SlotRow,
    active: Option<SummaryId>,
) -> Outcome<()> {
    let sql = "INSERT INTO slots (session, scope, name, state, covered, due, active, ready_at, work, fence, \
         workspace) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, \
         coalesce((SELECT workspace FROM sessions WHERE id = ?1), '')) ON CONFLICT (session, scope, name) DO UPDATE SET \
         state = excluded.state, covered = excluded.covered, due = excluded.due, active = excluded.active, \
         ready_at = excluded.ready_at, work = excluded.work, fence = excluded.fence";
    db.prepare_cached(sql)?.execute(params![
        session,
        scope_text(&slot.scope),
        slot.name,
        json(&slot.state)?,
        int(slot.state.covered),
        slot.state.due.map(|due| int(due.seq)),
        active,
        slot.ready_at().map(|at| at.0),
        json(&slot.work)?,
        int(slot.fence),
    ])?;
    Ok(())
}

/// As [`put_slot`], for a slot that is there and whose summary stays: no more is written than what changed.
/// Most appends only count, and touch no index.
pub(super) fn move_slot(
    db: &Connection,
    session: SessionId,
    before: &SlotRow,
    slot: &SlotRow,
) -> Outcome<()> {
    if before == slot {
        return Ok(());
    }
    let due = |slot: &SlotRow| (slot.state.covered, slot.state.due.map(|due| due.seq), slot.ready_at());
    if due(before) != due(slot) || before.fence != slot.fence || before.work != slot.work {
        return put_slot(db, session, slot, slot.active);
    }
    let sql = "UPDATE slots SET state = ?4 WHERE session = ?1 AND scope = ?2 AND name = ?3";
    db.prepare_cached(sql)?.execute(params![
        session,
        scope_text(&slot.scope),
        slot.name,
        json(&slot.state)?
    ])?;
    Ok(())
}

/// What [`summary`] reads.
pub(super) const SUMMARY: &str = "id, scope, slot, through, state, parent, text, sources, facts, created";

/// The same without what it was made of, which is much.
pub(super) const SUMMARY_TEXT: &str = "id, scope, slot, through, state, parent, text, CASE WHEN sources IS NULL THEN NULL ELSE '' END, facts, created";

pub(super) fn summary(row: &Row<'_>) -> rusqlite::Result<SummaryRow> {
    let dropped = row.get_ref(7)?.data_type() == Type::Null;
    let mut facts: Facts = parsed(row, 8)?;
    facts.elastic &= !dropped;
    Ok(SummaryRow {
        id: row.get(0)?,
        scope: scope_of(row.get_ref(1)?.as_str().map_err(|_| odd(1))?),
        slot: row.get(2)?,
        through: uint(row, 3)?,
        state: row.get_ref(4)?.as_str().ok().and_then(columns::state_of).ok_or_else(|| odd(4))?,
        parent: row.get(5)?,
        text: row.get(6)?,
        sources: if dropped { String::new() } else { row.get(7)? },
        facts,
        created: Timestamp(row.get(9)?),
    })
}

/// Keeps a summary under its session's next number, which it gives back.
pub(super) fn insert_summary(db: &Connection, session: SessionId, row: &SummaryRow) -> Outcome<SummaryId> {
    let sources = (!row.sources.is_empty()).then_some(&row.sources);
    let sql =
        "SELECT coalesce(max(id), 0) + 1 FROM summaries INDEXED BY summaries_by_number WHERE session = ?1";
    let id: SummaryId = db.prepare_cached(sql)?.query_row([session], |row| row.get(0))?;
    let sql = "INSERT INTO summaries (session, id, scope, slot, through, state, parent, text, sources, facts, created, \
         asked) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
    db.prepare_cached(sql)?.execute(params![
        session,
        id,
        scope_text(&row.scope),
        row.slot,
        int(row.through),
        state_text(row.state),
        row.parent,
        row.text,
        sources,
        json(&row.facts)?,
        row.created.0,
        row.facts.asked,
    ])?;
    Ok(id)
}
