//! When a key ends, as people write it.

use std::str::FromStr;
use std::time::Duration;

use epitome::rules::message::Timestamp;
use epitome::settings::parse_time;

use crate::show::day;

const DAY: u64 = 86_400;

/// After some time, or at the start of a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expiry {
    After(Duration),
    On(Timestamp),
}

impl Expiry {
    /// The moment, where it is now `now`.
    pub(super) fn from(self, now: Timestamp) -> Timestamp {
        match self {
            Self::On(moment) => moment,
            Self::After(time) => {
                Timestamp(now.0.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX)))
            }
        }
    }
}

impl FromStr for Expiry {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WANTED: &str = "say after which time (12h, 30d, 52w), or on which day (2027-01-01)";
        let text = text.trim();
        let unit = |unit: char, seconds: u64| {
            let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
            // Nobody outlives a century of keys, and moments must stay moments.
            number.checked_mul(seconds).filter(|seconds| *seconds <= 36_600 * DAY).map(Duration::from_secs)
        };
        let bare = text.bytes().all(|byte| byte.is_ascii_digit());
        let after = unit('d', DAY).or_else(|| unit('w', 7 * DAY)).or_else(|| parse_time(text));
        match (after.filter(|_| !bare), day(text)) {
            (Some(time), _) => Ok(Self::After(time)),
            (None, Some(moment)) => Ok(Self::On(moment)),
            (None, None) => Err(WANTED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_ends_after_a_time_or_on_a_day() {
        let hours = |hours: u64| Ok(Expiry::After(Duration::from_secs(hours * 3_600)));
        for (text, expected) in
            [("12h", hours(12)), ("30d", hours(720)), (" 2w ", hours(336)), ("60m", hours(1))]
        {
            assert_eq!(text.parse::<Expiry>(), expected, "{text}");
        }
        assert_eq!("1970-01-02".parse(), Ok(Expiry::On(Timestamp(86_400_000))));
        for wrong in
            ["", "30", "d", "-1d", "1.5d", "never", "40000d", "99999999999999999999d", "2027-13-01", "30 d"]
        {
            assert!(wrong.parse::<Expiry>().is_err(), "{wrong}");
        }
        assert_eq!(Expiry::After(Duration::from_secs(1)).from(Timestamp(5)), Timestamp(1_005));
    }
}
