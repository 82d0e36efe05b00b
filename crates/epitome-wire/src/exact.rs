//! Checks whether a JSON value preserves everything in its text.
//!
//! The parser converts numbers to `u64`, `i64` or `f64`. So `1e2` is later written as `100.0`, and a number
//! with 30 digits is rounded to 17 digits. If a key occurs twice, only the last value remains. In these cases,
//! the original text must be stored.

use serde_json::{Number, Value};

/// Returns whether writing `value` gives back every number and every field of `text`. `value` must be the
/// result of parsing `text`.
pub(crate) fn is_exact(text: &str, value: &Value) -> bool {
    let is_number_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.');
    let survives = |word: &str| {
        !word.starts_with(|c: char| c.is_ascii_digit() || c == '-')
            || word.parse::<Number>().is_ok_and(|number| number.to_string() == word)
    };
    let (mut fields, mut rest) = (0, Some(text));
    while let Some(text) = rest {
        let (plain, quoted) = text.split_once('"').unwrap_or((text, ""));
        if !plain.split(|c| !is_number_char(c)).all(survives) {
            return false;
        }
        fields += plain.matches(':').count();
        let mut escaped = false;
        let end = quoted.bytes().position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        rest = end.and_then(|end| quoted.get(end + 1..));
    }
    fields == count_fields(value)
}

fn count_fields(value: &Value) -> usize {
    match value {
        Value::Array(values) => values.iter().map(count_fields).sum(),
        Value::Object(fields) => fields.len() + fields.values().map(count_fields).sum::<usize>(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, exact: bool) {
        assert_eq!(is_exact(text, &serde_json::from_str(text).unwrap()), exact, "{text}");
    }

    #[test]
    fn plain_numbers_and_fields_are_exact() {
        for text in [
            r#"{"a": [1, -2, 0.5], "b": {"c": "1e2 : \" {\\"}, "d": true}"#,
            "18446744073709551615",
            "[]",
            "0.1",
        ] {
            check(text, true);
        }
    }

    #[test]
    fn numbers_that_would_be_written_differently_are_not_exact() {
        for text in
            ["1e2", "[1.0e0]", "123456789012345678901234567890", "1.10", "-0", r#"{"a":{"b":[0.10]}}"#]
        {
            check(text, false);
        }
    }

    #[test]
    fn a_duplicate_key_is_not_exact() {
        check(r#"{"a": 1, "a": 2}"#, false);
        check(r#"[{"a": {"b": 1, "c": 2, "b": 3}}]"#, false);
    }
}
