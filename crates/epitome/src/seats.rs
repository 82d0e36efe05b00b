//! Who waits for which model: none holds all workers of a node, however slow it is and whosever summaries it writes.
//!
//! A job sits down at a model before it asks it, and gets up when it goes on to the next or ends, however it ends. Where all
//! seats are taken that a model may have, the slot is given back as if nobody had looked at it, and is looked at again a
//! little later, by this node or by another with a seat to spare. Only workers that look for work by themselves are counted
//! and held back: whoever has a summary written in their own task takes no worker from anybody.
//!
//! A model is known by where it is asked and as what. Two entries of the settings that ask the same are slow together, so they
//! are one. Models of one provider are not: behind one address there may be quick ones and slow ones.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lock::lock;

/// Nobody stands back for less than this, nor for longer than that.
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// So long after it may be taken again, a slot was taken where anybody is there to take it.
pub(crate) const SURELY_TAKEN: Duration = Duration::from_secs(1);

/// Where a model is asked, and as what.
pub(crate) type Asked = (String, String);

/// Who of a node's workers waits for which model.
#[derive(Default)]
pub(crate) struct Seats(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    /// Since when each of those who sit at a model does.
    since: HashMap<Asked, Vec<Instant>>,
    /// When slots may be taken again that were given back here for want of a seat, also a little after that.
    aside: Vec<Instant>,
}

impl Seats {
    /// A seat at a model that has fewer taken than this; else how long to stand back.
    ///
    /// That is as long as nobody has sat down there: seats that change hands often are looked at often, and those of a model
    /// that does not answer seldom.
    pub(crate) fn take(self: &Arc<Self>, asked: Asked, most: usize, now: Instant) -> Result<Seat, Duration> {
        let mut taken = lock(&self.0);
        let since = taken.since.entry(asked.clone()).or_default();
        if since.len() >= most {
            let last = since.iter().max().map_or(Duration::ZERO, |last| now.duration_since(*last));
            return Err(last.clamp(SHORTEST, LONGEST));
        }
        since.push(now);
        Ok(Seat { seats: Arc::clone(self), asked, since: now })
    }

    /// A slot was given back that may be taken again after so long.
    pub(crate) fn put_aside(&self, wait: Duration) {
        lock(&self.0).aside.push(Instant::now() + wait);
    }

    /// When the first of the slots that were given back may be taken again; nothing where all may be by now.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        let now = Instant::now();
        let aside = &mut lock(&self.0).aside;
        aside.retain(|then| *then + SURELY_TAKEN > now);
        aside.iter().filter(|then| **then > now).min().copied()
    }

    /// Whether slots were given back that may not have been taken again yet.
    pub(crate) fn any_aside(&self) -> bool {
        let now = Instant::now();
        lock(&self.0).aside.iter().any(|then| *then + SURELY_TAKEN > now)
    }
}

/// A worker that waits for a model, until it is dropped.
pub(crate) struct Seat {
    seats: Arc<Seats>,
    pub(crate) asked: Asked,
    since: Instant,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = lock(&self.seats.0);
        let Some(since) = taken.since.get_mut(&self.asked) else { return };
        if let Some(at) = since.iter().position(|since| *since == self.since) {
            since.swap_remove(at);
        }
        if since.is_empty() {
            taken.since.remove(&self.asked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(model: &str) -> Asked {
        ("https://example.com".to_owned(), model.to_owned())
    }

    #[test]
    fn a_model_has_so_many_seats_and_each_is_free_again_when_it_is_left() {
        let (seats, now) = (Arc::new(Seats::default()), Instant::now());
        let first = seats.take(asked("slow"), 2, now).ok();
        let second = seats.take(asked("slow"), 2, now).ok();
        assert!(first.is_some() && second.is_some());
        assert_eq!(seats.take(asked("slow"), 2, now).err(), Some(SHORTEST));
        assert!(seats.take(asked("quick"), 2, now).is_ok(), "another model has seats of its own");
        assert!(seats.take(asked("slow"), usize::MAX, now).is_ok(), "who must not be held back is not");
        drop(first);
        assert!(seats.take(asked("slow"), 2, now).is_ok());
        drop(second);
        assert!(lock(&seats.0).since.is_empty(), "nothing is left of whoever got up");
    }

    #[test]
    fn a_seat_is_free_again_after_a_panic() {
        let (seats, now) = (Arc::new(Seats::default()), Instant::now());
        let seat = seats.take(asked("slow"), 1, now).ok();
        let panicked = std::thread::spawn(move || {
            let _seat = seat;
            panic!("as a hook might");
        });
        assert!(panicked.join().is_err());
        assert!(seats.take(asked("slow"), 1, now).is_ok());
    }

    #[test]
    fn whoever_stands_back_does_so_as_long_as_nobody_sat_down_and_no_longer_than_a_second() {
        let (seats, begun) = (Arc::new(Seats::default()), Instant::now());
        let _first = seats.take(asked("slow"), 2, begun).ok();
        let _last = seats.take(asked("slow"), 2, begun + LONGEST).ok();
        let wait = |millis| {
            let now = begun + LONGEST + Duration::from_millis(millis);
            seats.take(asked("slow"), 2, now).err().map(|wait| wait.as_millis())
        };
        assert_eq!([0, 1, 50, 400, 1_000, 60_000].map(wait), [50, 50, 50, 400, 1_000, 1_000].map(Some));
    }

    #[test]
    fn what_was_put_aside_is_looked_at_when_its_time_has_come() {
        let seats = Seats::default();
        assert_eq!((seats.next_look(), seats.any_aside()), (None, false));
        let before = Instant::now();
        for wait in [600, 0, 500] {
            seats.put_aside(Duration::from_secs(wait));
        }
        let next = seats.next_look().unwrap();
        assert!(Duration::from_secs(500) <= next - before && next - before < Duration::from_secs(600));
        assert!(seats.any_aside());
    }
}
