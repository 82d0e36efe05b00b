//! Texts made before.
//!
//! A summary never changes once it is kept, so neither does what it comes to in so many tokens. Such texts are
//! remembered by the session's and the summary's number, and so are the extracts they are rendered from: a context that is asked
//! for again costs no rendering. Nothing that another process could change is remembered.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use epitome_core::local::Extracts;
use epitome_core::message::Tokens;

use crate::lock::lock;
use crate::request::ContextRequest;
use crate::store::{SessionId, SessionKey, SummaryId};

/// So many rendered texts are remembered; of some kilobytes each.
const MOST_TEXTS: usize = 512;

/// So many extracts are remembered; of some tens of kilobytes each.
const MOST_EXTRACTS: usize = 64;

/// So many sessions are remembered by how they were asked for.
const MOST_ASKED: usize = 1_024;

/// Which text: of these summaries of a session (two where they are joined), in a room of so many tokens.
pub(crate) type TextKey = (SessionId, SummaryId, SummaryId, Tokens);

#[derive(Default)]
pub(crate) struct Memo {
    texts: Mutex<Recent<TextKey, (Tokens, Arc<str>)>>,
    extracts: Mutex<Recent<(SessionId, SummaryId), Arc<Extracts>>>,
    /// How each session was last asked for, so that the same can be made ready when a new summary stands.
    /// With how many tokens of messages were read for it.
    asked: Mutex<Recent<SessionKey, (ContextRequest, Tokens)>>,
}

impl Memo {
    /// The text, and what it came to.
    pub(crate) fn text(&self, key: TextKey) -> Option<(Tokens, Arc<str>)> {
        lock(&self.texts).get(&key)
    }

    pub(crate) fn keep_text(&self, key: TextKey, tokens: Tokens, text: &str) {
        lock(&self.texts).keep(key, (tokens, text.into()), MOST_TEXTS);
    }

    /// How a session was last asked for, and how many tokens of messages were read for that.
    pub(crate) fn asked(&self, key: &SessionKey) -> Option<(ContextRequest, Tokens)> {
        lock(&self.asked).get(key)
    }

    pub(crate) fn keep_asked(&self, key: &SessionKey, asked: ContextRequest, read: Tokens) {
        lock(&self.asked).keep(key.clone(), (asked, read), MOST_ASKED);
    }

    /// Forgets everything, as if nothing had been asked for yet.
    pub(crate) fn forget(&self) {
        *lock(&self.texts) = Recent::default();
        *lock(&self.extracts) = Recent::default();
        *lock(&self.asked) = Recent::default();
    }

    /// What a summary was made of.
    pub(crate) fn extracts(&self, session: SessionId, id: SummaryId) -> Option<Arc<Extracts>> {
        lock(&self.extracts).get(&(session, id))
    }

    pub(crate) fn keep_extracts(&self, session: SessionId, id: SummaryId, extracts: &Arc<Extracts>) {
        lock(&self.extracts).keep((session, id), Arc::clone(extracts), MOST_EXTRACTS);
    }
}

/// The values used last: two generations, the older of which is dropped when the newer is full.
struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new() }
    }
}

impl<K: Eq + Hash + Clone, V: Clone> Recent<K, V> {
    fn get(&mut self, key: &K) -> Option<V> {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let value = self.old.remove(key)?;
        self.young.insert(key.clone(), value.clone());
        Some(value)
    }

    fn keep(&mut self, key: K, value: V, most: usize) {
        if self.young.len() >= most / 2 && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_what_is_not_goes() {
        let mut recent = Recent::default();
        recent.keep(0, "first", 8);
        for n in 1..100 {
            recent.keep(n, "other", 8);
            assert_eq!(recent.get(&0), Some("first"));
            assert!(recent.young.len() + recent.old.len() <= 9);
        }
        assert_eq!(recent.get(&1), None);
    }
}
