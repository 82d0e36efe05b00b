//! Caches of the engine. Every entry may be evicted at any time.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use epitome_core::local::Extracts;
use epitome_core::message::Tokens;
use epitome_core::slot::Scope;
use epitome_core::tokens::Encoding;
use quick_cache::sync::Cache;

use crate::lock::lock;
use crate::request::ContextRequest;
use crate::settings::Settings;
use crate::store::{SessionId, SessionKey, SummaryId};

/// Maximum number of slots in the list of other engines' slots.
const MOST_NOT_OURS: usize = 10_000;

/// How long a slot that belongs to another engine is not leased.
const LOOK_AWAY: Duration = Duration::from_secs(60);

/// Maximum number of merged settings.
const MOST_MERGED: usize = 256;

/// Maximum number of sessions whose encoding is cached.
const MOST_ENCODINGS: usize = 10_000;

/// Maximum number of rendered texts, of a few kilobytes each.
const MOST_TEXTS: usize = 512;

/// Maximum number of extracts, of tens of kilobytes each.
const MOST_EXTRACTS: usize = 64;

/// Maximum number of sessions whose last context request is cached.
const MOST_ASKED: usize = 1_024;

/// Key of a rendered text: the session, one or two summaries (two if they are joined), and the token budget of the text.
pub(crate) type TextKey = (SessionId, SummaryId, SummaryId, Tokens);

/// The engine's caches.
///
/// A stored summary never changes, so its rendering in a certain size does not change either. The caches contain such texts,
/// and the extracts that they are rendered from, by the ids of the session and the summary, so that a repeated context needs
/// no rendering. Nothing that another process could change is cached without a check.
pub(crate) struct Caches {
    /// Merged settings, by the two documents that they were merged from.
    pub(super) merged: Cache<(String, String), Arc<Settings>>,
    /// The encoding of sessions, if it differs from the engine's settings. A guess: the append's transaction checks it.
    pub(crate) encodings: Cache<SessionKey, Encoding>,
    /// Slots that belong to other engines, and until when they are not leased.
    not_ours: Mutex<HashMap<(SessionId, Scope, String), Instant>>,
    /// Rendered texts with their tokens.
    pub(crate) texts: Cache<TextKey, (Tokens, Arc<str>)>,
    /// Extracts of summaries.
    pub(crate) extracts: Cache<(SessionId, SummaryId), Arc<Extracts>>,
    /// The last context request of each session, so that the same context can be built in advance when a slot has a new
    /// summary; and how many tokens of messages were read for it.
    pub(crate) asked: Cache<SessionKey, (ContextRequest, Tokens)>,
}

impl Default for Caches {
    fn default() -> Self {
        Self {
            merged: Cache::new(MOST_MERGED),
            encodings: Cache::new(MOST_ENCODINGS),
            not_ours: Mutex::default(),
            texts: Cache::new(MOST_TEXTS),
            extracts: Cache::new(MOST_EXTRACTS),
            asked: Cache::new(MOST_ASKED),
        }
    }
}

impl Caches {
    /// Skips a slot for a while, because it belongs to another engine. Returns false if the list of such slots is full.
    pub(crate) fn look_away(&self, session: SessionId, scope: &Scope, slot: &str) -> bool {
        let until = Instant::now() + LOOK_AWAY;
        let mut slots = lock(&self.not_ours);
        let knows = slots.len() < MOST_NOT_OURS;
        if knows {
            slots.insert((session, scope.clone(), slot.to_owned()), until);
        }
        knows
    }

    /// Returns the slots that are skipped now.
    pub(crate) fn not_ours(&self) -> HashSet<(SessionId, Scope, String)> {
        let mut slots = lock(&self.not_ours);
        if !slots.is_empty() {
            let now = Instant::now();
            slots.retain(|_, until| *until > now);
        }
        slots.keys().cloned().collect()
    }

    /// Caches the encoding of a session, if it is not `usual`.
    pub(crate) fn learn_encoding(&self, key: &SessionKey, encoding: Encoding, usual: Encoding) {
        if encoding == usual {
            self.encodings.remove(key);
        } else {
            self.encodings.insert(key.clone(), encoding);
        }
    }

    /// Clears everything that contexts are rendered from, as if no context had been requested yet.
    pub(crate) fn forget_rendered(&self) {
        self.texts.clear();
        self.extracts.clear();
        self.asked.clear();
    }
}
