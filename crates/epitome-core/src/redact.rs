//! Redacts secrets in text that goes into summaries.
//!
//! Users paste keys into conversations, and tools print them. A summary is stored longer than the messages that it
//! covers, and it is shown many times. Therefore [`redact`] is applied to everything that goes into a summary: the
//! prompt for the model, the model's answer, and the names stored with the summary. Each secret is replaced by a marker
//! with its kind, for example `[redacted:key]`.
//!
//! The log is never changed, because the agent continues to work with it. If the agent's own key became
//! `[redacted:key]`, the agent's next calls would fail (hard case 32).
//!
//! A secret is recognised by its shape, such as a provider's prefix, the header of a private key or a card's check
//! digit. It is also recognised by the name before it: `PASSWORD=`, `"api_key": `, `my password is`. A secret without
//! such a shape or name is not found. Text that only looks like a secret (a commit, a token count, `password:
//! required`) is preserved, because a summary full of markers is useless. One regular expression finds the candidates,
//! and only the candidates are examined. Text without secrets is returned without a copy.

use std::borrow::Cow;

mod places;
mod value;

use places::{PLACES, secret};

/// The text with which every marker starts, and the markers.
const MARK: &str = "[redacted:";
const KEY: &str = "[redacted:key]";
const TOKEN: &str = "[redacted:token]";
const PASSWORD: &str = "[redacted:password]";
const CARD: &str = "[redacted:card]";

/// Maximum number of passes over a text. A further pass would hardly ever find another secret.
const MOST_PASSES: usize = 8;

/// Replaces each secret in the text by `[redacted:kind]`. If the text contains no secret, it is returned without a
/// copy.
///
/// The kinds are `key`, `token`, `password` and `card`. The function is idempotent.
///
/// ```
/// use std::borrow::Cow;
/// use epitome_core::redact::redact;
///
/// assert_eq!(redact("DB_PASSWORD=hunter22 ./run"), "DB_PASSWORD=[redacted:password] ./run");
/// assert_eq!(
///     redact("postgres://app:s3cret@db.local/main"),
///     "postgres://app:[redacted:password]@db.local/main",
/// );
/// assert_eq!(redact("Paid with 4111 1111 1111 1111."), "Paid with [redacted:card].");
///
/// let plain = "Reset your password; max_tokens: 4000, commit 3f786850e387550fdab836ed7e6dc881de23001b";
/// assert!(matches!(redact(plain), Cow::Borrowed(_)));
/// ```
pub fn redact(text: &str) -> Cow<'_, str> {
    let mut clean = Cow::Borrowed(text);
    // One pass may miss a secret between a name and its value. It may also miss a secret that is recognisable only
    // after the text next to it has become a marker.
    for _ in 0..MOST_PASSES {
        let Some(cleaner) = pass(&clean) else { break };
        clean = Cow::Owned(cleaner);
    }
    clean
}

/// Replaces the secrets that one pass from start to end finds. Returns `None` if there are none.
fn pass(text: &str) -> Option<String> {
    let mut out = String::new();
    // The text after the last secret. The search never reads the text before `rest`. It therefore finds the same places
    // before and after secrets are replaced by markers.
    let mut rest = text;
    let mut at = 0;
    while let Some(place) = PLACES.captures_at(rest.as_bytes(), at) {
        let whole = place.get_match();
        // A match may begin one byte before the secret. Therefore the search continues at the last byte of skipped
        // text, or at the second byte of any other match.
        at = if place.name("skip").is_some() { whole.end() - 1 } else { whole.start() + 1 };
        if let Some((range, mark)) = secret(rest.as_bytes(), &place)
            && let (Some(before), Some(behind)) = (rest.get(..range.start), rest.get(range.end..))
        {
            out.push_str(before);
            out.push_str(mark);
            (rest, at) = (behind, 0);
        }
    }
    if rest.len() == text.len() {
        return None;
    }
    out.push_str(rest);
    Some(out)
}

fn contains(text: &[u8], what: &str) -> bool {
    text.windows(what.len()).any(|window| window == what.as_bytes())
}

#[cfg(test)]
mod tests;
