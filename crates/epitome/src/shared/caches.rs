//! Caches of the engine. Every entry may be evicted at any time.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use epitome_core::local::Extracts;
use epitome_core::message::Tokens;
use epitome_core::slot::Scope;
use epitome_core::tokens::Encoding;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::lock::lock;
use crate::request::ContextRequest;
use crate::settings::Settings;
use crate::store::{SessionId, SessionKey, SummaryId};

/// Maximum number of slots in the list of slots that belong to other engines.
const MAX_FOREIGN_SLOTS: usize = 10_000;

/// How long this engine skips a slot that belongs to another engine.
const FOREIGN_SLOT_SKIP: Duration = Duration::from_secs(60);

/// Maximum number of merged settings that are cached.
const MAX_MERGED_SETTINGS: usize = 256;

/// Maximum number of sessions whose encoding is cached.
const MAX_ENCODINGS: usize = 10_000;

/// Maximum size of all cached rendered texts together, in bytes. One text has a few kilobytes, and at most about 16 in
/// the default slots. So the contexts of several hundred sessions in use fit.
const MAX_TEXT_BYTES: u64 = 8 << 20;

/// Maximum size of all cached extracts together, in bytes. The extracts of one summary have some tens of kilobytes.
const MAX_EXTRACT_BYTES: u64 = 4 << 20;

/// Expected sizes of one text and of one summary's extracts, from which the cache estimates its number of entries.
const BYTES_PER_TEXT: u64 = 4 << 10;
const BYTES_PER_EXTRACTS: u64 = 64 << 10;

/// Maximum number of sessions whose last context request is cached.
const MAX_LAST_REQUESTS: usize = 1_024;

/// Key of a rendered text: the session, two summaries, and the token budget of the text. The second summary is 0 unless
/// the text joins two summaries.
pub(crate) type TextKey = (SessionId, SummaryId, SummaryId, Tokens);

/// The engine's caches.
///
/// A stored summary never changes, so its text in a certain size never changes either. The caches contain such rendered
/// texts, and the extracts that texts are rendered from. So a repeated context needs no rendering. If another process
/// could change a cached value, the value is checked before it is used.
pub(crate) struct Caches {
    /// Merged settings, by the two documents that they were merged from.
    pub(super) merged: Cache<(String, String), Arc<Settings>>,
    /// The encodings of sessions, if they differ from the encoding of the engine's settings. A cached value is only a
    /// guess; the transaction of the append checks it.
    pub(crate) encodings: Cache<SessionKey, Encoding>,
    /// Slots that belong to other engines. Each slot maps to the time after which this engine may lease the slot again.
    foreign_slots: Mutex<HashMap<(SessionId, Scope, String), Instant>>,
    /// Rendered texts with their tokens.
    pub(crate) texts: Cache<TextKey, (Tokens, Arc<str>), ByteWeighter>,
    /// Extracts of summaries.
    pub(crate) extracts: Cache<(SessionId, SummaryId), Arc<Extracts>, ByteWeighter>,
    /// The last context request of each session, and how many tokens of messages were read for it. With the request,
    /// the same context can be built in advance when a slot gets a new summary.
    pub(crate) last_requests: Cache<SessionKey, (ContextRequest, Tokens)>,
}

/// Weighs cache entries by their size in bytes.
#[derive(Clone)]
pub(crate) struct ByteWeighter;

impl Weighter<TextKey, (Tokens, Arc<str>)> for ByteWeighter {
    fn weight(&self, _: &TextKey, (_, text): &(Tokens, Arc<str>)) -> u64 {
        text.len().saturating_add(size_of::<TextKey>()) as u64
    }
}

impl Weighter<(SessionId, SummaryId), Arc<Extracts>> for ByteWeighter {
    fn weight(&self, _: &(SessionId, SummaryId), extracts: &Arc<Extracts>) -> u64 {
        extracts.bytes() as u64
    }
}

/// Returns a cache of at most `most` bytes, whose entries have about `each` bytes.
fn cache_of_bytes<K: Eq + Hash, V: Clone>(most: u64, each: u64) -> Cache<K, V, ByteWeighter>
where
    ByteWeighter: Weighter<K, V>,
{
    Cache::with_weighter(usize::try_from(most / each).unwrap_or(usize::MAX), most, ByteWeighter)
}

impl Default for Caches {
    fn default() -> Self {
        Self {
            merged: Cache::new(MAX_MERGED_SETTINGS),
            encodings: Cache::new(MAX_ENCODINGS),
            foreign_slots: Mutex::default(),
            texts: cache_of_bytes(MAX_TEXT_BYTES, BYTES_PER_TEXT),
            extracts: cache_of_bytes(MAX_EXTRACT_BYTES, BYTES_PER_EXTRACTS),
            last_requests: Cache::new(MAX_LAST_REQUESTS),
        }
    }
}

impl Caches {
    /// Adds a slot that belongs to another engine to the list of slots that are not leased for [`FOREIGN_SLOT_SKIP`].
    /// Returns false if the list is full.
    pub(crate) fn skip_foreign_slot(&self, session: SessionId, scope: &Scope, slot: &str) -> bool {
        let until = Instant::now() + FOREIGN_SLOT_SKIP;
        let mut slots = lock(&self.foreign_slots);
        let has_room = slots.len() < MAX_FOREIGN_SLOTS;
        if has_room {
            slots.insert((session, scope.clone(), slot.to_owned()), until);
        }
        has_room
    }

    /// Returns the slots of other engines that this engine does not lease now.
    pub(crate) fn foreign_slots(&self) -> HashSet<(SessionId, Scope, String)> {
        let mut slots = lock(&self.foreign_slots);
        if !slots.is_empty() {
            let now = Instant::now();
            slots.retain(|_, until| *until > now);
        }
        slots.keys().cloned().collect()
    }

    /// Caches the encoding of a session if it differs from `usual`, the encoding of the engine's settings. Otherwise
    /// removes the session's entry.
    pub(crate) fn learn_encoding(&self, key: &SessionKey, encoding: Encoding, usual: Encoding) {
        if encoding == usual {
            self.encodings.remove(key);
        } else {
            self.encodings.insert(key.clone(), encoding);
        }
    }

    /// Clears everything that contexts are rendered from. The caches are then as if no context had been requested yet.
    pub(crate) fn forget_rendered(&self) {
        self.texts.clear();
        self.extracts.clear();
        self.last_requests.clear();
    }
}
