//! Reserves money for model calls in progress, so that two calls cannot spend the same money under a spend cap.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::lock::lock;
use crate::price::Money;

/// The reserved money of each workspace: the maximum cost of its calls in progress, in millionths of the currency unit.
#[derive(Default)]
pub(crate) struct SpendReservations(Mutex<HashMap<Arc<str>, i64>>);

impl SpendReservations {
    /// Reserves the amount `more`, if the sum of the spent amount, the reserved amount and `more` does not exceed the
    /// cap. Otherwise returns the amount that is already reserved.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        workspace: &Arc<str>,
        spent: Money,
        more: Money,
        cap: Money,
    ) -> Result<SpendReservation, Money> {
        let mut amounts = lock(&self.0);
        let reserved = Money::millionths(amounts.get(workspace).copied().unwrap_or(0));
        if spent + reserved + more > cap {
            return Err(reserved);
        }
        let amount = more.to_millionths();
        let sum = amounts.entry(Arc::clone(workspace)).or_insert(0);
        *sum = sum.saturating_add(amount);
        Ok(SpendReservation { all: Arc::clone(self), workspace: Arc::clone(workspace), amount })
    }
}

/// Money that is reserved for a call until its real cost is recorded. Dropping this value releases the money.
pub(crate) struct SpendReservation {
    all: Arc<SpendReservations>,
    workspace: Arc<str>,
    amount: i64,
}

impl SpendReservation {
    /// Replaces the reserved amount with the real cost.
    pub(crate) fn settle(&mut self, cost: i64) {
        let mut amounts = lock(&self.all.0);
        if let Some(sum) = amounts.get_mut(&self.workspace) {
            *sum = sum.saturating_sub(self.amount).saturating_add(cost);
            self.amount = cost;
        }
    }
}

impl Drop for SpendReservation {
    fn drop(&mut self) {
        self.settle(0);
        let mut amounts = lock(&self.all.0);
        if amounts.get(&self.workspace).is_some_and(|sum| *sum <= 0) {
            amounts.remove(&self.workspace);
        }
    }
}
