//! Queues the states of conversations, and writes them to the store in order, in the background.
//!
//! A request is forwarded without waiting until its conversation's state is written. Lookups search the queue in
//! addition to the store, so they also find states that are not written yet.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::condenser::ThreadState;
use crate::fingerprint::PrefixHashes;
use crate::store::{ProxyStateRow, Store};

/// Maximum number of queued rows. If the queue is full, the store is overloaded, and further rows are dropped.
const MAX_QUEUED: usize = 256;

/// Size in bytes above which a row is stored without the extracts of its summary.
const LARGE_DOCUMENT: usize = 256 << 10;

/// Maximum size in bytes of a row without extracts. A larger row is not stored.
const MAX_DOCUMENT: usize = 1 << 20;

/// The content of a row, which is stored as JSON.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Document {
    /// The conversation's id.
    #[serde(rename = "run")]
    pub(super) id: Arc<str>,
    #[serde(rename = "kept")]
    pub(super) state: ThreadState,
}

impl Document {
    /// Returns the text to store, or `None` if it is too large.
    pub(super) fn write(mut self) -> Option<String> {
        let text = serde_json::to_string(&self).ok()?;
        if text.len() <= LARGE_DOCUMENT {
            return Some(text);
        }
        // The extracts are the largest part of the row. They can be derived from the summary again, with less detail.
        self.state.extracts = None;
        serde_json::to_string(&self).ok().filter(|text| text.len() <= MAX_DOCUMENT)
    }

    /// Parses a row for a list of this length. Returns `None` if the row belongs to a list of another length or cannot
    /// be parsed.
    pub(super) fn read(text: &str, length: u64) -> Option<Self> {
        let document: Self = serde_json::from_str(text).ok()?;
        (document.state.list.rounds > 0 && document.state.list.length == length).then_some(document)
    }
}

/// Rows that are not in the store yet.
#[derive(Default)]
pub(super) struct WriteQueue {
    /// The queued rows, each with its workspace. A row may have a size of 1 MiB. Therefore the writing task releases
    /// the lock before it copies a row.
    rows: watch::Sender<VecDeque<(Arc<str>, Arc<ProxyStateRow>)>>,
}

impl WriteQueue {
    /// Returns the queued row for the longest beginning of this list. If several rows have the same length, returns the
    /// newest row.
    pub(super) fn find(&self, workspace: &str, prefixes: &PrefixHashes) -> Option<ProxyStateRow> {
        let rows = self.rows.borrow();
        let matching = rows.iter().filter(|(owner, row)| {
            let at = usize::try_from(row.length).ok().and_then(|length| length.checked_sub(1));
            **owner == *workspace && at.and_then(|at| prefixes.hashes.get(at)) == Some(&row.hash)
        });
        // `max_by_key` returns the last of several equal rows, which is the newest.
        matching.max_by_key(|(_, row)| row.length).map(|(_, row)| ProxyStateRow::clone(row))
    }

    /// Removes a workspace's rows from the queue, except for a row that is being written.
    pub(super) fn remove_workspace(&self, workspace: &str) {
        self.rows.send_modify(|rows| {
            let being_written = rows.pop_front();
            rows.retain(|(owner, _)| &**owner != workspace);
            being_written.into_iter().for_each(|first| rows.push_front(first));
        });
    }

    /// Waits until the queue is empty.
    pub(super) async fn settled(&self) {
        // Cannot fail: `self` owns the sender.
        let _ = self.rows.subscribe().wait_for(VecDeque::is_empty).await;
    }

    /// Queues a row for the store.
    pub(super) fn push(self: &Arc<Self>, store: &Arc<dyn Store>, workspace: &Arc<str>, row: ProxyStateRow) {
        let mut before = 0;
        self.rows.send_modify(|rows| {
            before = rows.len();
            if before < MAX_QUEUED {
                rows.push_back((Arc::clone(workspace), Arc::new(row)));
            }
        });
        match before {
            0 => drop(tokio::spawn(Arc::clone(self).write(Arc::clone(store)))),
            MAX_QUEUED.. => tracing::warn!(
                "the queue for the store is full, so the state of a conversation is not stored; after a restart its list is condensed from the start"
            ),
            _ => {}
        }
    }

    /// Writes rows until the queue is empty.
    async fn write(self: Arc<Self>, store: Arc<dyn Store>) {
        while let Some((workspace, row)) = { self.rows.borrow().front().cloned() } {
            if let Err(error) = store.store_proxy_state(&workspace, ProxyStateRow::clone(&row)).await {
                tracing::warn!(%error, "could not store the state of a conversation; after a restart its list is condensed from the start");
            }
            self.rows.send_modify(|rows| drop(rows.pop_front()));
        }
    }
}
