//! Shortens a text to one short line without secrets, for logs and for stored errors.

use epitome_core::redact::redact;

/// Maximum length of a shortened text, in characters.
const MAX_CHARS: usize = 200;

/// Returns the beginning of a text on one line, with secrets redacted.
///
/// Some providers repeat the API key in their error messages, and programs copy these messages into their own errors.
pub(crate) fn brief(text: &str) -> String {
    // Reads much more than the result needs, so that a secret is not cut in two before redaction.
    let head: String = text.chars().take(MAX_CHARS * 20).collect();
    let line = head.split_whitespace().collect::<Vec<_>>().join(" ");
    let clean = redact(&line);
    let mut short: String = clean.chars().take(MAX_CHARS).collect();
    if clean.chars().nth(MAX_CHARS).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_one_short_line_without_secrets() {
        assert_eq!(brief(" bad\n\tgateway "), "bad gateway");
        let key = "sk-proj-AbCdEf0123456789AbCdEf0123456789AbCdEf01";
        assert!(!brief(&format!("Incorrect API key provided: {key}")).contains("AbCdEf"));
        let long = brief(&"ä".repeat(1_000));
        assert_eq!(long.chars().count(), MAX_CHARS + 1);
    }
}
