//! Rows of SQLite's tables, read and written.

use rusqlite::types::{ToSqlOutput, Value as SqlValue, ValueRef};
use rusqlite::{Connection, Params, Row, ToSql, params_from_iter};

use super::super::decode::{Found, ReadRow};
use super::super::given::Given;
use super::super::sql::Sql;
use super::super::statements::json;
use super::error::{NOT_OF_ITS_KIND, Outcome, nonsense};

impl ReadRow for Row<'_> {
    fn maybe_int(&self, at: usize) -> Outcome<Option<i64>> {
        match self.get_ref(at)? {
            ValueRef::Null => Ok(None),
            ValueRef::Integer(value) => Ok(Some(value)),
            _ => Err(nonsense(NOT_OF_ITS_KIND)),
        }
    }

    fn maybe_text(&self, at: usize) -> Outcome<Option<&str>> {
        match self.get_ref(at)? {
            ValueRef::Null => Ok(None),
            ValueRef::Text(text) => {
                std::str::from_utf8(text).map(Some).map_err(|_| nonsense(NOT_OF_ITS_KIND))
            }
            _ => Err(nonsense(NOT_OF_ITS_KIND)),
        }
    }

    fn bytes(&self, at: usize) -> Outcome<&[u8]> {
        self.get_ref(at)?.as_blob().map_err(|_| nonsense(NOT_OF_ITS_KIND))
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
            // A list is a JSON array.
            Self::Ints(values) => ToSqlOutput::Owned(SqlValue::Text(json(values))),
            Self::Texts(values) => ToSqlOutput::Owned(SqlValue::Text(json(values))),
            _ => return Err(rusqlite::Error::ToSqlConversionFailure("SQLite has no such lists".into())),
        })
    }
}

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
