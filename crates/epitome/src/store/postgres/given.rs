//! What statements are given, each with the type the database knows it by.
//!
//! Types are always said: behind a pooler no statement is prepared by name, and nobody could ask which they are.

use std::borrow::Cow;

use epitome_core::message::Timestamp;
use tokio_postgres::types::{ToSql, Type};

use super::rows::plain;

/// A value for a statement.
#[derive(Debug)]
pub(super) enum Given<'a> {
    Int(Option<i64>),
    Bool(bool),
    Text(Option<Cow<'a, str>>),
    Bytes(Cow<'a, [u8]>),
    Ints(Vec<i64>),
    MaybeInts(Vec<Option<i64>>),
    Middling(Vec<i32>),
    Small(Vec<i16>),
    Bools(Vec<bool>),
    Texts(Vec<Cow<'a, str>>),
    MaybeTexts(Vec<Option<Cow<'a, str>>>),
    Blobs(Vec<Cow<'a, [u8]>>),
}

impl Given<'_> {
    pub(super) fn kind(&self) -> Type {
        match self {
            Self::Int(_) => Type::INT8,
            Self::Bool(_) => Type::BOOL,
            Self::Text(_) => Type::TEXT,
            Self::Bytes(_) => Type::BYTEA,
            Self::Ints(_) | Self::MaybeInts(_) => Type::INT8_ARRAY,
            Self::Middling(_) => Type::INT4_ARRAY,
            Self::Small(_) => Type::INT2_ARRAY,
            Self::Bools(_) => Type::BOOL_ARRAY,
            Self::Texts(_) | Self::MaybeTexts(_) => Type::TEXT_ARRAY,
            Self::Blobs(_) => Type::BYTEA_ARRAY,
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
            Self::Small(values) => values,
            Self::Bools(values) => values,
            Self::Texts(values) => values,
            Self::MaybeTexts(values) => values,
            Self::Blobs(values) => values,
        }
    }
}

impl From<i64> for Given<'_> {
    fn from(value: i64) -> Self {
        Self::Int(Some(value))
    }
}

impl From<Option<i64>> for Given<'_> {
    fn from(value: Option<i64>) -> Self {
        Self::Int(value)
    }
}

/// What is too large for the database stays the largest it knows.
impl From<u64> for Given<'_> {
    fn from(value: u64) -> Self {
        Self::Int(Some(int(value)))
    }
}

impl From<usize> for Given<'_> {
    fn from(value: usize) -> Self {
        Self::Int(Some(i64::try_from(value).unwrap_or(i64::MAX)))
    }
}

impl From<Timestamp> for Given<'_> {
    fn from(value: Timestamp) -> Self {
        Self::Int(Some(value.0))
    }
}

impl From<bool> for Given<'_> {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

/// Somebody may ask for a name that has U+0000 in it, and nobody has one: see [`plain`].
impl<'a> From<&'a str> for Given<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(Some(plain(value)))
    }
}

impl From<String> for Given<'_> {
    fn from(value: String) -> Self {
        Self::Text(Some(Cow::Owned(value)))
    }
}

impl<'a> From<Option<&'a str>> for Given<'a> {
    fn from(value: Option<&'a str>) -> Self {
        Self::Text(value.map(plain))
    }
}

impl<'a> From<&'a [u8]> for Given<'a> {
    fn from(value: &'a [u8]) -> Self {
        Self::Bytes(Cow::Borrowed(value))
    }
}

/// A number as the database has it. What is too large stays the largest.
pub(super) fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
