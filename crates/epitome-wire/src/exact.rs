//! Whether a JSON value says all that its text said.
//!
//! Numbers become `u64`, `i64` or `f64` when they are read, so that `1e2` comes out as `100.0` and a number of
//! thirty digits as one of seventeen; of a key that is there twice only the last value stays. Where that
//! happens, the text itself must be kept.

use serde_json::{Number, Value};

/// Whether writing `value` again gives every number and every field that `text`, of which it was read, has.
pub(crate) fn is_exact(text: &str, value: &Value) -> bool {
    let mut fields = 0;
    let mut rest = text.bytes().enumerate();
    let (mut quoted, mut escaped) = (false, false);
    let mut number: Option<usize> = None;
    let told = |from: usize, to: usize| {
        let token = text.get(from..to).unwrap_or_default();
        token.parse::<Number>().is_ok_and(|number| number.to_string() == token)
    };
    for (at, byte) in rest.by_ref() {
        if quoted {
            (quoted, escaped) = (escaped || byte != b'"', !escaped && byte == b'\\');
            continue;
        }
        let digit = matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.')
            || (matches!(byte, b'e' | b'E') && number.is_some());
        match number {
            None if digit => number = Some(at),
            Some(from) if !digit => {
                number = None;
                if !told(from, at) {
                    return false;
                }
            }
            _ => {}
        }
        match byte {
            b'"' => quoted = true,
            b':' => fields += 1,
            _ => {}
        }
    }
    fields == members(value) && number.is_none_or(|from| told(from, text.len()))
}

fn members(value: &Value) -> usize {
    match value {
        Value::Array(values) => values.iter().map(members).sum(),
        Value::Object(fields) => fields.len() + fields.values().map(members).sum::<usize>(),
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
    fn numbers_that_lose_digits_or_their_spelling_are_not() {
        for text in
            ["1e2", "[1.0e0]", "123456789012345678901234567890", "1.10", "-0", r#"{"a":{"b":[0.10]}}"#]
        {
            check(text, false);
        }
    }

    #[test]
    fn a_key_that_is_there_twice_is_not() {
        check(r#"{"a": 1, "a": 2}"#, false);
        check(r#"[{"a": {"b": 1, "c": 2, "b": 3}}]"#, false);
    }
}
