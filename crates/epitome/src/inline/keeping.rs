//! Writes what was done to lists to the store, in order, in the background.
//!
//! A request does not wait for the disk before it is forwarded. Rows are queued, and a lookup searches the queue before
//! it queries the store.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::condenser::Kept;
use crate::fingerprint::Chain;
use crate::store::{InlineRow, Store};

/// Maximum number of queued rows. A store that is further behind is overloaded anyway.
const MOST_WAITING: usize = 256;

/// Above this size in bytes, a row is stored without the extracts that its summary was made of.
const LARGE: usize = 256 << 10;

/// Above this size in bytes, even without extracts, a row is not stored.
const MOST: usize = 1 << 20;

/// The content of a row.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Document {
    /// The conversation's id.
    pub(super) run: Arc<str>,
    pub(super) kept: Kept,
}

impl Document {
    /// Returns the text to store, or `None` if it is too large.
    pub(super) fn write(mut self) -> Option<String> {
        let text = serde_json::to_string(&self).ok()?;
        if text.len() <= LARGE {
            return Some(text);
        }
        // The extracts are the largest part, and can be derived from the summary again, with less detail.
        self.kept.extracts = None;
        serde_json::to_string(&self).ok().filter(|text| text.len() <= MOST)
    }

    /// Parses a row for a list of this length. Returns `None` if it does not fit the list or cannot be read.
    pub(super) fn read(text: &str, length: u64) -> Option<Self> {
        let document: Self = serde_json::from_str(text).ok()?;
        (document.kept.standing.rounds > 0 && document.kept.standing.seen == length).then_some(document)
    }
}

/// Rows that are not in the store yet.
#[derive(Default)]
pub(super) struct Keeping {
    /// The queue, with each row's workspace. A row may have a megabyte, so it is copied without the lock.
    waiting: watch::Sender<VecDeque<(Arc<str>, Arc<InlineRow>)>>,
}

impl Keeping {
    /// Returns the row of the longest list that this list begins with; of several, the newest.
    pub(super) fn find(&self, workspace: &str, chain: &Chain) -> Option<InlineRow> {
        let waiting = self.waiting.borrow();
        let of_this = waiting.iter().filter(|(whose, row)| {
            let at = usize::try_from(row.length).ok().and_then(|length| length.checked_sub(1));
            **whose == *workspace && at.and_then(|at| chain.hashes.get(at)) == Some(&row.hash)
        });
        // `max_by_key` returns the last of several equal rows, which is the newest.
        of_this.max_by_key(|(_, row)| row.length).map(|(_, row)| InlineRow::clone(row))
    }

    /// Removes a workspace's rows from the queue, except for a row that is being written.
    pub(super) fn forget(&self, workspace: &str) {
        self.waiting.send_modify(|waiting| {
            let being_written = waiting.pop_front();
            waiting.retain(|(whose, _)| &**whose != workspace);
            being_written.into_iter().for_each(|first| waiting.push_front(first));
        });
    }

    /// Waits until the queue is empty.
    pub(super) async fn settled(&self) {
        // Cannot fail: `self` owns the sender.
        let _ = self.waiting.subscribe().wait_for(VecDeque::is_empty).await;
    }

    /// Queues a row for the store.
    pub(super) fn keep(self: &Arc<Self>, store: &Arc<dyn Store>, workspace: &Arc<str>, row: InlineRow) {
        let mut before = 0;
        self.waiting.send_modify(|waiting| {
            before = waiting.len();
            if before < MOST_WAITING {
                waiting.push_back((Arc::clone(workspace), Arc::new(row)));
            }
        });
        match before {
            0 => drop(tokio::spawn(Arc::clone(self).write(Arc::clone(store)))),
            MOST_WAITING.. => tracing::warn!(
                "the queue for the store is full, so the state of a conversation is not stored; after a restart its list is condensed from the start"
            ),
            _ => {}
        }
    }

    /// Writes rows until the queue is empty.
    async fn write(self: Arc<Self>, store: Arc<dyn Store>) {
        while let Some((workspace, row)) = { self.waiting.borrow().front().cloned() } {
            if let Err(error) = store.keep_inline(&workspace, InlineRow::clone(&row)).await {
                tracing::warn!(%error, "could not store the state of a conversation; after a restart its list is condensed from the start");
            }
            self.waiting.send_modify(|waiting| drop(waiting.pop_front()));
        }
    }
}
