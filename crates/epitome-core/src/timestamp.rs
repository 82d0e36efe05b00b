//! Writes and parses timestamps as RFC 3339.

use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::fmt::temporal::{DateTimePrinter, Pieces};

use crate::message::Timestamp;

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// The first and the last timestamp whose year has four digits, as RFC 3339 requires.
const FIRST: DateTime = DateTime::constant(0, 1, 1, 0, 0, 0, 0);
const LAST: DateTime = DateTime::constant(9999, 12, 31, 23, 59, 59, 999_000_000);

/// Maximum number of decimals of a second that are parsed. Further decimals are cut off.
const DECIMALS: usize = 9;

impl Timestamp {
    /// Formats the timestamp as RFC 3339, in UTC and with milliseconds. If the year is before 0 or after 9999, the
    /// result is the first or the last timestamp of that range.
    ///
    /// ```
    /// use epitome_core::message::Timestamp;
    ///
    /// assert_eq!(Timestamp(1_773_483_725_120).to_rfc3339(), "2026-03-14T10:22:05.120Z");
    /// ```
    pub fn to_rfc3339(self) -> String {
        let time = EPOCH.saturating_add(SignedDuration::from_millis(self.0)).clamp(FIRST, LAST);
        DateTimePrinter::new().precision(Some(3)).datetime_to_string(&time) + "Z"
    }

    /// Parses a time in RFC 3339 with its offset. A date such as `2026-03-14` is also accepted and means midnight in
    /// UTC. Decimals after the milliseconds are cut off, so the result is never later than the parsed time. Returns
    /// `None` for any other text.
    ///
    /// ```
    /// use epitome_core::message::Timestamp;
    ///
    /// let time = Timestamp(1_773_483_725_120);
    /// assert_eq!(Timestamp::from_rfc3339("2026-03-14T11:22:05.12+01:00"), Some(time));
    /// assert_eq!(Timestamp::from_rfc3339("1970-01-02"), Some(Timestamp(86_400_000)));
    /// assert_eq!(Timestamp::from_rfc3339("2026-03-14T10:22:05"), None, "without an offset");
    /// ```
    pub fn from_rfc3339(text: &str) -> Option<Self> {
        let text = without_far_decimals(text)?;
        let pieces = Pieces::parse(&text).ok()?;
        let ahead = pieces.to_numeric_offset().map_or(0, jiff::tz::Offset::seconds);
        let local = pieces.date().to_datetime(pieces.time().unwrap_or_default());
        let time = local.checked_sub(SignedDuration::from_secs(ahead.into())).ok()?;
        let since = time.duration_since(EPOCH).as_nanos().div_euclid(1_000_000);
        Some(Self(i64::try_from(since).ok()?))
    }
}

/// Returns the text with at most [`DECIMALS`] decimals. Returns `None` if the text is neither a date nor a time with an
/// offset.
fn without_far_decimals(text: &str) -> Option<String> {
    let digit = |byte: u8| if byte.is_ascii_digit() { '0' } else { char::from(byte) };
    let shape: String = text.bytes().map(digit).collect();
    let rest = shape.strip_prefix("0000-00-00")?;
    if rest.is_empty() {
        return Some(text.to_owned());
    }
    let rest = rest.strip_prefix(['T', 't', ' '])?.strip_prefix("00:00:00")?;
    let zone = rest.find(['Z', 'z', '+', '-'])?;
    let (decimals, offset) = rest.split_at(zone);
    let decimals = match decimals.strip_prefix('.') {
        Some(digits) if !digits.is_empty() && digits.bytes().all(|digit| digit == b'0') => digits.len() + 1,
        None if decimals.is_empty() => 0,
        _ => return None,
    };
    if !["Z", "z", "+00:00", "-00:00"].contains(&offset) || text.get(17..19) == Some("60") {
        return None;
    }
    let begin = "0000-00-00T00:00:00".len();
    let (head, tail) = (text.get(..begin + decimals.min(DECIMALS + 1))?, text.get(begin + decimals..)?);
    Some(format!("{head}{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_as_it_was_written() {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let (first, last) = (-62_167_219_200_000_i64, 253_402_300_799_999_i64);
        for _ in 0..2_000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let time = Timestamp(first + i64::try_from(state >> 1).unwrap() % (last - first));
            assert_eq!(Timestamp::from_rfc3339(&time.to_rfc3339()), Some(time));
        }
        for (time, text) in [
            (i64::MIN, "0000-01-01T00:00:00.000Z"),
            (first, "0000-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (last, "9999-12-31T23:59:59.999Z"),
            (i64::MAX, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(Timestamp(time).to_rfc3339(), text);
        }
    }

    #[test]
    fn times_of_rfc_3339_and_days_are_read() {
        for (text, same) in [
            ("2024-01-01t12:00:07.1z", "2024-01-01T12:00:07.100Z"),
            ("2024-01-01 12:00:07.123999Z", "2024-01-01T12:00:07.123Z"),
            ("2024-01-01T12:00:07.12345678901234567890Z", "2024-01-01T12:00:07.123Z"),
            ("2024-01-01T01:00:00+02:00", "2023-12-31T23:00:00.000Z"),
            ("2024-02-28T23:30:00.5-01:00", "2024-02-29T00:30:00.500Z"),
            ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
            ("2000-02-29", "2000-02-29T00:00:00.000Z"),
        ] {
            assert_eq!(
                Timestamp::from_rfc3339(text).map(Timestamp::to_rfc3339).as_deref(),
                Some(same),
                "{text}"
            );
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "now",
            "30d",
            "2024",
            "2024-01-1",
            "2023-02-29",
            "2024-01-01T12:00:07",
            "2024-01-01T12:00Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01T12:00:60Z",
            "2024-01-01T12:00:00.Z",
            "2024-01-01T12:00:00.1x2Z",
            "2024-01-01T12:00:00+0200",
            "2024-01-01T12:00:00Z ",
            "2024-01-01Z",
            "2024-01-0１",
            "1700000000",
        ] {
            assert_eq!(Timestamp::from_rfc3339(text), None, "{text}");
        }
    }
}
