//! Texts made before.
//!
//! A summary never changes once it is kept, so neither does what it comes to in so many tokens. Such texts are
//! remembered by the summary's number, and so are the extracts they are rendered from: a context that is asked
//! for again costs no rendering. Nothing that another process could change is remembered.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use epitome_core::local::Extracts;
use epitome_core::message::Tokens;

use super::lock;
use crate::store::SummaryId;

/// So many rendered texts are remembered; of some kilobytes each.
const MOST_TEXTS: usize = 512;

/// So many extracts are remembered; of some tens of kilobytes each.
const MOST_EXTRACTS: usize = 64;

/// Which text: of these summaries (two where they are joined), in a room of so many tokens.
pub(crate) type TextKey = (SummaryId, SummaryId, Tokens);

#[derive(Default)]
pub(crate) struct Memo {
    texts: Mutex<Recent<TextKey, (Tokens, Arc<str>)>>,
    extracts: Mutex<Recent<SummaryId, Arc<Extracts>>>,
}

impl Memo {
    /// The text, and what it came to.
    pub(crate) fn text(&self, key: TextKey) -> Option<(Tokens, Arc<str>)> {
        lock(&self.texts).get(&key)
    }

    pub(crate) fn keep_text(&self, key: TextKey, tokens: Tokens, text: &str) {
        lock(&self.texts).keep(key, (tokens, text.into()), MOST_TEXTS);
    }

    /// Forgets everything, as if nothing had been asked for yet.
    pub(crate) fn forget(&self) {
        *lock(&self.texts) = Recent::default();
        *lock(&self.extracts) = Recent::default();
    }

    /// What a summary was made of, parsed from how it is stored.
    pub(crate) fn extracts(
        &self,
        id: SummaryId,
        parse: impl FnOnce() -> Option<Extracts>,
    ) -> Option<Arc<Extracts>> {
        if let Some(known) = lock(&self.extracts).get(&id) {
            return Some(known);
        }
        let parsed = Arc::new(parse()?);
        lock(&self.extracts).keep(id, Arc::clone(&parsed), MOST_EXTRACTS);
        Some(parsed)
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

impl<K: Eq + Hash + Copy, V: Clone> Recent<K, V> {
    fn get(&mut self, key: &K) -> Option<V> {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let value = self.old.remove(key)?;
        self.young.insert(*key, value.clone());
        Some(value)
    }

    fn keep(&mut self, key: K, value: V, most: usize) {
        if self.young.len() >= most / 2 {
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
