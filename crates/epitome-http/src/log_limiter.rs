//! Limits log lines about frequent events. At most one line per second is written, with the number of events.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Counts events that can happen a thousand times per second, and returns at most once per second that they should be
/// logged.
#[derive(Debug, Default)]
pub struct LogLimiter(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last_line: Option<Instant>,
    /// Number of events since the last line.
    events: u64,
}

impl LogLimiter {
    /// Counts an event. Returns `None` if the last log line is less than one second old. Otherwise the caller should
    /// write a log line, and the result is the number of events since the last line.
    pub fn record(&self) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.events = state.events.saturating_add(1);
        if state.last_line.is_some_and(|at| at.elapsed() < Duration::from_secs(1)) {
            return None;
        }
        state.last_line = Some(Instant::now());
        Some(std::mem::take(&mut state.events))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_events_are_logged_once_and_then_counted() {
        let limiter = LogLimiter::default();
        assert_eq!((limiter.record(), limiter.record(), limiter.record()), (Some(1), None, None));
        limiter.0.lock().unwrap().last_line = None;
        assert_eq!(limiter.record(), Some(3));
    }
}
