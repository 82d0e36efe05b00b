//! Caches the conversations of all workspaces in memory, by the hashes of their lists.
//!
//! Each conversation has up to two hashes: of its latest list, and of its list when it was last condensed, from which
//! other lists may have forked. The second one is omitted if another conversation's latest list has it. The least
//! recently used conversations are evicted if there are too many or if they need too much memory. An evicted
//! conversation that is still in use stays valid; it is only not found any more. The hashes of condensed lists are
//! remembered for longer: they show that the store contains a state.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hashlink::{LinkedHashMap, LruCache};

use super::keeping::Keeping;
use crate::condenser::Thread;
use crate::fingerprint::Chain;
use crate::lock::lock;
use crate::store::ListHash;

/// Default maximum number of cached conversations.
pub(crate) const MOST_THREADS: usize = 4_096;

/// Maximum memory of the cached conversations in bytes, approximately.
const MOST_BYTES: usize = 64 << 20;

/// Approximate memory of a cached conversation in addition to its thread, in bytes.
const ENTRY: usize = 512;

/// Maximum number of hashes of condensed lists that are remembered.
const MOST_CONDENSED: usize = 4 * MOST_THREADS;

/// The cached conversations.
pub(crate) struct Threads {
    known: Mutex<Known>,
    most_threads: usize,
    /// Maximum memory in bytes. A conversation larger than a quarter of this is not cached, so that others need not be
    /// evicted for it.
    most_bytes: usize,
    /// What was done to lists and is not in the store yet.
    pub(super) keeping: Arc<Keeping>,
    numbers: AtomicU64,
    seed: RandomState,
}

/// A cached conversation.
pub(super) struct Held {
    number: u64,
    workspace: Arc<str>,
    pub(super) thread: Thread,
    /// The id of the condenser it was begun for: a condenser with other settings counts tokens differently.
    pub(super) condenser: u64,
    pub(super) run: Arc<str>,
}

/// A cached conversation that shares its beginning with a list.
pub(super) struct Found {
    pub(super) held: Arc<Held>,
    /// Number of shared messages after the leading system messages, as far as they were compared.
    pub(super) shared: usize,
    /// Whether the list begins with the whole conversation; otherwise they share only the part that was condensed.
    pub(super) goes_on: bool,
    /// Hash of the conversation's list when it was last condensed.
    pub(super) condensed: Option<ListHash>,
    /// Whether the list begins with a longer list that was condensed, for which the store has a newer state.
    pub(super) outdated: bool,
}

struct Known {
    by: HashMap<ListHash, u64>,
    /// Least recently used first.
    all: LinkedHashMap<u64, Entry>,
    bytes: usize,
    /// Hashes of lists that were condensed.
    condensed: LruCache<ListHash, ()>,
}

struct Entry {
    held: Arc<Held>,
    last: Option<ListHash>,
    condensed: Option<ListHash>,
    bytes: usize,
}

impl Threads {
    /// Creates a cache for this many conversations.
    pub(crate) fn at_most(most_threads: usize) -> Self {
        let condensed = LruCache::new(MOST_CONDENSED);
        let known = Known { by: HashMap::new(), all: LinkedHashMap::new(), bytes: 0, condensed };
        Self {
            known: Mutex::new(known),
            most_threads,
            most_bytes: MOST_BYTES,
            keeping: Arc::default(),
            numbers: AtomicU64::new(0),
            seed: RandomState::new(),
        }
    }

    /// Waits until all changes are in the store, or could not be stored.
    pub(crate) async fn settled(&self) {
        self.keeping.settled().await;
    }

    /// Removes all conversations of a workspace.
    pub(crate) fn forget(&self, workspace: &str) {
        self.keeping.forget(workspace);
        let mut known = lock(&self.known);
        let its = known.all.iter().filter(|(_, entry)| &*entry.held.workspace == workspace);
        let its: Vec<u64> = its.map(|(number, _)| *number).collect();
        let gone: Vec<_> = its.into_iter().map(|number| known.remove(number)).collect();
        drop(known);
        drop(gone);
    }

    /// Creates a conversation that is not in the cache yet.
    pub(super) fn held(
        &self,
        workspace: &Arc<str>,
        thread: Thread,
        condenser: u64,
        run: Arc<str>,
    ) -> Arc<Held> {
        let (number, workspace) = (self.numbers.fetch_add(1, Ordering::Relaxed), Arc::clone(workspace));
        Arc::new(Held { number, workspace, thread, condenser, run })
    }

    /// Returns an id that is unique across processes.
    pub(super) fn run(&self) -> Arc<str> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let half = |part: u8| self.seed.hash_one((number, part));
        format!("{:016x}{:08x}", half(0), half(1) >> 32).into()
    }

    /// Returns whether a conversation with this id is cached.
    pub(super) fn has_run(&self, run: &str) -> bool {
        lock(&self.known).all.values().any(|entry| &*entry.held.run == run)
    }

    /// Returns the cached conversation that shares the longest beginning with the list.
    pub(super) fn find(&self, chain: &Chain) -> Option<Found> {
        let known = lock(&self.known);
        let mut outdated = false;
        chain.hashes.iter().enumerate().rev().find_map(|(before, hash)| {
            let shared = before.saturating_add(1);
            let Some(entry) = known.by.get(hash).and_then(|number| known.all.get(number)) else {
                outdated |= known.condensed.peek(hash).is_some();
                return None;
            };
            let goes_on = entry.last.as_ref() == Some(hash);
            let (held, condensed) = (Arc::clone(&entry.held), entry.condensed);
            Some(Found { held, shared, goes_on, condensed, outdated })
        })
    }

    /// Records that a list was condensed.
    pub(super) fn condensed(&self, list: ListHash) {
        lock(&self.known).condensed.insert(list, ());
    }

    /// Puts a conversation into the cache under its current hashes, and evicts others if necessary.
    pub(super) fn file(&self, held: &Arc<Held>, last: ListHash, condensed: Option<ListHash>) {
        let bytes = held.thread.bytes().saturating_add(ENTRY);
        let mut known = lock(&self.known);
        let before = known.remove(held.number);
        if bytes <= self.most_bytes / 4 {
            let condensed = condensed.or(before.and_then(|entry| entry.condensed));
            known.insert(Entry { held: Arc::clone(held), last: Some(last), condensed, bytes });
        }
        let mut gone = Vec::new();
        while known.all.len() > self.most_threads || known.bytes > self.most_bytes {
            let Some(oldest) = known.all.front().map(|(number, _)| *number) else { break };
            gone.extend(known.remove(oldest));
        }
        drop(known);
        // Frees the memory without the lock.
        drop(gone);
    }
}

impl Known {
    fn insert(&mut self, mut entry: Entry) {
        // A conversation's latest list takes precedence over another's condensed list, which the store still finds.
        let taken = |hash: &mut ListHash| {
            let other = self.by.get(hash).and_then(|number| self.all.get(number));
            other.is_some_and(|other| other.last == Some(*hash))
        };
        entry.condensed.take_if(taken);
        let number = entry.held.number;
        for hash in entry.hashes() {
            if let Some(other) = self.by.insert(hash, number).filter(|other| *other != number) {
                self.displace(other, hash);
            }
        }
        self.bytes = self.bytes.saturating_add(entry.bytes);
        self.all.insert(number, entry);
    }

    /// Removes this hash from a conversation. Removes the conversation if it has no hash left.
    fn displace(&mut self, number: u64, hash: ListHash) {
        let Some(entry) = self.all.get_mut(&number) else { return };
        for place in [&mut entry.last, &mut entry.condensed] {
            place.take_if(|place| *place == hash);
        }
        if entry.last.is_none() && entry.condensed.is_none() {
            self.remove(number);
        }
    }

    fn remove(&mut self, number: u64) -> Option<Entry> {
        let entry = self.all.remove(&number)?;
        for hash in entry.hashes() {
            if self.by.get(&hash) == Some(&number) {
                self.by.remove(&hash);
            }
        }
        self.bytes = self.bytes.saturating_sub(entry.bytes);
        Some(entry)
    }
}

impl Entry {
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

    fn chain(drawn: &str) -> Chain {
        let caller = Caller { id: b"ann", session: None, wire: "openai" };
        caller.chain("home", &messages(drawn).unwrap())
    }

    fn held(threads: &Threads, drawn: &str) -> Arc<Held> {
        let thread = Condenser::builder().build().unwrap().begin(&messages(drawn).unwrap(), None);
        threads.held(&"home".into(), thread, 0, threads.run())
    }

    fn file(threads: &Threads, drawn: &str) -> Arc<Held> {
        let held = held(threads, drawn);
        threads.file(&held, chain(drawn).last().unwrap(), None);
        held
    }

    fn finds(threads: &Threads, drawn: &str) -> Option<u64> {
        threads.find(&chain(drawn)).map(|found| found.held.number)
    }

    /// Checks that every cached conversation can be found, and that the sum of bytes is correct.
    fn assert_whole(threads: &Threads) {
        let known = lock(&threads.known);
        assert_eq!(known.bytes, known.all.values().map(|entry| entry.bytes).sum::<usize>());
        for (number, entry) in &known.all {
            assert!(entry.hashes().count() > 0, "it cannot be found");
            assert!(entry.hashes().all(|hash| known.by.get(&hash) == Some(number)));
        }
        assert_eq!(known.by.len(), known.all.values().flat_map(Entry::hashes).count());
    }

    #[test]
    fn a_list_finds_whoever_it_shares_most_with_and_nobody_who_is_past_it() {
        let threads = Threads::at_most(10);
        let (short, long) = (file(&threads, "u:3 a:4"), file(&threads, "u:3 a:4 u:5 a:6"));
        assert_eq!(finds(&threads, "u:3 a:4 u:5 a:6 u:7"), Some(long.number));
        assert_eq!(finds(&threads, "u:3 a:4 u:5"), Some(short.number));
        assert_eq!(finds(&threads, "u:3"), None);
        assert_eq!(finds(&threads, "u:4 a:4 u:5 a:6"), None);
        assert_whole(&threads);
    }

    #[test]
    fn it_is_found_where_it_is_and_where_it_was_condensed_and_nowhere_else() {
        let threads = Threads::at_most(10);
        let one = file(&threads, "u:3 a:4");
        let condensed = chain("u:3 a:4 u:5").last();
        threads.file(&one, chain("u:3 a:4 u:5").last().unwrap(), condensed);
        threads.file(&one, chain("u:3 a:4 u:5 a:6").last().unwrap(), None);
        assert_eq!(finds(&threads, "u:3 a:4"), None);
        assert_eq!(finds(&threads, "u:3 a:4 u:5 a:7"), Some(one.number), "a fork");
        assert!(threads.find(&chain("u:3 a:4 u:5 a:6")).is_some_and(|found| found.goes_on));
        assert!(threads.find(&chain("u:3 a:4 u:5 a:7")).is_some_and(|found| !found.goes_on));
        // A conversation that was condensed at the same list takes over that hash, and not the other one.
        let two = held(&threads, "u:3 a:4 u:5 a:7");
        threads.file(&two, chain("u:3 a:4 u:5 a:7").last().unwrap(), condensed);
        assert_eq!(finds(&threads, "u:3 a:4 u:5"), Some(two.number));
        // Unless it is the latest list of a conversation.
        let there = file(&threads, "u:3 a:4 u:5");
        threads.file(&two, chain("u:3 a:4 u:5 a:7").last().unwrap(), condensed);
        assert_eq!(finds(&threads, "u:3 a:4 u:5"), Some(there.number));
        assert_eq!(finds(&threads, "u:3 a:4 u:5 a:6 u"), Some(one.number));
        assert_whole(&threads);
        let three = file(&threads, "u:3 a:4 u:5 a:6");
        assert_eq!(finds(&threads, "u:3 a:4 u:5 a:6 u"), Some(three.number));
        assert_eq!(lock(&threads.known).all.len(), 3, "the first one cannot be found any more");
        assert_whole(&threads);
    }

    #[test]
    fn those_longest_quiet_are_let_go_of() {
        let threads = Threads::at_most(3);
        let lists: Vec<String> = (1..=5).map(|n| format!("u:{n} a")).collect();
        let one = file(&threads, &lists[0]);
        file(&threads, &lists[1]);
        file(&threads, &lists[2]);
        threads.file(&one, chain(&lists[0]).last().unwrap(), None);
        file(&threads, &lists[3]);
        let known: Vec<bool> = lists.iter().map(|list| finds(&threads, list).is_some()).collect();
        assert_eq!(known, [true, false, true, true, false]);
        assert_whole(&threads);
    }

    #[test]
    fn what_is_held_is_bounded_in_bytes_and_nobody_leaves_for_one_that_is_too_large() {
        let threads = Threads { most_bytes: 200_000, ..Threads::at_most(100) };
        for n in 0..60 {
            // Longer lists need more memory.
            let list: Vec<String> = (0..=n).map(|m| format!("u:{}", 1 + n + m)).collect();
            file(&threads, &list.join(" "));
            assert!(lock(&threads.known).bytes <= 200_000);
            assert_whole(&threads);
        }
        let before = lock(&threads.known).all.len();
        assert!((2..60).contains(&before), "{before}");
        let large = "u:9 ".repeat(1_000);
        let one = file(&threads, &large);
        assert!(one.thread.bytes() > 50_000);
        assert_eq!((finds(&threads, &large), lock(&threads.known).all.len()), (None, before));
    }

    #[test]
    fn a_workspace_is_forgotten_and_others_are_not() {
        let threads = Threads::at_most(9);
        file(&threads, "u a");
        threads.forget("work");
        assert!(finds(&threads, "u a").is_some());
        threads.forget("home");
        assert!(finds(&threads, "u a").is_none());
        assert_whole(&threads);
    }

    #[test]
    fn no_two_conversations_have_one_number() {
        let threads = [Threads::at_most(1), Threads::at_most(1)];
        let mut runs: Vec<_> = threads.iter().flat_map(|threads| (0..100).map(|_| threads.run())).collect();
        runs.sort();
        runs.dedup();
        assert_eq!(runs.len(), 200);
    }
}
