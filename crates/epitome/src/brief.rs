//! What may stand in a log or a record: one short line, without secrets.

use epitome_core::redact::redact;

/// More characters than this are not written down.
const LONGEST: usize = 200;

/// The beginning of a text on one line, its secrets taken out.
///
/// Providers quote keys in their refusals, and people put them into errors of their own.
pub(crate) fn brief(text: &str) -> String {
    // Far more than is kept, so that no secret is cut in two before it is seen.
    let head: String = text.chars().take(LONGEST * 20).collect();
    let line = head.split_whitespace().collect::<Vec<_>>().join(" ");
    let clean = redact(&line);
    let mut short: String = clean.chars().take(LONGEST).collect();
    if clean.chars().nth(LONGEST).is_some() {
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
        assert_eq!(long.chars().count(), LONGEST + 1);
    }
}
