//! Values of SQL statements, for any database. Most kinds of lists are only supported by PostgreSQL.

use std::borrow::Cow;

use epitome_core::message::Timestamp;

/// A value of a statement.
#[derive(Debug, Clone)]
pub(super) enum Given<'a> {
    Int(Option<i64>),
    Bool(bool),
    Text(Option<Cow<'a, str>>),
    Bytes(Cow<'a, [u8]>),
    Ints(Vec<i64>),
    MaybeInts(Vec<Option<i64>>),
    Middling(Vec<i32>),
    Bools(Vec<bool>),
    Texts(Vec<Cow<'a, str>>),
    MaybeTexts(Vec<Option<Cow<'a, str>>>),
}

/// Implements conversions into [`Given`].
macro_rules! given {
    ($($of:ty: |$value:ident| $given:expr;)*) => {$(
        impl<'a> From<$of> for Given<'a> {
            fn from($value: $of) -> Self {
                $given
            }
        }
    )*};
}

given! {
    i64: |value| Self::Int(Some(value));
    Option<i64>: |value| Self::Int(value);
    u64: |value| Self::Int(Some(int(value)));
    usize: |value| Self::Int(Some(i64::try_from(value).unwrap_or(i64::MAX)));
    Timestamp: |value| Self::Int(Some(value.0));
    Option<Timestamp>: |value| Self::Int(value.map(|at| at.0));
    bool: |value| Self::Bool(value);
    &'a str: |value| Self::Text(Some(Cow::Borrowed(value)));
    Option<&'a str>: |value| Self::Text(value.map(Cow::Borrowed));
    String: |value| Self::Text(Some(Cow::Owned(value)));
    &'a [u8]: |value| Self::Bytes(Cow::Borrowed(value));
}

impl Given<'_> {
    /// Whether [`column`] accepts this kind of value.
    pub(super) fn is_of_column(&self) -> bool {
        !matches!(self, Self::Bytes(_) | Self::Ints(_) | Self::Texts(_) | Self::Middling(_))
    }
}

#[cfg(feature = "postgres")]
impl Given<'_> {
    pub(super) fn is_list(&self) -> bool {
        !matches!(self, Self::Int(_) | Self::Bool(_) | Self::Text(_) | Self::Bytes(_))
    }

    pub(super) fn into_owned(self) -> Given<'static> {
        let own = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        match self {
            Self::Int(value) => Given::Int(value),
            Self::Bool(value) => Given::Bool(value),
            Self::Text(text) => Given::Text(text.map(own)),
            Self::Bytes(bytes) => Given::Bytes(Cow::Owned(bytes.into_owned())),
            Self::Ints(values) => Given::Ints(values),
            Self::MaybeInts(values) => Given::MaybeInts(values),
            Self::Middling(values) => Given::Middling(values),
            Self::Bools(values) => Given::Bools(values),
            Self::Texts(texts) => Given::Texts(texts.into_iter().map(own).collect()),
            Self::MaybeTexts(texts) => {
                Given::MaybeTexts(texts.into_iter().map(|text| text.map(own)).collect())
            }
        }
    }
}

/// Joins the values of a column, single values or lists, into one list. Ignores kinds that [`Given::is_of_column`] excludes.
pub(super) fn column<'a>(values: impl Iterator<Item = Given<'a>>) -> Given<'a> {
    let (mut ints, mut bools, mut texts) = (Vec::new(), Vec::new(), Vec::new());
    for value in values {
        match value {
            Given::Int(value) => ints.push(value),
            Given::Bool(value) => bools.push(value),
            Given::Text(value) => texts.push(value),
            Given::MaybeInts(values) => ints.extend(values),
            Given::Bools(values) => bools.extend(values),
            Given::MaybeTexts(values) => texts.extend(values),
            _ => {}
        }
    }
    match (ints.is_empty(), bools.is_empty()) {
        (false, _) => Given::MaybeInts(ints),
        (true, false) => Given::Bools(bools),
        (true, true) => Given::MaybeTexts(texts),
    }
}

/// Converts a number for a column. Numbers above the column's maximum become the maximum.
pub(super) fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
