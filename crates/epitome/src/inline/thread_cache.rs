//! Caches the conversations of all workspaces in memory, by the hashes of their lists.
//!
//! A lookup finds a conversation by up to two hashes. The first hash is of the conversation's latest list. The second
//! hash is of the conversation's list at its last condensation; by this hash, a lookup finds forks of the conversation.
//! The second hash is omitted if the latest list of another conversation has the same hash.
//!
//! If there are too many conversations, or if they need too much memory, the least recently used conversations are
//! evicted. A caller can continue to use a conversation that was evicted in the meantime, but lookups no longer find
//! it. The hashes of condensed lists are stored longer than the conversations: such a hash shows that the store
//! contains a state for the list.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hashlink::{LinkedHashMap, LruCache};

use super::write_queue::WriteQueue;
use crate::condenser::Thread;
use crate::fingerprint::PrefixHashes;
use crate::lock::lock;
use crate::store::ListHash;

/// Default maximum number of cached conversations.
pub(crate) const MAX_THREADS: usize = 4_096;

/// Maximum memory of the cached conversations in bytes, approximately.
const MAX_BYTES: usize = 64 << 20;

/// Approximate memory of a cached conversation in addition to its thread, in bytes.
const ENTRY_BYTES: usize = 512;

/// Maximum number of hashes of condensed lists that are remembered.
const MAX_CONDENSED: usize = 4 * MAX_THREADS;

/// The cached conversations.
pub(crate) struct ThreadCache {
    index: Mutex<CacheIndex>,
    max_threads: usize,
    /// Maximum memory in bytes. A conversation that needs more than a quarter of this memory is not cached, because too
    /// many other conversations would have to be evicted.
    max_bytes: usize,
    /// States that are not in the store yet.
    pub(super) write_queue: Arc<WriteQueue>,
    next_number: AtomicU64,
    seed: RandomState,
}

/// A cached conversation.
pub(super) struct CachedThread {
    number: u64,
    workspace: Arc<str>,
    pub(super) thread: Thread,
    /// The id of the condenser with which the conversation began. A condenser with another id may count tokens
    /// differently.
    pub(super) condenser: u64,
    pub(super) conversation_id: Arc<str>,
}

/// The result of a lookup: a cached conversation that has the same beginning as a list.
pub(super) struct CacheHit {
    pub(super) cached: Arc<CachedThread>,
    /// Number of messages that the list and the conversation share, without the leading system messages.
    pub(super) shared_len: usize,
    /// Whether the list begins with the conversation's whole latest list. If not, it begins with the conversation's
    /// list at its last condensation.
    pub(super) continues: bool,
    /// Hash of the conversation's list at its last condensation.
    pub(super) condensed: Option<ListHash>,
    /// Whether a longer beginning of the list was condensed. The store then has a newer state than the cache.
    pub(super) store_is_newer: bool,
}

/// Finds conversations by their hashes, and stores them in LRU order.
struct CacheIndex {
    by_hash: HashMap<ListHash, u64>,
    /// The conversations by their numbers, least recently used first.
    all: LinkedHashMap<u64, CacheEntry>,
    bytes: usize,
    /// Hashes of lists that were condensed.
    condensed: LruCache<ListHash, ()>,
}

struct CacheEntry {
    cached: Arc<CachedThread>,
    /// Hash of the latest list.
    last: Option<ListHash>,
    /// Hash of the conversation's list at its last condensation.
    condensed: Option<ListHash>,
    bytes: usize,
}

impl ThreadCache {
    /// Creates an empty cache for at most `max_threads` conversations.
    pub(crate) fn with_limit(max_threads: usize) -> Self {
        let condensed = LruCache::new(MAX_CONDENSED);
        let index = CacheIndex { by_hash: HashMap::new(), all: LinkedHashMap::new(), bytes: 0, condensed };
        Self {
            index: Mutex::new(index),
            max_threads,
            max_bytes: MAX_BYTES,
            write_queue: Arc::default(),
            next_number: AtomicU64::new(0),
            seed: RandomState::new(),
        }
    }

    /// Waits until the store has accepted or rejected every queued state.
    pub(crate) async fn settled(&self) {
        self.write_queue.settled().await;
    }

    /// Removes all conversations of a workspace.
    pub(crate) fn remove_workspace(&self, workspace: &str) {
        self.write_queue.remove_workspace(workspace);
        let mut index = lock(&self.index);
        let its = index.all.iter().filter(|(_, entry)| &*entry.cached.workspace == workspace);
        let its: Vec<u64> = its.map(|(number, _)| *number).collect();
        let removed: Vec<_> = its.into_iter().map(|number| index.remove(number)).collect();
        drop(index);
        drop(removed);
    }

    /// Creates a conversation that is not in the cache yet.
    pub(super) fn new_thread(
        &self,
        workspace: &Arc<str>,
        thread: Thread,
        condenser: u64,
        conversation_id: Arc<str>,
    ) -> Arc<CachedThread> {
        let (number, workspace) = (self.next_number.fetch_add(1, Ordering::Relaxed), Arc::clone(workspace));
        Arc::new(CachedThread { number, workspace, thread, condenser, conversation_id })
    }

    /// Returns an id that is unique across processes.
    pub(super) fn new_conversation_id(&self) -> Arc<str> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let half = |part: u8| self.seed.hash_one((number, part));
        format!("{:016x}{:08x}", half(0), half(1) >> 32).into()
    }

    /// Returns whether a conversation with this id is cached.
    pub(super) fn has_conversation(&self, id: &str) -> bool {
        lock(&self.index).all.values().any(|entry| &*entry.cached.conversation_id == id)
    }

    /// Returns the cached conversation that has the longest beginning in common with the list.
    pub(super) fn find(&self, prefixes: &PrefixHashes) -> Option<CacheHit> {
        let index = lock(&self.index);
        let mut store_is_newer = false;
        prefixes.hashes.iter().enumerate().rev().find_map(|(before, hash)| {
            let shared_len = before.saturating_add(1);
            let Some(entry) = index.by_hash.get(hash).and_then(|number| index.all.get(number)) else {
                store_is_newer |= index.condensed.peek(hash).is_some();
                return None;
            };
            let continues = entry.last.as_ref() == Some(hash);
            let (cached, condensed) = (Arc::clone(&entry.cached), entry.condensed);
            Some(CacheHit { cached, shared_len, continues, condensed, store_is_newer })
        })
    }

    /// Records that a list was condensed.
    pub(super) fn condensed(&self, list: ListHash) {
        lock(&self.index).condensed.insert(list, ());
    }

    /// Puts a conversation into the cache under its current hashes, and evicts other conversations if necessary.
    pub(super) fn insert(&self, cached: &Arc<CachedThread>, last: ListHash, condensed: Option<ListHash>) {
        let bytes = cached.thread.bytes().saturating_add(ENTRY_BYTES);
        let mut index = lock(&self.index);
        let before = index.remove(cached.number);
        if bytes <= self.max_bytes / 4 {
            let condensed = condensed.or(before.and_then(|entry| entry.condensed));
            index.insert(CacheEntry { cached: Arc::clone(cached), last: Some(last), condensed, bytes });
        }
        let mut removed = Vec::new();
        while index.all.len() > self.max_threads || index.bytes > self.max_bytes {
            let Some(oldest) = index.all.front().map(|(number, _)| *number) else { break };
            removed.extend(index.remove(oldest));
        }
        drop(index);
        // The memory is freed after the lock is released.
        drop(removed);
    }
}

impl CacheIndex {
    fn insert(&mut self, mut entry: CacheEntry) {
        // If the condensed list of this conversation is the latest list of another conversation, a lookup by this hash
        // finds the other conversation. The state of the condensed list is still in the store.
        let is_latest_elsewhere = |hash: &mut ListHash| {
            let other = self.by_hash.get(hash).and_then(|number| self.all.get(number));
            other.is_some_and(|other| other.last == Some(*hash))
        };
        entry.condensed.take_if(is_latest_elsewhere);
        let number = entry.cached.number;
        for hash in entry.hashes() {
            if let Some(other) = self.by_hash.insert(hash, number).filter(|other| *other != number) {
                self.displace(other, hash);
            }
        }
        self.bytes = self.bytes.saturating_add(entry.bytes);
        self.all.insert(number, entry);
    }

    /// Removes this hash from a conversation. Removes the conversation if it has no hash left.
    fn displace(&mut self, number: u64, hash: ListHash) {
        let Some(entry) = self.all.get_mut(&number) else { return };
        for slot in [&mut entry.last, &mut entry.condensed] {
            slot.take_if(|slot| *slot == hash);
        }
        if entry.last.is_none() && entry.condensed.is_none() {
            self.remove(number);
        }
    }

    fn remove(&mut self, number: u64) -> Option<CacheEntry> {
        let entry = self.all.remove(&number)?;
        for hash in entry.hashes() {
            if self.by_hash.get(&hash) == Some(&number) {
                self.by_hash.remove(&hash);
            }
        }
        self.bytes = self.bytes.saturating_sub(entry.bytes);
        Some(entry)
    }
}

impl CacheEntry {
    fn hashes(&self) -> impl Iterator<Item = ListHash> + use<> {
        [self.last, self.condensed].into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use epitome_testkit::drawing::messages;

    use super::super::Caller;
    use super::*;
    use crate::Condenser;

    fn prefixes(drawn: &str) -> PrefixHashes {
        let caller = Caller { id: b"ann", session: None, wire: "openai" };
        caller.prefix_hashes("home", &messages(drawn).unwrap())
    }

    fn new_thread(threads: &ThreadCache, drawn: &str) -> Arc<CachedThread> {
        let thread = Condenser::builder().build().unwrap().begin_thread(&messages(drawn).unwrap(), None);
        threads.new_thread(&"home".into(), thread, 0, threads.new_conversation_id())
    }

    fn insert(threads: &ThreadCache, drawn: &str) -> Arc<CachedThread> {
        let cached = new_thread(threads, drawn);
        threads.insert(&cached, prefixes(drawn).last().unwrap(), None);
        cached
    }

    fn finds(threads: &ThreadCache, drawn: &str) -> Option<u64> {
        threads.find(&prefixes(drawn)).map(|hit| hit.cached.number)
    }

    /// Checks that every cached conversation can be found, and that the sum of bytes is correct.
    fn assert_whole(threads: &ThreadCache) {
        let index = lock(&threads.index);
        assert_eq!(index.bytes, index.all.values().map(|entry| entry.bytes).sum::<usize>());
        for (number, entry) in &index.all {
            assert!(entry.hashes().count() > 0, "it cannot be found");
            assert!(entry.hashes().all(|hash| index.by_hash.get(&hash) == Some(number)));
        }
        assert_eq!(index.by_hash.len(), index.all.values().flat_map(CacheEntry::hashes).count());
    }

    #[test]
    fn a_list_finds_the_conversation_with_the_longest_shared_beginning() {
        let threads = ThreadCache::with_limit(10);
        let (short, long) = (insert(&threads, "u:3 a:4"), insert(&threads, "u:3 a:4 u:5 a:6"));
        assert_eq!(finds(&threads, "u:3 a:4 u:5 a:6 u:7"), Some(long.number));
        assert_eq!(finds(&threads, "u:3 a:4 u:5"), Some(short.number));
        assert_eq!(finds(&threads, "u:3"), None);
        assert_eq!(finds(&threads, "u:4 a:4 u:5 a:6"), None);
        assert_whole(&threads);
    }

    #[test]
    fn a_conversation_is_found_by_its_latest_list_and_its_condensed_list_only() {
        let threads = ThreadCache::with_limit(10);
        let one = insert(&threads, "u:3 a:4");
        let condensed = prefixes("u:3 a:4 u:5").last();
        threads.insert(&one, prefixes("u:3 a:4 u:5").last().unwrap(), condensed);
        threads.insert(&one, prefixes("u:3 a:4 u:5 a:6").last().unwrap(), None);
        assert_eq!(finds(&threads, "u:3 a:4"), None);
        assert_eq!(finds(&threads, "u:3 a:4 u:5 a:7"), Some(one.number), "a fork");
        assert!(threads.find(&prefixes("u:3 a:4 u:5 a:6")).is_some_and(|hit| hit.continues));
        assert!(threads.find(&prefixes("u:3 a:4 u:5 a:7")).is_some_and(|hit| !hit.continues));
        // A conversation that was condensed at the same list takes over that hash, and not the other one.
        let two = new_thread(&threads, "u:3 a:4 u:5 a:7");
        threads.insert(&two, prefixes("u:3 a:4 u:5 a:7").last().unwrap(), condensed);
        assert_eq!(finds(&threads, "u:3 a:4 u:5"), Some(two.number));
        // Unless it is the latest list of a conversation.
        let there = insert(&threads, "u:3 a:4 u:5");
        threads.insert(&two, prefixes("u:3 a:4 u:5 a:7").last().unwrap(), condensed);
        assert_eq!(finds(&threads, "u:3 a:4 u:5"), Some(there.number));
        assert_eq!(finds(&threads, "u:3 a:4 u:5 a:6 u"), Some(one.number));
        assert_whole(&threads);
        let three = insert(&threads, "u:3 a:4 u:5 a:6");
        assert_eq!(finds(&threads, "u:3 a:4 u:5 a:6 u"), Some(three.number));
        assert_eq!(lock(&threads.index).all.len(), 3, "the first one cannot be found any more");
        assert_whole(&threads);
    }

    #[test]
    fn the_least_recently_used_are_evicted() {
        let threads = ThreadCache::with_limit(3);
        let lists: Vec<String> = (1..=5).map(|n| format!("u:{n} a")).collect();
        let one = insert(&threads, &lists[0]);
        insert(&threads, &lists[1]);
        insert(&threads, &lists[2]);
        threads.insert(&one, prefixes(&lists[0]).last().unwrap(), None);
        insert(&threads, &lists[3]);
        let cached: Vec<bool> = lists.iter().map(|list| finds(&threads, list).is_some()).collect();
        assert_eq!(cached, [true, false, true, true, false]);
        assert_whole(&threads);
    }

    #[test]
    fn memory_is_bounded_and_a_conversation_that_is_too_large_evicts_no_other() {
        let threads = ThreadCache { max_bytes: 200_000, ..ThreadCache::with_limit(100) };
        for n in 0..60 {
            // Longer lists need more memory.
            let list: Vec<String> = (0..=n).map(|m| format!("u:{}", 1 + n + m)).collect();
            insert(&threads, &list.join(" "));
            assert!(lock(&threads.index).bytes <= 200_000);
            assert_whole(&threads);
        }
        let before = lock(&threads.index).all.len();
        assert!((2..60).contains(&before), "{before}");
        let large = "u:9 ".repeat(1_000);
        let one = insert(&threads, &large);
        assert!(one.thread.bytes() > 50_000);
        assert_eq!((finds(&threads, &large), lock(&threads.index).all.len()), (None, before));
    }

    #[test]
    fn removing_a_workspace_leaves_others_cached() {
        let threads = ThreadCache::with_limit(9);
        insert(&threads, "u a");
        threads.remove_workspace("work");
        assert!(finds(&threads, "u a").is_some());
        threads.remove_workspace("home");
        assert!(finds(&threads, "u a").is_none());
        assert_whole(&threads);
    }

    #[test]
    fn conversation_ids_are_unique() {
        let threads = [ThreadCache::with_limit(1), ThreadCache::with_limit(1)];
        let mut runs: Vec<_> =
            threads.iter().flat_map(|threads| (0..100).map(|_| threads.new_conversation_id())).collect();
        runs.sort();
        runs.dedup();
        assert_eq!(runs.len(), 200);
    }
}
