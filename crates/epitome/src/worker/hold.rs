//! For how long a slot is surely ours, as far as can be told without asking.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::lock::lock;

/// A hold on a slot by this machine's own clock, which no store's clock and no setting of the time moves, and which runs
/// on while the process is stopped.
///
/// It counts from before the store was asked, so it ends no later than what the store wrote down.
pub(super) struct Hold {
    span: Duration,
    asked: Mutex<Instant>,
}

impl Hold {
    /// A hold for so long that was asked for at that moment.
    pub(super) fn new(span: Duration, asked: Instant) -> Self {
        Self { span, asked: Mutex::new(asked) }
    }

    /// It was renewed, which was asked for at that moment.
    pub(super) fn renewed(&self, asked: Instant) {
        let mut last = lock(&self.asked);
        *last = asked.max(*last);
    }

    /// Whether it ran out: somebody else may have taken the slot.
    pub(super) fn ran_out(&self) -> bool {
        lock(&self.asked).elapsed() >= self.span
    }
}
