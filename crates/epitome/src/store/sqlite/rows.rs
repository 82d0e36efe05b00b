//! Rows of SQLite's tables, read and written.

use rusqlite::types::{ToSqlOutput, Value as SqlValue, ValueRef};
use rusqlite::{Row, ToSql};

use super::super::decode::ReadRow;
use super::super::given::Given;
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
