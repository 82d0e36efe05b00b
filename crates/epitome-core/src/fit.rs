//! Making a summary fit: fewer lines of it, the telling ones, in their order.
//!
//! A stored summary has one size; a context may want another. [`shorten`] splits it into lines, and
//! prose into sentences, ranks them by what they are likely to be worth, and takes the best that
//! fit. The same ranking makes a digest of messages no summary covers yet. No model is asked and no
//! word is changed, so it is fast and the same every time.
//!
//! The ranking looks at shape only (length, figures, names, questions), not at words, and so works
//! in any language.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::message::{Content, Message, Part, Role, Tokens};
use crate::tokens::Counter;

/// The line of a summary that lists names, the likeliest needed first.
const REFERENCES: &str = "References:";

/// How a line of a tool's output starts in a digest.
const TOOL: &str = "tool:";

/// A text of at most `room` tokens made of the best lines of `text`; empty when none fits.
///
/// ```
/// use epitome_core::fit::shorten;
/// use epitome_core::tokens::{Counter, Encoding};
///
/// let counter = Counter::new(Encoding::O200k);
/// let text = "They talked for a while.\nAnn moved the release to 14 March.\nIt went on and on.";
/// assert_eq!(shorten(text, 12, &counter), "Ann moved the release to 14 March.");
/// ```
#[must_use]
pub fn shorten(text: &str, room: Tokens, counter: &Counter) -> String {
    Lines::new(text, []).within(room, counter)
}

/// A text of at most `room` tokens made of the best lines of a prior summary and of the messages
/// after it, each with its speaker; empty when none fits. Skipped messages are passed over.
///
/// ```
/// use epitome_core::fit::digest;
/// use epitome_core::message::Message;
/// use epitome_core::tokens::{Counter, Encoding};
///
/// let counter = Counter::new(Encoding::O200k);
/// let said = [Message::user("Hello?"), Message::assistant("Ann moved the release to 14 March.")];
/// assert_eq!(digest("", &said, 14, &counter), "assistant: Ann moved the release to 14 March.");
/// ```
#[must_use]
pub fn digest(prior: &str, messages: &[Message], room: Tokens, counter: &Counter) -> String {
    Lines::new(prior, messages.iter().filter(|message| !message.skip)).within(room, counter)
}

/// What may go into a text, and is ranked anew for each size it is wanted in.
pub(crate) struct Lines<'a>(Vec<Unit<'a>>);

impl<'a> Lines<'a> {
    /// The lines of a prior summary, and those of the messages after it.
    pub(crate) fn new(prior: &'a str, messages: impl IntoIterator<Item = &'a Message>) -> Self {
        let mut units = units_of(prior);
        let mut line = units.last().map_or(0, |unit| unit.line);
        for message in messages {
            lines_of(message, &mut line, &mut units);
        }
        Self(units)
    }

    /// The best of them in at most `room` tokens, in their order.
    pub(crate) fn within(&self, room: Tokens, counter: &Counter) -> String {
        compose(&self.0, room, counter)
    }
}

/// A piece of text that is taken or left whole.
#[derive(Debug, Clone)]
struct Unit<'a> {
    text: &'a str,
    /// Units of one line are put together again.
    line: usize,
    /// Set before the unit where it starts its line.
    label: Cow<'a, str>,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Somebody said it.
    Speech,
    /// A tool said it.
    Output,
    /// One of the references, with its rank from 1.
    Name(u32),
}

fn units_of(text: &str) -> Vec<Unit<'_>> {
    let mut units = Vec::new();
    for (line, words) in text.lines().enumerate().filter(|(_, words)| !words.trim().is_empty()) {
        if let Some(names) = words.strip_prefix(REFERENCES) {
            units.extend(names.split_whitespace().zip(1..).map(|(name, rank)| Unit {
                text: name,
                line,
                label: Cow::Borrowed(REFERENCES),
                kind: Kind::Name(rank),
            }));
            continue;
        }
        units.extend(sentences(words).map(|sentence| Unit {
            text: sentence,
            line,
            label: Cow::Borrowed(""),
            kind: if words.starts_with(TOOL) { Kind::Output } else { Kind::Speech },
        }));
    }
    units
}

/// Lines short enough to be one thought stay whole. Prose is split after `.`, `!`, `?` and their
/// like in other scripts, and what is still too long at a space, or anywhere.
fn sentences(line: &str) -> impl Iterator<Item = &str> {
    let whole = line.chars().count() <= 120;
    let mut rest = line.trim();
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut end = rest.len();
        let mut space = None;
        let mut chars = rest.char_indices().enumerate().peekable();
        while let Some((nth, (at, c))) = chars.next() {
            let next = chars.peek().map(|(_, (_, next))| *next);
            let full_width = matches!(c, '。' | '！' | '？' | '।' | '؟');
            let stop = matches!(c, '.' | '!' | '?') && next.is_none_or(char::is_whitespace);
            if !whole && (full_width || stop) {
                end = at + c.len_utf8();
                break;
            }
            if c.is_whitespace() {
                space = Some(at);
            }
            if nth + 1 >= LONGEST {
                end = space.filter(|at| *at > 0).unwrap_or(at + c.len_utf8());
                break;
            }
        }
        let (sentence, left) = rest.split_at_checked(end)?;
        rest = left.trim_start();
        Some(sentence)
    })
}

/// The characters of the longest piece that is taken or left whole.
const LONGEST: usize = 240;

/// How telling a piece is, by its shape; nothing where it says nothing.
fn worth(unit: &Unit<'_>) -> Option<f64> {
    let text = unit.text;
    if let Kind::Name(rank) = unit.kind {
        // Falls with the rank, so that names share the room with lines.
        return Some(4.0 / f64::from(rank).sqrt());
    }
    let letters = text.chars().filter(|c| c.is_alphanumeric()).count();
    if letters < 4 {
        return None;
    }
    // Scripts without spaces have about six characters a word, counted as ours are.
    let words = text.split_whitespace().count().max(text.chars().count() / 6);
    let words = u32::try_from(words).unwrap_or(u32::MAX);
    let (mut capitals, mut names) = (0u32, 0u32);
    for word in text.split_whitespace().skip(1) {
        let odd = word.chars().any(|c| matches!(c, '/' | '_' | '@' | '#' | '=') || c.is_ascii_digit());
        names += u32::from(odd && word.len() > 1);
        capitals += u32::from(!odd && word.chars().next().is_some_and(char::is_uppercase));
    }
    let question = text.trim_end().ends_with(['?', '？', '؟']);
    let score = 1.6 * f64::from(words.min(6)) / 6.0
        + 0.3 * f64::from(words.min(20)) / 10.0
        + 0.2 * f64::from(capitals.min(3))
        + 0.2 * f64::from(names.min(4))
        - if question { 0.6 } else { 0.0 }
        - if unit.kind == Kind::Output { 0.5 } else { 0.0 };
    Some(exp(score))
}

/// Near enough to the exponential, and the same to the bit on every machine: libraries differ in
/// the last digit of theirs.
fn exp(x: f64) -> f64 {
    let sixteenth = 1.0 + x / 16.0;
    let fourth = sixteenth * sixteenth * sixteenth * sixteenth;
    fourth * fourth * fourth * fourth
}

/// What a piece costs, growing a little slower than its tokens.
fn weight(tokens: Tokens) -> f64 {
    let root = (tokens.saturating_add(4) as f64).sqrt();
    root * root.sqrt()
}

/// The best units that fit, in their order, put together line by line.
fn compose(units: &[Unit<'_>], room: Tokens, counter: &Counter) -> String {
    let total = units.len().max(1) as f64;
    let mut said: HashSet<&str> = HashSet::new();
    let mut ranked: Vec<(f64, Tokens, usize)> = Vec::with_capacity(units.len());
    // The newest of what is said twice is the one to keep.
    for (at, unit) in units.iter().enumerate().rev() {
        let Some(worth) = worth(unit).filter(|_| said.insert(unit.text)) else { continue };
        let newer = 1.0 + 0.3 * at as f64 / total;
        // With its line break, and with the label that comes with a line. Names share one.
        let label = if matches!(unit.kind, Kind::Name(_)) { 0 } else { counter.text(&unit.label) };
        let tokens = counter.text(unit.text).saturating_add(label).saturating_add(1);
        ranked.push((worth * newer / weight(tokens), tokens, at));
    }
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.2.cmp(&b.2)));
    let mut taken: Vec<(usize, Tokens)> = Vec::new();
    let mut spent: Tokens = 0;
    for (_, tokens, at) in ranked {
        if spent.saturating_add(tokens) <= room.saturating_add(1) {
            spent = spent.saturating_add(tokens);
            taken.push((at, tokens));
        }
    }
    // Pieces counted apart are not always the sum of their parts; the text itself decides.
    loop {
        let text = put_together(units, &taken);
        let mut over = counter.text(&text).saturating_sub(room);
        if taken.is_empty() || over == 0 {
            return text;
        }
        while let Some((_, tokens)) = taken.pop_if(|_| over > 0) {
            over = over.saturating_sub(tokens);
        }
    }
}

fn put_together(units: &[Unit<'_>], taken: &[(usize, Tokens)]) -> String {
    let mut order: Vec<usize> = taken.iter().map(|(at, _)| *at).collect();
    order.sort_unstable();
    let mut out = String::new();
    let mut line = None;
    for unit in order.into_iter().filter_map(|at| units.get(at)) {
        if line == Some(unit.line) {
            out.push(' ');
        } else {
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(&unit.label);
            if !unit.label.is_empty() {
                out.push(' ');
            }
        }
        line = Some(unit.line);
        out.push_str(unit.text);
    }
    out
}

/// A long text is read by its ends only, so that a digest costs no more than what it could hold.
fn ends(text: &str) -> (&str, &str) {
    if text.len() <= 2 * MOST_READ {
        return (text, "");
    }
    let (head, tail) = (text.floor_char_boundary(MOST_READ), text.ceil_char_boundary(text.len() - MOST_READ));
    (text.get(..head).unwrap_or(""), text.get(tail..).unwrap_or(""))
}

/// The bytes read of either end of a long text.
const MOST_READ: usize = 8 << 10;

/// The telling lines of a message, each with its speaker. Long outputs give only their ends.
fn lines_of<'a>(message: &'a Message, line: &mut usize, units: &mut Vec<Unit<'a>>) {
    let speaker = message.author.as_deref().map_or_else(|| message.role.to_string(), str::to_owned);
    let mut say = |text: &'a str, most: usize| {
        let (head, tail) = ends(text);
        let lines: Vec<&str> =
            head.lines().chain(tail.lines()).filter(|words| !words.trim().is_empty()).collect();
        let skip = lines.len().saturating_sub(most);
        for (at, words) in lines.iter().enumerate() {
            if skip > 0 && at >= most / 2 && at < most / 2 + skip {
                continue;
            }
            *line += 1;
            units.extend(sentences(words).map(|sentence| Unit {
                text: sentence,
                line: *line,
                label: Cow::Owned(format!("{speaker}:")),
                kind: if message.role == Role::Tool { Kind::Output } else { Kind::Speech },
            }));
        }
    };
    for part in &message.parts {
        match part {
            Part::Text { text } => say(text, 40),
            Part::ToolCall(call) => say(&call.arguments, 4),
            Part::ToolResult(result) => {
                for content in &result.content {
                    if let Content::Text { text } = content {
                        say(text, 12);
                    }
                }
            }
            Part::Thinking { .. } | Part::Media(_) => {}
        }
    }
}
