//! How the engine fares, for whoever runs it: what is left to do, whether it can do it, and what troubles it.
//!
//! Nothing here names a workspace or a session. What is due in one workspace is told by `explain.rs`.

use tokio::task::JoinHandle;

use super::{Backlog, Engine};
use crate::error::Error;
use crate::lock::lock;
use crate::shared::Unready;
use crate::store::Listing;

impl Engine {
    /// What is left to do in all workspaces together. No names are in it, so it may be shown where anybody can look. Cheap: only slots with something to do are read, however many
    /// sessions there are.
    pub async fn backlog(&self) -> Result<Backlog, Error> {
        Ok(self.shared().store.queue(None, 0).await?.0)
    }

    /// Whether it can do what it is there for: the store can be read and could be written to lately, and its worker, where it has one, looks for work.
    /// If not, each reason. It reads a single row, and waits for no model.
    ///
    /// A hook that fails, or a slot, is no reason: everything else goes on.
    pub async fn ready(&self) -> Result<(), Vec<Unready>> {
        if *self.inner.stop.borrow() {
            return Err(vec![Unready::from("the engine is closed")]);
        }
        let shared = self.shared();
        let mut reasons = Vec::new();
        if let Err(error) = shared.store.workspaces(Listing::by_name(None, 1)).await {
            reasons.push(Unready::from(&error));
        }
        if let Some(error) = shared.health.unwritable().filter(|_| reasons.is_empty()) {
            reasons.push(Unready::from(&error));
        }
        if *shared.signals.give_up.borrow() {
            reasons.push(Unready::from("the engine gave its work up, and begins no more summaries"));
        } else if lock(&self.inner.worker).as_ref().is_some_and(JoinHandle::is_finished) {
            reasons.push(Unready::from("the worker ended; open the engine again"));
        }
        // Where reading fails, looking for work fails for the same reason.
        let blind = lock(&shared.health.blind).as_ref().map(Unready::from);
        reasons.extend(blind.filter(|reason| !reasons.contains(reason)));
        if reasons.is_empty() { Ok(()) } else { Err(reasons) }
    }

    /// What troubles the worker, where that is no single session's matter: the store cannot be reached, say, or a
    /// hook fails. What troubles one slot is told by [`Session::explain`].
    ///
    /// [`Session::explain`]: crate::Session::explain
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.shared().health.trouble()
    }
}
