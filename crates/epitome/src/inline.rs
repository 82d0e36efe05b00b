//! Conversations that pass through: known again without being named, also after a restart.
//!
//! Whoever forwards requests for others, as the proxy does, sees each conversation as a list that comes in whole, again and
//! again, a little longer each time. An [`Inline`] finds out which it is by [rolling hashes](chain), hands it to the
//! conversation's own [`Thread`], and keeps what was done to it in the store. So a conversation that was condensed once stays
//! as it was handed out, until the next time, whichever way its requests come.
//!
//! Some thousand conversations are held in memory; of those that were let go of, or that another process began, what was done
//! to them is read from the store when they come again. What is found by its hash is compared message by message before
//! anything is done, where it is in memory; what was stored is taken only for a list whose every message up to then is the
//! same. Nothing is ever found for another workspace or another caller.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use epitome_core::message::Message;

use crate::condenser::{Call, Condenser, Kept, Ready, Thread};
use crate::engine::{Shared, lock};
use crate::store::{InlineRow, ListHash};

mod chain;
mod savings;

use chain::Chain;
pub use savings::Answered;

/// So many conversations are held in memory.
const MOST_THREADS: usize = 4_096;

/// And so many bytes of them, as far as that can be told.
const MOST_BYTES: usize = 64 << 20;

/// A message that was taken in is about so large, without its words.
const OUTLINE: usize = 256;

/// Whose conversation it is, as far as its list does not tell.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// Sets callers apart that share a workspace: a hash of the key they came with, say. It is kept nowhere but as a part of
    /// hashes.
    pub id: &'a [u8],
    /// What they call it, where they do. Two conversations of different names are never taken for one.
    pub session: Option<&'a str>,
    /// In which form their requests are.
    pub wire: &'a str,
}

/// What a list became, and by what its conversation is known.
#[derive(Debug)]
pub struct Passing<'a> {
    /// The list to be sent.
    pub ready: Ready<'a>,
    /// The conversation's number. It says nothing.
    pub run: String,
}

/// Conversations that pass through a workspace. A handle, cheap to make.
#[derive(Clone)]
pub struct Inline {
    shared: Arc<Shared>,
    workspace: Arc<str>,
}

/// All conversations in memory, of all workspaces.
#[derive(Default)]
pub(crate) struct Threads {
    known: Mutex<Known>,
    turns: AtomicU64,
}

#[derive(Default)]
struct Known {
    /// By the hash of the list as it last came, and as it was when it was last condensed.
    by: HashMap<ListHash, Arc<Held>>,
    bytes: usize,
}

/// A conversation in memory.
struct Held {
    thread: Thread,
    /// For whom it was begun: a condenser with other rules counts otherwise.
    condenser: u64,
    run: String,
    place: Mutex<Place>,
    /// The turn on which it last went on.
    used: AtomicU64,
}

#[derive(Default, Clone, Copy)]
struct Place {
    last: ListHash,
    condensed: Option<ListHash>,
    bytes: usize,
}

impl Inline {
    pub(crate) fn new(shared: Arc<Shared>, workspace: Arc<str>) -> Self {
        Self { shared, workspace }
    }

    /// The list to send in place of this one, by the conversation it belongs to.
    pub async fn before<'a>(
        &self,
        condenser: &Condenser,
        caller: &Caller<'_>,
        call: Call<'a>,
    ) -> Passing<'a> {
        let messages = call.messages;
        let chain = Chain::of(&self.workspace, caller, messages);
        let threads = &self.shared.threads;
        if let Some(held) = threads.find(&chain)
            && held.condenser == condenser.id()
        {
            if let Some(ready) = condenser.before_in(&held.thread, call).await {
                return self.passed(&chain, &held, ready);
            }
            if let Some(fork) = condenser.fork(&held.thread, messages) {
                return self.enter(condenser, caller, &chain, fork, call).await;
            }
        }
        let kept = self.kept(&chain, messages).await;
        let thread = condenser.begin(messages, kept.as_ref());
        self.enter(condenser, caller, &chain, thread, call).await
    }

    /// A conversation that was not in memory.
    async fn enter<'a>(
        &self,
        condenser: &Condenser,
        caller: &Caller<'_>,
        chain: &Chain,
        thread: Thread,
        call: Call<'a>,
    ) -> Passing<'a> {
        let ready = match condenser.before_in(&thread, call).await {
            Some(ready) => ready,
            // Nobody else has it, so that it is its own list.
            None => condenser.before(call).await,
        };
        let held = Arc::new(Held {
            condenser: condenser.id(),
            run: caller.session.map_or_else(|| self.shared.threads.number(chain), str::to_owned),
            place: Mutex::new(Place {
                condensed: chain.at(usize::try_from(thread.condensed_at()).unwrap_or(usize::MAX)),
                ..Place::default()
            }),
            used: AtomicU64::new(0),
            thread,
        });
        self.passed(chain, &held, ready)
    }

    /// Notes where a conversation is now, and keeps what was done to it.
    fn passed<'a>(&self, chain: &Chain, held: &Arc<Held>, ready: Ready<'a>) -> Passing<'a> {
        let Some(last) = chain.last() else { return Passing { ready, run: held.run.clone() } };
        let words: u64 = if ready.is_untouched() { 0 } else { ready.iter().map(Message::bytes).sum() };
        let words = usize::try_from(words).unwrap_or(usize::MAX);
        let mut place = *lock(&held.place);
        place.last = last;
        place.bytes = chain.hashes.len().saturating_mul(OUTLINE).saturating_add(words);
        if ready.report.condensed {
            place.condensed = Some(last);
            self.keep(chain, last, &ready.turn().kept());
        }
        self.shared.threads.put(held, place);
        Passing { ready, run: held.run.clone() }
    }

    /// What was kept of a conversation that this list goes on with: in memory, for a condenser with other rules, or in the
    /// store. What cannot be read is as good as forgotten, and done anew.
    async fn kept(&self, chain: &Chain, messages: &[Message]) -> Option<Kept> {
        if let Some(held) = self.shared.threads.find(chain) {
            let kept = held.thread.kept();
            let seen = usize::try_from(kept.standing.seen).unwrap_or(usize::MAX);
            let condensed = lock(&held.place).condensed;
            if kept.standing.rounds > 0 && condensed.is_some() && chain.at(seen) == condensed {
                return Some(kept);
            }
        }
        let row = match self.shared.store.inline(&self.workspace, chain.hashes.clone()).await {
            Ok(row) => row?,
            Err(error) => {
                tracing::warn!(%error, "what was done to a list could not be read; it is done anew");
                return None;
            }
        };
        let kept: Kept = serde_json::from_str(&row.kept).ok()?;
        let length = row.length.saturating_add(chain.head as u64);
        (kept.standing.seen == length && messages.len() as u64 >= length).then_some(kept)
    }

    /// Keeps it while the request goes on: nobody waits for a disk.
    fn keep(&self, chain: &Chain, hash: ListHash, kept: &Kept) {
        let (Some(root), Ok(kept)) = (chain.hashes.first().copied(), serde_json::to_string(kept)) else {
            return;
        };
        let row = InlineRow { root, length: chain.hashes.len() as u64, hash, kept };
        let (shared, workspace) = (Arc::clone(&self.shared), Arc::clone(&self.workspace));
        tokio::spawn(async move {
            if let Err(error) = shared.store.keep_inline(&workspace, row).await {
                tracing::warn!(%error, "what was done to a list could not be kept; after a restart it is done anew");
            }
        });
    }
}

impl Threads {
    /// The conversation that shares most with the list, and is not past it.
    fn find(&self, chain: &Chain) -> Option<Arc<Held>> {
        let known = lock(&self.known);
        chain.hashes.iter().rev().find_map(|hash| known.by.get(hash)).cloned()
    }

    /// Files a conversation where it is now.
    fn put(&self, held: &Arc<Held>, now: Place) {
        held.used.store(self.turns.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        let mut known = lock(&self.known);
        known.remove(held);
        *lock(&held.place) = now;
        known.bytes = known.bytes.saturating_add(now.bytes);
        for hash in [Some(now.last), now.condensed].into_iter().flatten() {
            known.by.insert(hash, Arc::clone(held));
        }
        if known.by.len() > 2 * MOST_THREADS || known.bytes > MOST_BYTES {
            known.let_go();
        }
    }

    fn number(&self, chain: &Chain) -> String {
        let mut hash = blake3::Hasher::new();
        hash.update(&chain.hashes.first().copied().unwrap_or_default());
        hash.update(&self.turns.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        hash.finalize().to_hex().chars().take(16).collect()
    }
}

impl Known {
    /// Takes a conversation out of the index, where it is in it.
    fn remove(&mut self, held: &Arc<Held>) {
        let place = *lock(&held.place);
        let mut was = false;
        for hash in [Some(place.last), place.condensed].into_iter().flatten() {
            if self.by.get(&hash).is_some_and(|other| Arc::ptr_eq(other, held)) {
                self.by.remove(&hash);
                was = true;
            }
        }
        if was {
            self.bytes = self.bytes.saturating_sub(place.bytes);
        }
    }

    /// Lets go of the half that was longest quiet.
    fn let_go(&mut self) {
        let mut all: Vec<Arc<Held>> = self.by.values().cloned().collect();
        all.sort_by_key(|held| (held.used.load(Ordering::Relaxed), Arc::as_ptr(held).addr()));
        all.dedup_by(|one, two| Arc::ptr_eq(one, two));
        // Some whose places others took are gone without a word.
        self.bytes = all.iter().map(|held| lock(&held.place).bytes).fold(0, usize::saturating_add);
        let half = all.len().div_ceil(2);
        all.iter().take(half).for_each(|held| self.remove(held));
    }
}

impl fmt::Debug for Inline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inline").field("workspace", &self.workspace).finish_non_exhaustive()
    }
}
