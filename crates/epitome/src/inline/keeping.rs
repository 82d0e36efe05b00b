//! What was done to lists on its way into the store: in order, one after the other, and found meanwhile.
//!
//! Nobody waits for a disk before a request goes on. So rows are queued, and whoever looks for one looks here before it
//! looks into the store.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::condenser::Kept;
use crate::fingerprint::Chain;
use crate::store::{InlineRow, Store};

/// So many rows wait at most. A store that is further behind has other troubles.
const MOST_WAITING: usize = 256;

/// A row larger than this is kept without what its summary was made of.
const LARGE: usize = 256 << 10;

/// One that is still larger than this is not kept.
const MOST: usize = 1 << 20;

/// What a row says.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Document {
    /// The conversation's number.
    pub(super) run: Arc<str>,
    pub(super) kept: Kept,
}

impl Document {
    /// As it is kept; nothing where it is too large for that.
    pub(super) fn write(mut self) -> Option<String> {
        let text = serde_json::to_string(&self).ok()?;
        if text.len() <= LARGE {
            return Some(text);
        }
        // What its summary was made of is the largest part of it, and can be read from the summary again, if not as well.
        self.kept.extracts = None;
        serde_json::to_string(&self).ok().filter(|text| text.len() <= MOST)
    }

    /// What a row said of a list that is so long. Anything else is as good as nothing.
    pub(super) fn read(text: &str, length: u64) -> Option<Self> {
        let document: Self = serde_json::from_str(text).ok()?;
        (document.kept.standing.rounds > 0 && document.kept.standing.seen == length).then_some(document)
    }
}

/// Rows that are not in the store yet.
#[derive(Default)]
pub(super) struct Keeping {
    /// With the workspace each belongs to. A row may be a megabyte: it is copied while nobody waits for the lock.
    waiting: watch::Sender<VecDeque<(Arc<str>, Arc<InlineRow>)>>,
}

impl Keeping {
    /// The row of the longest list that this one begins with, the newest of several.
    pub(super) fn find(&self, workspace: &str, chain: &Chain) -> Option<InlineRow> {
        let waiting = self.waiting.borrow();
        let of_this = waiting.iter().filter(|(whose, row)| {
            let at = usize::try_from(row.length).ok().and_then(|length| length.checked_sub(1));
            **whose == *workspace && at.and_then(|at| chain.hashes.get(at)) == Some(&row.hash)
        });
        // Of two that are as long, the later is found.
        of_this.max_by_key(|(_, row)| row.length).map(|(_, row)| InlineRow::clone(row))
    }

    /// What waits of a workspace is not written any more, but for what is being written.
    pub(super) fn forget(&self, workspace: &str) {
        self.waiting.send_modify(|waiting| {
            let being_written = waiting.pop_front();
            waiting.retain(|(whose, _)| &**whose != workspace);
            being_written.into_iter().for_each(|first| waiting.push_front(first));
        });
    }

    /// Waits until nothing is left.
    pub(super) async fn settled(&self) {
        // It is told by what it belongs to, which is still there.
        let _ = self.waiting.subscribe().wait_for(VecDeque::is_empty).await;
    }

    /// Puts a row into the store, after those before it.
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
                "the store is too far behind to keep what was done to a list; after a restart it is done anew"
            ),
            _ => {}
        }
    }

    /// Writes rows until none is left.
    async fn write(self: Arc<Self>, store: Arc<dyn Store>) {
        while let Some((workspace, row)) = { self.waiting.borrow().front().cloned() } {
            if let Err(error) = store.keep_inline(&workspace, InlineRow::clone(&row)).await {
                tracing::warn!(%error, "what was done to a list could not be kept; after a restart it is done anew");
            }
            self.waiting.send_modify(|waiting| drop(waiting.pop_front()));
        }
    }
}
