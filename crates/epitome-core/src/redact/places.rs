//! Finds the places where a secret could be, and decides which places contain a secret.
//!
//! Some secrets are recognised by their shape: a prefix, a header, a URL, a check digit. Others are recognised by the
//! name before them: `PASSWORD=`, `"api_key": `, `--token `, `my password is`. A name alone is not enough, because
//! programs, manuals and people often mention passwords. Therefore the value is examined too. The examination is
//! stricter if the notation is looser. After `PASSWORD=`, nearly any value counts as a secret. In a sentence, only a
//! value that cannot be a plain word counts as a secret.
//!
//! If a place contains no secret, the search continues at its second byte. To keep the running time linear in the
//! length of the text, the pattern reads only a little beyond the start of a place. For the same reason, the examined
//! part of a value has a maximum length.

use std::ops::Range;
use std::sync::LazyLock;

use regex::bytes::{Captures, Match, Regex};

use super::value::{Class, Notation, is_generated, is_placeholder, is_secret, value};
use super::{CARD, KEY, MARK, PASSWORD, TOKEN, contains};
use crate::pattern::pattern;

/// A secret's byte range and its marker.
type Secret = (Range<usize>, &'static str);

/// All candidate places. If two places begin at the same byte, the first alternative of the pattern is used.
pub(super) static PLACES: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?x-u)
    # A name, optionally closed by quotes or bold marks, and the separator before its value.
    (?: (?<name> (?i: passw(?:or)?d | passwort | passphrase | passcode | pwd | token | secret | key | authorization ) )
        (?: [-_.\d]* (?i: prod | production | dev | test | staging | local | value | plain | new | old | base | raw
            | string | env ) )? (?: [-_.\d]* [_\d] )?
      | (?<foreign> (?i: mot\ de\ passe | contrase(?u-i:ñ)a | senha | has(?u-i:ł)o )
            | (?u: [Пп]ароль | 密码 | 密碼 | パスワード | 비밀번호 ) )
      | (?<pass> (?: ["'] | (?<under> _ ) ) (?i: pass ) )
    )
    (?<close> ["'`\\\]*]{0,4} )
    (?: (?<far> [\ \t]{0,8} ) (?:
            (?<unlike> == | =~ | :: | :// )
          | (?<sign> => | -> | := | \?: | = | : | (?u: ： ) )
          | (?<tag> > )
            # `, "value": `, in lists that have separate fields for names and values.
          | (?<field> [,\r\n] [\s,"'\\]{0,31} (?i: value ) [\s,"'\\]{0,4} : )
            # `["--token", "x"]`
          | (?<item> , \s{0,32} ) )
      | [\ \t]{1,8}
        # A sentence that states the value.
        (?<said> is:?\  | was\  | to\  | ist\  | est\  | es\  | (?: for | of | on )\  [^.,;\n\[]{0,44}? (?: \ is | : )\  )? )
    [\ \t*]{0,8} (?<value>)
    (?: \\? ["']? (?<scheme> (?i: bearer | basic | token | apikey | key ) \  ) )?

    # Markers, and numbers with a name that a card number never has.
  | (?<skip>
        \[redacted: (?: key | token | password | card ) \]
      | (?: \b | _ ) (?i: orders? | ids? | invoice | tracking | ticket | ref | reference | case | timestamp | ts
            | seq | isbn | imei | sku )
        # At least as many digits as a card number: shorter numbers are not card numbers.
        (?: [^a-zA-Z0-9\n,;]+ (?i: number | no ) )? [^a-zA-Z0-9\n,;]* \d (?: [\ -]? \d ){12,}
    )

    # Always secrets: keys of cloud and mail providers, webhooks, JSON web tokens.
  | (?<key> \b (?: A[KS]IA [A-Z\d]{16} \b | AIza [\w-]{26,} | SG\. [\w-]{16,} \. [\w-]{16,} ) )
  | :// (?: hooks\.slack\.com/services/ | discord\.com/api/webhooks/ ) (?<hook> [\w/-]{16,} )
  | (?: ^ | [^\w-] ) (?<web_token> eyJ [\w-]{7,} \. [\w-]{8,} (?: \. [\w-]+ )? )

    # Providers' prefixes and the minimum number of characters after them; real keys are longer. `sk-` covers `sk-ant-` and
    # `sk-proj-` too.
  | \b (?: sk- | xai- | nvapi- | pplx- | tvly- | GOCSPX- ) (?<joined_key> [\w-]{16} )
  | \b (?: whsec_ | lin_api_ | gsk_ ) (?<long_key> [A-Za-z\d]{16} )
  | \b [srp]k_ (?: live | test ) _ (?<short_key> [A-Za-z\d]{10} )
  | \b (?: gh[posur]_ | hf_ | npm_ | shpat_ | dop_v1_ | r8_ ) (?<long_token> [A-Za-z\d]{16} )
  | \b (?: github_pat_ | glpat- | pypi- | ya29\. ) (?<joined_token> [\w-]{16} )
  | \b (?: xox[bpars]- | xapp- ) (?<short_token> [\w-]{10} )

    # The header and footer of private keys, and URLs that contain more than a host.
  | (?<begin> -----BEGIN\ [A-Z\d\ ]* PRIVATE\ KEY [A-Z\ ]* ----- )
  | (?<end> -----END\ [A-Z\d\ ]* PRIVATE\ KEY [A-Z\ ]* ----- )
  | (?<address> :// ) [^\s"'`<>\\/?\#]* [@:]

    # A number in one piece or in groups that is not part of a longer token. The token may continue with a dash and a
    # secret, or with a dash and the marker of a secret.
  | (?: ^ | [^\w\-./@,+\ ] | (?: ^ | \W ) [-./@,+] | (?: ^ | \D ) \  )
    (?<card> [2-6] \d{12,18} | [2-6] \d{3} (?:
        (?: \ \d{4} ){2} (?: \ \d+ ){1,2} | \ \d{6} \ \d+ | (?: -\d{4} ){2} (?: -\d+ ){1,2} | -\d{6} -\d+ ) )
    (?: $ | [^\w\-./:@] | [-./:@] (?: $ | [^\w\[] ) )

    # `Bearer x` anywhere, and `-u user:x`, the notation in which commands take a login.
  | \b (?i: bearer ) \  (?<bearer>)
  | \B -u\  (?<login>) (?: \\? ["'`] )? [^\s"'`<>;\\\[:\xe2-\xff]+ :
    "#,
    )
});

/// Returns the secret at a place, or `None` if the place contains no secret.
pub(super) fn secret(text: &[u8], place: &Captures<'_>) -> Option<Secret> {
    let whole = place.get_match();
    let groups = PLACES.capture_names().zip(place.iter());
    let (name, group) = groups.into_iter().find_map(|(name, group)| Some((name?, group?)))?;
    let prefixed = |joined, mark| Some((whole.start()..prefixed(text, group.start(), joined)?, mark));
    match name {
        "key" | "hook" => Some((group.range(), KEY)),
        "web_token" => Some((group.range(), TOKEN)),
        "joined_key" => prefixed(true, KEY),
        "long_key" | "short_key" => prefixed(false, KEY),
        "joined_token" | "short_token" => prefixed(true, TOKEN),
        "long_token" => prefixed(false, TOKEN),
        "begin" => {
            let body = KEY_BODY.find(start(text.get(whole.end()..)?, LONGEST_KEY))?.as_bytes();
            Some((whole.start()..whole.end() + body.trim_ascii_end().len(), KEY))
        }
        "end" => {
            let lines = KEY_BEFORE.find(text.get(..whole.start())?);
            Some((lines.unwrap_or(whole).start()..whole.end(), KEY))
        }
        "address" => address(text, whole.start()),
        "card" => is_card(group.as_bytes()).then_some((group.range(), CARD)),
        "bearer" => {
            let secret = |value: &[u8], _| {
                value.len() >= 12 && is_generated(value) && !is_placeholder(value, Class::Token)
            };
            Some((examined(text, group.start(), false, secret)?, TOKEN))
        }
        "login" => {
            let user =
                |login: &[u8]| login.iter().position(|byte| *byte == b':').map_or(0, |colon| colon + 1);
            let secret = |login: &[u8], _| {
                let password = login.get(user(login)..).unwrap_or_default();
                is_secret(Class::Password, Notation::Adjacent, false, password)
            };
            let login = examined(text, group.start(), false, secret)?;
            Some((login.start + user(text.get(login.clone())?)..login.end, PASSWORD))
        }
        "name" | "pass" | "foreign" => named(text, place, group),
        _ => None,
    }
}

/// Returns the first `most` bytes, or all bytes if there are fewer.
fn start(text: &[u8], most: usize) -> &[u8] {
    text.get(..most).unwrap_or(text)
}

/// Maximum number of bytes of a value that are read to decide whether it is a secret.
const MOST_JUDGED: usize = 256;

/// Returns the end of a provider's key, or `None` if the text is not a key. `from` is the end of the key's prefix. If
/// `joined` is true, `-` and `_` belong to the key.
fn prefixed(text: &[u8], from: usize, joined: bool) -> Option<usize> {
    let body = text.get(from..)?;
    let own = |byte: &u8| byte.is_ascii_alphanumeric() || (joined && matches!(byte, b'-' | b'_'));
    let length = |body: &[u8]| body.iter().take_while(|byte| own(byte)).count();
    let near = start(body, MOST_JUDGED);
    is_random(start(near, length(near))).then(|| from + length(body))
}

/// Returns whether the text looks randomly generated. Such a text contains digits, and a piece that is too long for a
/// word. If only the beginning of a text is passed, the result may be `false` although it is `true` for the whole text.
/// The opposite never happens.
fn is_random(body: &[u8]) -> bool {
    let long = body.split(|byte| matches!(byte, b'-' | b'_')).any(|piece| piece.len() >= 8);
    long && body.iter().any(u8::is_ascii_digit)
}

/// Maximum distance between the header and the footer of a private key, in bytes.
const LONGEST_KEY: usize = 16 << 10;

/// Matches the rest of a private key after its header. If the footer is missing, the pattern matches the lines that
/// look like lines of a key. Such a line contains only characters of keys, and is longer than a word. Backslashes
/// are included because line ends are written as `\n` in JSON.
static KEY_BODY: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?x-u) ^ (?: (?: [^-] | -{1,4} [^-] )* -----END\  [A-Z\d\ ]* -{0,5}
            | (?: \s* (?: [A-Za-z\d+/=\\]{20,} [^\S\n]* | (?: Proc-Type | DEK-Info ): [^\n]* ) (?: \n | $ ) )* )",
    )
});

/// Matches the part of a private key before its footer, if the header is missing.
static KEY_BEFORE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?-u)[A-Za-z\d+/=\\]{20,}[A-Za-z\d+/=\\\s]*$"));

/// Maximum number of bytes that are read of a URL.
const LONGEST_ADDRESS: usize = 512;

/// A URL that contains a token or a password. A slash in a password should be escaped, but people often do not escape
/// it.
static ADDRESS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?x-u) ^ :// (?: (?<token> \w{16,} )
            | [^\s"'`<>\\/?\#:]* : (?: (?<password> [^\s"'`<>\\/?\#${*\[] [^\s"'`<>\\/?\#]* )
                | (?<slashed> [^\s"'`<>\\${*\[] [^\s"'`<>\\]* ) ) ) @"#,
    )
});

/// Returns the password or token in a URL. `at` is the position of `://`.
fn address(text: &[u8], at: usize) -> Option<Secret> {
    let near = start(text.get(at..)?, LONGEST_ADDRESS);
    let address = ADDRESS.captures(near)?;
    if contains(address.get_match().as_bytes(), MARK) {
        return None;
    }
    let (group, mark) = if let Some(token) = address.name("token") {
        (Some(token).filter(|token| is_random(token.as_bytes())), TOKEN)
    } else if let Some(slashed) = address.name("slashed") {
        // The text after a port number is a path, not a password.
        let before = text.get(..at)?;
        let http = before.ends_with(b"http") || before.ends_with(b"https");
        let port = slashed.as_bytes().iter().find(|byte| !byte.is_ascii_digit());
        (Some(slashed).filter(|_| !http && !matches!(port, Some(b'/' | b'?' | b'#'))), PASSWORD)
    } else {
        (address.name("password"), PASSWORD)
    };
    group.map(|found| (at + found.start()..at + found.end(), mark))
}

/// Returns whether a number is a card number. A card number has 13 to 19 digits, a recognised issuer and the right check
/// digit. Its digits are written without spaces or in the groups that cards use.
fn is_card(number: &[u8]) -> bool {
    let groups: Vec<usize> = number.split(|byte| !byte.is_ascii_digit()).map(<[u8]>::len).collect();
    let grouped = matches!(*groups, [_] | [4, 4, 4, 1 | 4] | [4, 4, 4, 4, 1..=3] | [4, 6, 4 | 5]);
    let digits: Vec<u32> =
        number.iter().filter(|byte| byte.is_ascii_digit()).map(|byte| u32::from(byte - b'0')).collect();
    let lead = digits.iter().take(4).fold(0, |sum, digit| sum * 10 + digit);
    let issued = matches!(
        (lead, digits.len()),
        (4000..=4999, 13 | 16 | 19)
            | (5100..=5599 | 2221..=2720, 16)
            | (3400..=3499 | 3700..=3799, 15)
            | (3000..=3059 | 3600..=3699 | 3800..=3999, 14)
            | (3528..=3589 | 6011 | 6440..=6599 | 6200..=6299, 16..=19)
    );
    let doubled = digits.iter().rev().enumerate().map(|(at, digit)| match (at % 2, digit) {
        (0, digit) => *digit,
        (_, digit @ 5..) => digit * 2 - 9,
        (_, digit) => digit * 2,
    });
    grouped && issued && doubled.sum::<u32>().is_multiple_of(10)
}

/// Returns the range of the value that starts at `at`, or `None` if the value is not a secret. Only the beginning of
/// the value is examined. A value that contains a marker is never a secret.
fn examined(
    text: &[u8],
    at: usize,
    in_query: bool,
    is_secret: impl Fn(&[u8], bool) -> bool,
) -> Option<Range<usize>> {
    let rest = text.get(at..)?;
    let (near, quoted) = value(start(rest, MOST_JUDGED), in_query)?;
    let shown = rest.get(near.clone())?;
    let marked = contains(shown, MARK) || rest.get(near.end..)?.starts_with(MARK.as_bytes());
    let (whole, _) = if !marked && is_secret(shown, quoted) { value(rest, in_query)? } else { return None };
    Some(at + whole.start..at + whole.end)
}

/// Returns the secret after a name and its separator. `core` is the last word of the name.
fn named(text: &[u8], place: &Captures<'_>, core: Match<'_>) -> Option<Secret> {
    let to = place.name("close")?.start();
    let first = text.get(..core.start())?.iter().rposition(|byte| !is_in_name(*byte)).map_or(0, |at| at + 1);
    let dashes = text.get(first..to)?.iter().take_while(|byte| matches!(byte, b'-' | b'.')).count();
    let (before, name) = text.get(..to)?.split_at_checked(first + dashes)?;
    let shouted = place.name("foreign").is_some() || !name.iter().any(u8::is_ascii_lowercase);
    let class = if place.name("name").is_some() {
        classify(text.get(..core.end())?, shouted && name.len() > 4)?
    } else {
        Class::Password
    };
    let notation = notation(text, place, before, shouted)?;
    let value = place.name("value")?.start();
    let scheme = place.name("scheme").filter(|_| class == Class::Token);
    let basic = scheme.is_some_and(|scheme| scheme.as_bytes().eq_ignore_ascii_case(b"basic "));
    let folder = name.eq_ignore_ascii_case(b"pwd") || name.eq_ignore_ascii_case(b"oldpwd");
    let secret = |value: &[u8], quoted| {
        !(folder && matches!(value, [b'/' | b'~' | b'.', ..])) && is_secret(class, notation, quoted, value)
    };
    // If the value is quoted, the opening quote is before the scheme, and the closing quote is after the value.
    let range = examined(text, scheme.map_or(value, |scheme| scheme.end()), is_in_query(before), secret)?;
    Some((range, if basic { PASSWORD } else { class.mark() }))
}

/// Returns how the name and its value are written, or `None` if they do not belong together.
fn notation(text: &[u8], place: &Captures<'_>, before: &[u8], shouted: bool) -> Option<Notation> {
    let has = |group| place.name(group).is_some();
    let quoted_name = place.name("close").is_some_and(|close| !close.is_empty());
    let flag = before.ends_with(b"-");
    let sign = place.name("sign").map(|sign| sign.as_bytes());
    // `DB_PASS=...` and `"pass": ...` contain passwords. `PASS: ...` is a line that a test runner prints.
    let reports = has("pass") && !quoted_name && (sign != Some(b"=") || !has("under"));
    if has("unlike") || (sign.is_none() && !has("name")) || reports {
        return None;
    }
    let spaced = place.name("far").is_none_or(|gap| !gap.is_empty());
    if sign == Some(b"=") && (is_in_query(before) || (!spaced && (shouted || flag))) {
        return Some(Notation::Tight);
    }
    let value = text.get(place.name("value")?.start()..)?;
    let bound = if has("tag") {
        before.ends_with(b"<")
    } else if has("item") {
        // If the next word is another option, it is not the value of this option.
        let item = value.strip_prefix(b"\\").unwrap_or(value);
        flag && quoted_name && matches!(item, [b'"' | b'\'', first, ..] if *first != b'-')
    } else if sign.is_some() || has("field") {
        true
    } else if flag && !quoted_name {
        !has("said")
    } else {
        let prose = has("said") || matches!(value, [b'"' | b'\'', ..]);
        return Some(if prose { Notation::Prose } else { Notation::Adjacent });
    };
    bound.then_some(Notation::Loose)
}

fn is_in_query(before: &[u8]) -> bool {
    before.ends_with(b"?") || before.ends_with(b"&")
}

fn is_in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// Returns the kind of secret that a name describes. The last word of the name decides. Returns `None` if the name does
/// not describe a secret.
fn classify(text: &[u8], shouted: bool) -> Option<Class> {
    let (before, last) = last_word(text);
    let (_, earlier) = last_word(before);
    let is =
        |word: &[u8], names: &str| names.split(' ').any(|name| word.eq_ignore_ascii_case(name.as_bytes()));
    const COUNTED: &str = "max min per next page stop eos bos pad unk sep cls mask num continuation cancellation \
        special last first each every unexpected";
    const SECRET: &str = "api access private secret auth encryption signing master account deploy license ssh \
        service app subscription admin";
    let end = last.to_ascii_lowercase();
    match end.as_slice() {
        b"pwd" | b"passphrase" | b"passcode" | b"passwort" => Some(Class::Password),
        end if end.ends_with(b"password") || end.ends_with(b"passwd") => Some(Class::Password),
        b"token" => (!is(earlier, COUNTED)).then_some(Class::Token),
        b"authtoken" | b"accesstoken" | b"apitoken" | b"refreshtoken" | b"authorization" => {
            Some(Class::Token)
        }
        b"secret" | b"apikey" | b"secretkey" | b"accesskey" | b"privatekey" | b"clientsecret" => {
            Some(Class::Key)
        }
        b"key" if is(earlier, SECRET) => Some(Class::Key),
        b"key" => shouted.then_some(Class::SomeKey),
        _ => None,
    }
}

/// Returns the text before the last word, and that word. The function also separates the words of `accessToken`,
/// `access_token` and `access token`.
fn last_word(text: &[u8]) -> (&[u8], &[u8]) {
    let between = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'_' | b'.');
    let end = match text {
        [.., b' '] => text.len() - 1,
        _ => text.iter().rposition(|byte| !between(byte)).map_or(0, |at| at + 1),
    };
    let word = start(text, end);
    let from = word.iter().rposition(|byte| !byte.is_ascii_alphabetic()).map_or(0, |at| at + 1);
    let word = word.get(from..).unwrap_or_default();
    // A capital after a lower-case letter starts a new word.
    let hump = word.windows(2).rposition(|two| matches!(two, [b'a'..=b'z', b'A'..=b'Z']));
    let from = from + hump.map_or(0, |at| at + 1);
    (start(text, from), text.get(from..end).unwrap_or_default())
}
