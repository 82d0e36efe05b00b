//! What is remembered between two calls. All of it can be forgotten at any time.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use epitome_core::local::Extracts;
use epitome_core::message::Tokens;
use epitome_core::slot::Scope;
use epitome_core::tokens::Encoding;
use hashlink::LruCache;

use crate::error::Error;
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

pub(crate) struct Caches {
    /// Settings put together before, by the two documents they were put together from.
    merged: Mutex<LruCache<(String, String), Arc<Settings>>>,
    /// How sessions were counted when last seen: a guess that is checked in the transaction.
    encodings: Mutex<LruCache<SessionKey, Encoding>>,
    /// Slots that are another engine's, and until when they are not looked at again.
    not_ours: Mutex<HashMap<(SessionId, Scope, String), Instant>>,
    pub(crate) memo: Memo,
}

impl Default for Caches {
    fn default() -> Self {
        Self {
            merged: Mutex::new(LruCache::new(MOST_MERGED)),
            encodings: Mutex::new(LruCache::new(MOST_ENCODINGS)),
            not_ours: Mutex::default(),
            memo: Memo::default(),
        }
    }
}

impl Caches {
    /// The settings of a workspace and a session, put together once.
    pub(super) fn settings(
        &self,
        workspace: &str,
        session: &str,
        merge: impl FnOnce() -> Result<Settings, Error>,
    ) -> Result<Arc<Settings>, Error> {
        let key = (workspace.to_owned(), session.to_owned());
        if let Some(merged) = lock(&self.merged).get(&key) {
            return Ok(Arc::clone(merged));
        }
        let settings = Arc::new(merge()?);
        lock(&self.merged).insert(key, Arc::clone(&settings));
        Ok(settings)
    }

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

    /// How a session is counted, where that is known to be otherwise than the settings say.
    pub(crate) fn encoding(&self, key: &SessionKey) -> Option<Encoding> {
        lock(&self.encodings).get(key).copied()
    }

    /// Notes how a session is counted, where that is not `usual`.
    pub(crate) fn learn_encoding(&self, key: &SessionKey, encoding: Encoding, usual: Encoding) {
        let mut known = lock(&self.encodings);
        if encoding == usual {
            known.remove(key);
        } else {
            known.insert(key.clone(), encoding);
        }
    }
}

/// So many rendered texts are remembered; of some kilobytes each.
const MOST_TEXTS: usize = 512;

/// So many extracts are remembered; of some tens of kilobytes each.
const MOST_EXTRACTS: usize = 64;

/// So many sessions are remembered by how they were asked for.
const MOST_ASKED: usize = 1_024;

/// Which text: of these summaries of a session (two where they are joined), in a room of so many tokens.
pub(crate) type TextKey = (SessionId, SummaryId, SummaryId, Tokens);

/// Texts made before.
///
/// A summary never changes once it is kept, so neither does what it comes to in so many tokens. Such texts are
/// remembered by the session's and the summary's number, and so are the extracts they are rendered from: a context that is
/// asked for again costs no rendering. Nothing that another process could change is remembered.
pub(crate) struct Memo {
    texts: Mutex<LruCache<TextKey, (Tokens, Arc<str>)>>,
    extracts: Mutex<LruCache<(SessionId, SummaryId), Arc<Extracts>>>,
    /// How each session was last asked for, so that the same can be made ready when a new summary stands.
    /// With how many tokens of messages were read for it.
    asked: Mutex<LruCache<SessionKey, (ContextRequest, Tokens)>>,
}

impl Default for Memo {
    fn default() -> Self {
        Self {
            texts: Mutex::new(LruCache::new(MOST_TEXTS)),
            extracts: Mutex::new(LruCache::new(MOST_EXTRACTS)),
            asked: Mutex::new(LruCache::new(MOST_ASKED)),
        }
    }
}

impl Memo {
    /// The text, and what it came to.
    pub(crate) fn text(&self, key: TextKey) -> Option<(Tokens, Arc<str>)> {
        lock(&self.texts).get(&key).cloned()
    }

    pub(crate) fn keep_text(&self, key: TextKey, tokens: Tokens, text: &str) {
        lock(&self.texts).insert(key, (tokens, text.into()));
    }

    /// How a session was last asked for, and how many tokens of messages were read for that.
    pub(crate) fn asked(&self, key: &SessionKey) -> Option<(ContextRequest, Tokens)> {
        lock(&self.asked).get(key).cloned()
    }

    pub(crate) fn keep_asked(&self, key: &SessionKey, asked: ContextRequest, read: Tokens) {
        lock(&self.asked).insert(key.clone(), (asked, read));
    }

    /// What a summary was made of.
    pub(crate) fn extracts(&self, session: SessionId, id: SummaryId) -> Option<Arc<Extracts>> {
        lock(&self.extracts).get(&(session, id)).cloned()
    }

    pub(crate) fn keep_extracts(&self, session: SessionId, id: SummaryId, extracts: &Arc<Extracts>) {
        lock(&self.extracts).insert((session, id), Arc::clone(extracts));
    }

    /// Forgets everything, as if nothing had been asked for yet.
    pub(crate) fn forget(&self) {
        lock(&self.texts).clear();
        lock(&self.extracts).clear();
        lock(&self.asked).clear();
    }
}
