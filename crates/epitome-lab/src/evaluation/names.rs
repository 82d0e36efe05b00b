//! Finds the names that the measures look for: addresses, paths, files, errors, identifiers, dates, ids, numbers.
//!
//! At each position of a text, the search tries the kinds of names in a fixed order and uses the first match, like a
//! regular expression with alternatives. The order and the word boundaries are the same as in the published scorer, so
//! that scores are comparable.

use std::collections::BTreeSet;

/// File extensions that make a word a file name.
#[rustfmt::skip]
const FILES: [&str; 27] = [
    "py", "rs", "js", "ts", "java", "c", "h", "cpp", "json", "md", "txt", "toml", "cfg", "ini", "yml", "yaml", "xml",
    "sh", "rst", "zip", "pcap", "png", "jpg", "log", "html", "css", "go",
];

/// Returns the names in a text, each once.
///
/// ```
/// use epitome_lab::evaluation::found_names;
///
/// let names = found_names("KeyError in ./src/app.py at 2026-11-02, see https://x.io/a?b=1 or max_size");
/// let names: Vec<&str> = names.iter().map(String::as_str).collect();
/// assert_eq!(names, ["2026-11-02", "KeyError", "https://x.io/a?b=1", "max_size", "src/app.py"]);
/// ```
pub fn found_names(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    each_match(text, |matched, is_name| {
        let name: String = matched.iter().collect();
        let name = name.trim_matches(['.', ',', '/']);
        if is_name && name.chars().count() >= 3 {
            names.insert(name.to_owned());
        }
    });
    names
}

/// Returns the text with a space in place of each name.
pub(super) fn without_names(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    each_match(text, |matched, is_name| if is_name { plain.push(' ') } else { plain.extend(matched) });
    plain
}

/// Calls `found` with each part of a text, in order: a name, or a single character outside of names.
fn each_match(text: &str, mut found: impl FnMut(&[char], bool)) {
    let scan = Scan::new(text);
    let mut at = 0;
    while at < scan.chars.len() {
        let name = scan.name_at(at);
        let end = name.unwrap_or(at).max(at + 1);
        found(scan.chars.get(at..end).unwrap_or_default(), name.is_some());
        at = end;
    }
}

/// Returns whether a text contains a name verbatim, not as part of a longer word.
///
/// ```
/// use epitome_lab::evaluation::contains_name;
/// assert!(contains_name("open (src/app.py)", "src/app.py"));
/// assert!(!contains_name("max_size_hint", "max_size"));
/// ```
pub fn contains_name(text: &str, name: &str) -> bool {
    let mut from = 0;
    while let Some(found) = text.get(from..).and_then(|rest| rest.find(name)) {
        let at = from + found;
        let before = text.get(..at).and_then(|head| head.chars().next_back());
        let after = text.get(at + name.len()..).and_then(|tail| tail.chars().next());
        if !before.is_some_and(in_word) && !after.is_some_and(in_word) {
            return true;
        }
        from = at + text.get(at..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8);
    }
    false
}

fn in_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn in_mail(c: char) -> bool {
    in_word(c) || matches!(c, '.' | '+' | '-')
}

fn in_path(c: char) -> bool {
    in_mail(c) || c == '@'
}

fn in_figure(c: char) -> bool {
    c.is_ascii_digit() || c == ','
}

fn in_file(c: char) -> bool {
    in_word(c) || c == '-'
}

/// A text with an index of character runs. For each class of characters and each position, the index contains the end
/// of the run at this position. The index is computed once, because the search uses it at every position.
struct Scan {
    chars: Vec<char>,
    word: Vec<u32>,
    email: Vec<u32>,
    path: Vec<u32>,
    file: Vec<u32>,
    figure: Vec<u32>,
}

impl Scan {
    fn new(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let classes = [in_word, in_mail, in_path, in_file, in_figure];
        let [word, email, path, file, figure] = classes.map(|class| ends(&chars, class));
        Self { chars, word, email, path, file, figure }
    }

    fn get(&self, at: usize) -> Option<char> {
        self.chars.get(at).copied()
    }

    fn is(&self, at: usize, c: char) -> bool {
        self.get(at) == Some(c)
    }

    fn is_word(&self, at: usize) -> bool {
        self.get(at).is_some_and(in_word)
    }

    fn digits(&self, from: usize) -> usize {
        let mut at = from;
        while self.get(at).is_some_and(|c| c.is_ascii_digit()) {
            at += 1;
        }
        at
    }

    fn starts_with(&self, at: usize, what: &str) -> bool {
        what.chars().enumerate().all(|(nth, c)| self.is(at + nth, c))
    }

    /// Returns the end of the name that begins at `at`; `None` if no name begins there.
    fn name_at(&self, at: usize) -> Option<usize> {
        let anywhere = self.url(at).or_else(|| self.email(at)).or_else(|| self.path(at));
        if anywhere.is_some() {
            return anywhere;
        }
        let before = at.checked_sub(1).is_some_and(|before| self.is_word(before));
        if before == self.is_word(at) {
            return None;
        }
        if let Some(end) = self.file(at) {
            return Some(end);
        }
        // A name of any other kind begins with a word.
        if !self.is_word(at) {
            return None;
        }
        let end = end_of(&self.word, at);
        let word = self.chars.get(at..end)?;
        if is_error(word) || is_snake(word) {
            return Some(end);
        }
        if let Some(end) = self.dotted(at, end) {
            return Some(end);
        }
        if is_camel(word) {
            return Some(end);
        }
        if let Some(end) = self.date(at) {
            return Some(end);
        }
        if is_id(word) {
            return Some(end);
        }
        self.decimal(at).or_else(|| {
            let digits = self.digits(at);
            (digits >= at + 3 && digits == end).then_some(end)
        })
    }

    /// Matches `https://…` up to white space, a quote or a closing bracket.
    fn url(&self, at: usize) -> Option<usize> {
        let scheme = ["https://", "http://"].into_iter().find(|scheme| self.starts_with(at, scheme))?;
        let from = at + scheme.len();
        let ends =
            |c: &char| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(c) || "'\"<>)]}".contains(*c);
        let length = self.chars.get(from..)?.iter().take_while(|c| !ends(c)).count();
        (length > 0).then_some(from + length)
    }

    /// Matches `ann@harbour.example`.
    fn email(&self, at: usize) -> Option<usize> {
        let name = end_of(&self.email, at);
        if name == at || !self.is(name, '@') {
            return None;
        }
        let host = end_of(&self.file, name + 1);
        if host == name + 1 || !self.is(host, '.') {
            return None;
        }
        let mut end = host + 1;
        while self.get(end).is_some_and(|c| in_word(c) || c == '.') {
            end += 1;
        }
        (end > host + 1).then_some(end)
    }

    /// Matches `src/main.rs`, `/etc/hosts.d/a`, `~/x/y`: at least two names separated by a slash.
    fn path(&self, at: usize) -> Option<usize> {
        let prefix = ["/", "./", "~/"].into_iter().find(|prefix| self.starts_with(at, prefix));
        prefix.and_then(|prefix| self.segments(at + prefix.len())).or_else(|| self.segments(at))
    }

    fn segments(&self, at: usize) -> Option<usize> {
        let mut end = end_of(&self.path, at);
        if end == at {
            return None;
        }
        let mut several = false;
        while self.is(end, '/') {
            let next = end_of(&self.path, end + 1);
            if next == end + 1 {
                break;
            }
            (end, several) = (next, true);
        }
        several.then_some(end)
    }

    /// Matches `app.py`: a word with one of the extensions in [`FILES`].
    fn file(&self, at: usize) -> Option<usize> {
        let name = end_of(&self.file, at);
        if name == at || !self.is(name, '.') {
            return None;
        }
        let end = end_of(&self.word, name + 1);
        let ending: String =
            self.chars.get(name + 1..end).filter(|ending| ending.len() <= 4)?.iter().collect();
        FILES.contains(&ending.as_str()).then_some(end)
    }

    /// Matches `os.path.join`.
    fn dotted(&self, at: usize, end: usize) -> Option<usize> {
        let begins = |at: usize| self.get(at).is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
        if !begins(at) || end < at + 2 {
            return None;
        }
        let (mut end, mut several) = (end, false);
        while self.is(end, '.') && begins(end + 1) {
            let next = end_of(&self.word, end + 1);
            if next < end + 3 {
                break;
            }
            (end, several) = (next, true);
        }
        several.then_some(end)
    }

    /// Matches `2026-11-02`.
    fn date(&self, at: usize) -> Option<usize> {
        let shape = |nth: usize| match nth {
            4 | 7 => self.is(at + nth, '-'),
            _ => self.get(at + nth).is_some_and(|c| c.is_ascii_digit()),
        };
        ((0..10).all(shape) && !self.is_word(at + 10)).then_some(at + 10)
    }

    /// Matches `1,234.5`.
    fn decimal(&self, at: usize) -> Option<usize> {
        if !self.get(at)?.is_ascii_digit() {
            return None;
        }
        let point = end_of(&self.figure, at);
        let end = self.digits(point + 1);
        (self.is(point, '.') && end > point + 1 && !self.is_word(end)).then_some(end)
    }
}

/// For each position, returns the end of the run of characters of this class at that position. If the character is not
/// of this class, the end is the position itself.
fn ends(chars: &[char], class: fn(char) -> bool) -> Vec<u32> {
    let mut ends = vec![0; chars.len()];
    let mut end = u32::try_from(chars.len()).unwrap_or(u32::MAX);
    for (at, slot) in ends.iter_mut().enumerate().rev() {
        if !chars.get(at).is_some_and(|c| class(*c)) {
            end = u32::try_from(at).unwrap_or(u32::MAX);
        }
        *slot = end;
    }
    ends
}

fn end_of(ends: &[u32], at: usize) -> usize {
    ends.get(at).and_then(|end| usize::try_from(*end).ok()).unwrap_or(at)
}

/// Matches `KeyError`.
fn is_error(word: &[char]) -> bool {
    ["Error", "Exception", "Warning"].iter().any(|ending| {
        let length = ending.len();
        word.len() >= length && word.iter().skip(word.len() - length).copied().eq(ending.chars())
    })
}

/// Matches `max_size`.
fn is_snake(word: &[char]) -> bool {
    word.first().is_some_and(char::is_ascii_alphabetic)
        && word.len() > 2
        && word.get(1..word.len() - 1).is_some_and(|inner| inner.contains(&'_'))
}

/// Matches `HarbourMaster`, `berthCount`.
fn is_camel(word: &[char]) -> bool {
    let mut humps = 0;
    let mut length = 0;
    for (nth, c) in word.iter().enumerate() {
        match c {
            'a'..='z' | '0'..='9' if nth > 0 => length += 1,
            'A'..='Z' | 'a'..='z' if nth == 0 => humps = 1,
            'A'..='Z' if length > 0 => (humps, length) = (humps + 1, 0),
            _ => return false,
        }
    }
    humps > 1 && length > 0
}

/// Matches `4f2a`: at least four characters, with letters and digits.
fn is_id(word: &[char]) -> bool {
    word.len() >= 4 && word.iter().any(char::is_ascii_digit) && word.iter().any(char::is_ascii_alphabetic)
}
