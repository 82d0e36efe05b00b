//! Formats numbers, times and texts for people.

use epitome::rules::message::Timestamp;
use jiff::SignedDuration;
use jiff::civil::{Date, DateTime, date};

/// The day from which milliseconds are counted. It is a civil date of the crate `jiff`, because the timestamps of
/// `jiff` cannot represent the last day of the year 9999.
const EPOCH: Date = date(1970, 1, 1);

/// Formats a number with separators: `1234567` becomes `1,234,567`.
pub fn grouped(number: u64) -> String {
    indicatif::HumanCount(number).to_string()
}

/// Formats a number of things, such as `1 message` or `1,200 messages`.
pub fn count(number: u64, what: &str) -> String {
    let plural = match what.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o']) => format!("{stem}ies"),
        _ => format!("{what}s"),
    };
    format!("{} {}", grouped(number), if number == 1 { what } else { &plural })
}

/// Formats a number of bytes, such as `3.4 MB`. As for disks, a kB has 1,000 bytes.
#[expect(clippy::cast_precision_loss, reason = "the result is rounded to a tenth")]
pub fn bytes(number: u64) -> String {
    let mut size = number as f64;
    for unit in ["bytes", "kB", "MB", "GB"] {
        if size < 1_000.0 {
            return if unit == "bytes" { format!("{number} bytes") } else { format!("{size:.1} {unit}") };
        }
        size /= 1_000.0;
    }
    format!("{size:.1} TB")
}

/// Formats how long ago a time was: `just now`, `3 min ago`, `5 h ago`, `2 days ago`. A time that is older than 31
/// days, or in the future, is formatted as a date and time.
pub fn ago(now: Timestamp, then: Timestamp) -> String {
    let seconds = now.0.saturating_sub(then.0) / 1_000;
    match seconds {
        ..=-60 => utc(then),
        -59..60 => "just now".to_owned(),
        60..3_600 => format!("{} min ago", seconds / 60),
        3_600..86_400 => format!("{} h ago", seconds / 3_600),
        86_400..172_800 => "1 day ago".to_owned(),
        172_800..2_678_400 => format!("{} days ago", seconds / 86_400),
        _ => utc(then),
    }
}

/// Formats a time as `2026-03-14 10:22 UTC`. A time before the year -9999 is formatted as the first time of that year,
/// and a time after the year 9999 as the last time of that year.
pub fn utc(time: Timestamp) -> String {
    let far = if time.0 < 0 { DateTime::MIN } else { DateTime::MAX };
    let since = SignedDuration::from_millis(time.0);
    let utc = EPOCH.at(0, 0, 0, 0).checked_add(since).unwrap_or(far);
    utc.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

/// Parses a day such as `2026-03-14`, and returns its start in UTC. Returns `None` if there is no such day.
pub fn day(text: &str) -> Option<Timestamp> {
    let date = Date::strptime("%Y-%m-%d", text).ok()?;
    let start = i64::try_from(EPOCH.duration_until(date).as_millis()).ok()?;
    // `strptime` also accepts signs and missing zeros. So the text is compared with the formatted date.
    (date.to_string() == text).then_some(Timestamp(start))
}

/// Formats progress as a bar of this width in columns: `█████░░░`.
pub fn bar(have: u64, need: u64, columns: usize) -> String {
    let all = columns as u64;
    let part = u128::from(have) * u128::from(all);
    let full = part.checked_div(u128::from(need)).unwrap_or(u128::MAX);
    let full = usize::try_from(full).unwrap_or(columns).min(columns);
    format!("{}{}", "█".repeat(full), "░".repeat(columns.saturating_sub(full)))
}

/// Makes a text safe to print. Escapes the characters that would move the terminal's cursor or change its colours. Line
/// ends and tabs stay unchanged.
pub fn printable(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    let is_printable = |c: char| c == '\n' || c == '\t' || !c.is_control();
    let mut printable = String::with_capacity(text.len());
    for c in text.chars() {
        if is_printable(c) { printable.push(c) } else { printable.extend(c.escape_default()) }
    }
    printable
}

/// Returns the width of a text in columns of a terminal.
pub fn display_width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

/// Cuts a text to this width in columns, and marks the cut with `…`.
pub fn clipped(text: &str, most: usize) -> String {
    if display_width(text) <= most {
        return text.to_owned();
    }
    let mut left = most.saturating_sub(1);
    let mut short: String = text
        .chars()
        .take_while(|c| {
            let fits = char_width(*c) <= left;
            left = left.saturating_sub(char_width(*c));
            fits
        })
        .collect();
    short.push('…');
    short
}

/// Returns the approximate width of a character in columns. Combining marks take no column. East Asian characters and
/// emoji take two columns.
fn char_width(c: char) -> usize {
    match c {
        '\u{0300}'..='\u{036F}'
        | '\u{200B}'..='\u{200F}'
        | '\u{20D0}'..='\u{20FF}'
        | '\u{FE00}'..='\u{FE0F}' => 0,
        '\u{1100}'..='\u{115F}'
        | '\u{2E80}'..='\u{303E}'
        | '\u{3041}'..='\u{33FF}'
        | '\u{3400}'..='\u{4DBF}'
        | '\u{4E00}'..='\u{9FFF}'
        | '\u{A000}'..='\u{A4CF}'
        | '\u{AC00}'..='\u{D7A3}'
        | '\u{F900}'..='\u{FAFF}'
        | '\u{FE30}'..='\u{FE4F}'
        | '\u{FF00}'..='\u{FF60}'
        | '\u{FFE0}'..='\u{FFE6}'
        | '\u{1F300}'..='\u{1F64F}'
        | '\u{1F680}'..='\u{1F6FF}'
        | '\u{1F900}'..='\u{1F9FF}'
        | '\u{20000}'..='\u{3FFFD}' => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(count(1, "message"), "1 message");
        assert_eq!(count(2_000, "summary"), "2,000 summaries");
        assert_eq!([0, 999, 1_500, 12_345_678].map(bytes), ["0 bytes", "999 bytes", "1.5 kB", "12.3 MB"]);
    }

    #[test]
    fn a_day_is_parsed_as_it_is_formatted() {
        for (text, formatted) in [
            ("1970-01-01", "1970-01-01 00:00 UTC"),
            ("2000-02-29", "2000-02-29 00:00 UTC"),
            ("2100-03-01", "2100-03-01 00:00 UTC"),
            ("9999-12-31", "9999-12-31 00:00 UTC"),
        ] {
            assert_eq!(day(text).map(utc).as_deref(), Some(formatted));
        }
        for none in
            ["2100-02-29", "2026-00-01", "2026-13-01", "2026-04-31", "2026-4-1", "26-04-01", "", "2026-04"]
        {
            assert_eq!(day(none), None, "{none}");
        }
    }

    #[test]
    fn times_are_formatted_for_people() {
        let now = Timestamp(1_773_483_725_000);
        let before = |seconds: i64| ago(now, Timestamp(now.0 - seconds * 1_000));
        assert_eq!(
            [0, 59, 60, 7_300, 90_000, 180_000].map(before).join(", "),
            "just now, just now, 1 min ago, 2 h ago, 1 day ago, 2 days ago"
        );
        assert_eq!(utc(now), "2026-03-14 10:22 UTC");
        assert_eq!(before(40 * 86_400), "2026-02-02 10:22 UTC");
        for (millis, date) in [
            (0, "1970-01-01 00:00 UTC"),
            (-1, "1969-12-31 23:59 UTC"),
            (951_782_400_000, "2000-02-29 00:00 UTC"),
            (4_107_542_400_000, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(utc(Timestamp(millis)), date);
        }
        for odd in [i64::MIN, i64::MAX] {
            assert!(!utc(Timestamp(odd)).is_empty() && !ago(now, Timestamp(odd)).is_empty());
        }
    }

    #[test]
    fn bars_and_clipped_texts_have_the_requested_width() {
        assert_eq!(bar(13, 20, 8), "█████░░░");
        assert_eq!([bar(30, 20, 4), bar(0, 0, 2), bar(u64::MAX, 1, 2)], ["████", "██", "██"]);
        assert_eq!(clipped("support", 7), "support");
        assert_eq!(clipped("support-42", 7), "suppor…");
        assert_eq!((display_width("日本語"), clipped("日本語", 4)), (6, "日…".to_owned()));
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("red \u{1b}[31m\r\nnext\ttab\u{7}"), "red \\u{1b}[31m\nnext\ttab\\u{7}");
    }
}
