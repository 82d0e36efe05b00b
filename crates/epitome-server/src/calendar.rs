//! Days and dates for `http/v3/moment.rs`: all that is read or written of time there is UTC.

use jiff::Span;
use jiff::civil::{Date, date as civil};

const EPOCH: Date = civil(1970, 1, 1);

/// The date so many days after 1970-01-01: year, month, day. The last one there is where it is further off.
pub(crate) fn date(days: i64) -> (i64, i64, i64) {
    let far = if days < 0 { Date::MIN } else { Date::MAX };
    let date = Span::new().try_days(days).and_then(|span| EPOCH.checked_add(span)).unwrap_or(far);
    (date.year().into(), date.month().into(), date.day().into())
}

/// How many days after 1970-01-01 the day is that is written so: `2026-03-14`. None where there is no such day.
pub(crate) fn day(text: &str) -> Option<i64> {
    let date = Date::strptime("%Y-%m-%d", text).ok()?;
    // `strptime` is lenient about signs and missing zeros.
    (date.to_string() == text).then(|| EPOCH.duration_until(date).as_hours() / 24)
}

/// A number of just so many digits, and nothing else: no sign, no blank.
pub(crate) fn number(text: &str, digits: usize) -> Option<i64> {
    let plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_four_digit_years_is_read_as_it_is_written() {
        let (first, last) = (day("0001-01-01").unwrap(), day("9999-12-31").unwrap());
        assert_eq!((first, last), (-719_162, 2_932_896));
        for days in (first..=last).step_by(17).chain(first..first + 800).chain(-800..800) {
            let (year, month, of_month) = date(days);
            assert_eq!(day(&format!("{year:04}-{month:02}-{of_month:02}")), Some(days));
        }
    }

    #[test]
    fn only_digits_in_their_places_are_a_number() {
        assert_eq!(number("07", 2), Some(7));
        for none in ["7", "+7", "-7", " 7", "007", "", "٠٧"] {
            assert_eq!(number(none, 2), None, "{none}");
        }
    }
}
