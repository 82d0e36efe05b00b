//! Accepted answers, so that the same question is asked once.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hashlink::LruCache;

use super::UNKNOWN_INPUT;
use crate::lock::lock;
use crate::model::{Ask, ModelError};
use crate::writer::Writer;

/// How many answers are cached.
const MOST_ANSWERS: usize = 64;

/// How long a provider is believed that a prompt is too long for it: its model may be replaced by a larger one.
const BELIEVED: Duration = Duration::from_secs(600);

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

/// Prompts that a provider refused as too long, so that none is sent twice: where a fallback is in use, the next summary
/// begins with the same messages, and may be divided at the same place.
pub(crate) struct TooLong(Mutex<LruCache<String, (Instant, ModelError)>>);

impl Default for TooLong {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MOST_ANSWERS)))
    }
}

impl TooLong {
    /// What the provider said of it, if that was not long ago.
    pub(crate) fn recall(&self, asked: &str) -> Option<ModelError> {
        let mut known = lock(&self.0);
        let (when, error) = known.get(asked)?;
        (when.elapsed() < BELIEVED).then(|| error.clone())
    }

    pub(crate) fn remember(&self, asked: String, error: ModelError) {
        lock(&self.0).insert(asked, (Instant::now(), error));
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
