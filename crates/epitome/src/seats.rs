//! Permits for model calls, so that one slow model cannot occupy every worker of a node.
//!
//! A job takes a permit ([`Seat`]) for a model before it calls the model. It releases the permit when it moves on to the
//! next model or ends, for any reason. If all permits of a model are taken, the job returns the slot unchanged, and this
//! node or another one leases it again a little later. Only background workers need permits. A caller that writes a summary
//! in its own task occupies no worker.
//!
//! A model is identified by its provider and its name there. Two entries of the settings with the same provider and name are
//! slow together, so they share permits. Different models of one provider do not: one address may serve fast and slow
//! models.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lock::lock;

/// Minimum and maximum time that a slot is set aside when no permit is free.
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// A slot that was set aside counts as pending until this long after it may be leased again.
pub(crate) const SURELY_TAKEN: Duration = Duration::from_secs(1);

/// A model: its provider, and its name there.
pub(crate) type Asked = (String, String);

/// The permits of a node's workers, by model.
#[derive(Default)]
pub(crate) struct Seats(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    /// For each model, when each of its permits was taken.
    since: HashMap<Asked, Vec<Instant>>,
    /// When the slots that were set aside here may be leased again. Entries stay for [`SURELY_TAKEN`] after that.
    aside: Vec<Instant>,
}

impl Seats {
    /// Takes a permit for a model if fewer than `most` are taken. Otherwise returns how long to set the slot aside.
    ///
    /// That is the time since the newest permit was taken. So a fast model is tried again soon, and a model that does not
    /// answer is tried rarely.
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

    /// Notes that a slot was returned and may be leased again after `wait`.
    pub(crate) fn put_aside(&self, wait: Duration) {
        lock(&self.0).aside.push(Instant::now() + wait);
    }

    /// Returns when the first slot that was set aside may be leased again; `None` if that time has come for all of them.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        let now = Instant::now();
        let aside = &mut lock(&self.0).aside;
        aside.retain(|then| *then + SURELY_TAKEN > now);
        aside.iter().filter(|then| **then > now).min().copied()
    }

    /// Returns whether slots were set aside that may not have been leased again yet.
    pub(crate) fn any_aside(&self) -> bool {
        let now = Instant::now();
        lock(&self.0).aside.iter().any(|then| *then + SURELY_TAKEN > now)
    }
}

/// A permit of one worker for one model, until it is dropped.
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
        assert!(seats.take(asked("slow"), usize::MAX, now).is_ok(), "`usize::MAX` means no limit");
        drop(first);
        assert!(seats.take(asked("slow"), 2, now).is_ok());
        drop(second);
        assert!(lock(&seats.0).since.is_empty(), "no entry is left of released permits");
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
