//! Parses the times of requests and flags: RFC 3339, milliseconds since 1970, and durations from now.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use epitome::rules::message::Timestamp;
use epitome::settings::parse_time;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

const DAY: u64 = 86_400;

/// Returns the current time.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// When a key expires: after a duration, or at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiry {
    After(Duration),
    At(Timestamp),
}

impl Expiry {
    /// Returns the time of expiry. A duration begins at `now`.
    pub(crate) fn from(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::After(duration) => {
                Timestamp(now.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
            }
        }
    }
}

impl FromStr for Expiry {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str =
            "expected a duration (12h, 30d, 52w), a date (2027-01-01) or a time (2027-01-01T12:00:00Z)";
        let text = text.trim();
        let unit = |unit: char, seconds: u64| {
            let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
            // At most about a century, so that the timestamp cannot overflow.
            number.checked_mul(seconds).filter(|seconds| *seconds <= 36_600 * DAY).map(Duration::from_secs)
        };
        let bare = text.bytes().all(|byte| byte.is_ascii_digit());
        let after = unit('d', DAY).or_else(|| unit('w', 7 * DAY)).or_else(|| parse_time(text));
        match (after.filter(|_| !bare), Timestamp::from_rfc3339(text)) {
            (Some(duration), _) => Ok(Self::After(duration)),
            (None, Some(time)) => Ok(Self::At(time)),
            (None, None) => Err(EXPECTED),
        }
    }
}

impl<'de> Deserialize<'de> for Expiry {
    /// Reads a text, as [`Expiry::from_str`] does, or a number of milliseconds since 1970.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reads;

        impl Visitor<'_> for Reads {
            type Value = Expiry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration, a time or milliseconds since 1970")
            }

            fn visit_i64<E: Error>(self, millis: i64) -> Result<Expiry, E> {
                Ok(Expiry::At(Timestamp(millis)))
            }

            fn visit_u64<E: Error>(self, millis: u64) -> Result<Expiry, E> {
                let millis = i64::try_from(millis);
                millis
                    .map(|millis| Expiry::At(Timestamp(millis)))
                    .map_err(|_| E::custom("is too large for a time"))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Expiry, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Reads)
    }
}

/// Parses a time in a query parameter: RFC 3339, a date, or milliseconds since 1970.
pub(crate) fn parse_instant(text: &str) -> Result<Timestamp, &'static str> {
    const EXPECTED: &str =
        "expected a time (2027-01-01T12:00:00Z), a date (2027-01-01) or milliseconds since 1970";
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let millis = if is_number { text.parse().ok().map(Timestamp) } else { None };
    millis.or_else(|| Timestamp::from_rfc3339(text)).ok_or(EXPECTED)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_expires_after_a_duration_or_at_a_time() {
        let hours = |hours: u64| Ok(Expiry::After(Duration::from_secs(hours * 3_600)));
        for (text, expected) in
            [("12h", hours(12)), ("30d", hours(720)), (" 2w ", hours(336)), ("60m", hours(1))]
        {
            assert_eq!(text.parse::<Expiry>(), expected, "{text}");
        }
        assert_eq!("1970-01-02".parse(), Ok(Expiry::At(Timestamp(86_400_000))));
        assert_eq!("1970-01-02T01:00:00+01:00".parse(), Ok(Expiry::At(Timestamp(86_400_000))));
        for wrong in
            ["", "30", "d", "-1d", "1.5d", "never", "40000d", "99999999999999999999d", "2027-13-01", "30 d"]
        {
            assert!(wrong.parse::<Expiry>().is_err(), "{wrong}");
        }
        assert_eq!(Expiry::After(Duration::from_secs(1)).from(Timestamp(5)), Timestamp(1_005));
    }

    #[test]
    fn json_has_texts_and_milliseconds() {
        let read = |value| serde_json::from_value::<Expiry>(value).map_err(|error| error.to_string());
        assert_eq!(read(json!(86_400_000)), Ok(Expiry::At(Timestamp(86_400_000))));
        assert_eq!(read(json!("12h")), Ok(Expiry::After(Duration::from_secs(43_200))));
        for wrong in [json!("tomorrow"), json!(1.5), json!(true), json!(u64::MAX)] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_query_has_a_time_a_date_or_milliseconds() {
        let read = |text: &str| parse_instant(text).map(|time| time.0);
        for text in ["86400000", "1970-01-02", "1970-01-02T00:00:00Z"] {
            assert_eq!(read(text), Ok(86_400_000), "{text}");
        }
        for wrong in ["", "yesterday", "30d", "99999999999999999999", "-1", "1970-01-02T00:00:00"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
