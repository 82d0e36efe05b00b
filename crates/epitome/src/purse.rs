//! Money that is reserved for calls under way, so that two of them do not spend the same.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::lock::lock;
use crate::price::Money;

/// What calls under way may cost at most, in millionths, by workspace: two of them must not spend the same money.
#[derive(Default)]
pub(crate) struct Purse(Mutex<HashMap<Arc<str>, i64>>);

impl Purse {
    /// Sets an amount aside, if with it and with what was spent the cap is not passed; else what is set aside already.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        workspace: &Arc<str>,
        spent: Money,
        more: Money,
        cap: Money,
    ) -> Result<Reserved, Money> {
        let mut amounts = lock(&self.0);
        let held = Money::millionths(amounts.get(workspace).copied().unwrap_or(0));
        if spent + held + more > cap {
            return Err(held);
        }
        let amount = more.to_millionths();
        let sum = amounts.entry(Arc::clone(workspace)).or_insert(0);
        *sum = sum.saturating_add(amount);
        Ok(Reserved { purse: Arc::clone(self), workspace: Arc::clone(workspace), amount })
    }
}

/// Money set aside, until what was really spent is recorded. Given back when dropped.
pub(crate) struct Reserved {
    purse: Arc<Purse>,
    workspace: Arc<str>,
    amount: i64,
}

impl Reserved {
    /// It turned out to cost this.
    pub(crate) fn settle(&mut self, cost: i64) {
        let mut amounts = lock(&self.purse.0);
        if let Some(sum) = amounts.get_mut(&self.workspace) {
            *sum = sum.saturating_sub(self.amount).saturating_add(cost);
            self.amount = cost;
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.settle(0);
        let mut amounts = lock(&self.purse.0);
        if amounts.get(&self.workspace).is_some_and(|sum| *sum <= 0) {
            amounts.remove(&self.workspace);
        }
    }
}
