//! Reserves money for model calls in progress, so that two calls cannot spend the same money under a spend cap.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::lock::lock;
use crate::price::Money;

/// The most that calls in progress may cost, in millionths, by workspace.
#[derive(Default)]
pub(crate) struct SpendReservations(Mutex<HashMap<Arc<str>, i64>>);

impl SpendReservations {
    /// Reserves an amount if the spent, reserved and new amounts stay within the cap. Otherwise returns the reserved
    /// sum.
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

/// Reserved money, until the real cost is recorded. Released when dropped.
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
