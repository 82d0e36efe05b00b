//! A model that somebody lends for as long as their own request is open.
//!
//! Whoever sends a request through has a key for the model it is for. That model may write the summaries too, with that key,
//! but only while the request is open: what is being written then ends, and nothing that holds the key is left. A
//! later request of the conversation begins again, when it has grown by a tenth; what is due before it is there, `local` writes.

use std::fmt;
use std::sync::{Arc, Mutex};

use tokio::task::AbortHandle;

use super::{Condenser, Inner};
use crate::condenser::scribe::Scribe;
use crate::lock::lock;
use crate::model::Model;
use crate::writer::Writer;

/// While it is held, the model that was lent may be used. When it is dropped, whoever still has a summary written by that
/// model is stopped, and what was sent for it is recorded as a call that was dropped.
#[must_use = "the model is taken back when this is dropped"]
pub struct Lent(Arc<Loan>);

/// Who uses a model that was lent; nothing once it was taken back.
pub(super) struct Loan(Mutex<Option<Vec<AbortHandle>>>);

impl Loan {
    /// Notes who uses it. False where it was taken back.
    pub(super) fn uses(&self, task: AbortHandle) -> bool {
        let mut tasks = lock(&self.0);
        tasks.as_mut().map(|tasks| tasks.push(task)).is_some()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let tasks = lock(&self.0.0).take();
        tasks.into_iter().flatten().for_each(|task| task.abort());
    }
}

impl Condenser {
    /// One that works in the same way on the same conversations, with this model to write their summaries as long as what
    /// comes with it is held.
    pub fn lend(&self, name: &str, model: &Arc<dyn Model>) -> (Self, Lent) {
        let inner = &self.inner;
        let writer = Writer::new(name, model);
        let mut rules = inner.rules.clone();
        rules.local = writer.is_local();
        if !rules.local {
            rules.prices = rules.prices_of_same;
        }
        let loan = Arc::new(Loan(Mutex::new(Some(Vec::new()))));
        let scribe = Arc::new(Scribe { writer, lent: true, ..inner.scribe.as_ref().clone() });
        let lent = Inner { rules, scribe, loan: Some(Arc::clone(&loan)), ..inner.like(inner.id, 1) };
        (Self { inner: Arc::new(lent) }, Lent(loan))
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").finish_non_exhaustive()
    }
}
