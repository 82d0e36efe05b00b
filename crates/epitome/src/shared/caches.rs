//! What is remembered between two calls. All of it can be forgotten at any time.

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

/// So many slots of other engines' are known as such at a time.
const MOST_NOT_OURS: usize = 10_000;

/// For so long a slot of another engine's is not looked at.
const LOOK_AWAY: Duration = Duration::from_secs(60);

/// More settings than this are not remembered as put together.
const MOST_MERGED: usize = 256;

/// More sessions than this are not remembered by their encoding.
const MOST_ENCODINGS: usize = 10_000;

/// So many rendered texts are remembered; of some kilobytes each.
const MOST_TEXTS: usize = 512;

/// So many extracts are remembered; of some tens of kilobytes each.
const MOST_EXTRACTS: usize = 64;

/// So many sessions are remembered by how they were asked for.
const MOST_ASKED: usize = 1_024;

/// Which text: of these summaries of a session (two where they are joined), in a room of so many tokens.
pub(crate) type TextKey = (SessionId, SummaryId, SummaryId, Tokens);

/// What is remembered, among it texts made before.
///
/// A summary never changes once it is kept, so neither does what it comes to in so many tokens. Such texts are
/// remembered by the session's and the summary's number, and so are the extracts they are rendered from: a context that is
/// asked for again costs no rendering. Nothing that another process could change is remembered.
pub(crate) struct Caches {
    /// Settings put together before, by the two documents they were put together from.
    pub(super) merged: Cache<(String, String), Arc<Settings>>,
    /// How sessions were counted when last seen, where that is otherwise than the settings say: a guess that is checked in
    /// the transaction.
    pub(crate) encodings: Cache<SessionKey, Encoding>,
    /// Slots that are another engine's, and until when they are not looked at again.
    not_ours: Mutex<HashMap<(SessionId, Scope, String), Instant>>,
    /// Texts, and what they came to.
    pub(crate) texts: Cache<TextKey, (Tokens, Arc<str>)>,
    /// What summaries were made of.
    pub(crate) extracts: Cache<(SessionId, SummaryId), Arc<Extracts>>,
    /// How each session was last asked for, so that the same can be made ready when a new summary stands.
    /// With how many tokens of messages were read for it.
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
    /// Does not look at a slot for a while: it is another engine's. False when there are too many of them to know.
    pub(crate) fn look_away(&self, session: SessionId, scope: &Scope, slot: &str) -> bool {
        let until = Instant::now() + LOOK_AWAY;
        let mut slots = lock(&self.not_ours);
        let knows = slots.len() < MOST_NOT_OURS;
        if knows {
            slots.insert((session, scope.clone(), slot.to_owned()), until);
        }
        knows
    }

    /// The slots that are not looked at now.
    pub(crate) fn not_ours(&self) -> HashSet<(SessionId, Scope, String)> {
        let mut slots = lock(&self.not_ours);
        if !slots.is_empty() {
            let now = Instant::now();
            slots.retain(|_, until| *until > now);
        }
        slots.keys().cloned().collect()
    }

    /// Notes how a session is counted, where that is not `usual`.
    pub(crate) fn learn_encoding(&self, key: &SessionKey, encoding: Encoding, usual: Encoding) {
        if encoding == usual {
            self.encodings.remove(key);
        } else {
            self.encodings.insert(key.clone(), encoding);
        }
    }

    /// Forgets what contexts are made from, as if none had been asked for yet.
    pub(crate) fn forget_rendered(&self) {
        self.texts.clear();
        self.extracts.clear();
        self.asked.clear();
    }
}
