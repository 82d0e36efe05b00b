//! Timestamps as Honcho's clients write and read them: ISO 8601, to the microsecond.
//!
//! Epitome's own times are in milliseconds. Honcho's times are in microseconds. A client expects that a response
//! contains exactly the time that the client sent, so [`IsoTime`] is in microseconds too.
//!
//! [`IsoTime`] uses the civil dates of the crate `jiff`, in UTC. The timestamps of `jiff` cannot represent the last day
//! of the year 9999.

use std::fmt::{self, Display, Formatter};

use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::fmt::temporal::{DateTimePrinter, Pieces};
use serde::{Serialize, Serializer};

/// Microseconds since 1970-01-01, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct IsoTime(pub(crate) i64);

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

impl IsoTime {
    /// Parses a time in a form that Python's `isoformat` or JavaScript's `toISOString` writes, or in a similar form. A
    /// time has these parts:
    ///
    /// - a date, such as `2026-11-15`;
    /// - optionally, a time of day: `T`, `t` or a space, and then `02:17`, `02:17:11` or `02:17:11.5`;
    /// - optionally, after a time of day, a time zone: `Z`, `z`, `+02:00`, `+0200` or `+02`. The default is UTC.
    ///
    /// A fraction of a second may have up to nine digits. Digits after the sixth are cut off.
    ///
    /// Returns `None` for every other form, for a day or an hour that does not exist, and for a time outside the years
    /// 1 to 9999 in UTC. Also returns `None` for a leap second (`:60`), because neither language can write a leap
    /// second.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if !has_accepted_form(text) || text.get(17..19) == Some("60") {
            return None;
        }
        let pieces = Pieces::parse(text).ok()?;
        let offset = pieces.to_numeric_offset().map_or(0, jiff::tz::Offset::seconds);
        let local = pieces.date().to_datetime(pieces.time().unwrap_or_default());
        let utc = local.checked_sub(SignedDuration::from_secs(offset.into())).ok()?;
        let since = utc.duration_since(EPOCH);
        let micros = since.as_secs() * 1_000_000 + i64::from(since.subsec_nanos().div_euclid(1_000));
        (utc.year() >= 1 && offset.abs() < 86_400).then_some(Self(micros))
    }

    /// Converts a time of Epitome, in milliseconds since 1970-01-01 UTC.
    pub(crate) fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// Returns the time in Epitome's unit, milliseconds since 1970-01-01 UTC. Rounds towards the past.
    pub(crate) fn millis(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// Formats the time as Honcho writes the time of a summary: `2026-11-15T02:17:11Z`.
    pub(crate) fn to_second(self) -> String {
        self.format(0)
    }

    fn format(self, digits: u8) -> String {
        let utc = EPOCH.saturating_add(SignedDuration::from_micros(self.0));
        // `jiff` cuts off further digits, so the time is rounded towards the past.
        DateTimePrinter::new().precision(Some(digits)).datetime_to_string(&utc) + "Z"
    }
}

/// Writes the time as `2026-11-15T02:17:04.121578Z`. As in Honcho, a time always has six decimals.
impl Display for IsoTime {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.format(6))
    }
}

impl Serialize for IsoTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Returns whether a text has a form that [`IsoTime::parse`] accepts. ISO 8601 has more forms, which Honcho refuses.
fn has_accepted_form(text: &str) -> bool {
    let digit = |byte: u8| if byte.is_ascii_digit() { '0' } else { char::from(byte) };
    let form: String = text.bytes().map(digit).collect();
    let Some(rest) = form.strip_prefix("0000-00-00") else { return false };
    let Some(rest) = rest.strip_prefix(['T', 't', ' ']) else { return rest.is_empty() };
    let (clock, zone) = rest.split_at(rest.find(['Z', 'z', '+', '-']).unwrap_or(rest.len()));
    let fraction = clock
        .strip_prefix("00:00:00.")
        .is_some_and(|digits| "000000000".starts_with(digits) && !digits.is_empty());
    let zones = ["", "Z", "z", "+00:00", "-00:00", "+0000", "-0000", "+00", "-00"];
    (fraction || matches!(clock, "00:00" | "00:00:00")) && zones.contains(&zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn told(text: &str) -> Option<String> {
        IsoTime::parse(text).map(|moment| moment.to_string())
    }

    #[test]
    fn times_from_python_and_javascript_are_read() {
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
    fn texts_that_are_no_times_are_refused() {
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
    fn a_written_time_is_read_as_the_same_time() {
        let (first, last) = (IsoTime::parse("0001-01-01").unwrap(), IsoTime::parse("9999-12-31").unwrap());
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        for _ in 0..20_000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let of = i64::try_from(state >> 1).unwrap();
            let moment = IsoTime(first.0 + of % (last.0 - first.0));
            assert_eq!(IsoTime::parse(&moment.to_string()), Some(moment));
            assert_eq!(
                IsoTime::parse(&moment.to_second()),
                Some(IsoTime(moment.0 - moment.0.rem_euclid(SECOND)))
            );
            let plain = moment.to_string().replace('Z', "");
            for (zone, offset) in [("+05:45", 345), ("-0330", -210), ("+01", 60)] {
                let there = IsoTime::parse(&format!("{plain}{zone}")).map(|there| there.0);
                let there = there.unwrap_or(moment.0 - offset * 60 * SECOND);
                assert_eq!(there, moment.0 - offset * 60 * SECOND);
            }
        }
    }

    #[test]
    fn times_as_texts_have_the_order_of_the_times() {
        let mut state = 1_u64;
        let mut before = IsoTime::parse("0001-01-01").unwrap();
        for _ in 0..5_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let after = IsoTime(before.0 + i64::try_from(state >> 16).unwrap() % 50_000_000_000_000 + 1);
            assert!(before.to_string() < after.to_string(), "{before} {after}");
            before = after;
        }
    }

    #[test]
    fn milliseconds_are_converted_in_both_directions() {
        let moment = IsoTime(1_794_709_024_121_578);
        assert_eq!(moment.to_string(), "2026-11-15T02:17:04.121578Z");
        assert_eq!(moment.to_second(), "2026-11-15T02:17:04Z");
        assert_eq!(moment.millis(), 1_794_709_024_121);
        assert_eq!(IsoTime::from_millis(1_794_709_024_121).0, 1_794_709_024_121_000);
        assert_eq!((IsoTime(-1).millis(), IsoTime(-1_000).millis()), (-1, -1));
        for odd in [i64::MIN, i64::MAX] {
            let moment = IsoTime::from_millis(odd);
            assert!(!moment.to_string().is_empty() && !moment.to_second().is_empty());
        }
    }
}
