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
//! alone, because a summary full of marks is of no use either. Reading is one pass over the bytes that
//! stops only where a secret could be, so ordinary text is handed back as it came, uncopied.

use std::borrow::Cow;

mod judge;
mod named;
mod shapes;

/// What stood where a mark stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Key,
    Token,
    Password,
    Card,
}

impl Kind {
    fn mark(self) -> &'static str {
        match self {
            Self::Key => "[redacted:key]",
            Self::Token => "[redacted:token]",
            Self::Password => "[redacted:password]",
            Self::Card => "[redacted:card]",
        }
    }
}

/// How every mark starts.
const MARK: &[u8] = b"[redacted:";

/// A secret, by its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Found {
    from: usize,
    to: usize,
    kind: Kind,
}

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
#[must_use]
pub fn redact(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut done = 0;
    let mut scanner = Scanner { text, bytes: text.as_bytes(), floor: 0, at: 0, ahead: None };
    while let Some(found) = scanner.next() {
        out.push_str(text.get(done..found.from).unwrap_or(""));
        out.push_str(found.kind.mark());
        done = found.to;
    }
    if done == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(text.get(done..).unwrap_or(""));
    Cow::Owned(out)
}

/// Walks over a text from one place worth a look to the next.
struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    /// The end of the last secret, or of the last mark. Nothing looks back beyond it, so that a text
    /// is read the same way before and after its secrets have become marks.
    floor: usize,
    at: usize,
    /// A secret that begins further on. What stands before it may hold another.
    ahead: Option<Found>,
}

impl Scanner<'_> {
    fn next(&mut self) -> Option<Found> {
        loop {
            let end = self.ahead.map_or(self.bytes.len(), |ahead| ahead.from);
            let near = self.bytes.get(self.at..end).unwrap_or(&[]);
            let Some(next) = near.iter().position(|byte| is_trigger(*byte)) else {
                return self.ahead.take().map(|ahead| self.pass(ahead));
            };
            let at = self.at + next;
            self.at = at + 1;
            let Some(found) = self.look(at).filter(|found| self.is_sound(found)) else { continue };
            match self.ahead {
                None if found.from > self.at => self.ahead = Some(found),
                None => return Some(self.pass(found)),
                Some(ahead) if found.from >= ahead.from => {}
                Some(ahead) if found.to <= ahead.from => return Some(self.pass(found)),
                Some(ahead) => {
                    self.ahead = None;
                    return Some(self.pass(Found { to: found.to.max(ahead.to), ..found }));
                }
            }
        }
    }

    /// Whatever the rules say: never nothing, never backwards, never half a character.
    fn is_sound(&self, found: &Found) -> bool {
        let whole = self.text.is_char_boundary(found.from) && self.text.is_char_boundary(found.to);
        whole && self.floor <= found.from && found.from < found.to
    }

    /// Goes on behind a secret.
    fn pass(&mut self, found: Found) -> Found {
        self.floor = found.to;
        self.at = found.to.max(self.at);
        found
    }

    /// What stands around a byte that could belong to a secret. Most are told by their neighbours.
    fn look(&mut self, at: usize) -> Option<Found> {
        let here = byte(self.bytes, at);
        let next = |n: usize| byte(self.bytes, at + n) | 0x20;
        let before = |n: usize| at.checked_sub(n).map_or(0, |at| byte(self.bytes, at)) | 0x20;
        let secret = match here {
            b'0'..=b'9' => return self.digits(at),
            b'-' | b'_' | b'.' => return shapes::prefixed(self.bytes, self.floor, at),
            b'A' => return shapes::bare(self.bytes, self.floor, at),
            b'J' => return shapes::web_token(self.bytes, self.floor, at),
            b':' | b'=' | 0xef => return self.mark_or_pair(at),
            b'w' | b'W' => {
                (before(1) == b's' && matches!(next(1), b'o' | b'd'))
                    || (before(1) == b'p' && next(1) == b'd')
            }
            b'k' | b'K' => next(1) == b'e' && (next(2) == b'y' || (before(1) == b'o' && next(2) == b'n')),
            b'c' | b'C' => {
                (before(1) == b'e' && before(2) == b's' && next(1) == b'r')
                    || (before(1) == b's' && before(2) == b's' && next(1) == b'o')
            }
            b'p' | b'P' => before(1) == b's' && before(2) == b's' && next(1) == b'h',
            b'z' | b'Z' => before(1) == b'i' && next(1) == b'a',
            b'b' | b'B' if next(1) == b'e' && next(2) == b'a' && next(3) == b'r' => {
                return named::bearer(self.text, self.floor, at);
            }
            _ => false,
        };
        if secret { named::named(self.text, self.floor, at) } else { None }
    }

    /// A card, or a number that is none; then it is passed over whole.
    fn digits(&mut self, at: usize) -> Option<Found> {
        let run = self.bytes.get(at..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at = at + run;
        shapes::card(self.bytes, self.floor, at)
    }

    /// A colon or an equals sign: inside a mark of ours, inside an address, or after a name that no
    /// other byte gives away.
    fn mark_or_pair(&mut self, at: usize) -> Option<Found> {
        if let Some(end) = mark_around(self.bytes, at) {
            self.floor = end;
            self.at = end;
            return None;
        }
        if self.bytes.get(at..).is_some_and(|rest| rest.starts_with(b"://")) {
            return shapes::address(self.bytes, self.floor, at);
        }
        named::paired(self.text, self.floor, at)
    }
}

/// Where the mark ends whose colon this is.
fn mark_around(bytes: &[u8], colon: usize) -> Option<usize> {
    let start = (colon + 1).checked_sub(MARK.len())?;
    let rest = bytes.get(start..)?.strip_prefix(MARK)?;
    let kinds: [&[u8]; 4] = [b"key]", b"token]", b"password]", b"card]"];
    kinds.iter().find(|kind| rest.starts_with(kind)).map(|kind| colon + 1 + kind.len())
}

/// Whether a secret, or the name before one, could be known by this byte.
fn is_trigger(byte: u8) -> bool {
    TRIGGERS.get(usize::from(byte)).copied().unwrap_or(false)
}

static TRIGGERS: [bool; 256] = {
    let mut table = [false; 256];
    let bytes = b"0123456789-_.:=AJwWkKcCpPzZbB\xef";
    let mut at = 0;
    while at < bytes.len() {
        #[expect(clippy::indexing_slicing, reason = "worked out when compiled")]
        {
            table[bytes[at] as usize] = true;
        }
        at += 1;
    }
    table
};

/// The byte at this place; nought beyond the ends.
fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

/// The byte before this place, looking back no further than `floor`.
fn before(bytes: &[u8], floor: usize, at: usize) -> u8 {
    if at > floor { byte(bytes, at - 1) } else { 0 }
}

/// Whether a name could go on with this byte.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests;
