//! Reads PostgreSQL's rows, and converts parameters.

use std::borrow::Cow;

use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql, Type};

use super::super::decode::{ReadRow, plain};
use super::super::given::Given;
use super::super::trouble::NOT_OF_ITS_KIND;
use super::error::{Outcome, nonsense};

/// Reads a column.
fn get<'r, T: FromSql<'r>>(row: &'r Row, at: usize) -> Outcome<T> {
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

impl Given<'_> {
    /// Replaces the characters that PostgreSQL cannot store: see [`plain`].
    pub(super) fn plain(self) -> Self {
        let owned = |text: Cow<'_, str>| Cow::Owned(plain(&text).into_owned());
        let odd = |text: &Cow<'_, str>| text.contains('\0');
        match self {
            Self::Text(Some(text)) if odd(&text) => Self::Text(Some(owned(text))),
            Self::Texts(texts) if texts.iter().any(odd) => {
                Self::Texts(texts.into_iter().map(owned).collect())
            }
            Self::MaybeTexts(texts) if texts.iter().flatten().any(odd) => {
                Self::MaybeTexts(texts.into_iter().map(|text| text.map(owned)).collect())
            }
            other => other,
        }
    }

    pub(super) fn kind(&self) -> Type {
        match self {
            Self::Int(_) => Type::INT8,
            Self::Bool(_) => Type::BOOL,
            Self::Text(_) => Type::TEXT,
            Self::Bytes(_) => Type::BYTEA,
            Self::Ints(_) | Self::MaybeInts(_) => Type::INT8_ARRAY,
            Self::Middling(_) => Type::INT4_ARRAY,
            Self::Bools(_) => Type::BOOL_ARRAY,
            Self::Texts(_) | Self::MaybeTexts(_) => Type::TEXT_ARRAY,
        }
    }

    pub(super) fn value(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::Int(value) => value,
            Self::Bool(value) => value,
            Self::Text(value) => value,
            Self::Bytes(value) => value,
            Self::Ints(values) => values,
            Self::MaybeInts(values) => values,
            Self::Middling(values) => values,
            Self::Bools(values) => values,
            Self::Texts(values) => values,
            Self::MaybeTexts(values) => values,
        }
    }
}
