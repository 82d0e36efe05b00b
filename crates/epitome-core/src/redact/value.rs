//! Whether what follows a secret's name is a secret.

use std::ops::Range;
use std::sync::LazyLock;

use regex::bytes::Regex;

use super::{KEY, PASSWORD, TOKEN, contains};
use crate::pattern::pattern;

/// How name and value are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// `NAME=value`, `?name=value`, `--name=value`: made to carry a value.
    Tight,
    /// `name: value`, `name = value`, `--name value`, `<name>value`: also how code and manuals look.
    Loose,
    /// `the name is value`.
    Prose,
    /// `with name value`: nothing between them.
    Beside,
}

/// What sort of secret a name says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Password,
    Token,
    Key,
    /// Some key; only its value can tell whether it is a secret one.
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

/// The value that a text starts with, and whether it stands in quotes: what these hold, or everything up to a space or
/// the like. Scripts without spaces end it too, and quotes and dots that only look like ours.
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

/// A value by its letters.
struct Looks {
    length: usize,
    small: usize,
    capital: usize,
    digits: usize,
    spaces: usize,
    /// What hardly a word has: `!@#$` and the like.
    odd: usize,
}

impl Looks {
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

    /// Whether no plain word looks so.
    fn is_drawn(&self) -> bool {
        let whole = self.letters() + self.digits + self.spaces + self.odd == self.length;
        (self.letters() > 0 && self.digits > 0)
            || (self.odd > 0 && self.letters() + self.digits >= 4)
            || (self.length >= 20 && self.small > 2 && self.capital > 2 && whole)
    }
}

/// Whether no plain word looks so.
pub(super) fn is_drawn(value: &[u8]) -> bool {
    Looks::of(value).is_drawn()
}

/// Whether a value is one that its name promises.
pub(super) fn is_secret(class: Class, form: Form, quoted: bool, value: &[u8]) -> bool {
    looks_secret(class, form, quoted, &Looks::of(value))
        && !(is_stand_in(value, class) || (!quoted && form != Form::Tight && CODE.is_match(value)))
}

/// The same by its letters alone.
fn looks_secret(class: Class, form: Form, quoted: bool, looks: &Looks) -> bool {
    if class == Class::SomeKey {
        return form == Form::Tight && looks.length >= 20 && looks.digits > 1 && looks.letters() > 1;
    }
    if looks.letters() == 0 && looks.odd == 0 {
        // Counts, dates and sizes come after `token` and `key`; a number is only ever a password.
        let least = if form == Form::Tight || quoted { 4 } else { 6 };
        let number = class == Class::Password && looks.digits == looks.length && looks.digits >= least;
        return number && form != Form::Beside;
    }
    let least = if class == Class::Password { 4 } else { 8 };
    if looks.length < least {
        return false;
    }
    if looks.spaces > 0 {
        // A phrase: few words, and one that is none.
        return class == Class::Password && looks.spaces < 3 && looks.odd > 0 && looks.digits > 0;
    }
    match form {
        Form::Beside => {
            let least = if class == Class::Password { 6 } else { 16 };
            looks.is_drawn() && looks.digits > 0 && looks.length >= least
        }
        Form::Tight => looks.is_drawn() || class == Class::Password || looks.length >= 16,
        _ if quoted && class == Class::Password => looks.is_drawn() || looks.length >= 6,
        Form::Loose | Form::Prose => looks.is_drawn() && looks.length >= least.max(6 - looks.odd.min(2)),
    }
}

/// What only stands for a secret, as a whole: `${PASSWORD}`, `<your-key>`, `required`, `None`. Words with a digit are
/// here that would be taken for one, words without where any would be.
static STAND_IN: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix-u) ^ (?: [<{\[(] | \$[{(<] | \$[a-z_]\w*$ | ![a-z_]+$ | %\w+%$ | %[sdvq{]$ | %\(
            # A variable, and what is done with it: `$this->{password}`, `$token:expr`, `$env[KEY]`.
          | \$[a-z_]+ (?: -$ | [\[{(:] )
          | (?: none | null | nil | undefined | true | false | required | optional | string | text | bytes | varchar
              | integer | number | boolean | object | unknown | empty | missing | invalid | incorrect | wrong
              | expired | valid | unset | hidden | masked | default | disabled | enabled | prompt | stdin | random
              | generated | changed | encrypted | hashed | bearer | basic | sha256 | sha512 | base64 | oauth2
              | argon2 | argon2id | uint32 | uint64 | float64 | forgotten | confirm | confirmation | redacted
              | sensitive | removed | username | email | please | update | create | delete | change )$ )
          # Somewhere in it.
          | \$\{ | \{\{ | \*\*\* | \.\.\. | (?u-i: … | • ) | redacted | your[-_] | changeme | placeholder",
    )
});

/// What sounds like a stand-in, and is a value where it has a figure in it: `Example2024!`, `abc_here_9f8e7d`.
static SOUNDS_SO: LazyLock<Regex> = LazyLock::new(|| pattern("(?i-u)example|xxxx|_here"));

/// The name of a secret once more: `password = new_password`, `"token": "token"`.
static OWN_NAME: LazyLock<Regex> =
    LazyLock::new(|| pattern("(?i-u)password|passwd|passwort|secret|token|api_key|apikey"));

/// Whether it only stands for a secret.
pub(super) fn is_stand_in(value: &[u8], class: Class) -> bool {
    let digits = value.iter().any(u8::is_ascii_digit);
    // One letter again and again.
    value.iter().all(|byte| Some(byte) == value.first())
        || STAND_IN.is_match(value)
        // An address is no secret; a password inside it is found for itself.
        || (class != Class::Password && contains(value, "://"))
        || (!digits && SOUNDS_SO.is_match(value))
        // People do choose `password1`.
        || (value.len() < 24 && (!digits || class != Class::Password) && OWN_NAME.is_match(value))
}

/// A piece of a program rather than a value: a call, an index, a chain of names, a number in hexadecimal, or what is put
/// together as only names in programs are: `MAX_RETRIES_3`, `_unused`, `type_5`.
static CODE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?x-u) ^ (?: [A-Za-z_]\w* !? [(\[] | [A-Za-z_]\w* !\{ | [A-Za-z_]+ (?: \. | :: | -> | \?\. ) [A-Za-z_] | &
          | 0x\w{0,8}$ | [A-Z\d]* _ [A-Z\d_]*$ | (?: [A-Za-z]* | \d\d? ) (?: _ (?: [A-Za-z]* | \d\d? ) )+$ )",
    )
});
