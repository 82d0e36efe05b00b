//! Rows of SQLite's tables, read and written.

use epitome_core::message::{Seq, Timestamp};
use rusqlite::types::{ToSqlOutput, Value as SqlValue, ValueRef};
use rusqlite::{Connection, OptionalExtension, Params, Row, ToSql, params, params_from_iter};
use serde_json::{Map, Value};

use super::super::columns::{cut_number, role_number, scope_text, shape_bits};
use super::super::decode::{NOT_OF_ITS_KIND, ReadRow, session_columns};
use super::super::given::{Given, int};
use super::super::rows::{NewMessage, SessionId, SessionRow, SlotRow, SummaryId, SummaryRow, with_metadata};
use super::super::sql::Sql;
use super::super::statements::{self, json};
use super::error::{Outcome, Trouble, nonsense};

/// From here on a call batch may begin.
pub(super) const IN_LOOP: i64 = super::super::columns::IN_LOOP as i64;

/// What is read of a session.
pub(super) const SESSION: &str = session_columns!();

/// How many rows a caller wants at most.
pub(super) fn rows(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

impl ReadRow for Row<'_> {
    type Error = Trouble;

    fn maybe_int(&self, at: usize) -> Outcome<Option<i64>> {
        match self.get_ref(at)? {
            ValueRef::Null => Ok(None),
            ValueRef::Integer(value) => Ok(Some(value)),
            _ => Err(self.nonsense(NOT_OF_ITS_KIND)),
        }
    }

    fn maybe_text(&self, at: usize) -> Outcome<Option<&str>> {
        match self.get_ref(at)? {
            ValueRef::Null => Ok(None),
            ValueRef::Text(text) => {
                std::str::from_utf8(text).map(Some).map_err(|_| self.nonsense(NOT_OF_ITS_KIND))
            }
            _ => Err(self.nonsense(NOT_OF_ITS_KIND)),
        }
    }

    fn bytes(&self, at: usize) -> Outcome<&[u8]> {
        self.get_ref(at)?.as_blob().map_err(|_| self.nonsense(NOT_OF_ITS_KIND))
    }

    fn nonsense(&self, what: &str) -> Trouble {
        nonsense(what)
    }
}

impl ToSql for Given<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Int(value) => ToSqlOutput::Owned(value.map_or(SqlValue::Null, SqlValue::Integer)),
            Self::Bool(value) => ToSqlOutput::Owned(SqlValue::Integer((*value).into())),
            Self::Text(None) => ToSqlOutput::Owned(SqlValue::Null),
            Self::Text(Some(text)) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Self::Bytes(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
            _ => return Err(rusqlite::Error::ToSqlConversionFailure("SQLite has no lists".into())),
        })
    }
}

/// A row that was found.
pub(super) type Found<'a> = &'a dyn ReadRow<Error = Trouble>;

/// Runs a statement, and reads all rows it returns.
pub(super) fn all<T>(
    db: &Connection,
    sql: &Sql<'_>,
    read: impl FnMut(Found<'_>) -> Outcome<T>,
) -> Outcome<Vec<T>> {
    all_of(db, &sql.for_sqlite(), params_from_iter(&sql.given), read)
}

/// Runs a statement, and reads the first row it returns.
pub(super) fn first<T>(
    db: &Connection,
    sql: &Sql<'_>,
    read: impl FnOnce(Found<'_>) -> Outcome<T>,
) -> Outcome<Option<T>> {
    first_of(db, &sql.for_sqlite(), params_from_iter(&sql.given), read)
}

/// Runs a statement that returns nothing.
pub(super) fn run(db: &Connection, sql: &Sql<'_>) -> Outcome<()> {
    db.prepare_cached(&sql.for_sqlite())?.execute(params_from_iter(&sql.given))?;
    Ok(())
}

/// As [`all`], of a statement in SQLite's own words.
pub(super) fn all_of<T>(
    db: &Connection,
    sql: &str,
    given: impl Params,
    mut read: impl FnMut(Found<'_>) -> Outcome<T>,
) -> Outcome<Vec<T>> {
    let mut statement = db.prepare_cached(sql)?;
    let mut found = statement.query(given)?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        rows.push(read(row)?);
    }
    Ok(rows)
}

/// As [`first`], of a statement in SQLite's own words.
pub(super) fn first_of<T>(
    db: &Connection,
    sql: &str,
    given: impl Params,
    read: impl FnOnce(Found<'_>) -> Outcome<T>,
) -> Outcome<Option<T>> {
    let mut statement = db.prepare_cached(sql)?;
    let mut found = statement.query(given)?;
    found.next()?.map(|row| read(row)).transpose()
}

/// Whether a statement returns anything.
pub(super) fn exists(db: &Connection, sql: &str, given: impl Params) -> Outcome<bool> {
    Ok(db.prepare_cached(sql)?.query_row(given, |_| Ok(())).optional()?.is_some())
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
        role_number(o.role),
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
        shape_bits(o),
        o.pinned,
        o.skip,
        cut_number(o.cut),
        cut_number(o.own_cut),
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

/// Writes a session's row over the one it has. Which messages can be searched is not the caller's to say.
pub(super) fn update_session(
    db: &Connection,
    id: SessionId,
    before: Option<&SessionRow>,
    row: &SessionRow,
) -> Outcome<()> {
    grow_session(db, id, row)?;
    if before.is_some_and(|before| row.only_grew_from(before)) {
        return Ok(());
    }
    run(db, &statements::update_session(id, row))
}

/// Writes what every message changes, and nothing else.
fn grow_session(db: &Connection, id: SessionId, row: &SessionRow) -> Outcome<()> {
    let sql = "UPDATE sessions SET tracker = ?2, head = ?3, turns = ?4, tokens = ?5, opener = ?6, \
         batch_from = ?7, batch_skipped = ?8, skipped = ?9, updated = ?10 WHERE id = ?1";
    db.prepare_cached(sql)?.execute(params![
        id,
        json(&row.tracker),
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

/// As `statements::put_slot`, for a slot that is there and whose summary stays: no more is written than what changed.
/// Most appends only count, and touch no index.
pub(super) fn move_slot(
    db: &Connection,
    (session, workspace): (SessionId, &str),
    before: &SlotRow,
    slot: &SlotRow,
) -> Outcome<()> {
    if before == slot {
        return Ok(());
    }
    let due = |slot: &SlotRow| (slot.state.covered, slot.state.due.map(|due| due.seq), slot.ready_at());
    if due(before) != due(slot) || before.fence != slot.fence || before.work != slot.work {
        return run(db, &statements::put_slot((session, workspace), slot, slot.active));
    }
    let sql = "UPDATE slots SET state = ?4 WHERE session = ?1 AND scope = ?2 AND name = ?3";
    db.prepare_cached(sql)?.execute(params![
        session,
        scope_text(&slot.scope),
        slot.name,
        json(&slot.state)
    ])?;
    Ok(())
}

/// Stores a summary under its session's next number, which it returns.
pub(super) fn insert_summary(db: &Connection, session: SessionId, row: &SummaryRow) -> Outcome<SummaryId> {
    let id = first(db, &statements::next_summary(session), |row| row.int(0))?.unwrap_or(1);
    run(db, &statements::insert_summary(session, id, row))?;
    Ok(id)
}
