//! Decides whether the value after a secret's name is a secret.

use std::ops::Range;
use std::sync::LazyLock;

use regex::bytes::Regex;

use super::{KEY, PASSWORD, TOKEN, contains};
use crate::pattern::pattern;

/// The notation in which a name and its value are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notation {
    /// `NAME=value`, `?name=value` or `--name=value`. These forms are used to set a value.
    Tight,
    /// `name: value`, `name = value`, `--name value` or `<name>value`. These forms also occur in code and manuals.
    Loose,
    /// `the name is value`.
    Prose,
    /// `with name value`. There is no separator between the name and the value.
    Adjacent,
}

/// The kind of secret that a name describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Password,
    Token,
    Key,
    /// Any other key. Only the value shows whether the key is secret.
    SomeKey,
}

impl Class {
    pub(super) fn mark(self) -> &'static str {
        match self {
            Self::Password => PASSWORD,
            Self::Token => TOKEN,
            Self::Key | Self::SomeKey => KEY,
        }
    }
}

/// Returns the range of the value at the start of a text, and whether the value is quoted. A quoted value ends at the
/// closing quote. Any other value ends at whitespace or a similar character. It also ends at a character of a script
/// without spaces, and at a typographic quote or dot.
pub(super) fn value(text: &[u8], in_query: bool) -> Option<(Range<usize>, bool)> {
    let from = match text {
        [b'\\' | b'b' | b'r' | b'f' | b'u' | b'@', b'"' | b'\'', ..] => 2,
        [b'"' | b'\'' | b'`', ..] => 1,
        _ => {
            let ends = |byte: &u8| {
                byte.is_ascii_whitespace()
                    || matches!(byte, b'"' | b'\'' | b'`' | b'<' | b'>' | b';' | b'\\' | 0 | 0xe2..)
                    || (in_query && matches!(byte, b'&' | b'#'))
            };
            let bare = text.get(..text.iter().position(ends).unwrap_or(text.len()))?;
            let last = bare.iter().rposition(|byte| !b".,:)]}*".contains(byte))?;
            return Some((0..last + 1, false));
        }
    };
    let escaped = text.starts_with(b"\\");
    let (opened, _) = text.split_at_checked(from)?;
    let quote = opened.last()?;
    let mut to = from;
    while let Some(byte) = text.get(to).filter(|byte| !matches!(byte, 0 | b'\n' | b'\r')) {
        let closed = if escaped { *byte == b'\\' && text.get(to + 1) == Some(quote) } else { byte == quote };
        if closed {
            break;
        }
        to += if *byte == b'\\' { 2 } else { 1 };
    }
    Some((from..to.min(text.len()), true))
}

/// Counts of the kinds of characters in a value.
struct ValueShape {
    length: usize,
    small: usize,
    capital: usize,
    digits: usize,
    spaces: usize,
    /// Number of characters that words rarely contain, such as `!@#$`.
    odd: usize,
}

impl ValueShape {
    fn of(value: &[u8]) -> Self {
        let count = |is: fn(&u8) -> bool| value.iter().filter(|byte| is(byte)).count();
        Self {
            length: value.len(),
            small: count(|byte| byte.is_ascii_lowercase() || !byte.is_ascii()),
            capital: count(u8::is_ascii_uppercase),
            digits: count(u8::is_ascii_digit),
            spaces: count(|byte| matches!(byte, b' ' | b'\t')),
            odd: count(|byte| b"!@#$%^&*+=~?|".contains(byte)),
        }
    }

    fn letters(&self) -> usize {
        self.small + self.capital
    }

    /// Returns whether the value cannot be a plain word, so it was probably generated.
    fn is_generated(&self) -> bool {
        let whole = self.letters() + self.digits + self.spaces + self.odd == self.length;
        (self.letters() > 0 && self.digits > 0)
            || (self.odd > 0 && self.letters() + self.digits >= 4)
            || (self.length >= 20 && self.small > 2 && self.capital > 2 && whole)
    }
}

/// Returns whether the value cannot be a plain word, so it was probably generated.
pub(super) fn is_generated(value: &[u8]) -> bool {
    ValueShape::of(value).is_generated()
}

/// Returns whether a value is the kind of secret that its name describes.
pub(super) fn is_secret(class: Class, notation: Notation, quoted: bool, value: &[u8]) -> bool {
    has_secret_shape(class, notation, quoted, &ValueShape::of(value))
        && !(is_placeholder(value, class) || (!quoted && notation != Notation::Tight && CODE.is_match(value)))
}

/// Returns whether the character counts of a value match the kind of secret that its name describes.
fn has_secret_shape(class: Class, notation: Notation, quoted: bool, shape: &ValueShape) -> bool {
    if class == Class::SomeKey {
        return notation == Notation::Tight && shape.length >= 20 && shape.digits > 1 && shape.letters() > 1;
    }
    if shape.letters() == 0 && shape.odd == 0 {
        // After `token` and `key`, a plain number is usually a count, a date or a size. Therefore a plain number is
        // accepted only as a password.
        let least = if notation == Notation::Tight || quoted { 4 } else { 6 };
        let number = class == Class::Password && shape.digits == shape.length && shape.digits >= least;
        return number && notation != Notation::Adjacent;
    }
    let least = if class == Class::Password { 4 } else { 8 };
    if shape.length < least {
        return false;
    }
    if shape.spaces > 0 {
        // A passphrase has few words, with a digit and an unusual character.
        return class == Class::Password && shape.spaces < 3 && shape.odd > 0 && shape.digits > 0;
    }
    match notation {
        Notation::Adjacent => {
            let least = if class == Class::Password { 6 } else { 16 };
            shape.is_generated() && shape.digits > 0 && shape.length >= least
        }
        Notation::Tight => shape.is_generated() || class == Class::Password || shape.length >= 16,
        _ if quoted && class == Class::Password => shape.is_generated() || shape.length >= 6,
        Notation::Loose | Notation::Prose => {
            shape.is_generated() && shape.length >= least.max(6 - shape.odd.min(2))
        }
    }
}

/// Placeholders that are written instead of a secret: `${PASSWORD}`, `<your-key>`, `required`, `None`. The list
/// contains only words that would otherwise count as secrets. These are words with a digit, and plain words for
/// notations in which any word counts as a secret.
static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix-u) ^ (?: [<{\[(] | \$[{(<] | \$[a-z_]\w*$ | ![a-z_]+$ | %\w+%$ | %[sdvq{]$ | %\(
            # A variable and an operation on it: `$this->{password}`, `$token:expr`, `$env[KEY]`.
          | \$[a-z_]+ (?: -$ | [\[{(:] )
          | (?: none | null | nil | undefined | true | false | required | optional | string | text | bytes | varchar
              | integer | number | boolean | object | unknown | empty | missing | invalid | incorrect | wrong
              | expired | valid | unset | hidden | masked | default | disabled | enabled | prompt | stdin | random
              | generated | changed | encrypted | hashed | bearer | basic | sha256 | sha512 | base64 | oauth2
              | argon2 | argon2id | uint32 | uint64 | float64 | forgotten | confirm | confirmation | redacted
              | sensitive | removed | username | email | please | update | create | delete | change )$ )
          # Anywhere in the value.
          | \$\{ | \{\{ | \*\*\* | \.\.\. | (?u-i: … | • ) | redacted | your[-_] | changeme | placeholder",
    )
});

/// If a value contains one of these words and no digit, it is a placeholder. These values contain a digit and are
/// secrets: `Example2024!`, `abc_here_9f8e7d`.
static PLACEHOLDER_WORDS: LazyLock<Regex> = LazyLock::new(|| pattern("(?i-u)example|xxxx|_here"));

/// The name of a secret as part of its value: `password = new_password`, `"token": "token"`.
static OWN_NAME: LazyLock<Regex> =
    LazyLock::new(|| pattern("(?i-u)password|passwd|passwort|secret|token|api_key|apikey"));

/// Returns whether the value is a placeholder instead of a secret.
pub(super) fn is_placeholder(value: &[u8], class: Class) -> bool {
    let digits = value.iter().any(u8::is_ascii_digit);
    // A value of one repeated character is a placeholder.
    value.iter().all(|byte| Some(byte) == value.first())
        || PLACEHOLDER.is_match(value)
        // A URL is not a secret. A password inside it is found separately.
        || (class != Class::Password && contains(value, "://"))
        || (!digits && PLACEHOLDER_WORDS.is_match(value))
        // A password with a digit may contain its own name, because people choose passwords such as `password1`.
        || (value.len() < 24 && (!digits || class != Class::Password) && OWN_NAME.is_match(value))
}

/// Program code that is written instead of a value: a call, an index, a chain of names, or a hexadecimal number. Names
/// in a notation that only programs use also count as code: `MAX_RETRIES_3`, `_unused`, `type_5`.
static CODE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?x-u) ^ (?: [A-Za-z_]\w* !? [(\[] | [A-Za-z_]\w* !\{ | [A-Za-z_]+ (?: \. | :: | -> | \?\. ) [A-Za-z_] | &
          | 0x\w{0,8}$ | [A-Z\d]* _ [A-Z\d_]*$ | (?: [A-Za-z]* | \d\d? ) (?: _ (?: [A-Za-z]* | \d\d? ) )+$ )",
    )
});
