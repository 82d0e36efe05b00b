//! Moments as Honcho's clients write and read them: ISO 8601, to the microsecond.
//!
//! Our own times are milliseconds; the original's have six digits, and a client that sends one expects it back as it was.
//! So a moment here is finer than ours. Days are counted in `calendar`.

use std::fmt::{self, Display, Formatter};

use crate::calendar;

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

/// Microseconds since 1970-01-01, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) i64);

impl Moment {
    /// Reads what Python's `isoformat` and JavaScript's `toISOString` write, and what stands between them: a date, or a
    /// date and a time to the minute, second or fraction of one, with `T`, `t` or a blank between; then `Z`, `z`,
    /// `+02:00`, `+0200`, `+02` or nothing, which is UTC.
    ///
    /// A fraction has up to nine digits and is cut to six. None for anything else, for a day or an hour that never was,
    /// and for what is not in the years 1 to 9999 by UTC. A leap second (`:60`) is refused too: neither language can
    /// write one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (date, rest) = text.split_at_checked(10)?;
        let days = calendar::day(date)?;
        let of_day = match rest.strip_prefix(['T', 't', ' ']) {
            Some(rest) => time(rest)?,
            None if rest.is_empty() => 0,
            None => return None,
        };
        let moment = days * DAY + of_day;
        (1..=9999).contains(&calendar::date(moment.div_euclid(DAY)).0).then_some(Self(moment))
    }

    /// A time of ours.
    pub(crate) fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// As a time of ours: what is finer is cut off, towards the past.
    pub(crate) fn millis(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// `2026-11-15T02:17:11Z`: as the original tells when a summary was written.
    pub(crate) fn seconds(self) -> String {
        let (day, of_day) = (self.0.div_euclid(DAY), self.0.rem_euclid(DAY) / SECOND);
        let (year, month, day) = calendar::date(day);
        let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

/// `2026-11-15T02:17:04.121578Z`: always six digits, as the original does.
impl Display for Moment {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let seconds = self.seconds();
        write!(f, "{}.{:06}Z", seconds.trim_end_matches('Z'), self.0.rem_euclid(SECOND))
    }
}

/// The time of day with its zone, in microseconds from midnight by UTC: less than nothing east of it early in the day.
fn time(text: &str) -> Option<i64> {
    let at = text.find(['Z', 'z', '+', '-']).unwrap_or(text.len());
    let (clock, zone) = text.split_at_checked(at)?;
    let (whole, fraction) = match clock.split_once('.') {
        Some((whole, fraction)) => (whole, micros(fraction)?),
        None => (clock, 0),
    };
    let (hour, rest) = whole.split_once(':')?;
    let (minute, second) = match rest.split_once(':') {
        Some((minute, second)) => (minute, below(60, second)?),
        // A fraction of a minute is nobody's.
        None if clock.contains('.') => return None,
        None => (rest, 0),
    };
    let minutes = below(24, hour)? * 60 + below(60, minute)?;
    Some((minutes * 60 + second - offset(zone)? * 60) * SECOND + fraction)
}

/// How many minutes a zone is ahead of UTC.
fn offset(zone: &str) -> Option<i64> {
    let (sign, ahead) = match zone.split_at_checked(1) {
        None | Some(("Z" | "z", "")) => return Some(0),
        Some(("+", ahead)) => (1, ahead),
        Some(("-", ahead)) => (-1, ahead),
        Some(_) => return None,
    };
    let (hours, minutes) = match ahead.split_once(':') {
        Some(parted) => parted,
        None if ahead.len() == 2 => (ahead, "00"),
        None => ahead.split_at_checked(2)?,
    };
    Some(sign * (below(24, hours)? * 60 + below(60, minutes)?))
}

/// The digits after the point, one to nine of them, as microseconds.
fn micros(fraction: &str) -> Option<i64> {
    let digits = fraction.len();
    let number = calendar::number(fraction, digits).filter(|_| (1..=9).contains(&digits))?;
    let power = |of: usize| 10_i64.pow(u32::try_from(of).unwrap_or_default());
    Some(if digits <= 6 { number * power(6 - digits) } else { number / power(digits - 6) })
}

/// Two digits that tell less than `end`.
fn below(end: i64, digits: &str) -> Option<i64> {
    calendar::number(digits, 2).filter(|number| *number < end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Option<String> {
        Moment::parse(text).map(|moment| moment.to_string())
    }

    #[test]
    fn what_python_and_javascript_write_is_read() {
        for (text, same) in [
            ("1970-01-01", "1970-01-01T00:00:00.000000Z"),
            ("2024-01-01T12:00", "2024-01-01T12:00:00.000000Z"),
            ("2024-01-01T12:00:07", "2024-01-01T12:00:07.000000Z"),
            ("2024-01-01t12:00:07.1", "2024-01-01T12:00:07.100000Z"),
            ("2024-01-01 12:00:07.123z", "2024-01-01T12:00:07.123000Z"),
            ("2024-01-01T12:00:07.123456Z", "2024-01-01T12:00:07.123456Z"),
            ("2024-01-01T12:00:07.123456789", "2024-01-01T12:00:07.123456Z"),
            ("2024-01-01T12:00:07.000000999Z", "2024-01-01T12:00:07.000000Z"),
            ("2024-01-01T01:00:00+02:00", "2023-12-31T23:00:00.000000Z"),
            ("2024-01-01T12:00+0530", "2024-01-01T06:30:00.000000Z"),
            ("2024-02-28T23:30:00.5-01", "2024-02-29T00:30:00.500000Z"),
            ("2024-01-01T12:00:00-00:00", "2024-01-01T12:00:00.000000Z"),
            ("0001-01-01T00:00:00", "0001-01-01T00:00:00.000000Z"),
            ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"),
            ("2000-02-29", "2000-02-29T00:00:00.000000Z"),
        ] {
            assert_eq!(told(text).as_deref(), Some(same), "{text}");
        }
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [
            "",
            "now",
            "2024",
            "2024-01",
            "20240101",
            "2024-1-1",
            "2023-02-29",
            "2024-13-01",
            "2024-04-31",
            "0000-01-01",
            "12024-01-01",
            "2024-01-01T",
            "2024-01-01Z",
            "2024-01-01T12",
            "2024-01-01T24:00",
            "2024-01-01T12:60",
            "2024-01-01T12:00:60",
            "2024-01-01T12:00.5",
            "2024-01-01T12:00:00.",
            "2024-01-01T12:00:00.1234567890",
            "2024-01-01T12:00:00.-1",
            "2024-01-01T12:00:00,5",
            "2024-01-01T12:00:00ZZ",
            "2024-01-01T12:00:00Z ",
            " 2024-01-01",
            "2024-01-01  12:00",
            "2024-01-01T+1:00",
            "2024-01-01T12:00:00+24:00",
            "2024-01-01T12:00:00+02:60",
            "2024-01-01T12:00:00+2:00",
            "2024-01-01T12:00:00+02:00:30",
            "2024-01-01T12:00:00+",
            "2024-01-01T12:00:00 +02:00",
            "0001-01-01T00:00:00+00:01",
            "9999-12-31T23:59:59-00:01",
            "2024-01-0１",
            "２024-01-01T12:00",
            "1700000000",
        ] {
            assert_eq!(told(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_as_it_was() {
        let (first, last) = (Moment::parse("0001-01-01").unwrap(), Moment::parse("9999-12-31").unwrap());
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        for _ in 0..20_000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let of = i64::try_from(state >> 1).unwrap();
            let moment = Moment(first.0 + of % (last.0 - first.0));
            assert_eq!(Moment::parse(&moment.to_string()), Some(moment));
            assert_eq!(
                Moment::parse(&moment.seconds()),
                Some(Moment(moment.0 - moment.0.rem_euclid(SECOND)))
            );
            let plain = moment.to_string().replace('Z', "");
            for (zone, ahead) in [("+05:45", 345), ("-0330", -210), ("+01", 60)] {
                let there = Moment::parse(&format!("{plain}{zone}")).map(|there| there.0);
                let there = there.unwrap_or(moment.0 - ahead * 60 * SECOND);
                assert_eq!(there, moment.0 - ahead * 60 * SECOND);
            }
        }
    }

    #[test]
    fn text_follows_time() {
        let mut state = 1_u64;
        let mut before = Moment::parse("0001-01-01").unwrap();
        for _ in 0..5_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let after = Moment(before.0 + i64::try_from(state >> 16).unwrap() % 50_000_000_000_000 + 1);
            assert!(before.to_string() < after.to_string(), "{before} {after}");
            before = after;
        }
    }

    #[test]
    fn our_milliseconds_come_and_go() {
        let moment = Moment(1_794_709_024_121_578);
        assert_eq!(moment.to_string(), "2026-11-15T02:17:04.121578Z");
        assert_eq!(moment.seconds(), "2026-11-15T02:17:04Z");
        assert_eq!(moment.millis(), 1_794_709_024_121);
        assert_eq!(Moment::from_millis(1_794_709_024_121).0, 1_794_709_024_121_000);
        assert_eq!((Moment(-1).millis(), Moment(-1_000).millis()), (-1, -1));
        for odd in [i64::MIN, i64::MAX] {
            let moment = Moment::from_millis(odd);
            assert!(!moment.to_string().is_empty() && !moment.seconds().is_empty());
        }
    }
}
