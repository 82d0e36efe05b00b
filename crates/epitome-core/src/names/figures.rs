//! Finds numbers and dates, together with the units, labels and months next to them.

use super::lists::{DAYS, FOREIGN_UNITS, LABELS, MONTHS, UNITS};
use super::scan::{CharCounts, Scanner};
use super::{Name, NameKind};

impl<'a, F: FnMut(Name<'a>)> Scanner<'a, F> {
    /// Finds a date whose month is a word next to the number of the day: `Saturday 12 April`, `March 14th, 2027`.
    /// Returns whether a date was found.
    pub(super) fn date(&mut self, start: usize, end: usize) -> bool {
        let day = self.slice(start, end).trim_end_matches(|c: char| c.is_ascii_lowercase());
        if !(1..=2).contains(&day.len()) || !day.bytes().all(|byte| byte.is_ascii_digit()) {
            return false;
        }
        let (mut from, mut to) = (start, end);
        let behind = match self.word_behind(end) {
            (_, "of") => self.word_behind(end + 3),
            word => word,
        };
        let before = self.word_before(start);
        if MONTHS.contains(&behind.1.to_lowercase().as_str()) {
            to = behind.0;
        } else if MONTHS.contains(&before.1.to_lowercase().as_str()) {
            from = before.0;
        } else {
            return false;
        }
        let weekday = self.word_before(from);
        if DAYS.contains(&weekday.1.to_lowercase().as_str()) {
            from = weekday.0;
        }
        let rest = self.text.get(to..).unwrap_or_default();
        let year = rest.trim_start_matches([',', ' ']);
        let digits = year.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 4 && rest.len() - year.len() <= 2 {
            to += rest.len() - year.len() + 4;
        }
        self.report(from, to, NameKind::Id, true);
        self.reported_to = self.reported_to.max(to);
        true
    }

    /// Returns the word that follows position `end` after one space, and the end position of this word.
    fn word_behind(&self, end: usize) -> (usize, &'a str) {
        let Some(rest) = self.text.get(end..).and_then(|rest| rest.strip_prefix(' ')) else {
            return (end, "");
        };
        let word = rest.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
        (end + 1 + word.len(), word)
    }

    /// Returns the word before position `start`, and the start position of this word.
    fn word_before(&self, start: usize) -> (usize, &'a str) {
        let Some(rest) = self.text.get(..start).and_then(|rest| rest.strip_suffix(' ')) else {
            return (start, "");
        };
        let rest = rest.trim_end_matches(',');
        let word = rest.rsplit(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
        (rest.len() - word.len(), word)
    }

    /// Reports a number with the unit after it, or with the label or currency before it.
    pub(super) fn figure(&mut self, start: usize, end: usize, run: &str, counts: &CharCounts) {
        if counts.digits == 0 {
            return;
        }
        if counts.hyphens == 2 && run.len() == 10 && counts.digits == 8 {
            return self.report(start, end, NameKind::Id, true);
        }
        if self.date(start, end) {
            return;
        }
        if counts.hyphens > 0 {
            if counts.digits >= 6 {
                self.report(start, end, NameKind::Id, true);
            }
            return;
        }
        let (mut from, mut to) = (start, end);
        let mut has_context = false;
        if let Some(unit) = self.unit(end) {
            to = self.end_of_date(unit);
            has_context = true;
        }
        let before = self.text.get(..start).unwrap_or_default();
        if let Some(sign) =
            before.chars().next_back().filter(|c| matches!(c, '$' | '€' | '£' | '¥' | '₽' | '₹' | '#' | '№'))
        {
            from = start - sign.len_utf8();
            // `$1` is a placeholder in a pattern, not a price.
            has_context = run.len() > 1;
        } else if let Some(label) = self.label(start) {
            from = label;
            has_context = true;
        }
        let fractional = counts.dots > 0 || run.contains(':');
        if has_context || counts.digits >= 3 || fractional {
            // A number in a record, such as `"price": 177`, is treated as an id, because it identifies one thing.
            let value = !self.speech && (before.ends_with("\": ") || before.ends_with("\":"));
            let line = if has_context { None } else { self.numbers_a_line(start, end) };
            let kind = match line {
                _ if value => NameKind::Id,
                Some(b':') => NameKind::Line,
                _ => NameKind::Number,
            };
            self.report(from, to, kind, line.is_none() || kind == NameKind::Line);
        }
    }

    /// Recognises a line number at the start of a line, as in `630:    return None` and `12-import os`. Tools print
    /// hundreds of such lines. Returns the character after the number: a colon marks a search result. Returns `None` if
    /// the number is not a line number.
    fn numbers_a_line(&self, start: usize, end: usize) -> Option<u8> {
        let behind = self.byte(end);
        let apart = matches!(behind, b':' | b'-' | b'\t' | b' ' | b'|');
        (!self.speech && apart && self.begins_line(start)).then_some(behind)
    }

    /// Returns the end of a date or time that is written with units, such as `2026年11月15日` and `18時30分`.
    fn end_of_date(&self, end: usize) -> usize {
        let mut end = end;
        loop {
            let head = self.text.get(..end).unwrap_or_default();
            let rest = self.text.get(end..).unwrap_or_default();
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let unit = rest.get(digits..).and_then(|rest| rest.chars().next());
            match unit {
                Some(c @ ('月' | '日' | '号' | '分' | '秒'))
                    if (1..=2).contains(&digits) && head.ends_with(['年', '月', '時', '时', '分']) =>
                {
                    end += digits + c.len_utf8();
                }
                _ => return end,
            }
        }
    }

    /// Returns the end of the unit that follows a number; `None` if there is no unit.
    fn unit(&self, end: usize) -> Option<usize> {
        let rest = self.text.get(end..)?;
        if rest.starts_with('%') {
            return Some(end + 1);
        }
        let first = rest.chars().next()?;
        if "€£°円元年月日人個个時时分秒号號階层台万件回次名枚".contains(first) {
            return Some(end + first.len_utf8());
        }
        let word = rest.strip_prefix([' ', '\u{a0}']).unwrap_or(rest);
        let length = word.find(|c: char| !c.is_alphabetic()).unwrap_or(word.len());
        let unit = word.get(..length)?;
        let is_unit = UNITS.contains(&unit) || FOREIGN_UNITS.contains(&unit);
        (is_unit && !word.get(length..)?.starts_with(['/', '_']))
            .then(|| end + (rest.len() - word.len()) + length)
    }

    /// Returns the start of the label before a number; `None` if there is no label.
    fn label(&self, start: usize) -> Option<usize> {
        let (from, to) = self.previous;
        let between = self.text.get(to..start)?;
        if to == 0 || !matches!(between, " " | ": " | "=" | " #" | "#" | ":") {
            return None;
        }
        let word = self.slice(from, to);
        LABELS.binary_search(&word.to_ascii_lowercase().as_str()).ok().map(|_| from)
    }
}
