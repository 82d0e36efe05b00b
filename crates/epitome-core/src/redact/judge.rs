//! Whether what follows a secret's name is a secret.

use super::{Kind, is_word};

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
    /// The header whose value starts with a scheme.
    Authorization,
}

impl Class {
    pub(super) fn kind(self) -> Kind {
        match self {
            Self::Password => Kind::Password,
            Self::Token | Self::Authorization => Kind::Token,
            Self::Key | Self::SomeKey => Kind::Key,
        }
    }
}

/// Whether it is one of these words, however it is capitalized.
pub(super) fn is_one_of(word: &[u8], names: &str) -> bool {
    names.split(' ').any(|name| word.eq_ignore_ascii_case(name.as_bytes()))
}

pub(super) fn contains(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}

/// A value by its letters.
#[derive(Default)]
pub(super) struct Looks {
    length: usize,
    small: usize,
    capital: usize,
    digits: usize,
    /// What names and paths have too: `-_./:,`.
    joints: usize,
    spaces: usize,
    /// What hardly a word has: `!@#$` and the like.
    odd: usize,
}

impl Looks {
    pub(super) fn of(value: &[u8]) -> Self {
        let mut looks = Self { length: value.len(), ..Self::default() };
        for byte in value {
            let count = match byte {
                b'a'..=b'z' | 0x80.. => &mut looks.small,
                b'A'..=b'Z' => &mut looks.capital,
                b'0'..=b'9' => &mut looks.digits,
                b' ' | b'\t' => &mut looks.spaces,
                b'!' | b'@' | b'#' | b'$' | b'%' | b'^' | b'&' | b'*' | b'+' | b'=' | b'~' | b'?' | b'|' => {
                    &mut looks.odd
                }
                _ => &mut looks.joints,
            };
            *count += 1;
        }
        looks
    }

    fn letters(&self) -> usize {
        self.small + self.capital
    }

    /// Whether no plain word looks so.
    pub(super) fn is_drawn(&self) -> bool {
        (self.letters() > 0 && self.digits > 0)
            || (self.odd > 0 && self.letters() + self.digits >= 4)
            || (self.length >= 20 && self.small > 2 && self.capital > 2 && self.joints == 0)
    }
}

/// Whether a value is one that its name promises.
pub(super) fn is_secret(class: Class, form: Form, quoted: bool, value: &[u8]) -> bool {
    looks_secret(class, form, quoted, &Looks::of(value))
        && !(is_stand_in(value, class) || (!quoted && form != Form::Tight && is_code(value)))
}

/// The same by its letters alone.
fn looks_secret(class: Class, form: Form, quoted: bool, looks: &Looks) -> bool {
    if class == Class::SomeKey {
        return form == Form::Tight && looks.length >= 20 && looks.digits > 1 && looks.letters() > 1;
    }
    if looks.letters() == 0 && looks.odd == 0 && form == Form::Beside {
        return false;
    }
    if looks.letters() == 0 && looks.odd == 0 {
        // Counts, dates and sizes come after `token` and `key`; a number is only ever a password.
        let least = if form == Form::Tight || quoted { 4 } else { 6 };
        return class == Class::Password && looks.digits == looks.length && looks.digits >= least;
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

/// Whether it only stands for a secret: `${PASSWORD}`, `<your-key>`, `****`, `required`, `None`.
pub(super) fn is_stand_in(value: &[u8], class: Class) -> bool {
    let name_only = |rest: &[u8]| !rest.is_empty() && rest.iter().all(|byte| is_word(*byte));
    match value {
        [] | [b'<' | b'{' | b'[' | b'(', ..] | [b'$', b'{' | b'(' | b'<', ..] => return true,
        [b'$', rest @ ..] if name_only(rest) && !rest.first().is_some_and(u8::is_ascii_digit) => return true,
        [b'!', rest @ ..] if name_only(rest) && !rest.iter().any(u8::is_ascii_digit) => return true,
        [b'%', rest @ .., b'%'] if name_only(rest) => return true,
        [b'%', b's' | b'd' | b'v' | b'q' | b'(' | b'{'] | [b'%', b'(', ..] => return true,
        _ => {}
    }
    if let [b'$', rest @ ..] = value {
        // A variable, and what is done with it: `$this->{password}`, `$token:expr`, `$env[KEY]`.
        let name = rest.iter().take_while(|byte| byte.is_ascii_alphabetic() || **byte == b'_').count();
        if name > 0 && matches!(rest.get(name..), Some([b'-'] | [b'[' | b'{' | b'(' | b':', ..])) {
            return true;
        }
    }
    // An address is no secret; a password inside it is found for itself.
    let address = class != Class::Password && contains(value, b"://");
    if address || value.windows(2).any(|two| two == b"${" || two == b"{{") {
        return true;
    }
    // One letter again and again, a row of stars, an ellipsis.
    let same = value.iter().all(|byte| Some(byte) == value.first());
    if same || contains(value, b"***") || contains(value, b"...") || contains(value, "…".as_bytes()) {
        return true;
    }
    if contains(value, "•".as_bytes()) || is_one_of(value, WORDS) {
        return true;
    }
    let holds =
        |word: &str| value.windows(word.len().max(1)).any(|part| part.eq_ignore_ascii_case(word.as_bytes()));
    // `Example2024!` and `abc_here_9f8e7d` only sound like one; with a figure in them they are values.
    let digits = value.iter().any(u8::is_ascii_digit);
    const SAID: &str = "redacted your- your_ changeme placeholder";
    const SAID_PLAINLY: &str = "example xxxx _here";
    if SAID.split(' ').any(holds) || (!digits && SAID_PLAINLY.split(' ').any(holds)) {
        return true;
    }
    // `password = new_password`, `"token": "token"`: its own name again. People do choose `password1`.
    const OWN: &str = "password passwd passwort secret token api_key apikey";
    let names_itself = OWN.split(' ').any(holds);
    names_itself && value.len() < 24 && (!digits || class != Class::Password)
}

/// What is written where a secret would be, and is none. With a digit, or they would not be taken for
/// one where that matters.
const WORDS: &str = "none null nil undefined true false required optional string text bytes varchar integer number \
    boolean object unknown empty missing invalid incorrect wrong expired valid unset hidden masked \
    default disabled enabled prompt stdin random generated changed encrypted hashed bearer basic \
    sha256 sha512 base64 oauth2 argon2 argon2id uint32 uint64 float64 forgotten confirm \
    confirmation redacted sensitive removed username email please update create delete change";

/// Whether it is a piece of a program rather than a value: a call, an index, a chain of names, a
/// constant, a number in hexadecimal.
fn is_code(value: &[u8]) -> bool {
    let first = value.iter().take_while(|byte| is_word(**byte)).count();
    let head = value.get(..first).unwrap_or(value);
    let named = head.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_');
    let plain = !head.iter().any(u8::is_ascii_digit);
    match value.get(first..) {
        Some([b'(' | b'[', ..] | [b'!', b'(' | b'[' | b'{', ..]) => named,
        Some([b'.', next, ..] | [b':', b':', next, ..] | [b'-', b'>', next, ..] | [b'?', b'.', next, ..]) => {
            named && plain && (next.is_ascii_alphabetic() || *next == b'_')
        }
        Some([b'&', ..]) => first == 0,
        Some([]) => is_identifier(value) || (value.starts_with(b"0x") && value.len() <= 10),
        _ => false,
    }
}

/// Whether it is put together as only names in programs are: `MAX_RETRIES_3`, `_unused`, `type_5`.
fn is_identifier(value: &[u8]) -> bool {
    let alike = |part: &[u8]| {
        let digits = part.iter().filter(|byte| byte.is_ascii_digit()).count();
        digits == 0 || (digits == part.len() && digits < 3)
    };
    let shouted = !value.iter().any(u8::is_ascii_lowercase);
    value.contains(&b'_') && (shouted || value.split(|byte| *byte == b'_').all(alike))
}
