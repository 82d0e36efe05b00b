//! Scans a text for names in one pass, run by run.
//!
//! A run is a sequence of letters, digits and joints (`.`, `/`, `-`, `@`). Most runs are plain words and are skipped
//! early. The other runs are classified by their characters and by the text before and after them.

use std::sync::LazyLock;

use regex::Regex;

use super::lists::{ENDINGS, HIDDEN, MEDIA, OPENERS, UNITS};
use super::{LONGEST, Name, NameKind, is_of_calendar};
use crate::pattern::pattern;
use crate::words::{is_alphanumeric, is_unspaced};

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Counts of the kinds of characters in a run.
#[derive(Clone, Copy, Default)]
pub(super) struct CharCounts {
    pub(super) digits: u32,
    lower: u32,
    upper: u32,
    /// Letters outside ASCII.
    high: u32,
    under: u32,
    pub(super) dots: u32,
    slashes: u32,
    pub(super) hyphens: u32,
    /// Capitals directly after a lower-case letter.
    humps: u32,
    at: Option<usize>,
}

pub(super) struct Scanner<'a, F> {
    pub(super) text: &'a str,
    bytes: &'a [u8],
    pub(super) speech: bool,
    /// Start and end of the previous run, in bytes.
    pub(super) previous: (usize, usize),
    /// End of the last reported number or name, in bytes. A unit that was reported together with its number is not
    /// reported again.
    pub(super) reported_to: usize,
    found: F,
}

impl<'a, F: FnMut(Name<'a>)> Scanner<'a, F> {
    pub(super) fn new(text: &'a str, speech: bool, found: F) -> Self {
        Self { text, bytes: text.as_bytes(), speech, previous: (0, 0), reported_to: 0, found }
    }

    pub(super) fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(b' ')
    }

    fn char_at(&self, at: usize) -> Option<char> {
        self.text.get(at..)?.chars().next()
    }

    pub(super) fn slice(&self, from: usize, to: usize) -> &'a str {
        self.text.get(from..to).unwrap_or_default()
    }

    pub(super) fn report(&mut self, from: usize, to: usize, kind: NameKind, sure: bool) {
        let text = self.slice(from, to);
        self.reported_to =
            self.reported_to.max(if matches!(kind, NameKind::Number | NameKind::Line) { to } else { 0 });
        if (2..=LONGEST).contains(&text.len()) {
            (self.found)(Name { text, kind, sure });
        }
    }

    pub(super) fn scan(mut self) {
        let mut at = 0;
        while at < self.bytes.len() {
            let next = self.byte(at + 1);
            at = match self.byte(at) {
                byte if is_letter(byte) => self.run(at),
                b'/' | b'.' | b'~' if is_letter(next) || matches!(next, b'/' | b'.') => self.run(at),
                0x80.. => match self.char_at(at) {
                    Some(c) if is_unspaced(c) => self.unspaced(at),
                    Some(c) if is_alphanumeric(c) => self.run(at),
                    Some(c @ ('「' | '『' | '《' | '«' | '„')) => self.quoted(at, c),
                    Some(c) => at + c.len_utf8(),
                    None => at + 1,
                },
                _ => at + 1,
            };
        }
    }

    /// Reads a run that starts at `from`, and returns where to continue.
    fn run(&mut self, from: usize) -> usize {
        let mut counts = CharCounts::default();
        let before = from.checked_sub(1).map_or(b' ', |before| self.byte(before));
        // In `\\n`, the spelling of a line break, the `n` does not belong to the word. `</output>` is a tag.
        let from =
            if before == b'\\' && matches!(self.byte(from), b'n' | b't' | b'r') { from + 1 } else { from };
        let from = self.past_line_number(from);
        let tag = before == b'<' && self.byte(from) == b'/';
        let mut at = from;
        let mut small = false;
        loop {
            let byte = self.byte(at);
            match byte {
                b'0'..=b'9' => counts.digits += 1,
                b'_' => counts.under += 1,
                b'A'..=b'Z' => {
                    counts.upper += 1;
                    counts.humps += u32::from(small);
                }
                b'a'..=b'z' => counts.lower += 1,
                b'.' => counts.dots += 1,
                b'/' => counts.slashes += 1,
                b'-' => counts.hyphens += 1,
                b'@' => counts.at = counts.at.or(Some(at)),
                b'+' | b'~' => {}
                0x80.. => match self.char_at(at) {
                    Some(c) if is_alphanumeric(c) && !is_unspaced(c) => {
                        counts.high += 1;
                        at += c.len_utf8();
                        continue;
                    }
                    _ => break,
                },
                // `1,299` is a single number, and so is `10:30`.
                b',' | b':'
                    if at > from
                        && self.byte(at - 1).is_ascii_digit()
                        && self.byte(at + 1).is_ascii_digit()
                        && counts.lower + counts.upper + counts.high + counts.slashes + counts.under == 0 => {
                }
                b':' if self.is_scheme(from, at) => return self.address(from, at),
                _ => break,
            }
            small = byte.is_ascii_lowercase();
            at += 1;
        }
        let (start, end) = self.trim(from, at);
        if start < end && !tag {
            self.classify(start, end, &counts);
            self.previous = (start, end);
        }
        at.max(from + 1).max(self.reported_to)
    }

    /// Skips a line number, as in `12-import os`. Tools number the lines around search results in this form. Returns
    /// the position of the word after the line number.
    fn past_line_number(&self, from: usize) -> usize {
        let digits = self.bytes.iter().skip(from).take_while(|byte| byte.is_ascii_digit()).count();
        let behind = from + digits + 1;
        let word = is_letter(self.byte(behind)) && !self.byte(behind).is_ascii_digit();
        if self.speech || digits == 0 || self.byte(from + digits) != b'-' || !word {
            return from;
        }
        if self.begins_line(from) { behind } else { from }
    }

    /// Returns whether only whitespace precedes `at` in its line. Line numbers are never indented by more
    /// than [`INDENT`].
    pub(super) fn begins_line(&self, at: usize) -> bool {
        let from = at.saturating_sub(INDENT);
        let near = self.bytes.get(from..at).unwrap_or_default();
        let own = near.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        (own.len() < near.len() || from == 0) && own.iter().all(u8::is_ascii_whitespace)
    }

    fn is_scheme(&self, from: usize, at: usize) -> bool {
        self.byte(at + 1) == b'/'
            && self.byte(at + 2) == b'/'
            && (2..=12).contains(&(at - from))
            && self.slice(from, at).bytes().all(|b| b.is_ascii_alphabetic() || b == b'+')
    }

    fn address(&mut self, from: usize, colon: usize) -> usize {
        let ends = |c: char| {
            c.is_whitespace()
                || matches!(c, '\'' | '"' | '<' | '>' | ')' | ']' | '}' | '`' | '\\' | '|')
                || is_unspaced(c)
        };
        let rest = self.text.get(colon + 3..).unwrap_or_default();
        let length = rest.find(ends).unwrap_or(rest.len());
        let stop = colon + 3 + length;
        let end = from + self.slice(from, stop).trim_end_matches(['.', ',', ';', ':', '/', '!', '?']).len();
        if end > colon + 3 {
            self.report(from, end, NameKind::Url, true);
        }
        self.previous = (from, end);
        stop.max(colon + 3)
    }

    /// Removes `.`, `-` and similar characters at both ends of the run. There, they only end a sentence or start a
    /// command-line option.
    fn trim(&self, from: usize, to: usize) -> (usize, usize) {
        let (mut start, mut end) = (from, to);
        while start < end && matches!(self.byte(start), b'-' | b'+' | b'@') {
            start += 1;
        }
        while end > start && matches!(self.byte(end - 1), b'.' | b'/' | b'@' | b'+' | b'-' | b'~') {
            end -= 1;
        }
        // `./x`, `../x` and `.env` keep their dots. The dots in `...and` are removed.
        while self.byte(start) == b'.'
            && self.byte(start + 1) == b'.'
            && !matches!(self.byte(start + 2), b'/')
            && start < end
        {
            start += 1;
        }
        (start, end)
    }

    fn classify(&mut self, start: usize, end: usize, counts: &CharCounts) {
        let CharCounts { digits, lower, upper, high, under, dots, slashes, hyphens, humps, at } = *counts;
        // Most words are plain words and return here.
        if digits + upper + high + under + dots + slashes == 0 && at.is_none() {
            if end - start == 5 && self.slice(start, end) == "error" {
                self.error(start, end);
            }
            return;
        }
        let letters = lower + upper + high;
        let run = self.slice(start, end);
        if digits > 0 && lower + upper > 0 && high + under + slashes + hyphens == 0 && at.is_none() {
            // `4.118s` and `0x7f3a` are numbers, not ids.
            let unit = run.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | ','));
            if run.starts_with("0x") || (unit.len() < run.len() && UNITS.contains(&unit)) {
                return self.report(start, end, NameKind::Number, true);
            }
        }
        if slashes > 0 {
            return self.path(start, end, run, counts);
        }
        if let Some(at) = at {
            let mail = at > start && run.get(at - start..).is_some_and(|host| host.contains('.'));
            if mail {
                self.report(start, end, NameKind::Url, true);
            }
            return;
        }
        if letters + under == 0 {
            return self.figure(start, end, run, counts);
        }
        if under > 0 && letters > 0 && run.len() >= 3 {
            let method = usize::from(run.starts_with('.'));
            return self.report(start + method, end, NameKind::Code, true);
        }
        if run.ends_with("Error") || run.ends_with("Exception") {
            return self.error(start, end);
        }
        if run == "Warning" && !self.speech {
            return self.report(start, end, NameKind::Code, true);
        }
        let inner_dots = run.trim_start_matches('.').contains('.');
        if inner_dots && high == 0 {
            return self.dotted(start, end, run, counts);
        }
        if run.starts_with('.') {
            // `.env` and `.gitignore` are names. A method call such as `.map` and an extension such as `.py` are not
            // names.
            if HIDDEN.iter().any(|hidden| run.starts_with(hidden)) {
                self.report(start, end, NameKind::Path, true);
            }
            return;
        }
        if digits > 0 && letters > 0 {
            if self.date(start, end) {
                return;
            }
            // `27th` and `x2` are not ids.
            let ordinal = ["st", "nd", "rd", "th"].iter().any(|end| {
                run.strip_suffix(end).is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit()))
            });
            if ordinal {
                return;
            }
            if digits + letters >= 4 && high == 0 && !run.contains(',') {
                self.report(start, end, NameKind::Id, true);
            } else if !self.speech && run.strip_suffix('p').is_some_and(is_range) {
                // In `sed -n '350,380p'`, `350,380p` is the range of lines that was read.
                self.report(start, end, NameKind::Line, true);
            }
            return;
        }
        if humps > 0 && lower >= 2 && hyphens == 0 {
            return self.report(start, end, NameKind::Code, true);
        }
        if self.speech {
            self.proper(start, end);
        }
    }

    fn path(&mut self, start: usize, end: usize, run: &str, counts: &CharCounts) {
        let parts = || run.split('/').filter(|part| !part.is_empty());
        let lasting = parts().filter(|part| *part != "." && *part != ".." && *part != "~").count();
        if lasting == 0 {
            return;
        }
        // 7/11 and 2026/11/15 are numbers.
        if counts.lower + counts.upper + counts.high + counts.under == 0 {
            let dated = parts().count() == 3;
            if dated {
                self.report(start, end, NameKind::Id, true);
            }
            return;
        }
        let rooted = run.starts_with(['/', '~', '.']);
        let plain = counts.dots + counts.under + counts.digits + counts.hyphens + counts.upper == 0;
        // `and/or` is prose, `src/auth` may be prose or a path, and `src/auth/session` is a path.
        let media =
            MEDIA.iter().any(|media| run.strip_prefix(media).is_some_and(|rest| rest.starts_with('/')));
        let sure = rooted || !plain || counts.slashes > 1 || media;
        // `/import` and `41s/old/new` are patterns more often than paths.
        let ends = run.rsplit('.').next().is_some_and(|end| ENDINGS.contains(&end));
        let first =
            run.split('/').next().unwrap_or_default().trim_start_matches(|c: char| c.is_ascii_digit());
        if (rooted && lasting == 1 && !ends) || first == "s" {
            return;
        }
        self.report(start, end, NameKind::Path, sure);
    }

    fn dotted(&mut self, start: usize, end: usize, run: &str, counts: &CharCounts) {
        let last = run.rsplit('.').next().unwrap_or_default();
        if ENDINGS.contains(&last.to_ascii_lowercase().as_str()) {
            return self.report(start, end, NameKind::Path, true);
        }
        let words = run.split('.').all(|part| {
            part.len() >= 2
                && part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && !part.contains('-')
        });
        if words {
            // In `done.Next`, the space after the end of a sentence is probably missing.
            let run_on =
                self.speech && last.starts_with(|c: char| c.is_ascii_uppercase()) && counts.dots == 1;
            return self.report(start, end, NameKind::Code, !run_on);
        }
        let versioned = counts.digits > 0 && counts.lower + counts.upper > 0;
        if versioned && run.len() >= 4 {
            self.report(start, end, NameKind::Id, true);
        }
    }

    /// Reports the name of an error, and then the name together with the error's message.
    fn error(&mut self, start: usize, end: usize) {
        // In code and in tool output, the word `Error` alone is a name too.
        let named = end - start > 5 || (!self.speech && self.byte(start) == b'E');
        if named {
            self.report(start, end, NameKind::Code, true);
        }
        let rest = self.text.get(end..).unwrap_or_default();
        let near = rest.get(..rest.floor_char_boundary(2 * ERROR)).unwrap_or_default();
        let Some(message) = MESSAGE.captures(near).and_then(|found| found.get(1)) else { return };
        let line = message.as_str();
        let mut length = line.floor_char_boundary(ERROR.min(line.len()));
        if length < line.len() {
            length = line.get(..length).and_then(|cut| cut.rfind(' ')).unwrap_or(length);
        }
        let said =
            line.get(..length).unwrap_or_default().trim_end_matches([' ', '.', ',', '"', '\'', '}', ')']);
        if said.chars().filter(|c| c.is_alphabetic()).count() >= 4 {
            self.report(start, end + message.start() + said.len(), NameKind::Error, true);
        }
    }

    /// Reports a person or a place: a capitalised word and the capitalised words after it.
    fn proper(&mut self, start: usize, end: usize) {
        let run = self.slice(start, end);
        if !is_capitalised(run) {
            return;
        }
        if is_of_calendar(run) && !run.eq_ignore_ascii_case("may") {
            return;
        }
        let opens = self.opens(start);
        let (mut stop, mut words) = (end, 1);
        while words < 4 {
            let Some(rest) = self.text.get(stop..).and_then(|rest| rest.strip_prefix(' ')) else { break };
            let length = rest.find(|c: char| !(is_alphanumeric(c) || c == '-')).unwrap_or(rest.len());
            let Some(next) = rest.get(..length).filter(|next| is_capitalised(next)) else { break };
            // In `I saw Ann And then`, the next sentence is not part of the name.
            if is_opener(next) && !is_opener(run) {
                break;
            }
            stop += 1 + next.len();
            words += 1;
        }
        self.reported_to = stop;
        // In `Thanks Ann` and `Oh Yeah`, the first word is capitalised because it opens a sentence. This can also
        // happen in the middle of a text, where a sentence breaks off and a new sentence starts. Such words are removed
        // from the name.
        let mut from = start;
        while from < stop {
            let word = self.slice(from, stop).split(' ').next().unwrap_or_default();
            if !is_opener(word) {
                break;
            }
            (from, words) = ((from + word.len() + 1).min(stop), words - 1);
        }
        if from >= stop {
            return;
        }
        let first = from == start;
        if opens && first {
            self.report(start, stop, NameKind::Proper, words > 1);
        } else if stop - from > 1 && !self.slice(from, stop).starts_with("I'") {
            self.report(from, stop, NameKind::Proper, true);
        }
    }

    /// Returns whether a sentence begins at `start`. At the beginning of a sentence, any word is capitalised.
    fn opens(&self, start: usize) -> bool {
        let before = self.text.get(..start).unwrap_or_default();
        if before.ends_with("\\n") {
            return true;
        }
        let close = before.trim_end_matches([' ', '"', '“', '(', '*', '_', '\'', '«']);
        match close.chars().next_back() {
            None => true,
            Some(c) => ".!?:\n-•>#|—–…];\t".contains(c),
        }
    }

    /// Reports the text between quotation marks of a kind that is used for names.
    fn quoted(&mut self, at: usize, open: char) -> usize {
        let rest = self.text.get(at..).unwrap_or_default();
        let found = QUOTED.captures(rest).and_then(|found| found.iter().skip(1).flatten().next());
        if let Some(name) = found.filter(|name| name.len() <= 60) {
            self.report(at + name.start(), at + name.end(), NameKind::Proper, true);
        }
        at + open.len_utf8()
    }

    /// Reads a run in a script without spaces. Reports katakana words, and names followed by a title.
    fn unspaced(&mut self, from: usize) -> usize {
        let rest = self.text.get(from..).unwrap_or_default();
        let length = rest.find(|c: char| !is_unspaced(c)).unwrap_or(rest.len());
        let run = rest.get(..length).unwrap_or_default();
        let said = if self.speech { run } else { "" };
        for name in KATAKANA.find_iter(run).chain(TITLED.find_iter(said)) {
            self.report(from + name.start(), from + name.end(), NameKind::Proper, true);
        }
        self.previous = (0, 0);
        from + length.max(1)
    }
}

/// Text in the quotation marks of several languages. The length is limited. Otherwise a text full of opening quotation
/// marks would be read to its end once for each mark.
static QUOTED: LazyLock<Regex> = LazyLock::new(|| {
    pattern("^(?:「([^」]{2,60})」|『([^』]{2,60})』|《([^》]{2,60})》|«([^»]{2,60})»|„([^“]{2,60})“)")
});

static KATAKANA: LazyLock<Regex> = LazyLock::new(|| pattern(r"[\u{30A1}-\u{30FA}ー・]{3,}"));

/// Up to three Han characters and a person's title.
static TITLED: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"[\u{4E00}-\u{9FFF}]{1,3}(?:さん|様|氏|先生|女士|小姐|经理|老师)"));

/// The text after an error's name: an optional code, and the message.
static MESSAGE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(?:\[[^\]]{0,15}\])?: ([^\r\n]*)"));

/// Number of bytes before a word that are searched for the start of the line.
const INDENT: usize = 32;

/// Maximum length of the part of an error message that is reported as a name, in bytes.
const ERROR: usize = 70;

/// Returns whether the word typically opens a sentence.
fn is_opener(word: &str) -> bool {
    OPENERS.binary_search(&word.to_lowercase().as_str()).is_ok()
}

/// Returns whether the word is a capital followed by lower-case letters, or a short word in capitals only.
fn is_capitalised(word: &str) -> bool {
    let mut chars = word.chars();
    let Some(first) = chars.next().filter(|c| c.is_uppercase()) else { return false };
    let rest = chars.as_str();
    if rest.chars().any(|c| !(c.is_alphabetic() || matches!(c, '-' | '\'' | '.'))) {
        return false;
    }
    let small = rest.chars().filter(|c| c.is_lowercase()).count();
    let all = rest.chars().count();
    small > 0 || ((1..=5).contains(&all) && first.is_alphabetic())
}

/// Returns whether the run is a range such as `350,380`, and not a number such as `1,250`.
fn is_range(run: &str) -> bool {
    let number = |number: &str| number.len() >= 2 && number.bytes().all(|byte| byte.is_ascii_digit());
    run.split_once(',').is_some_and(|(from, to)| number(from) && number(to))
}
