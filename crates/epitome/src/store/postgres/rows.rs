//! Rows of PostgreSQL's tables, read and written.

use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

use super::super::decode::{Found, ReadRow};
use super::super::trouble::NOT_OF_ITS_KIND;
use super::error::{Outcome, nonsense};

/// A column.
pub(super) fn get<'r, T: FromSql<'r>>(row: &'r Row, at: usize) -> Outcome<T> {
    row.try_get(at).map_err(|_| nonsense(NOT_OF_ITS_KIND))
}

impl ReadRow for Row {
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
}

/// The first row of the first answer, read.
pub(super) fn first<T>(found: &[Vec<Row>], read: impl FnOnce(Found<'_>) -> Outcome<T>) -> Outcome<Option<T>> {
    found.first().and_then(|rows| rows.first()).map(|row| read(row)).transpose()
}
