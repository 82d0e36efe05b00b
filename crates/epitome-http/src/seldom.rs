//! Limits log lines about frequent events to one per second, with a count.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Counts an event that can happen a thousand times per second, and says once per second that it is time to log it.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<(Option<Instant>, u64)>);

impl Seldom {
    /// Counts an event. If it is time to log again, returns the number of events since the last log line.
    pub fn happened(&self) -> Option<u64> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (told, times) = &mut *kept;
        *times = times.saturating_add(1);
        if told.is_some_and(|told| told.elapsed() < Duration::from_secs(1)) {
            return None;
        }
        *told = Some(Instant::now());
        Some(std::mem::take(times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_often_is_told_once_and_then_counted() {
        let crowd = Seldom::default();
        assert_eq!((crowd.happened(), crowd.happened(), crowd.happened()), (Some(1), None, None));
        crowd.0.lock().unwrap().0 = None;
        assert_eq!(crowd.happened(), Some(3));
    }
}
