//! Secrets known by their own shape: prefixes, frames, addresses, check digits.

use super::judge::is_one_of;
use super::named::login;
use super::{Found, Kind, MARK, before, byte, is_word};

/// How secrets of providers start, and what must follow.
struct Prefixes {
    /// Each ends with the byte that gives it away.
    starts: &'static str,
    /// The shortest that counts. Real ones are longer.
    least: usize,
    /// Whether `-` and `_` belong to it.
    joined: bool,
    kind: Kind,
}

const fn prefixes(starts: &'static str, least: usize, joined: bool, kind: Kind) -> Prefixes {
    Prefixes { starts, least, joined, kind }
}

/// Longer ones need no place of their own where a shorter one takes them in: `sk-` stands for `sk-ant-` and `sk-proj-` too.
static PREFIXES: &[Prefixes] = &[
    prefixes("sk- xai- nvapi- pplx- tvly- GOCSPX-", 16, true, Kind::Key),
    prefixes("whsec_ lin_api_ gsk_", 16, false, Kind::Key),
    prefixes("sk_live_ rk_live_ pk_live_ sk_test_ rk_test_", 10, false, Kind::Key),
    prefixes("ghp_ gho_ ghs_ ghu_ ghr_ hf_ npm_ shpat_ dop_v1_ r8_", 16, false, Kind::Token),
    prefixes("github_pat_ glpat- pypi- ya29.", 16, true, Kind::Token),
    prefixes("xoxb- xoxp- xoxa- xoxr- xoxs- xapp-", 10, true, Kind::Token),
];

/// A secret whose prefix ends here, at a `-`, `_` or `.`, or a private key whose frame starts here.
pub(super) fn prefixed(bytes: &[u8], floor: usize, at: usize) -> Option<Found> {
    if byte(bytes, at) == b'-' && byte(bytes, at + 1) == b'-' {
        return private_key(bytes, floor, at);
    }
    if byte(bytes, at + 1) == b'u' && byte(bytes, at + 2) == b' ' {
        return login(bytes, floor, at);
    }
    let head = bytes.get(floor..=at)?;
    // Nearly every other dash, dot or underscore is told by the two bytes before it.
    let likely = match head.last_chunk()? {
        [a, b, b'-'] => matches!(
            (a, b),
            (b's', b'k')
                | (b'a', b't' | b'i')
                | (b'x', _)
                | (b'p', b'p' | b'i')
                | (b'l', b'x' | b'y')
                | (b'P', b'X')
        ),
        [a, b, b'_'] => matches!(
            (a, b),
            (b'h', b'p' | b'o' | b's' | b'u' | b'r' | b'f')
                | (b's', b'k' | b't')
                | (b'v', b'e' | b'1')
                | (b'a', b't')
                | (b'p', b'm' | b'i')
                | (b'e', b'c')
                | (b'r', b'8')
        ),
        [b'S', b'G', b'.'] => return mail_key(bytes, floor, at),
        end => end == b"29.",
    };
    if !likely {
        return None;
    }
    let (known, start) = PREFIXES.iter().find_map(|known| {
        let mut starts = known.starts.split(' ');
        Some((known, starts.find(|start| head.ends_with(start.as_bytes()))?))
    })?;
    let from = (at + 1).checked_sub(start.len())?;
    if is_word(before(bytes, floor, from)) {
        return None;
    }
    // Judged by its beginning, so that one prefix behind the other does not mean reading on each time.
    let rest = bytes.get(at + 1..)?;
    let body = rest.get(..run(rest.get(..rest.len().min(256)).unwrap_or(rest), 0, known.joined))?;
    let secret = body.len() >= known.least && is_random(body);
    secret.then(|| Found { from, to: run(bytes, at + 1, known.joined), kind: known.kind })
}

/// Where the letters and digits from here on end; `-` and `_` among them if `joined`.
fn run(bytes: &[u8], from: usize, joined: bool) -> usize {
    let own = |byte: &&u8| byte.is_ascii_alphanumeric() || (joined && matches!(byte, b'-' | b'_'));
    from + bytes.get(from..).map_or(0, |rest| rest.iter().take_while(own).count())
}

/// Whether it was drawn rather than thought of: digits, and a stretch too long for a word. What is
/// cut short of it is judged no differently, or less so.
fn is_random(body: &[u8]) -> bool {
    let longest = body.split(|byte| matches!(byte, b'-' | b'_')).map(<[u8]>::len).max().unwrap_or(0);
    longest >= 8 && body.iter().any(u8::is_ascii_digit)
}

/// `SG.`, two long pieces and a dot between them.
fn mail_key(bytes: &[u8], floor: usize, at: usize) -> Option<Found> {
    let from = at.checked_sub(2)?;
    let middle = run(bytes, at + 1, true);
    let to = run(bytes, middle + 1, true);
    let long = middle > at + 16 && to > middle + 16 && byte(bytes, middle) == b'.';
    (long && !is_word(before(bytes, floor, from))).then_some(Found { from, to, kind: Kind::Key })
}

/// Keys with neither a dash nor a dot: Amazon's, and Google's.
pub(super) fn bare(bytes: &[u8], floor: usize, at: usize) -> Option<Found> {
    let rest = bytes.get(at..)?;
    if is_word(before(bytes, floor, at)) {
        return None;
    }
    if rest.starts_with(b"AKIA") || rest.starts_with(b"ASIA") {
        let body = rest.iter().take(21).take_while(|b| b.is_ascii_uppercase() || b.is_ascii_digit()).count();
        let whole = body == 20 && !is_word(byte(bytes, at + 20));
        return whole.then_some(Found { from: at, to: at + 20, kind: Kind::Key });
    }
    if rest.starts_with(b"AIza") {
        let to = run(bytes, at, true);
        return (to >= at + 30).then_some(Found { from: at, to, kind: Kind::Key });
    }
    None
}

/// A web token: `eyJ`, and two or three pieces with dots between them. `at` is its `J`.
pub(super) fn web_token(bytes: &[u8], floor: usize, at: usize) -> Option<Found> {
    let from = at.checked_sub(2).filter(|from| *from >= floor)?;
    let joint = before(bytes, floor, from);
    if !bytes.get(from..)?.starts_with(b"eyJ") || is_word(joint) || joint == b'-' {
        return None;
    }
    let first = run(bytes, from, true);
    let second = run(bytes, first + 1, true);
    if first < from + 10 || byte(bytes, first) != b'.' || second < first + 9 {
        return None;
    }
    let third = run(bytes, second + 1, true);
    let to = if byte(bytes, second) == b'.' { third } else { second };
    // A dot that ends the sentence is not the token's.
    let to = if to == second + 1 { second } else { to };
    Some(Found { from, to, kind: Kind::Token })
}

/// How far apart the ends of a private key may be.
const LONGEST_KEY: usize = 16 << 10;

/// A private key, from one line of dashes to the other. Either may have been cut off.
fn private_key(bytes: &[u8], floor: usize, at: usize) -> Option<Found> {
    let rest = bytes.get(at..)?;
    if let Some(name) = rest.strip_prefix(b"-----BEGIN ") {
        let head = at + 11 + frame(name)?;
        let body = bytes.get(head..)?;
        let body = body.get(..body.len().min(LONGEST_KEY)).unwrap_or(body);
        let to = match find(body, b"-----") {
            Some(end) if body.get(end..).is_some_and(|end| end.starts_with(b"-----END ")) => {
                let after = head + end + 9;
                after + bytes.get(after..).and_then(frame).unwrap_or(0)
            }
            cut => head + key_lines(body.get(..cut.unwrap_or(body.len())).unwrap_or(body)),
        };
        return Some(Found { from: at, to, kind: Kind::Key });
    }
    let name = rest.strip_prefix(b"-----END ")?;
    let to = at + 9 + frame(name)?;
    let from = key_lines_before(bytes, floor, at);
    Some(Found { from, to, kind: Kind::Key })
}

/// The length of `RSA PRIVATE KEY-----`, if that is what it says.
fn frame(name: &[u8]) -> Option<usize> {
    let name = name.get(..name.len().min(48)).unwrap_or(name);
    let end = find(name, b"-----")?;
    let private = find(name.get(..end)?, b"PRIVATE KEY").is_some();
    private.then_some(end + 5)
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len().max(1)).position(|window| window == what)
}

/// How much of this looks like the lines of a key: only its letters, in lines too long for words.
fn key_lines(body: &[u8]) -> usize {
    let mut end = 0;
    let mut at = 0;
    for line in body.split_inclusive(|byte| *byte == b'\n') {
        let text = line.trim_ascii();
        let key = text.len() >= 20 && text.iter().all(|byte| is_key_byte(*byte));
        let head = text.starts_with(b"Proc-Type:") || text.starts_with(b"DEK-Info:");
        at += line.len();
        if key || head {
            end = at - (line.len() - line.trim_ascii_end().len());
        } else if !text.is_empty() {
            break;
        }
    }
    end
}

/// Where the lines of a key start that end here.
fn key_lines_before(bytes: &[u8], floor: usize, at: usize) -> usize {
    let Some(head) = bytes.get(floor..at) else { return at };
    let reach = head.iter().rev().take_while(|b| is_key_byte(**b) || b.is_ascii_whitespace()).count();
    let mut start = at - reach;
    let Some(lines) = bytes.get(start..at) else { return at };
    for line in lines.split_inclusive(u8::is_ascii_whitespace) {
        if line.len() >= 20 {
            return start;
        }
        start += line.len();
    }
    at
}

/// A key's letters. A backslash too: where the key stands in JSON its line ends are written `\n`.
fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'\\')
}

/// Further than this no address is read.
const LONGEST_ADDRESS: usize = 512;

/// A password in an address, or an address that is itself the secret. `at` is the colon of `://`.
pub(super) fn address(bytes: &[u8], floor: usize, at: usize) -> Option<Found> {
    let start = at + 3;
    let rest = bytes.get(start..)?;
    let rest = rest.get(..rest.len().min(LONGEST_ADDRESS)).unwrap_or(rest);
    for hook in [b"hooks.slack.com/services/".as_slice(), b"discord.com/api/webhooks/"] {
        if let Some(path) = rest.strip_prefix(hook) {
            let from = start + hook.len();
            let long = path.iter().take_while(|b| is_word(**b) || matches!(b, b'/' | b'-')).count();
            return (long >= 16).then_some(Found { from, to: from + long, kind: Kind::Key });
        }
    }
    let stop = |b: &u8| b.is_ascii_whitespace() || matches!(b, b'"' | b'\'' | b'`' | b'<' | b'>' | b'\\');
    let whole = rest.split(stop).next()?;
    let host = whole.split(|b| matches!(b, b'/' | b'?' | b'#')).next()?;
    // A slash in a password ought to be escaped, and often is not; after a port it is a path.
    let user = host.iter().rposition(|b| *b == b'@').or_else(|| {
        let colon = host.iter().position(|b| *b == b':')?;
        let port = host.get(colon + 1..)?.iter().all(u8::is_ascii_digit);
        let http = bytes.get(floor..at)?.ends_with(b"http") || bytes.get(floor..at)?.ends_with(b"https");
        if port || http { None } else { whole.iter().rposition(|b| *b == b'@') }
    })?;
    let user = whole.get(..user)?;
    if find(user, MARK).is_some() {
        return None;
    }
    let Some(colon) = user.iter().position(|b| *b == b':') else {
        let token = user.len() >= 16 && is_random(user) && user.iter().all(|b| is_word(*b));
        return token.then_some(Found { from: start, to: start + user.len(), kind: Kind::Token });
    };
    let password = user.get(colon + 1..)?;
    let stands_for = matches!(byte(password, 0), b'$' | b'<' | b'{' | b'*' | b'[' | 0);
    (!stands_for).then_some(Found { from: start + colon + 1, to: start + user.len(), kind: Kind::Password })
}

/// What a number is called that is no card's.
const NUMBERS: &str =
    "order orders id ids invoice tracking ticket ref reference case timestamp ts seq isbn imei sku";

/// A card's number: 13 to 19 digits in one piece or in the groups cards have, of a known issuer, with
/// the right check digit, and no part of something longer.
pub(super) fn card(bytes: &[u8], floor: usize, at: usize) -> Option<Found> {
    if !matches!(byte(bytes, at), b'2'..=b'6') || !stands_alone(bytes, floor, at) {
        return None;
    }
    let mut digits = [0u8; 19];
    let (mut count, mut groups, mut group, mut to) = (0usize, [0usize; 6], 0usize, at);
    let separator = [b' ', b'-'].into_iter().find(|s| (3..8).any(|n| byte(bytes, at + n) == *s)).unwrap_or(0);
    loop {
        let here = byte(bytes, to);
        if here.is_ascii_digit() {
            *digits.get_mut(count)? = here - b'0';
            count += 1;
            *groups.get_mut(group)? += 1;
        } else if separator != 0 && here == separator && byte(bytes, to + 1).is_ascii_digit() {
            group += 1;
        } else {
            break;
        }
        to += 1;
    }
    let digits = digits.get(..count)?;
    let grouped = matches!(
        groups,
        [_, 0, ..] | [4, 4, 4, 1 | 4, 0, ..] | [4, 4, 4, 4, 1..=3, 0] | [4, 6, 4 | 5, 0, ..]
    );
    let after = byte(bytes, to);
    // A dash before a secret is a dash before its mark too.
    let joined = matches!(after, b'-' | b'.' | b'/' | b':' | b'@')
        && (is_word(byte(bytes, to + 1)) || byte(bytes, to + 1) == b'[');
    let real = grouped && is_issued(digits) && luhn(digits) && !is_word(after) && !joined;
    (real && !is_numbered(bytes, floor, at)).then_some(Found { from: at, to, kind: Kind::Card })
}

/// Whether nothing before this place makes it part of a longer number or id.
fn stands_alone(bytes: &[u8], floor: usize, at: usize) -> bool {
    let joint = before(bytes, floor, at);
    if is_word(joint) {
        return false;
    }
    let further = before(bytes, floor, at.saturating_sub(1));
    match joint {
        b'-' | b'.' | b'/' | b'@' | b',' | b'+' => !is_word(further),
        // Groups of digits in front are part of it.
        b' ' => !further.is_ascii_digit(),
        _ => true,
    }
}

fn is_numbered(bytes: &[u8], floor: usize, at: usize) -> bool {
    let Some(head) = bytes.get(floor.max(at.saturating_sub(32))..at) else { return false };
    let words = head.rsplit(|byte| !byte.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    // Only words right before it: what is in another sentence says nothing of it.
    let near = head.iter().rev().take_while(|b| !matches!(b, b'\n' | b',' | b';')).count();
    let mut left = near;
    for word in words.take(2) {
        if word.len() > left {
            return false;
        }
        left -= word.len();
        if is_one_of(word, NUMBERS) {
            return true;
        }
        if !is_one_of(word, "number no") {
            return false;
        }
    }
    false
}

fn is_issued(digits: &[u8]) -> bool {
    let lead = |n: usize| digits.iter().take(n).fold(0u32, |sum, digit| sum * 10 + u32::from(*digit));
    matches!(
        (lead(4), digits.len()),
        (4000..=4999, 13 | 16 | 19)
            | (5100..=5599 | 2221..=2720, 16)
            | (3400..=3499 | 3700..=3799, 15)
            | (3000..=3059 | 3600..=3699 | 3800..=3999, 14)
            | (3528..=3589 | 6011 | 6440..=6599 | 6200..=6299, 16..=19)
    )
}

fn luhn(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(at, digit)| match (at % 2, u32::from(*digit)) {
            (0, digit) => digit,
            (_, digit @ 5..) => digit * 2 - 9,
            (_, digit) => digit * 2,
        })
        .sum();
    sum.is_multiple_of(10) && digits.iter().any(|digit| Some(digit) != digits.first())
}
