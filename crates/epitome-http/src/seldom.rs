//! Log lines about what may happen many times a second: written once a second, with a count.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Something that may happen a thousand times in a second and is told once in it.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<(Option<Instant>, u64)>);

impl Seldom {
    /// It happened. How often since it was last told, where it is time to tell it again.
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
