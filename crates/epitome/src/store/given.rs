//! Values that statements are given, whichever database they go to. Lists are for PostgreSQL alone.

use std::borrow::Cow;

use epitome_core::message::Timestamp;

/// A value for a statement.
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

impl From<Option<Timestamp>> for Given<'_> {
    fn from(value: Option<Timestamp>) -> Self {
        Self::Int(value.map(|at| at.0))
    }
}

impl From<bool> for Given<'_> {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl<'a> From<&'a str> for Given<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(Some(Cow::Borrowed(value)))
    }
}

impl From<String> for Given<'_> {
    fn from(value: String) -> Self {
        Self::Text(Some(Cow::Owned(value)))
    }
}

impl<'a> From<Option<&'a str>> for Given<'a> {
    fn from(value: Option<&'a str>) -> Self {
        Self::Text(value.map(Cow::Borrowed))
    }
}

impl<'a> From<&'a [u8]> for Given<'a> {
    fn from(value: &'a [u8]) -> Self {
        Self::Bytes(Cow::Borrowed(value))
    }
}

impl Given<'_> {
    /// Whether [`column`] takes it.
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

/// The values of a column, or of several parts of it, as a list. What is not [of a column](Given::is_of_column) is left out.
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

/// A number as a column holds it. What is too large stays the largest.
pub(super) fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
