//! Wakes clients that wait for events of a workspace.
//!
//! After this engine writes to a workspace, it wakes the listeners of the workspace. A listener also wakes up at an
//! interval, because another process may have written to the workspace. The wake-up carries no data; the client reads
//! the events from the store. Without listeners an append costs only one lookup in an empty map.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use crate::hidden::Hidden;
use crate::lock::lock;

/// Waits until a workspace may have new events.
#[derive(Debug)]
pub struct Listener {
    /// The list of all listeners. A listener refers to this list and not to the engine, because a reference to the
    /// engine would prevent its shutdown. Debug output hides the list, because it contains names of other workspaces.
    listeners: Hidden<Arc<Listeners>>,
    workspace: Arc<str>,
    wakeups: watch::Receiver<()>,
    poll: Duration,
}

impl Listener {
    pub(crate) fn new(listeners: &Arc<Listeners>, workspace: Arc<str>, poll: Duration) -> Self {
        let wakeups = listeners.join(&workspace);
        Self { listeners: Hidden(Arc::clone(listeners)), workspace, wakeups, poll }
    }

    /// Returns soon after this engine writes to the workspace, and at the latest after [`crate::Pace::poll`]. Returns
    /// at once if the engine has written since the last call. The future may be dropped at any time without losing a
    /// wake-up.
    pub async fn changed(&mut self) {
        let poll = self.poll.max(Duration::from_millis(1));
        let _ = tokio::time::timeout(poll, self.wakeups.changed()).await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.listeners.leave(&self.workspace);
    }
}

/// The listeners of all workspaces.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    by_workspace: Mutex<HashMap<Arc<str>, watch::Sender<()>>>,
}

impl Listeners {
    fn join(&self, workspace: &Arc<str>) -> watch::Receiver<()> {
        let mut listened = lock(&self.by_workspace);
        listened.entry(Arc::clone(workspace)).or_insert_with(|| watch::Sender::new(())).subscribe()
    }

    /// Removes the workspace's entry if the calling listener is the last listener of the workspace. A listener must
    /// call this before it drops its receiver. Then a single remaining receiver belongs to the caller.
    fn leave(&self, workspace: &Arc<str>) {
        let mut listened = lock(&self.by_workspace);
        if listened.get(workspace).is_some_and(|wakeups| wakeups.receiver_count() <= 1) {
            listened.remove(workspace);
        }
    }

    /// Wakes the listeners of a workspace after a write.
    pub(crate) fn wake(&self, workspace: &Arc<str>) {
        if let Some(wakeups) = lock(&self.by_workspace).get(workspace) {
            wakeups.send_replace(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_listener_of_a_workspace_removes_its_entry() {
        let listeners = Listeners::default();
        let (home, work): (Arc<str>, Arc<str>) = ("home".into(), "work".into());
        let (mut one, two, other) = (listeners.join(&home), listeners.join(&home), listeners.join(&work));
        listeners.wake(&home);
        assert!(one.has_changed().unwrap() && two.has_changed().unwrap() && !other.has_changed().unwrap());
        one.mark_unchanged();
        listeners.leave(&home);
        drop(two);
        listeners.wake(&home);
        assert!(one.has_changed().unwrap());
        listeners.leave(&home);
        drop(one);
        assert_eq!(lock(&listeners.by_workspace).len(), 1);
    }
}
