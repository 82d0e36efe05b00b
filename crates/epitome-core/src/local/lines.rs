//! Formats and parses the lines of a summary, such as `[#12-19] Ann: a. b (8 May) | Bob: c`. Lines of an earlier
//! release, which contain the day in their label, are parsed too.
//!
//! The text of one speaker cannot imitate another speaker: a bar inside the text is written as `\|` if the text after
//! the bar looks like a speaker.

use std::borrow::Cow;

use crate::message::Seq;
use crate::redact::redact;

/// Maximum number of characters of a speaker's name.
const NAME: usize = 56;

/// Returns a name as it may appear before a text: short, on one line, without the separators between speakers, and
/// without secrets.
pub(super) fn name(name: &str) -> String {
    let name: String = name.chars().take(4 * NAME).map(|c| if is_break(c) { ' ' } else { c }).collect();
    let name = redact(&name).replace(": ", " ").replace('|', "/");
    let short: String = name.trim().trim_end_matches(':').chars().take(NAME).collect();
    short.trim().to_owned()
}

/// Returns the name of a speaker who is not a user, changed so that it cannot be mistaken for the user or another role.
pub(super) fn name_in_role(name: &str, role: &str) -> String {
    let name = self::name(name);
    let roles = ["user", "assistant", "system", "developer", "peer"];
    if name.is_empty() {
        return role.to_owned();
    }
    let taken = roles.iter().any(|other| *other != role && name.eq_ignore_ascii_case(other));
    if taken { format!("{role} {name}") } else { name }
}

/// Returns whether the character would break a line or is invisible.
fn is_break(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Returns a piece on one line.
pub(super) fn on_one_line(piece: Cow<'_, str>) -> String {
    if !piece.contains(is_break) {
        return piece.into_owned();
    }
    let spaced: String = piece.chars().map(|c| if is_break(c) { ' ' } else { c }).collect();
    spaced.trim().to_owned()
}

/// Escapes a text, so that it cannot be mistaken for the words of another speaker.
pub(super) fn escaped(said: &str) -> Cow<'_, str> {
    rewritten(said, "| ", "\\| ")
}

/// Reverses [`escaped`].
fn unescaped(said: &str) -> Cow<'_, str> {
    rewritten(said, "\\| ", "| ")
}

/// Replaces `old` by `new` wherever `old` follows a space or the start of the text, and the text after `old` looks like
/// a speaker.
fn rewritten<'a>(said: &'a str, old: &str, new: &str) -> Cow<'a, str> {
    let mut out = String::new();
    let mut done = 0;
    for (at, _) in said.match_indices(old) {
        let apart = said.get(..at).is_some_and(|head| head.is_empty() || head.ends_with(' '));
        let behind = said.get(at + old.len()..).unwrap_or_default();
        if apart && speaker(behind).is_some() {
            out.push_str(said.get(done..at).unwrap_or_default());
            out.push_str(new);
            done = at + old.len();
        }
    }
    if done == 0 {
        return Cow::Borrowed(said);
    }
    out.push_str(said.get(done..).unwrap_or_default());
    Cow::Owned(out)
}

/// A parsed line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ParsedLine<'a> {
    pub(super) from: Seq,
    pub(super) through: Seq,
    pub(super) date: Option<&'a str>,
    pub(super) turns: Vec<Turn<'a>>,
}

/// The text of one speaker in a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Turn<'a> {
    pub(super) speaker: &'a str,
    pub(super) text: Cow<'a, str>,
}

/// Parses a line; returns `None` if it does not have this format.
pub(super) fn read(line: &str) -> Option<ParsedLine<'_>> {
    let (label, mut rest) = line.strip_prefix("[#")?.split_once("] ")?;
    let (places, date) = label.split_once(' ').map_or((label, None), |(places, date)| (places, Some(date)));
    let (from, through) = places.split_once('-').unwrap_or((places, places));
    let (from, through) = (from.parse().ok()?, through.parse().ok()?);
    let mut turns = Vec::new();
    let (mut speaker, first) = speaker(rest)?;
    rest = first;
    // A bar separates speakers only if a speaker follows it: commands contain bars of their own.
    let mut at = 0;
    while let Some(bar) = rest.get(at..).and_then(|tail| tail.find(" | ")).map(|bar| bar + at) {
        let behind = rest.get(bar + 3..).unwrap_or_default();
        match self::speaker(behind) {
            Some((next, text)) => {
                turns.push(Turn { speaker, text: unescaped(rest.get(..bar).unwrap_or_default()) });
                (speaker, rest, at) = (next, text, 0);
            }
            None => at = bar + 3,
        }
    }
    turns.push(Turn { speaker, text: unescaped(rest) });
    Some(ParsedLine { from, through, date, turns })
}

/// Returns whether the line would be parsed as a formatted line or a list of names instead of as plain text.
pub(super) fn is_own_format(line: &str) -> bool {
    crate::ledger::lists_names(line) || read(line).is_some()
}

/// Splits `Ann: …` or `assistant calls run: …` into the speaker and the text.
fn speaker(text: &str) -> Option<(&str, &str)> {
    // Searches only as far as a name can reach. Otherwise a line with many bars would take quadratic time.
    let near = text.get(..text.floor_char_boundary(8 * NAME)).unwrap_or_default();
    let end = near.find(": ")?;
    let (speaker, said) = (text.get(..end)?, text.get(end + 2..)?);
    let short = !speaker.is_empty() && speaker.chars().count() <= 2 * NAME + 8;
    let plain = speaker.chars().all(|c| c.is_alphanumeric() || matches!(c, ' ' | '_' | '-' | '.'));
    (short && plain && speaker.split(' ').count() <= 6).then_some((speaker, said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formatted_line_parses_to_its_parts() {
        let line =
            read("[#12-19 8 May, 2023] Ann: It works. Now | assistant calls run: ls | head -3 | run: a.rs")
                .unwrap();
        assert_eq!((line.from, line.through, line.date), (12, 19, Some("8 May, 2023")));
        let turns: Vec<_> = line.turns.iter().map(|turn| (turn.speaker, turn.text.as_ref())).collect();
        assert_eq!(
            turns,
            [("Ann", "It works. Now"), ("assistant calls run", "ls | head -3"), ("run", "a.rs")]
        );
    }

    #[test]
    fn a_text_cannot_imitate_another_speaker() {
        for said in ["a | user: b", "| user: b", "a | Ann: b | Bob: c", "ls | head -3", "a \\| b | user: c"] {
            let line = format!("[#3] run: {}", escaped(said));
            let read = read(&line).unwrap();
            let turns: Vec<_> = read.turns.iter().map(|turn| (turn.speaker, turn.text.as_ref())).collect();
            assert_eq!(turns, [("run", said)], "{line}");
        }
        assert_eq!(escaped("ls | head -3"), "ls | head -3");
    }

    #[test]
    fn a_name_stays_a_name() {
        assert_eq!(name("Eve\n[#1] user: x | y"), "Eve [#1] user x / y");
        assert_eq!(name("Ann van der Berg"), "Ann van der Berg");
        assert_eq!(name(&"x".repeat(1_000)).len(), NAME);
        assert_eq!(name_in_role("user", "tool"), "tool user");
        assert_eq!((name_in_role("run", "tool"), name_in_role(" ", "tool")), ("run".into(), "tool".into()));
    }

    #[test]
    fn other_lines_are_not_ours() {
        for other in ["", "[#12]", "[#x] Ann: a", "[12] Ann: a", "[#1-2] no speaker", "- [#1] see above"] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
