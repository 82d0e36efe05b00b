//! Arithmetic on timestamps that never overflows.

use std::time::Duration;

use epitome_core::message::Timestamp;

/// A day, in milliseconds.
pub(crate) const DAY: i64 = 24 * 3_600 * 1_000;

/// Returns the milliseconds from `from` to `to`; 0 if `to` is earlier because the clock was set back.
pub(crate) fn millis_between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.0.saturating_sub(from.0)).unwrap_or(0)
}

/// Returns the timestamp that is `wait` after `now`.
pub(crate) fn later(now: Timestamp, wait: Duration) -> Timestamp {
    Timestamp(now.0.saturating_add(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX)))
}
