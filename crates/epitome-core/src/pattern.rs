//! Regular expressions of ours.

use std::str::FromStr;

/// Compiles one, for text or for bytes.
#[expect(clippy::expect_used, reason = "each is a constant, and tests use it")]
pub(crate) fn pattern<R: FromStr<Err = regex::Error>>(source: &str) -> R {
    source.parse().expect("a valid pattern")
}
