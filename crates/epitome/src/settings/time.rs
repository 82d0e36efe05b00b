//! Reads and writes durations such as `10m`. A field of a section uses this module with `#[serde(with = "time")]`.

use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// Maximum duration of a setting: one year, in milliseconds. Adding it to a timestamp must not overflow.
pub(super) const YEAR: u64 = 365 * 24 * 3_600 * 1_000;

/// Parses a duration: `10m`, `30s`, `2h`, `500ms`, or a bare number of seconds. Returns `None` if the text is not valid
/// or the duration is longer than one year.
///
/// ```
/// use std::time::Duration;
/// use epitome::settings::{parse_time, write_time};
///
/// assert_eq!(parse_time("10m"), Some(Duration::from_secs(600)));
/// assert_eq!(parse_time("1.5h"), None);
/// assert_eq!(write_time(Duration::from_secs(7_200)), "2h");
/// ```
pub fn parse_time(text: &str) -> Option<Duration> {
    let text = text.trim();
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(unit_at)?;
    let number: u64 = number.parse().ok()?;
    let millis = match unit.trim_start() {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    Some(number.checked_mul(millis)?).filter(|millis| *millis <= YEAR).map(Duration::from_millis)
}

/// Writes a duration in the largest unit that divides it without a remainder; fractions of a millisecond are dropped.
pub fn write_time(time: Duration) -> String {
    let millis = time.as_millis();
    let (of, unit) = match millis {
        0 => (1_000, "s"),
        _ if millis.is_multiple_of(3_600_000) => (3_600_000, "h"),
        _ if millis.is_multiple_of(60_000) => (60_000, "m"),
        _ if millis.is_multiple_of(1_000) => (1_000, "s"),
        _ => (1, "ms"),
    };
    format!("{}{unit}", millis / of)
}

/// Reads a duration from a text, or from a number of seconds.
pub(super) fn read(value: &Value) -> Option<Duration> {
    match value {
        Value::String(text) => parse_time(text),
        Value::Number(seconds) => {
            let exact = Duration::try_from_secs_f64(seconds.as_f64()?).ok()?;
            // Rounded down to milliseconds, the precision in which durations are written.
            u64::try_from(exact.as_millis()).ok().filter(|millis| *millis <= YEAR).map(Duration::from_millis)
        }
        _ => None,
    }
}

/// Deserializes a field that is a duration.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    read(&Value::deserialize(deserializer)?).ok_or_else(|| D::Error::custom("is not a valid duration"))
}

/// Serializes a field that is a duration.
pub fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&write_time(*time))
}

/// When `local` writes a fallback summary for models that fail.
///
/// ```
/// use std::time::Duration;
/// use epitome::settings::StandIn;
///
/// assert_eq!(StandIn::default(), StandIn::After(Duration::from_secs(600)));
/// assert!(StandIn::default().is_due(Duration::from_secs(600)));
/// assert!(!StandIn::Never.is_due(Duration::MAX));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "Value")]
pub enum StandIn {
    /// After models have failed for this duration; immediately if the duration is 0.
    After(Duration),
    /// Never. The slot gets no new summary until a model writes one.
    Never,
}

impl Default for StandIn {
    /// Returns ten minutes.
    fn default() -> Self {
        Self::After(Duration::from_secs(600))
    }
}

impl StandIn {
    /// Returns whether the fallback is due after models have failed for this duration.
    pub fn is_due(self, failing_for: Duration) -> bool {
        match self {
            Self::After(time) => failing_for >= time,
            Self::Never => false,
        }
    }
}

impl TryFrom<Value> for StandIn {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        match value.as_str().map(str::trim) {
            Some("never") => Ok(Self::Never),
            _ => read(&value).map(Self::After).ok_or("is not a valid duration"),
        }
    }
}

impl From<StandIn> for String {
    fn from(stand_in: StandIn) -> Self {
        match stand_in {
            StandIn::After(time) => write_time(time),
            StandIn::Never => "never".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn valid_durations_are_parsed_and_others_rejected() {
        for (text, millis) in [
            ("0", 0),
            ("600", 600_000),
            ("500ms", 500),
            ("30s", 30_000),
            (" 2 h ", 7_200_000),
            ("8760h", 31_536_000_000),
        ] {
            assert_eq!(parse_time(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in [
            "",
            "m",
            "10x",
            "-1s",
            "1.5h",
            "10 m s",
            "8761h",
            "99999999999999999999h",
            "18446744073709551615h",
        ] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }

    #[test]
    fn written_durations_parse_to_the_same_duration() {
        for millis in [0, 1, 999, 1_000, 60_000, 61_000, 90_500, 3_600_000, 86_400_000] {
            let time = Duration::from_millis(millis);
            assert_eq!(parse_time(&write_time(time)), Some(time));
        }
        assert_eq!(write_time(Duration::from_secs(5_400)), "90m");
        assert_eq!(write_time(Duration::ZERO), "0s");
    }

    #[test]
    fn numbers_are_seconds() {
        assert_eq!(read(&json!(90)), Some(Duration::from_secs(90)));
        assert_eq!(read(&json!(0.25)), Some(Duration::from_millis(250)));
        for wrong in [json!(-1), json!(1e300), json!(true), json!([1])] {
            assert_eq!(read(&wrong), None, "{wrong}");
        }
    }
}
