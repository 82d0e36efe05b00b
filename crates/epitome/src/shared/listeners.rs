//! Who waits for what happens in a workspace.
//!
//! Whoever waits is woken by this engine's own writes and looks again every so often, because another process may have
//! written. Being woken only shortens the wait: what happened is read from the store, never handed over. While nobody
//! listens an append pays for one look into an empty map.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use crate::hidden::Hidden;
use crate::lock::lock;

/// Waits until there may be something new in a workspace.
#[derive(Debug)]
pub struct Listener {
    /// Not the engine: whoever listens does not keep it alive. Hidden, as it names other workspaces.
    listeners: Hidden<Arc<Listeners>>,
    workspace: Arc<str>,
    told: watch::Receiver<()>,
    poll: Duration,
}

impl Listener {
    pub(crate) fn new(listeners: &Arc<Listeners>, workspace: Arc<str>, poll: Duration) -> Self {
        let told = listeners.join(&workspace);
        Self { listeners: Hidden(Arc::clone(listeners)), workspace, told, poll }
    }

    /// Returns soon after this engine wrote to the workspace, at once where it has since the last time, and after
    /// [`crate::Pace::poll`] in any case. It may be dropped while it waits, and loses nothing.
    pub async fn heard(&mut self) {
        let poll = self.poll.max(Duration::from_millis(1));
        let _ = tokio::time::timeout(poll, self.told.changed()).await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.listeners.leave(&self.workspace);
    }
}

/// Who listens to which workspace.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    by_workspace: Mutex<HashMap<Arc<str>, watch::Sender<()>>>,
}

impl Listeners {
    fn join(&self, workspace: &Arc<str>) -> watch::Receiver<()> {
        let mut listened = lock(&self.by_workspace);
        listened.entry(Arc::clone(workspace)).or_insert_with(|| watch::Sender::new(())).subscribe()
    }

    /// Called while the one who leaves still holds its end.
    fn leave(&self, workspace: &Arc<str>) {
        let mut listened = lock(&self.by_workspace);
        if listened.get(workspace).is_some_and(|told| told.receiver_count() <= 1) {
            listened.remove(workspace);
        }
    }

    /// Something was written in this workspace.
    pub(crate) fn wake(&self, workspace: &Arc<str>) {
        if let Some(told) = lock(&self.by_workspace).get(workspace) {
            told.send_replace(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_listener_of_a_workspace_takes_its_place_along() {
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
