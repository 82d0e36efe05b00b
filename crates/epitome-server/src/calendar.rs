//! Days and dates, without a crate for it: all that is told or read of time here is UTC.
//!
//! `show` tells moments to people, `http/v3/moment.rs` to programs; both count days here.

/// The date so many days after 1970-01-01: year, month, day. Years are counted from March on, in eras of 400 that are
/// all alike, so that the odd day comes last.
pub(crate) fn date(days: i64) -> (i64, i64, i64) {
    let days = days.saturating_add(719_468);
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// How many days after 1970-01-01 the day is that is written so: `2026-03-14`. None where there is no such day.
pub(crate) fn day(text: &str) -> Option<i64> {
    let (year, rest) = text.split_once('-')?;
    let (month, day) = rest.split_once('-')?;
    let wanted = (number(year, 4)?, number(month, 2)?, number(day, 2)?);
    let days = days(wanted);
    // What is no day of that month comes back as one of the next.
    (date(days) == wanted).then_some(days)
}

/// A number of just so many digits, and nothing else: no sign, no blank.
pub(crate) fn number(text: &str, digits: usize) -> Option<i64> {
    let plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

/// The other way round, for years of four digits.
fn days((year, month, day): (i64, i64, i64)) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
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
