//! Permits for model calls, so that one slow model cannot occupy every worker of a node.
//!
//! A job takes a [`ModelPermit`] before it calls a model. The job releases the permit when it continues with the next
//! model, or when it ends for any reason. If all permits of a model are taken, the job defers its slot: the job returns
//! the slot to the store unchanged, and a worker of this node or of another node leases the slot a little later. Only
//! background workers need permits. A caller that writes a summary in its own task occupies no worker.
//!
//! If two entries of the settings have the same provider and the same model name, they share permits, because both are
//! slow if the model is slow. Different models of one provider have separate permits, because one provider may have
//! fast and slow models.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lock::lock;

/// Minimum and maximum time for which a slot is deferred when no permit is free.
const MIN_DEFERRAL: Duration = Duration::from_millis(50);
const MAX_DEFERRAL: Duration = Duration::from_secs(1);

/// Time for which a deferred slot still counts as pending, after the time at which it may be leased again.
pub(crate) const DEFERRED_GRACE: Duration = Duration::from_secs(1);

/// Identifies a model by its provider and the provider's name of the model.
pub(crate) type ModelId = (String, String);

/// The permits of a node's workers, by model.
#[derive(Default)]
pub(crate) struct ModelPermits(Mutex<PermitState>);

#[derive(Default)]
struct PermitState {
    /// For each model, the times at which its current permits were taken.
    taken: HashMap<ModelId, Vec<Instant>>,
    /// For each slot that this node deferred, the time at which the slot may be leased again. An entry is removed
    /// [`DEFERRED_GRACE`] after its time.
    deferred: Vec<Instant>,
}

impl ModelPermits {
    /// Takes a permit for a model if fewer than `max` permits are taken. Otherwise returns how long to defer the slot.
    ///
    /// The slot is deferred for the time since the newest permit was taken, within the limits [`MIN_DEFERRAL`] and
    /// [`MAX_DEFERRAL`]. Therefore a slot of a fast model is leased again soon, and a slot of a model that does not
    /// answer is leased again later.
    pub(crate) fn take(
        self: &Arc<Self>,
        model: ModelId,
        max: usize,
        now: Instant,
    ) -> Result<ModelPermit, Duration> {
        let mut state = lock(&self.0);
        let taken = state.taken.entry(model.clone()).or_default();
        if taken.len() >= max {
            let last = taken.iter().max().map_or(Duration::ZERO, |last| now.duration_since(*last));
            return Err(last.clamp(MIN_DEFERRAL, MAX_DEFERRAL));
        }
        taken.push(now);
        Ok(ModelPermit { permits: Arc::clone(self), model, taken_at: now })
    }

    /// Records that a slot was returned and may be leased again after `wait`.
    pub(crate) fn defer_slot(&self, wait: Duration) {
        lock(&self.0).deferred.push(Instant::now() + wait);
    }

    /// Returns the next time at which a deferred slot may be leased again. `None` if no deferred slot is waiting.
    pub(crate) fn next_deferred(&self) -> Option<Instant> {
        let now = Instant::now();
        let deferred = &mut lock(&self.0).deferred;
        deferred.retain(|until| *until + DEFERRED_GRACE > now);
        deferred.iter().filter(|until| **until > now).min().copied()
    }

    /// Returns whether there may be deferred slots that no worker has leased again yet.
    pub(crate) fn has_deferred(&self) -> bool {
        let now = Instant::now();
        lock(&self.0).deferred.iter().any(|until| *until + DEFERRED_GRACE > now)
    }
}

/// A permit of one worker for one model. Dropping it releases the permit.
pub(crate) struct ModelPermit {
    permits: Arc<ModelPermits>,
    pub(crate) model: ModelId,
    taken_at: Instant,
}

impl Drop for ModelPermit {
    fn drop(&mut self) {
        let mut state = lock(&self.permits.0);
        let Some(taken) = state.taken.get_mut(&self.model) else { return };
        if let Some(at) = taken.iter().position(|taken_at| *taken_at == self.taken_at) {
            taken.swap_remove(at);
        }
        if taken.is_empty() {
            state.taken.remove(&self.model);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str) -> ModelId {
        ("https://example.com".to_owned(), name.to_owned())
    }

    #[test]
    fn a_model_has_a_limited_number_of_permits_and_a_dropped_one_is_free_again() {
        let (permits, now) = (Arc::new(ModelPermits::default()), Instant::now());
        let first = permits.take(model("slow"), 2, now).ok();
        let second = permits.take(model("slow"), 2, now).ok();
        assert!(first.is_some() && second.is_some());
        assert_eq!(permits.take(model("slow"), 2, now).err(), Some(MIN_DEFERRAL));
        assert!(permits.take(model("quick"), 2, now).is_ok(), "another model has permits of its own");
        assert!(permits.take(model("slow"), usize::MAX, now).is_ok(), "`usize::MAX` means no limit");
        drop(first);
        assert!(permits.take(model("slow"), 2, now).is_ok());
        drop(second);
        assert!(lock(&permits.0).taken.is_empty(), "no entry is left of released permits");
    }

    #[test]
    fn a_permit_is_free_again_after_a_panic() {
        let (permits, now) = (Arc::new(ModelPermits::default()), Instant::now());
        let permit = permits.take(model("slow"), 1, now).ok();
        let panicked = std::thread::spawn(move || {
            let _permit = permit;
            panic!("as a hook might");
        });
        assert!(panicked.join().is_err());
        assert!(permits.take(model("slow"), 1, now).is_ok());
    }

    #[test]
    fn a_slot_is_deferred_for_the_time_since_the_newest_permit_and_at_most_a_second() {
        let (permits, begun) = (Arc::new(ModelPermits::default()), Instant::now());
        let _first = permits.take(model("slow"), 2, begun).ok();
        let _last = permits.take(model("slow"), 2, begun + MAX_DEFERRAL).ok();
        let wait = |millis| {
            let now = begun + MAX_DEFERRAL + Duration::from_millis(millis);
            permits.take(model("slow"), 2, now).err().map(|wait| wait.as_millis())
        };
        assert_eq!([0, 1, 50, 400, 1_000, 60_000].map(wait), [50, 50, 50, 400, 1_000, 1_000].map(Some));
    }

    #[test]
    fn the_next_deferred_slot_is_the_earliest_one_that_still_has_to_wait() {
        let permits = ModelPermits::default();
        assert_eq!((permits.next_deferred(), permits.has_deferred()), (None, false));
        let before = Instant::now();
        for wait in [600, 0, 500] {
            permits.defer_slot(Duration::from_secs(wait));
        }
        let next = permits.next_deferred().unwrap();
        assert!(Duration::from_secs(500) <= next - before && next - before < Duration::from_secs(600));
        assert!(permits.has_deferred());
    }
}
