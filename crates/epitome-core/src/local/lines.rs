//! Reading a line that was written here: `[#12-19 8 May] Ann: a. b | Bob: c`.

use crate::message::Seq;

/// A line, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) from: Seq,
    pub(super) through: Seq,
    pub(super) date: Option<&'a str>,
    pub(super) turns: Vec<Turn<'a>>,
}

/// What one of them said.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Turn<'a> {
    pub(super) speaker: &'a str,
    pub(super) text: &'a str,
}

/// The line taken apart, if it is one of ours.
pub(super) fn read(line: &str) -> Option<Line<'_>> {
    let (label, mut rest) = line.strip_prefix("[#")?.split_once("] ")?;
    let (places, date) = label.split_once(' ').map_or((label, None), |(places, date)| (places, Some(date)));
    let (from, through) = places.split_once('-').unwrap_or((places, places));
    let (from, through) = (from.parse().ok()?, through.parse().ok()?);
    let mut turns = Vec::new();
    let (mut speaker, first) = speaker(rest)?;
    rest = first;
    // A bar divides speakers only where somebody speaks after it: commands have bars of their own.
    let mut at = 0;
    while let Some(bar) = rest.get(at..).and_then(|tail| tail.find(" | ")).map(|bar| bar + at) {
        let behind = rest.get(bar + 3..).unwrap_or_default();
        match self::speaker(behind) {
            Some((next, text)) => {
                turns.push(Turn { speaker, text: rest.get(..bar).unwrap_or_default() });
                (speaker, rest, at) = (next, text, 0);
            }
            None => at = bar + 3,
        }
    }
    turns.push(Turn { speaker, text: rest });
    Some(Line { from, through, date, turns })
}

/// `Ann: …`, `assistant calls run: …`.
fn speaker(text: &str) -> Option<(&str, &str)> {
    let (speaker, said) = text.split_once(": ")?;
    let short = !speaker.is_empty() && speaker.len() <= 64;
    let plain = speaker.chars().all(|c| c.is_alphanumeric() || matches!(c, ' ' | '_' | '-' | '.'));
    (short && plain && speaker.split(' ').count() <= 4).then_some((speaker, said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_apart_as_it_was_put_together() {
        let line =
            read("[#12-19 8 May, 2023] Ann: It works. Now | assistant calls run: ls | head -3 | run: a.rs")
                .unwrap();
        assert_eq!((line.from, line.through, line.date), (12, 19, Some("8 May, 2023")));
        let turns: Vec<_> = line.turns.iter().map(|turn| (turn.speaker, turn.text)).collect();
        assert_eq!(
            turns,
            [("Ann", "It works. Now"), ("assistant calls run", "ls | head -3"), ("run", "a.rs")]
        );
    }

    #[test]
    fn other_lines_are_not_ours() {
        for other in ["", "[#12]", "[#x] Ann: a", "[12] Ann: a", "[#1-2] no speaker", "- [#1] see above"] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
