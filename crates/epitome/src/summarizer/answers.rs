//! Accepted answers, so that the same question is asked once.

use std::sync::{Arc, Mutex};

use hashlink::LruCache;

use super::UNKNOWN_INPUT;
use crate::lock::lock;
use crate::model::Ask;
use crate::writer::Writer;

/// How many answers are cached.
const MOST_ANSWERS: usize = 64;

/// A cache of accepted answers, by what was asked.
pub(crate) struct Answers(Mutex<LruCache<String, Arc<str>>>);

impl Default for Answers {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MOST_ANSWERS)))
    }
}

impl Answers {
    pub(crate) fn recall(&self, asked: &str) -> Option<Arc<str>> {
        lock(&self.0).get(asked).cloned()
    }

    pub(crate) fn remember(&self, asked: String, text: &str) {
        lock(&self.0).insert(asked, text.into());
    }
}

/// A hash of what a model is asked: the same prior, messages, prompt and model give the same. `None` where calling again
/// costs nothing, or where no prompt can be made of it.
pub(super) fn fingerprint(writer: &Writer, ask: &Ask) -> Option<String> {
    if !writer.model.reusable() {
        return None;
    }
    let prompt = ask.prompt(writer.model.room().unwrap_or(UNKNOWN_INPUT)).ok()?;
    let mut hasher = blake3::Hasher::new();
    for part in [writer.model.provider(), writer.model.name(), &prompt.system, &prompt.user] {
        // With their lengths, so that no two lists of parts hash the same.
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    Some(hasher.finalize().to_hex().to_string())
}
