//! Secrets, taken out at the summary's edge.
//!
//! People paste keys into conversations, and tools print them. A summary outlives the messages it
//! stands for and is shown again and again, so what goes into one passes through [`redact`] first:
//! what a model is asked with, what it answers, the names that are kept beside it. Each secret becomes
//! a mark that says what stood there, `[redacted:key]` say.
//!
//! The log is never touched. It is what the agent goes on working with, and an agent whose own key
//! has become `[redacted:key]` makes a call that fails (hard case 32).
//!
//! Secrets are known by their shape (a provider's prefix, a private key's frame, a card's check
//! digit) or by the name before them (`PASSWORD=`, `"api_key": `, `my password is`). What has neither
//! is not found; what only looks like one (a commit, a count of tokens, `password: required`) is left
//! alone, because a summary full of marks is of no use either. One regular expression finds the places
//! where a secret could be, and only those are judged, so ordinary text is handed back as it came,
//! uncopied.

use std::borrow::Cow;

mod places;
mod value;

use places::{PLACES, secret};

/// How every mark starts, and the marks.
const MARK: &str = "[redacted:";
const KEY: &str = "[redacted:key]";
const TOKEN: &str = "[redacted:token]";
const PASSWORD: &str = "[redacted:password]";
const CARD: &str = "[redacted:card]";

/// After so many passes over a text hardly anything is left in it that could be found.
const MOST_PASSES: usize = 8;

/// The text with each secret replaced by `[redacted:kind]`; borrowed when there is none.
///
/// The kinds are `key`, `token`, `password` and `card`. Doing it twice changes nothing more.
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
    // A secret may stand between a name and its value, or be known only once what is beside it has become a mark.
    for _ in 0..MOST_PASSES {
        let Some(cleaner) = pass(&clean) else { break };
        clean = Cow::Owned(cleaner);
    }
    clean
}

/// The text without the secrets that one pass from its begin to its end finds; `None` when there is none.
fn pass(text: &str) -> Option<String> {
    let mut out = String::new();
    // What stands behind the last secret. Nothing looks back beyond it, so that a text is read the same way before and
    // after its secrets have become marks.
    let mut rest = text;
    let mut at = 0;
    while let Some(place) = PLACES.captures_at(rest.as_bytes(), at) {
        let whole = place.get_match();
        // A place may begin with the byte before a secret.
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
