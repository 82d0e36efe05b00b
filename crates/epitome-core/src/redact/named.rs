//! Secrets known by the name before them: `PASSWORD=`, `"api_key": `, `--token `, `my password is`.
//!
//! A name alone proves nothing: programs, manuals and people speak of passwords all day. So what
//! follows is judged too, the more strictly the looser the form. In `PASSWORD=…` nearly anything is
//! one; in a sentence only what no plain word looks like.

use super::judge::{Class, Form, Looks, contains, is_one_of, is_secret, is_stand_in};
use super::{Found, Kind, MARK, before, byte, is_word};

/// More of a value is not read before it is known to be a secret.
const MOST_JUDGED: usize = 256;

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
    value_after(text, floor, &Name { from, to, class, flag })
}

/// Names that none of the bytes we stop at gives away, before a colon or an equals sign.
pub(super) fn paired(text: &str, floor: usize, at: usize) -> Option<Found> {
    let bytes = text.as_bytes();
    let head = bytes.get(floor.max(at.saturating_sub(24))..at)?;
    if byte(bytes, at) == 0xef && !bytes.get(at..)?.starts_with("：".as_bytes()) {
        return None;
    }
    let written = head.trim_ascii_end();
    let name = written.strip_suffix(b"\"").or_else(|| written.strip_suffix(b"'")).unwrap_or(written);
    if name.len() < 4 {
        return None;
    }
    // `DB_PASS=…` and `"pass": …`; but `PASS: …` is how tests report.
    let first = name.len() - 4;
    let short = name.get(first..).is_some_and(|end| end.eq_ignore_ascii_case(b"pass"))
        && match first.checked_sub(1).map(|at| byte(name, at)) {
            Some(b'_') => byte(bytes, at) == b'=' || name.len() < written.len(),
            Some(b'"' | b'\'') => name.len() < written.len(),
            _ => false,
        };
    const FOREIGN: &str = "mot de passe|contraseña|senha|hasło|пароль|Пароль|密码|密碼|パスワード|비밀번호";
    let ends_with = |word: &str| {
        let start = name.len().checked_sub(word.len());
        let end = start.and_then(|start| name.get(start..));
        end.is_some_and(|end| end.eq_ignore_ascii_case(word.as_bytes()))
    };
    let foreign = || FOREIGN.split('|').any(ends_with);
    let last = byte(name, name.len() - 1);
    let could_be = matches!(last | 0x20, b'e' | b'a' | b'o' | 0x80..);
    if !short && (!could_be || !foreign()) {
        return None;
    }
    let to = floor.max(at.saturating_sub(24)) + name.len();
    let mut from = to;
    while to - from < 64 && is_word(before(bytes, floor, from)) {
        from -= 1;
    }
    value_after(text, floor, &Name { from, to, class: Class::Password, flag: false })
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
    const AFTER: &str = "prod production dev test staging local value plain new old base raw string env";
    if is_one_of(last, AFTER) {
        last = words.next()?;
    }
    let ends = |end: &[u8]| {
        last.len() >= end.len()
            && last.get(last.len() - end.len()..).is_some_and(|l| l.eq_ignore_ascii_case(end))
    };
    if ends(b"password") || ends(b"passwd") || is_one_of(last, "pwd passphrase passcode passwort") {
        return Some(Class::Password);
    }
    let mut earlier = || words.next().or_else(|| said_before(head));
    if is_one_of(last, "authtoken accesstoken apitoken refreshtoken") {
        return Some(Class::Token);
    }
    if is_one_of(last, "token") {
        const COUNTED: &str = "max min per next page stop eos bos pad unk sep cls mask num continuation cancellation \
            special last first each every unexpected";
        return (!earlier().is_some_and(|word| is_one_of(word, COUNTED))).then_some(Class::Token);
    }
    if is_one_of(last, "secret apikey secretkey accesskey privatekey clientsecret") {
        return Some(Class::Key);
    }
    if is_one_of(last, "key") {
        const SECRET: &str = "api access private secret auth encryption signing master account deploy license ssh \
            service app subscription admin";
        if earlier().is_some_and(|word| is_one_of(word, SECRET)) {
            return Some(Class::Key);
        }
        let shouted = name.len() > 4 && !name.iter().any(u8::is_ascii_lowercase);
        return shouted.then_some(Class::SomeKey);
    }
    is_one_of(last, "authorization").then_some(Class::Authorization)
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
fn value_after(text: &str, floor: usize, name: &Name) -> Option<Found> {
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
        [b'=' | b'-', b'>', ..] | [b':', b'=', ..] => (Form::Loose, 2),
        [b'=', ..] if in_query || (!spaced && (shouted || name.flag)) => (Form::Tight, 1),
        [b'=' | b':', ..] => (Form::Loose, 1),
        [b'?', b':', ..] => (Form::Loose, 2),
        [b'>', ..] if before(bytes, floor, name.from) == b'<' => (Form::Loose, 1),
        [0xef, 0xbc, 0x9a, ..] => (Form::Loose, 3),
        [b',', ..] if name.flag && quoted_name => (Form::Loose, next_item(rest)?),
        [b',' | b'\n' | b'\r', ..] => (Form::Loose, value_field(rest)?),
        [b'\'' | b'"', ..] if spaced => (Form::Prose, 0),
        _ if name.flag && spaced && !quoted_name => (Form::Loose, 0),
        _ if spaced => copula(rest).map_or((Form::Beside, 0), |skip| (Form::Prose, skip)),
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
    let working_folder = is_one_of(bytes.get(name.from..name.to)?, "pwd oldpwd")
        && matches!(byte(shown, 0), b'/' | b'~' | b'.');
    if marked || working_folder || !is_secret(class, form, short.quoted, shown) {
        return None;
    }
    let whole = value(bytes, at, in_query, usize::MAX)?;
    Some(Found { from: whole.from, to: whole.to, kind })
}

/// The length of `is `, `was `, `to `, `for the server is `, where a sentence gives a name its value.
fn copula(rest: &[u8]) -> Option<usize> {
    const WORDS: &str = "is: |is |was |to |ist |est |es ";
    let starts = |rest: &[u8], words: &str| {
        words.split('|').find(|word| rest.starts_with(word.as_bytes())).map(str::len)
    };
    if let Some(direct) = starts(rest, WORDS) {
        return Some(direct);
    }
    starts(rest, "for |of |on ")?;
    let near = rest.get(..rest.len().min(48)).unwrap_or(rest);
    let clause =
        near.iter().position(|byte| matches!(byte, b'.' | b',' | b';' | b'\n')).unwrap_or(near.len());
    let near = near.get(..clause)?;
    let at = near.windows(4).position(|four| four == b" is ").map(|at| at + 4);
    at.or_else(|| near.windows(2).position(|two| two == b": ").map(|at| at + 2))
}

/// The length of `, "value": `, where lists give names and values in fields of their own.
fn value_field(rest: &[u8]) -> Option<usize> {
    let between = |byte: &&u8| byte.is_ascii_whitespace() || matches!(byte, b',' | b'"' | b'\'' | b'\\');
    let start = rest.iter().take(32).take_while(between).count();
    let field = rest.get(start..)?.get(..5)?;
    let colon = start + 5 + rest.get(start + 5..)?.iter().take(4).take_while(between).count();
    (field.eq_ignore_ascii_case(b"value") && byte(rest, colon) == b':').then_some(colon + 1)
}

/// The length of `, ` between an option and its value in a list of arguments:
/// `["--token", "x"]`. Another option is no value.
fn next_item(rest: &[u8]) -> Option<usize> {
    let gap = rest.iter().skip(1).take(32).take_while(|byte| byte.is_ascii_whitespace()).count();
    let item = rest.get(1 + gap..)?;
    let item = item.strip_prefix(b"\\").unwrap_or(item);
    matches!(item, [b'"' | b'\'', first, ..] if *first != b'-').then_some(1 + gap)
}

/// The password in `-u ann:password`, as commands are told who asks. `at` is the dash.
pub(super) fn login(bytes: &[u8], floor: usize, at: usize) -> Option<Found> {
    if is_word(before(bytes, floor, at)) {
        return None;
    }
    let given = value(bytes, at + 3, false, MOST_JUDGED)?;
    let shown = bytes.get(given.from..given.to)?;
    let colon = shown.iter().take(64).position(|byte| *byte == b':')?;
    let password = shown.get(colon + 1..)?;
    let secret =
        colon > 0 && is_secret(Class::Password, Form::Beside, false, password) && !contains(shown, MARK);
    let marked = bytes.get(given.to..)?.starts_with(MARK);
    (secret && !marked).then_some(Found { from: given.from + colon + 1, to: given.to, kind: Kind::Password })
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
