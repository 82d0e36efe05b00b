//! Compiles the regular expressions of this crate.

use std::str::FromStr;

/// Compiles a regular expression, for text or for bytes.
#[expect(clippy::expect_used, reason = "all patterns are constants that tests use")]
pub(crate) fn pattern<R: FromStr<Err = regex::Error>>(source: &str) -> R {
    source.parse().expect("a valid pattern")
}
