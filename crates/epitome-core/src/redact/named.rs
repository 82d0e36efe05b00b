//! Secrets known by the name before them: `PASSWORD=`, `"api_key": `, `--token `, `my password is`.
//!
//! A name alone proves nothing: programs, manuals and people speak of passwords all day. So what
//! follows is judged too, the more strictly the looser the form. In `PASSWORD=…` nearly anything is
//! one; in a sentence only what no plain word looks like.

use super::{Found, Kind, MARK, before, byte, is_word};

/// More of a value is not read before it is known to be a secret.
const MOST_JUDGED: usize = 256;

/// How name and value are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `NAME=value`, `?name=value`, `--name=value`: made to carry a value.
    Tight,
    /// `name: value`, `name = value`, `--name value`, `<name>value`: also how code and manuals look.
    Loose,
    /// `the name is value`.
    Prose,
}

/// What sort of secret a name says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Password,
    Token,
    Key,
    /// Some key; only its value can tell whether it is a secret one.
    SomeKey,
    /// The header whose value starts with a scheme.
    Authorization,
}

impl Class {
    fn kind(self) -> Kind {
        match self {
            Self::Password => Kind::Password,
            Self::Token | Self::Authorization => Kind::Token,
            Self::Key | Self::SomeKey => Kind::Key,
        }
    }
}

/// The secret after the name that this byte belongs to, if there is one.
pub(super) fn named(text: &str, floor: usize, at: usize) -> Option<Found> {
    let bytes = text.as_bytes();
    let in_name = |byte: u8| is_word(byte) || matches!(byte, b'-' | b'.');
    let mut from = at;
    while at - from < 64 && in_name(before(bytes, floor, from)) {
        from -= 1;
    }
    let mut to = at + 1;
    while to - at < 32 && in_name(byte(bytes, to)) {
        to += 1;
    }
    while matches!(byte(bytes, to - 1), b'-' | b'.') && to > at + 1 {
        to -= 1;
    }
    let dashes = bytes.get(from..at)?.iter().take_while(|byte| matches!(byte, b'-' | b'.')).count();
    from += dashes;
    let name = bytes.get(from..to)?;
    let class = classify(name, bytes.get(floor..from)?)?;
    let flag = dashes > 0 && byte(bytes, from - 1) == b'-';
    value_after(text, floor, Name { from, to, class, flag })
}

/// Names that none of the bytes we stop at gives away, before a colon or an equals sign.
pub(super) fn paired(text: &str, floor: usize, at: usize) -> Option<Found> {
    let bytes = text.as_bytes();
    let head = bytes.get(floor.max(at.saturating_sub(24))..at)?;
    if byte(bytes, at) == 0xef && !bytes.get(at..)?.starts_with("：".as_bytes()) {
        return None;
    }
    let name = head.trim_ascii_end();
    let name = name.strip_suffix(b"\"").or_else(|| name.strip_suffix(b"'")).unwrap_or(name);
    if name.len() < 4 {
        return None;
    }
    let short = name.get(name.len() - 4..).is_some_and(|end| end.eq_ignore_ascii_case(b"pass"))
        && !name.len().checked_sub(5).is_some_and(|at| byte(name, at).is_ascii_alphanumeric());
    let foreign = || {
        let words = [
            "mot de passe",
            "contraseña",
            "senha",
            "hasło",
            "пароль",
            "密码",
            "密碼",
            "パスワード",
            "비밀번호",
        ];
        words.iter().any(|word| {
            let start = name.len().checked_sub(word.len());
            start
                .and_then(|start| name.get(start..))
                .is_some_and(|end| end.eq_ignore_ascii_case(word.as_bytes()))
        }) || name.ends_with("Пароль".as_bytes())
    };
    let last = byte(name, name.len() - 1);
    if !short && !(matches!(last, b'e' | b'a' | b'o' | b'E' | b'A' | b'O' | 0x80..) && foreign()) {
        return None;
    }
    let to = floor.max(at.saturating_sub(24)) + name.len();
    let mut from = to;
    while to - from < 64 && is_word(before(bytes, floor, from)) {
        from -= 1;
    }
    value_after(text, floor, Name { from, to, class: Class::Password, flag: false })
}

/// `Bearer x`, wherever it stands.
pub(super) fn bearer(text: &str, floor: usize, at: usize) -> Option<Found> {
    let bytes = text.as_bytes();
    let word = bytes.get(at..at + 7)?;
    if !word.eq_ignore_ascii_case(b"bearer ") || is_word(before(bytes, floor, at)) {
        return None;
    }
    let short = value(bytes, at + 7, false, MOST_JUDGED)?;
    let shown = bytes.get(short.from..short.to)?;
    let secret = shown.len() >= 12 && Looks::of(shown).is_drawn() && !is_stand_in(shown, Class::Token);
    let whole = if secret { value(bytes, at + 7, false, usize::MAX)? } else { return None };
    Some(Found { from: whole.from, to: whole.to, kind: Kind::Token })
}

/// What a name says it holds, by its last word; `None` where that is nothing secret.
fn classify(name: &[u8], head: &[u8]) -> Option<Class> {
    let mut words = words_backwards(name);
    let mut last = words.next()?;
    const AFTER: [&[u8]; 14] = [
        b"prod",
        b"production",
        b"dev",
        b"test",
        b"staging",
        b"local",
        b"value",
        b"plain",
        b"new",
        b"old",
        b"base",
        b"raw",
        b"string",
        b"env",
    ];
    if is_one_of(last, &AFTER) {
        last = words.next()?;
    }
    let ends = |end: &[u8]| {
        last.len() >= end.len()
            && last.get(last.len() - end.len()..).is_some_and(|l| l.eq_ignore_ascii_case(end))
    };
    if ends(b"password")
        || ends(b"passwd")
        || is_one_of(last, &[b"pwd", b"passphrase", b"passcode", b"passwort"])
    {
        return Some(Class::Password);
    }
    let mut earlier = || words.next().or_else(|| said_before(head));
    if is_one_of(last, &[b"authtoken", b"accesstoken", b"apitoken", b"refreshtoken"]) {
        return Some(Class::Token);
    }
    if is_one_of(last, &[b"token"]) {
        const COUNTED: [&[u8]; 22] = [
            b"max",
            b"min",
            b"per",
            b"next",
            b"page",
            b"stop",
            b"eos",
            b"bos",
            b"pad",
            b"unk",
            b"sep",
            b"cls",
            b"mask",
            b"num",
            b"continuation",
            b"cancellation",
            b"special",
            b"last",
            b"first",
            b"each",
            b"every",
            b"unexpected",
        ];
        return (!earlier().is_some_and(|word| is_one_of(word, &COUNTED))).then_some(Class::Token);
    }
    if is_one_of(last, &[b"secret", b"apikey", b"secretkey", b"accesskey", b"privatekey", b"clientsecret"]) {
        return Some(Class::Key);
    }
    if is_one_of(last, &[b"key"]) {
        const SECRET: [&[u8]; 16] = [
            b"api",
            b"access",
            b"private",
            b"secret",
            b"auth",
            b"encryption",
            b"signing",
            b"master",
            b"account",
            b"deploy",
            b"license",
            b"ssh",
            b"service",
            b"app",
            b"subscription",
            b"admin",
        ];
        if earlier().is_some_and(|word| is_one_of(word, &SECRET)) {
            return Some(Class::Key);
        }
        let shouted = name.len() > 4 && !name.iter().any(u8::is_ascii_lowercase);
        return shouted.then_some(Class::SomeKey);
    }
    is_one_of(last, &[b"authorization"]).then_some(Class::Authorization)
}

fn is_one_of(word: &[u8], names: &[&[u8]]) -> bool {
    names.iter().any(|name| word.eq_ignore_ascii_case(name))
}

/// The words of a name, last first: `accessToken`, `access_token` and `access-token` alike.
fn words_backwards(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = name;
    std::iter::from_fn(move || {
        while let Some((last, head)) = rest.split_last()
            && !last.is_ascii_alphabetic()
        {
            rest = head;
        }
        let mut start = rest.len();
        while start > 0 && byte(rest, start - 1).is_ascii_alphabetic() {
            start -= 1;
            // A capital after a small letter starts a word.
            let capital = byte(rest, start).is_ascii_uppercase();
            if capital && start > 0 && byte(rest, start - 1).is_ascii_lowercase() {
                break;
            }
        }
        let (head, word) = rest.split_at_checked(start)?;
        rest = head;
        (!word.is_empty()).then_some(word)
    })
}

/// The word before a name that is two words: `API key`.
fn said_before(head: &[u8]) -> Option<&[u8]> {
    let head = head.strip_suffix(b" ").or_else(|| head.strip_suffix(b"-"))?;
    let start = head.iter().rev().take(24).take_while(|byte| byte.is_ascii_alphabetic()).count();
    head.get(head.len() - start..).filter(|word| !word.is_empty())
}

struct Name {
    from: usize,
    to: usize,
    class: Class,
    /// Whether it is an option of a command: `--token`.
    flag: bool,
}

/// Reads on from a name: what binds it to a value, and the value.
fn value_after(text: &str, floor: usize, name: Name) -> Option<Found> {
    let bytes = text.as_bytes();
    let mut at = name.to;
    let closed = at;
    while at - closed < 4 && matches!(byte(bytes, at), b'"' | b'\'' | b'`' | b'\\' | b']' | b'*') {
        at += 1;
    }
    let quoted_name = at > closed;
    let gap = at;
    while at - gap < 8 && matches!(byte(bytes, at), b' ' | b'\t') {
        at += 1;
    }
    let spaced = at > gap;
    let in_query = matches!(before(bytes, floor, name.from), b'?' | b'&');
    let shouted = bytes.get(name.from..name.to)?.iter().all(|byte| !byte.is_ascii_lowercase());
    let rest = bytes.get(at..)?;
    let (form, skip) = match rest {
        [b'=', b'=' | b'~', ..] | [b':', b':', ..] => return None,
        [b'=', b'>', ..] | [b':', b'=', ..] => (Form::Loose, 2),
        [b'=', ..] if in_query || (!spaced && (shouted || name.flag)) => (Form::Tight, 1),
        [b'=' | b':', ..] => (Form::Loose, 1),
        [b'?', b':', ..] => (Form::Loose, 2),
        [b'>', ..] if before(bytes, floor, name.from) == b'<' => (Form::Loose, 1),
        [0xef, 0xbc, 0x9a, ..] => (Form::Loose, 3),
        [b'\'' | b'"', ..] if spaced => (Form::Prose, 0),
        _ if name.flag && spaced && !quoted_name => (Form::Loose, 0),
        _ if spaced => (Form::Prose, copula(rest)?),
        _ => return None,
    };
    at += skip;
    let gap = at;
    while at - gap < 8 && matches!(byte(bytes, at), b' ' | b'\t' | b'*') {
        at += 1;
    }
    let mut kind = name.class.kind();
    let mut class = name.class;
    let opened = usize::from(byte(bytes, at) == b'\\');
    let opened = opened + usize::from(matches!(byte(bytes, at + opened), b'"' | b'\''));
    let schemed = matches!(class, Class::Authorization | Class::Token);
    if let Some(scheme) = scheme(bytes.get(at + opened..)?).filter(|_| schemed) {
        // The quote was opened before the scheme, and is closed after the value.
        at += opened + scheme;
        class = Class::Token;
        if byte(bytes, at.saturating_sub(2)) | 0x20 == b'c' {
            kind = Kind::Password;
        }
    } else if class == Class::Authorization {
        class = Class::Token;
    }
    let short = value(bytes, at, in_query, MOST_JUDGED)?;
    let shown = bytes.get(short.from..short.to)?;
    let marked = contains(shown, MARK) || bytes.get(short.to..)?.starts_with(MARK);
    let working_folder = is_one_of(bytes.get(name.from..name.to)?, &[b"pwd", b"oldpwd"])
        && matches!(byte(shown, 0), b'/' | b'~' | b'.');
    if marked || working_folder || !is_secret(class, form, short.quoted, shown) {
        return None;
    }
    let whole = value(bytes, at, in_query, usize::MAX)?;
    Some(Found { from: whole.from, to: whole.to, kind })
}

/// The length of `is `, `was `, `to `, where a sentence gives a name its value.
fn copula(rest: &[u8]) -> Option<usize> {
    let words: [&[u8]; 7] = [b"is ", b"was ", b"to ", b"is: ", b"ist ", b"est ", b"es "];
    words.iter().find(|word| rest.len() >= word.len() && rest.starts_with(word)).map(|word| word.len())
}

/// The length of `Bearer `, `Basic `, `Token `.
fn scheme(rest: &[u8]) -> Option<usize> {
    let words: [&[u8]; 5] = [b"bearer ", b"basic ", b"token ", b"apikey ", b"key "];
    let is = |word: &&&[u8]| rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    words.iter().find(is).map(|word| word.len())
}

struct Value {
    from: usize,
    to: usize,
    quoted: bool,
}

/// The value that starts here: what the quotes hold, or everything up to a space or the like. Of a
/// longer one, the first `most` bytes.
fn value(bytes: &[u8], at: usize, in_query: bool, most: usize) -> Option<Value> {
    let mut from = at;
    let prefixed = matches!(byte(bytes, from), b'b' | b'r' | b'f' | b'u' | b'@');
    if prefixed && matches!(byte(bytes, from + 1), b'"' | b'\'') {
        from += 1;
    }
    let escaped = byte(bytes, from) == b'\\' && matches!(byte(bytes, from + 1), b'"' | b'\'');
    let quote = byte(bytes, from + usize::from(escaped));
    if matches!(quote, b'"' | b'\'' | b'`') {
        from += 1 + usize::from(escaped);
        let mut to = from;
        loop {
            match byte(bytes, to) {
                0 | b'\n' | b'\r' => break,
                _ if to - from >= most => break,
                b'\\' if escaped && byte(bytes, to + 1) == quote => break,
                b'\\' => to += 1 + usize::from(byte(bytes, to + 1).is_ascii_graphic()),
                here if here == quote && !escaped => break,
                _ => to += 1,
            }
        }
        return Some(Value { from, to: to.min(bytes.len()), quoted: true });
    }
    let ends = |byte: u8| {
        byte.is_ascii_whitespace()
            || matches!(byte, b'"' | b'\'' | b'`' | b'<' | b'>' | b';' | b'\\' | 0)
            || (in_query && matches!(byte, b'&' | b'#'))
            // Scripts without spaces, and quotes and dots that only look like ours.
            || byte >= 0xe2
    };
    let length = bytes.get(from..)?.iter().take(most).take_while(|byte| !ends(**byte)).count();
    let mut to = from + length;
    while to > from && matches!(byte(bytes, to - 1), b'.' | b',' | b':' | b')' | b']' | b'}' | b'*') {
        to -= 1;
    }
    (to > from).then_some(Value { from, to, quoted: false })
}

fn contains(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}

/// A value by its letters.
#[derive(Default)]
struct Looks {
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
    fn of(value: &[u8]) -> Self {
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
    fn is_drawn(&self) -> bool {
        (self.letters() > 0 && self.digits > 0)
            || (self.odd > 0 && self.letters() + self.digits >= 4)
            || (self.length >= 20 && self.small > 2 && self.capital > 2 && self.joints == 0)
    }
}

/// Whether a value is one that its name promises.
fn is_secret(class: Class, form: Form, quoted: bool, value: &[u8]) -> bool {
    let looks = Looks::of(value);
    if is_stand_in(value, class) || (!quoted && form != Form::Tight && is_code(value)) {
        return false;
    }
    if class == Class::SomeKey {
        return form == Form::Tight && looks.length >= 20 && looks.digits > 1 && looks.letters() > 1;
    }
    if looks.letters() == 0 && looks.odd == 0 {
        // Counts, dates and sizes come after `token` and `key`; a number is only ever a password.
        let least = if form == Form::Prose { 6 } else { 4 };
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
        Form::Tight => looks.is_drawn() || class == Class::Password || looks.length >= 16,
        _ if quoted && class == Class::Password => looks.is_drawn() || looks.length >= 6,
        Form::Loose | Form::Prose => looks.is_drawn() && looks.length >= least.max(6 - looks.odd.min(2)),
    }
}

/// Whether it only stands for a secret: `${PASSWORD}`, `<your-key>`, `****`, `required`, `None`.
fn is_stand_in(value: &[u8], class: Class) -> bool {
    let name_only = |rest: &[u8]| !rest.is_empty() && rest.iter().all(|byte| is_word(*byte));
    match value {
        [] | [b'<' | b'{' | b'[' | b'(', ..] | [b'$', b'{' | b'(' | b'<', ..] => return true,
        [b'$', rest @ ..] if name_only(rest) && !rest.first().is_some_and(u8::is_ascii_digit) => return true,
        [b'%', rest @ .., b'%'] if name_only(rest) => return true,
        [b'%', b's' | b'd' | b'v' | b'q' | b'(' | b'{'] | [b'%', b'(', ..] => return true,
        _ => {}
    }
    if value.windows(2).any(|two| two == b"${" || two == b"{{") {
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
    let holds = |word: &&[u8]| value.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word));
    let said: [&[u8]; 8] =
        [b"redacted", b"your-", b"your_", b"changeme", b"placeholder", b"example", b"xxxx", b"_here"];
    if said.iter().any(|word| holds(&word)) {
        return true;
    }
    // `password = new_password`, `"token": "token"`: its own name again. People do choose `password1`.
    let digits = value.iter().any(u8::is_ascii_digit);
    let own: [&[u8]; 7] = [b"password", b"passwd", b"passwort", b"secret", b"token", b"api_key", b"apikey"];
    let names_itself = own.iter().any(|word| holds(&word));
    names_itself && value.len() < 24 && (!digits || class != Class::Password)
}

/// What is written where a secret would be, and is none. With a digit, or they would not be taken for
/// one where that matters.
const WORDS: &[&[u8]] = &[
    b"none",
    b"null",
    b"nil",
    b"undefined",
    b"true",
    b"false",
    b"required",
    b"optional",
    b"string",
    b"text",
    b"bytes",
    b"varchar",
    b"integer",
    b"number",
    b"boolean",
    b"object",
    b"unknown",
    b"empty",
    b"missing",
    b"invalid",
    b"incorrect",
    b"wrong",
    b"expired",
    b"valid",
    b"unset",
    b"hidden",
    b"masked",
    b"default",
    b"disabled",
    b"enabled",
    b"prompt",
    b"stdin",
    b"random",
    b"generated",
    b"changed",
    b"encrypted",
    b"hashed",
    b"bearer",
    b"basic",
    b"sha256",
    b"sha512",
    b"base64",
    b"oauth2",
    b"argon2",
    b"argon2id",
    b"uint32",
    b"uint64",
    b"float64",
    b"forgotten",
    b"confirm",
    b"confirmation",
    b"redacted",
    b"sensitive",
    b"removed",
    b"username",
    b"email",
    b"please",
    b"update",
    b"create",
    b"delete",
    b"change",
];

/// Whether it is a piece of a program rather than a value: a call, an index, a chain of names.
fn is_code(value: &[u8]) -> bool {
    let first = value.iter().take_while(|byte| is_word(**byte)).count();
    let head = value.get(..first).unwrap_or(value);
    let named = head.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_');
    let plain = !head.iter().any(u8::is_ascii_digit);
    match value.get(first..) {
        Some([b'(' | b'[', ..]) => named,
        Some([b'.', next, ..] | [b':', b':', next, ..] | [b'-', b'>', next, ..] | [b'?', b'.', next, ..]) => {
            named && plain && next.is_ascii_alphabetic()
        }
        Some([b'&', ..]) => first == 0,
        _ => false,
    }
}
