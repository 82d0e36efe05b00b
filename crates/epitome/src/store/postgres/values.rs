//! Reads PostgreSQL's rows, and converts parameters.

use std::borrow::Cow;

use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql, Type};

use super::super::decode::{ReadRow, plain};
use super::super::op_error::WRONG_TYPE;
use super::super::sql_params::SqlParam;
use super::error::{OpResult, damaged};

/// Reads a column.
fn get<'r, T: FromSql<'r>>(row: &'r Row, at: usize) -> OpResult<T> {
    row.try_get(at).map_err(|_| damaged(WRONG_TYPE))
}

impl ReadRow for Row {
    fn maybe_int(&self, at: usize) -> OpResult<Option<i64>> {
        match self.columns().get(at).map(tokio_postgres::Column::type_) {
            Some(&Type::INT2) => Ok(get::<Option<i16>>(self, at)?.map(Into::into)),
            Some(&Type::INT4) => Ok(get::<Option<i32>>(self, at)?.map(Into::into)),
            Some(&Type::BOOL) => Ok(get::<Option<bool>>(self, at)?.map(Into::into)),
            _ => get(self, at),
        }
    }

    fn maybe_text(&self, at: usize) -> OpResult<Option<&str>> {
        get(self, at)
    }

    fn bytes(&self, at: usize) -> OpResult<&[u8]> {
        get(self, at)
    }
}

impl SqlParam<'_> {
    /// Replaces the characters that PostgreSQL cannot store: see [`plain`].
    pub(super) fn without_nul(self) -> Self {
        let replaced = |text: Cow<'_, str>| Cow::Owned(plain(&text).into_owned());
        let has_nul = |text: &Cow<'_, str>| text.contains('\0');
        match self {
            Self::Text(Some(text)) if has_nul(&text) => Self::Text(Some(replaced(text))),
            Self::Texts(texts) if texts.iter().any(has_nul) => {
                Self::Texts(texts.into_iter().map(replaced).collect())
            }
            Self::NullableTexts(texts) if texts.iter().flatten().any(has_nul) => {
                Self::NullableTexts(texts.into_iter().map(|text| text.map(replaced)).collect())
            }
            other => other,
        }
    }

    pub(super) fn sql_type(&self) -> Type {
        match self {
            Self::Int(_) => Type::INT8,
            Self::Bool(_) => Type::BOOL,
            Self::Text(_) => Type::TEXT,
            Self::Bytes(_) => Type::BYTEA,
            Self::Ints(_) | Self::NullableInts(_) => Type::INT8_ARRAY,
            Self::Ints32(_) => Type::INT4_ARRAY,
            Self::Bools(_) => Type::BOOL_ARRAY,
            Self::Texts(_) | Self::NullableTexts(_) => Type::TEXT_ARRAY,
        }
    }

    pub(super) fn value(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::Int(value) => value,
            Self::Bool(value) => value,
            Self::Text(value) => value,
            Self::Bytes(value) => value,
            Self::Ints(values) => values,
            Self::NullableInts(values) => values,
            Self::Ints32(values) => values,
            Self::Bools(values) => values,
            Self::Texts(values) => values,
            Self::NullableTexts(values) => values,
        }
    }
}
