//! Values of SQL statements, for every database. SQLite supports only the lists `Ints` and `Texts`.

use std::borrow::Cow;

use epitome_core::message::Timestamp;

/// A value of a statement.
#[derive(Debug, Clone)]
pub(super) enum SqlParam<'a> {
    Int(Option<i64>),
    Bool(bool),
    Text(Option<Cow<'a, str>>),
    Bytes(Cow<'a, [u8]>),
    Ints(Vec<i64>),
    NullableInts(Vec<Option<i64>>),
    Ints32(Vec<i32>),
    Bools(Vec<bool>),
    Texts(Vec<Cow<'a, str>>),
    NullableTexts(Vec<Option<Cow<'a, str>>>),
}

/// Implements conversions into [`SqlParam`].
macro_rules! convert {
    ($($of:ty: |$value:ident| $param:expr;)*) => {$(
        impl<'a> From<$of> for SqlParam<'a> {
            fn from($value: $of) -> Self {
                $param
            }
        }
    )*};
}

convert! {
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

impl SqlParam<'_> {
    /// Whether [`merge_column`] accepts this kind of value.
    pub(super) fn can_merge(&self) -> bool {
        !matches!(self, Self::Bytes(_) | Self::Ints(_) | Self::Texts(_) | Self::Ints32(_))
    }
}

#[cfg(feature = "postgres")]
impl SqlParam<'_> {
    pub(super) fn is_list(&self) -> bool {
        !matches!(self, Self::Int(_) | Self::Bool(_) | Self::Text(_) | Self::Bytes(_))
    }

    pub(super) fn into_owned(self) -> SqlParam<'static> {
        let own = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        match self {
            Self::Int(value) => SqlParam::Int(value),
            Self::Bool(value) => SqlParam::Bool(value),
            Self::Text(text) => SqlParam::Text(text.map(own)),
            Self::Bytes(bytes) => SqlParam::Bytes(Cow::Owned(bytes.into_owned())),
            Self::Ints(values) => SqlParam::Ints(values),
            Self::NullableInts(values) => SqlParam::NullableInts(values),
            Self::Ints32(values) => SqlParam::Ints32(values),
            Self::Bools(values) => SqlParam::Bools(values),
            Self::Texts(texts) => SqlParam::Texts(texts.into_iter().map(own).collect()),
            Self::NullableTexts(texts) => {
                SqlParam::NullableTexts(texts.into_iter().map(|text| text.map(own)).collect())
            }
        }
    }
}

/// Joins the values of a column into one list. A value may be a list itself. Ignores values for which
/// [`SqlParam::can_merge`] is false.
pub(super) fn merge_column<'a>(values: impl Iterator<Item = SqlParam<'a>>) -> SqlParam<'a> {
    let (mut ints, mut bools, mut texts) = (Vec::new(), Vec::new(), Vec::new());
    for value in values {
        match value {
            SqlParam::Int(value) => ints.push(value),
            SqlParam::Bool(value) => bools.push(value),
            SqlParam::Text(value) => texts.push(value),
            SqlParam::NullableInts(values) => ints.extend(values),
            SqlParam::Bools(values) => bools.extend(values),
            SqlParam::NullableTexts(values) => texts.extend(values),
            _ => {}
        }
    }
    match (ints.is_empty(), bools.is_empty()) {
        (false, _) => SqlParam::NullableInts(ints),
        (true, false) => SqlParam::Bools(bools),
        (true, true) => SqlParam::NullableTexts(texts),
    }
}

/// Converts a number for a column. Numbers above the column's maximum become the maximum.
pub(super) fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
